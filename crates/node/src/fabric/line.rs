//! A link to another life: a session (crates/fabric) over TLS connections, which are made when there is something to say, and again when they
//! break. Transfers' bytes have a link of their own.

use super::lane::Lane;
use super::life::Life;
use super::wire::{Answer, Frame, Hello, Ticket, VERSION};
use crate::daemon::Node;
use crate::link::{Frames, broken, more};
use crate::peers;
use pando_fabric::{NodeId, Session, Who};
use pando_wire::message::MAX_MEMBERS;
use pando_wire::{SNI_FABRIC, frame};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Pauses between attempts to connect: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Bytes that are written at once.
const BATCH: usize = 256 << 10;
/// Messages that are smaller are written together.
const SMALL: usize = 4 << 10;
/// So many messages come before the other end is told.
const UNTOLD: u64 = 32;

/// Which link: to whom, and for the bytes of transfers or for all else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    pub peer: NodeId,
    pub bulk: bool,
}

/// One link.
pub struct Line {
    pub session: Session,
    /// The number of the connection that is used; 0 for none.
    connection: u64,
    /// One is being made here.
    dialing: bool,
    /// Connections are counted.
    count: u64,
    /// Since when there is something to say and nobody to hear it.
    down: Option<Instant>,
    used: Instant,
    wake: Arc<Notify>,
}

impl Default for Line {
    fn default() -> Self {
        let (session, wake) = (Session::default(), Arc::default());
        Line { session, connection: 0, dialing: false, count: 0, down: None, used: Instant::now(), wake }
    }
}

impl Line {
    /// One more message is to be sent.
    pub fn put(&mut self, message: Arc<Vec<u8>>) {
        self.session.put(message);
        self.used = Instant::now();
        if self.connection == 0 {
            self.down.get_or_insert_with(Instant::now);
        }
    }

    /// There is something to say, and no connection.
    pub fn lacks_connection(&self) -> bool {
        self.connection == 0 && self.session.bytes() > 0
    }

    /// For so long there was something to say and no connection.
    pub fn is_down_for(&self, time: Duration) -> bool {
        self.down.is_some_and(|since| since.elapsed() >= time)
    }

    /// A connection is there: all that has not come over the ones before is sent.
    fn attach(&mut self, number: u64, have: u64) -> Result<(), pando_fabric::Miscounted> {
        self.session.have_come(have)?;
        (self.connection, self.count, self.down, self.dialing) = (number, self.count + 1, None, false);
        self.used = Instant::now();
        Ok(())
    }
}

/// Sees to it that what is to be sent on a link is sent.
pub fn connect(node: &Arc<Node>, life: &mut Life, way: Way) {
    let number = life.number;
    let Some(line) = life.lines.get_mut(&way) else { return };
    if line.connection > 0 {
        line.wake.notify_one();
    } else if !line.dialing {
        line.dialing = true;
        tokio::spawn(dial(node.clone(), number, way));
    }
}

/// Of the life with this number, while it lasts, and if the link is still there.
fn with<T>(node: &Node, number: u64, way: Way, act: impl FnOnce(&mut Life) -> T) -> Option<T> {
    let mut inner = node.fabric.inner();
    let life = inner.life.as_mut().filter(|l| l.number == number && l.lines.contains_key(&way))?;
    Some(act(life))
}

/// What is said first, and the state of the link then.
fn hello(node: &Node, life: &Life, way: Way) -> Option<(Hello, Option<Arc<Lane>>, Who, u64)> {
    let line = life.lines.get(&way).filter(|line| line.connection == 0)?;
    let who = life.who(way.peer)?.clone();
    let (from, to) = ((life.me, life.number), (way.peer, who.life));
    let lane = node.fabric.rail().filter(|_| way.bulk).and_then(|rail| rail.offer(&who.name, (life.number, who.life)));
    let beside = lane.as_ref().map(|lane| lane.ticket());
    let hello = Hello { founding: life.founding, from, to, bulk: way.bulk, have: line.session.here(), beside };
    Some((hello, lane, who, line.count))
}

