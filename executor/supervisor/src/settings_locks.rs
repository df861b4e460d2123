//! Locks for a repository's settings that git writes as they are: `git submodule update` and `git branch -D` do, and change nothing.
//!
//! Git writes `config.lock` and renames it to `config`. A command's own file must not get that name: a git of the user's whose lock the
//! command has removed would rename it. So the lock is a file of ours that says what the settings say, and what git writes goes to a
//! file without a name. If both are the same in the end, the rename is answered without being made; otherwise it is refused.

use crate::object::errno;
use crate::rules::AccessRules;
use executor_spec::created::identity_of;
use executor_spec::known_directories::Identity;
use nix::Result;
use policies_guard::Protection;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of locks of a call.
const LOCKS_MAX: usize = 16;
/// The end of the name of a lock.
const LOCK: &[u8] = b".lock";
/// Settings of a repository.
const SETTINGS: [&str; 2] = ["config", "config.worktree"];

/// The last [`LOCKS_MAX`] of a call.
#[derive(Default)]
pub(crate) struct SettingsLocks(RefCell<VecDeque<SettingsLock>>);

struct SettingsLock {
    /// Our file, with the name of a lock.
    lock: Identity,
    /// The memory into which the program writes.
    written: OwnedFd,
}

impl SettingsLocks {
    /// Whether the call has none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Adds our file `lock`, for which the program writes to `written`.
    pub(crate) fn add(&self, lock: impl AsFd, written: &OwnedFd) -> Result<()> {
        let lock = SettingsLock {
            lock: identity_of(lock)?,
            written: written.try_clone().map_err(errno)?,
        };
        let mut all = self.0.borrow_mut();
        all.push_back(lock);
        if all.len() > LOCKS_MAX {
            all.pop_front();
        }
        Ok(())
    }

    /// Whether this file is one of our locks.
    pub(crate) fn has(&self, object: &OwnedFd) -> bool {
        let all = self.0.borrow();
        identity_of(object).is_ok_and(|object| all.iter().any(|known| known.lock == object))
    }

    /// Removes the entry of this lock, and returns what the program has written.
    pub(crate) fn take(&self, object: &OwnedFd) -> Option<OwnedFd> {
        let object = identity_of(object).ok()?;
        let mut all = self.0.borrow_mut();
        let at = all.iter().position(|known| known.lock == object)?;
        all.remove(at).map(|known| known.written)
    }
}

impl AccessRules {
    /// The settings of a repository for which `real` would be the lock, if they exist and no cell has made them.
    pub(crate) fn settings_of(&self, real: &Path) -> Option<PathBuf> {
        let name = real.file_name()?.as_bytes().strip_suffix(LOCK)?;
        let settings = real.with_file_name(OsStr::from_bytes(name));
        let is_theirs = SETTINGS.iter().any(|known| name == known.as_bytes())
            && settings
                .symlink_metadata()
                .is_ok_and(|found| found.is_file())
            && self.judge().is_in_git(&settings)
            && self.judge().protection(&settings) == Some(Protection::Write)
            && self.judge().may_change(settings.parent()?).is_allowed()
            && !self.created.has_at(&settings);
        is_theirs.then_some(settings)
    }
}
