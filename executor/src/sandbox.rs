//! The sandbox of a session: policy, roots, what is found in them, the spec of cells, and the warden.

use crate::machine;
use crate::repository_question;
use crate::roots::{self, RootError};
use crate::secrets::{self, NotRevealed};
use crate::session_image::{self, ImageError};
use crate::user::User;
use broker_protocol::{
    Channel, ErrorKind, Failed, GatewaySupply, Layer, LayerSet, NetworkRequest, Open, Refused,
    Tier, TooLarge, Zone, ZonePath, frame,
};
use executor_audit::audit::{AuditError, AuditWriter};
use executor_credentials::{
    CompanyError, FindError, NewCredentials, SessionCredentials, WrittenPaths,
};
use executor_handles::Warden;
use executor_handles::account::Capacity;
use executor_layers::cgroup::{self, Cgroup};
use executor_layers::environment;
use executor_layers::home_files;
use executor_layers::probe;
use executor_peers::approvers::ApproversError;
use executor_peers::published::PublishError;
use executor_project::caches;
use executor_project::central_owner::{self, OwnerError, RootLock};
use executor_project::discovery;
use executor_project::grant_exceptions;
use executor_project::home_links;
use executor_project::linked_repository::{self, RepositoryLink};
use executor_project::network::{self, NetworkReach};
use executor_project::protected::{Discovery, ProtectError};
use executor_project::{
    AnsweringWorker, CreatedRecord, OpenedFiles, ProjectRepository, RepositoryWatch,
    open_created_files,
};
use executor_project::{git_identity, git_ignore, git_settings};
use executor_spec::ablation::Ablation;
use executor_spec::also_closed::{AlsoClosed, WhyClosed};
use executor_spec::certificates::CellRoot;
use executor_spec::error::{Privilege, SetupPart};
use executor_spec::known_directories::DirectoryMemory;
use executor_spec::linked_repository::LinkedRepository;
use executor_spec::notices;
use executor_spec::pins::PINS_MAX;
use executor_spec::protected_objects::ProtectedObjects;
use executor_spec::readable_secret::ReadableSecret;
use executor_spec::relay;
use executor_spec::sandbox::{self, ChosenRoots, Found, HomeFiles, Rooted, SandboxSpec};
use executor_spec::scratch::{NewScratch, Scratch};
use executor_spec::undo_directory;
use executor_spec::warden_message::WardenMessage;
use executor_spec::warden_message::WardenRequest;
use executor_spec::worker::{
    FileToolsSpec, NameSpec, ObjectSpec, RootSpec, WorkerSpec, WorkerTask,
};
use executor_spec::zones::Zones;
use executor_supervisor::SelfTest;
use executor_sys::stale_temporaries;
use policies::{Access, EffectivePolicy, Policies, PolicyError, choice, directories, source};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use thiserror::Error;

/// Why a client does not supply the gateways of its session.
#[derive(Debug, Error)]
pub(crate) enum SuppliedGatewayError {
    #[error(
        "the client is to start the gateway, and the policy of this executor does not permit that: say `from_client = true` below \
         `[gateway]` there"
    )]
    Unpermitted,
    #[error("the client is to start the gateway, and has sent no line for it")]
    NoLine,
    #[error("the client is to start the gateway, and its line for that cannot be used: {0}")]
    Line(io::Error),
    #[error(
        "{0}: a credential is used by a gateway that the executor starts, and by no other; use a profile without it"
    )]
    Credentials(String),
}

