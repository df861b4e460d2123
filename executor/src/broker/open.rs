//! Opens a session: policy, roots, walls, warden. Everything that does not depend on a call happens here.

use super::audit::{Audit, AuditError};
use super::record::{Event, names};
use crate::cell::ablation::Ablation;
use crate::cell::cgroup::{self, Cgroup};
use crate::cell::environment::Variables;
use crate::cell::plan::{Scratch, Walls};
use crate::cell::protected::{self, ProtectError};
use crate::cell::{environment, probe};
use crate::sys;
use crate::warden::supervisor::TryOut;
use crate::warden::{self, Told, Warden};
use crate::work::litter;
use crate::work::undo::store;
use broker_protocol::{
    ErrorKind, Failed, Layer, LayerSet, Machine, Open, Opened, Tier, TooLarge, Zone, ZonePath,
};
use policies::directories;
use policies::secret::secrets;
use policies::{Access, EffectivePolicy, Host, Policies, PolicyError, Protection, source};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What the executor knows of the user it runs for.
#[derive(Clone, Debug)]
pub struct User {
    /// The environment it was started with.
    pub variables: Variables,
    /// The user's home directory.
    pub home: PathBuf,
    /// What this build goes without, if it is for tests.
    pub ablation: Ablation,
}

impl User {
    /// A variable of the environment.
    pub fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(OsStr::new(name)).cloned()
    }
}

/// Why a session does not open.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A policy is not valid, or has no such profile.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// What was asked for is over a limit.
    #[error(transparent)]
    Limit(#[from] TooLarge),
    /// A root cannot be used.
    #[error("the {} root {path:?} cannot be used: {why}", .zone.name())]
    Root {
        /// Which.
        zone: Zone,
        /// As it was given.
        path: String,
        /// Why, and what to do.
        why: String,
    },
    /// A policy grants what no cell may see.
    #[error("the policy grants {}, which would show the records in {} to what runs in a cell", .grant.display(), .state.display())]
    Shown {
        /// What it grants.
        grant: PathBuf,
        /// Where the records are.
        state: PathBuf,
    },
    /// A directory of the session's scope cannot be used.
    #[error(
        "commands cannot be held to {directory}, as the scope says: {source}; it must be a directory that exists, without links"
    )]
    Held {
        /// Which.
        directory: ZonePath,
        /// Why.
        source: io::Error,
    },
    /// Protected names cannot be held.
    #[error(transparent)]
    Protect(#[from] ProtectError),
    /// The host's files do not allow the walls.
    #[error("the walls cannot be drawn up: {0}")]
    Plan(io::Error),
    /// A layer cannot be put up.
    #[error("the layer {} cannot be put up: {step}: {source}", .layer.name())]
    Layer {
        /// Which.
        layer: Layer,
        /// What was tried.
        step: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No process of ours can answer a program's calls in its place: protected names could not be held, nor anything in
    /// the flat tier.
    #[error("commands cannot be supervised on this machine ({source}): {}", what_to_do(.source))]
    Unsupervised {
        /// The kernel's answer.
        source: io::Error,
    },
    /// A layer that the policy requires is not to be had here.
    #[error("the policy requires the layer {}, which this machine does not have; see `lazaret doctor`", .0.name())]
    Required(Layer),
    /// Nothing can be recorded.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The warden cannot be made, or ended.
    #[error("the session's warden cannot be made: {0}")]
    Warden(io::Error),
}

impl OpenError {
    /// The error as the client is told it.
    pub fn failed(&self) -> Failed {
        let kind = match self {
            OpenError::Policy(error) => error.kind(),
            OpenError::Limit(_) | OpenError::Held { .. } | OpenError::Root { .. } => ErrorKind::InvalidInput,
            OpenError::Shown { .. } | OpenError::Required(_) | OpenError::Protect(_) => {
                ErrorKind::DeniedPolicy
            }
            OpenError::Plan(_)
            | OpenError::Layer { .. }
            | OpenError::Unsupervised { .. }
            | OpenError::Audit(_)
            | OpenError::Warden(_) => ErrorKind::Internal,
        };
        Failed { kind, message: self.to_string() }
    }
}

/// A session that is ready for calls.
#[derive(Debug)]
pub struct Ready {
    /// What the client is told.
    pub opened: Opened,
    /// The walls, and the policy they were drawn up for.
    pub walls: Walls,
    /// The layers in force.
    pub layers: LayerSet,
    /// Bytes of a command's output that its outcome holds.
    pub capture: u64,
    /// The warden.
    pub warden: Warden,
    /// The group that bounds the session as a whole, where there is one.
    pub cgroup: Option<Cgroup>,
    /// The audit, in which the session stands.
    pub audit: Audit,
}

/// Reads the policy files of this machine and user.
pub fn read_policies(user: &User) -> Result<Policies, OpenError> {
    let sources = source::read(&user.home, &|name| user.variable(name)).map_err(PolicyError::from)?;
    Ok(Policies::load(sources)?)
}

/// Where records are kept.
fn state(user: &User) -> PathBuf {
    directories::state(&user.home, &|name| user.variable(name))
}

/// Opens the audit of this user.
pub fn open_audit(user: &User) -> Result<Audit, AuditError> {
    Audit::open(&state(user).join("audit"), secrets(&user.variables))
}

/// Refuses a policy that would show the records to a cell.
fn hide_state(policy: &EffectivePolicy, user: &User) -> Result<(), OpenError> {
    let mut real = Real::default();
    let state = real.of(&state(user));
    let shows = |path: &Path| state.starts_with(path) || path.starts_with(&state);
    match policy.grants.iter().find(|grant| shows(&real.of(&grant.path))) {
        Some(grant) => Err(OpenError::Shown { grant: grant.path.clone(), state }),
        None => Ok(()),
    }
}

/// Paths without links, as far as they exist. Most of many share their directories, which are looked at once.
#[derive(Default)]
struct Real(HashMap<PathBuf, PathBuf>);

impl Real {
    fn of(&mut self, path: &Path) -> PathBuf {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        };
        let parent = match self.0.get(parent) {
            Some(known) => known.clone(),
            None => {
                let real = self.of(parent);
                self.0.insert(parent.to_owned(), real.clone());
                real
            }
        };
        let here = parent.join(name);
        match fs::read_link(&here) {
            Ok(_) => fs::canonicalize(&here).unwrap_or(here),
            Err(_) => here,
        }
    }
}

