//! Everything about a session's cells that does not depend on the call, as data. It is made in steps, each a type: what was chosen
//! ([`ChosenRoots`]), what cells see ([`Rooted`]), what a search has found ([`Found`]), and all of it ([`SandboxSpec`]).

use crate::ablation::Ablation;
use crate::also_closed::AlsoClosed;
use crate::caller_access::CallerAccess;
use crate::certificates::{CellRoot, CertificateFiles};
use crate::host_pool::HostPool;
use crate::known_directories::DirectoryMemory;
use crate::linked_repository::LinkedRepository;
use crate::pins::Pin;
use crate::protected_objects::ProtectedObjects;
use crate::readable_secret::ReadableSecret;
use crate::scratch::Scratch;
use crate::zones::Zones;
use broker_protocol::{Layer, LayerSet, Tier, Zone, ZonePath};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;
use nix::unistd::gethostname;
use policies::{Access, EffectivePolicy, PathGrant};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs;
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// The name of the host of a session with a UTS namespace. Its `/etc/hosts` has it too.
pub const HOST_NAME: &str = "lazaret";

/// The directory of the central root where package managers and compilers keep files that can be recreated.
pub const CACHES: &str = "caches";

/// Choices for a session's cells before anything of them is planned. [`Rooted`] has the same fields, with their meaning.
#[derive(Debug)]
pub struct ChosenRoots {
    pub policy: EffectivePolicy,
    pub tier: Tier,
    pub layers: LayerSet,
    pub ablation: Ablation,
    pub landlock_abi: u32,
    pub zones: Zones,
    pub linked: Option<LinkedRepository>,
    pub shown: Vec<View>,
    pub scratch: Scratch,
    pub environment: Vec<CString>,
    pub certificates: Option<CertificateFiles>,
    pub tracer: Option<PathBuf>,
}

/// Paths that cells of a session see and where, before the zones are searched.
#[derive(Debug)]
pub struct Rooted {
    /// Whether the session has namespaces.
    pub tier: Tier,
    /// The layers to apply; the broker applies the cgroup.
    pub layers: LayerSet,
    /// The layers that a test build leaves out.
    pub ablation: Ablation,
    /// The Landlock ABI to use.
    pub landlock_abi: u32,
    /// How supervisors get at their callers.
    pub caller_access: CallerAccess,
    /// The project root, without links.
    pub project: PathBuf,
    /// The central root, without links.
    pub central: PathBuf,
    /// The project's repository, if it lies outside both roots and is opened with them.
    pub linked: Option<LinkedRepository>,
    /// Views of a cell outside its scratch space, parents before children.
    pub views: Vec<View>,
    /// Other paths of the project, through links: of the machine, or in a tree of the session's own.
    pub names: Vec<PathBuf>,
    /// Directories of the session's private, empty storage.
    pub scratch: Scratch,
    /// The environment of a cell, as `NAME=value` strings.
    pub environment: Vec<CString>,
    /// The files by which programs trust the session's authority, if it has one.
    pub certificates: Option<CertificateFiles>,
    /// The addresses that stand for the session's hosts.
    pub hosts: HostPool,
    /// The program that traces commands, in a throw-away session.
    pub tracer: Option<PathBuf>,
    /// The session's policy: its limits, and the names that the file worker checks.
    pub policy: EffectivePolicy,
}

/// Results of the search of the zones; empty where names are not protected.
#[derive(Debug, Default)]
pub struct Found {
    /// Protected names that exist, for the tier that can pin them.
    pub pins: Vec<Pin>,
    /// The objects that were protected when the session opened, whatever their names.
    pub objects: ProtectedObjects,
    /// Files of secrets that commands can read.
    pub secrets: Vec<ReadableSecret>,
    /// Notices to people about files of secrets.
    pub notices: Vec<String>,
    /// Objects that are closed although their names are not protected.
    pub also_closed: Vec<AlsoClosed>,
    /// Paths with protected names to which a link or a setting leads that closes them too.
    pub led_to: BTreeSet<PathBuf>,
    /// Memory that the supervisors share: what cells have created under protected names, and what they may use in the same way.
    pub created: Option<OwnedFd>,
    /// Memory that they share too: which directories were there, and what calls have made.
    pub directories: Option<DirectoryMemory>,
}

/// Files that cells find in their home when it is new.
#[derive(Debug, Default)]
pub struct HomeFiles {
    /// The path of each file below the home, and its content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// A view whose file one of these takes the place of.
    pub replaced: Option<PathBuf>,
    /// Settings of the account's git that have no effect in cells.
    pub without_effect: BTreeSet<&'static str>,
}

