//! Opens a session: its sandbox, audit, gateway and what the user has granted. Everything that does not depend on a call happens here.

use super::Session;
use crate::approvals::{Approvals, GivenApproval};
use crate::authorise::open_wanted;
use crate::background::BackgroundProcesses;
use crate::files::{FileWorker, WorkerStart};
use crate::kept_texts::KeptTexts;
use crate::missing_program::Profiles;
use crate::pool::Pool;
use crate::ready::{Different, StandingSandbox, WantedSandbox};
use crate::roots;
use crate::sandbox::{
    Sandbox, SessionOpenError, SessionPaths, StartedWarden, SuppliedGatewayError, build_in_a_tier,
    linked_repository, policy_of, require, zones_of,
};
use crate::user::User;
use broker_protocol::GatewaySupply;
use broker_protocol::content::Pieces;
use broker_protocol::gateway::GatewaySpec;
use broker_protocol::{Channel, Failed, Layer, LayerSet, Open, Opened, Wants, limit};
use executor_audit::audit::AuditWriter;
use executor_audit::record::{Record, SessionFacts};
use executor_credentials::SessionCredentials;
use executor_layers::cgroup::Cgroup;
use executor_layers::probe;
use executor_peers::approvers::Approvers;
use executor_peers::published::PublishedListener;
use executor_peers::{Gateway, GatewayMaker, GatewayStart, Repeats, gateway, published};
use executor_project::central_owner::RootLock;
use executor_project::central_root;
use executor_project::network::Online;
use executor_project::protected::{self, ProtectError};
use executor_project::throw_away;
use executor_project::{CreatedRecord, ProjectChecks, RepositoryWatch, RootModes, take_unreported};
use executor_spec::also_closed::AlsoClosed;
use executor_spec::notices;
use executor_spec::readable_secret::SecretView;
use executor_spec::sandbox::SandboxSpec;
use executor_spec::zones::Zones;
use executor_sys::confine;
use executor_sys::process::euid;
use policies::{EffectivePolicy, Policies, directories};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Opens a session for the client at the other end of `client`, who may start gateways for `gateways`. What stands `ready` is used if it
/// is what would be built now.
pub(crate) fn open(
    request: &Open,
    policies: Policies,
    user: &User,
    (client, gateways): (BorrowedFd, Option<OwnedFd>),
    ready: Option<StandingSandbox>,
) -> Result<(Opened, Session), SessionOpenError> {
    let policy = policy_of(request, &policies, user)?;
    let gateways = clients_gateways(request, &policy, gateways)?;
    // First, as what was made would be of no use.
    let published = published::bind(&policy.ports.publish)?;
    let (policy, zones) = zones_of(request, policy, user)?;
    let abi = user.ablation.landlock_abi(confine::landlock_abi());
    let tracer = if request.throw_away {
        Some(throw_away(request, &policy, &zones, user)?)
    } else {
        None
    };
    let wanted = WantedSandbox {
        request,
        policies: policies.digest(),
        policy: &policy,
        abi,
        paths: SessionPaths {
            zones: &zones,
            names: &request.names,
            writes: &request.write,
            tracer: tracer.as_deref(),
        },
    };
    let (sandbox, built) = build(&wanted, ready, user)?;
    let layers = match sandbox.started.setup.cgroup {
        Some(_) => sandbox.spec.layers.with(Layer::Cgroup),
        None => sandbox.spec.layers,
    };
    require(&policy, sandbox.spec.tier, layers, &user.ablation)?;
    let mut parts = SessionParts::of(sandbox, layers, request)?;
    let (wants, refused) = leased(request, &parts.spec, user);
    let reported = Reported {
        built: &built,
        refused,
        abi,
        supply: gateways
            .as_ref()
            .map_or(GatewaySupply::Executor, |_| GatewaySupply::Client),
    };
    let opened = parts.describe(reported, user)?;
    parts.record(&opened, request, &built)?;
    let approvers = match parts.spec.policy.approval.channel {
        Channel::Relay => None,
        Channel::Separate => Some(Approvers::listen(
            &parts.spec,
            opened.clone(),
            client,
            directories::approvals(&user.home, euid(), &|name| user.variable(name)),
        )?),
    };
    let profiles = Profiles {
        policies,
        user: user.clone(),
    };
    let beside = BesideCells {
        approvers,
        published,
        gateways,
    };
    let session = parts.begin((request, wants), &opened, beside, profiles)?;
    Ok((opened, session))
}

