//! Drives this node's part in a job: links to the nodes below it, its own launcher, and the files that go along.

use super::goods::{Goods, News};
use super::link::{Close, End, Said, answers, in_words, talk};
use super::spare::{self, Spares};
use super::{Entry, enter, sweep};
use crate::daemon::Node;
use crate::launcher::LAUNCHER;
use crate::peers;
use pando_kernel::{procfs, signal};
use pando_launch::{Broken, Child, Copies, Down, Effect, Event, Frames, Identity, Order, Own, Part, Up};
use pando_wire::SNI_JOB;
use serde_bytes::ByteBuf;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::client::TlsStream;

/// Messages that have been read and not been heeded.
const WAITING: usize = 256;

/// A launcher that was told to end everything has so long.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// One that an earlier job has left says within this who it is.
const LAUNCHER_ANSWERS: Duration = Duration::from_secs(2);

/// What a child says; or why nothing is heard of it any more.
type Heard = (usize, Result<Up, String>);

/// One child's link.
struct Below {
    node: Arc<Node>,
    order: Arc<Order>,
    /// The order for the wire.
    copies: Arc<Result<Copies, Broken>>,
    place: u32,
    /// What only the launcher is told.
    own: Own,
    at: usize,
    said: Said<Down>,
    hear: Sender<Heard>,
}

struct Driver {
    order: Arc<Order>,
    place: u32,
    part: Part,
    links: Vec<Option<UnboundedSender<Down>>>,
    goods: Option<Goods>,
    /// The launcher, as long as it waits for files.
    waits: Option<Below>,
    ups: UnboundedSender<Up>,
    /// What happens next, in the launcher's name.
    events: VecDeque<Event>,
    /// The launcher's process.
    launcher: Option<i32>,
    /// It has been told to end everything, and has until then.
    gives_up: Option<Instant>,
    /// The job is known here, and has its CPUs.
    entry: Option<Entry>,
}

/// The part of a job's first node, for its head there.
pub struct First {
    pub downs: Sender<Down>,
    pub ups: UnboundedReceiver<Up>,
    pub runs: JoinHandle<()>,
}

/// Begins it. The job is known here when this returns; the error is for people.
pub fn first(node: &Arc<Node>, order: &Arc<Order>) -> Result<First, String> {
    let entry = enter(node, order, 0).ok_or("this node has a job with that number")?;
    let (downs, from_head) = channel::<Down>(WAITING);
    let (to_head, ups) = unbounded_channel::<Up>();
    let (node, order) = (node.clone(), order.clone());
    let runs = tokio::spawn(async move { run(&node, order, 0, entry, (from_head, to_head)).await });
    Ok(First { downs, ups, runs })
}

/// Runs it to its end. `parent`: what it says, closed when it is lost, and what it is told.
pub async fn run(
    node: &Arc<Node>,
    order: Arc<Order>,
    place: u32,
    entry: Entry,
    parent: (Receiver<Down>, UnboundedSender<Up>),
) {
    let (mut downs, ups) = parent;
    let (hear, mut heard) = channel::<Heard>(WAITING);
    // As long as `hear` is there, `heard` waits for who may still come.
    let mut driver = Driver::make(node, order, place, entry, (ups, hear.clone()));
    driver.begin();
    let mut has_parent = true;
    while !driver.part.is_over() {
        if let Some(event) = driver.events.pop_front() {
            driver.feed(event);
            continue;
        }
        tokio::select! {
            down = downs.recv(), if has_parent => match down {
                Some(Down::Piece { file, index, bytes }) => driver.piece(file, index, bytes),
                Some(down) => driver.feed(Event::Down(down)),
                None => {
                    has_parent = false;
                    driver.feed(Event::ParentLost);
                }
            },
            () = sleep_until(driver.gives_up.unwrap_or_else(Instant::now)), if driver.gives_up.is_some() => driver.give_up(),
            Some((at, heard)) = heard.recv() => match heard {
                Ok(Up::Want { file, upto }) => driver.wanted(at, file, upto),
                Ok(Up::Launcher(pid)) => driver.launcher = driver.launcher.or(Some(pid).filter(|_| driver.is_launcher(at))),
                Ok(up) => {
                    if up == Up::Gone {
                        // Its link is closed when nobody can say anything on it.
                        driver.links[at] = None;
                        driver.leave(at);
                    }
                    driver.feed(Event::Up(at, up));
                }
                Err(why) => {
                    driver.links[at] = None;
                    driver.feed(Event::ChildLost(at, why));
                }
            },
        }
    }
}