/// Reasons why a session cannot be opened.
#[derive(Debug, Error)]
pub(crate) enum SessionOpenError {
    /// A policy is invalid, or has no such profile.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The request exceeds a limit.
    #[error(transparent)]
    Limit(#[from] TooLarge),
    #[error(transparent)]
    Roots(#[from] RootError),
    /// The central root belongs to another project.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// A directory of the session's scope cannot be used.
    #[error(
        "commands cannot be restricted to {directory}, as the scope says: {source}; it must be a directory that exists, without links"
    )]
    Directory {
        directory: ZonePath,
        source: io::Error,
    },
    /// The image cannot be used as the root that cells see.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Protected names cannot be pinned.
    #[error(transparent)]
    Protect(#[from] ProtectError),
    /// Files of the host prevent the session.
    #[error("the sandbox cannot be planned: {0}")]
    Plan(io::Error),
    #[error("{part}: {step}: {source}")]
    Setup {
        part: SetupPart,
        step: String,
        source: io::Error,
        refused: Option<Privilege>,
    },
    /// No process of ours can supervise a program's calls: protected names could not be protected,
    /// nor anything in the flat tier.
    #[error("commands cannot be supervised on this machine ({source}): {}", remedy_for(.source))]
    Unsupervised { source: io::Error },
    /// There is no way to discard what its commands change.
    #[error("this machine cannot discard a command's changes: {0}")]
    ThrowAway(String),
    /// A layer that the policy requires is not available here.
    #[error("the policy requires the layer {}, which this machine does not have; see `lazaret doctor`", .0.name())]
    Required(Layer),
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The warden cannot be started or stopped.
    #[error("the session's warden cannot be made: {0}")]
    Warden(io::Error),
    /// The file worker's program is missing.
    #[error("the program of the file tools cannot be found: {0}")]
    Worker(io::Error),
    /// The gateway's program is missing, or does not start.
    #[error(
        "`lazaret-gateway`, which carries connections of commands, cannot be started: {0}; install it beside `lazaret-executor`"
    )]
    Gateway(io::Error),
    #[error(transparent)]
    ClientGateway(#[from] SuppliedGatewayError),
    #[error(transparent)]
    Published(#[from] PublishError),
    /// `[gateway]` of the policy cannot be used.
    #[error(transparent)]
    Company(CompanyError),
    #[error(transparent)]
    Approvers(#[from] ApproversError),
    /// The client requests what only an approver may grant.
    #[error(
        "the policy takes answers from `lazaret approve` alone, so no session opens with hosts or paths beyond its profile; name them \
         in the profile, or let a call ask for them (`wants`)"
    )]
    NotAsked,
    /// A file of secrets is not revealed.
    #[error(transparent)]
    Reveal(#[from] NotRevealed),
    /// A path requested for the session cannot be granted.
    #[error("{}", .0.why)]
    Lease(Refused),
    #[error("{}", .0.message)]
    Failed(Failed),
}

impl From<FindError> for SessionOpenError {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Company(error) => SessionOpenError::Company(error),
            FindError::Io(error) => SessionOpenError::Plan(error),
        }
    }
}

impl SessionOpenError {
    /// Returns the failure as the client receives it.
    pub(crate) fn failed(&self) -> Failed {
        let kind = match self {
            SessionOpenError::Policy(error) => error.kind(),
            SessionOpenError::Limit(_)
            | SessionOpenError::Directory { .. }
            | SessionOpenError::Image(_)
            | SessionOpenError::Owner(_)
            | SessionOpenError::ClientGateway(
                SuppliedGatewayError::NoLine | SuppliedGatewayError::Line(_),
            )
            | SessionOpenError::Roots(RootError::Root { .. }) => ErrorKind::InvalidInput,
            SessionOpenError::Roots(RootError::Shown { .. } | RootError::Temporary { .. })
            | SessionOpenError::NotAsked
            | SessionOpenError::Required(_)
            | SessionOpenError::Protect(_)
            | SessionOpenError::Company(_)
            | SessionOpenError::ClientGateway(
                SuppliedGatewayError::Unpermitted | SuppliedGatewayError::Credentials(_),
            )
            | SessionOpenError::Reveal(_)
            | SessionOpenError::Lease(_) => ErrorKind::DeniedPolicy,
            SessionOpenError::Plan(_)
            | SessionOpenError::Setup { .. }
            | SessionOpenError::Unsupervised { .. }
            | SessionOpenError::Audit(_)
            | SessionOpenError::Warden(_)
            | SessionOpenError::Worker(_)
            | SessionOpenError::Gateway(_)
            | SessionOpenError::Approvers(_) => ErrorKind::Internal,
            SessionOpenError::Published(_) => ErrorKind::Io,
            // This machine lacks what a throw-away session needs.
            SessionOpenError::ThrowAway(_) => ErrorKind::NotFound,
            SessionOpenError::Failed(failed) => failed.kind,
        };
        Failed {
            kind,
            message: self.to_string(),
        }
    }
}

/// Records about the work of cells that later sessions need.
type RepositoryRecords = (CreatedRecord, RepositoryWatch);

/// A sandbox with its warden ready.
pub(crate) struct Sandbox {
    pub spec: SandboxSpec,
    pub started: StartedWarden,
    pub also_closed: Vec<AlsoClosed>,
    pub created: Option<CreatedRecord>,
    pub watch: Option<RepositoryWatch>,
    pub root_lock: Option<RootLock>,
    pub credentials: SessionCredentials,
}

/// Prepared while the warden gets ready.
pub(crate) struct SessionSetup {
    /// The group that bounds the session as a whole, where there is one, with the warden in it.
    pub cgroup: Option<Rc<Cgroup>>,
    pub self_test: Option<SelfTest>,
    /// A [`WorkerSpec`] as it is sent to a file worker.
    pub worker: Vec<u8>,
    pub capacity: Capacity,
    pub audit: AuditWriter,
}

/// Reads the policy files of this machine and user.
pub(crate) fn read_policies(user: &User) -> Result<Policies, SessionOpenError> {
    let sources =
        source::read(&user.home, &|name| user.variable(name)).map_err(PolicyError::from)?;
    Ok(Policies::load(sources)?)
}

