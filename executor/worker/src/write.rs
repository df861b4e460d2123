//! Writes a whole file so that readers see the old one or the new one, whatever happens meanwhile.
//!
//! Of a replaced file only the permission bits are kept: the file is a new one, so other names of the old one
//! (hard links) keep the old content, and another owner, access lists and attributes are lost. A file that a lease opens is changed in
//! place (`leased.rs`).

use crate::beneath::{regular, regular_stat};
use crate::bounds::KEPT;
use crate::content::{digest, file_digest, read_up_to};
use crate::error::{OpenError, SystemError, WorkError, WriteError};
use crate::hunks::Regions;
use crate::root::{ENTERING, Location, READING, open_beneath};
use crate::seen::{KnownFile, NotKnown, Stamp};
use crate::temporary::TemporaryFile;
use crate::worker::FileCall;
use crate::zone_names::Intent;
use broker_protocol::{Digest, FileWrite, Written, ZonePath};
use executor_sys::withdraw_name::withdraw_name;
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, Mode, fstatat, mkdirat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat};
use policies_guard::{Moment, New, ObjectKind, Verdict};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Maximum attempts at a write whose target is created and removed meanwhile.
const ATTEMPTS: usize = 32;
const FILE: New = New::Object(ObjectKind::File);

/// The present file at the target of a write.
pub(crate) struct CurrentFile {
    stat: FileStat,
    /// Its content, if that is small enough to be held in memory.
    pub content: Option<Vec<u8>>,
    pub digest: Option<Digest>,
}

/// The reading of a file that is too large to be held in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LargeFile {
    Hashed,
    Unread,
}

impl CurrentFile {
    /// The file of `content`, in the state `stat`.
    pub(crate) fn of(stat: FileStat, content: Vec<u8>) -> Self {
        Self {
            stat,
            digest: Some(digest(&content)),
            content: Some(content),
        }
    }

    /// Reads a file, or what this says of one that is too large to be held in memory.
    pub(crate) fn read(
        path: &ZonePath,
        file: OwnedFd,
        large: LargeFile,
    ) -> Result<Self, WorkError> {
        let failed = |error| SystemError::new("read", path, error);
        let stat = regular(path, &file)?;
        let file = File::from(file);
        if stat.st_size as u64 <= KEPT as u64 {
            let content = read_up_to(&file, stat.st_size as u64, KEPT).map_err(failed)?;
            if content.len() <= KEPT {
                return Ok(Self::of(stat, content));
            }
            return Err(changed(path));
        }
        let digest = match large {
            LargeFile::Hashed => file_digest(file).map_err(failed)?,
            LargeFile::Unread => None,
        };
        Ok(Self {
            stat,
            content: None,
            digest,
        })
    }

    /// The metadata that it had when it was read.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp::of(&self.stat)
    }

    pub(crate) fn mode(&self) -> Mode {
        Mode::from_bits_truncate(self.stat.st_mode & 0o777)
    }
}

