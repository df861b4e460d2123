//! Removes a directory in which commands have written: of any depth and size, with any modes. It follows no link, leaves its file
//! system nowhere, holds three descriptors, and does no more than its budget.

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, fchmodat, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

/// Entries of a directory that are read before they are removed.
const READ_MAX: usize = 1024;

/// How much one run may do.
#[derive(Debug)]
pub struct RemovalBudget {
    pub entries: u64,
    pub until: Instant,
}

/// The entries that a removal has taken away so far.
#[derive(Debug, Default)]
pub struct Removed {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// How a removal ended that the kernel did not refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalEnd {
    Done,
    /// The budget is spent; another run goes on.
    Spent,
}

/// Opens a directory by its name, to work in it.
///
/// # Errors
/// It is none, or a link, or not the user's.
pub fn open_directory(parent: &OwnedFd, name: &CStr) -> nix::Result<OwnedFd> {
    let path = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let found = openat(parent, name, path, Mode::empty())?;
    let mode = Mode::from_bits_truncate(fstat(&found)?.st_mode & 0o7777);
    if !mode.contains(Mode::S_IRWXU) {
        // By the descriptor: the name may mean something else by now.
        let own = format!("/proc/self/fd/{}", found.as_raw_fd());
        let follow = FchmodatFlags::FollowSymlink;
        fchmodat(AT_FDCWD, own.as_str(), mode | Mode::S_IRWXU, follow)?;
    }
    let read = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(&found, c".", read, Mode::empty())
}

/// Removes the directory `name` of `parent`, with all that is in it. What lies deeper than one directory is moved up first, so that
/// no depth needs memory or descriptors.
///
/// # Errors
/// The kernel's first, when nothing more can be removed.
pub fn remove(
    parent: &OwnedFd,
    name: &CStr,
    budget: &mut RemovalBudget,
    removed: &mut Removed,
) -> nix::Result<RemovalEnd> {
    let top = match open_directory(parent, name) {
        // Another run was faster.
        Err(Errno::ENOENT) => return Ok(RemovalEnd::Done),
        top => top?,
    };
    let mut tree = RemovedTree {
        device: fstat(&top)?.st_dev,
        top: &top,
        moved: 0,
        budget,
        removed,
    };
    loop {
        match tree.pass(&top)? {
            Pass::Empty => break,
            Pass::Spent => return Ok(RemovalEnd::Spent),
            Pass::Removed => {}
        }
    }
    match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
        Err(Errno::ENOENT) | Ok(()) => Ok(RemovalEnd::Done),
        Err(errno) => Err(errno),
    }
}

enum Pass {
    /// The directory had no entries left.
    Empty,
    Removed,
    Spent,
}

struct RemovedTree<'a> {
    device: u64,
    /// The directory that is removed; directories further below are moved into it.
    top: &'a OwnedFd,
    /// Number of directories that were moved up, for their names.
    moved: u64,
    budget: &'a mut RemovalBudget,
    removed: &'a mut Removed,
}

