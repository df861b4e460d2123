//! Lets git create a repository or a worktree: harmless settings become its `config`, in a file that we create.
//!
//! git writes `config.lock` and renames it. The content is read once; if it is harmless, it is
//! written to a new file that only this process has ever had open, and that file gets the name. So
//! `git init` and `git clone` work, and what they create cannot make the user's git run anything.
//!
//! `git worktree add` creates two files that name a repository's directory. Below `.git/worktrees/NAME` the first,
//! `commondir`, may only contain `../..`; the worktree's own `.git` may only name such a directory, which must name the
//! worktree in turn. No settings and hooks can be created in it, so nothing depends on whether the links stay.
//!
//! Settings that no cell has made may be written as they are (`settings_locks.rs`), and in no other way.
//!
//! The settings of package managers come about in the same way, where a command may make none with other settings.
//!
//! `MERGE_RR` lists the files that git's `rerere` reads and writes at the next commit, and any of them may be
//! replaced by a link later. So it stays empty: git in a cell records no resolutions, but otherwise works.

use crate::answer::{SyscallAnswer, unnoted};
use crate::find::FoundName;
use crate::object::{by_descriptor, errno, is};
use crate::supervised_call::SupervisedCall;
use crate::worktrees::is_worktree;
use broker_protocol::AttemptKind::Write;
use executor_spec::created::identity_of;
use executor_sys::notify::OnExec;
use executor_sys::random;
use executor_sys::stale_temporaries::{DIGITS, PREFIX};
use nix::Result;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use policies::{
    GIT_CONFIG_MAX, PACKAGE_CONFIG_MAX, is_harmless_git_config, is_harmless_package_config,
};
use policies_guard::{GIT_HEAD_MAX, Rule, may_be_written_to_head};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const RERERE_LOCK: &str = "MERGE_RR.lock";