impl FileCall<'_> {
    /// Answers `file_write`.
    pub(crate) fn write(&self, request: &FileWrite) -> Result<Written, WorkError> {
        for _ in 1..ATTEMPTS {
            match self.write_once(request) {
                // It was created between our check and our link; the next attempt replaces it.
                Err(WorkError::Write(WriteError::Exists { .. })) if request.overwrite => {}
                written => return written,
            }
        }
        self.write_once(request)
    }

    fn write_once(&self, request: &FileWrite) -> Result<Written, WorkError> {
        let (location, stat) = self.locate(&request.path)?;
        let before = self.before(request, &location, stat)?;
        let sha256 = digest(&request.content);
        let change = self.replace(
            &request.path,
            location,
            before.as_ref(),
            &request.content,
            sha256,
        )?;
        let hunks = match &before {
            None => Some(Vec::new()),
            Some(before) => before.content.as_ref().and_then(|old| {
                Regions::between(old, &request.content).hunks(old, &request.content)
            }),
        };
        Ok(Written {
            bytes: request.content.len() as u64,
            created: before.is_none(),
            sha256,
            change,
            hunks,
        })
    }

    /// Checks the present file at the target against the request.
    fn before(
        &self,
        request: &FileWrite,
        location: &Location,
        stat: Option<FileStat>,
    ) -> Result<Option<CurrentFile>, WorkError> {
        let path = &request.path;
        let Some(stat) = stat else {
            return match request.expected_sha256 {
                Some(_) => Err(changed(path)),
                None => Ok(None),
            };
        };
        regular_stat(path, stat)?;
        if !request.overwrite {
            return Err(WriteError::Exists {
                path: path.to_string(),
            }
            .into());
        }
        let file = match self
            .root(location.zone)
            .open_beneath(&location.path, READING)
        {
            Err(Errno::ENOENT | Errno::ELOOP) => return Err(changed(path)),
            opened => opened.map_err(|errno| SystemError::new("read", path, errno))?,
        };
        let large = match request.expected_sha256 {
            Some(_) => LargeFile::Hashed,
            None => LargeFile::Unread,
        };
        let current = CurrentFile::read(path, file, large)?;
        self.admit(path, location, &current, request.expected_sha256)?;
        Ok(Some(current))
    }

    /// Refuses to change a file that this session has not read. A caller that gives the digest of the content knows it.
    pub(crate) fn admit(
        &self,
        path: &ZonePath,
        location: &Location,
        current: &CurrentFile,
        expected: Option<Digest>,
    ) -> Result<(), WriteError> {
        let path = || path.to_string();
        match (expected, current.digest) {
            (Some(expected), Some(found)) if expected == found => Ok(()),
            (Some(_), Some(_)) => Err(WriteError::Changed { path: path() }),
            (Some(_), None) => Err(WriteError::TooLarge { path: path() }),
            (None, digest) => self.seen().check(location, &current.stat, digest).map_err(
                |unknown| match unknown {
                    NotKnown::Unread => WriteError::Unread { path: path() },
                    NotKnown::Modified => WriteError::Modified { path: path() },
                },
            ),
        }
    }

    /// Replaces `before`, which is saved, by `content`, and records what is there now. Returns the
    /// number of the change, if it could be saved.
    pub(crate) fn replace(
        &self,
        path: &ZonePath,
        location: Location,
        before: Option<&CurrentFile>,
        content: &[u8],
        digest: Digest,
    ) -> Result<Option<u64>, WorkError> {
        let kept = self.record_change(path, &location, before, Some(digest));
        self.keeping(kept, || self.put(path, &location, content, before, None))?;
        self.seen().note(location, KnownFile::Whole(digest));
        Ok(kept)
    }

    /// Removes the file at `location`, if it is still `before`.
    pub(crate) fn remove(
        &self,
        path: &ZonePath,
        location: &Location,
        before: &CurrentFile,
    ) -> Result<(), WorkError> {
        let failed = |errno| SystemError::new("remove", path, errno);
        let (parent, name) = named(path, location)?;
        let directory = self
            .root(location.zone)
            .open_beneath(parent, ENTERING)
            .map_err(failed)?;
        writable(path, &directory, name)?;
        if now(&directory, name) != Some(before.stamp()) {
            return Err(changed(path));
        }
        Ok(unlinkat(&directory, name, UnlinkatFlags::NoRemoveDir).map_err(failed)?)
    }

    /// Makes `content` the file at `location`, creating missing directories on the way. It keeps
    /// the mode of what it replaces; a new file has `mode`, or the default for new files.
    pub(crate) fn put(
        &self,
        path: &ZonePath,
        location: &Location,
        content: &[u8],
        before: Option<&CurrentFile>,
        mode: Option<Mode>,
    ) -> Result<(), WorkError> {
        if let Some(leased) = self.leased_at(location) {
            // A lease creates no file.
            let before = before.ok_or_else(|| changed(path))?;
            let old = before.content.as_deref();
            return leased.replace(path, content, (before.stamp(), old));
        }
        let failed = |errno| SystemError::new("write", path, errno);
        let (parent, name) = named(path, location)?;
        let directory = self.directory(path, location, parent)?;
        if before.is_none() {
            self.permit_new(path, &directory, location, FILE, Moment::Before)?;
        } else {
            writable(path, &directory, name)?;
        }
        let mode = before.map(CurrentFile::mode).or(mode);
        let file = TemporaryFile::new(&directory, content, mode).map_err(failed)?;
        let Some(before) = before else {
            file.create(name).map_err(|errno| match errno {
                Errno::EEXIST => WorkError::from(WriteError::Exists {
                    path: path.to_string(),
                }),
                errno => failed(errno).into(),
            })?;
            return self.check_made(path, &directory, location, FILE);
        };
        if now(&directory, name) != Some(before.stamp()) {
            return Err(changed(path));
        }
        Ok(file.replace(name).map_err(failed)?)
    }

    /// Opens the directory `path` in the zone of `location`, creating it and its parents if they are missing.
    fn directory(
        &self,
        asked: &ZonePath,
        location: &Location,
        path: &Path,
    ) -> Result<OwnedFd, WorkError> {
        let failed = |errno| SystemError::new("write", asked, errno);
        let root = self.root(location.zone);
        match root.open_beneath(path, ENTERING) {
            Err(Errno::ENOENT) => {}
            opened => return Ok(opened.map_err(failed)?),
        }
        let mut at = root.open_beneath(Path::new(""), ENTERING).map_err(failed)?;
        let mut whole = Location {
            zone: location.zone,
            path: PathBuf::new(),
        };
        for name in path {
            whole.path.push(name);
            at = match open_beneath(&at, Path::new(name), ENTERING, Mode::empty()) {
                Err(Errno::ENOENT) => {
                    let new = New::Directory;
                    self.permit_new(asked, &at, &whole, new, Moment::Before)?;
                    let made = self.make(&at, name).map_err(failed)?;
                    self.check_made(asked, &at, &whole, new)?;
                    made
                }
                opened => opened.map_err(failed)?,
            };
        }
        Ok(at)
    }

    /// Creates the directory `name` in `at` and opens it; it does not matter if another process creates it first.
    fn make(&self, at: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
        let is_made = match mkdirat(at, name, Mode::from_bits_truncate(0o777)) {
            Ok(()) => true,
            Err(Errno::EEXIST) => false,
            Err(errno) => return Err(errno),
        };
        let directory = File::from(open_beneath(at, Path::new(name), ENTERING, Mode::empty())?);
        if is_made {
            self.record_directory(&directory);
        }
        Ok(directory.into())
    }

    /// Withdraws the name `location`, which was just created in `directory`, if it completes a repository: a command or
    /// another session may have created the rest since the check. Whoever checks last sees all of it.
    fn check_made(
        &self,
        path: &ZonePath,
        directory: &OwnedFd,
        location: &Location,
        new: New,
    ) -> Result<(), WorkError> {
        let shape = self.permit_new(path, directory, location, new, Moment::Made);
        if let (Err(_), Some(name)) = (&shape, location.path.file_name()) {
            withdraw_name(directory, Path::new(name))
                .map_err(|errno| SystemError::new("take back", path, errno))?;
        }
        Ok(shape?)
    }

    /// Refuses the new name `location` in `directory` if a rule is against it, such as that git would recognise a repository there.
    fn permit_new(
        &self,
        path: &ZonePath,
        directory: &OwnedFd,
        location: &Location,
        new: New,
        moment: Moment,
    ) -> Result<(), OpenError> {
        let intent = Intent::Write;
        match self.verdict_on_new(location, directory, new, moment) {
            Ok(Verdict::Allow) => Ok(()),
            Ok(Verdict::Refuse(rule)) => Err(OpenError::Closed {
                path: path.to_string(),
                intent,
                why: self.why(rule, location, intent).to_owned(),
            }),
            Err(error) => Err(SystemError::new("look at", path, error).into()),
        }
    }
}

