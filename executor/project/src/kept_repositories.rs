//! In the broker: directories that were repositories when the session opened still are repositories after a call.
//!
//! Git ignores a `.git` that is no repository and uses the directory above it, whose settings may be a stranger's. No call may remove a
//! repository's parts. As a second layer, and because calls may change modes, the parts are restored here, before the result: `HEAD` as it
//! was after the last call, and empty directories.

use executor_spec::created::CreatedFiles;
use executor_sys::errno::errno;
use executor_sys::opened_way::unlock;
use executor_sys::random;
use executor_sys::stale_temporaries::{DIGITS, PREFIX};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2, renameat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat, mkdirat};
use nix::unistd::linkat;
use policies_guard::{GIT_HEAD_MAX, GitHead, Repository, may_be_written_to_head};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A directory that was a repository.
#[derive(Debug)]
pub(crate) struct KeptRepository {
    path: PathBuf,
    /// Device, inode and birth time.
    identity: Vec<u8>,
    /// `HEAD` as it was after the last call.
    head: Vec<u8>,
    /// The directories that it had: that of a worktree has neither.
    directories: Vec<&'static str>,
}

impl KeptRepository {
    /// The directory, if it is a repository.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let directory = open_directory(path).ok()?;
        let head = head_of(&directory).ok()??;
        let identity = CreatedFiles::identity(&directory)?;
        let has = |name: &&str| {
            let stat = fstatat(&directory, *name, AtFlags::AT_SYMLINK_NOFOLLOW);
            stat.is_ok_and(|stat| is(&stat, libc::S_IFDIR))
        };
        let directories = Repository::directories_of_git().filter(has).collect();
        Some(Self {
            path: path.to_owned(),
            identity,
            head,
            directories,
        })
    }

    /// Restores its parts, under the lock on names. If that fails, the user's git will report it.
    ///
    /// # Errors
    /// The kernel's; `ESTALE` if another directory lies there.
    pub(crate) fn restore(&mut self) -> Result<()> {
        let directory = open_directory(&self.path)?;
        // Another directory is not the user's repository, and nothing is restored there.
        if CreatedFiles::identity(&directory).as_ref() != Some(&self.identity) {
            return Err(Errno::ESTALE);
        }
        // Git does not recognise a repository that it cannot enter.
        unlock(&directory)?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        for name in &self.directories {
            match openat(&directory, *name, flags, Mode::empty()) {
                Err(Errno::ENOENT) => mkdirat(&directory, *name, Mode::from_bits_truncate(0o755))?,
                Err(Errno::ENOTDIR) => {}
                part => drop(unlock(&part?)?),
            }
        }
        match head_of(&directory) {
            Ok(Some(head)) if head == self.head => Ok(()),
            // The user's own may have any name that git takes; what commands write may not.
            Ok(Some(head)) if may_be_written_to_head(&head) => {
                self.head = head;
                Ok(())
            }
            Ok(_) | Err(_) => replace_head(&directory, &self.head),
        }
    }
}

fn is(stat: &FileStat, kind: libc::mode_t) -> bool {
    stat.st_mode & libc::S_IFMT == kind
}

fn by_descriptor(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat2(
        AT_FDCWD,
        path,
        OpenHow::new()
            .flags(flags)
            .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS),
    )
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
    File::from(file)
        .take(GIT_HEAD_MAX as u64 + 1)
        .read_to_end(&mut head)
        .map_err(errno)?;
    Ok(GitHead::parse(&head).is_some().then_some(head))
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
    linkat(
        AT_FDCWD,
        by_descriptor(&file).as_str(),
        directory,
        name.as_str(),
        AtFlags::AT_SYMLINK_FOLLOW,
    )?;
    renameat(directory, name.as_str(), directory, "HEAD")
}
