//! Programs that lie in a repository's own directory, where tools put them (`.git/crypt/transcrypt`) and settings name them by a path that
//! only a shell knows (`$(git rev-parse --git-dir)/…`).
//!
//! Git itself keeps no program there but hooks, whose names are protected. So each executable file is closed for writing when a session
//! opens, except under the names of git's own data: on file systems without modes everything is executable.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What git, git-lfs and git-annex keep in a repository's directory: no program acts on what is in there as on a program.
const DATA: [&str; 26] = [
    "HEAD",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "AUTO_MERGE",
    "MERGE_MSG",
    "MERGE_MODE",
    "MERGE_RR",
    "SQUASH_MSG",
    "COMMIT_EDITMSG",
    "TAG_EDITMSG",
    "BISECT_LOG",
    "index",
    "packed-refs",
    "refs",
    "logs",
    "objects",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "rr-cache",
    "lfs",
    "annex",
];
/// Maximum number of directories of a repository in which a program may lie that settings name.
const DIRECTORIES_MAX: usize = 64;

/// Whether `relative`, a path in a repository's directory, is git's own data.
pub fn is_data(relative: &Path) -> bool {
    let first = relative.iter().next().unwrap_or_default();
    let is = |name: &OsStr| DATA.iter().any(|data| name == *data);
    is(first) || relative.iter().any(|name| name == "objects")
}

/// Whether a file is a program, as far as its mode says.
pub fn is_program(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.mode() & 0o111 != 0
}

/// The directories of a repository, itself first, in which files may lie that are not git's own data.
pub fn directories(repository: &Path) -> Vec<PathBuf> {
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
                .is_ok_and(|relative| !is_data(relative));
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
    fn data_of_git_is_no_place_for_programs_and_the_rest_is() {
        for path in [
            "index",
            "refs/heads/x",
            "logs/HEAD",
            "lfs/hooks",
            "modules/x/objects/a",
        ] {
            assert!(is_data(Path::new(path)), "{path}");
        }
        for path in [
            "crypt/transcrypt",
            "tool",
            "info/x",
            "my-refs/x",
            "git-crypt/keys",
        ] {
            assert!(!is_data(Path::new(path)), "{path}");
        }
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
