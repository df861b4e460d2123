//! The paths written in the `.git` files of a session's worktrees.
//!
//! The user's git follows such a path later. So these paths are recorded for the session, and nothing that
//! could lead elsewhere may get a name on them: no link, and no directory from another place.

use crate::object::errno;
use nix::Result;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Maximum bytes of all such paths in a session.
const WRITTEN_MAX: u64 = 64 * 1024;

/// A file in memory that the session's cells share, one path per line.
pub(crate) struct WrittenLinks(File);

impl WrittenLinks {
    pub(crate) fn new() -> Result<Self> {
        memfd_create("links", MFdFlags::MFD_CLOEXEC).map(|file| Self(file.into()))
    }

    /// The descriptor that a cell must keep open.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Records a path without control characters, under the lock on names.
    ///
    /// # Errors
    /// `ENOSPC` after [`WRITTEN_MAX`] bytes.
    pub(crate) fn add(&self, path: &Path) -> Result<()> {
        let end = self.0.metadata().map_err(errno)?.len();
        let line = [path.as_os_str().as_bytes(), b"\n"].concat();
        if end + line.len() as u64 > WRITTEN_MAX {
            return Err(Errno::ENOSPC);
        }
        self.0.write_all_at(&line, end).map_err(errno)
    }

    /// Whether a recorded path leads through `name`. An unreadable list counts as leading through every name.
    pub(crate) fn lead_through(&self, name: &Path) -> bool {
        let read = || {
            let mut all = vec![0; self.0.metadata()?.len() as usize];
            self.0.read_exact_at(&mut all, 0).map(|()| all)
        };
        let through = |line: &[u8]| Path::new(OsStr::from_bytes(line)).starts_with(name);
        read().map_or(true, |all| all.split(|byte| *byte == b'\n').any(through))
    }
}
