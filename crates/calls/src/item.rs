//! What one argument of a call points to.

use crate::walk::Walk;

/// A length.
#[derive(Clone, Copy)]
pub(crate) enum Len {
    /// This many.
    N(u32),
    /// As this argument says (`size_t`).
    A(u8),
    /// As this argument says (`int`).
    I(u8),
    /// As this argument says (`unsigned int`).
    U(u8),
    /// As this argument says (`size_t`), at most this many.
    Min(u8, u32),
}

impl Len {
    fn of(self, w: &Walk<'_>) -> u64 {
        match self {
            Len::N(n) => u64::from(n),
            Len::A(i) => w.arg(i),
            Len::I(i) => w.int(i),
            Len::U(i) => w.uint(i),
            Len::Min(i, n) => w.arg(i).min(u64::from(n)),
        }
    }
}

/// What the argument of this number points to.
#[derive(Clone, Copy)]
pub(crate) enum Item {
    /// A path.
    Path(u8),
    /// A NUL-terminated string of at most so many bytes.
    Text(u8, u32),
    /// Bytes read.
    In(u8, Len),
    /// An array read: how many, and the size of each.
    InMany(u8, Len, u32),
    /// Bytes written, all of them, when it succeeds.
    Out(u8, Len),
    /// Bytes written, all of them, when it returns more than 0.
    OutPos(u8, Len),
    /// Bytes of which any may be read and any may be written, failing or not.
    InOut(u8, Len),
    /// The same, for an array; none are written when the call is refused.
    InOutMany(u8, Len, u32),
    /// A buffer of which as many bytes are written as it returns.
    OutRet(u8, Len),
    /// An array of which as many elements are written as it returns.
    OutMany(u8, Len, u32),
    /// A `timespec` written when a signal interrupts it.
    Remaining(u8),
    /// An `iovec` array and its length, read from.
    Gather(u8, u8),
    /// An `iovec` array and its length, written to as far as it returns.
    Scatter(u8, u8),
    /// A socket address and its length, read.
    Address(u8, Len),
    /// A socket address and a pointer to its length, which is read and written.
    AddressBack(u8, u8),
}

impl Item {
    pub fn apply(&self, w: &mut Walk<'_>) {
        match *self {
            Item::Path(a) => w.text(w.arg(a), 4096),
            Item::Text(a, n) => w.text(w.arg(a), u64::from(n)),
            Item::In(a, len) => w.input(w.arg(a), len.of(w)),
            Item::InMany(a, n, size) => w.input(w.arg(a), n.of(w).saturating_mul(u64::from(size))),
            Item::Out(a, len) if w.succeeds() => w.output(w.arg(a), len.of(w)),
            Item::OutPos(a, len) if w.positive() => w.output(w.arg(a), len.of(w)),
            Item::Out(..) | Item::OutPos(..) => {}
            Item::InOut(a, len) => w.inout(w.arg(a), len.of(w)),
            Item::InOutMany(..) if w.refused() => {}
            Item::InOutMany(a, n, size) => {
                w.inout(w.arg(a), n.of(w).saturating_mul(u64::from(size)));
            }
            Item::OutRet(a, len) => w.output(w.arg(a), w.count(len.of(w))),
            Item::OutMany(a, n, size) => {
                w.output(w.arg(a), w.count(n.of(w)).saturating_mul(u64::from(size)));
            }
            Item::Remaining(a) => {
                w.input(w.arg(a), 16);
                if w.interrupted() {
                    w.output(w.arg(a), 16);
                }
            }
            Item::Gather(a, n) => w.gather(w.arg(a), w.arg(n)),
            Item::Scatter(a, n) => w.scatter(w.arg(a), w.arg(n), w.count(u64::MAX), false),
            Item::Address(a, len) => w.input(w.arg(a), len.of(w).min(128)),
            Item::AddressBack(a, len) => w.address_back(w.arg(a), w.arg(len)),
        }
    }
}
