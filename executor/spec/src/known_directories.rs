//! Directories that existed when a session opened, or when a lease began. A repository may come about only in another one.
//!
//! A directory is known by the digest of its path, in the spelling in which file systems without case compare it: two paths with one
//! digest only refuse more. An empty directory in which there never was anything is none of them, and is known as an object: whoever
//! has just made a directory for a new project has nothing in it. That its change time is its birth time shows this, and no program can
//! set either.
//!
//! *Does not*: know directories that were not searched (`objects` of a repository), or that the host makes later.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use policies_guard::one_spelling;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Bytes of an [`Identity`]: device, inode, birth time in nanoseconds.
pub const IDENTITY_LEN: usize = 24;

/// The identity of a file: if the host reuses the inode of a removed one, that was born later.
pub type Identity = [u8; IDENTITY_LEN];

/// Maximum number of untouched directories. A project has a few at most.
const UNTOUCHED_MAX: usize = 1024;

/// The identity of a file, if its file system reports birth times.
pub fn identity(metadata: &Metadata) -> Option<Identity> {
    let born = metadata
        .created()
        .ok()?
        .duration_since(UNIX_EPOCH)
        .ok()?
        .as_nanos() as u64;
    let mut identity = Identity::default();
    for (place, number) in identity
        .chunks_exact_mut(8)
        .zip([metadata.dev(), metadata.ino(), born])
    {
        place.copy_from_slice(&number.to_le_bytes());
    }
    Some(identity)
}

/// The digest by which a directory is known.
pub fn digest(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&one_spelling(path.as_os_str().as_bytes()));
    hasher.finish()
}

/// The directories that a search has found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KnownDirectories {
    /// The digests of their paths; sorted once [`Self::sort`] was called.
    pub(crate) digests: Vec<u64>,
    /// The empty ones in which there never was anything.
    pub untouched: Vec<Identity>,
}

impl KnownDirectories {
    pub fn add(&mut self, path: &Path) {
        self.digests.push(digest(path));
    }

    /// Adds a directory that is empty: files of the session's that it has later are known as new.
    pub fn add_empty(&mut self, path: &Path) {
        let state = fs::symlink_metadata(path).ok();
        let untouched = state
            .filter(|state| self.untouched.len() < UNTOUCHED_MAX && is_untouched(state))
            .and_then(|state| identity(&state));
        match untouched {
            Some(identity) => self.untouched.push(identity),
            None => self.add(path),
        }
    }

    /// Adds those of another search.
    pub fn extend(&mut self, other: Self) {
        self.digests.extend(other.digests);
        self.untouched.extend(other.untouched);
        self.sort();
    }

    /// Sorts the digests, for [`Self::has`].
    pub fn sort(&mut self) {
        self.digests.sort_unstable();
        self.digests.dedup();
    }

    /// Whether the directory at this path is one of them.
    pub fn has(&self, path: &Path) -> bool {
        self.digests.binary_search(&digest(path)).is_ok()
    }
}

/// Whether a directory has never changed since it was made: no entry was ever added or removed.
fn is_untouched(metadata: &Metadata) -> bool {
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    let born = metadata
        .created()
        .ok()
        .and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    metadata.is_dir()
        && born
            .is_some_and(|born| (born.as_secs() as i64, i64::from(born.subsec_nanos())) == changed)
}

/// Memory that the supervisors of a session share with the broker, and one part of it with the file worker.
#[derive(Debug)]
pub struct DirectoryMemory {
    /// The digests of the directories that were there, sorted.
    pub there: OwnedFd,
    /// The identities of directories that calls have made, in which a repository may come about. Whoever writes appends.
    pub made: OwnedFd,
    /// The paths of the repositories that calls have made, each with a zero after it.
    pub repositories: OwnedFd,
}

impl DirectoryMemory {
    /// With what was found when the session opened.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub fn new(found: &KnownDirectories) -> io::Result<Self> {
        let memory = || memfd_create(c"directories", MFdFlags::MFD_CLOEXEC);
        let made = memory()?;
        fcntl(&made, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
        Self {
            there: memory()?,
            made,
            repositories: memory()?,
        }
        .filled(found)
    }

    /// This memory, with the findings of a later search in place of the earlier.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub fn filled(self, found: &KnownDirectories) -> io::Result<Self> {
        let Self {
            there,
            made,
            repositories,
        } = self;
        let (there, made, repositories) = (
            File::from(there),
            File::from(made),
            File::from(repositories),
        );
        for memory in [&there, &made, &repositories] {
            memory.set_len(0)?;
        }
        let digests = found.digests.iter().flat_map(|digest| digest.to_le_bytes());
        there.write_all_at(&digests.collect::<Vec<_>>(), 0)?;
        // It appends, so at the beginning.
        (&made).write_all(&found.untouched.concat())?;
        Ok(Self {
            there: there.into(),
            made: made.into(),
            repositories: repositories.into(),
        })
    }

    /// Another handle to this memory.
    ///
    /// # Errors
    /// There are no descriptors for it.
    pub fn try_clone(&self) -> io::Result<Self> {
        let Self {
            there,
            made,
            repositories,
        } = self;
        Ok(Self {
            there: there.try_clone()?,
            made: made.try_clone()?,
            repositories: repositories.try_clone()?,
        })
    }

    /// The descriptors that a process must keep open to have it.
    pub fn descriptors(&self) -> [&OwnedFd; 3] {
        [&self.there, &self.made, &self.repositories]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_which_there_was_something_is_known_by_its_path_in_any_case() {
        let folder = tempfile::tempdir().unwrap();
        let [full, emptied, new] = ["Full", "emptied", "new"].map(|name| folder.path().join(name));
        [&full, &emptied, &new]
            .into_iter()
            .for_each(|path| fs::create_dir(path).unwrap());
        fs::write(emptied.join("f"), "").unwrap();
        // The clock of a file system may not advance for some milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::remove_file(emptied.join("f")).unwrap();
        let mut known = KnownDirectories::default();
        known.add(&full);
        [&emptied, &new]
            .into_iter()
            .for_each(|path| known.add_empty(path));
        known.sort();
        assert!(known.has(&full) && known.has(&folder.path().join("fULL")) && known.has(&emptied));
        assert!(!known.has(&new));
        assert_eq!(
            known.untouched,
            [identity(&fs::symlink_metadata(&new).unwrap()).unwrap()]
        );
    }
}
