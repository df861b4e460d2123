//! How names and files are protected: by the policy's names, by their place, or by what they were when the session opened.

use crate::rules::AccessRules;
use executor_spec::birth_time::born_object;
use nix::sys::stat::FileStat;
use policies_guard::{Member, Protection, Repository, WhenNew, as_git_directory};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

impl AccessRules {
    /// How a name is protected.
    pub(crate) fn protection(&self, real: &Path) -> Option<Protection> {
        let (paths, names) = (self.protected_as(real), self.names(real));
        paths
            .iter()
            .filter_map(|(_, path)| Some(names.protection(path)?.protection))
            .max()
    }

    /// Whether neither a name nor its place closes `real` for reading. Ignores what a cell has created.
    pub(crate) fn is_open_for_reading(&self, real: &Path) -> bool {
        let names = self.names(real);
        let closed = |path: &[u8]| {
            let transit = || {
                names
                    .transit(path)
                    .into_iter()
                    .any(|to| to.name.protection == Protection::All)
            };
            names
                .protection(path)
                .is_some_and(|name| name.protection == Protection::All)
                || transit()
        };
        self.objects.protection_of_place(real) != Some(Protection::All)
            && !self.protected_as(real).iter().any(|(_, path)| closed(path))
    }

    /// How a file that was protected when the session opened is protected, under any name.
    pub(crate) fn protection_of_object(
        &self,
        object: &OwnedFd,
        stat: &FileStat,
    ) -> Option<Protection> {
        self.objects
            .protection((stat.st_dev, stat.st_ino), || born_object(object))
    }

    /// The paths by which names are protected at `real`, each with the absolute path that it stands
    /// for: in each zone the path itself, and its equivalents: in repositories with other names, in
    /// those that were created meanwhile, and below what was an alias when the session opened.
    pub(crate) fn protected_as(&self, real: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let mut paths = Vec::new();
        for (root, path) in self.areas.in_zones(real) {
            let named = root.join(OsStr::from_bytes(path));
            paths.extend(as_git_directory(path).map(|other| (named.clone(), other)));
            paths.push((named, path.to_vec()));
        }
        let bytes = |path: PathBuf| path.into_os_string().into_vec();
        if !paths.is_empty() {
            paths.extend(in_new_repositories(real).map(|path| (real.to_owned(), bytes(path))));
        }
        paths.extend(
            self.objects
                .other_paths(real)
                .map(|path| (real.to_owned(), bytes(path))),
        );
        paths
    }

    /// Whether the last component of a path by which `real` is protected matches a rule itself.
    pub(crate) fn ends_a_rule(&self, real: &Path, path: &[u8]) -> bool {
        let count = path.split(|byte| *byte == b'/').count();
        self.names(real)
            .closings(path)
            .last()
            .is_some_and(|(names, _)| *names == count)
    }

    /// Whether a new name here is closed even if the session has created it.
    pub(crate) fn is_closed_when_new(&self, real: &Path) -> bool {
        let closed = |path: &[u8]| {
            self.names(real)
                .closings(path)
                .iter()
                .any(|(_, new)| *new == WhenNew::Closed)
        };
        self.protected_as(real).iter().any(|(_, path)| closed(path))
    }

    /// Whether names below a path would be protected by its place: `.git` leads to `.git/hooks`.
    pub(crate) fn leads_to_protected(&self, real: &Path) -> bool {
        self.areas
            .in_zones(real)
            .any(|(_, name)| self.names(real).leads_to(name).is_some())
    }

    /// Whether what lies below a directory is protected by the directory's place.
    pub(crate) fn reaches_below(&self, real: &Path) -> bool {
        self.objects.has_place_below(real)
            || self
                .protected_as(real)
                .iter()
                .any(|(_, path)| self.names(real).reaches_below(path))
    }
}

/// The equivalents of a settings' path in directories that are repositories by now: since the
/// session opened, the host may have created one with any name.
fn in_new_repositories(real: &Path) -> impl Iterator<Item = PathBuf> {
    let settings = real.ancestors().filter(|path| {
        path.file_name()
            .is_some_and(|name| Repository::may_be_setting(name.as_bytes()))
    });
    settings.filter_map(|setting| {
        let directory = setting.parent()?;
        let has = |member: Member| directory.join(member.name).symlink_metadata().is_ok();
        let below = real
            .strip_prefix(directory)
            .ok()
            .filter(|_| Repository::has_shape(has))?;
        Some(Path::new(".git").join(below))
    })
}
