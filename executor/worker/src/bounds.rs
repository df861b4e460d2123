//! How much one call may look at, and how much it may answer.
//!
//! A cell can fill its zone with whatever it likes before a file tool is asked about it: files of a terabyte that cost
//! nothing, a million empty directories, ignore files made of patterns that are slow to compile. Each number here is
//! the most that one call spends on one of these.

use broker_protocol::limit;
use std::time::{Duration, Instant};

/// Links followed for one path: what the kernel allows (`MAXSYMLINKS` in `linux/namei.h`).
pub const LINKS: usize = 40;
/// Bytes read at once.
pub const CHUNK: usize = 64 * 1024;
/// Bytes of a file that a read by lines passes over before its first line.
pub const SKIPPED: u64 = 64 << 20;
/// Bytes of a file behind what is read of it, in which lines are counted.
pub const COUNTED: u64 = 16 << 20;
/// Bytes of a file that are hashed to compare it with a digest.
pub const HASHED: u64 = 64 << 20;
/// Bytes of a file that is replaced and held meanwhile, to be compared with what was read, and to be kept for undo.
pub const KEPT: usize = 16 << 20;
/// Bytes of a file that is edited, before and after.
pub const EDITED: usize = 4 << 20;
/// Directory entries that one walk reads.
pub const ENTRIES: usize = 500_000;
/// Bytes of all names that one walk reads.
pub const NAMES: usize = 32 << 20;
/// Time for one walk, and for the search in what it finds.
pub const TIME: Duration = Duration::from_secs(20);
/// Time for counting what an answer has no place for any more.
pub const COUNTING: Duration = Duration::from_millis(250);
/// Bytes of all ignore files that hold in one directory; one that would make it more is not followed.
pub const IGNORED: usize = 64 * 1024;
/// Bytes of all paths that one search sorts by age; of more, the oldest are passed over.
pub const SORTED: usize = 32 << 20;
/// Bytes of all files that one search reads.
pub const SEARCHED: u64 = 1 << 30;
/// Bytes of one line that a search holds; a file with a longer one is searched up to it.
pub const LINE: usize = 4 << 20;
/// Bytes that a pattern is run on between two looks at the clock, and so of one line that are searched.
pub const PIECE: usize = 32 * 1024;
/// Bytes of a compiled pattern, and of the cache it is run with.
pub const PATTERN: usize = 8 << 20;
/// Characters of a line that a search answers with.
pub const SHOWN: usize = 300;

/// What the numbers around the entries of an answer take at most, once encoded.
const FRAME: usize = 1024;

/// The bytes that an answer may still take.
pub struct AnswerRoom(usize);

impl AnswerRoom {
    pub fn new() -> Self {
        Self(limit::ANSWER - FRAME)
    }

    /// Takes `bytes`, if there are as many.
    pub fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// What one walk may still spend.
pub struct WalkBudget {
    entries: usize,
    names: usize,
    until: Instant,
}

impl WalkBudget {
    pub fn new() -> Self {
        Self { entries: ENTRIES, names: NAMES, until: Instant::now() + TIME }
    }

    pub fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    /// From now on things are only counted.
    pub fn only_count(&mut self) {
        self.until = self.until.min(Instant::now() + COUNTING);
    }

    /// Takes one entry with a name of `length` bytes, if that is still allowed.
    pub fn take(&mut self, length: usize) -> bool {
        match (self.entries.checked_sub(1), self.names.checked_sub(length)) {
            (Some(entries), Some(names)) => {
                (self.entries, self.names) = (entries, names);
                true
            }
            _ => false,
        }
    }
}