/// Opens a session.
pub fn open(request: &Open, policies: &Policies, user: &User) -> Result<Ready, OpenError> {
    request.check()?;
    let profile = if request.profile.is_empty() { "default" } else { &request.profile };
    let policy = policies.resolve(profile, &host(user))?.narrow(request.scope.as_ref(), request.trust)?;
    hide_state(&policy, user)?;
    let zones = roots(request, &policy, user)?;
    let abi = user.ablation.landlock_abi(sys::landlock_abi());
    let (walls, warden, refusal) = match build(&policy, Tier::Namespaced, abi, &zones, user) {
        Err(OpenError::Layer { layer, step, source }) if is_refusal(layer, &source) => {
            let refusal = format!("{step}: {source}");
            let (walls, warden) = build(&policy, Tier::Flat, abi, &zones, user)?;
            (walls, warden, Some(refusal))
        }
        built => {
            let (walls, warden) = built?;
            (walls, warden, None)
        }
    };
    let cgroup = match user.ablation.is_off(Layer::Cgroup) {
        true => None,
        false => cgroup::make(&policy.limits).ok(),
    };
    if let Some(cgroup) = &cgroup {
        cgroup.add(warden.child.pid).map_err(OpenError::Warden)?;
    }
    let layers = if cgroup.is_some() { walls.layers.with(Layer::Cgroup) } else { walls.layers };
    require(&policy, walls.tier, layers, &user.ablation)?;
    let policy = &walls.policy;
    // After the warden, which must not inherit it.
    let mut audit = open_audit(user)?;
    let opened = Opened {
        session: audit.begin_session()?,
        project: walls.project.display().to_string(),
        central: walls.central.display().to_string(),
        profile: policy.profile.clone(),
        policy: policy.digest,
        tier: walls.tier,
        layers: probe::report(layers, walls.tier, abi, refusal.as_deref(), &user.ablation),
    };
    record(&mut audit, &opened, layers)?;
    let capture = request.capture.map_or(u64::MAX, Into::into).min(walls.policy.limits.capture);
    Ok(Ready { opened, walls, layers, capture, warden, cgroup, audit })
}