/// The line for gateways that the client starts, if the session is to have those and the policy permits it.
fn clients_gateways(
    request: &Open,
    policy: &EffectivePolicy,
    line: Option<OwnedFd>,
) -> Result<Option<OwnedFd>, SessionOpenError> {
    let named = request.network.as_ref().map(|network| network.gateway);
    match named.filter(|_| policy.has_gateway()) {
        None | Some(GatewaySupply::Executor) => Ok(None),
        Some(GatewaySupply::Client) if !policy.gateway.from_client => {
            Err(SuppliedGatewayError::Unpermitted.into())
        }
        Some(GatewaySupply::Client) => match line {
            Some(line) => Ok(Some(line)),
            None => Err(SuppliedGatewayError::NoLine.into()),
        },
    }
}

/// The parts of a session that serve its cells from outside: approvers, published ports, and the line for gateways.
struct BesideCells {
    approvers: Option<Approvers>,
    published: Vec<PublishedListener>,
    /// The client's line, if it starts them.
    gateways: Option<OwnedFd>,
}

/// How a session's sandbox came about, apart from the sandbox.
struct BuiltSandbox {
    /// What was changed so that it could be built, and what it closes although the name does not show it.
    also_closed: Vec<AlsoClosed>,
    /// Why it is a flat one, where the machine decided that.
    flat_because: Option<String>,
    /// Notes for people about one that stood ready.
    ready_notice: Option<String>,
    is_warm: bool,
}

/// Takes the sandbox that stands ready, or builds one. What cells have made too large or too many to be protected is set aside first.
fn build(
    wanted: &WantedSandbox,
    ready: Option<StandingSandbox>,
    user: &User,
) -> Result<(Sandbox, BuiltSandbox), SessionOpenError> {
    let (policy, paths) = (wanted.policy, wanted.paths);
    let zones = paths.zones;
    let mut changed: Vec<AlsoClosed> = central_root::unlock(&zones.central).into_iter().collect();
    let (used, ready_notice) = match ready {
        Some(ready) if changed.is_empty() => {
            let (used, said) = ready.used_for(wanted, user);
            (used, Some(said))
        }
        Some(_) => (None, Some(Different::Central.to_string())),
        None => (None, None),
    };
    let is_warm = used.is_some();
    let build = || build_in_a_tier(policy, wanted.abi, paths, user);
    let (mut sandbox, flat_because) = match used.map_or_else(build, Ok) {
        Err(SessionOpenError::Protect(error @ ProtectError::CentralTooLarge { .. })) => {
            changed.push(central_root::set_aside(&zones.central).map_err(|_| error)?);
            build()?
        }
        Err(SessionOpenError::Protect(error @ ProtectError::TooMany { .. }))
            if paths.tracer.is_none() =>
        {
            let aside =
                central_root::set_aside_newest(&zones.project, &zones.central, &policy.matcher);
            changed.push(aside.map_err(|_| error)?);
            build()?
        }
        built => built?,
    };
    changed.append(&mut sandbox.also_closed);
    let built = BuiltSandbox {
        also_closed: changed,
        flat_because,
        ready_notice,
        is_warm,
    };
    Ok((sandbox, built))
}

/// What the client is told of a session beside what its parts say.
struct Reported<'r> {
    built: &'r BuiltSandbox,
    /// Why paths that the profile reads are not leased.
    refused: Vec<String>,
    /// Landlock's.
    abi: u32,
    supply: GatewaySupply,
}

/// A sandbox taken to pieces, as its session needs them.
struct SessionParts {
    spec: SandboxSpec,
    layers: LayerSet,
    pool: Pool,
    audit: AuditWriter,
    /// The first is the user namespace of cells that have mounts: it gives rights in the others.
    fds: Vec<OwnedFd>,
    relay: Vec<OwnedFd>,
    /// As it is sent to the file worker.
    worker: Vec<u8>,
    cgroup: Option<Rc<Cgroup>>,
    created: Option<CreatedRecord>,
    watch: Option<RepositoryWatch>,
    root_lock: Option<RootLock>,
    credentials: SessionCredentials,
}

impl SessionParts {
    fn of(sandbox: Sandbox, layers: LayerSet, request: &Open) -> Result<Self, SessionOpenError> {
        let Sandbox {
            spec,
            started,
            also_closed: _,
            created,
            watch,
            root_lock,
            credentials,
        } = sandbox;
        let StartedWarden {
            warden,
            fds,
            relay,
            setup,
        } = started;
        let pool = Pool::new(
            warden,
            spec.policy.limits.clone(),
            setup.capacity,
            request.spare,
        );
        Ok(Self {
            layers,
            pool: pool.map_err(SessionOpenError::Failed)?,
            audit: setup.audit,
            fds,
            relay,
            worker: setup.worker,
            cgroup: setup.cgroup,
            created,
            watch,
            root_lock,
            credentials,
            spec,
        })
    }

