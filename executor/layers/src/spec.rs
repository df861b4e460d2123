//! Everything about a session's cells that does not depend on the call, as data: complete before anything is touched.

use crate::ablation::Ablation;
use crate::linked_repository::LinkedRepository;
use crate::pins::Pin;
use crate::protected::AlsoClosed;
use crate::protected_objects::ProtectedObjects;
use broker_protocol::{Layer, LayerSet, Tier, Zone, ZonePath};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;
use policies::{Access, EffectivePolicy};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The directory of the central root in which package managers and compilers keep what may be made again.
pub const CACHES: &str = "caches";

/// What closes the cells of a session.
#[derive(Debug)]
pub struct SandboxSpec {
    /// Whether the session has namespaces.
    pub tier: Tier,
    /// Those to put up; the cgroup is the broker's.
    pub layers: LayerSet,
    /// What a test build leaves out.
    pub ablation: Ablation,
    /// The Landlock ABI to use.
    pub landlock_abi: u32,
    /// The project root, without links.
    pub project: PathBuf,
    /// The central root, without links.
    pub central: PathBuf,
    /// The project's repository, where it lies outside both and is opened with them.
    pub linked: Option<LinkedRepository>,
    /// What a cell sees outside its scratch space, parents before children.
    pub views: Vec<View>,
    /// Directories of the session's private, empty storage.
    pub scratch: Scratch,
    /// Protected names that exist, for the tier that can pin them.
    pub pins: Vec<Pin>,
    /// What was protected when the session opened, whatever it is called.
    pub objects: ProtectedObjects,
    /// What is closed although its name does not say so.
    pub also_closed: Vec<AlsoClosed>,
    /// What cells have made under protected names, and what they may use as if they had: memory that the supervisors share.
    pub created: Option<OwnedFd>,
    /// What the home of cells has as git's file of what a user ignores, if it has one.
    pub git_ignore: Option<Vec<u8>>,
    /// The directories of the zones to which the session's scope restricts commands, if it does.
    pub command_directories: Option<Vec<ZonePath>>,
    /// A cell's environment, `NAME=value` each.
    pub environment: Vec<CString>,
    /// The program that traces commands, in a session that is thrown away.
    pub tracer: Option<PathBuf>,
    /// The session's policy: its limits, and the names the file worker asks about.
    pub policy: EffectivePolicy,
}

/// A part of the host's tree that a cell sees at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Absolute.
    pub path: PathBuf,
    /// How it is mounted and what Landlock lets be done there.
    pub kind: ViewKind,
}

/// What a view is, and so what may be done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewKind {
    /// One of the two roots.
    Zone(Access),
    /// The common directory of the project's repository, where that lies elsewhere.
    Repository(Access),
    /// A system or toolchain path: read, list and run.
    System,
    /// A file or directory of the policy's image, which has it at the same path: read, list and run.
    Image,
    /// A symbolic link, with its text.
    Link(PathBuf),
    /// A device node.
    Device,
}

/// Where a session's private storage is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// `HOME`.
    pub home: PathBuf,
    /// `TMPDIR`.
    pub tmp: PathBuf,
    /// The directory of the host that holds both, in the flat tier.
    pub host: Option<PathBuf>,
}

impl Scratch {
    /// What programs take for `/dev/shm` where the machine's is not the session's. Their paths are mapped by the supervisor.
    pub fn shared(&self) -> Option<PathBuf> {
        self.host.as_ref().map(|host| host.join("shm"))
    }

    /// Removes the private files on the host. Best effort, by whoever of broker and warden lives longer: they are the
    /// user's own, in a directory that nobody else can enter.
    pub fn remove(&self) {
        if let Some(host) = &self.host {
            let _ = fs::remove_dir_all(host);
        }
    }
}

/// The device nodes of a cell. Terminals come from an instance of its own.
pub const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

impl SandboxSpec {
    /// The spec for a policy. Looks at the host's files, changes nothing.
    ///
    /// # Errors
    /// A granted path that is not optional cannot be looked at.
    pub fn new(
        policy: EffectivePolicy,
        (tier, layers): (Tier, LayerSet),
        ablation: Ablation,
        landlock_abi: u32,
        zones: (PathBuf, PathBuf),
        scratch: Scratch,
        environment: Vec<CString>,
    ) -> io::Result<Self> {
        let (project, central) = zones;
        let mut views = Views::default();
        // With an image they lie in that.
        for grant in policy.grants.iter().filter(|_| policy.image.is_none()) {
            views.add_system(&grant.path, grant.optional)?;
        }
        for device in DEVICES {
            views.add(Path::new(device), ViewKind::Device);
        }
        views.add(&project, ViewKind::Zone(policy.project));
        views.add(&central, ViewKind::Zone(policy.central));
        Ok(Self {
            tier,
            layers,
            ablation,
            landlock_abi,
            project,
            central,
            linked: None,
            views: views.0.into_iter().map(|(path, kind)| View { path, kind }).collect(),
            scratch,
            pins: Vec::new(),
            objects: ProtectedObjects::default(),
            also_closed: Vec::new(),
            created: None,
            git_ignore: None,
            command_directories: None,
            environment,
            tracer: None,
            policy,
        })
    }