/// The policy of the session that a client requests.
pub(crate) fn policy_of(
    request: &Open,
    policies: &Policies,
    user: &User,
) -> Result<EffectivePolicy, SessionOpenError> {
    request.check()?;
    user.worker.file().map_err(SessionOpenError::Worker)?;
    let chosen = policies.choose(
        &request.profile,
        choice::has_file(Path::new(&request.project)),
    );
    let narrowing = (request.scope.as_ref(), request.trust);
    let policy = policies.resolve_session(
        &chosen.profile,
        &user.host(),
        narrowing,
        (request.network.as_ref(), request.file_leases),
    )?;
    if policy.approval.channel == Channel::Separate && request.is_wider() {
        return Err(SessionOpenError::NotAsked);
    }
    let policy = if request.throw_away {
        policy.without_hosts()?
    } else {
        policy
    };
    let is_own = |network: &NetworkRequest| network.gateway == GatewaySupply::Executor;
    if policy.has_gateway() && request.network.as_ref().is_none_or(is_own) {
        user.gateway.file().map_err(SessionOpenError::Gateway)?;
    }
    Ok(policy)
}

/// The zones of a session, and its policy with what depends on them.
pub(crate) fn zones_of(
    request: &Open,
    policy: EffectivePolicy,
    user: &User,
) -> Result<(EffectivePolicy, Zones), SessionOpenError> {
    let policy = policy.with_revealed(&request.reveal)?;
    let zones = roots::resolve(request, &policy, user)?;
    Ok((session_image::choose(request, policy, &zones, user)?, zones))
}

/// Makes the session's group, where there may be one, and moves the warden in.
fn join_cgroup(
    spec: &SandboxSpec,
    warden: &Warden,
) -> Result<Option<Rc<Cgroup>>, SessionOpenError> {
    if spec.ablation.is_off(Layer::Cgroup) {
        return Ok(None);
    }
    let Ok(cgroup) = cgroup::make(&spec.policy.limits) else {
        return Ok(None);
    };
    cgroup
        .add(warden.child.pid)
        .map_err(SessionOpenError::Warden)?;
    Ok(Some(Rc::new(cgroup)))
}

/// Makes what a session needs besides its warden, which has some milliseconds of work.
fn session_setup(
    spec: &SandboxSpec,
    warden: &mut Warden,
    user: &User,
) -> Result<SessionSetup, SessionOpenError> {
    let cgroup = join_cgroup(spec, warden)?;
    // A session is opened to be used: its first cell is in the group too, and is made as soon as it can be. A warden that is gone
    // has reported why.
    let _ = warden.request(WardenRequest::Cell);
    let self_test = spec
        .is_supervised()
        .then(|| SelfTest::begin(spec.tier, spec.caller_access))
        .transpose();
    let self_test = self_test.map_err(|source| SessionOpenError::Unsupervised { source })?;
    let worker = worker_spec(spec)?;
    let capacity = Capacity::new([spec.project.clone(), spec.central.clone()]);
    // After the processes, which must not inherit it.
    let audit = user.open_audit()?;
    Ok(SessionSetup {
        cgroup,
        self_test,
        worker,
        capacity,
        audit,
    })
}

/// The description that the file worker gets when it starts.
pub(crate) fn worker_spec(spec: &SandboxSpec) -> Result<Vec<u8>, SessionOpenError> {
    let root = |zone| {
        let (path, access) = spec.zone(zone);
        RootSpec {
            path: path.display().to_string(),
            writable: access == Access::Write,
        }
    };
    let (names, transit) = if spec.has(Layer::ProtectedNames) {
        (NameSpec::of(&spec.policy), spec.policy.transit.clone())
    } else {
        Default::default()
    };
    let worker = WorkerSpec {
        tier: spec.tier,
        layers: spec.layers,
        landlock_abi: spec.landlock_abi,
        project: root(Zone::Project),
        names,
        task: WorkerTask::FileTools(Box::new(FileToolsSpec {
            central: root(Zone::Central),
            granted: spec.readable().map(Path::to_owned).collect(),
            transit,
            objects: ObjectSpec::of(&spec.found().objects),
            scope: spec.policy.scope.clone(),
            undo: spec.policy.limits.undo,
            records: spec.found().directories.is_some(),
        })),
    };
    frame::encode_whole(&worker)
        .map_err(|error| SessionOpenError::Failed(Failed::internal(error.to_string())))
}

