//! What nodes say to each other about batch jobs: one frame there and one back, over a connection that is kept for the next one.

use super::has::{self, Has};
use super::office;
use super::{batch, logs, terms, variables};
use crate::daemon::Node;
use crate::jobs::link::next;
use crate::jobs::spare::{Spares, WAITS};
use crate::jobs::steps;
use crate::link::broken;
use crate::peers;
use pando_launch::{Frames, encode};
use pando_queue::{Bytes, Files, How, Id, Share, Spec, Step, Usage, Work};
use pando_wire::SNI_QUEUE;
use pando_wire::message::Member;
use serde::{Deserialize, Serialize};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

/// An errand and its answer take no longer.
const PATIENCE: Duration = Duration::from_secs(75);

/// One time that a task runs, anywhere and for ever: the node that keeps its queue, the task, and how often it had nodes before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The node that keeps the queue.
    pub keeper: String,
    /// The task.
    pub id: Id,
    /// The number of the run.
    pub run: u32,
}

/// A batch job for the first of its nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Which.
    pub key: Key,
    /// What people call it.
    pub name: String,
    /// Whose it is.
    pub user: String,
    /// Whose share it is taken from.
    pub account: String,
    /// What runs.
    pub work: Work,
    /// Where.
    pub directory: Bytes,
    /// Its environment.
    pub environment: Vec<(Bytes, Bytes)>,
    /// Its files.
    pub files: Files,
    /// Limits of its processes.
    pub limits: Vec<(u32, u64, u64)>,
    /// What it has of its nodes; the first one runs it.
    pub shares: Vec<Share>,
    /// CPUs of each rank.
    pub cpus_per_rank: u32,
    /// Of an array: first, last and number of its tasks.
    pub array: Option<(u32, u32, u64)>,
    /// Its own number, which no other task has.
    pub number: u64,
}

impl Order {
    /// What was asked for, on these nodes. `number`: the task's own.
    pub fn of(spec: &Spec, key: Key, number: u64, shares: Vec<Share>) -> Order {
        let array = spec.array.as_ref().and_then(|a| Some((a.tasks.first()?, a.tasks.last()?, a.tasks.len())));
        let mut environment = spec.environment.clone();
        let asked = variables::asked(spec).into_iter();
        environment.extend(asked.map(|(name, value)| (Bytes::from(name), Bytes::from(value.as_str()))));
        Order {
            key,
            name: spec.name.clone(),
            user: spec.user.clone(),
            account: spec.account.clone(),
            work: spec.work.clone(),
            directory: spec.directory.clone(),
            environment,
            files: spec.files.clone(),
            limits: spec.limits.clone(),
            cpus_per_rank: spec.request.cpus_per_rank,
            shares,
            array,
            number,
        }
    }
}

/// What is wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Errand {
    /// A user of the sender asks the queue something (an [`Ask`](super::ask::Ask) as JSON). The answer is JSON.
    Ask {
        /// The user.
        user: String,
        /// The question.
        #[serde(with = "serde_bytes")]
        text: Vec<u8>,
    },
    /// Begin it; if it has begun already, that is well. The answer says whether that is known now; otherwise ask again.
    Begin(Box<Order>),
    /// End it, and say this to its user. The answer says whether it is known.
    End(Key, String),
    /// This signal to all its processes. The answer says whether it is known.
    Signal(Key, i32),
    /// Its time is nearly over: this signal to its script alone, or to its steps. The answer says whether it is known.
    Warn(Key, i32, bool),
    /// Some of what a task of the sender's queue has written here. The answer: [`logs::Bit`] as JSON.
    Read(Box<logs::Wanted>),
    /// The answer says whether it is known.
    Check(Key),
    /// Something about gangs (a question of `gang/ask.rs` as JSON), of the node that orders. The answer is JSON.
    Gang(#[serde(with = "serde_bytes")] Vec<u8>),
    /// All that are there of the sender's queue. The answer: [`Key`]s as JSON.
    Runs,
    /// What does it have for jobs? The answer: a [`Has`] as JSON.
    Has,
    /// The sender has this by now.
    Tells(Has),
    /// It has begun.
    Began(Key),
    /// It has ended.
    Ended(Key, How, Usage),
    /// One of the above for jobs of a queue that one of several nodes keeps, by the one whose term this is.
    Under(u64, Box<Errand>),
    /// A step of a user's batch job has begun, or is over, at whose head this comes from. The answer comes when it is stored.
    Step {
        /// Whose.
        user: String,
        /// The batch job.
        id: Id,
        /// Its run.
        run: Option<u32>,
        /// The step.
        step: Box<Step>,
    },
    /// End this step of a user's job, whose head is there; or have this signal go to its ranks.
    EndStep {
        /// The job's run.
        key: Key,
        /// Whose.
        user: String,
        /// The step.
        number: u32,
        /// The signal.
        signal: Option<i32>,
    },
    /// The sender's daemon has begun so long ago, milliseconds, and jobs of an earlier one were lost there.
    Back(u64),
    /// What have these used until now? The answer: each that is known with its usage, as JSON.
    Uses(Vec<Key>),
    /// Have all its processes at this node. The answer comes when that is done: a [`Placing`](batch::away::Placing) as JSON.
    Place(Key, String),
}

