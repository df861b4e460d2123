//! How names are protected in a tree: by the session's names and their equivalents, and by what calls have made.

use crate::judge::Judge;
use crate::names::{Protection, TransitTarget, WhenNew};
use crate::repository::{Member, Repository, as_git_directory};
use crate::tree::Tree;
use crate::verdict::{Rule, Verdict};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

impl<T: Tree> Judge<'_, T> {
    /// How a name is protected.
    pub fn protection(&self, at: &Path) -> Option<Protection> {
        let (paths, names) = (self.protected_as(at), self.tree.names(at));
        paths
            .iter()
            .filter_map(|(_, path)| Some(names.protection(path)?.protection))
            .max()
    }

    /// Whether neither a name nor its place closes a path for reading. Ignores what a call has created.
    pub fn is_open_for_reading(&self, at: &Path) -> bool {
        let names = self.tree.names(at);
        let closed = |path: &[u8]| {
            let mut transit = names.transit(path).into_iter();
            let is_secret = |protection| protection == Protection::All;
            names
                .protection(path)
                .is_some_and(|name| is_secret(name.protection))
                || transit.any(|to| is_secret(to.name.protection))
        };
        self.tree.protection_of_place(at) != Some(Protection::All)
            && !self.protected_as(at).iter().any(|(_, path)| closed(path))
    }

    /// The paths by which names are protected at a path, each with the absolute path that it stands
    /// for: in each zone the path itself, and its equivalents: in repositories with other names, in
    /// those that were created meanwhile, and below what was an alias when the session opened.
    pub fn protected_as(&self, at: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let mut paths = Vec::new();
        for (root, path) in self.tree.in_zones(at) {
            let named = root.join(OsStr::from_bytes(path));
            paths.extend(as_git_directory(path).map(|other| (named.clone(), other)));
            paths.push((named, path.to_vec()));
        }
        let as_it_is = |path: PathBuf| (at.to_owned(), path.into_os_string().into_vec());
        if !paths.is_empty() {
            paths.extend(self.in_new_repositories(at).map(as_it_is));
        }
        paths.extend(self.tree.other_paths(at).map(as_it_is));
        paths
    }

    /// The equivalents of a settings' path in directories that are repositories by now: since the
    /// session opened, the host may have created one with any name.
    fn in_new_repositories(&self, at: &Path) -> impl Iterator<Item = PathBuf> {
        let settings = at.ancestors().filter(|path| {
            path.file_name()
                .is_some_and(|name| Repository::may_be_setting(name.as_bytes()))
        });
        settings.filter_map(move |setting| {
            let directory = setting.parent()?;
            let has = |member: Member| self.tree.exists(&directory.join(member.name));
            let below = at
                .strip_prefix(directory)
                .ok()
                .filter(|_| Repository::has_shape(has))?;
            Some(Path::new(".git").join(below))
        })
    }

    /// Whether the last component of a path by which `at` is protected matches a rule itself.
    pub(crate) fn ends_a_rule(&self, at: &Path, path: &[u8]) -> bool {
        let count = path.split(|byte| *byte == b'/').count();
        let closings = self.tree.names(at).closings(path);
        closings.last().is_some_and(|(names, _)| *names == count)
    }

    /// Whether a new name here is closed even if the session has created it.
    pub fn is_closed_when_new(&self, at: &Path) -> bool {
        let names = self.tree.names(at);
        let is_closed = |(_, new): &(usize, WhenNew)| *new == WhenNew::Closed;
        self.protected_as(at)
            .iter()
            .any(|(_, path)| names.closings(path).iter().any(is_closed))
    }

    /// Whether names below a path would be protected by its place: `.git` leads to `.git/hooks`.
    pub(crate) fn leads_to_protected(&self, at: &Path) -> bool {
        let names = self.tree.names(at);
        self.tree
            .in_zones(at)
            .any(|(_, path)| names.leads_to(path).is_some())
    }

    /// Whether what lies below a directory is protected by the directory's place.
    pub(crate) fn reaches_below(&self, at: &Path) -> bool {
        let names = self.tree.names(at);
        self.tree.has_place_below(at)
            || self
                .protected_as(at)
                .iter()
                .any(|(_, path)| names.reaches_below(path))
    }

    /// Whether this file, which has a protected name, was created by the session, under names that are closed when new at most as
    /// far as `max`.
    pub(crate) fn is_own(
        &self,
        object: T::Handle<'_>,
        at: &Path,
        max: WhenNew,
    ) -> io::Result<bool> {
        self.tree.settled(object, at, |at| {
            self.all_created(at, max, |_| self.tree.has_made(object))
        })
    }

    /// Whether each protected name in a path is closed when new at most as far as `max`, and was created by a
    /// call of this session. For the path's own name, `last` decides that.
    pub(crate) fn all_created(
        &self,
        at: &Path,
        max: WhenNew,
        last: impl Fn(&Path) -> bool,
    ) -> bool {
        let names = self.tree.names(at);
        self.protected_as(at).iter().all(|(named, path)| {
            let total = path.split(|byte| *byte == b'/').count();
            names.closings(path).into_iter().all(|(count, new)| {
                let name = total
                    .checked_sub(count)
                    .and_then(|above| named.ancestors().nth(above));
                let made = |name| {
                    if count == total {
                        last(name)
                    } else {
                        self.tree.has_made_at(name)
                    }
                };
                name.is_some_and(|name| self.is_within(new, name, max) && made(name))
            })
        })
    }

    /// Whether a protected name that says `new` is closed when new at most as far as `max`.
    fn is_within(&self, new: WhenNew, name: &Path, max: WhenNew) -> bool {
        match new {
            WhenNew::Open | WhenNew::Closed => new <= max,
            WhenNew::Harmless => new <= max || self.is_nobodys_place(name),
        }
    }

    /// Whether nobody has a habit of starting programs where `name` is: in packages, or in a directory that has come about since the
    /// session opened.
    fn is_nobodys_place(&self, name: &Path) -> bool {
        self.tree.is_package(name) || name.parent().is_some_and(|at| self.tree.is_younger(at))
    }

    /// Whether the content of a new file decides if it may have this name.
    pub fn is_judged(&self, at: &Path) -> bool {
        let (paths, names) = (self.protected_as(at), self.tree.names(at));
        let closings: Vec<_> = paths
            .iter()
            .map(|(_, path)| (path, names.closings(path)))
            .collect();
        let ends = closings
            .iter()
            .all(|(path, closings)| closings.is_empty() || self.ends_a_rule(at, path));
        let strongest = closings.iter().flat_map(|(_, closings)| closings);
        self.tree.is_writable(at)
            && ends
            && self.tree.protection_of_place(at).is_none()
            && strongest.map(|(_, new)| *new).max() == Some(WhenNew::Harmless)
            && !self.is_nobodys_place(at)
    }

    /// Whether what a call has created is recorded under this name.
    pub fn is_recorded_at(&self, at: &Path) -> bool {
        let protected = self
            .protected_as(at)
            .iter()
            .any(|(_, path)| self.ends_a_rule(at, path));
        protected || self.transit(at).is_some()
    }

    /// The protection of the name for which `at` is in transit, if there is one and `at` is not protected itself.
    pub(crate) fn transit(&self, at: &Path) -> Option<Protection> {
        let protections = self
            .targets(at)
            .into_iter()
            .map(|(protection, _)| protection);
        protections.max().filter(|_| self.protection(at).is_none())
    }

    /// May a name in transit be created here? Not if its final name is the host's: the host's
    /// program renames by path, and would not know what it renames.
    pub(crate) fn may_begin_transit(&self, at: &Path) -> Verdict {
        let theirs = |(_, target): &(Protection, PathBuf)| {
            self.tree.exists(target) && !self.tree.has_made_at(target)
        };
        let closed = self.targets(at).iter().any(theirs) && self.protection(at).is_none();
        Verdict::refuse_if(closed, Rule::Transit)
    }

    /// May a file in transit be changed, linked or moved? Only one that this session has created: any other is on its way from the host.
    /// A descriptor of `.git/config.lock`, taken while the user's git writes it, is one of `.git/config` a moment later.
    pub(crate) fn may_touch_in_transit(&self, at: &Path, object: T::Handle<'_>) -> Verdict {
        let theirs = self.transit(at).is_some() && !self.tree.has_made(object);
        Verdict::refuse_if(theirs, Rule::Transit)
    }

    /// The protected names for which `at` may be in transit.
    fn targets(&self, at: &Path) -> Vec<(Protection, PathBuf)> {
        let mut targets = Vec::new();
        for (named, path) in self.protected_as(at) {
            for TransitTarget { name, path } in self.tree.names(at).transit(&path) {
                let last = Path::new(OsStr::from_bytes(&path)).file_name();
                targets.extend(last.map(|last| (name.protection, named.with_file_name(last))));
            }
        }
        targets
    }
}
