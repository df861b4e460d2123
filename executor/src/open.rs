//! Opens a session: policy, roots, sandbox spec, warden, audit. Everything that does not depend on a call happens here.

use crate::account::Capacity;
use crate::approvals::{Approval, Approvals};
use crate::approvers::{Approvers, ApproversError};
use crate::authorise::opened_with;
use crate::background::BackgroundProcesses;
use crate::central_root;
use crate::files::{Files, WorkerStart};
use crate::image::{self, ImageError};
use crate::kept_texts::KeptTexts;
use crate::machine;
use crate::missing_program::Profiles;
use crate::pool::Pool;
use crate::repository_question;
use crate::roots::{self, RootError};
use crate::secrets::{self, NotRevealed};
use crate::session::Session;
use crate::user::User;
use broker_protocol::content::Pieces;
use broker_protocol::gateway::GatewaySpec;
use broker_protocol::{
    Channel, Digest, ErrorKind, Extent, Failed, Layer, LayerSet, Open, Opened, Refused, Tier,
    TooLarge, Wants, Zone, ZonePath, frame, limit,
};
use executor_audit::audit::{Audit, AuditError};
use executor_audit::record::{Record, SessionFacts};
use executor_cell::Warden;
use executor_credentials::{
    CompanyError, FindError, NewCredentials, SessionCredentials, WrittenPaths,
};
use executor_layers::cgroup::{self, Cgroup};
use executor_layers::environment;
use executor_layers::home_files;
use executor_layers::probe;
use executor_leases::RULE;
use executor_peers::published::{PublishError, Published};
use executor_peers::{Gateway, GatewayStart, Repeats, gateway, published};
use executor_project::caches;
use executor_project::central_owner::{self, OwnerError, RootLock};
use executor_project::discovery;
use executor_project::grant_exceptions;
use executor_project::home_links;
use executor_project::linked_repository::{self, Link};
use executor_project::network::{self, Online, Reach};
use executor_project::protected::{self, Discovery, ProtectError};
use executor_project::throw_away;
use executor_project::{
    AnsweringWorker, CreatedRecord, OpenedFiles, ProjectChecks, ProjectRepository, RepositoryWatch,
    RootModes, open_created_files, take_unreported,
};
use executor_project::{git_identity, git_ignore, git_settings};
use executor_spec::ablation::Ablation;
use executor_spec::also_closed::{AlsoClosed, WhyClosed};
use executor_spec::error::{Part, Privilege};
use executor_spec::known_directories::DirectoryMemory;
use executor_spec::linked_repository::LinkedRepository;
use executor_spec::notices;
use executor_spec::pins::PINS_MAX;
use executor_spec::protected_objects::ProtectedObjects;
use executor_spec::readable_secret::{ReadableSecret, Seen};
use executor_spec::sandbox::{self, Found, HomeFiles, Rooted, Roots, SandboxSpec};
use executor_spec::scratch::Scratch;
use executor_spec::undo_directory;
use executor_spec::warden_message::WardenMessage;
use executor_spec::warden_message::WardenRequest;
use executor_spec::worker::{
    FileToolsSpec, NameSpec, ObjectSpec, RootSpec, WorkerSpec, WorkerTask,
};
use executor_spec::zones::Zones;
use executor_supervisor::SelfTest;
use executor_sys::confine;
use executor_sys::stale_temporaries;
use policies::{Access, EffectivePolicy, Policies, PolicyError, choice, directories, source};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use thiserror::Error;

/// Reasons why a session cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
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
        part: Part,
        step: String,
        source: io::Error,
        refused: Option<Privilege>,
    },
    /// No process of ours can supervise a program's calls: protected names could not be protected,
    /// nor anything in the flat tier.
    #[error("commands cannot be supervised on this machine ({source}): {}", what_to_do(.source))]
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

