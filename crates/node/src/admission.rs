//! Letting a new machine in: it proves that it holds a token that was made here, has not ended and was never
//! used, and gets a certificate and the list of members.

use crate::audit::Entry;
use crate::config;
use crate::daemon::Node;
use crate::events::now_ms;
use crate::link::Frames;
use crate::place::replace_file;
use crate::views::Event;
use pando_wire::NodeName;
use pando_wire::join::{BINDING, BINDING_LABEL, JoinAnswer, JoinRequest};
use pando_wire::message::{HELLO_VERSION, Member};
use pando_wire::token::{Token, proof_holds};
use pando_wire::version::Versions;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A token that was made here.
#[derive(Clone, Serialize, Deserialize)]
struct Made {
    token: Token,
    /// Who came with it.
    used_by: Option<String>,
}

/// The tokens made here, until they end. In a file that only the daemon's user can read.
pub struct Tokens {
    made: Mutex<Vec<Made>>,
    file: PathBuf,
}

impl Tokens {
    /// Reads them. A damaged file means no tokens: new ones are easily made.
    pub fn open(file: PathBuf) -> Self {
        let made = std::fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Tokens { made: Mutex::new(made.unwrap_or_default()), file }
    }

    /// Makes one.
    pub fn create(
        &self,
        addr: String,
        fingerprint: [u8; 32],
        limits: &config::Tokens,
        valid_s: u64,
    ) -> Result<Token, String> {
        let now = now_ms() / 1000;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        // Used and ended ones stay a while, so that who brings them is told what is wrong.
        made.retain(|m| m.token.expires + limits.valid_s > now);
        let open = made.iter().filter(|m| m.used_by.is_none() && m.token.expires > now).count();
        if open >= limits.max_open as usize {
            return Err(format!("{open} tokens are open, the limit ([tokens] max_open): use one, or wait"));
        }
        let token = Token::generate(addr, fingerprint, now + valid_s);
        made.push(Made { token: token.clone(), used_by: None });
        self.save(&made).map_err(|e| format!("the token could not be kept in {}: {e}", self.file.display()))?;
        Ok(token)
    }

    /// Checks a request and spends its token; the error is the sentence that refuses it.
    fn spend(&self, request: &JoinRequest, binding: &[u8], taken: bool) -> Result<(), String> {
        let again = "ask for a new one with `pando token` on a member";
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(found) = made.iter_mut().find(|m| m.token.id == request.token) else {
            return Err(format!("this token is not known here: {again}"));
        };
        let name = &request.me.name;
        if !proof_holds(&found.token.secret, binding, name, &request.public, &request.proof) {
            return Err(format!("the proof for this token is wrong: {again}"));
        }
        if let Some(user) = &found.used_by {
            return Err(format!("this token was used by {user} already; a token works once: {again}"));
        }
        if found.token.expires <= now_ms() / 1000 {
            return Err(format!("this token has expired: {again}"));
        }
        if taken {
            return Err(format!("a node named {name} is a member already: join with --name ANOTHER"));
        }
        found.used_by = Some(name.clone());
        // On disk before the answer: a token that a crash brings back could be used twice.
        self.save(&made).map_err(|e| format!("the admitting node can't write its state: {e}"))
    }

    fn save(&self, made: &[Made]) -> io::Result<()> {
        replace_file(&self.file, &serde_json::to_vec(made)?)
    }
}

/// Serves one connection of a machine that wants in.
pub async fn serve(node: &Arc<Node>, stream: TlsStream<TcpStream>, from: SocketAddr) -> io::Result<()> {
    let exported = stream.get_ref().1.export_keying_material([0u8; BINDING], BINDING_LABEL, None);
    let binding = exported.map_err(io::Error::other)?;
    let mut frames = Frames::new(stream);
    let request: JoinRequest = frames.next(HELLO_VERSION).await?;
    let token = pando_wire::token::hex(&request.token);
    let name = crate::owner::clean(&request.me.name);
    let decision = admit(node, &request, &binding);
    let who = from.to_string();
    let on = format!("{name} at {} with token {token}", crate::owner::clean(&request.me.addr));
    let (allowed, why) = match &decision {
        Ok(_) => (true, "a good token".to_owned()),
        Err(why) => (false, why.clone()),
    };
    node.audit.note(&Entry { who, what: "join", on, allowed, why });
    let answer = match decision {
        Ok(answer) => {
            let text = format!("{name} joined from {from} with token {token}");
            node.events.say(Event { from: Some(from.to_string()), ..Event::new("join", text) });
            answer
        }
        Err(reason) => {
            let text = format!("{name} at {from} may not join: {reason}");
            let (from, why) = (Some(from.to_string()), Some(reason.clone()));
            node.events.say(Event { from, reason: why, ..Event::new("refused", text) });
            JoinAnswer::Refused { reason }
        }
    };
    frames.send(HELLO_VERSION, &answer).await?;
    frames.close().await;
    Ok(())
}

fn admit(node: &Node, request: &JoinRequest, binding: &[u8]) -> Result<JoinAnswer, String> {
    Versions::OURS.agree(request.versions).map_err(|e| e.to_string())?;
    request.me.check().map_err(|e| e.to_string())?;
    let name = NodeName::parse(&request.me.name).map_err(|e| e.to_string())?;
    let taken = node.cluster.find(name.as_str()).is_some();
    node.tokens.spend(request, binding, taken)?;
    let cert = node.identity.issue(&name, &request.public).map_err(|e| e.to_string())?;
    let member = Member { stamp: now_ms(), ..request.me.clone() };
    node.cluster.admit(member);
    Ok(JoinAnswer::Admitted {
        cluster: node.identity.cluster.to_string(),
        ca: node.identity.ca_der().to_vec(),
        cert,
        members: node.cluster.introduce(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_wire::token::proof;

    fn request(token: &Token, name: &str) -> JoinRequest {
        let me = Member { name: name.into(), addr: "a".into(), stamp: 0 };
        let proof = proof(&token.secret, b"binding", name, b"key");
        JoinRequest { versions: Versions::OURS, token: token.id, me, public: b"key".to_vec(), proof }
    }

    #[test]
    fn a_token_works_once_and_not_for_long() {
        let dir = std::env::temp_dir().join(format!("pando-tokens-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (file, limits) = (dir.join("tokens.json"), config::Tokens::default());
        let tokens = Tokens::open(file.clone());
        let good = tokens.create("a".into(), [0; 32], &limits, 60).unwrap();
        let old = tokens.create("a".into(), [0; 32], &limits, 0).unwrap();
        let says = |r: Result<(), String>| r.unwrap_err();
        let mut wrong = good.clone();
        wrong.secret[0] ^= 1;
        assert!(says(tokens.spend(&request(&wrong, "n2"), b"binding", false)).contains("proof"));
        assert!(says(tokens.spend(&request(&good, "n2"), b"another", false)).contains("proof"));
        assert!(says(tokens.spend(&request(&old, "n2"), b"binding", false)).contains("expired"));
        assert!(says(tokens.spend(&request(&good, "n1"), b"binding", true)).contains("already"));
        tokens.spend(&request(&good, "n2"), b"binding", false).unwrap();
        let after_restart = Tokens::open(file);
        assert!(says(after_restart.spend(&request(&good, "n3"), b"binding", false)).contains("used by n2"));
        let strange = Token::generate("a".into(), [0; 32], u64::MAX);
        assert!(says(tokens.spend(&request(&strange, "n3"), b"binding", false)).contains("not known"));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
