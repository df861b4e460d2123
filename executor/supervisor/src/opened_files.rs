//! Opens files for the caller.

use crate::answer::{Pending, SyscallAnswer, errno_of, set_flags};
use crate::find::{FoundName, LastLink};
use crate::object::{Handle, by_descriptor, errno, is, kind_of, real};
use crate::open_flags::OpenFlags;
use crate::supervised_call::SupervisedCall;
use broker_protocol::AttemptKind::{Read, Write};
use executor_spec::created::identity_of;
use executor_sys::file;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, fstat};
use policies_guard::{Access, Change, New, ObjectKind, Rule, Verdict};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// How often an open is retried when its name appears and vanishes between two checks.
const TRIES: usize = 40;

impl SupervisedCall<'_> {
    /// `openat` and its older forms.
    pub(crate) fn open(&self, from: i32, path: u64, how: OpenFlags) -> Result<SyscallAnswer> {
        // Unlike elsewhere the caller is not checked: one that is gone gets no descriptor, and opening for reading has no other effect.
        let path = self.caller.string(path)?;
        let plain = how.only_reads();
        if let Some(answer) = plain.and_then(|flags| self.read(from, path.as_bytes(), flags)) {
            return answer;
        }
        self.check()?;
        let exclusive = how.has(OFlag::O_CREAT) && how.has(OFlag::O_EXCL);
        let link = LastLink::follow_if(!exclusive && !how.has(OFlag::O_NOFOLLOW));
        if !exclusive
            && let Some((object, real)) = self.search().by_kernel(from, path.as_bytes(), link)
        {
            return self.open_object(object, &real, how);
        }
        // Another process may create or remove the name between our steps; then all is looked at again.
        for _ in 0..TRIES {
            let found = self.search().find(from, path.as_bytes(), link);
            let found = if how.writes() {
                found.map_err(self.unseen(path.as_bytes()))
            } else {
                found
            }?;
            match found {
                FoundName {
                    object: Some(_), ..
                } if exclusive => return self.pass_over_present(&found, how).ok_or(Errno::EEXIST),
                FoundName {
                    object: Some(object),
                    slash,
                    ..
                } => {
                    if slash && !is(&fstat(&object)?, libc::S_IFDIR) {
                        return Err(Errno::ENOTDIR);
                    }
                    let path = real(&object)?;
                    return self.open_object(object, &path, how);
                }
                found if !how.has(OFlag::O_CREAT) => drop(found),
                found => match self.create(&found, how) {
                    Err(Errno::EEXIST) if !exclusive => continue,
                    created => return created,
                },
            }
            return Err(Errno::ENOENT);
        }
        Err(Errno::ELOOP)
    }

    /// Opens what was found; in place of a file with names elsewhere that is opened for a change, its copy.
    fn open_object(&self, object: OwnedFd, real: &Path, how: OpenFlags) -> Result<SyscallAnswer> {
        let stat = fstat(&object)?;
        if how.writes() && is(&stat, libc::S_IFREG) && self.rules.is_shared(&object, &stat)? {
            let may = |object: &OwnedFd, path: &Path, stat: &FileStat| {
                self.admit(
                    Write,
                    path,
                    self.may_open(object, path, stat, Access::Write)?,
                )
            };
            let (object, real) = self.separate(object, Write, how.kept_bytes(), may)?;
            let stat = fstat(&object)?;
            return self.open_checked(object, &real, &stat, how);
        }
        self.open_checked(object, real, &stat, how)
    }

    fn open_checked(
        &self,
        object: OwnedFd,
        real: &Path,
        stat: &FileStat,
        how: OpenFlags,
    ) -> Result<SyscallAnswer> {
        const TERMINAL: libc::dev_t = libc::makedev(5, 0);
        const TERMINALS: [u32; 9] = [5, 136, 137, 138, 139, 140, 141, 142, 143];
        if let Some(answer) = self.replace_or_admit(&object, real, stat, how)? {
            return Ok(answer);
        }
        let on_exec = how.on_exec();
        let directory = is(stat, libc::S_IFDIR);
        if how.has(OFlag::O_DIRECTORY) && !directory {
            return Err(Errno::ENOTDIR);
        }
        if is(stat, libc::S_IFLNK) {
            return Err(Errno::ELOOP);
        }
        if directory && how.has(OFlag::O_CREAT) {
            return Err(Errno::EISDIR);
        }
        // Opening it would open this process's own terminal: the user's.
        if is(stat, libc::S_IFCHR) && stat.st_rdev == TERMINAL {
            let terminal = self.terminals.controlling(self.rules.pty(), self.caller);
            return terminal.map(|terminal| SyscallAnswer::Descriptor(terminal, on_exec));
        }
        if is(stat, libc::S_IFCHR) && TERMINALS.contains(&libc::major(stat.st_rdev)) {
            self.terminals.any.set(true);
        }
        if is(stat, libc::S_IFIFO) {
            // Only one with a name waits for its other end.
            return match real.is_absolute() {
                true => Pending::fifo(object, how.reopen(), on_exec),
                false => Pending::open_now(&object, how.reopen(), on_exec),
            };
        }
        let opened = if how.has(OFlag::O_TMPFILE) {
            self.caller
                .with_mask(|| open(by_descriptor(&object).as_str(), how.reopen(), how.mode))
        } else {
            open(by_descriptor(&object).as_str(), how.reopen(), Mode::empty())
        };
        let opened = opened.map_err(|errno| {
            if how.writes() {
                self.refused_by_kernel(real)(errno)
            } else {
                errno
            }
        });
        Ok(SyscallAnswer::Descriptor(opened?, on_exec))
    }

    /// Opens what stands in the place of an object: a terminal of the call, the session's hosts, a view of a secret. Any other object must be
    /// one that the rules let be opened.
    fn replace_or_admit(
        &self,
        object: &OwnedFd,
        real: &Path,
        stat: &FileStat,
        how: OpenFlags,
    ) -> Result<Option<SyscallAnswer>> {
        let on_exec = how.on_exec();
        if is(stat, libc::S_IFCHR)
            && let Some(terminal) = self.terminals.open(self.rules.pty(), stat.st_rdev)?
        {
            set_flags(&terminal, how.flags)?;
            return Ok(Some(SyscallAnswer::Descriptor(terminal, on_exec)));
        }
        let hosts_file = self.rules.hosts_file.as_ref().filter(|_| !how.writes());
        if let Some(file) = hosts_file.filter(|file| file.is_at(real)) {
            if how.has(OFlag::O_DIRECTORY) {
                return Err(Errno::ENOTDIR);
            }
            return file.open(on_exec).map(Some);
        }
        match self
            .rules
            .readable_secret(object, real, stat)
            .filter(|_| !how.writes())
        {
            Some(_) if how.has(OFlag::O_DIRECTORY) => return Err(Errno::ENOTDIR),
            Some(secret) => {
                if let Some(masked) = self.rules.in_place_of(secret, on_exec) {
                    return masked.map(Some);
                }
            }
            None => {
                let opens = self.may_open(object, real, stat, how.access())?;
                // The kernel's own errors are reported as they are.
                self.admit(how.kind(), real, opens).map_err(|refused| {
                    let is_missing = !how.writes() && self.is_missing(real, stat);
                    if is_missing { Errno::ENOENT } else { refused }
                })?;
            }
        }
        Ok(None)
    }

    fn may_open(
        &self,
        object: &OwnedFd,
        at: &Path,
        stat: &FileStat,
        access: Access,
    ) -> Result<Verdict> {
        let (object, kind) = (Handle::with(object, stat), kind_of(stat));
        self.rules.verdict(Change::Open {
            object,
            at,
            kind,
            access,
        })
    }

    fn create(&self, found: &FoundName, how: OpenFlags) -> Result<SyscallAnswer> {
        if found.slash {
            return Err(Errno::EISDIR);
        }
        let _lock = self.rules.lock_renames()?;
        let real = found.real(&self.rules.areas)?;
        if let Some(linked) = self.link_worktree(found, &real, how.flags)? {
            return Ok(linked);
        }
        if let Some(locked) = self.lock_rerere(found, &real, how.flags)? {
            return Ok(locked);
        }
        if let Some(locked) = self.lock_settings(found, &real, how.flags)? {
            return Ok(locked);
        }
        let new = New::Object(ObjectKind::File);
        let verdict = self.judge_new(found, &real, new)?;
        // A program for ablation alone lets a refused name pass here; then the second look still has the verdict.
        if let Verdict::Refuse(rule) = self.rules.enforce(verdict) {
            if let Some(passed) = self.pass_over_file(&real, how, verdict) {
                return Ok(passed);
            }
            let refused = self.refused(Write, &real, rule);
            return self
                .rules
                .areas
                .zone_of_package(&real)
                .map_or(Err(refused), |zone| self.unnamed(zone, how, refused));
        }
        let flags =
            how.flags | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let made = self
            .caller
            .with_mask(|| openat(&found.parent, &found.name_for_kernel(), flags, how.mode));
        let made = made.map_err(self.refused_by_kernel(&real))?;
        self.check_made(found, &real, new)?;
        self.rules.remember(&real, &made)?;
        self.note_index_lock(found, &real, &made);
        self.note_name(&real, ObjectKind::File, verdict, None, || {
            identity_of(&made)
        });
        Ok(SyscallAnswer::Descriptor(made, how.on_exec()))
    }

    /// Opens a file without a name in place of one that a package contains and that may not be created, so that unpacking continues without
    /// it. `refused` if the file system does not support that. It lies in `zone` and can never get a name: `O_EXCL` ensures that here.
    fn unnamed(&self, zone: &Path, how: OpenFlags, refused: Errno) -> Result<SyscallAnswer> {
        let access = how.flags & OFlag::O_ACCMODE;
        if access == OFlag::O_RDONLY {
            return Err(refused);
        }
        let flags = access | OFlag::O_TMPFILE | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let made = self
            .caller
            .with_mask(|| open(zone, flags, how.mode))
            .map_err(|_| refused)?;
        Ok(SyscallAnswer::Descriptor(made, how.on_exec()))
    }

    pub(crate) fn truncate(&self, path: u64, length: u64) -> Result<SyscallAnswer> {
        let object = self.object(libc::AT_FDCWD, path, LastLink::Follow)?;
        if !self.rules.fits(length as i64) {
            return Err(Errno::EFBIG);
        }
        let (object, _) = self.separate(object, Write, length, |object, path, stat| {
            self.admit(
                Write,
                path,
                self.may_open(object, path, stat, Access::Write)?,
            )
        })?;
        let stat = fstat(&object)?;
        if is(&stat, libc::S_IFIFO) {
            return Err(Errno::EINVAL);
        }
        nix::unistd::truncate(by_descriptor(&object).as_str(), length as i64)?;
        Ok(SyscallAnswer::Value(0))
    }

    /// `inotify_add_watch`.
    pub(crate) fn watch(&self, inotify: i32, path: u64, mask: u32) -> Result<SyscallAnswer> {
        let link = LastLink::follow_if(mask & libc::IN_DONT_FOLLOW == 0);
        let object = self.object(libc::AT_FDCWD, path, link)?;
        let (stat, path) = (fstat(&object)?, real(&object)?);
        // A program that has read its settings waits for them to change.
        if self.rules.readable_secret(&object, &path, &stat).is_none() {
            self.admit(
                Read,
                &path,
                self.may_open(&object, &path, &stat, Access::Read)?,
            )?;
        }
        if !self.rules.areas.is_visible(&path) {
            return Err(errno_of(Rule::Outside, Read));
        }
        let inotify = self.watcher(inotify)?;
        self.check()?;
        let path = std::ffi::CString::new(by_descriptor(&object)).map_err(|_| Errno::EINVAL)?;
        let mask = mask & !libc::IN_DONT_FOLLOW;
        file::watch(inotify.as_fd(), &path, mask)
            .map(|watch| SyscallAnswer::Value(watch.into()))
            .map_err(errno)
    }
}