/// The full description of how a session's cells are confined. Complete when it is made, and not changed afterwards.
#[derive(Debug)]
pub struct SandboxSpec {
    rooted: Rooted,
    found: Found,
    /// Files in the cells' home when it is new: the path of each below it, and its content.
    pub home_files: Vec<(PathBuf, Vec<u8>)>,
    /// Settings of the account's git that have no effect in cells.
    pub without_effect: BTreeSet<&'static str>,
    /// The directories of the zones to which the session's scope restricts commands, if it does.
    pub command_directories: Option<Vec<ZonePath>>,
}

impl Deref for SandboxSpec {
    type Target = Rooted;

    fn deref(&self) -> &Rooted {
        &self.rooted
    }
}

/// A part of the host's tree that a cell sees at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Absolute.
    pub path: PathBuf,
    /// How it is mounted, and what Landlock allows there.
    pub kind: ViewKind,
}

/// The kind of a view, which determines what is allowed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewKind {
    /// One of the two roots.
    Zone(Access),
    /// The common directory of the project's repository, if that lies elsewhere.
    Repository(Access),
    /// A system or toolchain path, which can be read, listed and executed.
    System,
    /// A file or directory of the policy's image, at the same path as there: can be read, listed and executed.
    Image,
    /// A symbolic link, with its target text.
    Link(PathBuf),
    Device,
}

/// The machine's directories for what is temporary, if commands of such a session use them. In the flat tier each is replaced by one of
/// the session's own, unless the profile hides nothing.
pub fn temporary(tier: Tier, policy: &EffectivePolicy) -> impl Iterator<Item = &'static Path> {
    let paths = ["/tmp", "/dev/shm"].map(Path::new).into_iter();
    let are_used = tier == Tier::Flat && !policy.hides;
    paths.filter(move |path| are_used && path.is_dir())
}

/// The device nodes of a cell. Terminals come from the session's own devpts.
pub const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

impl SandboxSpec {
    /// Seals what was planned and found.
    pub fn new(
        mut rooted: Rooted,
        found: Found,
        home: HomeFiles,
        command_directories: Option<Vec<ZonePath>>,
    ) -> Self {
        let HomeFiles {
            files,
            replaced,
            without_effect,
        } = home;
        rooted
            .views
            .retain(|view| replaced.as_ref() != Some(&view.path));
        Self {
            rooted,
            found,
            home_files: files,
            without_effect,
            command_directories,
        }
    }

    /// Whether this describes the same confinement as `other`. The memory that supervisors share is left out: whoever asks has filled
    /// it anew. Each field is named, so that no later one is forgotten. Of a policy the digest counts, which is over all that it
    /// consists of.
    pub fn is_same(&self, other: &Self) -> bool {
        let Self {
            rooted,
            found,
            home_files,
            without_effect,
            command_directories,
        } = self;
        rooted.is_same(&other.rooted)
            && found.is_same(&other.found)
            && *home_files == other.home_files
            && *without_effect == other.without_effect
            && *command_directories == other.command_directories
    }

    /// Results of the search of the zones.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// The session's private storage, for its end.
    pub fn into_scratch(self) -> Scratch {
        self.rooted.scratch
    }

    /// The directories to which commands are restricted; empty if they may reach all of the zones.
    pub fn command_directories(&self) -> impl Iterator<Item = &ZonePath> {
        self.command_directories.iter().flatten()
    }

    /// The maximum of access that commands have to all of `zone`; mounts and Landlock decide what they can read there.
    pub fn command_access(&self, zone: Zone) -> Access {
        if self.command_directories.is_some() {
            Access::Read
        } else {
            self.zone(zone).1
        }
    }
}

impl Found {
    fn is_same(&self, other: &Self) -> bool {
        let Self {
            pins,
            objects,
            secrets,
            notices,
            also_closed,
            led_to,
            created,
            directories,
        } = self;
        *pins == other.pins
            && *objects == other.objects
            && *secrets == other.secrets
            && *notices == other.notices
            && *also_closed == other.also_closed
            && *led_to == other.led_to
            && created.is_some() == other.created.is_some()
            && directories.is_some() == other.directories.is_some()
    }
}

