//! Names that git operations pass over, because no call may write or remove them.
//!
//! Git asks nobody before it changes its first file, and most of its operations end with the first one that it cannot change: the work
//! tree is new then, index and `HEAD` are not. So for a process that holds the lock of an index (`index.lock`) the removal of such a name
//! is answered without being made, and what it writes under that name goes to a file that has none. So the operation ends whole. What
//! then differs from what git has written is named in the call's result. Nothing comes of such an answer on the disk, so it does not
//! matter who makes a lock.
//!
//! *Does not*: pass over links, and anything in `git am` and `git apply`: there git asks the disk once more, and would take what is there
//! for what it has written. Nor names of repositories and in them, and what lies outside.

use crate::object::{Handle, by_descriptor, errno, is, kind_of};
use crate::rules::AccessRules;
use broker_protocol::AttemptKind::Write;
use executor_spec::created::identity_of;
use executor_spec::known_directories::Identity;
use executor_spec::refusals::{Cause, PASSED_OVER_NAMED_MAX, Refusal, TARGET_MAX};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fstat};
use policies::Access;
use policies_guard::Change;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of names per call, as each may keep a descriptor; further ones are refused.
const NAMES_MAX: usize = 256;
/// Maximum number of locks of a call; without its lock, an operation meets refusals.
const INDEX_LOCKS_MAX: usize = 16;
/// Maximum bytes that are compared with what git has written; a longer file counts as another one.
const COMPARED_MAX: u64 = 256 << 10;
pub(crate) const INDEX_LOCK: &str = "index.lock";

/// The names of a call that were passed over, in order.
#[derive(Default)]
pub(crate) struct PassedOver {
    locks: RefCell<VecDeque<IndexLock>>,
    names: RefCell<Vec<PassedName>>,
}

/// The lock of an index that a process has made.
struct IndexLock {
    directory: OwnedFd,
    lock: Identity,
    process: i32,
}

struct PassedName {
    path: PathBuf,
    /// The content that git has written; `None` if it has removed the name.
    written: Option<OwnedFd>,
}

impl IndexLock {
    fn is_held(&self) -> bool {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.directory, INDEX_LOCK, flags, Mode::empty())
            .and_then(identity_of)
            .is_ok_and(|now| now == self.lock)
    }
}

impl PassedOver {
    /// Whether no process has locked an index.
    pub(crate) fn is_idle(&self) -> bool {
        self.locks.borrow().is_empty()
    }

    /// Adds the lock of an index that `process` has just made.
    pub(crate) fn add_lock(&self, directory: &OwnedFd, lock: &OwnedFd, process: i32) -> Result<()> {
        let lock = IndexLock {
            directory: directory.try_clone().map_err(errno)?,
            lock: identity_of(lock)?,
            process,
        };
        let mut all = self.locks.borrow_mut();
        all.retain(IndexLock::is_held);
        all.push_back(lock);
        if all.len() > INDEX_LOCKS_MAX {
            all.pop_front();
        }
        Ok(())
    }

    /// The directory of a lock that `process` holds.
    pub(crate) fn directory_of(&self, process: i32) -> Option<OwnedFd> {
        let all = self.locks.borrow();
        let mut own = all.iter().filter(|lock| lock.process == process);
        let held = own.find(|lock| lock.is_held())?;
        held.directory.try_clone().ok()
    }

    /// Notes what git has made of a name; whether there is room for it.
    pub(crate) fn note(&self, path: &Path, written: Option<OwnedFd>) -> bool {
        let mut names = self.names.borrow_mut();
        if let Some(known) = names.iter_mut().find(|known| known.path == path) {
            known.written = written;
            return true;
        }
        let has_room = names.len() < NAMES_MAX;
        if has_room {
            let path = path.to_owned();
            names.push(PassedName { path, written });
        }
        has_room
    }

    /// Whether git has removed a name that is there.
    pub(crate) fn has_removed(&self, path: &Path) -> bool {
        let names = self.names.borrow();
        let known = names.iter().find(|known| known.path == path);
        known.is_some_and(|known| known.written.is_none())
    }

