//! The socket files that the cells of a session may connect to: behind any other listens a program of the host.

use executor_spec::created::CreatedFiles;
use nix::Result;
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The sockets that the cells of a session may connect to.
pub(crate) struct SocketRules {
    /// The sockets that its cells have bound.
    bound: CreatedFiles,
    /// Paths that the policy names, without links.
    named: HashSet<PathBuf>,
}

impl SocketRules {
    pub(crate) fn new(named: impl IntoIterator<Item = PathBuf>) -> Result<Self> {
        Ok(Self {
            bound: CreatedFiles::new()?,
            named: named.into_iter().collect(),
        })
    }

    /// The same without the sockets that cells have bound: for a cell that shares none with the others.
    pub(crate) fn separate(&self) -> Result<Self> {
        Self::new(self.named.iter().cloned())
    }

    /// The descriptor that a cell must keep open.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.bound.descriptor()
    }

    /// Records a socket that a cell has bound, under the lock on names.
    pub(crate) fn add_bound(&self, object: impl AsFd) -> Result<()> {
        self.bound.add_newest(object)
    }

    pub(crate) fn may_connect(&self, object: &OwnedFd, real: &Path) -> bool {
        self.bound.has(object) || self.named.contains(real)
    }
}