impl Rooted {
    fn is_same(&self, other: &Self) -> bool {
        let Self {
            tier,
            layers,
            ablation,
            landlock_abi,
            caller_access,
            project,
            central,
            linked,
            views,
            names,
            scratch,
            environment,
            certificates,
            hosts,
            tracer,
            policy,
        } = self;
        *tier == other.tier
            && *layers == other.layers
            && *ablation == other.ablation
            && *landlock_abi == other.landlock_abi
            && *caller_access == other.caller_access
            && *project == other.project
            && *central == other.central
            && *linked == other.linked
            && *views == other.views
            && *names == other.names
            && *scratch == other.scratch
            && *environment == other.environment
            && *certificates == other.certificates
            && *hosts == other.hosts
            && *tracer == other.tracer
            && policy.digest == other.policy.digest
    }

    /// Plans what cells see. `names` are other paths of the project, as the client names them. Reads the host's file system, and changes
    /// nothing.
    ///
    /// # Errors
    /// The metadata of a granted path that is not optional cannot be read, or the kernel gives no random bytes.
    pub fn new(roots: ChosenRoots, names: &[String]) -> io::Result<Self> {
        let ChosenRoots {
            policy,
            tier,
            layers,
            ablation,
            landlock_abi,
            zones: Zones { project, central },
            linked,
            shown,
            scratch,
            environment,
            certificates,
            tracer,
        } = roots;
        let mut views = Views::default();
        // With an image, grants refer to paths in it.
        for grant in policy.grants.iter().filter(|_| policy.image.is_none()) {
            views.add_system(grant)?;
        }
        for device in DEVICES {
            views.add(Path::new(device), ViewKind::Device);
        }
        views.add(&project, ViewKind::Zone(policy.project));
        views.add(&central, ViewKind::Zone(policy.central));
        let mut rooted = Self {
            tier,
            layers,
            ablation,
            landlock_abi,
            caller_access: CallerAccess::probe(),
            project,
            central,
            linked,
            views: views.needed(),
            names: Vec::new(),
            scratch,
            environment,
            certificates,
            hosts: HostPool::default(),
            tracer,
            policy,
        };
        rooted.hosts = rooted.host_pool()?;
        if let Some(linked) = &rooted.linked {
            let kind = ViewKind::Repository(rooted.policy.project);
            rooted.show(linked.common.clone(), kind);
        }
        rooted.views.extend(shown);
        rooted.views.sort_by(|one, other| one.path.cmp(&other.path));
        rooted.names = rooted.names_of_project(names);
        rooted.show_tracer();
        Ok(rooted)
    }

    /// Addresses for the hosts that the policy names, if cells have supervisors, who lead connections there.
    fn host_pool(&self) -> io::Result<HostPool> {
        if !self.policy.has_network() || !self.is_supervised() {
            return Ok(HostPool::default());
        }
        let own = match self.has(Layer::UtsNamespace) {
            true => HOST_NAME.to_owned(),
            false => gethostname()?.to_string_lossy().into_owned(),
        };
        HostPool::draw(self.policy.network.named_hosts(), &own)
    }

    fn show(&mut self, path: PathBuf, kind: ViewKind) {
        let after = self.views.partition_point(|view| view.path < path);
        self.views.insert(after, View { path, kind });
    }

    /// Shows the program under which every command runs, if there is one, to cells.
    fn show_tracer(&mut self) {
        let zones = [&self.project, &self.central];
        let unseen = self.tracer.as_ref().filter(|tracer| {
            !self.shows(tracer) && !zones.iter().any(|zone| tracer.starts_with(zone))
        });
        if let Some(tracer) = unseen.cloned() {
            self.show(tracer, ViewKind::System);
        }
    }

    /// The names of the project that lead there and lie in nothing that cells see of the machine.
    fn names_of_project(&self, names: &[String]) -> Vec<PathBuf> {
        let leads = |name: &&Path| name.canonicalize().is_ok_and(|real| real == self.project);
        let is_plain = |name: &&Path| {
            let mut parts = name.components();
            parts.next() == Some(Component::RootDir)
                && parts.all(|part| matches!(part, Component::Normal(_)))
                && !["/proc", "/dev", "/sys"]
                    .iter()
                    .any(|own| name.starts_with(own))
        };
        let places = [&self.scratch.home, &self.scratch.tmp].into_iter();
        let places: Vec<&Path> = places.map(PathBuf::as_path).collect();
        let is_free = |name: &&Path| {
            let views = self.views.iter().map(|view| view.path.as_path());
            views.clone().all(|view| !name.starts_with(view))
                && views
                    .chain(places.iter().copied())
                    .all(|seen| !seen.starts_with(name))
        };
        let names = names.iter().map(Path::new);
        let free = names.filter(is_plain).filter(is_free).filter(leads);
        free.map(Path::to_owned).collect()
    }