/// Records that a session is open.
fn record(audit: &mut Audit, opened: &Opened, layers: LayerSet) -> Result<(), AuditError> {
    let [project, central] = [&opened.project, &opened.central].map(|root| audit.redacted(root));
    audit.append(Event::Opened {
        project: &project,
        central: &central,
        profile: &opened.profile,
        policy: opened.policy.to_string(),
        tier: opened.tier.name(),
        layers: names(layers),
        broker: std::process::id(),
    })
}

/// What this machine offers, with the default profile.
pub fn machine(user: &User) -> Machine {
    let kernel = probe::kernel();
    let abi = user.ablation.landlock_abi(kernel.landlock_abi);
    let refusal = probe::namespaces().err().map(|error| error.to_string());
    let tier = if refusal.is_none() { Tier::Namespaced } else { Tier::Flat };
    let mut layers = planned(tier, abi, &user.ablation);
    if TryOut::begin(tier).and_then(TryOut::finish).is_err() {
        layers = layers.iter().filter(|layer| *layer != Layer::ProtectedNames).collect();
    }
    Machine {
        landlock_abi: abi,
        tier,
        layers: probe::report(layers, tier, abi, refusal.as_deref(), &user.ablation),
        kernel: kernel.release,
    }
}

/// The layers that a session puts up on this kernel.
fn planned(tier: Tier, landlock_abi: u32, ablation: &Ablation) -> LayerSet {
    probe::layers(tier, landlock_abi).iter().filter(|layer| !ablation.is_off(*layer)).collect()
}

fn host(user: &User) -> Host {
    let text = |value: &std::ffi::OsString| value.to_str().map(str::to_owned);
    let variables: BTreeMap<String, String> =
        user.variables.iter().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect();
    Host { home: user.home.clone(), variables }
}

/// Whether a failure means that namespaces are not to be had here, and not that something of ours is wrong.
fn is_refusal(layer: Layer, error: &io::Error) -> bool {
    let namespaces = matches!(
        layer,
        Layer::UserNamespace
            | Layer::MountNamespace
            | Layer::PidNamespace
            | Layer::NetworkNamespace
            | Layer::IpcNamespace
            | Layer::UtsNamespace
            | Layer::CgroupNamespace
    );
    let refused = [libc::EPERM, libc::EACCES, libc::ENOSPC, libc::EUSERS, libc::ENOSYS];
    namespaces && error.raw_os_error().is_some_and(|errno| refused.contains(&errno))
}

/// Asks for the layers that the policy requires, as far as `tier` can have them. It can always have these two, and
/// without them there is no cell, whatever a policy says.
fn require(
    policy: &EffectivePolicy,
    tier: Tier,
    layers: LayerSet,
    ablation: &Ablation,
) -> Result<(), OpenError> {
    let floor = [Layer::LandlockFiles, Layer::Seccomp];
    let required = policy.required.iter().filter(|layer| probe::can_have(tier, **layer));
    let missing = |layer: &&Layer| !layers.has(**layer) && !ablation.is_off(**layer);
    match floor.iter().chain(required).find(missing) {
        Some(layer) => Err(OpenError::Required(*layer)),
        None => Ok(()),
    }
}

fn build(
    policy: &EffectivePolicy,
    tier: Tier,
    abi: u32,
    zones: &(PathBuf, PathBuf),
    user: &User,
) -> Result<(Walls, Warden), OpenError> {
    // Before anything is made; the cgroup is asked for later, when it has been tried.
    let (layers, ablation) = (planned(tier, abi, &user.ablation), user.ablation.clone());
    require(policy, tier, layers.with(Layer::Cgroup), &ablation)?;
    let scratch = scratch(layers, user).map_err(OpenError::Plan)?;
    let environment = build_environment(policy, user, &scratch, zones);
    let policy = policy.clone();
    let mut walls = Walls::plan(policy, (tier, layers), ablation, abi, zones.clone(), scratch, environment)
        .map_err(OpenError::Plan)?;
    if walls.policy.central == Access::Write {
        store::make(&walls.central);
    }
    let pins = look_through(&walls)?;
    if walls.has(Layer::ProtectedNames) {
        walls.pins = pins;
    }
    walls.held = hold(&walls)?;
    let started = start(&walls);
    if started.is_err() {
        walls.scratch.remove();
    }
    Ok((walls, started?))
}

