//! Sets of CPUs of the whole cluster, as bits: each node has words of its own ([`crate::layout`]).

/// A job's CPUs: the words in which it has some, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cells(Vec<(u32, u64)>);

impl Cells {
    /// Of these words; those without bits are left out.
    pub(crate) fn new(mut words: Vec<(u32, u64)>) -> Cells {
        words.retain(|(_, bits)| *bits != 0);
        words.sort_unstable();
        Cells(words)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|(_, bits)| bits.count_ones()).sum()
    }

    /// The places of the bits in a [`Grid`].
    pub(crate) fn bits(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().flat_map(|&(word, bits)| (0..64).filter(move |b| bits >> b & 1 == 1).map(move |b| at(word, b)))
    }
}

/// The place of a bit.
pub(crate) fn at(word: u32, bit: u32) -> usize {
    word as usize * 64 + bit as usize
}

/// CPUs of the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grid(pub(crate) Vec<u64>);

impl Grid {
    pub(crate) fn new(words: usize) -> Grid {
        Grid(vec![0; words])
    }

    pub(crate) fn take(&mut self, cells: &Cells) {
        cells.0.iter().for_each(|&(word, bits)| self.0[word as usize] |= bits);
    }

    pub(crate) fn give(&mut self, cells: &Cells) {
        cells.0.iter().for_each(|&(word, bits)| self.0[word as usize] &= !bits);
    }

    /// Has it any of these?
    pub(crate) fn meets(&self, cells: &Cells) -> bool {
        cells.0.iter().any(|&(word, bits)| self.0[word as usize] & bits != 0)
    }

    pub(crate) fn join(&mut self, other: &Grid) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    /// Those that are not in `other`.
    pub(crate) fn without(&self, other: &Grid) -> Grid {
        Grid(self.0.iter().zip(&other.0).map(|(a, b)| a & !b).collect())
    }

    pub(crate) fn has(&self, bit: usize) -> bool {
        self.0[bit / 64] >> (bit % 64) & 1 == 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}
