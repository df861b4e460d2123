//! Objects of the machine that a warden has mounted, copied or opened, so far as its sandbox depends on it: compared by identity before a
//! sandbox that stood ready is used.

use crate::project_repository::ProjectRepository;
use broker_protocol::Layer;
use executor_spec::sandbox::{SandboxSpec, ViewKind};
use executor_spec::undo_directory;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The clocks of file systems may stand still for so long: what has changed within it may change again without a trace.
const TICK: Duration = Duration::from_millis(20);

/// The mounts of the session's own root, where it has one: the kernel removes one whose mount point somebody removes, and reports one
/// that was moved under its new name.
pub fn inside(spec: &SandboxSpec, warden: i32) -> io::Result<Option<String>> {
    let own_root = spec.has(Layer::MountNamespace);
    let read = || mounts(&warden.to_string());
    own_root.then(read).transpose()
}

fn mounts(process: &str) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{process}/mountinfo"))
}

/// Objects of the machine that a warden has mounted, copied or opened.
#[derive(Debug)]
pub struct MachineState {
    /// The mounts that this process sees; `None` if they cannot be read.
    mounts: Option<String>,
    inside: Option<String>,
    objects: Vec<(PathBuf, Option<ObjectState>)>,
    /// Whether none of the files was changed so lately that it could change again without a trace.
    pub is_settled: bool,
}

/// A file or directory, as far as a mount or a rule depends on it.
#[derive(Debug, PartialEq, Eq)]
struct ObjectState {
    id: (u64, u64),
    born: Option<SystemTime>,
    mode: u32,
    owner: (u32, u32),
    /// Length and change time, of files whose content was copied.
    content: Option<(u64, i64, i64)>,
}

impl ObjectState {
    /// The state of what is copied: its content counts too.
    fn of_copied(metadata: &Metadata) -> Self {
        let content = || (metadata.len(), metadata.ctime(), metadata.ctime_nsec());
        Self {
            content: (!metadata.is_dir()).then(content),
            ..Self::of(metadata)
        }
    }

    fn of(metadata: &Metadata) -> Self {
        Self {
            id: (metadata.dev(), metadata.ino()),
            born: metadata.created().ok(),
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            content: None,
        }
    }
}

impl MachineState {
    /// Those that the sandbox of `spec` would be made from now.
    pub fn of(spec: &SandboxSpec) -> Self {
        let now = SystemTime::now();
        let mut is_settled = true;
        let mut state = |path: &Path, of: fn(&Metadata) -> ObjectState| {
            let metadata = fs::symlink_metadata(path).ok();
            let state = metadata.map(|metadata| of(&metadata));
            if let Some((_, seconds, nanoseconds)) = state.as_ref().and_then(|it| it.content) {
                let since = Duration::new(
                    u64::try_from(seconds).unwrap_or(0),
                    u32::try_from(nanoseconds).unwrap_or(0),
                );
                is_settled &= SystemTime::UNIX_EPOCH + since + TICK < now;
            }
            (path.to_owned(), state)
        };
        let mut objects = Vec::new();
        for view in &spec.views {
            let is_copied = view.kind == ViewKind::System;
            let of = if is_copied {
                ObjectState::of_copied
            } else {
                ObjectState::of
            };
            objects.push(state(&view.path, of));
        }
        objects.extend(others(spec).iter().map(|path| state(path, ObjectState::of)));
        Self {
            mounts: mounts("self").ok(),
            inside: None,
            objects,
            is_settled,
        }
    }

    /// Adds the mounts of the session's own root.
    #[must_use]
    pub fn with_inside(self, inside: Option<String>) -> Self {
        Self { inside, ..self }
    }

    /// Whether this is the same as before. What has changed lately is seen in its change time.
    pub fn is_as(&self, before: &Self) -> bool {
        let Self {
            mounts,
            inside,
            objects,
            is_settled: _,
        } = self;
        mounts.is_some()
            && *mounts == before.mounts
            && *inside == before.inside
            && *objects == before.objects
    }
}

/// All that is mounted or opened besides views.
fn others(spec: &SandboxSpec) -> Vec<PathBuf> {
    let mut paths = vec![
        spec.central.join(undo_directory::NAME),
        spec.scratch.home.clone(),
        spec.scratch.tmp.clone(),
    ];
    paths.extend(spec.scratch.host.clone());
    paths.extend(spec.scratch.shared());
    paths.extend(spec.temporary().map(Path::to_owned));
    if let Some(linked) = &spec.linked {
        paths.extend([linked.common.clone(), linked.own.clone()]);
        paths.extend(linked.shared_directories());
    }
    if let Some(repository) = ProjectRepository::of(spec) {
        paths.extend([repository.common, repository.own]);
    }
    let directories = spec.command_directories();
    paths.extend(directories.map(|directory| spec.directory(Some(directory))));
    if spec.has(Layer::MountNamespace) {
        paths.extend(spec.found().pins.iter().map(|pin| pin.path.clone()));
    } else {
        paths.extend(spec.policy.listed.iter().cloned());
    }
    paths
}
