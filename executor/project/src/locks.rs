//! The lock files directly in a repository's directory: which have come about since the last look.
//!
//! A command can make any number of them. So only some are remembered one by one, only so much of the directory is read, and the rest
//! is counted.

use crate::created_record::{inspect, state};
use policies_guard::left::{GIT_LOCKS, is_known_lock, is_lock};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Maximum number of locks of a repository that are told apart.
const LOCKS_MAX: usize = 16;
/// Maximum number of entries of a repository's directory that are read.
const LISTED_MAX: usize = 4096;
/// The locks of one repository.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    told_apart: BTreeMap<OsString, [i64; 7]>,
    others: usize,
}

impl Locks {
    /// Looks again. Returns those that are new or have changed as far as they are told apart, and the number of all that are.
    pub(crate) fn update(&mut self, repository: &Path) -> (Vec<OsString>, usize) {
        let mut now = Self::default();
        let mut entries = fs::read_dir(repository).into_iter().flatten();
        let listed = entries
            .by_ref()
            .take(LISTED_MAX)
            .flatten()
            .map(|entry| entry.file_name());
        let mut listed: Vec<OsString> = listed.filter(|name| is_lock(name)).collect();
        listed.sort_by_key(|name| !is_known_lock(name));
        // Those that stop the user's next command are found whatever else lies there.
        let known: &[&str] = if entries.next().is_some() {
            &GIT_LOCKS
        } else {
            &[]
        };
        for name in known.iter().map(OsString::from).chain(listed) {
            if now.told_apart.contains_key(&name) {
                continue;
            }
            let is_new = !self.told_apart.contains_key(&name);
            if is_new && now.told_apart.len() >= LOCKS_MAX {
                now.others += 1;
            } else if let Ok((_, metadata)) = inspect(&repository.join(&name)) {
                now.told_apart.insert(name, state(&metadata));
            }
        }
        let changed =
            |(name, state): &(&OsString, &[i64; 7])| self.told_apart.get(*name) != Some(*state);
        let new = now.told_apart.iter().filter(changed);
        let mut new: Vec<OsString> = new.map(|(name, _)| name.clone()).collect();
        new.sort_by_key(|name| !is_known_lock(name));
        let count = new.len() + now.others.saturating_sub(self.others);
        if new.is_empty() && count > 0 {
            new.push(OsString::from("*.lock"));
        }
        *self = now;
        (new, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, name: &str) {
        fs::write(folder.join(name), "").unwrap();
    }

    #[test]
    fn new_lock_is_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        put(folder, "index.lock");
        let mut locks = Locks::default();
        locks.update(folder);
        assert_eq!(locks.update(folder), (vec![], 0), "the user's");
        put(folder, "a.lock");
        put(folder, "a.locked");
        assert_eq!(locks.update(folder), (vec!["a.lock".into()], 1));
        assert_eq!(locks.update(folder), (vec![], 0));
    }

    #[test]
    fn many_are_counted_and_those_that_stop_git_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut locks = Locks::default();
        locks.update(folder);
        (0..LISTED_MAX + 100).for_each(|number| put(folder, &format!("{number}.lock")));
        let (new, count) = locks.update(folder);
        assert!(
            new.len() == LOCKS_MAX && count > LISTED_MAX - 10 && count <= LISTED_MAX,
            "{new:?} {count}"
        );
        assert!(locks.told_apart.len() <= LOCKS_MAX);
        put(folder, "index.lock");
        assert_eq!(locks.update(folder).0, ["index.lock"]);
    }
}