/// The answer: what was asked for, or why not.
type Answer = Result<serde_bytes::ByteBuf, String>;

/// "That is known here", or not.
pub const KNOWN: &[u8] = b"known";
/// It is, and it runs, or has run: nobody says so besides.
pub const BEGAN: &[u8] = b"began";

/// The answer of a node that does not keep the queue (any more): nothing was done.
pub const ELSEWHERE: &str = "this node does not keep the queue";

/// What came of an errand that was not done.
#[derive(Debug)]
pub struct Failure {
    /// For people.
    pub why: String,
    /// The node has said no. Otherwise nobody knows what it has heard.
    pub refused: bool,
}

impl Failure {
    /// It was for whoever keeps the queue, and another one does.
    pub fn is_elsewhere(&self) -> bool {
        self.refused && self.why == ELSEWHERE
    }
}

/// Has `to` do something. Boxed, for what is served here may send something itself.
pub fn send<'a>(
    node: &'a Arc<Node>,
    to: &'a str,
    errand: &'a Errand,
) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, Failure>> + Send + 'a>> {
    Box::pin(async move {
        let no = |why: String| Failure { why: crate::owner::clean(&why), refused: true };
        if to == node.name() {
            return serve(node, to, errand.clone()).await.map_err(no);
        }
        let away = |e: io::Error| {
            let why = format!("node {to}: {}", crate::jobs::link::in_words(&e));
            Failure { why, refused: false }
        };
        let known = node.cluster.member(to);
        let member = known.ok_or_else(|| Failure { why: format!("there is no node {to}"), refused: false })?;
        let bytes = encode(errand).map_err(|e| no(e.to_string()))?;
        let speaks = speak(node, &member, errand, &bytes);
        let answer = timeout(PATIENCE, speaks).await.map_err(|_| away(io::ErrorKind::TimedOut.into()))?;
        answer.map_err(away)?.map(serde_bytes::ByteBuf::into_vec).map_err(no)
    })
}

/// Over a connection that is there, or a new one.
async fn speak(node: &Arc<Node>, to: &Member, errand: &Errand, bytes: &[u8]) -> io::Result<Answer> {
    if let Some(stream) = node.queue.spares.link(&to.name).await {
        match one(node, to, stream, bytes).await {
            // The other end may have closed it just now. Whether it has heard this nobody knows, so only what may come twice is said again.
            Err(_) if !matches!(errand, Errand::Ask { .. } | Errand::Signal(..)) => {}
            done => return done,
        }
    }
    one(node, to, peers::connect(node, to, SNI_QUEUE).await?, bytes).await
}

async fn one(node: &Arc<Node>, to: &Member, mut stream: TlsStream<TcpStream>, bytes: &[u8]) -> io::Result<Answer> {
    let mut frames = Frames::default();
    stream.write_all(bytes).await?;
    stream.flush().await?;
    let answer = next::<_, Answer>(&mut stream, &mut frames).await?;
    let answer = answer.ok_or(io::ErrorKind::UnexpectedEof)?;
    Spares::keep_link(node, |node| &node.queue.spares, &to.name, stream, &frames);
    Ok(answer)
}

