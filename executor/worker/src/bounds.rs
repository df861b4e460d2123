//! How much one call may examine, and how much it may answer.
//!
//! A cell can fill its zone with anything before a file tool is used on it: sparse files of a
//! terabyte, a million empty directories, ignore files with patterns that are slow to compile. Each
//! number here is the maximum that one call spends on one of these.

use broker_protocol::limit;
use std::time::{Duration, Instant};

/// Links followed for one path: what the kernel allows (`MAXSYMLINKS` in `linux/namei.h`).
pub(crate) const LINKS: usize = 40;
/// Bytes read at once.
pub(crate) const CHUNK: usize = 64 * 1024;
/// Bytes of a file that a read by lines skips before its first line.
pub(crate) const SKIPPED: u64 = 64 << 20;
/// Bytes of a file, after the part that is read, in which lines are counted.
pub(crate) const COUNTED: u64 = 16 << 20;
/// Maximum bytes of a file that are hashed to compare it with a digest.
pub(crate) const HASHED: u64 = 64 << 20;
/// Maximum bytes of a replaced file that are held in memory, to be compared with what was read, and to be saved for undo.
pub(crate) const KEPT: usize = 16 << 20;
/// Maximum bytes of a file that is edited, before and after.
pub(crate) const EDITED: usize = 4 << 20;
/// Maximum number of directory entries that one walk reads.
pub(crate) const ENTRIES: usize = 500_000;
/// Maximum bytes of all names that one walk reads.
pub(crate) const NAMES: usize = 32 << 20;
/// Time limit for one walk, including the search in the files it finds.
pub(crate) const TIME: Duration = Duration::from_secs(20);
/// Time limit for counting what does not fit into an answer any more.
pub(crate) const COUNTING: Duration = Duration::from_millis(250);
/// Maximum bytes of all ignore files that apply to one directory; one that would exceed it is ignored.
pub(crate) const IGNORED: usize = 64 * 1024;
/// Maximum bytes of all paths that one search sorts by age; beyond it, the oldest are skipped.
pub(crate) const SORTED: usize = 32 << 20;
/// Maximum bytes of all files that one search reads.
pub(crate) const SEARCHED: u64 = 1 << 30;
/// Maximum bytes of one line in a search; a file with a longer one is searched up to that line.
pub(crate) const LINE: usize = 4 << 20;
/// Bytes on which a pattern runs between two checks of the clock, and so how much of one line is searched.
pub(crate) const PIECE: usize = 32 * 1024;
/// Maximum bytes of a compiled pattern, and of the cache with which it runs.
pub(crate) const PATTERN: usize = 8 << 20;
/// Maximum characters of a line in a search's answer.
pub(crate) const SHOWN: usize = 300;

/// Maximum bytes of an encoded answer besides its entries.
const FRAME: usize = 1024;

/// The bytes still available in an answer.
pub(crate) struct AnswerRoom(usize);

impl AnswerRoom {
    pub(crate) fn new() -> Self {
        Self(limit::ANSWER - FRAME)
    }

    /// Takes `bytes`, if that many are left.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// The part of its limits that one walk may still use.
pub(crate) struct WalkBudget {
    entries: usize,
    names: usize,
    until: Instant,
}

impl WalkBudget {
    pub(crate) fn new() -> Self {
        Self {
            entries: ENTRIES,
            names: NAMES,
            until: Instant::now() + TIME,
        }
    }

    pub(crate) fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    /// From now on entries are only counted.
    pub(crate) fn only_count(&mut self) {
        self.until = self.until.min(Instant::now() + COUNTING);
    }

    /// Takes one entry with a name of `length` bytes, if the limits still allow it.
    pub(crate) fn take(&mut self, length: usize) -> bool {
        match (self.entries.checked_sub(1), self.names.checked_sub(length)) {
            (Some(entries), Some(names)) => {
                (self.entries, self.names) = (entries, names);
                true
            }
            _ => false,
        }
    }
}