/// Requires the layers that the policy requires, and those it expects as far as `tier` supports them. The two
/// layers that every kernel of ours has are required whatever a policy says: without them there is no cell.
pub(crate) fn require(
    policy: &EffectivePolicy,
    tier: Tier,
    layers: LayerSet,
    ablation: &Ablation,
) -> Result<(), SessionOpenError> {
    let floor = [Layer::LandlockFiles, Layer::Seccomp];
    let expected = policy
        .expected
        .iter()
        .filter(|layer| probe::can_have(tier, **layer));
    let missing = |layer: &&Layer| !layers.has(**layer) && !ablation.is_off(**layer);
    match floor
        .iter()
        .chain(&policy.required)
        .chain(expected)
        .find(missing)
    {
        Some(layer) => Err(SessionOpenError::Required(*layer)),
        None => Ok(()),
    }
}

/// The paths of a session that do not depend on its tier.
#[derive(Clone, Copy)]
pub(crate) struct SessionPaths<'p> {
    pub zones: &'p Zones,
    /// Other paths of the project, as the client names them.
    pub names: &'p [String],
    /// Paths that the user lends to commands for writing.
    pub writes: &'p [String],
    pub tracer: Option<&'p Path>,
}

/// The tier of sessions on this machine, as far as it is known before anything is built: then the projects are walked once. Why it is
/// the flat one.
pub(crate) fn tier_here() -> (Tier, Option<String>) {
    match probe::may_refuse_namespaces().then(probe::namespaces) {
        Some(Err(refusal)) => (Tier::Flat, Some(refusal)),
        Some(Ok(())) | None => (Tier::Namespaced, None),
    }
}

/// Builds a sandbox in the namespaced tier, or in the flat one where the machine denies this user namespaces; then returns what it denies.
pub(crate) fn build_in_a_tier(
    policy: &EffectivePolicy,
    abi: u32,
    paths: SessionPaths,
    user: &User,
) -> Result<(Sandbox, Option<String>), SessionOpenError> {
    let is_thrown_away = paths.tracer.is_some();
    if !is_thrown_away && let (Tier::Flat, refusal) = tier_here() {
        let built = build_until_pinned(policy, Tier::Flat, abi, paths, user)?;
        return Ok((built, refusal));
    }
    match build_until_pinned(policy, Tier::Namespaced, abi, paths, user) {
        // A throw-away session needs mounts.
        Err(SessionOpenError::Setup {
            step,
            source,
            refused: Some(_),
            ..
        }) if is_thrown_away => Err(SessionOpenError::ThrowAway(format!("{step}: {source}"))),
        // The machine denies this user some of the namespaces: then none of them are used.
        Err(SessionOpenError::Setup {
            step,
            source,
            refused: Some(_),
            ..
        }) => {
            let built = build_until_pinned(policy, Tier::Flat, abi, paths, user)?;
            Ok((built, Some(format!("{step}: {source}"))))
        }
        built => Ok((built?, None)),
    }
}

/// How often a sandbox is built while protected names vanish as they are pinned.
const BUILDS_MAX: usize = 10;
/// The file of hosts' keys in the cells' home.
const KNOWN_HOSTS: &str = ".ssh/known_hosts";

/// Builds a sandbox. Where a program outside removes a protected name between its discovery and its pin, as a package manager or a
/// checkout may, what is there now is searched again: to go on without the pin would leave open what was only moved.
fn build_until_pinned(
    policy: &EffectivePolicy,
    tier: Tier,
    abi: u32,
    paths: SessionPaths,
    user: &User,
) -> Result<Sandbox, SessionOpenError> {
    for _ in 1..BUILDS_MAX {
        match build(policy, tier, abi, paths, user) {
            Err(SessionOpenError::Setup {
                part: SetupPart::Layer(Layer::ProtectedNames),
                source,
                ..
            }) if source.kind() == io::ErrorKind::NotFound => {}
            built => return built,
        }
    }
    build(policy, tier, abi, paths, user)
}

fn build(
    policy: &EffectivePolicy,
    tier: Tier,
    abi: u32,
    paths: SessionPaths,
    user: &User,
) -> Result<Sandbox, SessionOpenError> {
    let mut planned = plan(policy, (tier, abi), paths, user, None)?;
    // The answerer has exited when the search is over; the warden starts up meanwhile.
    if let Some(answerer) = planned.answerer.take() {
        answerer.kill();
    }
    let started = planned.start(user)?;
    planned.into_sandbox(started)
}

/// A sandbox described in full, before a process of it runs.
pub(crate) struct PlannedSandbox {
    pub spec: SandboxSpec,
    pub also_closed: Vec<AlsoClosed>,
    pub created: Option<CreatedRecord>,
    pub watch: Option<RepositoryWatch>,
    pub root_lock: Option<RootLock>,
    pub credentials: NewCredentials,
    /// The private storage, if it was made for this.
    pub scratch: Option<NewScratch>,
    /// The worker that has answered questions of the search, if there were any.
    pub answerer: Option<AnsweringWorker>,
}