impl OpenError {
    /// Returns the failure as the client receives it.
    pub fn failed(&self) -> Failed {
        let kind = match self {
            OpenError::Policy(error) => error.kind(),
            OpenError::Limit(_)
            | OpenError::Directory { .. }
            | OpenError::Image(_)
            | OpenError::Owner(_)
            | OpenError::Roots(RootError::Root { .. }) => ErrorKind::InvalidInput,
            OpenError::Roots(RootError::Shown { .. } | RootError::Temporary { .. })
            | OpenError::NotAsked
            | OpenError::Required(_)
            | OpenError::Protect(_)
            | OpenError::Company(_)
            | OpenError::Reveal(_)
            | OpenError::Lease(_) => ErrorKind::DeniedPolicy,
            OpenError::Plan(_)
            | OpenError::Setup { .. }
            | OpenError::Unsupervised { .. }
            | OpenError::Audit(_)
            | OpenError::Warden(_)
            | OpenError::Worker(_)
            | OpenError::Gateway(_)
            | OpenError::Approvers(_) => ErrorKind::Internal,
            OpenError::Published(_) => ErrorKind::Io,
            // This machine lacks what a throw-away session needs.
            OpenError::ThrowAway(_) => ErrorKind::NotFound,
            OpenError::Failed(failed) => failed.kind,
        };
        Failed {
            kind,
            message: self.to_string(),
        }
    }
}

/// Records about the work of cells that later sessions need.
type Records = (CreatedRecord, RepositoryWatch);

/// A sandbox with its warden ready.
struct Sandbox {
    spec: SandboxSpec,
    started: Started,
    also_closed: Vec<AlsoClosed>,
    created: Option<CreatedRecord>,
    watch: Option<RepositoryWatch>,
    root_lock: Option<RootLock>,
    credentials: SessionCredentials,
}

/// Prepared while the warden gets ready.
struct Beside {
    /// The group that bounds the session as a whole, where there is one, with the warden in it.
    cgroup: Option<Rc<Cgroup>>,
    self_test: Option<SelfTest>,
    /// A [`WorkerSpec`] as it is sent to a file worker.
    worker: Vec<u8>,
    capacity: Capacity,
    audit: Audit,
}

/// Reads the policy files of this machine and user.
pub fn read_policies(user: &User) -> Result<Policies, OpenError> {
    let sources =
        source::read(&user.home, &|name| user.variable(name)).map_err(PolicyError::from)?;
    Ok(Policies::load(sources)?)
}

