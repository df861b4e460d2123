//! The second layer behind the rules on new names: when nothing of a call lives any more, what it has made among the names that
//! programs outside act on is looked at as what it is by then. What must not be there loses its name; the broker takes it into
//! quarantine. A call that was answered wrongly, in whatever order its steps came, is found by its result.
//!
//! *Does not*: bring back what was there before, or look at what no call has told this process of.

use crate::entries::each_entry;
use crate::git_rules::is_member;
use crate::made_names::{Extent, MadeIn};
use crate::object::real;
use crate::rules::AccessRules;
use crate::taken_away::{Misplaced, TakenAway};
use executor_layers::take_back::{Taken, take_back};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{FileStat, Mode, fchmodat, fstat, fstatat};
use policies::WhenNew;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl AccessRules {
    /// Whether programs outside act on what has this name by itself, or may when it is of this kind (`S_IF*`). Asked of each name that is
    /// made: its paths are found once.
    pub(crate) fn is_acted_on(&self, real: &Path, kind: libc::mode_t) -> bool {
        if self.areas.in_zones(real).next().is_none() {
            return false;
        }
        let names = self.names(real);
        let (directory, special) = (kind == libc::S_IFDIR, kind != libc::S_IFREG && kind != libc::S_IFDIR);
        let by_name = |path: &[u8]| {
            names.leads_to(path).is_some()
                || names.closings(path).iter().any(|(_, new)| special || *new == WhenNew::Closed)
                || !names.transit(path).is_empty()
                || directory && names.reaches_below(path)
        };
        is_member(real)
            || self.objects.protection_of_place(real).is_some()
            || self.protected_as(real).iter().any(|(_, path)| by_name(path))
            || directory && self.objects.has_place_below(real)
            || special && self.is_read_by_git(real)
    }

    /// Looks at what a call has made, when it is dead, and takes away what must not be there.
    pub(crate) fn take_misplaced(&self, made: &[MadeIn]) -> Vec<TakenAway> {
        if made.is_empty() {
            return Vec::new();
        }
        // Without the lock another cell may make a name between; what is there now is taken away all the same.
        let _lock = self.lock_renames();
        let mut taken = Vec::new();
        for MadeIn { directory, names, .. } in made {
            let Ok(place) = real(directory) else { continue };
            for (name, extent) in names {
                taken.extend(self.take_if_misplaced(directory, name, &place, *extent));
            }
        }
        taken
    }

    /// Of a directory that was moved all of it is taken where one thing in it must not be there.
    fn take_if_misplaced(
        &self,
        parent: &OwnedFd,
        name: &OsStr,
        place: &Path,
        extent: Extent,
    ) -> Option<TakenAway> {
        let path = place.join(name);
        let mut why = self.misplaced(parent, name, &path);
        if why.is_none() && extent == Extent::Below {
            why = self.misplaced_below(parent, name, &path);
        }
        let why = why?;
        let taken = take_back(parent, Path::new(name)).or_else(|_| {
            // A directory that its owner may not write: what the program has closed is opened.
            let mode = Mode::from_bits_truncate(fstat(parent)?.st_mode & 0o7777) | Mode::S_IRWXU;
            fchmodat(parent, ".", mode, nix::sys::stat::FchmodatFlags::FollowSymlink)?;
            take_back(parent, Path::new(name))
        });
        let aside = match taken {
            Ok(Taken::Removed) => None,
            Ok(Taken::Renamed(aside)) => Some(place.join(aside)),
            Err(Errno::ENOENT) => return None,
            Err(_) => Some(path.clone()),
        };
        Some(TakenAway { why, path, aside })
    }

    fn misplaced_below(&self, parent: &OwnedFd, name: &OsStr, path: &Path) -> Option<Misplaced> {
        let why = RefCell::new(None);
        let looked = each_entry(parent, name, |directory, below| {
            let name = below.file_name().unwrap_or_default();
            *why.borrow_mut() = self.misplaced(directory, name, &path.join(below));
            if why.borrow().is_some() { Err(Errno::EACCES) } else { Ok(()) }
        });
        match (why.into_inner(), looked) {
            (Some(why), _) => Some(why),
            // It is a file, or gone.
            (None, Ok(()) | Err(Errno::ENOTDIR | Errno::ELOOP | Errno::ENOENT)) => None,
            // What nobody can look through to the end.
            (None, Err(_)) => Some(Misplaced::Protected),
        }
    }

    /// Why what has this name must not have it, if it is so.
    fn misplaced(&self, parent: impl AsFd, name: &OsStr, path: &Path) -> Option<Misplaced> {
        let stat = fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        let kind = stat.st_mode & libc::S_IFMT;
        if self.is_from_before(&parent, name, &stat) {
            return None;
        }
        let shaped = || self.may_shape(&parent, path, kind).is_err();
        let closed = || self.is_closed_when_new(path) || self.objects.protection_of_place(path).is_some();
        match kind {
            libc::S_IFDIR if self.is_a_file_to_git(path) => Some(Misplaced::InTheWay),
            libc::S_IFREG if closed() || self.leads_to_protected(path) => Some(Misplaced::Protected),
            libc::S_IFREG if self.may_set_out(path).is_err() => Some(Misplaced::InTheWay),
            libc::S_IFDIR | libc::S_IFREG => shaped().then_some(Misplaced::Repository),
            libc::S_IFLNK if self.is_misplaced_link(&parent, name, path) => Some(Misplaced::Link),
            libc::S_IFLNK => shaped().then_some(Misplaced::Repository),
            _ => self.is_in_the_way(path).then_some(Misplaced::InTheWay),
        }
    }

    /// Whether it was protected when the session opened: what no call has made is not taken away.
    fn is_from_before(&self, parent: impl AsFd, name: &OsStr, stat: &FileStat) -> bool {
        let known = self.objects.files.contains_key(&(stat.st_dev, stat.st_ino));
        known
            && crate::made_names::open_path(parent, name)
                .is_ok_and(|object| self.protection_of_object(&object, stat).is_some())
    }

    fn is_misplaced_link(&self, parent: impl AsFd, name: &OsStr, path: &Path) -> bool {
        let target = readlinkat(parent, name).unwrap_or_default();
        self.protection(path).is_some()
            || self.reaches_below(path)
            || self.may_link_here(path, Some(target.as_bytes())).is_err()
    }

    fn is_in_the_way(&self, path: &Path) -> bool {
        self.leads_to_protected(path) || self.protection(path).is_some() || self.is_read_by_git(path)
    }
}