impl PlannedSandbox {
    pub(crate) fn start(&self, user: &User) -> Result<StartedWarden, SessionOpenError> {
        if self.spec.scratch.host.is_some() {
            let written = home_files::write(&self.spec.scratch.home, &self.spec.home_files);
            written.map_err(SessionOpenError::Plan)?;
        }
        start(&self.spec, user)
    }

    pub(crate) fn into_sandbox(self, started: StartedWarden) -> Result<Sandbox, SessionOpenError> {
        let credentials = self.credentials.retain().map_err(SessionOpenError::Plan)?;
        // From now on the warden removes it too.
        self.scratch.into_iter().for_each(NewScratch::retain);
        Ok(Sandbox {
            spec: self.spec,
            started,
            also_closed: self.also_closed,
            created: self.created,
            watch: self.watch,
            root_lock: self.root_lock,
            credentials,
        })
    }
}

/// Parts that a plan takes over from a sandbox that stands ready: the rest is found out anew.
pub(crate) struct TakenOver {
    pub scratch: Scratch,
    /// The memory that its supervisors have, which is filled anew.
    pub created: Option<OwnedFd>,
    pub directories: Option<DirectoryMemory>,
    pub answerer: Option<AnsweringWorker>,
}

/// The private storage of a session: what a sandbox that stood ready has, or a new one.
fn scratch(
    old: Option<&Scratch>,
    layers: LayerSet,
    (zones, temporary): (&Zones, &[&Path]),
    user: &User,
) -> Result<(Scratch, Option<NewScratch>), SessionOpenError> {
    if let Some(old) = old {
        return Ok((old.clone(), None));
    }
    // The system's own place is no project.
    let is_named = |name: &&str| {
        let place = user.variable(name).map(PathBuf::from);
        place.is_some_and(|place| !place.starts_with("/run/user"))
    };
    let earlier = match ["TMPDIR", "XDG_RUNTIME_DIR"].iter().any(is_named) {
        true => roots::written_before(user),
        false => Vec::new(),
    };
    let unfit: Vec<&Path> = zones
        .roots()
        .into_iter()
        .chain(temporary.iter().copied())
        .chain(earlier.iter().map(PathBuf::as_path))
        .collect();
    let new = Scratch::make(layers, &unfit, &user.home, |name| user.variable(name));
    let new = new.map_err(SessionOpenError::Plan)?;
    Ok((new.paths().clone(), Some(new)))
}

/// Finds out all that a session's sandbox is, before a process of it runs.
pub(crate) fn plan(
    policy: &EffectivePolicy,
    (tier, abi): (Tier, u32),
    paths: SessionPaths,
    user: &User,
    mut taken_over: Option<TakenOver>,
) -> Result<PlannedSandbox, SessionOpenError> {
    let zones = paths.zones;
    let layers = required_layers(policy, tier, abi, user)?;
    let (linked, refused) = linked_repository(policy, zones, user);
    let (policy, shown) =
        session_image::show(policy.clone(), layers, zones, linked.as_ref(), user)?;
    let temporary: Vec<&Path> = sandbox::temporary(tier, &policy).collect();
    let old = taken_over.as_ref().map(|taken| &taken.scratch);
    let (scratch, new_scratch) = scratch(old, layers, (zones, &temporary), user)?;
    let earlier = match policy.names_sources() {
        true => roots::earlier_projects(user),
        false => Vec::new(),
    };
    let written = WrittenPaths {
        zones,
        linked: linked.as_ref(),
        lent: paths.writes,
        temporary: &temporary,
        earlier: &earlier,
    };
    let of_user = (user.home.as_path(), &user.variables);
    let credentials = NewCredentials::find(&policy, written, &scratch, of_user)?;
    let seen_by = (&scratch, CellRoot::of(layers));
    let roots = ChosenRoots {
        environment: build_environment(&policy, user, seen_by, zones, &credentials),
        certificates: credentials.files(),
        policy,
        tier,
        layers,
        ablation: user.ablation.clone(),
        landlock_abi: abi,
        zones: zones.clone(),
        linked,
        shown,
        scratch: scratch.clone(),
        tracer: paths.tracer.map(Path::to_owned),
    };
    let (rooted, root_lock) = claimed(roots, paths.names, user)?;
    let answerer = answerer(taken_over.as_mut());
    let memory = taken_over.map(|it| (it.created, it.directories));
    let Discovered {
        found,
        mut reported,
        records,
    } = discover(&rooted, user, &answerer, memory.unwrap_or_default())?;
    let (created, watch) = records.unzip();
    reported.extend(refused);
    let home = fill_home(&rooted, &found, (zones, &credentials), user);
    let directories = command_directories(&rooted)?;
    Ok(PlannedSandbox {
        spec: SandboxSpec::new(rooted, found, home, directories),
        also_closed: reported,
        created,
        watch,
        root_lock,
        credentials,
        scratch: new_scratch,
        answerer: answerer.into_inner().and_then(Result::ok),
    })
}