/// Opens a session for the client at the other end of `client`.
pub fn open(
    request: &Open,
    policies: Policies,
    user: &User,
    client: BorrowedFd,
) -> Result<(Opened, Session), OpenError> {
    request.check()?;
    user.worker.file().map_err(OpenError::Worker)?;
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
        return Err(OpenError::NotAsked);
    }
    let policy = if request.throw_away {
        policy.without_hosts()?
    } else {
        policy
    };
    if policy.has_gateway() {
        user.gateway.file().map_err(OpenError::Gateway)?;
    }
    // First, as what was made would be of no use.
    let published = published::bind(&policy.ports.publish)?;
    let policy = policy.with_revealed(&request.reveal)?;
    let zones = roots::resolve(request, &policy, user)?;
    let policy = image::choose(request, policy, &zones, user)?;
    let abi = user.ablation.landlock_abi(confine::landlock_abi());
    let tracer = if request.throw_away {
        Some(throw_away(request, &policy, &zones, user)?)
    } else {
        None
    };
    let mut changed: Vec<AlsoClosed> = central_root::unlock(&zones.central).into_iter().collect();
    let session = SessionPaths {
        zones: &zones,
        names: &request.names,
        writes: &request.write,
        tracer: tracer.as_deref(),
    };
    let build = || build_in_a_tier(&policy, abi, session, user);
    let (sandbox, refusal) = match build() {
        Err(OpenError::Protect(error @ ProtectError::CentralTooLarge { .. })) => {
            changed.push(central_root::set_aside(&zones.central).map_err(|_| error)?);
            build()?
        }
        Err(OpenError::Protect(error @ ProtectError::TooMany { .. })) if tracer.is_none() => {
            let aside =
                central_root::set_aside_newest(&zones.project, &zones.central, &policy.matcher);
            changed.push(aside.map_err(|_| error)?);
            build()?
        }
        built => built?,
    };
    let Sandbox {
        spec,
        started,
        also_closed,
        created,
        watch,
        root_lock,
        credentials,
    } = sandbox;
    let also_closed: Vec<AlsoClosed> = changed.into_iter().chain(also_closed).collect();
    let Started {
        warden,
        fds,
        relay,
        beside:
            Beside {
                cgroup,
                worker,
                capacity,
                mut audit,
                ..
            },
    } = started;
    let layers = if cgroup.is_some() {
        spec.layers.with(Layer::Cgroup)
    } else {
        spec.layers
    };
    require(&policy, spec.tier, layers, &user.ablation)?;
    let pool = Pool::new(warden, spec.policy.limits.clone(), capacity, request.spare);
    let pool = pool.map_err(OpenError::Failed)?;
    let facts = SessionFacts {
        policy: spec.policy.digest,
        tier: spec.tier,
        layers,
    };
    let (wants, refused) = leased(request, &spec, user);
    let notices = spec
        .found()
        .notices
        .iter()
        .chain(credentials.held.notices());
    let ports = notices::ports(&spec.policy.ports);
    let flat = refusal.as_deref().map(notices::flat);
    let short = audit.short_of_room().map(|it| it.to_string());
    let (closed, over_bounds) = protected::describe(&also_closed);
    let opened = Opened {
        session: audit.begin_session(facts)?,
        project: spec.project.display().to_string(),
        central: spec.central.display().to_string(),
        profile: spec.policy.profile.clone(),
        policy: spec.policy.digest,
        tier: spec.tier,
        also_closed: closed.into_iter().chain(refused).collect(),
        over_bounds: u32::try_from(over_bounds).unwrap_or(u32::MAX),
        notices: flat
            .into_iter()
            .chain(notices::hidden_nothing(&spec))
            .chain(notices.cloned())
            .chain(ports)
            .chain(short)
            .collect(),
        layers: probe::report(
            layers,
            (spec.tier, spec.caller_access, spec.policy.hides),
            abi,
            refusal.as_deref(),
            &user.ablation,
        ),
        network: spec
            .policy
            .has_network()
            .then(|| policies::network::lists(&spec.policy.network)),
    };
    let roots = [&opened.project, &opened.central].map(|root| audit.redacted(root));
    let record = Record::opened(&opened, [&roots[0], &roots[1]], layers, request.throw_away);
    audit.append(
        &record.with_opened(
            &spec.policy.opened,
            spec.found()
                .secrets
                .iter()
                .filter(|file| file.seen == Seen::Real)
                .count(),
            spec.policy.hides,
        ),
    )?;
    let approvers = match spec.policy.approval.channel {
        Channel::Relay => None,
        Channel::Separate => Some(Approvers::listen(&spec, opened.clone(), client, user)?),
    };
    let broken = |error: io::Error| OpenError::Failed(Failed::internal(error.to_string()));
    // The first descriptor is the user namespace, which gives rights in the others.
    let user_namespace = fds.first().filter(|_| spec.has(Layer::MountNamespace));
    let user_namespace = user_namespace
        .map(OwnedFd::try_clone)
        .transpose()
        .map_err(broken)?;
    let forks = spec.has(Layer::PidNamespace);
    let worker = WorkerStart {
        program: user.worker.clone(),
        spec: worker,
        fds,
        forks,
        cgroup,
        session: opened.session.clone(),
    };
    let gateway =
        start_gateway(&spec, &credentials, (relay, published), user).map_err(OpenError::Gateway)?;
    let missing = opened_with(&wants, &spec, user).map_err(OpenError::Lease)?;
    let modes = RootModes::of(&spec);
    let mut session = Session {
        layers,
        approvals: Approvals::new(&spec.policy.approval, request.answer_s, approvers)
            .map_err(broken)?,
        online: Online::of(&spec, &user.variables),
        user_namespace,
        pool,
        files: Files::new(worker),
        gateway,
        repeats: Repeats::default(),
        capture: request
            .capture
            .map_or(u64::MAX, Into::into)
            .min(spec.policy.limits.capture),
        found: take_unreported(&spec),
        spec,
        profiles: Profiles {
            policies,
            user: user.clone(),
        },
        audit,
        background: BackgroundProcesses::default(),
        created,
        root_lock,
        credentials,
        checks: ProjectChecks::new(modes, watch),
        kept: KeptTexts::default(),
        calls: BTreeMap::new(),
        content: Pieces::default(),
        outbox: Vec::new(),
        buffer: Vec::new(),
    };
    session.await_authority().map_err(OpenError::Gateway)?;
    // What the user granted when opening the session is granted until it ends.
    let granted = Approval {
        rule: RULE.into(),
        extent: Extent::Session,
        digest: Digest([0; 32]),
        missing,
    };
    let begun = session.begin_with(granted).map_err(OpenError::Failed)?;
    begun.map_err(OpenError::Lease)?;
    Ok((opened, session))
}