/// The directories to which the scope holds commands. One that is not there, or is reached by a link, cannot be held.
fn hold(walls: &Walls) -> Result<Option<Vec<ZonePath>>, OpenError> {
    let policy = &walls.policy;
    let Some(directories) = policy.paths.directories("bash") else { return Ok(None) };
    for directory in &directories {
        let refuse = |error: io::Error| OpenError::Held { directory: directory.clone(), source: error };
        walls.open_held(directory).map_err(refuse)?;
    }
    Ok(Some(directories))
}

fn start(walls: &Walls) -> Result<Warden, OpenError> {
    let mut warden = warden::start(walls).map_err(|source| start_error(walls.tier, source))?;
    match warden.hear(true).map_err(OpenError::Warden)? {
        Told::Ready => Ok(warden),
        Told::Unsupervised(errno) => {
            Err(OpenError::Unsupervised { source: io::Error::from_raw_os_error(errno) })
        }
        Told::Failed { layer, errno, step } => {
            Err(OpenError::Layer { layer, step, source: io::Error::from_raw_os_error(errno) })
        }
        Told::Made(..) => Err(OpenError::Warden(io::ErrorKind::InvalidData.into())),
    }
}

/// What stands in a supervisor's way, and what helps.
fn what_to_do(refusal: &io::Error) -> &'static str {
    match refusal.raw_os_error() {
        Some(libc::EBUSY) => {
            "another supervisor (a seccomp listener) is above this process, and the kernel allows one; start lazaret outside it"
        }
        Some(libc::EPERM | libc::EACCES) => {
            "no process may look into another; set `kernel.yama.ptrace_scope` to 0 or 1, or let a container's seccomp \
             profile allow process_vm_readv and pidfd_getfd"
        }
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => {
            "the kernel has no seccomp listeners that hand over descriptors; use Linux 5.14 or later, and a container whose \
             seccomp profile allows `seccomp`"
        }
        _ => "see `lazaret doctor`",
    }
}

fn start_error(tier: Tier, source: io::Error) -> OpenError {
    match tier {
        Tier::Namespaced => OpenError::Layer { layer: Layer::UserNamespace, step: "clone".into(), source },
        Tier::Flat => OpenError::Warden(source),
    }
}

/// Looks through both zones, removes what writes that were cut short have left, and returns what is to be pinned.
fn look_through(walls: &Walls) -> Result<Vec<protected::Pin>, OpenError> {
    let mut pins = Vec::new();
    for zone in [&walls.project, &walls.central] {
        let found = protected::find(zone, &walls.policy.matcher)?;
        litter::remove(zone, &found.litter);
        pins.extend(found.pins.into_iter().filter(|pin| !pins.contains(pin)).collect::<Vec<_>>());
    }
    Ok(pins)
}

fn build_environment(
    policy: &EffectivePolicy,
    user: &User,
    scratch: &Scratch,
    zones: &(PathBuf, PathBuf),
) -> Vec<CString> {
    let seen: Vec<&Path> = policy
        .grants
        .iter()
        .map(|grant| grant.path.as_path())
        .chain([zones.0.as_path(), zones.1.as_path()])
        .collect();
    let visible = |directory: &Path| seen.iter().any(|path| directory.starts_with(path));
    let built = environment::build(&policy.environment, &user.variables, scratch, visible);
    user.ablation.environment(built, &user.variables)
}

/// Where private files lie: in mounts of the session's own, or in a directory of the host that only the user can enter.
fn scratch(layers: LayerSet, user: &User) -> io::Result<Scratch> {
    if layers.has(Layer::MountNamespace) {
        return Ok(Scratch { home: user.home.clone(), tmp: "/tmp".into(), host: None });
    }
    let runtime = user.variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    let parent = runtime.filter(|path| path.is_dir()).unwrap_or_else(|| "/tmp".into());
    let host = nix::unistd::mkdtemp(&parent.join("lazaret-XXXXXX"))?;
    let made = Scratch { home: host.join("home"), tmp: host.join("tmp"), host: Some(host) };
    let mut private = DirBuilder::new();
    private.mode(0o700);
    private.create(&made.home)?;
    private.create(&made.tmp)?;
    made.shared().map_or(Ok(()), |shared| private.create(shared))?;
    Ok(made)
}

