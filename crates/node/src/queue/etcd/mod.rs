//! A client of etcd's JSON gateway (etcd 3.4 and later): as much as a journal and an election want. One request at a time, over a connection that is kept.

pub mod answer;

use crate::config::EtcdStore;
use answer::{Done, Kept, Lease, No, Range, Token, Txn, encoded};
use axum::body::{Body, to_bytes};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use pando_wire::rustls::pki_types::pem::PemObject;
use pando_wire::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use pando_wire::rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Bytes of an answer. What we ask for is less: see [`store`](super::store).
const MOST: usize = 32 << 20;
/// A member of etcd that is there takes a connection within this.
const CONNECTS: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Wrong {
    /// Nobody knows whether it was done.
    #[error("{0}")]
    Away(String),
    /// It was not done.
    #[error("etcd: {0}")]
    Refused(String),
}

/// A connection, and who we are there.
#[derive(Default)]
struct Line {
    /// Which member is tried first.
    next: usize,
    sender: Option<SendRequest<Body>>,
    token: Option<String>,
}

/// See above.
pub struct Etcd {
    members: Vec<Uri>,
    tls: Option<TlsConnector>,
    user: Option<(String, String)>,
    line: Mutex<Line>,
}

/// The key after all that begin like this one.
pub fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// Parts of a transaction.
pub fn put(key: &[u8], value: &[u8]) -> Value {
    json!({ "request_put": { "key": encoded(key), "value": encoded(value) } })
}

/// See above: goes when the lease does.
pub fn put_leased(key: &[u8], value: &[u8], lease: i64) -> Value {
    json!({ "request_put": { "key": encoded(key), "value": encoded(value), "lease": lease.to_string() } })
}

/// See above: all from `key` until before `end`.
pub fn delete(key: &[u8], end: &[u8]) -> Value {
    json!({ "request_delete_range": { "key": encoded(key), "range_end": encoded(end) } })
}

/// See above.
pub fn get(key: &[u8]) -> Value {
    json!({ "request_range": { "key": encoded(key) } })
}

/// A comparison: it was made at that revision; 0: it is not there.
pub fn made_at(key: &[u8], revision: i64) -> Value {
    json!({ "key": encoded(key), "target": "CREATE", "result": "EQUAL", "create_revision": revision.to_string() })
}

/// A comparison: it has that value.
pub fn has_value(key: &[u8], value: &[u8]) -> Value {
    json!({ "key": encoded(key), "target": "VALUE", "result": "EQUAL", "value": encoded(value) })
}

impl Etcd {
    /// For the members that are configured. Files are read now; the error is for people.
    pub fn new(config: &EtcdStore) -> Result<Etcd, String> {
        let one = |text: &String| text.parse::<Uri>().map_err(|e| format!("{text} ([queue.etcd] endpoints): {e}"));
        let members: Vec<Uri> = config.endpoints.iter().map(one).collect::<Result<_, String>>()?;
        let has_tls = members.iter().any(|uri| uri.scheme_str() == Some("https"));
        let user = match (&config.user, &config.password_file) {
            (Some(user), Some(file)) => {
                let why = |e| format!("{} ([queue.etcd] password_file): {e}", file.display());
                Some((user.clone(), fs::read_to_string(file).map_err(why)?.trim_end().to_owned()))
            }
            _ => None,
        };
        let tls = if has_tls { Some(TlsConnector::from(Arc::new(trusting(config)?))) } else { None };
        Ok(Etcd { members, tls, user, line: Mutex::default() })
    }

    /// Keys from `key` until before `end`, so many at most.
    pub async fn range(&self, key: &[u8], end: &[u8], most: usize, patience: Duration) -> Result<Range, Wrong> {
        let what = json!({ "key": encoded(key), "range_end": encoded(end), "limit": most.to_string() });
        self.call("/v3/kv/range", &what, patience).await
    }

