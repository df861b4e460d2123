//! Which directories calls of the session have made: only in those a repository may come about. Common memory of its supervisors
//! and the file worker.

use crate::object::errno;
use executor_spec::created::identity_of;
use executor_spec::known_directories::{DirectoryMemory, IDENTITY_LEN, KnownDirectories, digest};
use executor_spec::made_repositories::read;
use nix::Result;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Maximum number of directories that are recorded. Of more, the newer half stays: an installation of packages makes thousands.
const MADE_MAX: usize = 32_768;
const END: u64 = (MADE_MAX * IDENTITY_LEN) as u64;
/// Bytes of a digest.
const DIGEST_LEN: usize = 8;

/// The directories that were there when the session opened, and those that its calls have made.
pub(crate) struct MadeDirectories {
    there: File,
    made: File,
    /// Those that were in a leased path when the lease began.
    leased: Vec<KnownDirectories>,
}

impl MadeDirectories {
    pub(crate) fn of(memory: &DirectoryMemory) -> io::Result<Self> {
        let DirectoryMemory {
            there,
            made,
            repositories: _,
        } = memory.try_clone()?;
        Ok(Self {
            there: there.into(),
            made: made.into(),
            leased: Vec::new(),
        })
    }

    pub(crate) fn add_leased(&mut self, known: KnownDirectories) {
        self.leased.push(known);
    }

    /// The descriptors that a cell must keep open.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.there.as_fd(), self.made.as_fd()]
    }

    /// Records a directory that a cell has just made, under the lock on names. Where one is not recorded, no repository comes about.
    pub(crate) fn add(&self, made: impl AsFd) {
        let add = || {
            let identity = identity_of(made)?;
            if self.made.metadata().map_err(errno)?.len() >= END {
                self.keep_newer().map_err(errno)?;
            }
            (&self.made).write_all(&identity).map_err(errno)
        };
        let _: Result<()> = add();
    }

    fn keep_newer(&self) -> io::Result<()> {
        let mut newer = vec![0; END as usize / 2];
        self.made.read_exact_at(&mut newer, END / 2)?;
        self.made.set_len(0)?;
        (&self.made).write_all(&newer)
    }

    /// Whether a call has made this directory, or it was untouched when the session opened, and none was at its path then.
    pub(crate) fn is_new(&self, directory: impl AsFd, path: &Path) -> bool {
        let Ok(identity) = identity_of(directory) else {
            return false;
        };
        let leased = || {
            self.leased
                .iter()
                .any(|known| known.untouched.contains(&identity))
        };
        let is = |all: Vec<u8>| all.chunks_exact(IDENTITY_LEN).any(|one| one == identity);
        !self.was_there(path) && (leased() || read(&self.made).is_ok_and(is))
    }

    /// Whether a directory was at this path when the session opened, or the lease began. If that is unknown, it was.
    pub(crate) fn was_there(&self, path: &Path) -> bool {
        let bytes = digest(path).to_le_bytes();
        let there = |all: Vec<u8>| all.chunks_exact(DIGEST_LEN).any(|one| one == bytes);
        self.leased.iter().any(|known| known.has(path)) || read(&self.there).map_or(true, there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn directory_made_by_a_call_is_new_unless_its_path_was_known() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
        [&old, &new]
            .into_iter()
            .for_each(|path| fs::create_dir(path).unwrap());
        let mut known = KnownDirectories::default();
        known.add(&old);
        let made = MadeDirectories::of(&DirectoryMemory::new(&known).unwrap()).unwrap();
        let open = |path: &Path| File::open(path).unwrap();
        assert!(!made.is_new(open(&new), &new), "nobody has made it");
        [&old, &new]
            .into_iter()
            .for_each(|path| made.add(open(path)));
        assert!(made.is_new(open(&new), &new) && !made.is_new(open(&old), &old));
        assert!(!made.is_new(open(&new), &old), "moved to where another was");
    }

    #[test]
    fn full_memory_keeps_the_newer_half() {
        let folder = tempfile::tempdir().unwrap();
        let made =
            MadeDirectories::of(&DirectoryMemory::new(&KnownDirectories::default()).unwrap())
                .unwrap();
        made.made.write_all_at(&vec![0; END as usize], 0).unwrap();
        made.add(File::open(folder.path()).unwrap());
        assert_eq!(
            made.made.metadata().unwrap().len(),
            END / 2 + IDENTITY_LEN as u64
        );
        assert!(made.is_new(File::open(folder.path()).unwrap(), folder.path()));
    }
}
