//! Names in git's index whose changes `git status`, `git diff` and `git commit -a` do not show: `assume-unchanged` and `skip-worktree`.
//!
//! A sparse checkout has `skip-worktree` on the names that it leaves out, so names without a file are counted apart.
//!
//! *Does not*: look for more than [`LOOKUPS_MAX`] files; the names after them count as without a file.

use crate::git_index::IndexEntry;
use crate::root::{READING, open_beneath};
use broker_protocol::Digest;
use executor_spec::worker::{HIDDEN_MAX, HiddenNames};
use nix::errno::Errno;
use nix::sys::stat::Mode;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number of files that are looked up.
const LOOKUPS_MAX: usize = 4096;

/// The hidden names of an index: those with a file in the project or that git takes for unchanged, and the others.
pub(crate) fn hidden<'e>(
    entries: impl Iterator<Item = &'e IndexEntry>,
    project: &OwnedFd,
) -> (HiddenNames, HiddenNames) {
    let mut lookups = 0;
    let mut exists = |path: &[u8]| {
        lookups += 1;
        lookups <= LOOKUPS_MAX && exists(project, Path::new(OsStr::from_bytes(path)))
    };
    let hidden = entries.filter(|entry| entry.hidden);
    let (with, without): (Vec<_>, Vec<_>) =
        hidden.partition(|entry| entry.assumed || exists(&entry.path));
    (names(with), names(without))
}

fn exists(project: &OwnedFd, path: &Path) -> bool {
    let opened = open_beneath(project, path, READING, Mode::empty());
    !matches!(opened, Err(Errno::ENOENT | Errno::ENOTDIR))
}

fn names(entries: Vec<&IndexEntry>) -> HiddenNames {
    let mut names: Vec<&[u8]> = entries
        .into_iter()
        .map(|entry| entry.path.as_slice())
        .collect();
    names.sort_unstable();
    names.dedup();
    let all = names
        .iter()
        .flat_map(|name| [name, b"\0".as_slice()])
        .collect::<Vec<_>>()
        .concat();
    HiddenNames {
        first: names
            .iter()
            .take(HIDDEN_MAX)
            .map(|name| name.to_vec())
            .collect(),
        count: names.len() as u64,
        digest: Digest::of(&all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    fn entry(path: &str, hidden: bool, assumed: bool) -> IndexEntry {
        IndexEntry {
            path: path.into(),
            hidden,
            assumed,
            submodule: false,
        }
    }

    #[test]
    fn names_of_a_sparse_checkout_are_counted_apart() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("there"), "").unwrap();
        std::os::unix::fs::symlink("/etc/hostname", folder.path().join("link")).unwrap();
        let project = File::open(folder.path()).unwrap().into();
        let entries = [
            entry("gone", true, false),
            entry("assumed", true, true),
            entry("there", true, false),
            entry("there", true, false),
            entry("link", true, false),
            entry("plain", false, false),
            entry("no/where", true, false),
        ];
        let (with, without) = hidden(entries.iter(), &project);
        let texts = |names: HiddenNames| {
            names
                .first
                .into_iter()
                .map(String::from_utf8)
                .collect::<Result<Vec<_>, _>>()
        };
        assert_eq!((with.count, without.count), (3, 2));
        assert_eq!(texts(with).unwrap(), ["assumed", "link", "there"]);
        assert_eq!(texts(without).unwrap(), ["gone", "no/where"]);
    }

    #[test]
    fn names_beyond_the_first_are_in_count_and_digest() {
        let folder = tempfile::tempdir().unwrap();
        let project = File::open(folder.path()).unwrap().into();
        let of = |count: usize, last: &str| {
            let mut entries: Vec<_> = (0..count)
                .map(|n| entry(&format!("{n:05}"), true, true))
                .collect();
            entries.push(entry(last, true, true));
            hidden(entries.iter(), &project).0
        };
        let (one, other) = (of(HIDDEN_MAX, "x"), of(HIDDEN_MAX, "y"));
        assert_eq!(
            (one.first.len(), one.count),
            (HIDDEN_MAX, HIDDEN_MAX as u64 + 1)
        );
        assert!(one.first == other.first && one.digest != other.digest);
    }
}