impl Driver {
    /// With links to the children that are nodes.
    fn make(
        node: &Arc<Node>,
        order: Arc<Order>,
        place: u32,
        entry: Entry,
        (ups, hear): (UnboundedSender<Up>, Sender<Heard>),
    ) -> Driver {
        let part = Part::new(order.clone(), place);
        let children = part.children();
        let make = || {
            let user = node.jobs.user(&order.user);
            let (cache, base) = (&node.jobs.cache, &node.jobs.along);
            let goods = user.as_ref().and_then(|u| Goods::new(cache, &order, (u.0, u.1), &children, base));
            (user, goods)
        };
        // Nobody waits for a disk where nothing goes along, nor for who knows the users where this one is known.
        let is_quick = order.files.is_empty() && node.jobs.known_user(&order.user).is_some();
        let (user, goods) = if is_quick { make() } else { tokio::task::block_in_place(make) };
        let (links, events) = (Vec::new(), VecDeque::new());
        let mut driver = Driver {
            order: order.clone(),
            place,
            part,
            links,
            goods,
            waits: None,
            ups,
            events,
            launcher: None,
            gives_up: None,
            entry: Some(entry),
        };
        driver.entry.iter_mut().for_each(|entry| entry.furnish(&order, place, user.as_ref()));
        let copies = Arc::new(Copies::of(&order));
        let mut own = Some(driver.own(node, user));
        for (at, child) in children.into_iter().enumerate() {
            let (sender, queue) = unbounded_channel();
            driver.links.push(Some(sender));
            let silence = (child != Child::Launcher).then(|| Duration::from_millis(node.config.jobs.lost_after_ms));
            let said = Said { queue, beat: Down::Beat, silence, end: End::Says(Down::End) };
            let own = own.take_if(|_| child == Child::Launcher).unwrap_or_default();
            let (node, order, copies, hear) = (node.clone(), order.clone(), copies.clone(), hear.clone());
            let below = Below { node, order, copies, place, own, at, said, hear };
            match child {
                Child::Launcher => driver.waits = Some(below),
                Child::Place(place) => drop(tokio::spawn(below.member(place))),
            }
        }
        driver
    }

    /// What the launcher is told, but for what comes along.
    fn own(&self, node: &Node, user: Option<Identity>) -> Own {
        let mark = node.jobs.mark.clone();
        let Some(entry) = &self.entry else { return Own { mark, user, ..Own::default() } };
        let group = entry.group.clone().and_then(Result::ok);
        Own {
            mark,
            user,
            cpus: entry.cpus.clone(),
            group: group.map(|list| ByteBuf::from(list.into_os_string().into_vec())),
            groups: entry.groups.clone(),
            variables: entry.variables.clone(),
            ..Own::default()
        }
    }

    /// The launcher begins when there is something to launch.
    fn begin(&mut self) {
        if let Some(Err(why)) = self.entry.as_ref().and_then(|entry| entry.group.clone()) {
            return self.refuse(format!("it can't take turns here: {why}"));
        }
        match &mut self.goods {
            Some(goods) if !goods.is_here() && self.waits.is_some() => {
                let news = goods.want();
                self.heed(news);
            }
            _ => self.launch(),
        }
    }

    fn launch(&mut self) {
        let Some(mut below) = self.waits.take() else { return };
        let bytes = |path: PathBuf| ByteBuf::from(path.into_os_string().into_vec());
        below.own.along = self.goods.as_ref().and_then(Goods::along).map(bytes);
        below.own.program = self.goods.as_ref().and_then(Goods::program).map(bytes);
        tokio::spawn(below.launcher());
    }

    /// The launcher has gone.
    fn leave(&mut self, at: usize) {
        if let Some(goods) = self.goods.as_mut().filter(|_| self.part.children().get(at) == Some(&Child::Launcher)) {
            tokio::task::block_in_place(|| goods.leave());
        }
    }

