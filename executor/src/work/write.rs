//! Writes a whole file so that readers see the old one or the new one, whatever happens meanwhile.
//!
//! What is replaced keeps its permission bits and nothing else: the file is a new one, so other names of the old one
//! (hard links) keep the old content, and an owner other than ours, access lists and attributes do not come along.

use super::Worker;
use super::beneath::{ENTERING, OpenError, Place, READING, open_beneath, regular, regular_stat};
use super::bounds::{HASHED, KEPT};
use super::failure::{SystemError, WorkError};
use super::hunks::Regions;
use super::read::{digest, file_digest, read_at_most};
use super::seen::{Known, Stamp, Unknown};
use super::temporary::Temporary;
use broker_protocol::{Digest, FileWrite, Written, ZonePath};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, Mode, fstatat, mkdirat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat};
use std::ffi::OsStr;
use std::fs::File;
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
    /// The session does not know what is in it.
    #[error("{path} has not been read in this session; read it first, it may hold what you do not expect")]
    Unread {
        /// The file.
        path: String,
    },
    /// It is not what the session has read or written.
    #[error("{path} was modified since the last read; read it again")]
    Modified {
        /// The file.
        path: String,
    },
    /// It is not what the caller expects, or it has changed in this moment.
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

/// What stands where a write goes.
pub(super) struct Current {
    stat: FileStat,
    /// Its bytes, where they are few enough to be held.
    pub(super) content: Option<Vec<u8>>,
    pub(super) digest: Option<Digest>,
}

impl Current {
    /// The file of `content`, in the state `stat`.
    pub(super) fn of(stat: FileStat, content: Vec<u8>) -> Self {
        Self { stat, digest: Some(digest(&content)), content: Some(content) }
    }

    /// Reads a file, and if it is too large to be held, hashes it where that is `wanted`.
    pub(super) fn read(path: &ZonePath, file: OwnedFd, wanted: bool) -> Result<Self, WorkError> {
        let failed = |error| SystemError::new("read", path, error);
        let stat = regular(path, &file)?;
        let file = File::from(file);
        if stat.st_size as u64 <= KEPT as u64 {
            let content = read_at_most(&file, stat.st_size as u64, KEPT).map_err(failed)?;
            if content.len() <= KEPT {
                return Ok(Self::of(stat, content));
            }
            return Err(changed(path));
        }
        let digest = if wanted { file_digest(file).map_err(failed)? } else { None };
        Ok(Self { stat, content: None, digest })
    }

    /// Its permissions.
    pub(super) fn mode(&self) -> Mode {
        Mode::from_bits_truncate(self.stat.st_mode & 0o777)
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
        let sha256 = digest(&request.content);
        let change = self.replace(&request.path, place, before.as_ref(), &request.content, sha256)?;
        let hunks = match &before {
            None => Some(Vec::new()),
            Some(before) => before
                .content
                .as_ref()
                .and_then(|old| Regions::between(old, &request.content).hunks(old, &request.content)),
        };
        Ok(Written { bytes: request.content.len() as u64, created: before.is_none(), sha256, change, hunks })
    }

    /// Checks what stands at the target against what the request says about it.
    fn before(
        &self,
        request: &FileWrite,
        place: &Place,
        stat: Option<FileStat>,
    ) -> Result<Option<Current>, WorkError> {
        let path = &request.path;
        let Some(stat) = stat else {
            return match request.expected_sha256 {
                Some(_) => Err(changed(path)),
                None => Ok(None),
            };
        };
        regular_stat(path, stat)?;
        if !request.overwrite {
            return Err(WriteError::Exists { path: path.to_string() }.into());
        }
        let file = match self.root(place.zone).open_beneath(&place.path, READING) {
            Err(Errno::ENOENT | Errno::ELOOP) => return Err(changed(path)),
            opened => opened.map_err(|errno| SystemError::new("read", path, errno))?,
        };
        let current = Current::read(path, file, request.expected_sha256.is_some())?;
        self.admit(path, place, &current, request.expected_sha256)?;
        Ok(Some(current))
    }

    /// Refuses to change what this session does not know. Whoever names the digest of the content knows it.
    pub(super) fn admit(
        &self,
        path: &ZonePath,
        place: &Place,
        current: &Current,
        expected: Option<Digest>,
    ) -> Result<(), WriteError> {
        let path = || path.to_string();
        match (expected, current.digest) {
            (Some(expected), Some(found)) if expected == found => Ok(()),
            (Some(_), Some(_)) => Err(WriteError::Changed { path: path() }),
            (Some(_), None) => Err(WriteError::TooLarge { path: path() }),
            (None, digest) => {
                self.seen.borrow().check(place, &current.stat, digest).map_err(|unknown| match unknown {
                    Unknown::Unread => WriteError::Unread { path: path() },
                    Unknown::Modified => WriteError::Modified { path: path() },
                })
            }
        }
    }

    /// Puts `content` in the place of `before`, which is kept, and remembers what is there now. Says the number of the
    /// change, if it could be kept.
    pub(super) fn replace(
        &self,
        path: &ZonePath,
        place: Place,
        before: Option<&Current>,
        content: &[u8],
        digest: Digest,
    ) -> Result<Option<u64>, WorkError> {
        let kept = self.keep(path, &place, before, Some(digest));
        self.keeping(kept, || self.put(path, &place, content, before, None))?;
        self.seen.borrow_mut().note(place, Known::Whole(digest));
        Ok(kept)
    }

    /// Removes the file at `place`, if it is still `before`.
    pub(super) fn remove(&self, path: &ZonePath, place: &Place, before: &Current) -> Result<(), WorkError> {
        let failed = |errno| SystemError::new("remove", path, errno);
        let (parent, name) = named(path, place)?;
        let directory = self.root(place.zone).open_beneath(parent, ENTERING).map_err(failed)?;
        writable(path, &directory, name)?;
        if now(&directory, name) != Some(Stamp::of(&before.stat)) {
            return Err(changed(path));
        }
        Ok(unlinkat(&directory, name, UnlinkatFlags::NoRemoveDir).map_err(failed)?)
    }

    /// Makes `content` the file at `place`, with all directories on the way there. It has the mode of what it replaces;
    /// a new one has `mode`, or that of a new file.
    pub(super) fn put(
        &self,
        path: &ZonePath,
        place: &Place,
        content: &[u8],
        before: Option<&Current>,
        mode: Option<Mode>,
    ) -> Result<(), WorkError> {
        let failed = |errno| SystemError::new("write", path, errno);
        let (parent, name) = named(path, place)?;
        let directory = self.directory(place, parent).map_err(failed)?;
        if before.is_some() {
            writable(path, &directory, name)?;
        }
        let mode = before.map(Current::mode).or(mode);
        let file = Temporary::new(&directory, content, mode).map_err(failed)?;
        let Some(before) = before else {
            return file.create(name).map_err(|errno| match errno {
                Errno::EEXIST => WriteError::Exists { path: path.to_string() }.into(),
                errno => failed(errno).into(),
            });
        };
        if now(&directory, name) != Some(Stamp::of(&before.stat)) {
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

/// The directory and the name of `place`.
fn named<'p>(path: &ZonePath, place: &'p Place) -> Result<(&'p Path, &'p OsStr), OpenError> {
    let whole = place.path.parent().zip(place.path.file_name());
    whole.ok_or_else(|| OpenError::NotAFile { path: path.to_string(), is: "a directory" })
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