    /// Begins the session in the audit, and describes it to the client.
    fn describe(&mut self, reported: Reported, user: &User) -> Result<Opened, SessionOpenError> {
        let (spec, layers) = (&self.spec, self.layers);
        let Reported {
            built,
            refused,
            abi,
            supply,
        } = reported;
        let flat = built.flat_because.as_deref();
        let short = self.audit.short_of_room().map(|it| it.to_string());
        let held = self.credentials.held.notices();
        let notices = spec.found().notices.iter().chain(held).cloned();
        let (closed, over_bounds) = protected::describe(&built.also_closed);
        let facts = SessionFacts {
            policy: spec.policy.digest,
            tier: spec.tier,
            layers,
        };
        let has_network = spec.policy.has_network();
        Ok(Opened {
            session: self.audit.begin_session(facts)?,
            project: spec.project.display().to_string(),
            central: spec.central.display().to_string(),
            profile: spec.policy.profile.clone(),
            policy: spec.policy.digest,
            tier: spec.tier,
            also_closed: closed.into_iter().chain(refused).collect(),
            over_bounds: u32::try_from(over_bounds).unwrap_or(u32::MAX),
            notices: (flat.map(notices::flat).into_iter())
                .chain(notices::hidden_nothing(spec))
                .chain(notices)
                .chain(notices::ports(&spec.policy.ports))
                .chain(notices::gateway_of(supply))
                .chain(short)
                .chain(built.ready_notice.clone())
                .collect(),
            layers: probe::report(
                layers,
                (spec.tier, spec.caller_access, spec.policy.hides),
                abi,
                flat,
                &user.ablation,
            ),
            network: has_network.then(|| policies::network::lists(&spec.policy.network)),
        })
    }

    fn record(
        &mut self,
        opened: &Opened,
        request: &Open,
        built: &BuiltSandbox,
    ) -> Result<(), SessionOpenError> {
        let policy = &self.spec.policy;
        let roots = [&opened.project, &opened.central].map(|root| self.audit.redacted(root));
        let [project, central] = &roots;
        let roots = [project.as_ref(), central.as_ref()];
        let mut record = Record::opened(opened, roots, self.layers);
        if request.throw_away {
            record = record.throw_away();
        }
        if built.is_warm {
            record = record.warm();
        }
        if !policy.hides {
            record = record.hiding_nothing();
        }
        let secrets = &self.spec.found().secrets;
        let revealed = secrets.iter().filter(|file| file.seen == SecretView::Real);
        let record = record.with_opened(&policy.opened, revealed.count());
        Ok(self.audit.append(&record)?)
    }

    /// Starts what runs beside the cells, and what the session is opened with.
    fn begin(
        self,
        (request, wants): (&Open, Wants),
        opened: &Opened,
        beside: BesideCells,
        profiles: Profiles,
    ) -> Result<Session, SessionOpenError> {
        let user = &profiles.user;
        let broken =
            |error: io::Error| SessionOpenError::Failed(Failed::internal(error.to_string()));
        let spec = self.spec;
        let user_namespace = user_namespace(&spec, &self.fds).map_err(broken)?;
        let worker = WorkerStart {
            program: user.worker.clone(),
            spec: self.worker,
            fds: self.fds,
            forks: spec.has(Layer::PidNamespace),
            cgroup: self.cgroup,
            session: opened.session.clone(),
        };
        let sockets = (self.relay, beside.published);
        let gateway = match beside.gateways {
            Some(line) => {
                check_clients_gateway(&self.credentials)?;
                let maker = || Ok(GatewayMaker::Client(line));
                let started = start_gateway(&spec, &self.credentials, sockets, maker);
                started.map_err(SuppliedGatewayError::Line)?
            }
            None => {
                let maker = || own_gateway(&spec, user);
                let started = start_gateway(&spec, &self.credentials, sockets, maker);
                started.map_err(SessionOpenError::Gateway)?
            }
        };
        let missing = open_wanted(&wants, &spec, user).map_err(SessionOpenError::Lease)?;
        let modes = RootModes::of(&spec);
        let approvals = Approvals::new(&spec.policy.approval, request.answer_s, beside.approvers);
        let capture = request.capture.map_or(u64::MAX, Into::into);
        let mut session = Session {
            layers: self.layers,
            approvals: approvals.map_err(broken)?,
            online: Online::of(&spec, &user.variables),
            user_namespace,
            pool: self.pool,
            files: FileWorker::new(worker),
            gateway,
            tickets: user.tickets.clone(),
            repeats: Repeats::default(),
            capture: capture.min(spec.policy.limits.capture),
            found: take_unreported(&spec),
            spec,
            profiles,
            audit: self.audit,
            background: BackgroundProcesses::default(),
            created: self.created,
            root_lock: self.root_lock,
            credentials: self.credentials,
            checks: ProjectChecks::new(modes, self.watch),
            kept: KeptTexts::default(),
            calls: BTreeMap::new(),
            content: Pieces::default(),
            outbox: Vec::new(),
            buffer: Vec::new(),
        };
        begin_leases(&mut session, GivenApproval::at_opening(missing))?;
        Ok(session)
    }
}