/// The leases that a session begins with: those requested, and what its profile reads. Of these, why each stays closed that cannot be
/// leased here: a path of a policy need not exist in every session.
fn leased(request: &Open, spec: &SandboxSpec, user: &User) -> (Wants, Vec<String>) {
    let mut wants = Wants {
        read: request.read.clone(),
        write: request.write.clone(),
        ..Wants::default()
    };
    let mut refused = Vec::new();
    for path in &spec.policy.read {
        let text = path.display().to_string();
        let one = Wants {
            read: vec![text.clone()],
            ..Wants::default()
        };
        if wants.read.len() + wants.write.len() == limit::WANTED_PATHS {
            refused.push(format!(
                "{text:?} (`read` of the profile: more paths than a session may have)"
            ));
        } else if let Err(error) = opened_with(&one, spec, user) {
            refused.push(format!("{text:?} (`read` of the profile: {})", error.why));
        } else if !wants.read.contains(&text) {
            wants.read.push(text);
        }
    }
    (wants, refused)
}

/// Starts the session's gateway, if its cells have a network, or reach ports of this machine.
fn start_gateway(
    spec: &SandboxSpec,
    credentials: &SessionCredentials,
    (relay, published): (Vec<OwnedFd>, Vec<Published>),
    user: &User,
) -> io::Result<Option<Gateway>> {
    if !spec.policy.has_gateway() {
        return Ok(None);
    }
    let (listeners, publish): (Vec<_>, Vec<_>) = published.into_iter().unzip();
    let start = GatewayStart {
        program: user.gateway.file()?.try_clone_to_owned()?,
        environment: gateway::environment(&user.variables, &[&spec.project, &spec.central]),
        spec: GatewaySpec {
            lists: policies::network::lists(&spec.policy.network).lists,
            credentials: credentials.held.specs(),
            authority: None,
            authorities: credentials.company.authorities.clone(),
            proxy: credentials.company.proxy.clone(),
            rules: spec.policy.http.requests(),
            connect: spec.policy.ports.connect.clone(),
            publish,
            announced: spec.is_supervised() || !spec.has(Layer::NetworkNamespace),
        },
        sockets: relay.into_iter().chain(listeners).collect(),
    };
    Gateway::start(start).map(Some)
}

/// Makes the session's group, where there may be one, and moves the warden in.
fn join_cgroup(spec: &SandboxSpec, warden: &Warden) -> Result<Option<Rc<Cgroup>>, OpenError> {
    if spec.ablation.is_off(Layer::Cgroup) {
        return Ok(None);
    }
    let Ok(cgroup) = cgroup::make(&spec.policy.limits) else {
        return Ok(None);
    };
    cgroup.add(warden.child.pid).map_err(OpenError::Warden)?;
    Ok(Some(Rc::new(cgroup)))
}

