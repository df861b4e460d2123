//! The walls of a session and the work of a call, as data: printable, and complete before anything is touched.

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

use super::ablation::Ablation;
use super::protected::Pin;
use crate::attack::Targets;

/// Everything about a session's cells that does not depend on the call.
#[derive(Debug)]
pub struct Walls {
    /// The tier.
    pub tier: Tier,
    /// The layers that are put up; the cgroup is the broker's.
    pub layers: LayerSet,
    /// What a test build goes without.
    pub ablation: Ablation,
    /// The kernel's Landlock ABI.
    pub landlock_abi: u32,
    /// The project root, without links.
    pub project: PathBuf,
    /// The central root, without links.
    pub central: PathBuf,
    /// What a cell sees outside its scratch space, parents before children.
    pub views: Vec<View>,
    /// Directories of the session's private, empty storage.
    pub scratch: Scratch,
    /// Protected names that exist, for the tier that can pin them.
    pub pins: Vec<Pin>,
    /// The directories of the zones that commands may reach, if the session's scope holds them to some.
    pub held: Option<Vec<ZonePath>>,
    /// A cell's environment, `NAME=value` each.
    pub environment: Vec<CString>,
    /// The session's policy: its limits, and the names the file worker asks about.
    pub policy: EffectivePolicy,
}

/// A part of the host's tree that a cell sees at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Absolute path.
    pub path: PathBuf,
    /// What it is.
    pub kind: ViewKind,
}

/// What a view is, and so what may be done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewKind {
    /// One of the two roots.
    Zone(Access),
    /// A system or toolchain path: read, list and run.
    System,
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

impl Walls {
    /// Draws up the walls for a policy. Looks at the host's files, changes nothing.
    ///
    /// # Errors
    /// A granted path that is not optional cannot be looked at.
    pub fn plan(
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
        for grant in &policy.grants {
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
            views: views.0.into_iter().map(|(path, kind)| View { path, kind }).collect(),
            scratch,
            pins: Vec::new(),
            held: None,
            environment,
            policy,
        })
    }

    /// Whether a layer is put up.
    pub fn has(&self, layer: Layer) -> bool {
        self.layers.has(layer)
    }

    /// Whether a cell's first process answers its program's calls. It looks at its callers in `/proc`, which knows them by
    /// other numbers where a test build has left a PID namespace without mounts.
    pub fn is_supervised(&self) -> bool {
        self.has(Layer::ProtectedNames) && (self.has(Layer::MountNamespace) || !self.has(Layer::PidNamespace))
    }
}

impl Walls {
    /// The root of `zone`, and what the policy lets be done there.
    pub fn zone(&self, zone: Zone) -> (&Path, Access) {
        match zone {
            Zone::Project => (&self.project, self.policy.project),
            Zone::Central => (&self.central, self.policy.central),
        }
    }

    /// The directories to which commands are held.
    pub fn held(&self) -> impl Iterator<Item = &ZonePath> {
        self.held.iter().flatten()
    }

    /// What commands may do in all of `zone`, at most: what they may read is held by mounts and Landlock.
    pub fn commands(&self, zone: Zone) -> Access {
        if self.held.is_some() { Access::Read } else { self.zone(zone).1 }
    }

    /// Opens a held directory beneath its root, by this name and no link: another session may be at work in the zone.
    pub fn open_held(&self, directory: &ZonePath) -> io::Result<OwnedFd> {
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

/// One call's work, for a cell: what the walls leave open.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CellPlan {
    /// What is started.
    pub task: Task,
    /// Absolute path of the working directory.
    pub directory: String,
}

/// What a cell starts.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Task {
    /// A stranger's program.
    Program {
        /// The program and its arguments.
        arguments: Vec<serde_bytes::ByteBuf>,
        /// `TERM` of the terminal that descriptor 0 is, if it is one.
        terminal: Option<String>,
    },
    /// Our own attacks, in its place.
    Attack(Targets),
}