    fn piece(&mut self, file: u16, index: u32, bytes: Arc<Vec<u8>>) {
        let wanted = self.waits.is_some();
        let Some(goods) = &mut self.goods else { return };
        let news = tokio::task::block_in_place(|| goods.came(file, index, bytes, wanted));
        let is_here = goods.is_here();
        self.heed(news);
        if is_here {
            self.launch();
        }
    }

    fn wanted(&mut self, at: usize, file: u16, upto: u32) {
        let Some(goods) = &mut self.goods else { return };
        let news = tokio::task::block_in_place(|| goods.receiver(at, file, upto));
        self.heed(news);
    }

    fn heed(&mut self, news: News) {
        for (file, upto) in news.asks {
            let _ = self.ups.send(Up::Want { file, upto });
        }
        for (at, down) in news.send {
            self.tell(at, down);
        }
        if let Some(why) = news.fails {
            self.refuse(why);
        }
    }

    fn tell(&self, at: usize, down: Down) {
        let _ = self.links[at].as_ref().map(|link| link.send(down));
    }

    /// This node can't do its part.
    fn refuse(&mut self, why: String) {
        let refused = Up::Refused { place: self.place, why };
        match self.waits.take() {
            // As if the launcher had said so: it never will.
            Some(below) => self.events.extend([Event::Up(below.at, refused), Event::Up(below.at, Up::Gone)]),
            None => _ = self.ups.send(refused),
        }
        self.goods = None;
    }

    fn feed(&mut self, event: Event) {
        let effects = self.part.step(event).or_else(|(at, why)| {
            self.links[at] = None;
            tracing::warn!("jobs: job {} of {}: a child is cut off: {why}", self.order.job, self.order.nodes[0].node);
            self.part.step(Event::ChildLost(at, why))
        });
        for effect in effects.unwrap_or_default() {
            match effect {
                Effect::Up(up) => {
                    if up == Up::Gone {
                        // Its CPUs are free before anybody hears of it, and may give this node another job.
                        self.entry = None;
                    }
                    let _ = self.ups.send(up);
                }
                Effect::Down(at, Down::Kill) if self.waits.as_ref().is_some_and(|w| w.at == at) => {
                    // Nothing of it is left when that is told.
                    (self.waits, self.goods) = (None, None);
                    self.events.push_back(Event::Up(at, Up::Gone));
                }
                Effect::Down(at, down) => {
                    if down == Down::Kill && self.is_launcher(at) {
                        self.gives_up.get_or_insert_with(|| Instant::now() + ENDS_WITHIN);
                    }
                    self.tell(at, down);
                }
            }
        }
    }

    fn is_launcher(&self, at: usize) -> bool {
        self.part.children().get(at) == Some(&Child::Launcher)
    }

    /// The launcher does not end: somebody has stopped it. Its ranks die with it.
    fn give_up(&mut self) {
        self.gives_up = None;
        match self.launcher {
            Some(pid) if procfs::name(pid) == LAUNCHER => _ = signal::kill(pid, libc::SIGKILL),
            Some(_) => {}
            // It never began, for its starter does nothing: there is nobody to end.
            None => {
                if let Some(at) = (0..self.links.len()).find(|at| self.is_launcher(*at)) {
                    self.links[at] = None;
                    self.events.push_back(Event::ChildLost(at, "the process that starts ranks does nothing".into()));
                }
            }
        }
    }
}

impl Below {
    async fn member(self, place: u32) {
        let (hear, at) = (self.hear.clone(), self.at);
        if let Some(why) = self.speak_to_member(place).await.unwrap_or_else(|e| Some(in_words(&e))) {
            let _ = hear.send((at, Err(why))).await;
        }
    }

    async fn launcher(self) {
        let (hear, at) = (self.hear.clone(), self.at);
        if let Some(why) = self.speak_to_launcher().await.unwrap_or_else(|e| Some(e.to_string())) {
            let _ = hear.send((at, Err(why))).await;
        }
    }

