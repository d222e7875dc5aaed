//! Drives this node's part in a job: links to the nodes below it, its own launcher, and the program that goes along.

use super::goods::{Goods, News};
use super::link::{Said, in_words, talk};
use super::sweep;
use crate::daemon::Node;
use crate::launcher::LAUNCHER;
use crate::peers;
use pando_kernel::{procfs, signal};
use pando_launch::{Child, Down, Effect, Event, Frames, Identity, Order, Part, Up, Work, encode};
use pando_wire::SNI_JOB;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedSender, channel, unbounded_channel};
use tokio::time::{Instant, sleep_until};

/// Messages that have been read and not been heeded.
const WAITING: usize = 256;

/// A launcher that was told to end everything has so long.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// What a child says; or why nothing is heard of it any more.
type Heard = (usize, Result<Up, String>);

/// One child's link.
struct Below {
    node: Arc<Node>,
    order: Arc<Order>,
    place: u32,
    /// Those of each rank here, for the launcher.
    cpus: Vec<Vec<u16>>,
    /// See [`Work::user`].
    user: Option<Identity>,
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
    /// The launcher, as long as it waits for the program.
    waits: Option<Below>,
    ups: UnboundedSender<Up>,
    /// What happens next, in the launcher's name.
    events: VecDeque<Event>,
    /// The launcher's process.
    launcher: Option<i32>,
    /// It has been told to end everything, and has until then.
    gives_up: Option<Instant>,
}

