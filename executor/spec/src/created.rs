//! Objects that the cells of a session have created under protected names, and the lock on creating and
//! moving names: one file in memory that their first processes share.
//!
//! A command may use a protected name again if its session has created it, but not anybody else's. A file is identified by
//! device, inode and birth time: if the host reuses the inode of a removed file for one of its own, that was born later.

use crate::known_directories::{IDENTITY_LEN, Identity, identity};
use executor_sys::errno::errno;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Through such a descriptor nothing can be read or written.
const PATH_ONLY: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);
/// Maximum number of recorded files.
const CREATED_MAX: usize = 16_384;
const END: u64 = (CREATED_MAX * IDENTITY_LEN) as u64;

/// A set of files, by identity.
#[derive(Debug)]
pub struct CreatedFiles(File);

/// While it is held, no other cell of the session creates or moves a name.
pub struct RenameLock<'a>(&'a File);

impl Drop for RenameLock<'_> {
    fn drop(&mut self) {
        // Without a lock there is nothing to unlock; the exit of the process unlocks too.
        let _ = fcntl(self.0, FcntlArg::F_SETLK(&lock(libc::F_UNLCK)));
    }
}

fn lock(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

impl CreatedFiles {
    /// None yet.
    ///
    /// # Errors
    /// The kernel's (`memfd_create`).
    pub fn new() -> Result<Self> {
        memfd_create("created", MFdFlags::MFD_CLOEXEC).map(|file| Self(file.into()))
    }

    /// An empty set in memory that was a set before.
    ///
    /// # Errors
    /// The kernel's (`ftruncate`).
    pub fn emptied(memory: OwnedFd) -> std::io::Result<Self> {
        let file = File::from(memory);
        file.set_len(0)?;
        Ok(Self(file))
    }

    /// The set stored in this memory.
    pub fn of(memory: OwnedFd) -> Self {
        Self(memory.into())
    }

    /// The memory, for supervisors.
    ///
    /// # Errors
    /// There is no descriptor for it.
    pub fn memory(&self) -> std::io::Result<OwnedFd> {
        self.0.try_clone().map(OwnedFd::from)
    }

    /// Number of recorded files.
    pub fn count(&self) -> usize {
        self.0
            .metadata()
            .map_or(0, |metadata| metadata.len() as usize / IDENTITY_LEN)
    }

    /// The identities of the recorded files, in the order in which they were added.
    pub fn identities(&self) -> impl Iterator<Item = Vec<u8>> {
        let mut all = vec![0; self.count() * IDENTITY_LEN];
        let read = self.0.read_exact_at(&mut all, 0).is_ok();
        let all = if read { all } else { Vec::new() };
        let identities: Vec<Vec<u8>> = all.chunks_exact(IDENTITY_LEN).map(<[u8]>::to_vec).collect();
        identities.into_iter()
    }

    /// The identity of a file, if its file system reports birth times.
    pub fn identity(file: impl AsFd) -> Option<Vec<u8>> {
        identity_of(file).ok().map(|identity| identity.to_vec())
    }

    /// The descriptor that a cell must keep open.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Waits until no other cell holds the lock. Must not be nested: releasing one releases the other.
    pub fn lock_renames(&self) -> Result<RenameLock<'_>> {
        fcntl(&self.0, FcntlArg::F_SETLKW(&lock(libc::F_WRLCK)))?;
        Ok(RenameLock(&self.0))
    }

    /// Takes the lock without waiting.
    ///
    /// # Errors
    /// `EAGAIN` or `EACCES` if another process holds the lock.
    pub fn try_lock_renames(&self) -> Result<RenameLock<'_>> {
        fcntl(&self.0, FcntlArg::F_SETLK(&lock(libc::F_WRLCK)))?;
        Ok(RenameLock(&self.0))
    }

    /// Records a file, under the lock.
    ///
    /// # Errors
    /// `ENOSPC` after `CREATED_MAX` files; `EOPNOTSUPP` if the file system does not report birth times.
    pub fn add(&self, file: impl AsFd) -> Result<()> {
        let end = self.0.metadata().map_err(errno)?.len();
        if end >= END {
            return Err(Errno::ENOSPC);
        }
        self.0.write_all_at(&identity_of(file)?, end).map_err(errno)
    }

    /// Records a file, under the lock; if there is no room, the older half is dropped.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the file system does not report birth times.
    pub fn add_newest(&self, file: impl AsFd) -> Result<()> {
        if self.0.metadata().map_err(errno)?.len() >= END {
            let mut newer = vec![0; END as usize / 2];
            self.0.read_exact_at(&mut newer, END / 2).map_err(errno)?;
            self.0.write_all_at(&newer, 0).map_err(errno)?;
            self.0.set_len(END / 2).map_err(errno)?;
        }
        self.add(file)
    }

    /// Whether a file is recorded.
    pub fn has(&self, file: impl AsFd) -> bool {
        let all = || {
            let mut all = vec![0; self.0.metadata().map_err(errno)?.len() as usize];
            self.0.read_exact_at(&mut all, 0).map_err(errno)?;
            Ok::<_, Errno>(all)
        };
        match (identity_of(file), all()) {
            (Ok(identity), Ok(all)) => all.chunks_exact(IDENTITY_LEN).any(|one| one == identity),
            (Err(_), _) | (_, Err(_)) => false,
        }
    }

    /// Whether a file could be created at `path`, where there is none, and recorded.
    pub fn has_room(&self, path: &Path) -> bool {
        let absent = || {
            path.symlink_metadata()
                .is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let room = || self.0.metadata().is_ok_and(|metadata| metadata.len() < END);
        let has_identity = |parent: &Path| {
            open(parent, PATH_ONLY, Mode::empty()).is_ok_and(|file| identity_of(file).is_ok())
        };
        absent() && room() && path.parent().is_some_and(has_identity)
    }

    /// Whether the object at `path` is recorded; no link is followed.
    pub fn has_at(&self, path: &Path) -> bool {
        open(path, PATH_ONLY | OFlag::O_NOFOLLOW, Mode::empty()).is_ok_and(|file| self.has(file))
    }
}

