//! The lock files directly in a repository's directory: which have come about since the last look.
//!
//! A command can make any number of them. So only some are remembered one by one, only so much of the directory is read, and the rest
//! is counted.

use super::created_record::{inspect, state};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number of locks of a repository that are told apart.
const LOCKS_MAX: usize = 16;
/// Maximum number of entries of a repository's directory that are read.
const LISTED_MAX: usize = 4096;
/// Locks of git that stop the user's next command, looked for by name: they are found whatever else lies there.
const KNOWN: [&str; 5] = ["index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock"];

/// The locks of one repository.
#[derive(Debug, Default)]
pub struct Locks {
    told_apart: BTreeMap<OsString, [i64; 7]>,
    others: usize,
}

impl Locks {
    /// Looks again. Returns the first that is new or has changed, and the number of all that are.
    pub fn update(&mut self, repository: &Path) -> (Option<OsString>, usize) {
        let mut now = Self::default();
        let mut entries = fs::read_dir(repository).into_iter().flatten();
        let listed = entries.by_ref().take(LISTED_MAX).flatten().map(|entry| entry.file_name());
        let listed: Vec<OsString> = listed.filter(|name| is_lock(name)).collect();
        let known: &[&str] = if entries.next().is_some() { &KNOWN } else { &[] };
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
        let changed = |(name, state): &(&OsString, &[i64; 7])| self.told_apart.get(*name) != Some(*state);
        let mut new = now.told_apart.iter().filter(changed);
        let first = new.next().map(|(name, _)| name.clone());
        let mut count = usize::from(first.is_some()) + new.count();
        if now.others > self.others {
            count += now.others - self.others;
        }
        let first = first.or_else(|| (count > 0).then(|| OsString::from("*.lock")));
        *self = now;
        (first, count)
    }
}

fn is_lock(name: &OsStr) -> bool {
    name.as_bytes().strip_suffix(b".lock").is_some_and(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, name: &str) {
        fs::write(folder.join(name), "").unwrap();
    }

    #[test]
    fn what_is_new_is_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        put(folder, "index.lock");
        let mut locks = Locks::default();
        locks.update(folder);
        assert_eq!(locks.update(folder), (None, 0), "the user's");
        put(folder, "a.lock");
        put(folder, "a.locked");
        assert_eq!(locks.update(folder), (Some("a.lock".into()), 1));
        assert_eq!(locks.update(folder), (None, 0));
    }

    #[test]
    fn many_are_counted_and_those_that_stop_git_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut locks = Locks::default();
        locks.update(folder);
        (0..LISTED_MAX + 100).for_each(|number| put(folder, &format!("{number}.lock")));
        let (first, count) = locks.update(folder);
        assert!(first.is_some() && count > LISTED_MAX - 10 && count <= LISTED_MAX, "{first:?} {count}");
        assert!(locks.told_apart.len() <= LOCKS_MAX);
        put(folder, "index.lock");
        assert_eq!(locks.update(folder).0, Some("index.lock".into()));
    }
}
