//! Where the repository of a project lies, and which of its files decide what git tracks.

use crate::created_record::{inspect, state};
use crate::head::head_references;
use executor_spec::sandbox::Rooted;
use std::fs;
use std::path::{Path, PathBuf};

/// The repository of a project.
#[derive(Clone, Debug)]
pub struct ProjectRepository {
    pub project: PathBuf,
    /// Its repository's common directory.
    pub common: PathBuf,
    /// The directory in that which contains the project's `HEAD`.
    pub own: PathBuf,
}

impl ProjectRepository {
    /// The repository of a session's project, if there is one that its cells can write.
    pub fn of(spec: &Rooted) -> Option<Self> {
        let inside = spec.project.join(".git");
        let (common, own) = match &spec.linked {
            Some(linked) => (linked.common.clone(), linked.own.clone()),
            None => {
                fs::symlink_metadata(&inside)
                    .ok()
                    .filter(fs::Metadata::is_dir)?;
                (inside.clone(), inside)
            }
        };
        Some(Self {
            project: spec.project.clone(),
            common,
            own,
        })
    }

    /// State that changes when another name becomes tracked; the index is based on `shared`.
    pub(super) fn state(&self, shared: &[String]) -> TrackedState {
        self.files(shared)
            .iter()
            .map(|path| state_of(path))
            .collect()
    }

    /// The files that decide what is tracked.
    pub(super) fn files(&self, shared: &[String]) -> Vec<PathBuf> {
        let packed = self.common.join("packed-refs");
        let indexes = shared
            .iter()
            .map(String::as_str)
            .filter(|name| !name.contains('/'));
        let files = std::iter::once("index")
            .chain(indexes)
            .map(|name| self.own.join(name))
            .chain([packed]);
        files
            .chain(head_references(&self.own, &self.common))
            .collect()
    }
}

/// The state of each file that decides what is tracked; `None` for a missing one.
pub(crate) type TrackedState = Vec<Option<[i64; 7]>>;

fn state_of(path: &Path) -> Option<[i64; 7]> {
    inspect(path).ok().map(|(_, metadata)| state(&metadata))
}
