//! Files with protected names that are a session's to use from its start: those that hold what is committed, and those that cells of
//! earlier sessions have made, as long as nobody else has changed them (`created_record.rs`).

use crate::created::CreatedFiles;
use crate::created_record::{CreatedRecord, inspect, state};
use executor_layers::protected::Discovery;
use executor_layers::spec::SandboxSpec;
use policies::{Protection, WhenNew};
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The repository of a project.
#[derive(Clone, Copy, Debug)]
pub struct ProjectRepository<'p> {
    /// The project root.
    pub project: &'p Path,
    /// Its repository's common directory.
    pub common: &'p Path,
    /// The directory with the project's `HEAD`, in that.
    pub own: &'p Path,
}

/// The memory of what the cells of a session have made, with what they may use besides; that is released from `found`. `committed`
/// says which of some files have the content that `HEAD` has under their path.
///
/// # Errors
/// The kernel has no memory for it.
pub fn open_created_files(
    spec: &SandboxSpec,
    found: &mut Discovery,
    committed: impl FnOnce(&ProjectRepository, &[PathBuf]) -> Vec<PathBuf>,
) -> io::Result<(OwnedFd, CreatedRecord)> {
    let created = CreatedFiles::new()?;
    let secrets = secrets(spec, found);
    for path in committed_of(spec, &secrets, committed) {
        let Ok((file, metadata)) = inspect(&path) else { continue };
        // It is what it was before it was read.
        let same = secrets.get(&path).is_some_and(|before| state(before) == state(&metadata));
        if same && created.add(&file).is_ok() {
            found.release(&path, (metadata.dev(), metadata.ino()));
        }
    }
    CreatedRecord::open(spec, found, created)
}

/// Files of the project with names of secrets that commands may make, each by one name only.
fn secrets(spec: &SandboxSpec, found: &Discovery) -> BTreeMap<PathBuf, Metadata> {
    let matcher = &spec.policy.matcher;
    let is_secret = |path: &Path| {
        let below = path.strip_prefix(&spec.project).map(|below| below.as_os_str().as_bytes());
        below.is_ok_and(|below| {
            matcher.protection(below).is_some_and(|rule| rule.protection == Protection::All)
                && matcher.closings(below).iter().all(|(_, new)| *new == WhenNew::Open)
        })
    };
    let named = found.named.iter().filter(|path| is_secret(path));
    let open = named.filter(|path| found.objects.protection_of_place(path).is_none());
    let files = open.filter_map(|path| Some((path.clone(), inspect(path).ok()?.1)));
    files.filter(|(_, metadata)| metadata.is_file() && metadata.nlink() == 1).collect()
}

/// Those of `secrets` that are committed as they are.
fn committed_of(
    spec: &SandboxSpec,
    secrets: &BTreeMap<PathBuf, Metadata>,
    committed: impl FnOnce(&ProjectRepository, &[PathBuf]) -> Vec<PathBuf>,
) -> Vec<PathBuf> {
    let inside = spec.project.join(".git");
    let (common, own) = match &spec.linked {
        Some(linked) => (&linked.common, &linked.own),
        None if fs::symlink_metadata(&inside).is_ok_and(|metadata| metadata.is_dir()) => (&inside, &inside),
        None => return Vec::new(),
    };
    let files: Vec<PathBuf> = secrets.keys().cloned().collect();
    let repository = ProjectRepository { project: &spec.project, common, own };
    if files.is_empty() { files } else { committed(&repository, &files) }
}