/// The layers of this machine, if they are those that the policy requires. It is checked before anything is created; the cgroup later,
/// when it has been tried.
fn required_layers(
    policy: &EffectivePolicy,
    tier: Tier,
    abi: u32,
    user: &User,
) -> Result<LayerSet, SessionOpenError> {
    let layers = machine::layers(tier, abi, &user.ablation);
    require(policy, tier, layers.with(Layer::Cgroup), &user.ablation)?;
    Ok(layers)
}

/// The roots of a session that shows nothing of ours, with the directories in which it writes by itself, and the lock of its central root.
fn claimed(
    roots: ChosenRoots,
    names: &[String],
    user: &User,
) -> Result<(Rooted, Option<RootLock>), SessionOpenError> {
    let rooted = Rooted::new(roots, names).map_err(SessionOpenError::Plan)?;
    roots::hide_state(&rooted, user)?;
    roots::keep_out_of_temporary(&rooted, user)?;
    make_own_directories(&rooted);
    let lock = central_owner::claim(&rooted.central, &rooted.project)?;
    Ok((rooted, lock))
}

/// The worker that answers about repositories, if one stood ready; otherwise it is started when it is first asked.
fn answerer(taken_over: Option<&mut TakenOver>) -> OnceCell<io::Result<AnsweringWorker>> {
    let waiting = taken_over.and_then(|it| it.answerer.take());
    waiting.map_or_else(OnceCell::new, |waiting| OnceCell::from(Ok(waiting)))
}

/// Makes the directories of the zones that a session writes in by itself.
fn make_own_directories(rooted: &Rooted) {
    if let Some(linked) = &rooted.linked
        && rooted.policy.project == Access::Write
    {
        // Without it, git in a cell says so.
        let _ = linked.make_logs();
    }
    if rooted.policy.central == Access::Write {
        undo_directory::make(&rooted.central);
    }
}

/// The project's repository, if it lies elsewhere and is to be opened, or why it stays closed. A scope that
/// restricts commands to directories closes it: its objects contain all of the project's files.
pub(crate) fn linked_repository(
    policy: &EffectivePolicy,
    zones: &Zones,
    user: &User,
) -> (Option<LinkedRepository>, Option<AlsoClosed>) {
    // Without protected names, its settings would be writable.
    if user.ablation.is_off(Layer::ProtectedNames) || policy.paths.directories("bash").is_some() {
        return (None, None);
    }
    let closed = |path: &Path| roots::closed_to_repositories(path, policy, user);
    match linked_repository::find(
        &zones.project,
        zones.roots(),
        &policy.git_directories,
        closed,
    ) {
        RepositoryLink::Inside => (None, None),
        RepositoryLink::Verified(linked) => (Some(linked), None),
        RepositoryLink::Refused(path, why) => (
            None,
            Some(AlsoClosed {
                path,
                why: WhyClosed::NotLinked(why),
            }),
        ),
    }
}

/// The directories to which the scope restricts commands. A directory that is missing or reached by a link is an error.
fn command_directories(spec: &Rooted) -> Result<Option<Vec<ZonePath>>, SessionOpenError> {
    let Some(directories) = spec.policy.paths.directories("bash") else {
        return Ok(None);
    };
    for directory in &directories {
        let refuse = |source| SessionOpenError::Directory {
            directory: directory.clone(),
            source,
        };
        spec.open_directory(directory).map_err(refuse)?;
    }
    Ok(Some(directories))
}

/// A warden that is ready, the descriptors it has sent, and what was prepared meanwhile.
pub(crate) struct StartedWarden {
    pub warden: Warden,
    /// For the file worker: the session's namespaces, the undo directory, and the memory of directories that calls have made.
    pub fds: Vec<OwnedFd>,
    /// For the gateway: the relay's sockets, if cells have a network.
    pub relay: Vec<OwnedFd>,
    pub setup: SessionSetup,
}