/// The namespace in which paths are mounted for cells, if they have mounts.
fn user_namespace(spec: &SandboxSpec, fds: &[OwnedFd]) -> io::Result<Option<OwnedFd>> {
    let first = fds.first().filter(|_| spec.has(Layer::MountNamespace));
    first.map(OwnedFd::try_clone).transpose()
}

/// Begins the leases that a session opens with, once its cells can believe its gateway.
fn begin_leases(session: &mut Session, approval: GivenApproval) -> Result<(), SessionOpenError> {
    session
        .await_authority()
        .map_err(SessionOpenError::Gateway)?;
    let begun = session.begin_with(approval);
    begun
        .map_err(SessionOpenError::Failed)?
        .map_err(SessionOpenError::Lease)
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
        } else if let Err(error) = open_wanted(&one, spec, user) {
            refused.push(format!("{text:?} (`read` of the profile: {})", error.why));
        } else if !wants.read.contains(&text) {
            wants.read.push(text);
        }
    }
    (wants, refused)
}

/// Values would be read by whatever program the client has started.
fn check_clients_gateway(credentials: &SessionCredentials) -> Result<(), SuppliedGatewayError> {
    let held = credentials.held.specs();
    let names = held.iter().map(|credential| &*credential.name);
    let keys = credentials.ssh.specs().iter().map(|key| &*key.name);
    let names: Vec<&str> = names.chain(keys).collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(SuppliedGatewayError::Credentials(names.join(", "))),
    }
}

/// The environment of a session's gateway: nothing of it lies where commands of this or an earlier session could write.
fn gateway_environment(spec: &SandboxSpec, user: &User) -> Vec<CString> {
    let is_set = |name: &&str| user.variable(name).is_some();
    let earlier = match gateway::VARIABLES.iter().any(is_set) {
        true => roots::earlier_projects(user),
        false => Vec::new(),
    };
    let own = [spec.project.as_path(), spec.central.as_path()];
    let roots: Vec<&Path> = own
        .into_iter()
        .chain(earlier.iter().map(PathBuf::as_path))
        .collect();
    gateway::environment(&user.variables, &roots)
}

fn own_gateway(spec: &SandboxSpec, user: &User) -> io::Result<GatewayMaker> {
    Ok(GatewayMaker::Broker {
        program: user.gateway.file()?.try_clone_to_owned()?,
        environment: gateway_environment(spec, user),
    })
}

/// Starts the session's gateway, if its cells have a network, or reach ports of this machine.
fn start_gateway(
    spec: &SandboxSpec,
    credentials: &SessionCredentials,
    (relay, published): (Vec<OwnedFd>, Vec<PublishedListener>),
    maker: impl FnOnce() -> io::Result<GatewayMaker>,
) -> io::Result<Option<Gateway>> {
    if !spec.policy.has_gateway() {
        return Ok(None);
    }
    let (listeners, publish): (Vec<_>, Vec<_>) = published.into_iter().unzip();
    let start = GatewayStart {
        maker: maker()?,
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
            ssh: credentials.ssh.specs().to_vec(),
            known_hosts: credentials.ssh.known_hosts().to_owned(),
        },
        sockets: relay.into_iter().chain(listeners).collect(),
    };
    Gateway::start(start).map(Some)
}

/// Puts throw-away overlays over everything that commands may write. Returns the program that traces them.
fn throw_away(
    request: &Open,
    policy: &EffectivePolicy,
    zones: &Zones,
    user: &User,
) -> Result<PathBuf, SessionOpenError> {
    let refuse = |why: &str| SessionOpenError::ThrowAway(why.to_owned());
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
    covered.map_err(|error| {
        SessionOpenError::ThrowAway(format!("{}: {}", error.step, error.source))
    })?;
    Ok(tracer)
}