    /// The names of keys from `key` until before `end`.
    pub async fn names(&self, key: &[u8], end: &[u8], patience: Duration) -> Result<Range, Wrong> {
        let what = json!({ "key": encoded(key), "range_end": encoded(end), "keys_only": true });
        self.call("/v3/kv/range", &what, patience).await
    }

    /// One key.
    pub async fn get(&self, key: &[u8], patience: Duration) -> Result<Range, Wrong> {
        self.call("/v3/kv/range", &json!({ "key": encoded(key) }), patience).await
    }

    /// If all comparisons are true the one, otherwise the other.
    pub async fn txn(&self, compare: Value, success: Value, failure: Value, patience: Duration) -> Result<Txn, Wrong> {
        let what = json!({ "compare": compare, "success": success, "failure": failure });
        self.call("/v3/kv/txn", &what, patience).await
    }

    /// A lease of so many seconds.
    pub async fn grant(&self, seconds: u64, patience: Duration) -> Result<Lease, Wrong> {
        self.call("/v3/lease/grant", &json!({ "TTL": seconds.to_string() }), patience).await
    }

    /// Has it live as long again.
    pub async fn keep_alive(&self, lease: i64, patience: Duration) -> Result<Lease, Wrong> {
        let kept = self.call::<Kept>("/v3/lease/keepalive", &json!({ "ID": lease.to_string() }), patience).await?;
        Ok(kept.result)
    }

    /// Ends it.
    pub async fn revoke(&self, lease: i64, patience: Duration) -> Result<(), Wrong> {
        self.call::<Done>("/v3/lease/revoke", &json!({ "ID": lease.to_string() }), patience).await.map(|_| ())
    }

    /// What was before that revision need not be remembered.
    pub async fn compact(&self, revision: i64, patience: Duration) -> Result<(), Wrong> {
        let what = json!({ "revision": revision.to_string() });
        self.call::<Done>("/v3/kv/compaction", &what, patience).await.map(|_| ())
    }

    async fn call<T: DeserializeOwned>(&self, path: &str, what: &Value, patience: Duration) -> Result<T, Wrong> {
        let away = |_| Wrong::Away(format!("etcd does not answer within {patience:?}"));
        let mut line = timeout(patience, self.line.lock()).await.map_err(away)?;
        let called = timeout(patience, self.ask(&mut line, path, what)).await;
        let answer = called.map_err(away).and_then(|answer| answer);
        if matches!(answer, Err(Wrong::Away(_))) {
            // What was half said is nobody's. The next one may be well.
            line.sender = None;
            line.next = line.next.wrapping_add(1);
        }
        let text = answer?;
        answer::read(&text).map_err(|why| Wrong::Away(format!("etcd's answer can't be understood: {why}")))
    }

    /// Once more where etcd has forgotten who we are.
    async fn ask(&self, line: &mut Line, path: &str, what: &Value) -> Result<Vec<u8>, Wrong> {
        let mut has_said = false;
        loop {
            if let (Some((name, password)), None) = (&self.user, &line.token) {
                let who = json!({ "name": name, "password": password });
                let text = self.one(line, "/v3/auth/authenticate", &who).await?.map_err(said)?;
                line.token = answer::read::<Token>(&text).ok().map(|found| found.token);
                has_said = true;
            }
            match self.one(line, path, what).await? {
                Err(no) if no.wants_a_name() && self.user.is_some() && !has_said => line.token = None,
                answer => return answer.map_err(said),
            }
        }
    }

