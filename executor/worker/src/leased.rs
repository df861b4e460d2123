//! The file that a lease opens to one call: a file whose name closes it for writing.
//!
//! The lease is of the object, which the broker has opened, and not of the name: nothing takes its place, and no other file is
//! reached by it. So its content is replaced in place. A reader may see both contents meanwhile; where the write fails, the old
//! one is put back.

use crate::error::{SystemError, WorkError, WriteError};
use crate::root::Location;
use crate::seen::Stamp;
use broker_protocol::ZonePath;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::stat::fstat;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

pub(crate) struct LeasedFile {
    location: Location,
    file: File,
}

impl LeasedFile {
    /// The file that was granted at `path`.
    pub(crate) fn new(path: &ZonePath, file: OwnedFd) -> Self {
        Self {
            location: path.into(),
            file: file.into(),
        }
    }

    /// Whether it was granted at `location`.
    pub(crate) fn is_at(&self, location: &Location) -> bool {
        self.location == *location
    }

    /// Makes `content` of the file if it is still what was read: in the state `stamp`, and with the content `old`, where that is small
    /// enough to be put back.
    pub(crate) fn replace(
        &self,
        path: &ZonePath,
        content: &[u8],
        (stamp, old): (Stamp, Option<&[u8]>),
    ) -> Result<(), WorkError> {
        let failed = |error: io::Error| SystemError::new("write", path, error);
        let stat = fstat(&self.file).map_err(|errno| failed(errno.into()))?;
        let path = || path.to_string();
        if stamp != Stamp::of(&stat) {
            return Err(WriteError::Changed { path: path() }.into());
        }
        if stat.st_mode & 0o222 == 0 {
            return Err(WriteError::Unwritable { path: path() }.into());
        }
        let old = old.ok_or_else(|| WriteError::TooLarge { path: path() })?;
        self.reserve(content.len()).map_err(failed)?;
        if let Err(error) = self.fill(content) {
            // Part of a failed write is worse than either content.
            self.fill(old).map_err(failed)?;
            return Err(failed(error).into());
        }
        Ok(())
    }

    /// Takes the space for `length` bytes, so that a full disk is noticed before anything is changed.
    fn reserve(&self, length: usize) -> io::Result<()> {
        let length = i64::try_from(length).map_err(io::Error::other)?;
        match fallocate(&self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length) {
            // No bytes are needed, or the file system reserves none.
            Err(Errno::EINVAL | Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
            reserved => Ok(reserved?),
        }
    }

    fn fill(&self, content: &[u8]) -> io::Result<()> {
        self.file.write_all_at(content, 0)?;
        self.file.set_len(content.len() as u64)?;
        self.file.sync_all()
    }
}
