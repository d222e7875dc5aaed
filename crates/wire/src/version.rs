//! Protocol versions: each side offers the range it speaks, both take the highest in common.

use serde::{Deserialize, Serialize};

/// The name of the outer protocol, agreed inside TLS. Changes only if frames themselves change.
pub const ALPN: &[u8] = b"pando/1";

/// The oldest control protocol this build speaks.
pub const MIN: u16 = 4;
/// The newest.
pub const MAX: u16 = 4;

/// The range of versions that one side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Oldest.
    pub min: u16,
    /// Newest.
    pub max: u16,
}

/// Two sides that have no version in common.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("no common protocol version: we speak {}-{}, the other side {}-{}; upgrade the older one", ours.min, ours.max, theirs.min, theirs.max)]
pub struct NoCommonVersion {
    ours: Versions,
    theirs: Versions,
}

impl Versions {
    /// What this build speaks.
    pub const OURS: Versions = Versions { min: MIN, max: MAX };

    /// The highest version in common.
    pub fn agree(self, theirs: Versions) -> Result<u16, NoCommonVersion> {
        let best = self.max.min(theirs.max);
        if best >= self.min && best >= theirs.min && theirs.min <= theirs.max {
            return Ok(best);
        }
        Err(NoCommonVersion { ours: self, theirs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_in_common_wins() {
        let v = |min, max| Versions { min, max };
        assert_eq!(v(1, 3).agree(v(2, 5)), Ok(3));
        assert_eq!(v(2, 5).agree(v(1, 3)), Ok(3));
        assert!(v(1, 2).agree(v(3, 4)).is_err());
        assert!(v(3, 4).agree(v(1, 2)).is_err());
        assert!(v(1, 9).agree(v(5, 4)).is_err(), "an empty range is refused");
    }
}