    /// Whether a layer is to be applied.
    pub fn has(&self, layer: Layer) -> bool {
        self.layers.has(layer)
    }

    /// Whether a cell's first process supervises its program. It finds its callers in `/proc`, which has
    /// other numbers for them if a test build leaves out mounts but not the PID namespace.
    pub fn is_supervised(&self) -> bool {
        self.has(Layer::ProtectedNames)
            && (self.has(Layer::MountNamespace) || !self.has(Layer::PidNamespace))
    }

    /// Whether commands read without supervision, by the machine's own names: a flat session whose profile hides nothing. What they
    /// write to `/tmp` then has to lie there too.
    pub fn shows_names(&self) -> bool {
        self.tier == Tier::Flat && !self.policy.hides
    }

    /// The directories of [`temporary`] for this session.
    pub fn temporary(&self) -> impl Iterator<Item = &'static Path> {
        temporary(self.tier, &self.policy)
    }

    /// The files by which programs trust the session's authority: each on the host, and as cells see it.
    pub fn certificates(&self) -> impl Iterator<Item = (&Path, PathBuf)> {
        let root = CellRoot::of(self.layers);
        let files = self.certificates.iter();
        files.flat_map(move |files| files.seen(root))
    }

    /// The root of `zone`, and the policy's maximum of access to it.
    pub fn zone(&self, zone: Zone) -> (&Path, Access) {
        match zone {
            Zone::Project => (&self.project, self.policy.project),
            Zone::Central => (&self.central, self.policy.central),
            Zone::Granted => (Path::new("/"), Access::Read),
        }
    }

    /// The views that file tools can read.
    pub fn readable(&self) -> impl Iterator<Item = &Path> {
        let is_view = |path: &&Path| {
            self.views
                .binary_search_by(|view| view.path.as_path().cmp(path))
                .is_ok()
        };
        self.policy
            .readable()
            .map(|grant| grant.path.as_path())
            .filter(is_view)
    }

    /// Whether every command can read `path`, as a part of the machine that the profile grants.
    pub fn shows(&self, path: &Path) -> bool {
        let is_system = |view: &&View| view.kind == ViewKind::System;
        self.views
            .iter()
            .filter(is_system)
            .any(|view| path.starts_with(&view.path))
    }

    /// The working directory of a command that requests `path`.
    pub fn directory(&self, path: Option<&ZonePath>) -> PathBuf {
        match path {
            // `join` with an empty path would add a slash.
            Some(path) if path.relative().is_empty() => self.zone(path.zone()).0.to_owned(),
            Some(path) => self.zone(path.zone()).0.join(path.relative()),
            None => self.project.clone(),
        }
    }

    /// Opens a directory of a zone beneath its root, by exactly this name and
    /// through no link: another session may be changing the zone.
    ///
    /// # Errors
    /// The kernel's (`openat2`).
    pub fn open_directory(&self, directory: &ZonePath) -> io::Result<OwnedFd> {
        let root = open(self.zone(directory.zone()).0, DIRECTORY, Mode::empty())?;
        let links = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
        let path = if directory.relative().is_empty() {
            "."
        } else {
            directory.relative()
        };
        Ok(openat2(
            root,
            path,
            OpenHow::new().flags(DIRECTORY).resolve(links),
        )?)
    }
}

const DIRECTORY: OFlag = OFlag::O_PATH
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);

/// Views by path: a sorted map orders parents before children.
#[derive(Default)]
struct Views(BTreeMap<PathBuf, ViewKind>);

impl Views {
    fn add(&mut self, path: &Path, kind: ViewKind) {
        self.0.insert(path.to_owned(), kind);
    }

    /// All but what lies in a part of the machine that is shown as a whole.
    fn needed(self) -> Vec<View> {
        let is_shown = |path: &Path| {
            let around = path
                .ancestors()
                .skip(1)
                .find_map(|around| self.0.get(around));
            around == Some(&ViewKind::System)
        };
        let needed = self
            .0
            .iter()
            .filter(|(path, kind)| **kind != ViewKind::System || !is_shown(path));
        needed
            .map(|(path, kind)| View {
                path: path.clone(),
                kind: kind.clone(),
            })
            .collect()
    }

    fn add_system(&mut self, PathGrant { path, optional, .. }: &PathGrant) -> io::Result<()> {
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_symlink() => {
                self.add(path, ViewKind::Link(fs::read_link(path)?));
            }
            Ok(_) => self.add(path, ViewKind::System),
            // A path below a directory that may not be searched counts as missing.
            Err(error) if *optional && is_absent(&error) => {}
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
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES)
    )
}
