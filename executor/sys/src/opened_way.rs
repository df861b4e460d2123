//! Directories that a command has closed to their owner, open for as long as what lies in them is looked at or taken away.
//!
//! A command may take the owner's rights from any directory that it may write in (`chmod 0`). Nobody could look at what it has made
//! there, and whoever gives the rights back later, the user or a later command, would meet it.

use crate::file::open_without_links;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, fstat};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path};

/// Maximum number of closed directories on the way to one object.
const CLOSED_MAX: usize = 64;

/// The directories that were closed, each with its mode, which it gets back when this is dropped.
#[derive(Debug, Default)]
pub struct OpenedWay(Vec<(OwnedFd, Mode)>);

impl OpenedWay {
    /// Gives the owner access to `root`, to the directories from there to `path`, and to `path` itself if it is one. Follows no link.
    ///
    /// # Errors
    /// The kernel's; `ELOOP` if more than 64 are closed; `EINVAL` if `path` is not plainly below `root`.
    pub fn open(root: &Path, path: &Path) -> Result<Self> {
        let below = path.strip_prefix(root).map_err(|_| Errno::EINVAL)?;
        let mut opened = Self::default();
        let mut at = open_without_links(root)?;
        for name in below.components() {
            let Component::Normal(name) = name else {
                return Err(Errno::EINVAL);
            };
            opened.enter(&at)?;
            let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            at = openat(&at, name, flags, Mode::empty())?;
        }
        opened.enter(&at)?;
        Ok(opened)
    }

    /// Opens what a path leads through, if it is a directory: nothing lies below anything else.
    fn enter(&mut self, directory: &OwnedFd) -> Result<()> {
        if fstat(directory)?.st_mode & libc::S_IFMT != libc::S_IFDIR {
            return Ok(());
        }
        if self.0.len() == CLOSED_MAX {
            return Err(Errno::ELOOP);
        }
        let kept = directory.try_clone().map_err(|_| Errno::EMFILE)?;
        self.0
            .extend(unlock(directory)?.map(|before| (kept, before)));
        Ok(())
    }
}

impl Drop for OpenedWay {
    fn drop(&mut self) {
        for (directory, before) in self.0.iter().rev() {
            // One that stays open is open to its owner alone.
            let _ = set_mode(directory, *before);
        }
    }
}

/// Gives the owner access to a directory where a command may have taken it; returns its mode before, if it was closed.
///
/// # Errors
/// The kernel's.
pub fn unlock(directory: &OwnedFd) -> Result<Option<Mode>> {
    let mode = Mode::from_bits_truncate(fstat(directory)?.st_mode & 0o7777);
    if mode.contains(Mode::S_IRWXU) {
        return Ok(None);
    }
    set_mode(directory, mode | Mode::S_IRWXU)?;
    Ok(Some(mode))
}

/// By the descriptor itself: a name in the directory, even `.`, is looked up with the rights that are missing.
fn set_mode(directory: &OwnedFd, mode: Mode) -> Result<()> {
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    fchmodat(AT_FDCWD, path.as_str(), mode, FchmodatFlags::FollowSymlink)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn close(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn closed_directories_are_open_as_long_as_they_are_needed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let deep = root.join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("f"), "").unwrap();
        let all: Vec<PathBuf> = [&deep, &root.join("a"), &root].map(PathBuf::from).into();
        all.iter().for_each(|path| close(path, 0));
        let way = OpenedWay::open(&root, &deep.join("f")).unwrap();
        let modes: Vec<u32> = all.iter().rev().map(|path| mode(path)).collect();
        assert_eq!(modes, [0o700; 3]);
        drop(way);
        assert_eq!(mode(&root), 0);
        close(&root, 0o750);
        assert_eq!(mode(&root.join("a")), 0);
        // The object itself, if it is a directory.
        let way = OpenedWay::open(&root, &root.join("a")).unwrap();
        assert_eq!((mode(&root), mode(&root.join("a"))), (0o750, 0o700));
        drop(way);
        assert_eq!(mode(&root.join("a")), 0);
        close(&root.join("a"), 0o700);
        close(&deep, 0o700);
        // Of a file nothing is changed, on the way or at its end.
        close(&deep.join("f"), 0o400);
        assert!(OpenedWay::open(&root, &deep.join("f/x")).is_err());
        let way = OpenedWay::open(&root, &deep.join("f")).unwrap();
        assert_eq!(mode(&deep.join("f")), 0o400);
        drop(way);
        assert!(OpenedWay::open(&deep, &root).is_err());
    }

    #[test]
    fn no_more_than_the_bound_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let mut deepest = root.clone();
        (0..=CLOSED_MAX).for_each(|_| deepest.push("d"));
        fs::create_dir_all(&deepest).unwrap();
        let closed: Vec<&Path> = deepest.ancestors().take(CLOSED_MAX + 1).collect();
        closed.iter().for_each(|path| close(path, 0o500));
        assert!(OpenedWay::open(&root, closed[1]).is_ok());
        assert_eq!(OpenedWay::open(&root, &deepest).err(), Some(Errno::ELOOP));
        assert_eq!(mode(closed[1]), 0o500, "given back");
        closed.iter().for_each(|path| close(path, 0o700));
    }
}