async fn dial(node: Arc<Node>, number: u64, way: Way) {
    let mut pause = FIRST_PAUSE;
    while let Some(Some((hello, lane, who, count))) = with(&node, number, way, |life| hello(&node, life, way)) {
        let answer = Box::pin(call(&node, &who, &hello)).await;
        let goes_on = match answer {
            Ok((frames, Answer::Have(have, theirs))) => {
                let connection = node.number();
                let attached = with(&node, number, way, |life| {
                    let line = life.lines.get_mut(&way)?;
                    // The other end may have been faster.
                    let free = line.connection == 0 && line.count == count;
                    free.then(|| line.attach(connection, have).map(|()| line.wake.clone()))
                });
                match attached {
                    Some(Some(Ok(wake))) => {
                        let lane = lane.and_then(|lane| lane.join(theirs, &wake));
                        return run(On { node, number, way, connection, lane }, wake, frames, have).await;
                    }
                    Some(Some(Err(e))) => give_up(&node, number, way, &e.to_string()),
                    _ => {}
                }
                false
            }
            Ok((_, Answer::Over)) => {
                with(&node, number, way, |life| life.over.insert(way.peer));
                false
            }
            Ok((_, Answer::LeftOut(epoch))) => {
                let left = with(&node, number, way, |life| {
                    let later = epoch > life.core.view().epoch;
                    let effects = if later { life.core.left_out() } else { Vec::new() };
                    life.heed(&node, effects);
                    later
                });
                left == Some(false)
            }
            Ok((_, Answer::Later)) => true,
            Err(e) => {
                tracing::debug!("fabric: no link to {}: {e}", who.name);
                true
            }
        };
        if !goes_on {
            break;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    with(&node, number, way, |life| {
        if let Some(line) = life.lines.get_mut(&way) {
            line.dialing = false;
        }
    });
}

/// What can't be mended: it is as if that life was over.
fn give_up(node: &Node, number: u64, way: Way, why: &str) {
    with(node, number, way, |life| {
        tracing::error!("fabric: the link to {:?} can't go on: {why}", way.peer);
        life.over.insert(way.peer);
    });
}

type Stream = Box<tokio_rustls::client::TlsStream<TcpStream>>;

async fn call(node: &Arc<Node>, who: &Who, hello: &Hello) -> io::Result<(Frames<Stream>, Answer)> {
    let member = node.cluster.member(&who.name).ok_or_else(|| broken(format!("nobody knows where {} is", who.name)))?;
    let stream = Box::new(Box::pin(peers::connect(node, &member, SNI_FABRIC)).await?);
    peers::classify(stream.get_ref().0, hello.bulk);
    let mut frames = Frames::new(stream);
    let patience = Duration::from_millis(node.config.connections.handshake_within_ms);
    let answer = timeout(patience, async {
        frames.send(VERSION, hello).await?;
        frames.next::<Answer>(VERSION).await
    });
    let answer = answer.await.map_err(|_| broken("no answer in time"))??;
    Ok((frames, answer))
}

/// A connection of a member that wants to speak to this node's life.
pub async fn accept(
    node: &Arc<Node>,
    stream: Box<tokio_rustls::server::TlsStream<TcpStream>>,
    peer: &str,
) -> io::Result<()> {
    let mut frames = Frames::new(stream);
    let patience = Duration::from_millis(node.config.connections.handshake_within_ms);
    let hello = timeout(patience, frames.next::<Hello>(VERSION)).await.map_err(|_| broken("no hello in time"))??;
    peers::classify(frames.stream().get_ref().0, hello.bulk);
    let way = Way { peer: hello.from.0, bulk: hello.bulk };
    let connection = node.number();
    let rail = node.fabric.rail().filter(|_| hello.bulk && hello.beside.is_some());
    let lane = rail.and_then(|rail| rail.offer(peer, (hello.to.1, hello.from.1)));
    let ticket = lane.as_ref().map(|lane| lane.ticket());
    let (answer, wake) = receive(node, peer, &hello, connection, ticket).map_err(broken)?;
    let sent = timeout(patience, frames.send(VERSION, &answer)).await;
    match (sent, wake) {
        (Ok(Ok(_)), Some(wake)) => {
            let lane = lane.and_then(|lane| lane.join(hello.beside, &wake));
            let on = On { node: node.clone(), number: hello.to.1, way, connection, lane };
            run(on, wake, frames, hello.have).await;
        }
        (Ok(Ok(_)), None) => frames.close().await,
        (sent, _) => {
            ended(node, hello.to.1, way, connection, true);
            sent.map_err(|_| broken("it reads nothing"))??;
        }
    }
    Ok(())
}

/// What a hello is answered, and what wakes the writer if the connection is used from now on.
fn receive(
    node: &Node,
    peer: &str,
    hello: &Hello,
    connection: u64,
    beside: Option<Ticket>,
) -> Result<(Answer, Option<Arc<Notify>>), String> {
    let way = Way { peer: hello.from.0, bulk: hello.bulk };
    let mut inner = node.fabric.inner();
    if hello.to.1 != inner.number {
        return Ok((Answer::Over, None));
    }
    let Some(life) = inner.life.as_mut() else { return Ok((Answer::Later, None)) };
    if hello.founding != life.founding || hello.to.0 != life.me || way.peer == life.me {
        return Ok((Answer::Over, None));
    }
    if life.is_gone(way.peer) {
        return Ok((Answer::LeftOut(life.core.view().epoch), None));
    }
    let who = Who { name: peer.to_owned(), life: hello.from.1 };
    match life.who(way.peer) {
        Some(known) if *known != who => return Err(format!("it says that it is {}", crate::owner::clean(&known.name))),
        Some(_) => {}
        None if life.hints.len() >= MAX_MEMBERS => return Err("there are too many that nobody knows".into()),
        // Of the next view, which has not come here yet.
        None => _ = life.hints.insert(way.peer, who),
    }
    let me = life.me;
    let line = life.lines.entry(way).or_default();
    if line.connection == 0 && line.dialing && me < way.peer {
        return Ok((Answer::Later, None));
    }
    line.attach(connection, hello.have).map_err(|e| e.to_string())?;
    Ok((Answer::Have(line.session.here(), beside), Some(line.wake.clone())))
}

/// Uses a connection until it breaks, another one takes its place, or nobody needs it. `next`: the first message to be sent.
async fn run<S>(on: On, wake: Arc<Notify>, frames: Frames<S>, next: u64)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (stream, buffer) = frames.into_parts();
    let (reader, writer) = split(stream);
    // Whatever becomes of this task, the link can be made again.
    let mut end = End { on: &on, broke: true };
    let result = tokio::select! {
        result = read(&on, reader, buffer) => result,
        result = write(&on, writer, wake, next) => result,
    };
    if let Err(e) = &result {
        tracing::debug!("fabric: the link to {:?}: {e}", on.way.peer);
    }
    end.broke = result.is_err();
}

fn ended(node: &Arc<Node>, number: u64, way: Way, connection: u64, broke: bool) {
    with(node, number, way, |life| {
        let member = life.core.view().members.has(way.peer);
        let Some(line) = life.lines.get_mut(&way).filter(|line| line.connection == connection) else { return };
        line.connection = 0;
        if line.session.bytes() > 0 {
            line.down = Some(Instant::now());
        }
        // Who broke it off may have begun another life: that is to be known soon.
        if line.session.bytes() > 0 || broke && member {
            connect(node, life, way);
        }
    });
}

/// Says that a connection has ended.
struct End<'a> {
    on: &'a On,
    broke: bool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let On { node, number, way, connection, .. } = self.on;
        ended(node, *number, *way, *connection, self.broke);
    }
}