    /// Opens the project's repository, which lies outside both roots.
    pub fn link(&mut self, linked: LinkedRepository) {
        let kind = ViewKind::Repository(self.policy.project);
        let after = self.views.partition_point(|view| view.path < linked.common);
        self.views.insert(after, View { path: linked.common.clone(), kind });
        self.linked = Some(linked);
    }

    /// Runs every command under the program at `tracer`, which cells are shown.
    pub fn trace(&mut self, tracer: PathBuf) {
        let zones = [&self.project, &self.central];
        if !self.shows(&tracer) && !zones.iter().any(|zone| tracer.starts_with(zone)) {
            let after = self.views.partition_point(|view| view.path < tracer);
            self.views.insert(after, View { path: tracer.clone(), kind: ViewKind::System });
        }
        self.tracer = Some(tracer);
    }

    /// Shows these parts of an image.
    pub fn show_image(&mut self, views: Vec<View>) {
        self.views.extend(views);
        self.views.sort_by(|one, other| one.path.cmp(&other.path));
    }

    /// Whether a layer is to be put up.
    pub fn has(&self, layer: Layer) -> bool {
        self.layers.has(layer)
    }

    /// Whether a cell's first process answers its program's calls. It looks at its callers in `/proc`, which knows them by
    /// other numbers where a test build has left a PID namespace without mounts.
    pub fn is_supervised(&self) -> bool {
        self.has(Layer::ProtectedNames) && (self.has(Layer::MountNamespace) || !self.has(Layer::PidNamespace))
    }

    /// The root of `zone`, and what the policy lets be done there at most.
    pub fn zone(&self, zone: Zone) -> (&Path, Access) {
        match zone {
            Zone::Project => (&self.project, self.policy.project),
            Zone::Central => (&self.central, self.policy.central),
            Zone::Granted => (Path::new("/"), Access::Read),
        }
    }

    /// The views that file tools read.
    pub fn readable(&self) -> impl Iterator<Item = &Path> {
        let is_view =
            |path: &&Path| self.views.binary_search_by(|view| view.path.as_path().cmp(path)).is_ok();
        self.policy.readable().map(|grant| grant.path.as_path()).filter(is_view)
    }

    /// Whether every command reads what lies at `path`, as a part of the machine that the profile grants.
    pub fn shows(&self, path: &Path) -> bool {
        let is_system = |view: &&View| view.kind == ViewKind::System;
        self.views.iter().filter(is_system).any(|view| path.starts_with(&view.path))
    }

    /// Where a command starts that asks for `path`.
    pub fn directory(&self, path: Option<&ZonePath>) -> PathBuf {
        match path {
            // `join` with an empty path would add a slash.
            Some(path) if path.relative().is_empty() => self.zone(path.zone()).0.to_owned(),
            Some(path) => self.zone(path.zone()).0.join(path.relative()),
            None => self.project.clone(),
        }
    }

    /// The directories to which commands are restricted; none where they may reach all of the zones.
    pub fn command_directories(&self) -> impl Iterator<Item = &ZonePath> {
        self.command_directories.iter().flatten()
    }

    /// What commands may do in all of `zone`, at most: mounts and Landlock say what they may read of it.
    pub fn command_access(&self, zone: Zone) -> Access {
        if self.command_directories.is_some() { Access::Read } else { self.zone(zone).1 }
    }

    /// Opens one of [`Self::command_directories`] beneath its root, by this name and no link: another session may be at work
    /// in the zone.
    ///
    /// # Errors
    /// The kernel's (`openat2`).
    pub fn open_directory(&self, directory: &ZonePath) -> io::Result<OwnedFd> {
        let root = open(self.zone(directory.zone()).0, DIRECTORY, Mode::empty())?;
        let links = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
        let path = if directory.relative().is_empty() { "." } else { directory.relative() };
        Ok(openat2(root, path, OpenHow::new().flags(DIRECTORY).resolve(links))?)
    }
}

const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// Views by path: a sorted map has parents before children.
#[derive(Default)]
struct Views(BTreeMap<PathBuf, ViewKind>);

impl Views {
    fn add(&mut self, path: &Path, kind: ViewKind) {
        self.0.insert(path.to_owned(), kind);
    }

    fn add_system(&mut self, path: &Path, optional: bool) -> io::Result<()> {
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_symlink() => {
                self.add(path, ViewKind::Link(fs::read_link(path)?));
            }
            Ok(_) => self.add(path, ViewKind::System),
            // A parent that may not be looked into is the same as a path that is not there.
            Err(error) if optional && is_absent(&error) => {}
            Err(error) => {
                return Err(io::Error::new(
                    error.kind(),
                    format!("the granted path {}: {error}", path.display()),
                ));
            }
        }
        Ok(())
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES))
}