    /// The outcome, with the call ended: the first that differ from what git has left, with the number of all others, and the
    /// first that do not.
    pub(crate) fn report(&self, rules: &AccessRules) -> Vec<Refusal> {
        let names = self.names.take();
        let (mut differ, mut agree, mut unnamed) = (Vec::new(), Vec::new(), 0);
        for name in &names {
            let cause = name.outcome(rules);
            let agrees = cause == Cause::AsWritten;
            let list = if agrees { &mut agree } else { &mut differ };
            if list.len() < PASSED_OVER_NAMED_MAX {
                list.push(name.refusal(cause));
            } else if !agrees {
                unnamed += 1;
            }
        }
        if let Some(last) = differ.last_mut() {
            last.count = last.count.saturating_add(unnamed);
        }
        differ.append(&mut agree);
        differ
    }
}

impl PassedName {
    /// Whether it is as git believes, and otherwise what is not.
    fn outcome(&self, rules: &AccessRules) -> Cause {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let there = open(&self.path, flags, Mode::empty());
        match (&self.written, there) {
            (None, Err(Errno::ENOENT | Errno::ENOTDIR)) => Cause::AsWritten,
            (None, Ok(_) | Err(_)) => Cause::NotRemoved,
            (Some(written), Ok(there)) if self.is_as_written(rules, written, &there) => {
                Cause::AsWritten
            }
            (Some(_), Ok(_) | Err(_)) => Cause::NotWritten,
        }
    }

    fn refusal(&self, cause: Cause) -> Refusal {
        let path = self.path.as_os_str().as_bytes();
        Refusal {
            kind: Write,
            cause,
            object: None,
            target: path[..path.len().min(TARGET_MAX)].to_vec(),
            count: 1,
        }
    }

    /// Whether a file that commands may read says what git has written.
    fn is_as_written(&self, rules: &AccessRules, written: &OwnedFd, there: &OwnedFd) -> bool {
        let same = || -> Result<bool> {
            let stat = fstat(there)?;
            let reads = rules.verdict(Change::Open {
                object: Handle::with(there, &stat),
                at: &self.path,
                kind: kind_of(&stat),
                access: Access::Read,
            })?;
            if !reads.is_allowed() || !is(&stat, libc::S_IFREG) {
                return Ok(false);
            }
            let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
            let there = open(by_descriptor(there).as_str(), flags, Mode::empty())?;
            let there = text_of(there.into())?;
            let written = text_of(written.try_clone().map_err(errno)?.into())?;
            Ok(there.is_some() && there == written)
        };
        same().unwrap_or(false)
    }
}

/// The content of a file, if it is short enough to be compared.
fn text_of(mut file: File) -> Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0)).map_err(errno)?;
    let mut limited = file.take(COMPARED_MAX + 1);
    let length = limited.read_to_end(&mut text).map_err(errno)?;
    Ok((length as u64 <= COMPARED_MAX).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_counts_while_it_is_held_and_only_so_many_do() {
        let folder = tempfile::tempdir().unwrap();
        let passed = PassedOver::default();
        let lock = |process: usize| {
            let place = folder.path().join(process.to_string());
            std::fs::create_dir(&place).unwrap();
            let lock = File::create(place.join(INDEX_LOCK)).unwrap().into();
            let directory = File::open(&place).unwrap().into();
            passed.add_lock(&directory, &lock, process as i32).unwrap();
        };
        let holds = |process: usize| passed.directory_of(process as i32).is_some();
        (0..INDEX_LOCKS_MAX).for_each(lock);
        assert!((0..INDEX_LOCKS_MAX).all(holds) && !holds(INDEX_LOCKS_MAX));
        lock(INDEX_LOCKS_MAX);
        assert!(!holds(0) && holds(INDEX_LOCKS_MAX));
        let path = folder.path().join("1").join(INDEX_LOCK);
        std::fs::rename(&path, folder.path().join("away")).unwrap();
        File::create(&path).unwrap();
        assert!(!holds(1), "it is another file");
    }

    #[test]
    fn comparison_is_limited() {
        let file = || tempfile::tempfile().unwrap();
        for (length, is_compared) in [(COMPARED_MAX, true), (COMPARED_MAX + 1, false)] {
            let made = file();
            made.set_len(length).unwrap();
            assert_eq!(text_of(made).unwrap().is_some(), is_compared);
        }
    }

    #[test]
    fn only_so_many_names_are_noted() {
        let passed = PassedOver::default();
        let path = |number: usize| PathBuf::from(format!("/z/{number}"));
        assert!((0..NAMES_MAX).all(|number| passed.note(&path(number), None)));
        assert!(!passed.note(&path(NAMES_MAX), None) && passed.note(&path(0), None));
        assert!(passed.has_removed(&path(0)) && !passed.has_removed(&path(NAMES_MAX)));
    }
}
