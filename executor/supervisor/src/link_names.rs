//! Where else a file may have names: the paths that links of the session's commands have had, in memory that their supervisors share.
//!
//! An entry is a place to look at and grants nothing: its name counts only if it leads to the file when that is about to be changed.
//! A name that is not listed counts as one elsewhere. So losing entries to the bound makes more copies, and opens nothing.

use crate::object::errno;
use nix::Result;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::FileStat;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Maximum bytes of all entries: some 8,000 names. When they are full, the older half goes.
const BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of names of one file that are looked at: the newest.
const NAMES_MAX: usize = 64;
/// Bytes of an entry before its path: device, inode, length of the path.
const HEAD: usize = 18;

/// Paths of files with several names. Changed only under the lock on names.
pub(crate) struct LinkNames(File);

/// One entry: the file's device and inode, and a path that it had.
type NamedInode<'a> = ((u64, u64), &'a Path);

impl LinkNames {
    /// None yet.
    ///
    /// # Errors
    /// The kernel's (`memfd_create`).
    pub(crate) fn new() -> Result<Self> {
        memfd_create("names", MFdFlags::MFD_CLOEXEC).map(|file| Self(file.into()))
    }

    /// The descriptor that a cell must keep open.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Adds a path of the file with this state. One that cannot be added counts as elsewhere.
    pub(crate) fn add(&self, stat: &FileStat, path: &Path) {
        let _ = self.append(&encode((stat.st_dev, stat.st_ino), path));
    }

    /// The newest paths that the file with this state has had.
    pub(crate) fn of(&self, stat: &FileStat) -> BTreeSet<PathBuf> {
        let all = self.read().unwrap_or_default();
        let own = entries(&all).filter(|(file, _)| *file == (stat.st_dev, stat.st_ino));
        let paths: Vec<_> = own.map(|(_, path)| path).collect();
        paths
            .into_iter()
            .rev()
            .take(NAMES_MAX)
            .map(Path::to_owned)
            .collect()
    }

    /// Adds the new paths of what lies below a directory that was moved.
    pub(crate) fn follow(&self, from: &Path, to: &Path) {
        let all = self.read().unwrap_or_default();
        let moved = entries(&all).filter_map(|(file, path)| {
            let below = path.strip_prefix(from).ok()?;
            Some(encode(file, &to.join(below)))
        });
        let moved: Vec<u8> = moved.flatten().collect();
        let _ = self.append(&moved);
    }

    fn read(&self) -> std::io::Result<Vec<u8>> {
        let mut all = vec![0; self.0.metadata()?.len() as usize];
        self.0.read_exact_at(&mut all, 0)?;
        Ok(all)
    }

    fn append(&self, entries: &[u8]) -> Result<()> {
        let end = self.0.metadata().map_err(errno)?.len() as usize;
        if entries.is_empty() || end + entries.len() <= BYTES_MAX {
            return self.0.write_all_at(entries, end as u64).map_err(errno);
        }
        let all = [self.read().map_err(errno)?.as_slice(), entries].concat();
        let newer = newer_half(&all);
        self.0.set_len(0).map_err(errno)?;
        self.0.write_all_at(newer, 0).map_err(errno)
    }
}

/// The newer entries, of at most half the bound.
fn newer_half(all: &[u8]) -> &[u8] {
    let mut newer = all;
    while newer.len() > BYTES_MAX / 2 {
        let Some((_, rest)) = split(newer) else {
            return &[];
        };
        newer = rest;
    }
    newer
}

fn encode((device, inode): (u64, u64), path: &Path) -> Vec<u8> {
    let path = path.as_os_str().as_bytes();
    let length = path.len().min(usize::from(u16::MAX)) as u16;
    let path = &path[..usize::from(length)];
    [
        &device.to_le_bytes()[..],
        &inode.to_le_bytes(),
        &length.to_le_bytes(),
        path,
    ]
    .concat()
}

fn entries(mut left: &[u8]) -> impl Iterator<Item = NamedInode<'_>> {
    std::iter::from_fn(move || {
        let (entry, rest) = split(left)?;
        left = rest;
        Some(entry)
    })
}

fn split(bytes: &[u8]) -> Option<(NamedInode<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let (device, head) = head.split_first_chunk()?;
    let (inode, length) = head.split_first_chunk()?;
    let length = u16::from_le_bytes(*length.first_chunk()?);
    let (path, rest) = rest.split_at_checked(length.into())?;
    Some((
        (
            (u64::from_le_bytes(*device), u64::from_le_bytes(*inode)),
            Path::new(OsStr::from_bytes(path)),
        ),
        rest,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::fstat;

    fn state() -> FileStat {
        fstat(tempfile::tempfile().unwrap()).unwrap()
    }

    fn paths(names: &LinkNames, stat: &FileStat) -> Vec<String> {
        names
            .of(stat)
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    #[test]
    fn names_are_those_of_one_file() {
        let (names, one) = (LinkNames::new().unwrap(), state());
        let mut other = one;
        other.st_ino += 1;
        names.add(&one, Path::new("/z/a"));
        names.add(&other, Path::new("/z/b"));
        names.add(&one, Path::new("/z/d/c"));
        names.add(&one, Path::new("/z/a"));
        assert_eq!(paths(&names, &one), ["/z/a", "/z/d/c"]);
        assert_eq!(paths(&names, &other), ["/z/b"]);
    }

    #[test]
    fn names_below_a_moved_directory_follow_it() {
        let (names, one) = (LinkNames::new().unwrap(), state());
        names.add(&one, Path::new("/z/d/a"));
        names.add(&one, Path::new("/z/dd/a"));
        names.follow(Path::new("/z/d"), Path::new("/z/e"));
        assert_eq!(paths(&names, &one), ["/z/d/a", "/z/dd/a", "/z/e/a"]);
    }

    #[test]
    fn the_older_half_goes_at_the_bound() {
        let (names, one) = (LinkNames::new().unwrap(), state());
        let path = |number: usize| format!("/z/{number}{}", "x".repeat(4000));
        let total = 3 * BYTES_MAX / 4000;
        for number in 0..total {
            names.add(&one, Path::new(&path(number)));
            assert!(names.0.metadata().unwrap().len() as usize <= BYTES_MAX);
        }
        let left = names.of(&one);
        assert!(left.len() == NAMES_MAX && left.contains(Path::new(&path(total - 1))));
        // Moving all of them at once exceeds it too.
        names.follow(Path::new("/z"), Path::new("/y"));
        assert!(names.0.metadata().unwrap().len() as usize <= BYTES_MAX);
        assert!(!names.of(&one).is_empty());
    }

    #[test]
    fn bytes_that_are_no_entry_end_the_list() {
        let entry = encode((1, 2), Path::new("/a"));
        for cut in 1..entry.len() {
            assert_eq!(
                entries(&[entry.as_slice(), &entry[..cut]].concat()).count(),
                1
            );
        }
    }
}
