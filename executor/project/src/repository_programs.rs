//! Programs that lie in a repository's own directory, where tools put them (`.git/crypt/transcrypt`) and settings name them by a path that
//! only a shell knows (`$(git rev-parse --git-dir)/…`).
//!
//! Git itself keeps no program there but hooks, whose names are protected. So each executable file is closed for writing when a session
//! opens, except under the names of git's own data: on file systems without modes everything is executable.

use policies_guard::search::is_git_data;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum number of directories of a repository in which a program may lie that settings name.
const DIRECTORIES_MAX: usize = 64;

/// Whether a file is a program, as far as its mode says.
pub(crate) fn is_program(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.mode() & 0o111 != 0
}

/// The directories of a repository, itself first, in which files may lie that are not git's own data.
pub(crate) fn directories(repository: &Path) -> Vec<PathBuf> {
    let mut all = vec![repository.to_owned()];
    let mut next = 0;
    while let Some(directory) = all.get(next).cloned() {
        next += 1;
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            // Nothing more is read of a directory with any number of names.
            if all.len() == DIRECTORIES_MAX {
                return all;
            }
            let path = entry.path();
            let is_open = path
                .strip_prefix(repository)
                .is_ok_and(|relative| !is_git_data(relative));
            if is_open && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                all.push(path);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_with_data_of_git_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["refs/heads", "crypt/deep"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let want = ["", "crypt", "crypt/deep"].map(|name| folder.path().join(name));
        let is_wanted =
            |(found, want): (PathBuf, &PathBuf)| found.components().eq(want.components());
        let found = directories(folder.path());
        assert!(found.len() == want.len() && found.into_iter().zip(&want).all(is_wanted));
    }
}
