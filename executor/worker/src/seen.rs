//! What this session has read: a file tool changes an existing file only if the session has read or written it.
//!
//! The sender of requests cannot bypass this: it is checked here, in the process that writes, for the file
//! that is really opened (its name after following links). A newly started worker has read nothing.
//!
//! - **Read whole** (up to [`limit::READ`](broker_protocol::limit::READ)), or written by this session: the file is known by the digest of its
//!   content. Touched, or replaced by the same content, it is still known.
//! - **Read in part**: that counts too, as long as the file has not changed since, by device, number, size and both times. Times
//!   are coarse: what changed shortly before it was read could change again without a sign, so it is hashed then.

use crate::bounds::HASHED;
use crate::content::file_digest;
use crate::root::Location;
use broker_protocol::Digest;
use nix::sys::stat::FileStat;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of files remembered. Beyond it, the one read longest ago is dropped, and has to be read again.
pub(crate) const FILES: usize = 4096;
/// How long ago a file must have changed for its times to show the next change: file systems count
/// in steps of up to two seconds (FAT), most in clock ticks.
const SETTLED: Duration = Duration::from_secs(2);

/// The metadata that changes when a file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    file: (u64, u64),
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// That of a file in the state `stat`.
    pub(crate) fn of(stat: &FileStat) -> Self {
        Self {
            file: (stat.st_dev, stat.st_ino),
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether the next change will alter it.
    fn is_settled(&self, now: SystemTime) -> bool {
        let changed = UNIX_EPOCH + Duration::from_secs(self.changed.0.max(0) as u64);
        now.duration_since(changed)
            .is_ok_and(|age| age > SETTLED + Duration::from_secs(1))
    }
}

/// The part of a file that the session knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownFile {
    Whole(Digest),
    /// Part of its content, when the file was in this state.
    Part(Stamp),
}

impl KnownFile {
    /// What a read of some lines of `file`, in the state `stat`, tells the session; `None` if a later change could go unnoticed.
    pub(crate) fn part(file: &mut File, stat: &FileStat) -> io::Result<Option<Self>> {
        let stamp = Stamp::of(stat);
        if stamp.is_settled(SystemTime::now()) {
            return Ok(Some(KnownFile::Part(stamp)));
        }
        if stat.st_size as u64 > HASHED {
            return Ok(None);
        }
        file.rewind()?;
        Ok(file_digest(file)?.map(KnownFile::Whole))
    }
}

/// Why a file must not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotKnown {
    /// The session has not read it.
    Unread,
    /// It differs from what the session has read.
    Modified,
}

/// The files that the session knows.
#[derive(Debug, Default)]
pub(crate) struct SeenFiles {
    files: HashMap<Location, (u64, KnownFile)>,
    /// Counts what is noted.
    noted: u64,
}

impl SeenFiles {
    /// Records what the session knows of the file at `location` now.
    pub(crate) fn note(&mut self, location: Location, known: KnownFile) {
        self.noted += 1;
        if self.files.len() >= FILES && !self.files.contains_key(&location) {
            let oldest = self.files.iter().min_by_key(|(_, (noted, _))| *noted);
            if let Some(oldest) = oldest.map(|(location, _)| location.clone()) {
                self.files.remove(&oldest);
            }
        }
        self.files.insert(location, (self.noted, known));
    }

    /// Drops what was known of the file at `location`.
    pub(crate) fn forget(&mut self, location: &Location) {
        self.files.remove(location);
    }

    /// Whether the session knows the file at `location` in this state and with this content. For a large file there is no digest.
    pub(crate) fn check(
        &self,
        location: &Location,
        stat: &FileStat,
        digest: Option<Digest>,
    ) -> Result<(), NotKnown> {
        let same = match self.files.get(location) {
            None => return Err(NotKnown::Unread),
            Some((_, KnownFile::Whole(known))) => digest == Some(*known),
            Some((_, KnownFile::Part(stamp))) => *stamp == Stamp::of(stat),
        };
        if same {
            Ok(())
        } else {
            Err(NotKnown::Modified)
        }
    }
}