fn start(spec: &SandboxSpec, user: &User) -> Result<StartedWarden, SessionOpenError> {
    let mut warden = Warden::start(spec).map_err(|source| start_error(spec.tier, source))?;
    let mut setup = session_setup(spec, &mut warden, user)?;
    let mut relay = Vec::new();
    let mut message = warden.next_message().map_err(SessionOpenError::Warden)?;
    if let WardenMessage::Relay(fds) = message {
        relay = fds;
        message = warden.next_message().map_err(SessionOpenError::Warden)?;
    }
    match message {
        WardenMessage::Ready(fds) => {
            let tested = setup.self_test.take().map_or(Ok(()), SelfTest::finish);
            tested.map_err(|source| SessionOpenError::Unsupervised { source })?;
            let made = spec
                .found()
                .directories
                .iter()
                .map(|memory| memory.made.try_clone());
            let made: Vec<OwnedFd> = made
                .collect::<io::Result<_>>()
                .map_err(SessionOpenError::Plan)?;
            Ok(StartedWarden {
                warden,
                fds: fds.into_iter().chain(made).collect(),
                relay,
                setup,
            })
        }
        WardenMessage::Failed {
            part,
            errno,
            refused,
            step,
        } => Err(SessionOpenError::Setup {
            part,
            step,
            source: io::Error::from_raw_os_error(errno),
            refused,
        }),
        WardenMessage::Relay(_)
        | WardenMessage::Cell(..)
        | WardenMessage::LeasedCell(..)
        | WardenMessage::Terminal(..)
        | WardenMessage::Lost(_) => {
            Err(SessionOpenError::Warden(io::ErrorKind::InvalidData.into()))
        }
    }
}

/// Names what prevents supervision, and the remedy.
fn remedy_for(refusal: &io::Error) -> &'static str {
    match refusal.raw_os_error() {
        Some(libc::EBUSY) => {
            "another supervisor (a seccomp listener) is above this process, and the kernel allows one; start lazaret outside it"
        }
        Some(libc::EPERM | libc::EACCES) => {
            "no process may read another's memory; set `kernel.yama.ptrace_scope` to 0 or 1"
        }
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => {
            "the kernel has no seccomp listeners that hand over descriptors; use Linux 5.14 or later, and a container whose \
             seccomp profile allows `seccomp`"
        }
        _ => "see `lazaret doctor`",
    }
}

fn start_error(tier: Tier, source: io::Error) -> SessionOpenError {
    match tier {
        Tier::Namespaced => {
            let refused =
                Some(Privilege::Namespaces).filter(|privilege| privilege.is_refused_by(&source));
            SessionOpenError::Setup {
                part: Layer::UserNamespace.into(),
                step: "clone".into(),
                source,
                refused,
            }
        }
        Tier::Flat => SessionOpenError::Warden(source),
    }
}

/// The result of searching both zones.
struct Discovered {
    found: Found,
    /// What people are told of what is closed although its name does not show it.
    reported: Vec<AlsoClosed>,
    /// The records of what cells create and git tracks.
    records: Option<RepositoryRecords>,
}

/// Searches both zones for what is protected.
fn discover(
    spec: &Rooted,
    user: &User,
    answerer: &OnceCell<io::Result<AnsweringWorker>>,
    (created, directories): (Option<OwnedFd>, Option<DirectoryMemory>),
) -> Result<Discovered, SessionOpenError> {
    let (found, (secrets, mut notices), opened) = look_through(spec, user, answerer, created)?;
    let Some(OpenedFiles {
        memory,
        record,
        mut watch,
    }) = opened
    else {
        return Ok(Discovered {
            found: Found::default(),
            reported: Vec::new(),
            records: None,
        });
    };
    let directories = match directories {
        Some(memory) => memory.filled(&found.directories),
        None => DirectoryMemory::new(&found.directories),
    };
    let directories = directories.map_err(SessionOpenError::Plan)?;
    watch.others.follow(spec, &directories);
    notices.extend(notices::opened_names(&spec.policy));
    // What a profile does not grant is news to nobody until a command asks for it.
    let is_told = |closed: &&AlsoClosed| !matches!(closed.why, WhyClosed::NotGranted(_));
    let reported = found.also_closed.iter().filter(is_told).cloned().collect();
    Ok(Discovered {
        found: Found {
            pins: found.pins,
            objects: found.objects,
            secrets,
            notices,
            also_closed: found.also_closed,
            led_to: found.led_to,
            created: Some(memory),
            directories: Some(directories),
        },
        reported,
        records: Some((record, watch)),
    })
}

/// Files of secrets that commands can read, and what people are told about such files.
type ReadableFiles = (Vec<ReadableSecret>, Vec<String>);

