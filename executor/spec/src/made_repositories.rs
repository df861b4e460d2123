//! The paths of the repositories that calls of a session have made: no rename brings one over a directory that was there before, and the
//! broker looks at each after a call.

use crate::known_directories::DirectoryMemory;
use executor_sys::errno::errno;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::RenameFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Maximum bytes of all paths, each with a zero after it: some thousand repositories at a time.
const BYTES_MAX: usize = 256 << 10;

/// A list in memory that a session's supervisors and the broker share. Supervisors change it under the lock on names.
#[derive(Debug)]
pub struct MadeRepositories(File);

impl MadeRepositories {
    /// The list in this memory.
    ///
    /// # Errors
    /// There is no descriptor for it.
    pub fn of(memory: &DirectoryMemory) -> io::Result<Self> {
        Ok(Self(OwnedFd::try_clone(&memory.repositories)?.into()))
    }

    /// The descriptor that a cell must keep open.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The paths: of the directories `.git` and `NAME.git`, of the files `.git`, and of other programs' directories. Some may be gone.
    ///
    /// # Errors
    /// The memory cannot be read.
    pub fn paths(&self) -> io::Result<Vec<PathBuf>> {
        let all = read(&self.0)?;
        let paths = all.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        Ok(paths
            .map(|path| PathBuf::from(OsStr::from_bytes(path)))
            .collect())
    }

    /// Records a repository that is about to come about, under the lock.
    ///
    /// # Errors
    /// `ENOSPC` if there are too many, of which none is gone.
    pub fn add(&self, path: &Path) -> Result<()> {
        let mut paths = self.paths().map_err(errno)?;
        paths.retain(|known| known != path);
        if length(&paths) + path.as_os_str().len() >= BYTES_MAX {
            paths.retain(|known| known.symlink_metadata().is_ok());
        }
        paths.push(path.to_owned());
        if length(&paths) > BYTES_MAX {
            Err(Errno::ENOSPC)
        } else {
            self.write(&paths).map_err(errno)
        }
    }

    /// Those at or below `from`, as they will be called when that is `to`.
    pub fn moved(&self, from: &Path, to: &Path) -> Result<Vec<PathBuf>> {
        if !self.has_below(from)? {
            return Ok(Vec::new());
        }
        Ok(self
            .paths()
            .map_err(errno)?
            .iter()
            .filter_map(|path| moved(path, from, to))
            .collect())
    }

    /// Follows a rename, under the lock; an exchange goes both ways.
    pub fn follow(&self, from: &Path, to: &Path, flags: RenameFlags) -> Result<()> {
        let exchange = flags.contains(RenameFlags::RENAME_EXCHANGE);
        let is_moved = self.has_below(from)? || exchange && self.has_below(to)?;
        if !is_moved {
            return Ok(());
        }
        let mut paths = self.paths().map_err(errno)?;
        for path in &mut paths {
            let back = || moved(path, to, from).filter(|_| exchange);
            if let Some(new) = moved(path, from, to).or_else(back) {
                *path = new;
            }
        }
        self.write(&paths).map_err(errno)
    }

    /// Whether there is one at or below `directory`. Every rename asks this.
    fn has_below(&self, directory: &Path) -> Result<bool> {
        let (all, directory) = (
            read(&self.0).map_err(errno)?,
            directory.as_os_str().as_bytes(),
        );
        let mut paths = all.split(|byte| *byte == 0);
        Ok(paths.any(|path| {
            path.strip_prefix(directory)
                .is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
        }))
    }

    fn write(&self, paths: &[PathBuf]) -> io::Result<()> {
        let bytes: Vec<u8> = paths
            .iter()
            .flat_map(|path| [path.as_os_str().as_bytes(), &[0]].concat())
            .collect();
        self.0.write_all_at(&bytes, 0)?;
        self.0.set_len(bytes.len() as u64)
    }
}

/// All of a memory that several processes share.
///
/// # Errors
/// The kernel's.
pub fn read(memory: &File) -> io::Result<Vec<u8>> {
    let mut all = vec![0; memory.metadata()?.len() as usize];
    memory.read_exact_at(&mut all, 0)?;
    Ok(all)
}

fn length(paths: &[PathBuf]) -> usize {
    paths.iter().map(|path| path.as_os_str().len() + 1).sum()
}

fn moved(path: &Path, from: &Path, to: &Path) -> Option<PathBuf> {
    let below = path.strip_prefix(from).ok()?;
    Some(if below.as_os_str().is_empty() {
        to.to_owned()
    } else {
        to.join(below)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_directories::KnownDirectories;

    fn list(paths: &[&str]) -> MadeRepositories {
        let list =
            MadeRepositories::of(&DirectoryMemory::new(&KnownDirectories::default()).unwrap())
                .unwrap();
        paths
            .iter()
            .for_each(|path| list.add(Path::new(path)).unwrap());
        list
    }

    fn paths(list: &MadeRepositories) -> Vec<String> {
        list.paths()
            .unwrap()
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    #[test]
    fn made_repositories_follow_renamed_directories() {
        let list = list(&["/p/a/.git", "/p/ab/.git", "/p/b/x.git", "/p/a/.git"]);
        assert_eq!(paths(&list), ["/p/ab/.git", "/p/b/x.git", "/p/a/.git"]);
        let will_be = list.moved(Path::new("/p/a"), Path::new("/p/src")).unwrap();
        assert_eq!(will_be, [Path::new("/p/src/.git")]);
        list.follow(
            Path::new("/p/a"),
            Path::new("/p/b"),
            RenameFlags::RENAME_EXCHANGE,
        )
        .unwrap();
        assert_eq!(paths(&list), ["/p/ab/.git", "/p/a/x.git", "/p/b/.git"]);
        list.follow(Path::new("/p/b"), Path::new("/p/c"), RenameFlags::empty())
            .unwrap();
        assert_eq!(paths(&list), ["/p/ab/.git", "/p/a/x.git", "/p/c/.git"]);
    }

    #[test]
    fn only_removed_repositories_make_room() {
        let gone = list(&[]);
        let long = format!("/none/{}", "n".repeat(1000));
        (0..1000).for_each(|number| gone.add(Path::new(&format!("{long}{number}"))).unwrap());
        assert!(length(&gone.paths().unwrap()) <= BYTES_MAX);
        let folder = tempfile::tempdir().unwrap();
        let there = list(&[]);
        let name = folder.path().join("n".repeat(200));
        let mut add = (0..2000).map(|number| {
            let path = name.with_extension(number.to_string());
            std::fs::create_dir(&path).unwrap();
            there.add(&path)
        });
        assert!(add.any(|added| added == Err(Errno::ENOSPC)));
    }
}