/// Runs it to its end. `cpus`: those of each rank here. `parent`: what it says, closed when it is lost, and what it is told.
pub async fn run(
    node: &Arc<Node>,
    order: Arc<Order>,
    place: u32,
    cpus: Vec<Vec<u16>>,
    parent: (Receiver<Down>, UnboundedSender<Up>),
) {
    let (mut downs, ups) = parent;
    let (hear, mut heard) = channel::<Heard>(WAITING);
    // As long as `hear` is there, `heard` waits for who may still come.
    let mut driver = Driver::make(node, order, place, cpus, (ups, hear.clone()));
    driver.begin();
    let mut has_parent = true;
    while !driver.part.is_over() {
        if let Some(event) = driver.events.pop_front() {
            driver.feed(event);
            continue;
        }
        tokio::select! {
            down = downs.recv(), if has_parent => match down {
                Some(Down::Piece { index, bytes }) => driver.piece(index, &bytes),
                Some(down) => driver.feed(Event::Down(down)),
                None => {
                    has_parent = false;
                    driver.feed(Event::ParentLost);
                }
            },
            () = sleep_until(driver.gives_up.unwrap_or_else(Instant::now)), if driver.gives_up.is_some() => driver.give_up(),
            Some((at, heard)) = heard.recv() => match heard {
                Ok(Up::Want(upto)) => driver.wanted(at, upto),
                Ok(Up::Launcher(pid)) => driver.launcher = driver.launcher.or(Some(pid).filter(|_| driver.is_launcher(at))),
                Ok(up) => {
                    if up == Up::Gone {
                        // Its link is closed when nobody can say anything on it.
                        driver.links[at] = None;
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
        cpus: Vec<Vec<u16>>,
        (ups, hear): (UnboundedSender<Up>, Sender<Heard>),
    ) -> Driver {
        let part = Part::new(order.clone(), place);
        let children = part.children();
        let (user, goods) = tokio::task::block_in_place(|| {
            let user = node.jobs.user(&order.user);
            let goods =
                user.as_ref().and_then(|user| Goods::new(&node.jobs.cache, &order, (user.0, user.1), &children));
            (user, goods)
        });
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
        };
        for (at, child) in children.into_iter().enumerate() {
            let (sender, queue) = unbounded_channel();
            driver.links.push(Some(sender));
            let silence = (child != Child::Launcher).then(|| Duration::from_millis(node.config.jobs.lost_after_ms));
            let said = Said { queue, beat: Down::Beat, silence };
            let (node, order, cpus, user) = (node.clone(), order.clone(), cpus.clone(), user.clone());
            let below = Below { node, order, place, cpus, user, at, said, hear: hear.clone() };
            match child {
                Child::Launcher => driver.waits = Some(below),
                Child::Place(place) => drop(tokio::spawn(below.member(place))),
            }
        }
        driver
    }

    /// The launcher begins when there is something to launch.
    fn begin(&mut self) {
        match &mut self.goods {
            Some(goods) if !goods.is_here() && self.waits.is_some() => {
                let news = goods.want();
                self.heed(news);
            }
            _ => self.launch(),
        }
    }

    fn launch(&mut self) {
        let Some(below) = self.waits.take() else { return };
        match self.goods.as_ref().and_then(Goods::file).transpose() {
            Ok(program) => drop(tokio::spawn(below.launcher(program))),
            Err(e) => {
                self.waits = Some(below);
                self.refuse(format!("the program's file: {e}"));
            }
        }
    }

    fn piece(&mut self, index: u32, bytes: &[u8]) {
        let Some(goods) = &mut self.goods else { return };
        let news = tokio::task::block_in_place(|| goods.came(index, bytes));
        let is_here = goods.is_here();
        self.heed(news);
        if is_here {
            self.launch();
        }
    }

    fn wanted(&mut self, at: usize, upto: u32) {
        let Some(goods) = &mut self.goods else { return };
        let news = tokio::task::block_in_place(|| goods.receiver(at, upto));
        self.heed(news);
    }

    fn heed(&mut self, news: News) {
        if let Some(upto) = news.ask {
            let _ = self.ups.send(Up::Want(upto));
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
                Effect::Up(up) => _ = self.ups.send(up),
                Effect::Down(at, Down::Kill) if self.waits.as_ref().is_some_and(|w| w.at == at) => {
                    self.waits = None;
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
        let why = self.speak_to_member(place).await.unwrap_or_else(|e| in_words(&e));
        let _ = hear.send((at, Err(why))).await;
    }

    async fn launcher(self, program: Option<File>) {
        let (hear, at) = (self.hear.clone(), self.at);
        let why = self.speak_to_launcher(program).await.unwrap_or_else(|e| e.to_string());
        let _ = hear.send((at, Err(why))).await;
    }

    async fn speak_to_member(self, place: u32) -> io::Result<String> {
        let (node, name) = (&self.node, &self.order.nodes[place as usize].node);
        let known = node.cluster.members().into_iter().find(|m| m.name == *name);
        let member = known.ok_or_else(|| io::Error::other(format!("{} does not know it", node.name())))?;
        let stream = peers::connect(node, &member, SNI_JOB).await?;
        self.speak(stream, place, &AtomicBool::default()).await
    }

    async fn speak_to_launcher(self, program: Option<File>) -> io::Result<String> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        let program = program.map(OwnedFd::from);
        self.node.jobs.starter.launch(&self.node, &OwnedFd::from(theirs), program.as_ref())?;
        ours.set_nonblocking(true)?;
        let (stream, order, place) = (UnixStream::from_std(ours)?, self.order.clone(), self.place);
        let (gone, mark) = (AtomicBool::new(false), self.node.jobs.mark.clone());
        let ended = self.speak(stream, place, &gone).await;
        if !gone.load(Ordering::Relaxed) {
            let (head, job) = (order.nodes[0].node.clone(), order.job);
            tokio::task::spawn_blocking(move || sweep::sweep(&mark, Some((&head, job)))).await.ok();
            return Ok("the process that started its ranks was killed".into());
        }
        ended
    }

    async fn speak<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        mut stream: S,
        place: u32,
        gone: &AtomicBool,
    ) -> io::Result<String> {
        let (cpus, user) = match place == self.place {
            true => (self.cpus, self.user),
            false => (Vec::new(), None),
        };
        let mark = if place == self.place { self.node.jobs.mark.clone() } else { String::new() };
        let work = Work { place, order: (*self.order).clone(), mark, user, cpus };
        stream.write_all(&encode(&work).map_err(io::Error::other)?).await?;
        stream.flush().await?;
        let at = self.at;
        let event = |up: Up| {
            gone.fetch_or(up == Up::Gone, Ordering::Relaxed);
            (at, Ok(up))
        };
        Ok(talk(stream, Frames::default(), self.said, &self.hear, event).await)
    }
}
