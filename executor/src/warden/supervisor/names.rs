//! Makes, moves and removes names for the caller.

use super::call::Call;
use super::caller::PLACE;
use super::find::{Found, by_descriptor, is, kind};
use super::{Answer, Result, rules, with_mask};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat, mknodat};
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl Call<'_> {
    /// `mkdirat`.
    pub fn make_directory(&self, from: i32, path: u64, mode: u64) -> Result<Answer> {
        let _turn = self.rules.turn()?;
        let found = self.name(from, path)?;
        // What makes a way makes each of its directories, those that lie outside too.
        if found.object.is_some() {
            return Err(Errno::EEXIST);
        }
        let real = found.real()?;
        self.rules.may_make(&real)?;
        let mode = Mode::from_bits_truncate(mode as libc::mode_t);
        with_mask(self.caller.mask()?, || mkdirat(&found.parent, &found.last(), mode))?;
        self.remember_new(&found, &real)
    }

    /// `mknodat`: the filter lets files, FIFOs and sockets come here.
    pub fn make_node(&self, from: i32, path: u64, mode: u64) -> Result<Answer> {
        let _turn = self.rules.turn()?;
        let found = self.name(from, path)?;
        let mode = mode as libc::mode_t;
        let kind = match mode & libc::S_IFMT {
            0 => libc::S_IFREG,
            kind => kind,
        };
        let real = found.real()?;
        self.rules.may_have(&real, kind)?;
        let (kind, mode) = (SFlag::from_bits_truncate(kind), Mode::from_bits_truncate(mode));
        with_mask(self.caller.mask()?, || mknodat(&found.parent, &found.last(), kind, mode, 0))?;
        self.remember_new(&found, &real)
    }

    /// Remembers a name that was just made.
    fn remember_new(&self, found: &Found, real: &Path) -> Result<Answer> {
        let made =
            openat(&found.parent, OsStr::from_bytes(&found.name), PLACE | OFlag::O_NOFOLLOW, Mode::empty());
        made.and_then(|made| self.rules.remember(real, made))?;
        Ok(Answer::Value(0))
    }

    /// `symlinkat`.
    pub fn make_link(&self, text: u64, from: i32, path: u64) -> Result<Answer> {
        let text = self.text(text)?;
        let _turn = self.rules.turn()?;
        let found = self.name(from, path)?;
        self.rules.may_have(&found.real()?, libc::S_IFLNK)?;
        symlinkat(text.as_c_str(), &found.parent, &found.last())?;
        Ok(Answer::Value(0))
    }

    /// `unlinkat`.
    pub fn remove(&self, from: i32, path: u64, flags: i32) -> Result<Answer> {
        let _turn = self.rules.turn()?;
        let found = self.name(from, path)?;
        self.rules.may_remove(&found.real()?)?;
        let how = match flags {
            0 => UnlinkatFlags::NoRemoveDir,
            libc::AT_REMOVEDIR => UnlinkatFlags::RemoveDir,
            _ => return Err(Errno::EINVAL),
        };
        unlinkat(&found.parent, &found.last(), how)?;
        Ok(Answer::Value(0))
    }

    /// `linkat`.
    pub fn link(&self, old: (i32, u64), new: (i32, u64), flags: i32) -> Result<Answer> {
        let object = if flags & libc::AT_EMPTY_PATH != 0 && self.text(old.1)?.is_empty() {
            self.caller.place(old.0)?
        } else {
            self.object(old.0, old.1, flags & libc::AT_SYMLINK_FOLLOW != 0)?
        };
        let _turn = self.rules.turn()?;
        let new = self.name(new.0, new.1)?;
        let (from, to) = (rules::real(&object)?, new.real()?);
        let stat = fstat(&object)?;
        self.rules.may_link(&from, &stat)?;
        self.rules.may_have(&to, kind(&stat))?;
        self.same_area(&from, &to)?;
        let path = by_descriptor(&object);
        linkat(AT_FDCWD, path.as_str(), &new.parent, &new.last(), AtFlags::AT_SYMLINK_FOLLOW)?;
        self.rules.remember(&to, &object)?;
        Ok(Answer::Value(0))
    }

    /// `renameat2`.
    pub fn rename(&self, old: (i32, u64), new: (i32, u64), flags: u32) -> Result<Answer> {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
        let _turn = self.rules.turn()?;
        let (old, new) = (self.name(old.0, old.1)?, self.name(new.0, new.1)?);
        let (from, to) = (old.real()?, new.real()?);
        if flags.is_empty()
            && let Some(settled) = self.settle(&old, &new, &from, &to)?
        {
            return Ok(settled);
        }
        self.may_move(&old, &from, &to)?;
        let exchange = flags.contains(RenameFlags::RENAME_EXCHANGE);
        if exchange {
            self.may_move(&new, &to, &from)?;
        }
        self.same_area(&from, &to)?;
        renameat2(&old.parent, &old.last(), &new.parent, &new.last(), flags)?;
        for (moved, name) in [(&old.object, &to), (&new.object, &from)] {
            if let Some(moved) = moved.as_ref().filter(|_| name == &to || exchange) {
                self.rules.remember(name, moved)?;
            }
        }
        Ok(Answer::Value(0))
    }

    fn may_move(&self, old: &Found, from: &Path, to: &Path) -> Result<()> {
        self.rules.may_change(from)?;
        let Some(object) = &old.object else { return Err(Errno::ENOENT) };
        let stat = fstat(object)?;
        self.rules.may_have(to, kind(&stat))?;
        if is(&stat, libc::S_IFDIR) {
            self.rules.may_move(&old.parent, OsStr::from_bytes(&old.name), from)?;
        }
        Ok(())
    }

    /// Protected names are names of a zone: what moves out of it would lose its protection. To the caller, zones and
    /// scratch space are file systems of their own.
    fn same_area(&self, from: &Path, to: &Path) -> Result<()> {
        let area = |path| self.rules.area(path).map(|(area, _)| area);
        if area(from) == area(to) { Ok(()) } else { Err(Errno::EXDEV) }
    }

    /// A name, which is not followed where it is a link.
    fn name(&self, from: i32, path: u64) -> Result<Found> {
        let path = self.text(path)?;
        let path = path.as_bytes();
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(path.len(), |last| last + 1);
        let mut found = self.search().find(from, &path[..end], false)?;
        found.slash = end < path.len();
        Ok(found)
    }
}
