//! How many entries the search of the zones has seen, and of which part of a root.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Debug, Default)]
pub(super) struct EntryBudget {
    pub(super) roots: HashMap<PathBuf, usize>,
    /// Of each directory directly below a root, with all below it, and the root; of the root's own under its path.
    pub(super) parts: HashMap<PathBuf, (PathBuf, usize)>,
    /// When the search of the central root began.
    pub(super) begun: Option<Instant>,
}

/// Whether there is room for one more entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Left,
    /// The directory has been closed to make room.
    Closed,
    None,
}