/// A connection of `peer`: one errand after the other.
pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(node: &Arc<Node>, mut stream: S, peer: &str) -> io::Result<()> {
    let mut frames = Frames::default();
    let mut patience = Duration::from_millis(node.config.connections.handshake_within_ms);
    loop {
        let errand = match timeout(patience, next::<_, Errand>(&mut stream, &mut frames)).await {
            Ok(Ok(Some(errand))) => errand,
            // After the first one it is for the other end to say more, or not.
            _ if patience == WAITS => return Ok(()),
            Ok(Ok(None)) => return Err(broken("it hung up")),
            Ok(Err(e)) => return Err(e),
            Err(_) => return Err(broken("no errand in time")),
        };
        let answer: Answer = serve(node, peer, errand).await.map(serde_bytes::ByteBuf::from);
        stream.write_all(&encode(&answer).map_err(broken)?).await?;
        stream.flush().await?;
        patience = WAITS;
    }
}

async fn serve(node: &Arc<Node>, peer: &str, errand: Errand) -> Result<Vec<u8>, String> {
    match errand {
        Errand::Under(term, errand) => {
            terms::obeys(node, term, peer)?;
            serve_for(node, peer, terms::SHARED, *errand).await
        }
        errand => serve_for(node, peer, peer, errand).await,
    }
}

/// `queue`: what jobs of its queue have as their keeper.
async fn serve_for(node: &Arc<Node>, peer: &str, queue: &str, errand: Errand) -> Result<Vec<u8>, String> {
    // Only the node that keeps a queue speaks for its jobs.
    let of_its_own = |key: &Key| match key.keeper == queue {
        true => Ok(()),
        false => Err(format!("node {peer} does not keep that queue")),
    };
    let said = |known: bool| Ok(if known { KNOWN.to_vec() } else { Vec::new() });
    match errand {
        Errand::Ask { user, text } => office::answer(node, &user, peer, &text).await,
        Errand::Begin(order) => {
            of_its_own(&order.key)?;
            Ok(batch::begin(node, *order, peer).await?.answer().to_vec())
        }
        Errand::End(key, why) => {
            of_its_own(&key)?;
            said(batch::end(node, &key, &why)?)
        }
        Errand::Signal(key, number) => {
            of_its_own(&key)?;
            said(batch::signal(node, &key, number)?)
        }
        Errand::Warn(key, number, script) => {
            of_its_own(&key)?;
            said(batch::warn(node, &key, number, script)?)
        }
        Errand::Read(wanted) => {
            of_its_own(&wanted.key)?;
            serde_json::to_vec(&logs::read(node, &wanted, peer).await?).map_err(|e| e.to_string())
        }
        Errand::Check(key) => {
            of_its_own(&key)?;
            said(batch::is_known(node, &key)?)
        }
        Errand::Place(key, to) => {
            of_its_own(&key)?;
            serde_json::to_vec(&batch::away::place(node, key, to).await).map_err(|e| e.to_string())
        }
        Errand::Gang(text) => crate::gang::answer(node, peer, &text),
        Errand::Runs => serde_json::to_vec(&batch::all(node, queue)).map_err(|e| e.to_string()),
        Errand::Has => serde_json::to_vec(&has::asked(node, peer)).map_err(|e| e.to_string()),
        Errand::Tells(now) => has::heard(node, peer, now).map(|()| Vec::new()),
        Errand::EndStep { key, user, number, signal } => {
            of_its_own(&key)?;
            steps::end(node, key.id, number, &user, signal).await.map(|()| Vec::new())
        }
        Errand::Back(ms) => office::back(node, peer, ms).await.map(|()| Vec::new()),
        Errand::Uses(keys) => {
            keys.iter().try_for_each(of_its_own)?;
            serde_json::to_vec(&batch::uses(node, keys).await).map_err(|e| e.to_string())
        }
        Errand::Began(key) => office::began(node, &key, peer).await.map(|()| Vec::new()),
        Errand::Step { user, id, run, step } => office::step(node, user, id, run, step).await.map(|()| Vec::new()),
        Errand::Ended(key, how, usage) => office::ended(node, &key, how, usage, peer).await.map(|()| Vec::new()),
        Errand::Under(..) => Err("an order under an order is none".into()),
    }
}
