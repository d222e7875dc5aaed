//! Tells users of their jobs, by mail and by webhook. What is to be told is stored with what it tells of ([`Notice`] in the journal), and is struck out when it
//! has been told: at least once, whoever is killed in between. It has an identity by which twice the same can be known. Nobody waits for it.

use super::clerk::Desk;
use super::journal::Journal;
use super::turns::{Turn, Turns};
use crate::daemon::Node;
use axum::body::Body;
use hyper::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use pando_kernel::signal;
use pando_queue::{Event, Id, Job, Queue, State};
use pando_wire::rustls::pki_types::pem::PemObject;
use pando_wire::rustls::pki_types::{CertificateDer, ServerName};
use pando_wire::rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, join, split};
use tokio::net::TcpStream;
use tokio::task::{self, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;

/// One attempt takes no longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most bytes of an answer, with what TLS has to say.
const MOST_ANSWER: u64 = 64 << 10;
/// After the first attempt that came to nothing, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));
/// What could not be told for so long nobody wants to know any more, milliseconds.
const LONGEST_MS: u64 = 24 * 3_600_000;

/// To whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum To {
    /// An address.
    Mail(String),
    /// A URL.
    Webhook(String),
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// To whom.
    pub to: To,
    /// The job, or one of its tasks.
    pub job: Id,
    /// What it is called.
    pub name: String,
    /// Whose it is.
    pub user: String,
    /// Slurm's word: `BEGIN`, `END`, `FAIL`, `REQUEUE`.
    pub event: String,
    /// Slurm's name of its state.
    pub state: String,
    /// Milliseconds since 1970.
    pub at: u64,
}

/// Those that an event makes.
pub fn notices(queue: &Queue, id: Id, event: Event) -> Vec<Notice> {
    let Some(Job { spec, .. }) = queue.job(id.job) else { return Vec::new() };
    let (word, state) = match event {
        Event::Begun => ("BEGIN", State::Running),
        Event::Ended(State::Completed) => ("END", State::Completed),
        Event::Ended(state) => ("FAIL", state),
        Event::Requeued => ("REQUEUE", State::Requeued),
    };
    let mail = spec.tell.mail.iter().map(|address| To::Mail(address.clone()));
    let all = mail.chain(spec.tell.webhook.iter().map(|url| To::Webhook(url.clone())));
    let make = |to| Notice {
        to,
        job: id,
        name: spec.name.clone(),
        user: spec.user.clone(),
        event: word.to_owned(),
        state: state.names().0.to_owned(),
        at: queue.now(),
    };
    all.map(make).collect()
}

