//! What a joining machine and the admitting node say to each other: one request, one answer, each a frame of
//! [`crate::message::HELLO_VERSION`].

use crate::message::{MAX_LISTED, Member};
use crate::version::Versions;
use serde::{Deserialize, Serialize};

/// Label under which both sides export the channel binding from TLS.
pub const BINDING_LABEL: &[u8] = b"EXPORTER-pando-join";
/// Bytes of the binding.
pub const BINDING: usize = 32;

/// May I join?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// What the machine speaks.
    pub versions: Versions,
    /// The token's public number.
    pub token: [u8; 8],
    /// Who it wants to be and where it will listen.
    pub me: Member,
    /// Its raw Ed25519 public key.
    pub public: Vec<u8>,
    /// See [`crate::token::proof`].
    pub proof: Vec<u8>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinAnswer {
    /// Welcome.
    Admitted {
        /// The cluster's name.
        cluster: String,
        /// The authority's certificate, DER.
        ca: Vec<u8>,
        /// The new member's certificate, DER.
        cert: Vec<u8>,
        /// All members.
        members: Vec<Member>,
    },
    /// No, and why.
    Refused {
        /// A sentence.
        reason: String,
    },
}

impl JoinAnswer {
    /// Members beyond the limit are a broken answer.
    pub fn is_sane(&self) -> bool {
        match self {
            JoinAnswer::Admitted { members, .. } => {
                members.len() <= MAX_LISTED && members.iter().all(|m| m.check().is_ok())
            }
            JoinAnswer::Refused { reason } => reason.len() <= crate::message::MAX_TEXT,
        }
    }
}