/// Makes what a session needs besides its warden, which has some milliseconds of work.
fn beside(spec: &SandboxSpec, warden: &mut Warden, user: &User) -> Result<Beside, OpenError> {
    let cgroup = join_cgroup(spec, warden)?;
    // A session is opened to be used: its first cell is in the group too, and is made as soon as it can be. A warden that is gone
    // has reported why.
    let _ = warden.request(WardenRequest::Cell);
    let self_test = spec
        .is_supervised()
        .then(|| SelfTest::begin(spec.tier, spec.caller_access))
        .transpose();
    let self_test = self_test.map_err(|source| OpenError::Unsupervised { source })?;
    let worker = worker_spec(spec)?;
    let capacity = Capacity::new([spec.project.clone(), spec.central.clone()]);
    // After the processes, which must not inherit it.
    let audit = user.open_audit()?;
    Ok(Beside {
        cgroup,
        self_test,
        worker,
        capacity,
        audit,
    })
}

/// What the file worker is told when it starts.
fn worker_spec(spec: &SandboxSpec) -> Result<Vec<u8>, OpenError> {
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
        .map_err(|error| OpenError::Failed(Failed::internal(error.to_string())))
}

/// Requires the layers that the policy requires, and those it expects as far as `tier` supports them. The two
/// layers that every kernel of ours has are required whatever a policy says: without them there is no cell.
fn require(
    policy: &EffectivePolicy,
    tier: Tier,
    layers: LayerSet,
    ablation: &Ablation,
) -> Result<(), OpenError> {
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
        Some(layer) => Err(OpenError::Required(*layer)),
        None => Ok(()),
    }
}

/// Puts throw-away overlays over everything that commands may write. Returns the program that traces them.
fn throw_away(
    request: &Open,
    policy: &EffectivePolicy,
    zones: &Zones,
    user: &User,
) -> Result<PathBuf, OpenError> {
    let refuse = |why: &str| OpenError::ThrowAway(why.to_owned());
    let tracer = user
        .tracer()
        .ok_or_else(|| refuse("`lazaret-trace` is not installed beside the executor"))?;
    if policy.image.is_some() {
        return Err(refuse(
            "the session has an image, in which the tracer cannot run",
        ));
    }
    let (linked, _) = linked_repository(policy, zones, user);
    let mut all: Vec<PathBuf> = zones.roots().map(Path::to_owned).into();
    all.extend(linked.map(|linked| linked.common));
    all.extend(request.write.iter().map(PathBuf::from));
    // A directory below another one would get two overlays, and only the upper one is visible.
    all.sort();
    let mut outermost: Vec<PathBuf> = Vec::new();
    for path in all {
        if !outermost
            .last()
            .is_some_and(|above| path.starts_with(above))
        {
            outermost.push(path);
        }
    }
    let state = user.state().canonicalize().unwrap_or_else(|_| user.state());
    if outermost.iter().any(|path| state.starts_with(path)) {
        return Err(refuse(
            "the records of Lazaret lie in a directory whose changes it would discard",
        ));
    }
    let covered = throw_away::cover(&outermost, policy.limits.scratch);
    covered.map_err(|error| OpenError::ThrowAway(format!("{}: {}", error.step, error.source)))?;
    Ok(tracer)
}

/// The paths of a session that do not depend on its tier.
#[derive(Clone, Copy)]
struct SessionPaths<'p> {
    zones: &'p Zones,
    /// Other paths of the project, as the client names them.
    names: &'p [String],
    /// Paths that the user lends to commands for writing.
    writes: &'p [String],
    tracer: Option<&'p Path>,
}

