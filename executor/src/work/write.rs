//! Writes a whole file so that readers see the old one or the new one, whatever happens meanwhile.
//!
//! What is replaced keeps its permission bits and nothing else: the file is a new one, so other names of the old one
//! (hard links) keep the old content, and an owner other than ours, access lists and attributes do not come along.

use super::Worker;
use super::beneath::{ENTERING, OpenError, Place, READING, open_beneath, regular, regular_stat};
use super::bounds::{CHUNK, HASHED};
use super::failure::{SystemError, WorkError};
use super::read::digest;
use super::temporary::Temporary;
use broker_protocol::{Digest, FileWrite, Written, ZonePath};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, Mode, fstatat, mkdirat};
use nix::unistd::{AccessFlags, faccessat};
use sha2::{Digest as _, Sha256};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use thiserror::Error;

/// Attempts at a write whose target comes and goes meanwhile.
const ATTEMPTS: usize = 32;

/// Why a file was not written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// It is there, and was not to be replaced.
    #[error("{path} exists; write with overwrite, or choose another name")]
    Exists {
        /// The file.
        path: String,
    },
    /// It is not what the caller has read.
    #[error("{path} has changed since it was read; read it again")]
    Changed {
        /// The file.
        path: String,
    },
    /// It is too large to be compared with a digest.
    #[error("{path} has more than {HASHED} bytes and is not compared with a digest; write without one")]
    TooLarge {
        /// The file.
        path: String,
    },
    /// Its permissions say that it is not to be changed.
    #[error("{path} is not writable by its permissions; change them first if it shall be replaced")]
    Unwritable {
        /// The file.
        path: String,
    },
    /// The system said no.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// A file that is to be replaced.
pub(super) struct Before {
    mode: Mode,
    /// What must still be there when it is replaced, where its content was looked at.
    seen: Option<Stamp>,
}

/// What changes when a file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Before {
    /// A file in the state `stat`, to be replaced whatever becomes of it.
    fn any(stat: &FileStat) -> Self {
        Self { mode: Mode::from_bits_truncate(stat.st_mode & 0o777), seen: None }
    }

    /// A file in the state `stat`, to be replaced only in that state.
    pub(super) fn just(stat: &FileStat) -> Self {
        Self { seen: Some(Stamp::of(stat)), ..Self::any(stat) }
    }
}

