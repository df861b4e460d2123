//! Ensures that directories that were repositories when the session opened still are repositories after a call.
//!
//! Git ignores a `.git` that is no repository and uses the directory above it, whose settings may be a stranger's. In the flat tier no call
//! may remove a repository's parts; in the namespaced tier removals are not supervised, as `rm -r` of a large tree would be slow. So the
//! parts are restored here, once the cell is dead: `HEAD` as it was after the last call, and empty directories.

use crate::created::identity_of;
use crate::object::{by_descriptor, errno, is};
use executor_layers::known_directories::Identity;
use executor_layers::stale_temporaries::{DIGITS, PREFIX};
use executor_sys::random;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2, renameat};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, fchmodat, fstat, fstatat, mkdirat};
use nix::unistd::linkat;
use policies::{GIT_HEAD_MAX, is_git_head, is_valid_git_head};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Maximum number of repositories that are checked after a call.
const KEPT_MAX: usize = 64;
/// Bytes for a `HEAD` and its length in the memory that the cells of a session share.
const SLOT: usize = 4 + GIT_HEAD_MAX;

pub struct KeptRepositories {
    /// Each directory with its identity.
    directories: Vec<(PathBuf, Identity)>,
    /// The `HEAD` of each as it was after the last call.
    heads: File,
}

impl KeptRepositories {
    /// Those of `directories` that are repositories, at most [`KEPT_MAX`].
    pub fn new<'d>(directories: impl Iterator<Item = &'d PathBuf>) -> Result<Self> {
        let heads = memfd_create("heads", MFdFlags::MFD_CLOEXEC)?.into();
        let mut kept = Self { directories: Vec::new(), heads };
        for path in directories {
            let Ok(directory) = open_directory(path) else { continue };
            let Ok(Some(head)) = head_of(&directory) else { continue };
            let Ok(identity) = identity_of(&directory) else { continue };
            if kept.directories.len() == KEPT_MAX {
                break;
            }
            kept.write(kept.directories.len(), &head)?;
            kept.directories.push((path.clone(), identity));
        }
        Ok(kept)
    }

    /// The descriptor that a cell must keep open.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.heads.as_fd()
    }

    /// Restores their parts, with the cell dead and under the lock on names. If that fails, the
    /// user's git will report it.
    pub fn restore(&self) {
        for (slot, (path, identity)) in self.directories.iter().enumerate() {
            let _ = self.restore_one(slot, path, identity);
        }
    }

    fn restore_one(&self, slot: usize, path: &Path, identity: &Identity) -> Result<()> {
        let directory = open_directory(path)?;
        // Another directory is not the user's repository, and nothing is restored there.
        if identity_of(&directory)? != *identity {
            return Err(Errno::ESTALE);
        }
        unlock(&directory, ".", &fstat(&directory)?)?;
        for name in ["objects", "refs"] {
            match fstatat(&directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Err(Errno::ENOENT) => mkdirat(&directory, name, Mode::from_bits_truncate(0o755))?,
                stat => {
                    let stat = stat?;
                    if is(&stat, libc::S_IFDIR) {
                        unlock(&directory, name, &stat)?;
                    }
                }
            }
        }
        let last = self.read(slot)?;
        match head_of(&directory) {
            Ok(Some(head)) if head == last => Ok(()),
            // The user's own may have any name that git takes; what commands write may not.
            Ok(Some(head)) if is_valid_git_head(&head) => self.write(slot, &head),
            Ok(_) | Err(_) => replace_head(&directory, &last),
        }
    }

    fn read(&self, slot: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; SLOT];
        let read = self.heads.read_at(&mut bytes, (slot * SLOT) as u64).map_err(errno)?;
        let (length, text) = bytes[..read].split_first_chunk().ok_or(Errno::EIO)?;
        Ok(text.get(..u32::from_le_bytes(*length) as usize).ok_or(Errno::EIO)?.to_vec())
    }

    fn write(&self, slot: usize, head: &[u8]) -> Result<()> {
        let bytes = [&(head.len() as u32).to_le_bytes(), head].concat();
        self.heads.write_all_at(&bytes, (slot * SLOT) as u64).map_err(errno)
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat2(AT_FDCWD, path, OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS))
}

/// Gives the owner access again to the directory `name` in `directory`, where a command may have taken it: git does not recognise
/// one that it cannot enter, and nothing is removed from one that cannot be written.
pub fn unlock(directory: &OwnedFd, name: &str, stat: &FileStat) -> Result<()> {
    let mode = Mode::from_bits_truncate(stat.st_mode & 0o7777);
    if mode.contains(Mode::S_IRWXU) {
        return Ok(());
    }
    let path = format!("{}/{name}", by_descriptor(directory));
    fchmodat(AT_FDCWD, path.as_str(), mode | Mode::S_IRWXU, FchmodatFlags::FollowSymlink)
}

/// The `HEAD` of a repository, if it is a valid one that its owner may read.
fn head_of(directory: &OwnedFd) -> Result<Option<Vec<u8>>> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = openat(directory, "HEAD", flags, Mode::empty())?;
    let stat = fstat(&file)?;
    if !is(&stat, libc::S_IFREG) || stat.st_mode & libc::S_IRUSR == 0 {
        return Ok(None);
    }
    let mut head = Vec::new();
    File::from(file).take(GIT_HEAD_MAX as u64 + 1).read_to_end(&mut head).map_err(errno)?;
    Ok((head.len() <= GIT_HEAD_MAX && is_git_head(&head)).then_some(head))
}

/// Replaces `HEAD` with a new file.
fn replace_head(directory: &OwnedFd, text: &[u8]) -> Result<()> {
    let path = by_descriptor(directory);
    let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let file = File::from(open(path.as_str(), flags, Mode::from_bits_truncate(0o644))?);
    (&file).write_all(text).map_err(errno)?;
    let number = u64::from_le_bytes(random::bytes().map_err(errno)?);
    let name = format!("{PREFIX}{number:0DIGITS$x}");
    let file = OwnedFd::from(file);
    linkat(AT_FDCWD, by_descriptor(&file).as_str(), directory, name.as_str(), AtFlags::AT_SYMLINK_FOLLOW)?;
    renameat(directory, name.as_str(), directory, "HEAD")
}
