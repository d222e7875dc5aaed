//! The join token: one word to paste on the second machine. It says where to go, whom to trust there, and
//! holds a secret that works once and not for long.

use serde::{Deserialize, Serialize};
use std::fmt::Write;

const PREFIX: &str = "pando1.";
/// No token is longer.
pub const MAX_TOKEN: usize = 1024;

/// What a token holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Where the admitting node listens, `ADDR:PORT`.
    pub addr: String,
    /// SHA-256 of the cluster authority's certificate.
    pub fingerprint: [u8; 32],
    /// Which token this is; not secret, appears in logs.
    pub id: [u8; 8],
    /// What proves that one holds the token.
    pub secret: [u8; 32],
    /// Seconds since 1970 at which it ends.
    pub expires: u64,
}

/// A word that is no token.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("that is not a join token ({0}): copy the whole word that `pando token` printed")]
pub struct TokenError(&'static str);

impl Token {
    /// A new one.
    pub fn generate(addr: String, fingerprint: [u8; 32], expires: u64) -> Self {
        let (mut id, mut secret) = ([0; 8], [0; 32]);
        random(&mut id);
        random(&mut secret);
        Token { addr, fingerprint, id, secret, expires }
    }

    /// The word to print.
    pub fn to_word(&self) -> String {
        let body = postcard::to_allocvec(self).unwrap_or_default();
        format!("{PREFIX}{}", hex(&with_check(body)))
    }

    /// Reads a word.
    pub fn from_word(word: &str) -> Result<Self, TokenError> {
        let word = word.trim();
        if word.len() > MAX_TOKEN {
            return Err(TokenError("too long"));
        }
        let text = word.strip_prefix(PREFIX).ok_or(TokenError("it does not begin with pando1."))?;
        let bytes = unhex(text).ok_or(TokenError("it has characters that don't belong"))?;
        let (body, check) = bytes.split_last_chunk::<4>().ok_or(TokenError("too short"))?;
        if crate::tls::fingerprint(body)[..4] != check[..] {
            return Err(TokenError("part of it is missing or changed"));
        }
        postcard::from_bytes(body).map_err(|_| TokenError("it does not decode"))
    }

    /// Its public number, for logs.
    pub fn id_text(&self) -> String {
        hex(&self.id)
    }
}

/// A few bytes of checksum: a word that lost its end in copying is told from a wrong one.
fn with_check(mut body: Vec<u8>) -> Vec<u8> {
    let sum = crate::tls::fingerprint(&body);
    body.extend_from_slice(&sum[..4]);
    body
}

/// Proof that one holds `secret`, good for one TLS connection (`binding` is exported from it), one name and one key.
pub fn proof(secret: &[u8], binding: &[u8], name: &str, public: &[u8]) -> Vec<u8> {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret);
    aws_lc_rs::hmac::sign(&key, &proof_text(binding, name, public)).as_ref().to_vec()
}

/// Checks a [`proof`] in constant time.
pub fn proof_holds(secret: &[u8], binding: &[u8], name: &str, public: &[u8], given: &[u8]) -> bool {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret);
    aws_lc_rs::hmac::verify(&key, &proof_text(binding, name, public), given).is_ok()
}

fn proof_text(binding: &[u8], name: &str, public: &[u8]) -> Vec<u8> {
    let mut text = b"pando join 1".to_vec();
    for part in [binding, name.as_bytes(), public] {
        text.extend_from_slice(&(part.len() as u64).to_be_bytes());
        text.extend_from_slice(part);
    }
    text
}

/// Fills `out` from the system's generator.
pub fn random(out: &mut [u8]) {
    // The generator fails only where the kernel has none, and then nothing here may go on.
    aws_lc_rs::rand::fill(out).unwrap_or_else(|_| std::process::abort());
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let digit = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
    text.as_bytes().chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// Base64 with padding, as PEM wants it.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |w, b| w << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let six = (word >> (18 - 6 * i)) & 63;
            out.push(if i <= chunk.len() { ALPHABET[six as usize] as char } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_printing_and_a_cut_one_is_told() {
        let token = Token::generate("10.0.0.1:7117".into(), [7; 32], 99);
        let word = token.to_word();
        assert_eq!(Token::from_word(&format!(" {word}\n")).unwrap(), token);
        for bad in ["", "pando1.", "pando1.zz", &word[..word.len() - 2], &word.replace('a', "b")] {
            assert!(Token::from_word(bad).is_err() || bad == word, "{bad}");
        }
    }

    #[test]
    fn a_proof_binds_secret_connection_name_and_key() {
        let good = proof(b"secret", b"binding", "n2", b"key");
        assert!(proof_holds(b"secret", b"binding", "n2", b"key", &good));
        assert!(!proof_holds(b"Secret", b"binding", "n2", b"key", &good));
        assert!(!proof_holds(b"secret", b"bindinh", "n2", b"key", &good));
        assert!(!proof_holds(b"secret", b"binding", "n3", b"key", &good));
        assert!(!proof_holds(b"secret", b"binding", "n", b"2key", &good));
    }

    #[test]
    fn base64_as_everyone_has_it() {
        for (raw, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(raw.as_bytes()), text);
        }
    }
}
