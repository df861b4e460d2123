//! What the cells of a session have made under protected names, and whose turn it is: one file in memory that their first
//! processes share.
//!
//! A command may use a protected name again that its session has made, and none that somebody else has. A file is known by
//! device, inode and birth: an inode that the host gets for a file of its own after a cell's is removed was born later.

use super::Result;
use super::caller::{PLACE, errno};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Most files that are remembered.
const MADE_MAX: usize = 16_384;
/// Bytes of one in the file: device, inode, birth in nanoseconds.
const MARK: usize = 24;
const END: u64 = (MADE_MAX * MARK) as u64;

type Mark = [u8; MARK];

/// The file.
pub struct Made(File);

/// While it lives, no other cell of the session makes or moves a name.
pub struct Turn<'a>(&'a File);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Without a lock there is nothing to unlock; the end of the process unlocks too.
        let _ = fcntl(self.0, FcntlArg::F_SETLK(&lock(libc::F_UNLCK)));
    }
}

fn lock(kind: libc::c_int) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 }
}

impl Made {
    /// An empty one.
    pub fn new() -> Result<Self> {
        memfd_create("made", MFdFlags::MFD_CLOEXEC).map(|file| Self(file.into()))
    }

    /// What a cell must keep open.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Waits for this cell's turn. Not to be asked for twice: the end of one ends the other.
    pub fn turn(&self) -> Result<Turn<'_>> {
        fcntl(&self.0, FcntlArg::F_SETLKW(&lock(libc::F_WRLCK)))?;
        Ok(Turn(&self.0))
    }

    /// Remembers a file, in this cell's turn.
    ///
    /// # Errors
    /// `ENOSPC` after [`MADE_MAX`]; `EOPNOTSUPP` where the file system does not say when a file was born.
    pub fn add(&self, file: impl AsFd) -> Result<()> {
        let end = self.0.metadata().map_err(errno)?.len();
        if end >= END {
            return Err(Errno::ENOSPC);
        }
        self.0.write_all_at(&mark(file)?, end).map_err(errno)
    }

    /// Whether a file is remembered.
    pub fn has(&self, file: impl AsFd) -> bool {
        let all = || {
            let mut marks = vec![0; self.0.metadata().map_err(errno)?.len() as usize];
            self.0.read_exact_at(&mut marks, 0).map_err(errno)?;
            Ok::<_, Errno>(marks)
        };
        match (mark(file), all()) {
            (Ok(mark), Ok(marks)) => marks.chunks_exact(MARK).any(|one| one == mark),
            _ => false,
        }
    }

    /// Whether a file could be made at `path`, where none is, and remembered.
    pub fn has_room(&self, path: &Path) -> bool {
        let absent = || path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let room = || self.0.metadata().is_ok_and(|metadata| metadata.len() < END);
        let marked = |parent: &Path| open(parent, PLACE, Mode::empty()).is_ok_and(|file| mark(file).is_ok());
        absent() && room() && path.parent().is_some_and(marked)
    }

    /// Whether what is at `path` is; nothing is followed.
    pub fn has_at(&self, path: &Path) -> bool {
        open(path, PLACE | OFlag::O_NOFOLLOW, Mode::empty()).is_ok_and(|file| self.has(file))
    }
}

fn mark(file: impl AsFd) -> Result<Mark> {
    let file = File::from(file.as_fd().try_clone_to_owned().map_err(errno)?);
    let metadata = file.metadata().map_err(errno)?;
    let born = metadata.created().map_err(|_| Errno::EOPNOTSUPP)?;
    let born = born.duration_since(UNIX_EPOCH).map_err(|_| Errno::EOPNOTSUPP)?.as_nanos() as u64;
    let mut mark = Mark::default();
    for (place, number) in mark.chunks_exact_mut(8).zip([metadata.dev(), metadata.ino(), born]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    Ok(mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_is_known_under_any_name_and_no_other_is() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        let made = Made::new().unwrap();
        made.add(File::create(&one).unwrap()).unwrap();
        File::create(&two).unwrap();
        assert!(made.has_at(&one) && !made.has_at(&two) && !made.has_at(&folder.path().join("none")));
        fs::rename(&one, &two).unwrap();
        assert!(made.has_at(&two));
    }

    /// File systems give an inode again at once.
    #[test]
    fn a_file_with_the_inode_of_one_that_is_gone_is_not_known() {
        let folder = tempfile::tempdir().unwrap();
        let made = Made::new().unwrap();
        let path = folder.path().join("x");
        let mut inodes = Vec::new();
        for _ in 0..8 {
            let file = File::create(&path).unwrap();
            inodes.push(file.metadata().unwrap().ino());
            made.add(file).unwrap();
            fs::remove_file(&path).unwrap();
            // The clock of a file system may stand still for some milliseconds.
            std::thread::sleep(std::time::Duration::from_millis(20));
            let other = File::create(&path).unwrap();
            assert!(!made.has(&other), "inode {}, after {inodes:?}", other.metadata().unwrap().ino());
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn there_is_an_end() {
        let made = Made::new().unwrap();
        made.0.set_len(END).unwrap();
        assert_eq!(made.add(tempfile::tempfile().unwrap()), Err(Errno::ENOSPC));
        assert!(!made.has(tempfile::tempfile().unwrap()));
    }
}
