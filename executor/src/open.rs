//! Opens a session: its sandbox, audit, gateway and what the user has granted. Everything that does not depend on a call happens here.

use crate::approvals::{Approval, Approvals};
use crate::approvers::Approvers;
use crate::authorise::opened_with;
use crate::background::BackgroundProcesses;
use crate::files::{Files, WorkerStart};
use crate::kept_texts::KeptTexts;
use crate::missing_program::Profiles;
use crate::pool::Pool;
use crate::ready::{self, Different, StandingSandbox};
use crate::sandbox::{
    Beside, OpenError, Sandbox, SessionPaths, Started, build_in_a_tier, linked_repository,
    policy_of, require, zones_of,
};
use crate::session::Session;
use crate::user::User;
use broker_protocol::content::Pieces;
use broker_protocol::gateway::GatewaySpec;
use broker_protocol::{Channel, Digest, Extent, Failed, Layer, Open, Opened, Wants, limit};
use executor_audit::record::{Record, SessionFacts};
use executor_credentials::SessionCredentials;
use executor_layers::probe;
use executor_leases::RULE;
use executor_peers::published::Published;
use executor_peers::{Gateway, GatewayStart, Repeats, gateway, published};
use executor_project::central_root;
use executor_project::network::Online;
use executor_project::protected::{self, ProtectError};
use executor_project::throw_away;
use executor_project::{ProjectChecks, RootModes, take_unreported};
use executor_spec::also_closed::AlsoClosed;
use executor_spec::notices;
use executor_spec::readable_secret::Seen;
use executor_spec::sandbox::SandboxSpec;
use executor_spec::zones::Zones;
use executor_sys::confine;
use policies::{EffectivePolicy, Policies};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Opens a session for the client at the other end of `client`. What stands `ready` is used if it is what would be built now.
pub fn open(
    request: &Open,
    policies: Policies,
    user: &User,
    client: BorrowedFd,
    ready: Option<StandingSandbox>,
) -> Result<(Opened, Session), OpenError> {
    let policy = policy_of(request, &policies, user)?;
    // First, as what was made would be of no use.
    let published = published::bind(&policy.ports.publish)?;
    let (policy, zones) = zones_of(request, policy, user)?;
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
    let wanted = ready::WantedSandbox {
        request,
        policies: policies.digest(),
        policy: &policy,
        abi,
        paths: session,
    };
    let (used, said) = match ready {
        Some(ready) if changed.is_empty() => {
            let (used, said) = ready.used_for(&wanted, user);
            (used, Some(said))
        }
        Some(_) => (None, Some(Different::Central.to_string())),
        None => (None, None),
    };
    let is_warm = used.is_some();
    let build = || build_in_a_tier(&policy, abi, session, user);
    let built = match used {
        Some(used) => Ok(used),
        None => build(),
    };
    let (sandbox, refusal) = match built {
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
            .chain(said)
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
    let record = if is_warm { record.warm() } else { record };
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
