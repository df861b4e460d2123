//! What the judge asks, answered from the disk and from what the session knows: see [`policies_guard::Tree`].

use crate::caller::PATH_ONLY;
use crate::entries::each_entry;
use crate::object::{Handle, kind_of, real};
use crate::rules::AccessRules;
use executor_spec::birth_time::born_object;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, fstatat};
use policies::Access;
use policies_guard::{Matcher, ObjectKind, Protection, Tree, Verdict};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

impl Tree for AccessRules {
    type Handle<'h> = Handle<'h>;

    fn names(&self, at: &Path) -> &Matcher {
        self.names_at(at)
    }

    fn in_zones<'p>(&'p self, at: &'p Path) -> impl Iterator<Item = (&'p Path, &'p [u8])> {
        self.areas.in_zones(at)
    }

    fn other_paths<'p>(&'p self, at: &'p Path) -> impl Iterator<Item = PathBuf> {
        self.objects.other_paths(at)
    }

    fn is_writable(&self, at: &Path) -> bool {
        matches!(self.areas.of(at), Some((_, Access::Write)))
    }

    fn is_enclosed(&self) -> bool {
        self.areas.own_root
    }

    fn may_reach(&self, object: Handle, at: &Path, access: Access) -> io::Result<bool> {
        self.check_process(at)?;
        Ok(self.areas.may_reach(at, object.state().as_ref(), access))
    }

    fn is_package(&self, at: &Path) -> bool {
        self.areas.zone_of_package(at).is_some()
    }

    fn is_one_area(&self, from: &Path, to: &Path) -> bool {
        let area = |at| self.areas.of(at).map(|(area, _)| area);
        area(from) == area(to)
    }

    fn holds_zone(&self, directory: &Path) -> bool {
        self.areas.lie_below(directory)
    }

    fn protection_of_place(&self, at: &Path) -> Option<Protection> {
        self.objects.protection_of_place(at)
    }

    fn has_place_below(&self, at: &Path) -> bool {
        self.objects.has_place_below(at)
    }

    fn protection_of_object(&self, object: Handle) -> Option<Protection> {
        let id = object.state().map(|stat| (stat.st_dev, stat.st_ino))?;
        self.objects.protection(id, || born_object(object.fd))
    }

    fn was_repository(&self, directory: &Path) -> bool {
        self.repositories.contains(directory)
    }

    fn was_directory(&self, at: &Path) -> bool {
        self.directories.was_there(at)
    }

    fn is_younger(&self, at: &Path) -> bool {
        let born = at.symlink_metadata().and_then(|found| found.created());
        born.is_ok_and(|born| born > self.opened)
    }

    fn is_leased(&self, object: Handle, at: &Path) -> bool {
        object.state().is_some_and(|stat| self.has_lease(at, &stat))
    }

    fn has_made(&self, object: Handle) -> bool {
        self.created.has(object.fd)
    }

    fn has_made_at(&self, at: &Path) -> bool {
        self.created.has_at(at)
    }

    fn has_room(&self, at: &Path) -> bool {
        self.created.has_room(at)
    }

    fn is_new_directory(&self, directory: Handle, at: &Path) -> bool {
        self.directories.is_new(directory.fd, at)
    }

    fn repositories_moved(&self, from: &Path, to: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.made_repositories.moved(from, to)?)
    }

    fn leads_through(&self, at: &Path) -> bool {
        self.written_links.lead_through(at)
    }

    fn may_write_heads(&self) -> bool {
        true
    }

    fn exists(&self, at: &Path) -> bool {
        at.symlink_metadata().is_ok()
    }

    fn has(&self, directory: Handle, name: &str) -> bool {
        fstatat(directory.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
    }

    fn in_directory<R>(&self, at: &Path, ask: impl FnOnce(Handle) -> R) -> Option<R> {
        let directory = open(at, PATH_ONLY | OFlag::O_NOFOLLOW, Mode::empty()).ok()?;
        Some(ask(Handle::new(&directory)))
    }

    fn kind(&self, directory: Handle, name: &OsStr) -> io::Result<ObjectKind> {
        Ok(kind_of(&fstatat(
            directory.fd,
            name,
            AtFlags::AT_SYMLINK_NOFOLLOW,
        )?))
    }

    fn settled<R>(&self, object: Handle, _: &Path, ask: impl FnOnce(&Path) -> R) -> io::Result<R> {
        let _lock = self.lock_renames()?;
        Ok(ask(&real(&object.fd)?))
    }

    fn each_below(
        &self,
        parent: Handle,
        name: &OsStr,
        visit: impl Fn(Handle, &Path) -> io::Result<Verdict>,
    ) -> io::Result<Verdict> {
        each_entry(parent.fd, name, visit)
    }
}
