//! Datagrams of multicast, and of libfabric: each is sealed with a key that its sender has spread over authenticated links. What is not for us, or not what its
//! sender has sealed, is refused before anything else looks at it.
//!
//! Magic and version (4), tag (8) and number (4), in the clear but under the seal; then the sealed bytes (AES-256-GCM) and its tag (16).

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// Bytes before what is sealed.
pub const HEADER: usize = 16;
/// Bytes that a datagram has besides what it carries.
pub const AROUND: usize = HEADER + 16;
/// Bytes that one carries at most: a chunk of a transfer, as a link frames it.
pub const MAX_BODY: usize = 68_000;
/// The last byte is the version.
const MAGIC: [u8; 4] = [0xd7, b'P', b'C', 1];

/// What can be wrong with a datagram.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DatagramError {
    /// Somebody else's, or another version's.
    #[error("a datagram of {0} bytes that is none of ours")]
    Foreign(usize),
    /// It was changed on its way, or made by somebody without the key.
    #[error("a datagram whose seal is not good")]
    Seal,
    /// Too long to be sent.
    #[error("{0} bytes in a datagram; the limit is {MAX_BODY}")]
    TooLong(usize),
}

/// Seals and opens the datagrams of one cast.
pub struct Seal(LessSafeKey);

/// Which cast it is of, and which piece, as it says: true only if it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The cast.
    pub tag: u64,
    /// The piece. Each is sealed once, or again with the same bytes: so the key sees no number with two texts.
    pub number: u32,
}

impl Label {
    fn nonce(self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[8..].copy_from_slice(&self.number.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

/// What a datagram says that it is.
pub fn label(datagram: &[u8]) -> Result<Label, DatagramError> {
    let foreign = DatagramError::Foreign(datagram.len());
    let header = datagram.first_chunk::<HEADER>();
    let fits = (AROUND..=AROUND + MAX_BODY).contains(&datagram.len());
    let Some(header) = header.filter(|h| h[..4] == MAGIC && fits) else { return Err(foreign) };
    let tag = u64::from_be_bytes(std::array::from_fn(|i| header[4 + i]));
    let number = u32::from_be_bytes(std::array::from_fn(|i| header[12 + i]));
    Ok(Label { tag, number })
}

impl Seal {
    /// With this key.
    pub fn new(key: &[u8; 32]) -> Seal {
        // The length is the algorithm's: it can't fail.
        Seal(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).unwrap_or_else(|_| std::process::abort())))
    }

    /// A datagram, in `out`.
    pub fn seal(&self, label: Label, body: &[u8], out: &mut Vec<u8>) -> Result<(), DatagramError> {
        if body.len() > MAX_BODY {
            return Err(DatagramError::TooLong(body.len()));
        }
        out.clear();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&label.tag.to_be_bytes());
        out.extend_from_slice(&label.number.to_be_bytes());
        out.extend_from_slice(body);
        let (header, text) = out.split_at_mut(HEADER);
        let tag = self.0.seal_in_place_separate_tag(label.nonce(), Aad::from(&*header), text);
        out.extend_from_slice(tag.map_err(|_| DatagramError::Seal)?.as_ref());
        Ok(())
    }

    /// What is in one that has this label.
    pub fn open<'a>(&self, label: Label, datagram: &'a mut [u8]) -> Result<&'a [u8], DatagramError> {
        let (header, text) = datagram.split_at_mut_checked(HEADER).ok_or(DatagramError::Seal)?;
        let opened = self.0.open_in_place(label.nonce(), Aad::from(&*header), text);
        opened.map(|text| &*text).map_err(|_| DatagramError::Seal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    const LABEL: Label = Label { tag: 0x0102_0304_0506_0708, number: 9 };

    fn sealed(body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Seal::new(&[7; 32]).seal(LABEL, body, &mut out).unwrap();
        out
    }

    #[test]
    fn what_was_sealed_opens_and_nothing_else() {
        let good = sealed(b"bytes");
        assert_eq!((good.len(), label(&good)), (AROUND + 5, Ok(LABEL)));
        assert_eq!(Seal::new(&[7; 32]).open(LABEL, &mut good.clone()), Ok(&b"bytes"[..]));
        assert_eq!(Seal::new(&[8; 32]).open(LABEL, &mut good.clone()), Err(DatagramError::Seal));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let opened = label(&bad).and_then(|label| Seal::new(&[7; 32]).open(label, &mut bad).map(<[u8]>::to_vec));
            assert!(opened.is_err(), "byte {at}");
        }
        let mut out = Vec::new();
        let long = Seal::new(&[7; 32]).seal(LABEL, &vec![0; MAX_BODY + 1], &mut out);
        assert_eq!(long, Err(DatagramError::TooLong(MAX_BODY + 1)));
    }

    #[test]
    fn whatever_is_heard() {
        let seal = Seal::new(&[7; 32]);
        check!().with_type::<(bool, Vec<u8>)>().for_each(|(begins_well, bytes)| {
            let mut datagram = if *begins_well { sealed(b"")[..HEADER].to_vec() } else { Vec::new() };
            datagram.extend_from_slice(bytes);
            if let Ok(label) = label(&datagram) {
                assert_eq!(seal.open(label, &mut datagram), Err(DatagramError::Seal));
            }
        });
    }

    #[test]
    fn whatever_is_cast_comes() {
        check!().with_type::<(u64, u32, Vec<u8>, [u8; 32])>().for_each(|(tag, number, body, key)| {
            let (seal, mut out, of) = (Seal::new(key), Vec::new(), Label { tag: *tag, number: *number });
            seal.seal(of, body, &mut out).unwrap();
            assert_eq!(label(&out), Ok(of));
            assert_eq!(seal.open(of, &mut out), Ok(&body[..]));
        });
    }
}
