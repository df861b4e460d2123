//! Creates, moves and removes names for the caller.

use crate::answer::SyscallAnswer;
use crate::caller::PATH_ONLY;
use crate::find::{FoundName, LastLink};
use crate::object::{Handle, by_descriptor, is, kind_of, real};
use crate::second_look::NewName;
use crate::supervised_call::SupervisedCall;
use broker_protocol::AttemptKind::Write;
use executor_spec::created::identity_of;
use executor_spec::known_directories::Identity;
use executor_sys::withdraw_name::withdraw_name;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat, mknodat};
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};
use policies_guard::{Change, Described, Moment, New, ObjectKind, Verdict};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl SupervisedCall<'_> {
    /// `mkdirat`.
    pub(crate) fn make_directory(&self, from: i32, path: u64, mode: u64) -> Result<SyscallAnswer> {
        let _lock = self.rules.lock_renames()?;
        let found = self.name(from, path)?;
        // Programs like `mkdir -p` create each directory of a path, even those outside the zones: for existing ones they expect EEXIST.
        found.require_free()?;
        let real = found.real(&self.rules.areas)?;
        let verdict = self.judge_new(&found, &real, New::Directory)?;
        self.admit(Write, &real, self.rules.enforce(verdict))?;
        self.rules.remember_repository(&real)?;
        if self.rules.judge().is_closed_when_new(&real) {
            self.admit(Write, &real, self.empty_directories.add(&found)?)?;
        }
        let mode = Mode::from_bits_truncate(mode as libc::mode_t);
        let made = self
            .caller
            .with_mask(|| mkdirat(&found.parent, &found.name_for_kernel(), mode));
        made.map_err(self.refused_by_kernel(&real))?;
        self.check_made(&found, &real, New::Directory)?;
        let made = self.remember_new(&found, &real)?;
        self.rules.remember_directory(&real, &made)?;
        self.note_name(&real, ObjectKind::Directory, verdict, None, || {
            identity_of(&made)
        });
        Ok(SyscallAnswer::Value(0))
    }

    /// `mknodat`: the filter passes files, FIFOs and sockets on to this.
    pub(crate) fn make_node(&self, from: i32, path: u64, mode: u64) -> Result<SyscallAnswer> {
        let _lock = self.rules.lock_renames()?;
        let found = self.name(from, path)?;
        found.require_free()?;
        let mode = mode as libc::mode_t;
        let (flags, kind) = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => (libc::S_IFREG, ObjectKind::File),
            flags => (flags, ObjectKind::Other),
        };
        let real = found.real(&self.rules.areas)?;
        let verdict = self.judge_new(&found, &real, New::Object(kind))?;
        self.admit(Write, &real, self.rules.enforce(verdict))?;
        let (flags, mode) = (
            SFlag::from_bits_truncate(flags),
            Mode::from_bits_truncate(mode),
        );
        let made = self
            .caller
            .with_mask(|| mknodat(&found.parent, &found.name_for_kernel(), flags, mode, 0));
        made.map_err(self.refused_by_kernel(&real))?;
        self.check_made(&found, &real, New::Object(kind))?;
        let made = self.remember_new(&found, &real)?;
        self.note_name(&real, kind, verdict, None, || identity_of(&made));
        Ok(SyscallAnswer::Value(0))
    }

    /// The judge on a name that a call is about to make.
    pub(crate) fn judge_new(&self, found: &FoundName, real: &Path, new: New) -> Result<Verdict> {
        self.verdict_on(found, real, new, Moment::Before)
    }

    fn verdict_on(
        &self,
        found: &FoundName,
        real: &Path,
        new: New,
        moment: Moment,
    ) -> Result<Verdict> {
        let name = found.at(real);
        self.rules.verdict(Change::Create { name, new, moment })
    }

    /// Takes back a name that was just made, where a repository has come about with it.
    pub(crate) fn check_made(&self, found: &FoundName, real: &Path, new: New) -> Result<()> {
        let shape = self.verdict_on(found, real, new, Moment::Made)?;
        let shape = self.rules.enforce(shape);
        if !shape.is_allowed() {
            withdraw_name(&found.parent, Path::new(OsStr::from_bytes(&found.name)))?;
        }
        self.admit(Write, real, shape)
    }

    /// Records a name that was just created, and opens it as a path descriptor.
    fn remember_new(&self, found: &FoundName, real: &Path) -> Result<OwnedFd> {
        let made = open_made(found)?;
        self.rules.remember(real, &made)?;
        Ok(made)
    }

    /// Notes a name of this kind that was just made or, with `from`, moved there, if it must be looked at again when the call has
    /// ended. `verdict` is what the rules said about it. What existed before is noted only where they refused the new name: otherwise it
    /// may be the user's.
    pub(crate) fn note_name(
        &self,
        real: &Path,
        kind: ObjectKind,
        verdict: Verdict,
        from: Option<&Path>,
        object: impl FnOnce() -> Result<Identity>,
    ) {
        if verdict.is_allowed() && !self.rules.may_be_misplaced_later(real, kind) {
            return;
        }
        // Without an identity nothing could be taken: there the rules stand alone.
        if let Ok(object) = object() {
            self.new_names
                .borrow_mut()
                .add(NewName::new(real, kind, object, from, verdict));
        }
    }

    /// `symlinkat`.
    pub(crate) fn make_link(&self, target: u64, from: i32, path: u64) -> Result<SyscallAnswer> {
        let target = self.string(target)?;
        let _lock = self.rules.lock_renames()?;
        let found = self.name(from, path)?;
        // Package managers register a project in their store by a link, and expect to hear that it is there.
        found.require_free()?;
        let real = found.real(&self.rules.areas)?;
        let new = New::Link {
            target: target.as_bytes(),
        };
        let verdict = self.judge_new(&found, &real, new)?;
        self.admit(Write, &real, self.rules.enforce(verdict))?;
        symlinkat(target.as_c_str(), &found.parent, &found.name_for_kernel())
            .map_err(self.refused_by_kernel(&real))?;
        self.check_made(&found, &real, new)?;
        self.note_name(&real, ObjectKind::Link, verdict, None, || {
            open_made(&found).and_then(identity_of)
        });
        Ok(SyscallAnswer::Value(0))
    }

    /// `unlinkat`.
    pub(crate) fn remove(&self, from: i32, path: u64, flags: i32) -> Result<SyscallAnswer> {
        let _lock = self.rules.lock_renames()?;
        let path = self.string(path)?;
        let how = match flags {
            0 => UnlinkatFlags::NoRemoveDir,
            libc::AT_REMOVEDIR => UnlinkatFlags::RemoveDir,
            _ => return Err(Errno::EINVAL),
        };
        if let Some(removed) = self.remove_unprotected(from, path.as_bytes(), how) {
            return Ok(removed);
        }
        // Git removes files that may not exist: for a missing name, or one in a missing directory, the answer is never a refusal.
        let found = self.found(from, path.as_bytes())?;
        if found.object.is_none() {
            return Err(Errno::ENOENT);
        }
        let real = found.real(&self.rules.areas)?;
        let verdict = self.may_remove(&real)?;
        if let Some(passed) = self.pass_over_removal(&found, &real, verdict) {
            return Ok(passed);
        }
        self.admit(Write, &real, verdict)?;
        unlinkat(&found.parent, &found.name_for_kernel(), how)
            .map_err(self.refused_by_kernel(&real))?;
        Ok(SyscallAnswer::Value(0))
    }

    /// Removes a name in a tree of the session's own if nothing protects it, as with most names of a large directory: without a look at
    /// what has it. `None` where that is not done, for whatever reason.
    fn remove_unprotected(
        &self,
        from: i32,
        path: &[u8],
        how: UnlinkatFlags,
    ) -> Option<SyscallAnswer> {
        let (parent, name) = self.search().parent_of(from, path, &self.known)?;
        let directory = real(&parent).ok()?;
        let name = Path::new(OsStr::from_bytes(name));
        let real = directory.join(name);
        let storage = self.rules.areas.check_private(&parent, &directory).ok()?;
        let verdict = storage.and_try(|| self.may_remove(&real)).ok()?;
        if real.starts_with("/proc") || !verdict.is_allowed() {
            return None;
        }
        unlinkat(&parent, name, how)
            .ok()
            .map(|()| SyscallAnswer::Value(0))
    }

    fn may_remove(&self, real: &Path) -> Result<Verdict> {
        self.rules.verdict(Change::Remove { at: real })
    }

    /// `linkat`.
    pub(crate) fn link(
        &self,
        old: (i32, u64),
        new: (i32, u64),
        flags: i32,
    ) -> Result<SyscallAnswer> {
        let object = if flags & libc::AT_EMPTY_PATH != 0 && self.string(old.1)?.is_empty() {
            self.caller.path_of(old.0)?
        } else {
            self.object(
                old.0,
                old.1,
                LastLink::follow_if(flags & libc::AT_SYMLINK_FOLLOW != 0),
            )?
        };
        let _lock = self.rules.lock_renames()?;
        let new = self.name(new.0, new.1)?;
        let (from, to) = (real(&object)?, new.real(&self.rules.areas)?);
        let stat = fstat(&object)?;
        let (kind, has_others) = (kind_of(&stat), stat.st_nlink > 0);
        let link = Change::Link {
            object: Handle::with(&object, &stat),
            at: &from,
            kind,
        };
        self.admit(Write, &from, self.rules.verdict(link)?)?;
        // One without a name gets its first.
        let second = New::Second { kind, has_others };
        let verdict = self.judge_new(&new, &to, second)?;
        self.admit(Write, &to, self.rules.enforce(verdict))?;
        self.admit(Write, &to, self.rules.judge().may_cross(&from, &to))?;
        let path = by_descriptor(&object);
        linkat(
            AT_FDCWD,
            path.as_str(),
            &new.parent,
            &new.name_for_kernel(),
            AtFlags::AT_SYMLINK_FOLLOW,
        )?;
        self.rules.remember_link(&stat, &from, &to);
        self.check_made(&new, &to, second)?;
        self.rules.remember(&to, &object)?;
        if !verdict.is_allowed() {
            self.note_name(&to, kind, verdict, None, || identity_of(&object));
        }
        Ok(SyscallAnswer::Value(0))
    }

    /// `renameat2`.
    pub(crate) fn rename(
        &self,
        old: (i32, u64),
        new: (i32, u64),
        flags: u32,
    ) -> Result<SyscallAnswer> {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
        // It leaves a device behind, which no program of a cell may make.
        if flags.contains(RenameFlags::RENAME_WHITEOUT) {
            return Err(Errno::EPERM);
        }
        let _lock = self.rules.lock_renames()?;
        let (old, new) = (self.name(old.0, old.1)?, self.name(new.0, new.1)?);
        let (from, to) = (old.real(&self.rules.areas)?, new.real(&self.rules.areas)?);
        // The protected one of the two names.
        let closed = if self.rules.judge().protection(&from).is_some() {
            &from
        } else {
            &to
        };
        let keeps = flags == RenameFlags::RENAME_NOREPLACE;
        if keeps && new.object.is_some() {
            return Err(Errno::EEXIST);
        }
        if (flags.is_empty() || keeps)
            && let Some(replaced) = self.replace_by_content(&old, &new, &from, &to)?
        {
            return Ok(replaced);
        }
        let mut verdict = self.may_rename((&old, &from), (&new, &to), flags)?;
        if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            verdict = verdict.and_try(|| self.may_rename((&new, &to), (&old, &from), flags))?;
        }
        let closed = match verdict {
            Verdict::Refuse(rule) if rule.is_of_new_repositories() => &to,
            Verdict::Refuse(_) | Verdict::Allow => closed,
        };
        self.admit(Write, closed, self.rules.enforce(verdict))?;
        self.admit(Write, &to, self.rules.judge().may_cross(&from, &to))?;
        renameat2(
            &old.parent,
            &old.name_for_kernel(),
            &new.parent,
            &new.name_for_kernel(),
            flags,
        )
        .map_err(self.refused_by_kernel(&to))?;
        self.rules.made_repositories.follow(&from, &to, flags)?;
        self.have_moved((&old, &from), (&new, &to), flags, verdict)?;
        Ok(SyscallAnswer::Value(0))
    }

    /// Handles a rename on which the content of the file decides; `None` for any other rename.
    fn replace_by_content(
        &self,
        old: &FoundName,
        new: &FoundName,
        from: &Path,
        to: &Path,
    ) -> Result<Option<SyscallAnswer>> {
        let replaced = match self.keep_settings(old, new, from, to) {
            Ok(None) => self.replace_in_repository(old, new, from, to),
            other => other,
        };
        match replaced {
            Ok(None) => self.replace_package_config(old, new, from, to),
            other => other,
        }
    }

    /// Checks and records what a rename has moved; `verdict` is what the rules said about it.
    fn have_moved(
        &self,
        (old, from): (&FoundName, &Path),
        (new, to): (&FoundName, &Path),
        flags: RenameFlags,
        verdict: Verdict,
    ) -> Result<()> {
        let there = old.object.as_ref().map(|object| (object, new, from, to));
        let back = new
            .object
            .as_ref()
            .filter(|_| flags.contains(RenameFlags::RENAME_EXCHANGE))
            .map(|object| (object, old, to, from));
        let states = |(object, at, was, name)| Ok((object, fstat(object)?, at, was, name));
        let moved = there
            .into_iter()
            .chain(back)
            .map(states)
            .collect::<Result<Vec<_>>>()?;
        for (_, stat, _, was, name) in &moved {
            self.rules.remember_moved_links(stat, was, name);
        }
        for (_, stat, at, _, name) in &moved {
            self.check_made(at, name, New::Object(kind_of(stat)))?;
        }
        for (object, _, _, _, name) in &moved {
            self.rules.remember_moved(name, object)?;
        }
        // Of two names of one file, the kernel moves neither.
        let identity = |found: &FoundName| {
            found
                .object
                .as_ref()
                .and_then(|object| identity_of(object).ok())
        };
        if identity(new).is_none_or(|replaced| identity(old) != Some(replaced)) {
            let mut names = self.new_names.borrow_mut();
            if moved.iter().any(|(_, stat, ..)| is(stat, libc::S_IFDIR)) {
                names.note_moved_directory();
            }
            names.follow(from, to, flags);
        }
        for (object, stat, _, was, name) in moved.into_iter().filter(|_| !verdict.is_allowed()) {
            self.note_name(name, kind_of(&stat), verdict, Some(was), || {
                identity_of(object)
            });
        }
        Ok(())
    }

    fn may_rename(
        &self,
        (old, from): (&FoundName, &Path),
        (new, to): (&FoundName, &Path),
        flags: RenameFlags,
    ) -> Result<Verdict> {
        let Some(object) = &old.object else {
            let source = self.rules.judge().may_change(from);
            return source.and_try(|| Err(Errno::ENOENT));
        };
        let stat = fstat(object)?;
        let replaced = new
            .object
            .as_ref()
            .filter(|_| !flags.contains(RenameFlags::RENAME_EXCHANGE));
        self.rules.verdict(Change::Rename {
            object: Described {
                object: Handle::with(object, &stat),
                kind: kind_of(&stat),
                has_others: stat.st_nlink > 1,
            },
            from: old.at(from),
            to: new.at(to),
            replaced: replaced.map(Handle::new),
        })
    }

    /// A name in its directory that is created or moved; a link is not followed.
    fn name(&self, from: i32, path: u64) -> Result<FoundName> {
        let path = self.string(path)?;
        let path = path.as_bytes();
        self.found(from, path)
            .map_err(self.unseen(without_slashes(path)))
    }

    fn found(&self, from: i32, path: &[u8]) -> Result<FoundName> {
        let name = without_slashes(path);
        let mut found = self.search().find(from, name, LastLink::Keep)?;
        found.slash = name.len() < path.len();
        Ok(found)
    }
}

/// A path without slashes at its end; one of slashes alone stays.
fn without_slashes(path: &[u8]) -> &[u8] {
    let end = path
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(path.len(), |last| last + 1);
    &path[..end]
}

/// Opens a name that was just created as a path descriptor.
fn open_made(found: &FoundName) -> Result<OwnedFd> {
    openat(
        &found.parent,
        OsStr::from_bytes(&found.name),
        PATH_ONLY | OFlag::O_NOFOLLOW,
        Mode::empty(),
    )
}