/// May that be asked for here? The error is for people.
pub fn check(node: &Node, tell: &pando_queue::Tell) -> Result<(), String> {
    let rules = &node.config.queue;
    if let Some(address) = &tell.mail {
        if rules.mailer.is_none() {
            return Err("no mail is sent here ([queue] mailer): leave out --mail-type and --mail-user".into());
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "@._+-=".contains(c);
        if address.is_empty() || address.starts_with('-') || !address.chars().all(plain) {
            return Err(format!("--mail-user={address} is no address: write one, as ann@example.org"));
        }
    }
    let Some(url) = &tell.webhook else { return Ok(()) };
    match rules.webhooks {
        true => place(url).map(|_| ()).map_err(|why| format!("--webhook={url}: {why}")),
        false => Err("nobody is told by webhook here ([queue] webhooks): leave out --webhook".into()),
    }
}

/// Where a URL leads: whether by TLS, host, port, and what is asked for there.
fn place(url: &str) -> Result<(bool, String, u16, String), String> {
    let uri: Uri = url.parse().map_err(|_| "it is no URL".to_owned())?;
    let tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err("it begins with http:// or https://".into()),
    };
    let authority = uri.authority().ok_or("it has no host")?;
    if authority.as_str().contains('@') || authority.host().is_empty() {
        return Err("it has a host, and no user's name before that".into());
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = match authority.as_str().strip_prefix(authority.host()) {
        Some("") => {
            if tls {
                443
            } else {
                80
            }
        }
        _ => authority.port_u16().filter(|port| *port > 0).ok_or("its port is none: there are 1 to 65535")?,
    };
    Ok((tls, host, port, uri.path_and_query().map_or("/".into(), ToString::to_string)))
}

/// Until the daemon ends, or this node keeps the queue no longer. Each is told by itself: nobody waits for another one that does not answer.
pub async fn keep(node: Arc<Node>, desk: Desk) {
    let (mut turns, mut under_way) = (Turns::default(), JoinSet::new());
    // By its task, as that may come to a bad end.
    let mut whose: BTreeMap<task::Id, Turn> = BTreeMap::new();
    loop {
        let after = turns.newest();
        let Ok(found) = desk.look(move |_, journal: &Journal| journal.notices(after)).await else { return };
        match found {
            Ok(found) => found.into_iter().for_each(|(number, notice)| turns.add(number, notice)),
            Err(e) => tracing::error!("queue: what users are to be told: {e}"),
        }
        while let Some(turn) = turns.next(Instant::now()) {
            let (node, Turn { number, notice, .. }) = (node.clone(), turn.clone());
            let told = async move { timeout(PATIENCE, tell(&node, number, &notice)).await };
            whose.insert(under_way.spawn(told).id(), turn);
        }
        let next = turns.due(Instant::now());
        tokio::select! {
            () = desk.closed() => return,
            () = node.queue.told.notified() => {}
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            Some(done) = under_way.join_next_with_id() => {
                let (id, told) = match done {
                    Ok((id, told)) => (id, told.unwrap_or_else(|_| Err("it takes too long".into()))),
                    Err(e) => (e.id(), Err(e.to_string())),
                };
                if let Some(turn) = whose.remove(&id) {
                    tried(&mut turns, &desk, turn, told).await;
                }
            }
        }
    }
}

/// Strikes out what was told, and what nobody wants to know any more. The rest is told later.
async fn tried(turns: &mut Turns, desk: &Desk, turn: Turn, told: Result<(), String>) {
    let Turn { number, times, notice } = &turn;
    let number = *number;
    if let Err(why) = told {
        tracing::warn!("queue: {:?} could not be told of job {}: {why}", notice.to, notice.job);
        if crate::events::now_ms().saturating_sub(notice.at) < LONGEST_MS {
            let pause = AGAIN.0.saturating_mul(1 << (*times).min(16)).min(AGAIN.1);
            return turns.later(turn, Instant::now() + pause);
        }
    }
    match desk.look(move |_, journal| journal.strike(number)).await {
        Ok(Err(e)) => {
            // It is told again when that can be stored.
            tracing::error!("queue: what users were told: {e}");
            turns.later(turn, Instant::now() + AGAIN.0);
        }
        _ => turns.done(&turn),
    }
}

async fn tell(node: &Node, number: i64, notice: &Notice) -> Result<(), String> {
    let rules = &node.config.queue;
    // The same in every attempt, and of nothing else.
    let keeper = if node.config.queue.is_shared() { "queue".to_owned() } else { node.name() };
    let name = format!("{}-{keeper}-{number}", node.identity.cluster);
    match (&notice.to, &rules.mailer) {
        (To::Mail(address), Some(mailer)) => mail(mailer, address, &name, notice).await,
        (To::Webhook(url), _) if rules.webhooks => post(url, &name, notice, &rules.roots).await,
        // The administrator has thought better of it.
        _ => Ok(()),
    }
}

/// As `sendmail -t` reads it.
fn letter(address: &str, name: &str, notice: &Notice) -> String {
    let Notice { job, name: called, user, event, state, .. } = notice;
    let plain: String = called.chars().map(|c| if c.is_ascii() && !c.is_ascii_control() { c } else { '?' }).collect();
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "-.".contains(*c)).collect();
    format!(
        "To: {address}\nSubject: Pando job {job} ({plain}): {event}, {state}\nMessage-ID: <{name}@pando.invalid>\n\
         Auto-Submitted: auto-generated\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\n\
         Job {job} ({called}) of {user}: {event}, {state}\n"
    )
}

async fn mail(mailer: &Path, address: &str, name: &str, notice: &Notice) -> Result<(), String> {
    let shown = mailer.display();
    let mut command = tokio::process::Command::new(mailer);
    // A line with one dot ends nothing; whom it goes to is in the letter.
    command.args(["-oi", "-t"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    // What it starts goes to its group, and with it.
    let mut child = command.process_group(0).spawn().map_err(|e| format!("{shown}: {e}"))?;
    // Ended before the child is taken in: until then the number is its own.
    let mut group = Group(child.id());
    if let Some(mut to) = child.stdin.take() {
        // One that does not read says so by its status.
        let _ = to.write_all(letter(address, name, notice).as_bytes()).await;
    }
    let ended = child.wait().await;
    // One that has ended may have left others to do the rest, as mailers do.
    group.0 = None;
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{shown}: {status}")),
        Err(e) => Err(format!("{shown}: {e}")),
    }
}

/// A mailer and what it has started, as long as it takes: ended with this.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0.and_then(|pid| i32::try_from(pid).ok()) {
            let _ = signal::kill(-pid, libc::SIGKILL);
        }
    }
}

async fn post(url: &str, name: &str, notice: &Notice, roots: &Path) -> Result<(), String> {
    let (tls, host, port, path) = place(url)?;
    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(|e| format!("{host}:{port}: {e}"))?;
    let stream = limited(stream);
    if !tls {
        return send(stream, &host, port, path, name, notice).await;
    }
    let config = trusting(roots.to_owned()).await?;
    let server = ServerName::try_from(host.clone()).map_err(|e| format!("{host}: {e}"))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(server, stream).await;
    send(stream.map_err(|e| format!("{host}:{port}: {e}"))?, &host, port, path, name, notice).await
}

/// After so many bytes the other end has said all that is heard: one that goes on and on is no answer.
fn limited(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
) -> impl AsyncRead + AsyncWrite + Unpin + Send + 'static {
    let (from, to) = split(stream);
    join(from.take(MOST_ANSWER), to)
}