/// Finds what is protected in both zones, and removes the temporary files of interrupted writes.
fn look_through(
    spec: &Rooted,
    user: &User,
    answerer: &OnceCell<io::Result<AnsweringWorker>>,
    created: Option<OwnedFd>,
) -> Result<(Discovery, ReadableFiles, Option<OpenedFiles>), SessionOpenError> {
    // Without mounts the supervisor protects every name, however many there are.
    let mounts_max = if spec.has(Layer::MountNamespace) {
        PINS_MAX
    } else {
        usize::MAX
    };
    let zones = [spec.project.as_path(), spec.central.as_path()];
    let is_protected = spec.has(Layer::ProtectedNames);
    // The answerer is started only if there is a question: it costs a fifth of the time to open a
    // session. For a repository there always is one, so it starts up while we search the project.
    let answerer = || answerer.get_or_init(|| repository_question::answerer(spec, user));
    if is_protected && ProjectRepository::of(spec).is_some() {
        answerer();
    }
    let ask = |texts| match answerer() {
        Ok(answerer) => answerer.settings(texts),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    };
    let named = |objects: &ProtectedObjects| match is_protected {
        true => git_settings::named(user.git(), &spec.project, objects, &ask).map(|mut named| {
            let homes = directories::homes(&user.home, &|name| user.variable(name));
            named.extend(homes.iter().flat_map(|home| home_links::named(home, zones)));
            named
        }),
        false => Ok(BTreeSet::new()),
    };
    let outer = roots::outer_repository(&spec.project, user);
    let (linked, matcher) = (spec.linked.as_ref(), &spec.policy.matcher);
    let mut found =
        discovery::discover_with(zones, linked, outer.as_deref(), matcher, mounts_max, named)?;
    if is_protected {
        grant_exceptions::close(&mut found, spec);
    }
    for (zone, path) in &found.temporaries {
        stale_temporaries::remove(zone, std::slice::from_ref(path));
    }
    if !is_protected {
        return Ok((found, ReadableFiles::default(), None));
    }
    let opened = open_created_files(spec, &mut found, created, |repository, files| {
        answerer().as_ref().ok()?.repository(repository, files)
    });
    let opened = opened.map_err(SessionOpenError::Plan)?;
    let ask = |repository: &_, files: &_| answerer().as_ref().ok()?.repository(repository, files);
    let readable = secrets::make_readable(&mut found, spec, user, ask)?;
    Ok((found, readable, Some(opened)))
}

/// Files that the cells' home has at first. If it lies on the host, that is written before the warden starts, otherwise with its mount.
fn fill_home(
    spec: &Rooted,
    found: &Found,
    (zones, credentials): (&Zones, &NewCredentials),
    user: &User,
) -> HomeFiles {
    let mut new = HomeFiles::default();
    let (home, files) = user.git_files();
    git_identity::give_git_settings(&mut new, spec, &home, &files);
    if spec.has(Layer::ProtectedNames) {
        git_ignore::ignore_hidden(&mut new, spec, found);
    }
    let pnpm = caches::pnpm_settings(&spec.policy, NetworkReach::of(&spec.policy), zones);
    new.files
        .extend(pnpm.map(|(name, text)| (name.into(), text)));
    // Where the policy shows the user's own file, that one counts.
    let clients = credentials.home_files().iter();
    let clients = clients.filter(|(name, _)| !spec.shows(&spec.scratch.home.join(name)));
    new.files
        .extend(clients.map(|(name, text)| (name.clone(), text.clone().into_bytes())));
    let known = credentials.ssh().known_hosts();
    if !known.is_empty() && !spec.shows(&spec.scratch.home.join(KNOWN_HOSTS)) {
        new.files.push((KNOWN_HOSTS.into(), known.into()));
    }
    new
}

/// Variables that lead to the ssh agent, if the policy lets it sign, and to the hosts' keys, which ssh looks for in the home that the user
/// database names.
fn ssh_variables(policy: &EffectivePolicy, home: &Path) -> Vec<(OsString, OsString)> {
    if policy.ssh.is_empty() {
        return Vec::new();
    }
    let known = home.join(KNOWN_HOSTS);
    let command = format!("ssh -o UserKnownHostsFile={}", known.display());
    vec![
        ("SSH_AUTH_SOCK".into(), relay::AGENT.into()),
        ("GIT_SSH_COMMAND".into(), command.into()),
    ]
}

fn build_environment(
    policy: &EffectivePolicy,
    user: &User,
    (scratch, root): (&Scratch, CellRoot),
    zones: &Zones,
    credentials: &NewCredentials,
) -> Vec<CString> {
    let seen: Vec<&Path> = policy
        .grants
        .iter()
        .map(|grant| grant.path.as_path())
        .chain(zones.roots())
        .collect();
    let visible = |directory: &Path| seen.iter().any(|path| directory.starts_with(path));
    let (rules, ours) = (&policy.environment, &user.variables);
    let reach = NetworkReach::of(policy);
    let mut own = network::variables(rules, reach, ours, visible);
    own.retain(|(name, value)| caches::is_of_use((name, value), &scratch.home));
    own.extend(caches::variables(policy, reach, ours, &zones.central));
    own.extend(executor_project::own_state::variables(
        policy,
        &zones.central,
        credentials.initial_state(),
    ));
    own.extend(credentials.certificate_variables(root, (rules, ours)));
    own.extend(ssh_variables(policy, &scratch.home));
    let placeholders = credentials.placeholders();
    let private = (scratch.home.as_path(), scratch.tmp.as_path());
    let built = environment::build(rules, ours, own, placeholders, private, visible);
    user.ablation.environment(built, &user.variables)
}
