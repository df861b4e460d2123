//! Answers to the judge about a session's tree when no call runs in it: see [`policies_guard::Tree`]. For those who act for the session
//! itself, with the user's rights: nothing is a call's own to them, and names open nothing.

use broker_protocol::Zone;
use executor_spec::birth_time::born_object;
use executor_spec::sandbox::SandboxSpec;
use executor_spec::undo_directory;
use nix::fcntl::AtFlags;
use nix::sys::stat::{fstat, fstatat};
use policies::Access;
use policies_guard::{Matcher, Protection, Tree};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The directories in which calls may change names.
pub(crate) struct SessionTree<'s>(pub &'s SandboxSpec);

impl<'s> SessionTree<'s> {
    fn roots(&self) -> impl Iterator<Item = &'s Path> {
        let spec = self.0;
        let zones = [Zone::Project, Zone::Central].into_iter();
        let zones = zones
            .filter(|zone| spec.command_access(*zone) == Access::Write)
            .map(|zone| spec.zone(zone).0);
        let linked = spec
            .linked
            .iter()
            .filter(|_| spec.policy.project == Access::Write);
        zones.chain(linked.map(|linked| linked.common.as_path()))
    }

    /// The root below which a path lies.
    pub(crate) fn root_of(&self, at: &Path) -> Option<&'s Path> {
        self.roots().find(|root| at.starts_with(root))
    }
}

impl Tree for SessionTree<'_> {
    type Handle<'h> = BorrowedFd<'h>;

    fn names(&self, _: &Path) -> &Matcher {
        &self.0.policy.matcher
    }

    fn in_zones<'p>(&'p self, at: &'p Path) -> impl Iterator<Item = (&'p Path, &'p [u8])> {
        self.roots().filter_map(|root| {
            let path = at.strip_prefix(root).ok()?;
            Some((root, path.as_os_str().as_bytes()))
        })
    }

    fn other_paths<'p>(&'p self, at: &'p Path) -> impl Iterator<Item = PathBuf> {
        self.0.found().objects.other_paths(at)
    }

    /// Lazaret keeps something of its own in one directory.
    fn is_writable(&self, at: &Path) -> bool {
        let own = self.0.central.join(undo_directory::NAME);
        lies_below(at, self.roots(), &own)
    }

    fn may_reach(&self, _: BorrowedFd, _: &Path, _: Access) -> io::Result<bool> {
        Ok(true)
    }

    fn protection_of_place(&self, at: &Path) -> Option<Protection> {
        self.0.found().objects.protection_of_place(at)
    }

    fn has_place_below(&self, at: &Path) -> bool {
        let found = self.0.found();
        let mut pins = found.pins.iter();
        found.objects.has_place_below(at) || pins.any(|pin| pin.path.starts_with(at))
    }

    fn protection_of_object(&self, object: BorrowedFd) -> Option<Protection> {
        let Ok(stat) = fstat(object) else {
            return Some(Protection::All);
        };
        let objects = &self.0.found().objects;
        objects.protection((stat.st_dev, stat.st_ino), || born_object(object))
    }

    fn was_repository(&self, directory: &Path) -> bool {
        self.0.found().objects.repositories.contains(directory)
    }

    fn exists(&self, at: &Path) -> bool {
        at.symlink_metadata().is_ok()
    }

    fn has(&self, directory: BorrowedFd, name: &str) -> bool {
        fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
    }
}

/// Whether a path lies below one of `roots` and not in `own`, with no `..` on the way; links are not followed.
fn lies_below<'a>(path: &Path, mut roots: impl Iterator<Item = &'a Path>, own: &Path) -> bool {
    let is_plain = path
        .components()
        .skip(1)
        .all(|name| matches!(name, Component::Normal(_)));
    is_plain && roots.any(|root| path != root && path.starts_with(root)) && !path.starts_with(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports that a first process might make when it was taken over.
    #[test]
    fn nothing_outside_the_roots_is_in_reach() {
        let in_reach = |path: &str| {
            let roots = ["/h/p", "/h/c"].map(Path::new).into_iter();
            lies_below(Path::new(path), roots, Path::new("/h/c/.lazaret"))
        };
        assert!(in_reach("/h/p/a") && in_reach("/h/c/x/y"));
        for path in [
            "/h/p",
            "/h/p/",
            "/h/pp/a",
            "/h/p/../secret",
            "/h/p/a/../../secret",
            "/h/p/..",
            "/h/c/o/../.lazaret/project",
            "/h/c/.lazaret",
            "/h/c/.lazaret/quarantine/x",
            "h/p/a",
            "a/h/p/x",
            "",
        ] {
            assert!(!in_reach(path), "{path}");
        }
    }
}