/// The authorities that this machine's administrator trusts.
async fn trusting(file: PathBuf) -> Result<ClientConfig, String> {
    let read = move || {
        let why = |e: String| format!("{} ([queue] roots): {e}", file.display());
        let mut roots = RootCertStore::empty();
        for found in CertificateDer::pem_file_iter(&file).map_err(|e| why(e.to_string()))? {
            // One of many that can't be read is none that is trusted.
            let _ = found.map(|certificate| roots.add(certificate));
        }
        match roots.is_empty() {
            true => Err(why("it names nobody to trust".into())),
            false => Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()),
        }
    };
    tokio::task::spawn_blocking(read).await.map_err(|e| e.to_string())?
}

async fn send<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    host: &str,
    port: u16,
    path: String,
    name: &str,
    notice: &Notice,
) -> Result<(), String> {
    #[derive(Serialize)]
    struct Body_<'a> {
        id: &'a str,
        job: String,
        name: &'a str,
        user: &'a str,
        event: &'a str,
        state: &'a str,
        at: u64,
    }
    let Notice { job, name: called, user, event, state, at, .. } = notice;
    let body = Body_ { id: name, job: job.to_string(), name: called, user, event, state, at: *at };
    let body = serde_json::to_vec(&body).map_err(|e| e.to_string())?;
    let host = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let request = Request::post(path)
        .header(header::HOST, host)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, "pando")
        .header("idempotency-key", name)
        .body(Body::from(body))
        .map_err(|e| e.to_string())?;
    let (mut sender, line) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let line = tokio::spawn(line);
    let answer = sender.send_request(request).await.map_err(|e| e.to_string());
    line.abort();
    // Nobody follows where it leads: only this URL was looked at.
    let status = answer?.status();
    if status.is_success() { Ok(()) } else { Err(format!("it answered {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Without a limit this never ends.
    #[tokio::test]
    async fn an_answer_without_an_end_is_none() {
        let (ours, mut theirs) = tokio::io::duplex(4 << 10);
        let says = tokio::spawn(async move {
            // Before it is asked nobody would hear an answer.
            theirs.read_u8().await.unwrap();
            let mut said = 0;
            while theirs.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_ok() {
                said += 25;
            }
            said
        });
        let answer = send(limited(ours), "h", 80, "/".into(), "i", &notice()).await;
        assert!(answer.is_err(), "{answer:?}");
        // What is on its way is not heard.
        let said = says.await.unwrap();
        assert!((MOST_ANSWER - 25..=MOST_ANSWER + (4 << 10)).contains(&said), "{said}");
    }

    fn notice() -> Notice {
        let (to, job) = (To::Mail("a@b".into()), Id { job: 7, task: Some(2) });
        let [name, user, event, state] = ["größe", "ann", "FAIL", "TIMEOUT"].map(str::to_owned);
        Notice { to, job, name, user, event, state, at: 5 }
    }

    #[test]
    fn urls() {
        assert_eq!(place("http://h:81/a?b=c"), Ok((false, "h".into(), 81, "/a?b=c".into())));
        assert_eq!(place("https://[::1]"), Ok((true, "::1".into(), 443, "/".into())));
        for wrong in [
            "",
            "h",
            "/a",
            "ftp://h/",
            "http://",
            "http://user:secret@h/",
            "http://h/a b",
            "http://h:99999/",
            "http://h:0/",
            "http://h:/",
            "https://[::1]:70000",
        ] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_mailer_that_is_given_up_takes_with_it_what_it_has_started() {
        let dir = std::env::temp_dir().join(format!("pando-mailer-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (mailer, pipe) = (dir.join("mailer"), dir.join("pipe"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // Both hold the pipe open: it ends when both have ended.
        let text = format!("#!/bin/sh\nexec 9>{}\necho begun >&9\nsleep 1000 &\nwait\n", pipe.display());
        std::fs::write(dir.join("text"), text).unwrap();
        std::fs::set_permissions(dir.join("text"), std::fs::Permissions::from_mode(0o700)).unwrap();
        // What another test starts meanwhile would have it open for writing, and then it can't be run.
        let copies = std::process::Command::new("cp").arg(dir.join("text")).arg(&mailer).status();
        assert!(copies.unwrap().success());
        let sends = tokio::spawn(async move { mail(&mailer, "a@b", "i", &notice()).await });
        let mut said = tokio::fs::File::open(&pipe).await.unwrap();
        let mut begun = [0; 6];
        said.read_exact(&mut begun).await.unwrap();
        sends.abort();
        assert_eq!(said.read(&mut begun).await.unwrap(), 0);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_letter_has_the_headers_that_we_write_and_no_others() {
        let text = letter("a@b", "c/d-n1-1", &Notice { name: "a\nBcc: x@y".into(), ..notice() });
        let (head, body) = text.split_once("\n\n").unwrap();
        assert!(head.lines().all(|l| !l.starts_with("Bcc")), "{head}");
        assert!(head.contains("Pando job 7_2") && body.contains("TIMEOUT"));
        assert!(letter("a@b", "i", &notice()).is_char_boundary(0));
        assert!(letter("a@b", "i", &notice()).split("\n\n").next().unwrap().is_ascii());
    }
}