/// The parent directory and the name of `location`.
fn named<'p>(path: &ZonePath, location: &'p Location) -> Result<(&'p Path, &'p OsStr), OpenError> {
    let whole = location.path.parent().zip(location.path.file_name());
    whole.ok_or_else(|| OpenError::ADirectory {
        path: path.to_string(),
    })
}

/// Refuses to replace a file that its owner has made unwritable. A rename would not check that; and
/// a process with all rights may write files that have no `w` at all.
fn writable(path: &ZonePath, directory: &OwnedFd, name: &OsStr) -> Result<(), WorkError> {
    let bits = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)
        .map_or(0, |stat| stat.st_mode & 0o222);
    match faccessat(directory, name, AccessFlags::W_OK, AtFlags::empty()) {
        Ok(()) if bits != 0 => Ok(()),
        // It no longer exists, so there is nothing to save.
        Err(Errno::ENOENT) => Ok(()),
        Ok(()) | Err(Errno::EACCES | Errno::EPERM) => Err(WriteError::Unwritable {
            path: path.to_string(),
        }
        .into()),
        Err(errno) => Err(SystemError::new("write", path, errno).into()),
    }
}

/// The state of `name` in `directory`.
fn now(directory: &OwnedFd, name: &OsStr) -> Option<Stamp> {
    let stat = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
    Some(Stamp::of(&stat))
}

/// The error for a file that differs from what was read.
pub(crate) fn changed(path: &ZonePath) -> WorkError {
    WriteError::Changed {
        path: path.to_string(),
    }
    .into()
}
