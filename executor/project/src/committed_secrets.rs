//! Files with protected names that a session may use from its start: those with their committed content, and
//! those that cells of earlier sessions have created, if nobody else has changed them (`created_record.rs`).

use crate::created_record::{CreatedRecord, inspect, state};
use crate::other_repositories::OtherRepositories;
use crate::project_repository::ProjectRepository;
use crate::protected::Discovery;
use crate::tracked_secrets::{TrackedSecrets, record_path};
use crate::watch::RepositoryWatch;
use executor_spec::also_closed::{AlsoClosed, WhyClosed};
use executor_spec::created::CreatedFiles;
use executor_spec::sandbox::Rooted;
use executor_spec::worker::RepositoryAnswer;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files that a session's cells have created and git tracks when the session opens.
#[derive(Debug)]
pub struct OpenedFiles {
    /// For supervisors: shared memory that lists what cells have created, and what else they may use.
    pub memory: OwnedFd,
    /// The record for later sessions.
    pub record: CreatedRecord,
    /// The checks after each call.
    pub watch: RepositoryWatch,
}

/// Creates the shared list of what the cells of a session have created and what else they may use; these
/// files are removed from `found`. The list is made in `memory`, if supervisors have it already. `ask` returns what the project's
/// repository has of some files.
///
/// # Errors
/// The kernel has no memory for the list.
pub fn open_created_files(
    spec: &Rooted,
    found: &mut Discovery,
    memory: Option<OwnedFd>,
    ask: impl FnOnce(&ProjectRepository, &[PathBuf]) -> Option<RepositoryAnswer>,
) -> io::Result<OpenedFiles> {
    let created = match memory {
        Some(memory) => CreatedFiles::emptied(memory)?,
        None => CreatedFiles::new()?,
    };
    let secrets = secrets(spec, found);
    let mut tracked = None;
    let mut own = Vec::new();
    if let Some(repository) = ProjectRepository::of(spec) {
        own = vec![repository.common.clone(), repository.own.clone()];
        // There is room for so many in a question, and commands can make more: what is older comes first.
        let mut files: Vec<PathBuf> = secrets.keys().cloned().collect();
        files.sort_by_key(|path| {
            secrets
                .get(path)
                .and_then(|metadata| metadata.created().ok())
        });
        let memory = CreatedFiles::of(created.memory()?);
        let (secrets_now, open, tainted) =
            TrackedSecrets::open(spec, repository, memory, files, ask);
        tracked = Some(secrets_now);
        let mut released = BTreeMap::new();
        for path in open {
            let Ok((file, metadata)) = inspect(&path) else {
                continue;
            };
            // Unchanged since before its content was read.
            let same = secrets
                .get(&path)
                .is_some_and(|before| state(before) == state(&metadata));
            if same && created.add(&file).is_ok() {
                released.insert(path, (metadata.dev(), metadata.ino()));
            }
        }
        found.release(&released);
        let why = || WhyClosed::Tracked(record_path(&spec.central));
        found.also_closed.extend(
            tainted
                .into_iter()
                .map(|path| AlsoClosed { path, why: why() }),
        );
    }
    let others = OtherRepositories::new(&found.objects.watched, &own);
    let watch = RepositoryWatch::new(&found.objects, spec, tracked, others);
    let (memory, record) = CreatedRecord::open(spec, found, created)?;
    Ok(OpenedFiles {
        memory,
        record,
        watch,
    })
}

/// Files of the project with names of secrets that commands may create, and with no second name.
fn secrets(spec: &Rooted, found: &Discovery) -> BTreeMap<PathBuf, Metadata> {
    let matcher = &spec.policy.matcher;
    let is_secret = |path: &Path| {
        let below = path
            .strip_prefix(&spec.project)
            .map(|below| below.as_os_str().as_bytes());
        below.is_ok_and(|below| matcher.is_secret(below) && !matcher.is_closed_when_new(below))
    };
    let named = found.named.iter().filter(|path| is_secret(path));
    let open = named.filter(|path| found.objects.protection_of_place(path).is_none());
    let files = open.filter_map(|path| Some((path.clone(), inspect(path).ok()?.1)));
    files
        .filter(|(_, metadata)| metadata.is_file() && metadata.nlink() == 1)
        .collect()
}
