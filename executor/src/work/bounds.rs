//! How much one call may look at, and how much it may answer.
//!
//! A cell can fill its zone with whatever it likes before a file tool is asked about it: files of a terabyte that cost
//! nothing, a million empty directories, ignore files made of patterns that are slow to compile. Each number here is
//! the most that one call spends on one of these.

use broker_protocol::limit;
use std::time::{Duration, Instant};

/// Bytes read at once.
pub(super) const CHUNK: usize = 64 * 1024;
/// Bytes of a file that a read by lines passes over before its first line.
pub(super) const SKIPPED: u64 = 64 << 20;
/// Bytes of a file behind what is read of it, in which lines are counted.
pub(super) const COUNTED: u64 = 16 << 20;
/// Bytes of a file that are hashed to compare it with a digest.
pub(super) const HASHED: u64 = 64 << 20;
/// Bytes of a file that is replaced and held meanwhile, to be compared with what was read, and to be kept for undo.
pub(super) const KEPT: usize = 16 << 20;
/// Bytes of a file that is edited, before and after.
pub(super) const EDITED: usize = 4 << 20;
/// Directory entries that one walk reads.
pub(super) const ENTRIES: usize = 500_000;
/// Bytes of all names that one walk reads.
pub(super) const NAMES: usize = 32 << 20;
/// Time for one walk, and for the search in what it finds.
pub(super) const TIME: Duration = Duration::from_secs(20);
/// Time for counting what an answer has no place for any more.
pub(super) const COUNTING: Duration = Duration::from_millis(250);
/// Bytes of all ignore files that hold in one directory; one that would make it more is not followed.
pub(super) const IGNORED: usize = 64 * 1024;
/// Bytes of all files that one search reads.
pub(super) const SEARCHED: u64 = 1 << 30;
/// Bytes of one line that a search holds; a file with a longer one is searched up to it.
pub(super) const LINE: usize = 4 << 20;
/// Bytes that a pattern is run on between two looks at the clock, and so of one line that are searched.
pub(super) const PIECE: usize = 32 * 1024;
/// Bytes of a compiled pattern, and of the cache it is run with.
pub(super) const PATTERN: usize = 8 << 20;
/// Characters of a line that a search answers with.
pub(super) const SHOWN: usize = 300;

/// What the numbers around the entries of an answer take at most, once encoded.
const FRAME: usize = 1024;

/// The bytes that an answer may still take.
pub(super) struct Room(usize);

impl Room {
    /// An answer's worth.
    pub(super) fn new() -> Self {
        Self(limit::ANSWER - FRAME)
    }

    /// Takes `bytes`, if there are as many.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// What one walk may still spend.
pub(super) struct Allowance {
    entries: usize,
    names: usize,
    until: Instant,
}

impl Allowance {
    /// A whole walk's worth, from now on.
    pub(super) fn new() -> Self {
        Self { entries: ENTRIES, names: NAMES, until: Instant::now() + TIME }
    }

    /// Whether the time is over.
    pub(super) fn late(&self) -> bool {
        Instant::now() >= self.until
    }

    /// From now on things are only counted.
    pub(super) fn hasten(&mut self) {
        self.until = self.until.min(Instant::now() + COUNTING);
    }

    /// Takes one entry with a name of `length` bytes, if that is still allowed.
    pub(super) fn take(&mut self, length: usize) -> bool {
        match (self.entries.checked_sub(1), self.names.checked_sub(length)) {
            (Some(entries), Some(names)) => {
                (self.entries, self.names) = (entries, names);
                true
            }
            _ => false,
        }
    }
}