/// Builds a sandbox in the namespaced tier, or in the flat one where the machine denies this user namespaces; then returns what it denies.
fn build_in_a_tier(
    policy: &EffectivePolicy,
    abi: u32,
    paths: SessionPaths,
    user: &User,
) -> Result<(Sandbox, Option<String>), OpenError> {
    let is_thrown_away = paths.tracer.is_some();
    // Known before anything is built, the projects are walked once.
    if !is_thrown_away
        && probe::may_refuse_namespaces()
        && let Err(refusal) = probe::namespaces()
    {
        let built = build_until_pinned(policy, Tier::Flat, abi, paths, user)?;
        return Ok((built, Some(refusal)));
    }
    match build_until_pinned(policy, Tier::Namespaced, abi, paths, user) {
        // A throw-away session needs mounts.
        Err(OpenError::Setup {
            step,
            source,
            refused: Some(_),
            ..
        }) if is_thrown_away => Err(OpenError::ThrowAway(format!("{step}: {source}"))),
        // The machine denies this user some of the namespaces: then none of them are used.
        Err(OpenError::Setup {
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

/// Builds a sandbox. Where a program outside removes a protected name between its discovery and its pin, as a package manager or a
/// checkout may, what is there now is searched again: to go on without the pin would leave open what was only moved.
fn build_until_pinned(
    policy: &EffectivePolicy,
    tier: Tier,
    abi: u32,
    paths: SessionPaths,
    user: &User,
) -> Result<Sandbox, OpenError> {
    for _ in 1..BUILDS_MAX {
        match build(policy, tier, abi, paths, user) {
            Err(OpenError::Setup {
                part: Part::Layer(Layer::ProtectedNames),
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
) -> Result<Sandbox, OpenError> {
    let zones = paths.zones;
    // Checked before anything is created; the cgroup is checked later, when it has been tried.
    let layers = machine::layers(tier, abi, &user.ablation);
    require(policy, tier, layers.with(Layer::Cgroup), &user.ablation)?;
    let (linked, refused) = linked_repository(policy, zones, user);
    let (policy, shown) = image::show(policy.clone(), layers, zones, linked.as_ref(), user)?;
    let temporary: Vec<&Path> = sandbox::temporary(tier, &policy).collect();
    let unfit: Vec<&Path> = zones
        .roots()
        .into_iter()
        .chain(temporary.iter().copied())
        .collect();
    let scratch = Scratch::make(layers, &unfit, &user.home, |name| user.variable(name));
    let scratch = scratch.map_err(OpenError::Plan)?;
    let written = WrittenPaths {
        zones,
        linked: linked.as_ref(),
        lent: paths.writes,
        temporary: &temporary,
    };
    let credentials = NewCredentials::find(
        &policy,
        written,
        scratch.paths(),
        (&user.home, &user.variables),
    );
    let credentials = credentials.map_err(|error| match error {
        FindError::Company(error) => OpenError::Company(error),
        FindError::Io(error) => OpenError::Plan(error),
    })?;
    let seen_by = (scratch.paths(), layers.has(Layer::MountNamespace));
    let roots = Roots {
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
        scratch: scratch.paths().clone(),
        tracer: paths.tracer.map(Path::to_owned),
    };
    let rooted = Rooted::new(roots, paths.names).map_err(OpenError::Plan)?;
    roots::hide_state(&rooted, user)?;
    roots::keep_out_of_temporary(&rooted, user)?;
    make_own_directories(&rooted);
    let root_lock = central_owner::claim(&rooted.central, &rooted.project)?;
    let answerer = OnceCell::new();
    let Discovered {
        found,
        mut reported,
        records,
    } = discover(&rooted, user, &answerer)?;
    // The answerer has exited when this returns; the warden starts up meanwhile.
    if let Some(Ok(answerer)) = answerer.get() {
        answerer.kill();
    }
    let (created, watch) = records.unzip();
    reported.extend(refused);
    let home = fill_home(&rooted, &found, (zones, &credentials), user).map_err(OpenError::Plan)?;
    let directories = command_directories(&rooted)?;
    let spec = SandboxSpec::new(rooted, found, home, directories);
    let started = start(&spec, user)?;
    let credentials = credentials.retain().map_err(OpenError::Plan)?;
    // From now on the warden removes it too.
    scratch.retain();
    Ok(Sandbox {
        spec,
        started,
        also_closed: reported,
        created,
        watch,
        root_lock,
        credentials,
    })
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
fn linked_repository(
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
        Link::Inside => (None, None),
        Link::Verified(linked) => (Some(linked), None),
        Link::Refused(path, why) => (
            None,
            Some(AlsoClosed {
                path,
                why: WhyClosed::NotLinked(why),
            }),
        ),
    }
}

/// The directories to which the scope restricts commands. A directory that is missing or reached by a link is an error.
fn command_directories(spec: &Rooted) -> Result<Option<Vec<ZonePath>>, OpenError> {
    let Some(directories) = spec.policy.paths.directories("bash") else {
        return Ok(None);
    };
    for directory in &directories {
        let refuse = |source| OpenError::Directory {
            directory: directory.clone(),
            source,
        };
        spec.open_directory(directory).map_err(refuse)?;
    }
    Ok(Some(directories))
}

/// A warden that is ready, the descriptors it has sent, and what was prepared meanwhile.
struct Started {
    warden: Warden,
    /// For the file worker: the session's namespaces, the undo directory, and the memory of directories that calls have made.
    fds: Vec<OwnedFd>,
    /// For the gateway: the relay's sockets, if cells have a network.
    relay: Vec<OwnedFd>,
    beside: Beside,
}

fn start(spec: &SandboxSpec, user: &User) -> Result<Started, OpenError> {
    let mut warden = Warden::start(spec).map_err(|source| start_error(spec.tier, source))?;
    let mut beside = beside(spec, &mut warden, user)?;
    let mut relay = Vec::new();
    let mut message = warden.next_message().map_err(OpenError::Warden)?;
    if let WardenMessage::Relay(fds) = message {
        relay = fds;
        message = warden.next_message().map_err(OpenError::Warden)?;
    }
    match message {
        WardenMessage::Ready(fds) => {
            let tested = beside.self_test.take().map_or(Ok(()), SelfTest::finish);
            tested.map_err(|source| OpenError::Unsupervised { source })?;
            let made = spec
                .found()
                .directories
                .iter()
                .map(|memory| memory.made.try_clone());
            let made: Vec<OwnedFd> = made.collect::<io::Result<_>>().map_err(OpenError::Plan)?;
            Ok(Started {
                warden,
                fds: fds.into_iter().chain(made).collect(),
                relay,
                beside,
            })
        }
        WardenMessage::Failed {
            part,
            errno,
            refused,
            step,
        } => Err(OpenError::Setup {
            part,
            step,
            source: io::Error::from_raw_os_error(errno),
            refused,
        }),
        WardenMessage::Relay(_)
        | WardenMessage::Cell(..)
        | WardenMessage::LeasedCell(..)
        | WardenMessage::Terminal(..)
        | WardenMessage::Lost(_) => Err(OpenError::Warden(io::ErrorKind::InvalidData.into())),
    }
}

/// Names what prevents supervision, and the remedy.
fn what_to_do(refusal: &io::Error) -> &'static str {
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

fn start_error(tier: Tier, source: io::Error) -> OpenError {
    match tier {
        Tier::Namespaced => {
            let refused =
                Some(Privilege::Namespaces).filter(|privilege| privilege.is_refused_by(&source));
            OpenError::Setup {
                part: Layer::UserNamespace.into(),
                step: "clone".into(),
                source,
                refused,
            }
        }
        Tier::Flat => OpenError::Warden(source),
    }
}

/// The result of searching both zones.
struct Discovered {
    found: Found,
    /// What people are told of what is closed although its name does not show it.
    reported: Vec<AlsoClosed>,
    /// The records of what cells create and git tracks.
    records: Option<Records>,
}

/// Searches both zones for what is protected.
fn discover(
    spec: &Rooted,
    user: &User,
    answerer: &OnceCell<io::Result<AnsweringWorker>>,
) -> Result<Discovered, OpenError> {
    let (found, (secrets, mut notices), opened) = look_through(spec, user, answerer)?;
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
    let directories = DirectoryMemory::new(&found.directories).map_err(OpenError::Plan)?;
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
type Readable = (Vec<ReadableSecret>, Vec<String>);

/// Finds what is protected in both zones, and removes the temporary files of interrupted writes.
fn look_through(
    spec: &Rooted,
    user: &User,
    answerer: &OnceCell<io::Result<AnsweringWorker>>,
) -> Result<(Discovery, Readable, Option<OpenedFiles>), OpenError> {
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
    let around = roots::around(&spec.project, user);
    let (linked, matcher) = (spec.linked.as_ref(), &spec.policy.matcher);
    let mut found =
        discovery::discover_with(zones, linked, around.as_deref(), matcher, mounts_max, named)?;
    if is_protected {
        grant_exceptions::close(&mut found, spec);
    }
    for (zone, path) in &found.temporaries {
        stale_temporaries::remove(zone, std::slice::from_ref(path));
    }
    if !is_protected {
        return Ok((found, Readable::default(), None));
    }
    let opened = open_created_files(spec, &mut found, |repository, files| {
        answerer().as_ref().ok()?.repository(repository, files)
    });
    let opened = opened.map_err(OpenError::Plan)?;
    let ask = |repository: &_, files: &_| answerer().as_ref().ok()?.repository(repository, files);
    let readable = secrets::make_readable(&mut found, spec, user, ask)?;
    Ok((found, readable, Some(opened)))
}

/// Fills the cells' home. If it lies on the host that is done here, otherwise with its mount.
fn fill_home(
    spec: &Rooted,
    found: &Found,
    (zones, credentials): (&Zones, &NewCredentials),
    user: &User,
) -> io::Result<HomeFiles> {
    let mut new = HomeFiles::default();
    let (home, files) = user.git_files();
    git_identity::give_git_settings(&mut new, spec, &home, &files);
    if spec.has(Layer::ProtectedNames) {
        git_ignore::ignore_hidden(&mut new, spec, found);
    }
    let online = Reach::of(&spec.policy) == Reach::Online;
    let pnpm = caches::pnpm_settings(&spec.policy, online, zones);
    new.files
        .extend(pnpm.map(|(name, text)| (name.into(), text)));
    // Where the policy shows the user's own file, that one counts.
    let clients = credentials.home_files().iter();
    let clients = clients.filter(|(name, _)| !spec.shows(&spec.scratch.home.join(name)));
    new.files
        .extend(clients.map(|(name, text)| (name.clone(), text.clone().into_bytes())));
    if spec.scratch.host.is_some() {
        home_files::write(&spec.scratch.home, &new.files)?;
    }
    Ok(new)
}

fn build_environment(
    policy: &EffectivePolicy,
    user: &User,
    (scratch, own_root): (&Scratch, bool),
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
    let reach = Reach::of(policy);
    let mut own = network::variables(rules, reach, ours, visible);
    own.retain(|(name, value)| caches::is_of_use((name, value), &scratch.home));
    own.extend(caches::variables(
        policy,
        reach == Reach::Online,
        ours,
        &zones.central,
    ));
    own.extend(executor_project::own_state::variables(
        policy,
        &zones.central,
    ));
    own.extend(credentials.certificate_variables(own_root));
    let placeholders = credentials.placeholders();
    let private = (scratch.home.as_path(), scratch.tmp.as_path());
    let built = environment::build(rules, ours, own, placeholders, private, visible);
    user.ablation.environment(built, &user.variables)
}