/// The identity of an open file.
///
/// # Errors
/// `EOPNOTSUPP` if the file system does not report birth times.
pub fn identity_of(file: impl AsFd) -> Result<Identity> {
    let file = File::from(file.as_fd().try_clone_to_owned().map_err(errno)?);
    identity(&file.metadata().map_err(errno)?).ok_or(Errno::EOPNOTSUPP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_known_under_any_name_and_no_other_is() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        let created = CreatedFiles::new().unwrap();
        created.add(File::create(&one).unwrap()).unwrap();
        File::create(&two).unwrap();
        assert!(
            created.has_at(&one)
                && !created.has_at(&two)
                && !created.has_at(&folder.path().join("none"))
        );
        fs::rename(&one, &two).unwrap();
        assert!(created.has_at(&two));
    }

    /// File systems reuse inode numbers at once.
    #[test]
    fn a_file_with_the_inode_of_one_that_is_gone_is_not_known() {
        let folder = tempfile::tempdir().unwrap();
        let created = CreatedFiles::new().unwrap();
        let path = folder.path().join("x");
        let mut inodes = Vec::new();
        for _ in 0..8 {
            let file = File::create(&path).unwrap();
            inodes.push(file.metadata().unwrap().ino());
            created.add(file).unwrap();
            fs::remove_file(&path).unwrap();
            // The clock of a file system may not advance for some milliseconds.
            std::thread::sleep(std::time::Duration::from_millis(20));
            let other = File::create(&path).unwrap();
            assert!(
                !created.has(&other),
                "inode {}, after {inodes:?}",
                other.metadata().unwrap().ino()
            );
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_lock_that_another_holds_is_not_waited_for() {
        let created = CreatedFiles::new().unwrap();
        // A lock of an open file stands against those of processes, this one's too.
        let memory = created.memory().unwrap();
        let other = File::options()
            .write(true)
            .open(format!("/proc/self/fd/{}", memory.as_raw_fd()));
        let other = other.unwrap();
        fcntl(&other, FcntlArg::F_OFD_SETLK(&lock(libc::F_WRLCK))).unwrap();
        assert!(created.try_lock_renames().is_err());
        drop(other);
        assert!(created.try_lock_renames().is_ok());
    }

    #[test]
    fn no_more_are_remembered_than_the_bound() {
        let created = CreatedFiles::new().unwrap();
        created.0.set_len(END).unwrap();
        assert_eq!(
            created.add(tempfile::tempfile().unwrap()),
            Err(Errno::ENOSPC)
        );
        assert!(!created.has(tempfile::tempfile().unwrap()));
        let newest = tempfile::tempfile().unwrap();
        created.add_newest(&newest).unwrap();
        assert!(created.has(&newest));
        assert_eq!(
            created.0.metadata().unwrap().len(),
            END / 2 + IDENTITY_LEN as u64
        );
    }
}