impl RemovedTree<'_> {
    /// Removes some entries of `directory`: those of `top` by removing what is in them, deeper ones by moving them into `top`.
    fn pass(&mut self, directory: &OwnedFd) -> nix::Result<Pass> {
        let names = read(directory)?;
        if names.is_empty() {
            return Ok(Pass::Empty);
        }
        let (mut any, mut first) = (false, None);
        for name in &names {
            if self.budget.entries == 0 || Instant::now() >= self.budget.until {
                return Ok(Pass::Spent);
            }
            self.budget.entries -= 1;
            match self.entry(directory, name) {
                Ok(true) => any = true,
                Ok(false) => return Ok(Pass::Spent),
                // Another run removes it as well.
                Err(Errno::ENOENT) => any = true,
                Err(errno) => first = first.or(Some(errno)),
            }
        }
        match first {
            Some(errno) if !any => Err(errno),
            _ => Ok(Pass::Removed),
        }
    }

    /// Takes one entry out of `directory`; `false` if the budget is spent first.
    fn entry(&mut self, directory: &OwnedFd, name: &CStr) -> nix::Result<bool> {
        let stat = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        if stat.st_dev != self.device {
            return Err(Errno::EXDEV);
        }
        if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
            unlinkat(directory, name, UnlinkatFlags::NoRemoveDir)?;
            self.count(&stat);
            return Ok(true);
        }
        let below = open_directory(directory, name)?;
        if directory.as_raw_fd() != self.top.as_raw_fd() {
            self.move_up(directory, name)?;
            return Ok(true);
        }
        loop {
            match self.pass(&below)? {
                Pass::Empty => break,
                Pass::Spent => return Ok(false),
                Pass::Removed => {}
            }
        }
        unlinkat(directory, name, UnlinkatFlags::RemoveDir)?;
        self.count(&stat);
        Ok(true)
    }

    fn count(&mut self, stat: &FileStat) {
        self.removed.entries += 1;
        let is_last = stat.st_nlink <= 1 || stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        if is_last {
            let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
            self.removed.bytes = self
                .removed
                .bytes
                .saturating_add(blocks.saturating_mul(512));
        }
    }

    /// Moves a directory into `top`, under a name that is free there.
    fn move_up(&mut self, directory: &OwnedFd, name: &CStr) -> nix::Result<()> {
        loop {
            self.moved += 1;
            let free = format!(".up-{:x}", self.moved);
            let keep = RenameFlags::RENAME_NOREPLACE;
            match renameat2(directory, name, self.top, free.as_str(), keep) {
                // A command has chosen the same name.
                Err(Errno::EEXIST) => {}
                moved => return moved,
            }
        }
    }
}

/// Some names of a directory.
fn read(directory: &OwnedFd) -> nix::Result<Vec<CString>> {
    let again = openat(
        directory,
        c".",
        OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let mut names = Vec::new();
    for entry in Dir::from_fd(again)?.iter() {
        let entry = entry?;
        if entry.file_name() != c"." && entry.file_name() != c".." {
            names.push(entry.file_name().to_owned());
        }
        if names.len() == READ_MAX {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;
    use std::time::Duration;

    fn budget(entries: u64) -> RemovalBudget {
        let until = Instant::now() + Duration::from_secs(60);
        RemovalBudget { entries, until }
    }

    fn remove_tree(parent: &Path, entries: u64) -> (nix::Result<RemovalEnd>, Removed) {
        let parent = OwnedFd::from(File::open(parent).unwrap());
        let mut removed = Removed::default();
        let done = remove(&parent, c"tree", &mut budget(entries), &mut removed);
        (done, removed)
    }

    #[test]
    fn a_tree_of_any_depth_and_mode_is_removed_and_no_link_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "kept").unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("closed/in")).unwrap();
        fs::create_dir(tree.join(".up-1")).unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        symlink(&outside, tree.join("closed/in/link")).unwrap();
        fs::hard_link(outside.join("file"), tree.join("closed/second")).unwrap();
        fs::set_permissions(tree.join("closed/in"), Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(tree.join("closed"), Permissions::from_mode(0o000)).unwrap();
        // Deeper than a path or a stack may be.
        let mut at = OwnedFd::from(File::open(&tree).unwrap());
        for _ in 0..5000 {
            nix::sys::stat::mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
            at = openat(
                &at,
                "d",
                OFlag::O_RDONLY | OFlag::O_DIRECTORY,
                Mode::empty(),
            )
            .unwrap();
        }
        let (done, removed) = remove_tree(folder.path(), u64::MAX);
        assert_eq!(done, Ok(RemovalEnd::Done));
        assert!(removed.entries > 5000 && !tree.exists());
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"kept");
    }

    #[test]
    fn a_spent_budget_ends_a_removal_and_another_run_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("d/e")).unwrap();
        for number in 0..50 {
            fs::write(tree.join(format!("d/e/{number}")), "").unwrap();
        }
        let (done, removed) = remove_tree(folder.path(), 20);
        assert_eq!(done, Ok(RemovalEnd::Spent));
        assert!(removed.entries <= 20 && tree.exists());
        assert_eq!(remove_tree(folder.path(), u64::MAX).0, Ok(RemovalEnd::Done));
        assert!(!tree.exists());
    }
}
