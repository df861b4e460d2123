//! Opens files for the caller.

use super::call::Call;
use super::caller::errno;
use super::find::{Found, by_descriptor, is};
use super::waiting::Waiting;
use super::{Answer, Result, rules, with_mask};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open, openat};
use nix::sys::stat::{Mode, fstat};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// How often a name may appear and vanish between two looks.
const TRIES: usize = 40;

/// How a file is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct How {
    flags: OFlag,
    mode: Mode,
}

impl How {
    /// As the caller gave it.
    pub fn new(flags: u64, mode: u64) -> Self {
        let flags = OFlag::from_bits_retain(flags as i32);
        Self { flags, mode: Mode::from_bits_truncate(mode as libc::mode_t) }
    }

    fn has(&self, flag: OFlag) -> bool {
        self.flags.contains(flag)
    }

    fn writes(&self) -> bool {
        self.flags & OFlag::O_ACCMODE != OFlag::O_RDONLY
            || self.has(OFlag::O_TRUNC)
            || self.has(OFlag::O_TMPFILE)
    }

    /// For a file that is there, by a link that must be followed. Never as our controlling terminal.
    fn again(&self) -> OFlag {
        let gone = OFlag::O_CREAT | OFlag::O_NOFOLLOW;
        let excl = if self.has(OFlag::O_TMPFILE) { OFlag::empty() } else { OFlag::O_EXCL };
        (self.flags - gone - excl) | OFlag::O_NOCTTY | OFlag::O_CLOEXEC
    }
}

impl Call<'_> {
    /// `openat` and its older forms.
    pub fn open(&self, from: i32, path: u64, how: How) -> Result<Answer> {
        let path = self.text(path)?;
        let new = how.has(OFlag::O_CREAT) && how.has(OFlag::O_EXCL);
        let follow = !new && !how.has(OFlag::O_NOFOLLOW);
        if !new && let Some((object, real)) = self.search().quickly(from, path.as_bytes(), follow) {
            return self.open_object(object, &real, how);
        }
        for _ in 0..TRIES {
            let found = self.search().find(from, path.as_bytes(), follow)?;
            match found {
                Found { object: Some(_), .. } if new => return Err(Errno::EEXIST),
                Found { object: Some(object), slash, .. } => {
                    if slash && !is(&fstat(&object)?, libc::S_IFDIR) {
                        return Err(Errno::ENOTDIR);
                    }
                    let real = rules::real(&object)?;
                    return self.open_object(object, &real, how);
                }
                found if !how.has(OFlag::O_CREAT) => drop(found),
                // Somebody has made it meanwhile: it must be looked at.
                found => match self.create(&found, how) {
                    Err(Errno::EEXIST) if !new => continue,
                    created => return created,
                },
            }
            return Err(Errno::ENOENT);
        }
        Err(Errno::ELOOP)
    }

    fn open_object(&self, object: OwnedFd, real: &Path, how: How) -> Result<Answer> {
        const TERMINAL: libc::dev_t = libc::makedev(5, 0);
        const TERMINALS: [u32; 9] = [5, 136, 137, 138, 139, 140, 141, 142, 143];
        let stat = fstat(&object)?;
        let on_exec = how.has(OFlag::O_CLOEXEC);
        if is(&stat, libc::S_IFCHR)
            && let Some(terminal) = self.terminal(stat.st_rdev)?
        {
            unblock(&terminal, how.flags)?;
            return Ok(Answer::Descriptor(terminal, on_exec));
        }
        self.rules.may_open(&object, real, &stat, how.writes())?;
        let directory = is(&stat, libc::S_IFDIR);
        if how.has(OFlag::O_DIRECTORY) && !directory {
            return Err(Errno::ENOTDIR);
        }
        if is(&stat, libc::S_IFLNK) {
            return Err(Errno::ELOOP);
        }
        if directory && how.has(OFlag::O_CREAT) {
            return Err(Errno::EISDIR);
        }
        // It would be this process's terminal: the user's.
        if is(&stat, libc::S_IFCHR) && stat.st_rdev == TERMINAL {
            return self.own_terminal().map(|terminal| Answer::Descriptor(terminal, on_exec));
        }
        if is(&stat, libc::S_IFCHR) && TERMINALS.contains(&libc::major(stat.st_rdev)) {
            self.terminals.any.set(true);
        }
        if is(&stat, libc::S_IFIFO) {
            let named = real.is_absolute();
            return Waiting::fifo(object, how.again(), on_exec, named);
        }
        let opened = if how.has(OFlag::O_TMPFILE) {
            with_mask(self.caller.mask()?, || open(by_descriptor(&object).as_str(), how.again(), how.mode))
        } else {
            open(by_descriptor(&object).as_str(), how.again(), Mode::empty())
        };
        Ok(Answer::Descriptor(opened?, on_exec))
    }

    fn create(&self, found: &Found, how: How) -> Result<Answer> {
        if found.slash {
            return Err(Errno::EISDIR);
        }
        let _turn = self.rules.turn()?;
        let real = found.real()?;
        if let Some(linked) = self.link_worktree(found, &real, how.flags)? {
            return Ok(linked);
        }
        self.rules.may_have(&real, libc::S_IFREG)?;
        let flags = how.flags | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let made = with_mask(self.caller.mask()?, || openat(&found.parent, &found.last(), flags, how.mode))?;
        self.rules.remember(&real, &made)?;
        Ok(Answer::Descriptor(made, how.has(OFlag::O_CLOEXEC)))
    }

    /// `truncate`.
    pub fn truncate(&self, path: u64, length: u64) -> Result<Answer> {
        let object = self.object(libc::AT_FDCWD, path, true)?;
        let (stat, real) = (fstat(&object)?, rules::real(&object)?);
        self.rules.may_open(&object, &real, &stat, true)?;
        if !self.rules.fits(length as i64) {
            return Err(Errno::EFBIG);
        }
        if is(&stat, libc::S_IFIFO) {
            return Err(Errno::EINVAL);
        }
        nix::unistd::truncate(by_descriptor(&object).as_str(), length as i64)?;
        Ok(Answer::Value(0))
    }

    /// `inotify_add_watch`.
    pub fn watch(&self, inotify: i32, path: u64, mask: u32) -> Result<Answer> {
        let object = self.object(libc::AT_FDCWD, path, mask & libc::IN_DONT_FOLLOW == 0)?;
        let (stat, real) = (fstat(&object)?, rules::real(&object)?);
        self.rules.may_open(&object, &real, &stat, false)?;
        if !self.rules.seen(&real) {
            return Err(Errno::EACCES);
        }
        let inotify = self.caller.descriptor(inotify)?;
        self.check()?;
        let path = std::ffi::CString::new(by_descriptor(&object)).map_err(|_| Errno::EINVAL)?;
        let mask = mask & !libc::IN_DONT_FOLLOW;
        crate::sys::watch(inotify.as_fd(), &path, mask)
            .map(|watch| Answer::Value(watch.into()))
            .map_err(errno)
    }
}

/// Gives a descriptor the status flags that were asked for.
pub fn unblock(fd: &OwnedFd, flags: OFlag) -> Result<()> {
    fcntl(fd, FcntlArg::F_SETFL(flags)).map(drop)
}