    /// None: the job is over there. Otherwise why nothing is heard any more.
    async fn speak_to_member(self, place: u32) -> io::Result<Option<String>> {
        let (node, order) = (self.node.clone(), self.order.clone());
        let name = &order.nodes[place as usize].node;
        let known = node.cluster.member(name);
        let member = known.ok_or_else(|| io::Error::other(format!("{} does not know it", node.name())))?;
        let work = self.work(place)?;
        let (stream, frames) = match kept(&node, name, &work).await {
            Some(ready) => ready,
            None => {
                let mut stream = peers::connect(&node, &member, SNI_JOB).await?;
                stream.write_all(&work).await?;
                stream.flush().await?;
                (stream, Frames::default())
            }
        };
        let at = self.at;
        Ok(match talk(stream, frames, self.said, self.hear, (|up| (at, Ok(up)), |up: &Up| *up == Up::Gone)).await {
            Close::Lost(why) => Some(why),
            Close::Kept(stream, frames) => {
                Spares::keep_link(&node, spare::of_jobs, name, stream, &frames);
                None
            }
        })
    }

    /// As [`Self::speak_to_member`].
    async fn speak_to_launcher(self) -> io::Result<Option<String>> {
        let (node, order) = (self.node.clone(), self.order.clone());
        let work = self.work(self.place)?;
        let (stream, frames) = match spare_launcher(&node, &work).await {
            Some(ready) => ready,
            None => {
                let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
                node.jobs.starter.launch(&node, &OwnedFd::from(theirs))?;
                ours.set_nonblocking(true)?;
                let mut stream = UnixStream::from_std(ours)?;
                stream.write_all(&work).await?;
                (stream, Frames::default())
            }
        };
        let (at, gone, pid) = (self.at, AtomicBool::new(false), AtomicI32::new(0));
        let event = |up: Up| {
            gone.fetch_or(up == Up::Gone, Ordering::Relaxed);
            if let Up::Launcher(is) = up {
                pid.store(is, Ordering::Relaxed);
            }
            (at, Ok(up))
        };
        let ended = talk(stream, frames, self.said, self.hear, (event, |up: &Up| *up == Up::Gone)).await;
        Ok(match ended {
            Close::Kept(stream, frames) => {
                Spares::keep_launcher(&node, spare::Launcher { stream, pid: pid.into_inner() }, &frames);
                None
            }
            Close::Lost(why) if gone.into_inner() => Some(why),
            Close::Lost(_) => {
                let (head, job) = (order.nodes[0].node.clone(), order.job.to_string());
                let sweep = move || sweep::sweep(&node.jobs.mark, &[("PANDO_HEAD", &head), ("PANDO_JOB_ID", &job)]);
                tokio::task::spawn_blocking(sweep).await.ok();
                Some("the process that started its ranks was killed".into())
            }
        })
    }

    /// The first frame: the order for that place; for this node's own launcher with what only it is told.
    fn work(&self, place: u32) -> io::Result<Vec<u8>> {
        let copies = self.copies.as_ref().as_ref().map_err(|e| io::Error::other(e.to_string()))?;
        copies.work(place, &self.own).map_err(io::Error::other)
    }
}

/// A link to that node which an earlier job has left, if it still serves: its other end has begun to answer. Whether the node lives when it does not, a
/// new one tells.
async fn kept(node: &Node, name: &str, work: &[u8]) -> Option<(TlsStream<TcpStream>, Frames)> {
    let patience = Duration::from_millis(node.config.jobs.lost_after_ms);
    let mut stream = node.jobs.spares.link(name).await?;
    let mut frames = Frames::default();
    let asked = async {
        stream.write_all(work).await?;
        stream.flush().await?;
        answers(&mut stream, &mut frames).await
    };
    let answered = timeout(patience, asked).await.is_ok_and(|answered| answered.is_ok());
    answered.then_some((stream, frames))
}

/// A launcher that an earlier job has left, if it does something.
async fn spare_launcher(node: &Node, work: &[u8]) -> Option<(UnixStream, Frames)> {
    while let Some(mut launcher) = node.jobs.spares.launcher().await {
        let mut frames = Frames::default();
        let asked = async {
            launcher.stream.write_all(work).await?;
            answers(&mut launcher.stream, &mut frames).await
        };
        match timeout(LAUNCHER_ANSWERS, asked).await {
            Ok(Ok(())) => return Some((launcher.stream, frames)),
            Ok(Err(_)) => {}
            Err(_) => spare::give_up(launcher.pid),
        }
    }
    None
}
