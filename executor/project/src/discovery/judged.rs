//! The judge's verdicts on what a search finds: see [`policies_guard::Tree`].

use super::ZoneSearch;
use policies_guard::{Access, AtRest, Change, Matcher, Protection, Tree, Verdict, judge};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl ZoneSearch<'_> {
    /// How calls are kept from this. Each entry costs one question if they may change it, as most, and nothing is asked of the disk.
    pub(super) fn protection(&self, found: AtRest<'_>) -> Option<Protection> {
        let is_closed = |access| {
            let verdict = judge(self, Change::Find { found, access });
            !verdict.is_ok_and(Verdict::is_allowed)
        };
        match is_closed(Access::Write) {
            true if is_closed(Access::Read) => Some(Protection::All),
            true => Some(Protection::Write),
            false => None,
        }
    }
}

/// The tree as far as it was searched. No object is open, and no call makes anything yet.
impl Tree for ZoneSearch<'_> {
    type Handle<'h> = ();

    fn names(&self, _: &Path) -> &Matcher {
        self.names
    }

    fn in_zones<'p>(&'p self, at: &'p Path) -> impl Iterator<Item = (&'p Path, &'p [u8])> {
        self.zones.iter().filter_map(|zone| {
            let path = at.strip_prefix(zone).ok()?;
            Some((*zone, path.as_os_str().as_bytes()))
        })
    }

    fn other_paths<'p>(&'p self, at: &'p Path) -> impl Iterator<Item = PathBuf> {
        self.objects.other_paths(at)
    }

    fn is_writable(&self, _: &Path) -> bool {
        false
    }

    fn may_reach(&self, _: (), _: &Path, _: Access) -> io::Result<bool> {
        Ok(false)
    }

    fn protection_of_place(&self, at: &Path) -> Option<Protection> {
        self.objects.protection_of_place(at)
    }

    fn has_place_below(&self, at: &Path) -> bool {
        self.objects.has_place_below(at)
    }

    fn protection_of_object(&self, _: ()) -> Option<Protection> {
        Some(Protection::All)
    }

    fn was_repository(&self, directory: &Path) -> bool {
        self.objects.repositories.contains(directory)
    }

    fn exists(&self, at: &Path) -> bool {
        at.symlink_metadata().is_ok()
    }

    fn has(&self, (): (), _: &str) -> bool {
        false
    }
}