/// One connection of a link.
struct On {
    node: Arc<Node>,
    number: u64,
    way: Way,
    connection: u64,
    /// What is large goes beside it.
    lane: Option<Arc<Lane>>,
}

impl On {
    /// Of the link, while this is its connection.
    fn line<T>(&self, act: impl FnOnce(&mut Line) -> T) -> io::Result<T> {
        self.life(|life| act(life.lines.get_mut(&self.way).expect("it was looked for")))
    }

    fn lane(&self) -> io::Result<&Arc<Lane>> {
        self.lane.as_ref().ok_or_else(|| broken("it has no lane"))
    }

    fn life<T>(&self, act: impl FnOnce(&mut Life) -> T) -> io::Result<T> {
        let done = with(&self.node, self.number, self.way, |life| {
            let mine = life.lines.get(&self.way).is_some_and(|line| line.connection == self.connection);
            mine.then(|| act(life))
        });
        done.flatten().ok_or_else(|| broken("another connection has taken its place"))
    }
}

async fn read<S: AsyncRead + Unpin>(on: &On, mut stream: S, mut buffer: Vec<u8>) -> io::Result<()> {
    let silence = Duration::from_millis(on.node.config.connections.silence_ms);
    loop {
        let mut used = 0;
        while let Some((frame, n)) = frame::decode::<Frame>(VERSION, &buffer[used..]).map_err(broken)? {
            used += n;
            match frame {
                Frame::Have(count) => on
                    .line(|line| {
                        if on.lane.is_some() {
                            line.wake.notify_one();
                        }
                        line.session.have_come(count)
                    })?
                    .map_err(broken)?,
                Frame::Said(message) => hear(on, message)?,
                Frame::Beside(number) => {
                    let bytes = on.lane()?.take(number, silence).await?;
                    match frame::decode::<Frame>(VERSION, &bytes).map_err(broken)? {
                        Some((Frame::Said(message), used)) if used == bytes.len() => hear(on, message)?,
                        _ => return Err(broken("beside the connection came what is no message")),
                    }
                }
                Frame::Reached => on.lane()?.reached(),
            }
        }
        buffer.drain(..used);
        match timeout(silence, more(&mut stream, &mut buffer)).await {
            Ok(Ok(0)) => return Ok(()),
            Ok(Ok(_)) => {}
            Ok(Err(e)) => return Err(e),
            Err(_) => return Err(broken(format!("nothing heard for {silence:?}"))),
        }
    }
}

