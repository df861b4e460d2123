//! Chooses the repositories that are watched while calls run, and what becomes of those for which there is no room.
//!
//! Commands can make any number of repositories, so the order decides whose are watched: the project's own first, those of the
//! central root last, and among others the older ones first. No command sets a birth time, so what it makes later never comes
//! before what the user had. A repository over the bound is closed for writing as a whole: then there is nothing to watch.

use super::ZoneSearch;
use crate::protected::REPOSITORIES_MAX;
use executor_spec::also_closed::{AlsoClosed, WhyClosed};
use executor_spec::birth_time::born;
use executor_spec::pins::PinMode;
use policies_guard::Protection;
use std::path::{Path, PathBuf};

/// The likely owner of a repository; what comes first is watched first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RepositoryOwner {
    /// That of the project itself.
    Project,
    /// One in the project, or beside it.
    InProject,
    /// One in the central root, where only commands work.
    InCentral,
}

impl ZoneSearch<'_> {
    /// Chooses the repositories to be watched, and closes the others.
    pub(super) fn choose_repositories(&mut self) {
        let inside = |path: &&PathBuf| self.zones.iter().any(|zone| path.starts_with(zone));
        let mut all: Vec<PathBuf> = self
            .objects
            .repositories
            .iter()
            .filter(inside)
            .cloned()
            .collect();
        // Without their ages: each costs a system call.
        all.sort_by_cached_key(|path| self.whose(path));
        if all.len() > REPOSITORIES_MAX {
            all.sort_by_cached_key(|path| (self.whose(path), born(path), path.clone()));
            for path in all.split_off(REPOSITORIES_MAX) {
                self.objects.places.insert(path.clone(), Protection::Write);
                self.pins.add(path.clone(), PinMode::ReadOnly);
                self.also_closed.push(AlsoClosed {
                    path,
                    why: WhyClosed::NotWatched,
                });
            }
        }
        self.objects.watched = all;
    }

    fn whose(&self, path: &Path) -> RepositoryOwner {
        let linked = self.objects.linked.as_ref();
        let is_linked = linked.is_some_and(|linked| path == linked.common || path == linked.own);
        if is_linked || path.parent() == Some(self.project) && path.ends_with(".git") {
            return RepositoryOwner::Project;
        }
        // Either root may lie in the other.
        let is_in_project =
            path.starts_with(self.project) && self.project.starts_with(self.central);
        if path.starts_with(self.central) && !is_in_project {
            RepositoryOwner::InCentral
        } else {
            RepositoryOwner::InProject
        }
    }
}