    /// One request and its answer, or its no.
    async fn one(&self, line: &mut Line, path: &str, what: &Value) -> Result<Result<Vec<u8>, No>, Wrong> {
        let ready = match &mut line.sender {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !ready {
            line.sender = Some(self.connect(&mut line.next).await.map_err(Wrong::Away)?);
        }
        let member = &self.members[line.next % self.members.len()];
        let away = |why: String| Wrong::Away(format!("etcd at {member}: {why}"));
        let Some(sender) = &mut line.sender else { return Err(away("there is no connection".into())) };
        let host = member.authority().map_or("", |authority| authority.as_str());
        let mut request =
            Request::post(path).header(header::HOST, host).header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &line.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(Body::from(what.to_string())).map_err(|e| away(e.to_string()))?;
        let answer = sender.send_request(request).await.map_err(|e| away(e.to_string()))?;
        let is_well = answer.status().is_success();
        let text = to_bytes(Body::new(answer.into_body()), MOST).await.map_err(|e| away(e.to_string()))?.to_vec();
        match is_well {
            true => Ok(Ok(text)),
            false => match answer::read::<No>(&text) {
                Ok(no) if no.is_final() || no.wants_a_name() => Ok(Err(no)),
                Ok(no) => Err(away(no.why().to_owned())),
                Err(_) => Err(away("it speaks no etcd 3.4 or later".into())),
            },
        }
    }

    /// To the first that is there, beginning with `next`.
    async fn connect(&self, next: &mut usize) -> Result<SendRequest<Body>, String> {
        let mut last = "there is none ([queue.etcd] endpoints)".to_owned();
        for _ in &self.members {
            let member = &self.members[*next % self.members.len()];
            match timeout(CONNECTS, self.connect_to(member)).await {
                Ok(Ok(sender)) => return Ok(sender),
                Ok(Err(why)) => last = format!("etcd at {member}: {why}"),
                Err(_) => last = format!("etcd at {member}: it takes no connection within {CONNECTS:?}"),
            }
            *next = next.wrapping_add(1);
        }
        Err(last)
    }

    async fn connect_to(&self, member: &Uri) -> Result<SendRequest<Body>, String> {
        let host = member.host().unwrap_or("").trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, member.port_u16().unwrap_or(2379))).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        match &self.tls {
            Some(tls) if member.scheme_str() == Some("https") => {
                let server = ServerName::try_from(host.to_owned()).map_err(|e| e.to_string())?;
                speak(tls.connect(server, stream).await.map_err(|e| e.to_string())?).await
            }
            _ => speak(stream).await,
        }
    }
}

fn said(no: No) -> Wrong {
    Wrong::Refused(crate::owner::clean(no.why()))
}

async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> Result<SendRequest<Body>, String> {
    let (sender, line) = handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    // It ends with the sender.
    tokio::spawn(line);
    Ok(sender)
}

/// The authorities that are named, and who we are.
fn trusting(config: &EtcdStore) -> Result<ClientConfig, String> {
    let why = |file: &std::path::Path, key: &str, e: String| format!("{} ([queue.etcd] {key}): {e}", file.display());
    let mut roots = RootCertStore::empty();
    let wrong = |e: String| why(&config.roots, "roots", e);
    for found in CertificateDer::pem_file_iter(&config.roots).map_err(|e| wrong(e.to_string()))? {
        // One of many that can't be read is none that is trusted.
        let _ = found.map(|certificate| roots.add(certificate));
    }
    if roots.is_empty() {
        return Err(wrong("it names nobody to trust".into()));
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let (Some(certificate), Some(key)) = (&config.certificate, &config.key) else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(|all| all.collect::<Result<Vec<_>, _>>());
    let chain = chain.map_err(|e| why(certificate, "certificate", e.to_string()))?;
    let own = PrivateKeyDer::from_pem_file(key).map_err(|e| why(key, "key", e.to_string()))?;
    builder.with_client_auth_cert(chain, own).map_err(|e| why(certificate, "certificate", e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::end_of;

    #[test]
    fn the_end_of_a_prefix() {
        assert_eq!(end_of(b"/a/"), b"/a0");
        assert_eq!(end_of(&[b'a', 0xff]), b"b");
        assert_eq!(end_of(&[0xff]), [0], "to the last key of all");
    }
}