impl Stamp {
    fn of(stat: &FileStat) -> Self {
        Self {
            file: (stat.st_dev, stat.st_ino),
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl Worker {
    /// Answers `file_write`.
    pub(super) fn write(&self, request: &FileWrite) -> Result<Written, WorkError> {
        for _ in 1..ATTEMPTS {
            match self.write_once(request) {
                // It came between our look and our link; next time it is there to be replaced.
                Err(WorkError::Write(WriteError::Exists { .. })) if request.overwrite => {}
                written => return written,
            }
        }
        self.write_once(request)
    }

    fn write_once(&self, request: &FileWrite) -> Result<Written, WorkError> {
        let (place, stat) = self.locate(&request.path)?;
        let before = self.before(request, &place, stat)?;
        let created = before.is_none();
        self.put(&request.path, &place, &request.content, before)?;
        Ok(Written { bytes: request.content.len() as u64, created, sha256: digest(&request.content) })
    }

    /// Checks what stands at the target against what the request says about it.
    fn before(
        &self,
        request: &FileWrite,
        place: &Place,
        stat: Option<FileStat>,
    ) -> Result<Option<Before>, WorkError> {
        let path = || request.path.to_string();
        let Some(stat) = stat else {
            return match request.expected_sha256 {
                Some(_) => Err(WriteError::Changed { path: path() }.into()),
                None => Ok(None),
            };
        };
        let stat = regular_stat(&request.path, stat)?;
        if !request.overwrite {
            return Err(WriteError::Exists { path: path() }.into());
        }
        match request.expected_sha256 {
            Some(expected) => self.compared(&request.path, place, expected).map(Some),
            None => Ok(Some(Before::any(&stat))),
        }
    }

    /// The file at `place`, if its digest is `expected`.
    fn compared(&self, path: &ZonePath, place: &Place, expected: Digest) -> Result<Before, WorkError> {
        let failed = |error| SystemError::new("read", path, error);
        let file = match self.root(place.zone).open_beneath(&place.path, READING) {
            Err(Errno::ENOENT | Errno::ELOOP) => return Err(changed(path)),
            opened => opened.map_err(|errno| failed(errno.into()))?,
        };
        let stat = regular(path, &file)?;
        match file_digest(file.into()).map_err(failed)? {
            None => Err(WriteError::TooLarge { path: path.to_string() }.into()),
            Some(found) if found == expected => Ok(Before::just(&stat)),
            Some(_) => Err(changed(path)),
        }
    }

    /// Makes `content` the file at `place`, with all directories on the way there.
    pub(super) fn put(
        &self,
        path: &ZonePath,
        place: &Place,
        content: &[u8],
        before: Option<Before>,
    ) -> Result<(), WorkError> {
        let failed = |errno| SystemError::new("write", path, errno);
        let (Some(parent), Some(name)) = (place.path.parent(), place.path.file_name()) else {
            return Err(OpenError::NotAFile { path: path.to_string(), is: "a directory" }.into());
        };
        let directory = self.directory(place, parent).map_err(failed)?;
        if before.is_some() {
            writable(path, &directory, name)?;
        }
        let mode = before.as_ref().map(|before| before.mode);
        let file = Temporary::new(&directory, content, mode).map_err(failed)?;
        let Some(before) = before else {
            return file.create(name).map_err(|errno| match errno {
                Errno::EEXIST => WriteError::Exists { path: path.to_string() }.into(),
                errno => failed(errno).into(),
            });
        };
        if before.seen.is_some_and(|seen| now(&directory, name) != Some(seen)) {
            return Err(changed(path));
        }
        Ok(file.replace(name).map_err(failed)?)
    }

    /// Opens the directory `path` in the zone of `place`, making it and those above it where they are missing.
    fn directory(&self, place: &Place, path: &Path) -> Result<OwnedFd, Errno> {
        let root = self.root(place.zone);
        match root.open_beneath(path, ENTERING) {
            Err(Errno::ENOENT) => {}
            opened => return opened,
        }
        let mut at = root.open_beneath(Path::new(""), ENTERING)?;
        for name in path {
            at = match open_beneath(&at, Path::new(name), ENTERING, Mode::empty()) {
                Err(Errno::ENOENT) => make(&at, name)?,
                opened => opened?,
            };
        }
        Ok(at)
    }
}

/// Makes the directory `name` in `at` and opens it; that somebody else makes it first is as good.
fn make(at: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    match mkdirat(at, name, Mode::from_bits_truncate(0o777)) {
        Ok(()) | Err(Errno::EEXIST) => open_beneath(at, Path::new(name), ENTERING, Mode::empty()),
        Err(errno) => Err(errno),
    }
}

/// Refuses to replace what its owner has made unwritable. A rename would not ask; and a process with all rights may
/// write what has no `w` at all.
fn writable(path: &ZonePath, directory: &OwnedFd, name: &OsStr) -> Result<(), WorkError> {
    let bits = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).map_or(0, |stat| stat.st_mode & 0o222);
    match faccessat(directory, name, AccessFlags::W_OK, AtFlags::empty()) {
        Ok(()) if bits != 0 => Ok(()),
        // It is gone meanwhile, and nothing is to be kept.
        Err(Errno::ENOENT) => Ok(()),
        Ok(()) | Err(Errno::EACCES | Errno::EPERM) => {
            Err(WriteError::Unwritable { path: path.to_string() }.into())
        }
        Err(errno) => Err(SystemError::new("write", path, errno).into()),
    }
}

/// The state of `name` in `directory`.
fn now(directory: &OwnedFd, name: &OsStr) -> Option<Stamp> {
    let stat = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
    Some(Stamp::of(&stat))
}

/// The error of a file that is not what was read.
pub(super) fn changed(path: &ZonePath) -> WorkError {
    WriteError::Changed { path: path.to_string() }.into()
}

/// The digest of a file of at most [`HASHED`] bytes.
fn file_digest(file: File) -> io::Result<Option<Digest>> {
    let mut source = file.take(HASHED + 1);
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => hash.update(&buffer[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((source.limit() > 0).then(|| Digest(hash.finalize().into())))
}