/// A message has come.
fn hear(on: &On, message: pando_fabric::Message) -> io::Result<()> {
    on.life(|life| {
        let line = life.lines.get_mut(&on.way).expect("it was looked for");
        line.session.comes();
        line.used = Instant::now();
        if line.session.untold() >= UNTOLD {
            line.wake.notify_one();
        }
        let effects = life.core.hear(on.node.fabric.now(), on.way.peer, message);
        life.heed(&on.node, effects);
    })
}

/// What is next for a connection.
enum Next {
    /// The first one's place in the session, and all.
    Messages(u64, Vec<Arc<Vec<u8>>>),
    Nothing,
    /// It has not been used for long.
    Idle,
}

async fn write<S: AsyncWrite + Unpin>(on: &On, mut stream: S, wake: Arc<Notify>, mut next: u64) -> io::Result<()> {
    let limits = &on.node.config.connections;
    let (silence, idle) = (Duration::from_millis(limits.silence_ms), Duration::from_millis(limits.idle_ms));
    let mut due = false;
    loop {
        let what = on.line(|line| collect(line, on.lane.as_deref(), &mut next, due, idle))??;
        due = match what {
            Next::Messages(first, all) => {
                let all = match &on.lane {
                    Some(lane) => lane.divert(first, all)?,
                    None => all,
                };
                let sent = timeout(silence, async {
                    for some in all.chunk_by(|a, b| a.len().max(b.len()) < SMALL) {
                        match some {
                            [one] => stream.write_all(one).await?,
                            // One record, one call.
                            many => {
                                stream
                                    .write_all(&many.iter().flat_map(|m| m.iter().copied()).collect::<Vec<u8>>())
                                    .await?
                            }
                        }
                    }
                    stream.flush().await
                });
                sent.await.map_err(|_| broken(format!("it reads nothing for {silence:?}")))??;
                false
            }
            Next::Nothing => {
                on.lane.iter().for_each(|lane| lane.doubt(silence));
                timeout(silence / 3, wake.notified()).await.is_err()
            }
            Next::Idle => {
                let _ = timeout(silence, stream.shutdown()).await;
                return Ok(());
            }
        };
    }
}

/// What is to be written now. `due`: something is to be said, or the other end takes this one for lost.
fn collect(line: &mut Line, lane: Option<&Lane>, next: &mut u64, due: bool, idle: Duration) -> io::Result<Next> {
    let (mut all, mut bytes, first) = (Vec::new(), 0, *next);
    let room = if lane.is_none_or(|lane| lane.has_room(line.session.there())) { BATCH } else { 0 };
    while let Some(message) = line.session.get(*next).filter(|m| room > 0 && (bytes == 0 || bytes + m.len() <= room)) {
        bytes += message.len();
        all.push(message.clone());
        *next += 1;
    }
    if due && all.is_empty() && line.used.elapsed() > idle && line.session.bytes() == 0 {
        return Ok(Next::Idle);
    }
    if due || line.session.untold() >= UNTOLD || !all.is_empty() && line.session.untold() > 0 {
        all.push(Arc::new(frame::encode(VERSION, &Frame::Have(line.session.tell())).map_err(broken)?));
    }
    let news = lane.is_some_and(Lane::has_news);
    Ok(if all.is_empty() && !news { Next::Nothing } else { Next::Messages(first, all) })
}