/// Resolves both roots and refuses those that would give away what must stay closed.
fn roots(request: &Open, policy: &EffectivePolicy, user: &User) -> Result<(PathBuf, PathBuf), OpenError> {
    // Before anything is made for it.
    let project = root(Zone::Project, &request.project, policy, user)?;
    let central = Path::new(&request.central);
    if central.is_absolute() && !central.exists() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(central);
        made.map_err(|error| root_error(Zone::Central, &request.central, error.to_string()))?;
    }
    let central = root(Zone::Central, &request.central, policy, user)?;
    if project == central {
        let why = "it is the project root too; choose another directory".to_owned();
        return Err(root_error(Zone::Central, &request.central, why));
    }
    Ok((project, central))
}

fn root_error(zone: Zone, path: &str, why: String) -> OpenError {
    OpenError::Root { zone, path: path.to_owned(), why }
}

fn root(zone: Zone, given: &str, policy: &EffectivePolicy, user: &User) -> Result<PathBuf, OpenError> {
    let refuse = |why: String| root_error(zone, given, why);
    if !given.starts_with('/') || given.contains('\0') {
        return Err(refuse("give an absolute path".into()));
    }
    let path = fs::canonicalize(given).map_err(|error| refuse(error.to_string()))?;
    if !path.is_dir() {
        return Err(refuse("it is not a directory".into()));
    }
    if path.to_str().is_none() {
        return Err(refuse("its path is not UTF-8".into()));
    }
    let closed = protected_root(&path, policy, user).or_else(|| closed_to_roots(&path, user));
    closed.map_or(Ok(path), |why| Err(refuse(why)))
}

/// A root may not lie in what is protected in every root, as nobody would see there what it is called.
fn protected_root(path: &Path, policy: &EffectivePolicy, user: &User) -> Option<String> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let (name, end) = policy.matcher.closed_to_zones(bytes.strip_prefix(b"/")?)?;
    if name.protection == Protection::Write && is_worktree(path) {
        return None;
    }
    let place = Path::new(OsStr::from_bytes(&bytes[..=end]));
    let instead = place.parent().filter(|parent| closed_to_roots(parent, user).is_none());
    let instead = instead.map_or("a directory outside it".to_owned(), |parent| parent.display().to_string());
    Some(format!("{} is protected in every root ({}); use {instead}", place.display(), name.why))
}

/// Whether it is a checkout of git's: a project of its own wherever it lies, as assistants put theirs below their own directories.
/// What lies in git's directory is none, whatever is in it.
fn is_worktree(path: &Path) -> bool {
    let mut names = path.components().map(|name| name.as_os_str().as_encoded_bytes());
    !names.any(|name| name.eq_ignore_ascii_case(b".git")) && path.join(".git").exists()
}

/// A root may not be, hold or lie in a place that holds the system or the rules themselves, nor hold a home.
fn closed_to_roots(path: &Path, user: &User) -> Option<String> {
    const SYSTEM: [&str; 13] = [
        "/usr",
        "/etc",
        "/bin",
        "/sbin",
        "/lib",
        "/lib64",
        "/boot",
        "/dev",
        "/proc",
        "/sys",
        "/run/user",
        "/var/lib",
        "/var/run",
    ];
    let variable: directories::Variable = &|name| user.variable(name);
    let mut homes = directories::homes(&user.home, variable).into_iter();
    if homes.any(|home| fs::canonicalize(&home).unwrap_or(home).starts_with(path)) {
        return Some("it holds your whole home directory; choose a directory inside it".into());
    }
    let configuration = directories::configuration(&user.home, variable);
    for (what, ours) in [("your policy", configuration), ("the records", state(user))] {
        let ours = Real::default().of(&ours);
        if path.starts_with(&ours) || ours.starts_with(path) {
            return Some(format!("it would open {what} in {} to what runs in a cell", ours.display()));
        }
    }
    let inside = |system: &&&str| path.starts_with(system) || Path::new(system).starts_with(path);
    SYSTEM.iter().find(inside).map(|system| format!("it would open {system} to what runs in a cell"))
}
