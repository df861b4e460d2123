//! Lets git write a repository's settings as they are: `git submodule update` and `git branch -D` do, and change nothing.
//!
//! Git writes `config.lock` and renames it to `config`. A command's own file must not get that name: a git of the user's whose lock the
//! command has removed would rename it. So the lock is a file of ours that says what the settings say, and what git writes goes to a
//! file without a name. If both are the same in the end, the rename is answered without being made; otherwise it is refused.

use crate::answer::Answer;
use crate::call::Call;
use crate::created::identity_of;
use crate::find::Found;
use crate::object::errno;
use crate::repository::{open_own, text_of};
use crate::rules::AccessRules;
use executor_layers::known_directories::Identity;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use policies::{GIT_CONFIG_MAX, Protection};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of locks of a call.
const LOCKS_MAX: usize = 16;
/// What ends the name of a lock.
const LOCK: &[u8] = b".lock";
/// Settings of a repository.
const SETTINGS: [&str; 2] = ["config", "config.worktree"];

/// The last [`LOCKS_MAX`] of a call.
#[derive(Default)]
pub struct SettingsLocks(RefCell<VecDeque<SettingsLock>>);

struct SettingsLock {
    /// Our file, with the name of a lock.
    lock: Identity,
    /// What the program writes.
    written: OwnedFd,
}

impl SettingsLocks {
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    fn add(&self, lock: SettingsLock) {
        let mut all = self.0.borrow_mut();
        all.push_back(lock);
        if all.len() > LOCKS_MAX {
            all.pop_front();
        }
    }

    /// Whether this file is one of our locks.
    pub fn has(&self, object: &OwnedFd) -> bool {
        let all = self.0.borrow();
        identity_of(object).is_ok_and(|object| all.iter().any(|known| known.lock == object))
    }

    /// Removes the entry of this lock, and returns what the program has written.
    fn take(&self, object: &OwnedFd) -> Option<OwnedFd> {
        let object = identity_of(object).ok()?;
        let mut all = self.0.borrow_mut();
        let at = all.iter().position(|known| known.lock == object)?;
        all.remove(at).map(|known| known.written)
    }
}

impl Call<'_> {
    /// Handles creating the lock of settings that no cell has made; `None` for any other file.
    pub fn lock_settings(
        &self,
        found: &Found,
        real: &Path,
        flags: OFlag,
    ) -> Result<Option<Answer>> {
        let writes = flags & OFlag::O_ACCMODE != OFlag::O_RDONLY;
        let Some(settings) = self.rules.settings_of(real).filter(|_| writes) else {
            return Ok(None);
        };
        let name = settings.file_name().unwrap_or_default();
        let read = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let settings = openat(&found.parent, name, read, Mode::empty())?;
        // Without birth times no file would be known again.
        let text = text_of(&settings, GIT_CONFIG_MAX)?.filter(|_| identity_of(&settings).is_ok());
        let Some(text) = text else {
            return Ok(None);
        };
        let mode = Mode::from_bits_truncate(fstat(&settings)?.st_mode & 0o777);
        // With `O_EXCL`, nobody gives it a name.
        let unnamed = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let written = openat(&found.parent, ".", unnamed, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // It is not recorded as a command's: then commands might change it.
        let lock = open_own(found, &text, mode)?;
        self.settings_locks.add(SettingsLock {
            lock: identity_of(&lock)?,
            written: written.try_clone().map_err(errno)?,
        });
        let close_on_exec = flags.contains(OFlag::O_CLOEXEC);
        Ok(Some(Answer::Descriptor(written, close_on_exec)))
    }

    /// Handles the rename of such a lock; `None` for any other rename.
    ///
    /// # Errors
    /// `EACCES` if what the program has written is not what the settings say.
    pub fn keep_settings(
        &self,
        old: &Found,
        new: &Found,
        from: &Path,
        to: &Path,
    ) -> Result<Option<Answer>> {
        let is_lock = self
            .rules
            .settings_of(from)
            .is_some_and(|settings| settings == to);
        let (Some(lock), Some(settings), true) = (&old.object, &new.object, is_lock) else {
            return Ok(None);
        };
        let Some(written) = self.settings_locks.take(lock) else {
            return Ok(None);
        };
        let present = text_of(settings, GIT_CONFIG_MAX)?.ok_or(Errno::EACCES)?;
        if old.slash || new.slash || text_of(&written, GIT_CONFIG_MAX)? != Some(present) {
            return Err(Errno::EACCES);
        }
        let lock = OsStr::from_bytes(&old.name);
        unlinkat(&old.parent, lock, UnlinkatFlags::NoRemoveDir)?;
        Ok(Some(Answer::Value(0)))
    }

    /// Handles giving such a lock the mode that it has; `None` for any other change.
    pub fn keep_mode(&self, object: &OwnedFd, mode: Mode) -> Result<Option<Answer>> {
        let has = Mode::from_bits_truncate(fstat(object)?.st_mode & 0o7777);
        Ok((has == mode && self.settings_locks.has(object)).then_some(Answer::Value(0)))
    }
}

impl AccessRules {
    /// The settings of a repository for which `real` would be the lock, if they exist and no cell has made them.
    fn settings_of(&self, real: &Path) -> Option<PathBuf> {
        let name = real.file_name()?.as_bytes().strip_suffix(LOCK)?;
        let settings = real.with_file_name(OsStr::from_bytes(name));
        let is_theirs = SETTINGS.iter().any(|known| name == known.as_bytes())
            && self.is_in_git(&settings)
            && self.protection(&settings) == Some(Protection::Write)
            && self.may_change(settings.parent()?).is_ok()
            && !self.created.has_at(&settings)
            && settings
                .symlink_metadata()
                .is_ok_and(|found| found.is_file());
        is_theirs.then_some(settings)
    }
}