impl SupervisedCall<'_> {
    /// Handles the rename of a new `config`, `HEAD` or `MERGE_RR` to its place in a repository; `None` for any other rename.
    ///
    /// # Errors
    /// `EACCES` if the content is not harmless, or if the `config` that it would replace was not created by this
    /// session's cells: those settings are the user's, whatever they contain.
    pub(crate) fn replace_in_repository(
        &self,
        old: &FoundName,
        new: &FoundName,
        from: &Path,
        to: &Path,
    ) -> Result<Option<SyscallAnswer>> {
        let Some(object) = &old.object else {
            return Ok(None);
        };
        let is_lock = |name: &str| {
            from.parent() == to.parent()
                && from
                    .file_name()
                    .is_some_and(|lock| lock == OsStr::new(name))
        };
        let (kept, is_fit): (_, fn(&[u8]) -> bool) = match self.rules.judge().is_git_head(to) {
            true => (GIT_HEAD_MAX, may_be_written_to_head),
            false if is_lock("config.lock") && self.rules.judge().is_git_config(to) => {
                (GIT_CONFIG_MAX, is_harmless_git_config)
            }
            false if is_lock(RERERE_LOCK) && self.rules.judge().is_rerere_state(to) => {
                (0, <[u8]>::is_empty)
            }
            false => return Ok(None),
        };
        let theirs = || {
            new.object
                .as_ref()
                .is_some_and(|present| !self.rules.created.has(present))
        };
        if old.slash || new.slash || kept == GIT_CONFIG_MAX && theirs() {
            return Err(self.refused(Write, to, Rule::Content));
        }
        let text = text_of(object, kept)?
            .filter(|text| is_fit(text))
            .ok_or_else(|| self.refused(Write, to, Rule::Content))?;
        self.put_own(old, new, (from, to), &text)
    }

    /// Handles the rename of any file to a name that is open when new for harmless settings only; `None` for any other rename.
    ///
    /// # Errors
    /// `EACCES` if the settings are not harmless, or if the file that they would replace was not created by this session's cells.
    pub(crate) fn replace_package_config(
        &self,
        old: &FoundName,
        new: &FoundName,
        from: &Path,
        to: &Path,
    ) -> Result<Option<SyscallAnswer>> {
        let Some(object) = old
            .object
            .as_ref()
            .filter(|_| self.rules.judge().is_judged(to))
        else {
            return Ok(None);
        };
        let theirs = new
            .object
            .as_ref()
            .is_some_and(|present| !self.rules.created.has(present));
        if old.slash || new.slash || theirs {
            return Err(self.refused(Write, to, Rule::Content));
        }
        let is_harmless = |text: &Vec<u8>| is_harmless_package_config(&new.name, text);
        let text = text_of(object, PACKAGE_CONFIG_MAX)?
            .filter(is_harmless)
            .ok_or_else(|| self.refused(Write, to, Rule::Content))?;
        self.put_own(old, new, (from, to), &text)
    }

    /// Gives a file of our own with this text the new name, and removes the old name.
    fn put_own(
        &self,
        old: &FoundName,
        new: &FoundName,
        (from, to): (&Path, &Path),
        text: &[u8],
    ) -> Result<Option<SyscallAnswer>> {
        let Some(object) = &old.object else {
            return Ok(None);
        };
        let verdict = self.rules.judge().may_change(from);
        self.admit(
            Write,
            to,
            verdict.and(|| self.rules.judge().may_cross(from, to)),
        )?;
        let mode = Mode::from_bits_truncate(fstat(object)?.st_mode & 0o777);
        self.replace_by_own(new, to, text, mode)?;
        unlinkat(
            &old.parent,
            &old.name_for_kernel(),
            UnlinkatFlags::NoRemoveDir,
        )?;
        Ok(Some(SyscallAnswer::Value(0)))
    }

    /// Creates a file that no cell has ever had open, replacing what is there, if anything.
    fn replace_by_own(
        &self,
        found: &FoundName,
        real: &Path,
        text: &[u8],
        mode: Mode,
    ) -> Result<()> {
        if found.object.is_none() {
            return self.create_own(found, real, text, mode);
        }
        let number = u64::from_le_bytes(random::bytes().map_err(errno)?);
        let name = format!("{PREFIX}{number:0DIGITS$x}");
        let parent = found.parent.try_clone().map_err(errno)?;
        let temporary = FoundName {
            parent,
            name: name.clone().into(),
            slash: false,
            object: None,
        };
        self.create_own(&temporary, real, text, mode)?;
        renameat(
            &found.parent,
            name.as_str(),
            &found.parent,
            &found.name_for_kernel(),
        )
    }

    /// Handles opening, for writing, a file that links a worktree to its repository; `None` for any other file.
    ///
    /// The valid content is known before git writes it: so it is written here, and git's own bytes are discarded.
    pub(crate) fn link_worktree(
        &self,
        found: &FoundName,
        real: &Path,
        flags: OFlag,
    ) -> Result<Option<SyscallAnswer>> {
        if flags & OFlag::O_ACCMODE != OFlag::O_WRONLY || self.rules.areas.of(real).is_none() {
            return Ok(None);
        }
        let text = match found.name.as_slice() {
            b"gitdir" => {
                self.worktrees.add(&found.parent)?;
                return Ok(None);
            }
            b"commondir" if is_worktree(real.parent()) => b"../..\n".to_vec(),
            b".git" => match self.worktrees.repository_of(real, self.rules) {
                Some(repository) => {
                    let verdict = self.rules.judge().may_come_about(found.at(real));
                    self.admit(Write, real, verdict)?;
                    self.rules.remember_repository(real)?;
                    self.rules.written_links.add(&repository)?;
                    [b"gitdir: ", repository.as_os_str().as_bytes(), b"\n"].concat()
                }
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        self.write_for_caller(found, real, &text, flags).map(Some)
    }

    /// Handles opening the lock file for `MERGE_RR`; `None` for any other file.
    pub(crate) fn lock_rerere(
        &self,
        found: &FoundName,
        real: &Path,
        flags: OFlag,
    ) -> Result<Option<SyscallAnswer>> {
        let is_lock = found.name == RERERE_LOCK.as_bytes()
            && self
                .rules
                .judge()
                .is_rerere_state(&real.with_file_name("MERGE_RR"));
        if is_lock {
            self.write_for_caller(found, real, b"", flags).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Creates a file with this text, and discards what the caller writes.
    fn write_for_caller(
        &self,
        found: &FoundName,
        real: &Path,
        text: &[u8],
        flags: OFlag,
    ) -> Result<SyscallAnswer> {
        let directory = real.parent().unwrap_or(real);
        unnoted(self.rules.judge().may_change(directory), Write)?;
        self.create_own(found, real, text, Mode::from_bits_truncate(0o644))?;
        let nowhere = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(SyscallAnswer::Descriptor(
            nowhere,
            OnExec::close_if(flags.contains(OFlag::O_CLOEXEC)),
        ))
    }

    /// Creates a file that no cell has ever had open.
    fn create_own(&self, found: &FoundName, real: &Path, text: &[u8], mode: Mode) -> Result<()> {
        self.rules.remember(real, open_own(found, text, mode)?)
    }
}

impl SupervisedCall<'_> {
    /// Handles creating the lock of settings that no cell has made; `None` for any other file.
    pub(crate) fn lock_settings(
        &self,
        found: &FoundName,
        real: &Path,
        flags: OFlag,
    ) -> Result<Option<SyscallAnswer>> {
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
        self.settings_locks
            .add(open_own(found, &text, mode)?, &written)?;
        let on_exec = OnExec::close_if(flags.contains(OFlag::O_CLOEXEC));
        Ok(Some(SyscallAnswer::Descriptor(written, on_exec)))
    }

    /// Handles the rename of such a lock; `None` for any other rename.
    ///
    /// # Errors
    /// `EACCES` if what the program has written is not what the settings say.
    pub(crate) fn keep_settings(
        &self,
        old: &FoundName,
        new: &FoundName,
        from: &Path,
        to: &Path,
    ) -> Result<Option<SyscallAnswer>> {
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
        let refused = || self.refused(Write, to, Rule::Content);
        let present = text_of(settings, GIT_CONFIG_MAX)?.ok_or_else(refused)?;
        if old.slash || new.slash || text_of(&written, GIT_CONFIG_MAX)? != Some(present) {
            return Err(refused());
        }
        let lock = OsStr::from_bytes(&old.name);
        unlinkat(&old.parent, lock, UnlinkatFlags::NoRemoveDir)?;
        Ok(Some(SyscallAnswer::Value(0)))
    }

    /// Handles giving such a lock the mode that it has; `None` for any other change.
    pub(crate) fn keep_mode(&self, object: &OwnedFd, mode: Mode) -> Result<Option<SyscallAnswer>> {
        let has = Mode::from_bits_truncate(fstat(object)?.st_mode & 0o7777);
        Ok((has == mode && self.settings_locks.has(object)).then_some(SyscallAnswer::Value(0)))
    }
}

/// Creates a file that no cell has ever had open, and that nobody records.
fn open_own(found: &FoundName, text: &[u8], mode: Mode) -> Result<File> {
    let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let file = openat(&found.parent, ".", flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
    fchmod(&file, mode)?;
    let path = by_descriptor(&file);
    let file = File::from(file);
    (&file).write_all(text).map_err(errno)?;
    linkat(
        AT_FDCWD,
        path.as_str(),
        &found.parent,
        &found.name_for_kernel(),
        AtFlags::AT_SYMLINK_FOLLOW,
    )?;
    Ok(file)
}

/// The content of a file, if it is a regular one of at most `max` bytes.
fn text_of(object: &OwnedFd, max: usize) -> Result<Option<Vec<u8>>> {
    if !is(&fstat(object)?, libc::S_IFREG) {
        return Ok(None);
    }
    let file = open(
        by_descriptor(object).as_str(),
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let mut text = Vec::new();
    File::from(file)
        .take(max as u64 + 1)
        .read_to_end(&mut text)
        .map_err(errno)?;
    Ok((text.len() <= max).then_some(text))
}
