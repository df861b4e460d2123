//! The removal of caches that no project uses any more: asked of an executor that does only that, as one value each way.

use crate::paste::shell_word;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// A request: which caches are to be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleanup {
    /// The directory whose entries are central roots.
    pub projects: String,
    /// Besides those of projects that are gone: the caches that no session has used for so many days.
    pub days: u32,
    /// The records of the audit that are this many days old are to be removed too, unless a policy keeps them longer.
    pub audit_days: Option<u32>,
}

/// The caches that were removed, and those that were not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleaned {
    /// The first [`CLEANED`] caches that were removed, also in part.
    pub removed: Vec<RemovedCache>,
    /// How many were removed, listed here or not.
    pub count: u64,
    /// Caches that would have been, and which an open session has.
    pub in_use: u64,
    /// Files of the audit that were removed.
    pub audit_files: u64,
    /// Why something stays that should not, the first [`CLEANED`].
    pub failed: Vec<String>,
    /// Whether there was more to do than one run does.
    pub unfinished: bool,
}

impl Cleaned {
    /// Adds why something at `place` stays.
    pub fn fail(&mut self, place: &Path, why: impl fmt::Display) {
        if self.failed.len() < CLEANED {
            let place = place.to_string_lossy();
            self.failed.push(format!("{}: {why}", shell_word(&place)));
        }
    }
}

/// Maximum number of entries in each list of a [`Cleaned`].
pub const CLEANED: usize = 1024;

/// Caches of one project that were removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedCache {
    /// The project, or the directory where an earlier run had put what it did not finish.
    pub project: String,
    /// Why nobody needs them any more.
    pub why: Unused,
    /// Files and directories that are gone.
    pub entries: u64,
    /// Bytes of storage that they took, without files that have further names.
    pub bytes: u64,
}

/// The reasons for which caches are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unused {
    /// The directory of the project is gone.
    Deleted,
    /// No session has used them for so many days.
    Days(u64),
    /// An earlier run did not finish.
    Begun,
}
