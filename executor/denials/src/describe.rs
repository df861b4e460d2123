//! Turns a refusal of a cell's first process into a denial for the user and the model: the rule that refused, why, and what would allow it.
//! In the broker, from the session's own policy: only the object and the kind of rule come from the cell, and they are only displayed.

use crate::host_modes::is_closed_outside_too;
use broker_protocol::paste::{shell_word, toml_string};
use broker_protocol::{
    AttemptKind, Barrier, Denial, Finding, FindingKind, Layer, Leased, PolicyRule, Remedy, Tier,
    Zone, ZonePath,
};
use executor_layers::zone_leases;
use executor_spec::also_closed::{AlsoClosed, WhyClosed};
use executor_spec::refusals::{Cause, Refusal};
use executor_spec::sandbox::SandboxSpec;
use policies::{Access, network, remedy_of_name, rule_of_name};
use policies_guard::{
    MemberKind, ProtectedName, Repository, SHELL_CHARACTERS, as_git_directory, is_in_git_directory,
    may_be_git_directory,
};
use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Why a name is not found, or the list of name servers not read.
const NO_DNS: &str =
    "A cell has no DNS. It reaches allowed hosts by name through the proxy in HTTP_PROXY.";

/// Why an address that could be a host's is none.
const OF_NO_HOST: &str = "No host of this session has this address. Those that have one stand in its /etc/hosts, which differs from session to session.";

/// Describes the refusals of a call for its result: what was refused, and what was found besides what it has misplaced.
pub fn describe_refusals(refusals: &[Refusal], spec: &SandboxSpec) -> (Vec<Denial>, Vec<Finding>) {
    let refused = refusals
        .iter()
        .filter_map(|refusal| describe(refusal, spec));
    let others = refusals
        .iter()
        .filter(|refusal| refusal.misplaced().is_none());
    let found = others.filter_map(|refusal| found(refusal).or_else(|| passed_over(refusal, spec)));
    (refused.collect(), found.collect())
}

/// How a refusal is reported to people.
enum RefusalReport {
    /// As a denial, which this function describes.
    Denied(fn(&Refusal, &SandboxSpec) -> Denial),
    /// As a finding of a kind, with a reason and advice: its cause is seen only after the call.
    Found(FindingKind, &'static str, Option<&'static str>),
    /// A git operation has passed it over, and left it in this state.
    PassedOver(&'static str),
    /// The broker's checks alone go by it.
    Nothing,
}

fn report(refusal: &Refusal) -> RefusalReport {
    match (refusal.cause, refusal.kind) {
        (Cause::Protected, _) => RefusalReport::Denied(protected),
        (Cause::Outside, AttemptKind::Read) => {
            RefusalReport::Denied(|refusal, spec| outside(refusal.path(), spec))
        }
        (Cause::Outside, _) => RefusalReport::Denied(unchangeable),
        (Cause::Repository, _) => RefusalReport::Denied(repository),
        (Cause::Shared, _) => {
            RefusalReport::Denied(|refusal, spec| shared(refusal, UNCOPIED, spec))
        }
        (Cause::SharedTooLarge, _) => {
            RefusalReport::Denied(|refusal, spec| shared(refusal, TOO_LARGE_TO_COPY, spec))
        }
        (Cause::Network, _) => RefusalReport::Denied(unreached),
        (Cause::Process, _) => RefusalReport::Denied(|refusal, _| other_process(refusal)),
        (Cause::Unknown, _) => RefusalReport::Found(
            FindingKind::Unexamined,
            "The call made it, and Lazaret could not look at it again after the call. It may still be there.",
            Some("look at it, if you did not expect it"),
        ),
        (Cause::Unchecked, _) => RefusalReport::Found(
            FindingKind::Unchecked,
            "Not all new files could be re-checked after the call (limit: 256 files, 50 ms of processor time, 1 s). Nothing was refused.",
            None,
        ),
        (Cause::Misplaced | Cause::LeftThere, _) => RefusalReport::Found(
            FindingKind::NotTaken,
            "The call made it where no call may. It could NOT be taken away and may still be there.",
            Some("remove it if you do not trust it"),
        ),
        (Cause::NotWritten, _) => RefusalReport::PassedOver("not written"),
        (Cause::NotRemoved, _) => RefusalReport::PassedOver("not removed"),
        (Cause::AsWritten, _) => RefusalReport::Nothing,
    }
}

/// The denial that describes a refusal to the user of the session; `None` for what was found after the call, and for what the user could
/// not read outside a cell either.
pub(crate) fn describe(refusal: &Refusal, spec: &SandboxSpec) -> Option<Denial> {
    let RefusalReport::Denied(describe) = report(refusal) else {
        return None;
    };
    let is_read = refusal.cause == Cause::Outside && refusal.kind == AttemptKind::Read;
    if is_read && is_closed_outside_too(refusal.path()) {
        return None;
    }
    Some(Denial {
        count: refusal.count,
        ..describe(refusal, spec)
    })
}

fn other_process(refusal: &Refusal) -> Denial {
    Denial::new(
        refusal.kind,
        text(refusal),
        Barrier::Layer(Layer::Seccomp, None),
        "In a cell this system call may not access another process's memory or descriptors.",
        Remedy::Nothing,
    )
}

/// The denial for a repository over a directory that was there before, or in one that may be none.
fn repository(refusal: &Refusal, spec: &SandboxSpec) -> Denial {
    let path = refusal.path();
    let by_name = path
        .file_name()
        .and_then(|name| Repository::by_name(name.as_bytes()));
    let program = by_name.map_or("git", |kind| kind.program);
    let directory = path
        .parent()
        .filter(|_| by_name.is_some() || is_part(path))
        .unwrap_or(path);
    let (why, remedy) = match by_name {
        None if is_part_elsewhere(path) => elsewhere(directory),
        Some(_) | None => {
            let why = "A repository would come about over a directory that no command of this session has made: the user's git, and a shell \
                       prompt, would go by it there.";
            let advice = format!(
                "make it in a new directory, or run `{program} init` in {} outside the sandbox",
                directory.to_string_lossy().escape_debug()
            );
            (why.to_owned(), Remedy::Advice(advice))
        }
    };
    let by = Barrier::Layer(Layer::ProtectedNames, None);
    Denial::new(refusal.kind, by_zone(refusal, spec), by, why, remedy)
}

/// Whether this is, by its name, a necessary part of a repository of any name.
fn is_part(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| Repository::member(name.as_bytes()).is_some())
}

/// Whether this is such a part in a directory that may be no repository, by its name and place.
fn is_part_elsewhere(path: &Path) -> bool {
    let may_be = |directory: &Path| may_be_git_directory(directory.as_os_str().as_bytes());
    is_part(path) && path.parent().is_some_and(|directory| !may_be(directory))
}

/// Why a directory may be no repository, and what to do.
fn elsewhere(directory: &Path) -> (String, Remedy) {
    let why = "It would make the directory a repository whose settings and hooks nothing protects: commands make bare repositories only in \
               directories called `NAME.git`, or where Cargo keeps them (`git/db`).";
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let advice = format!("call the directory `{}.git`", name.escape_debug());
    (why.to_owned(), Remedy::Advice(advice))
}

/// What was found of new names that nobody has taken away; `None` for a refusal.
pub fn found(refusal: &Refusal) -> Option<Finding> {
    let RefusalReport::Found(kind, why, advice) = report(refusal) else {
        return None;
    };
    let found = Finding::new(kind, text(refusal), why);
    let found = found.with_unnamed(u64::from(refusal.count).saturating_sub(1));
    Some(match advice {
        Some(advice) => found.with_advice(advice),
        None => found,
    })
}

/// A name that a git operation has passed over; `None` for anything else.
fn passed_over(refusal: &Refusal, spec: &SandboxSpec) -> Option<Finding> {
    let RefusalReport::PassedOver(state) = report(refusal) else {
        return None;
    };
    let why = "No command may change it, so git has passed it over in an operation that is done otherwise: it is as it was, and differs from \
               what git has. `git commit -a` or `git add -A` would take in the difference.";
    let denial = protected(refusal, spec);
    let way = match (&denial.lease, &denial.remedy) {
        (Some(_), _) => ", or with a lease of it, or with it opened in your policy".to_owned(),
        (None, remedy @ (Remedy::Policy(_) | Remedy::Option(_))) => format!(", or {remedy}"),
        (None, Remedy::Advice(_) | Remedy::Nothing) => String::new(),
    };
    let name =
        place(refusal.path(), spec).map_or_else(|| text(refusal), |(_, name)| name.to_owned());
    let word = shell_word(&name);
    let advice = format!(
        "commit nothing of it; look at `git diff -- {word}` outside the sandbox: `git checkout -- {word}` there replaces your file by git's{way}"
    );
    let found = Finding::new(FindingKind::PassedOver, by_zone(refusal, spec), why);
    let found = found.with_state(state).with_advice(advice);
    Some(found.with_unnamed(u64::from(refusal.count).saturating_sub(1)))
}

/// The refusal's path from its zone on, if it has one.
fn by_zone(refusal: &Refusal, spec: &SandboxSpec) -> String {
    let path =
        place(refusal.path(), spec).and_then(|(zone, relative)| ZonePath::new(zone, relative).ok());
    path.map_or_else(|| text(refusal), |path| path.to_string())
}

/// Why a file with names elsewhere is not changed.
const UNCOPIED: &str = "It has another name elsewhere (a hard link, as package stores make), and no copy could take its name here for the change: its directory takes none, or it was open when its name was removed.";
const TOO_LARGE_TO_COPY: &str = "It has another name elsewhere (a hard link, as package stores make), and is too large to be copied for the change (256 MiB a file, 1 GiB a call, and the limits of the policy).";

/// The denial for changing a file with names elsewhere.
fn shared(refusal: &Refusal, why: &str, spec: &SandboxSpec) -> Denial {
    let advice = "replace it with a copy, outside the sandbox, or let the package manager copy (pnpm: package-import-method=copy, uv: link-mode=copy)";
    let by = Barrier::Layer(Layer::ProtectedNames, None);
    Denial::new(
        refusal.kind,
        by_zone(refusal, spec),
        by,
        why,
        Remedy::Advice(advice.into()),
    )
}

/// The denial for reading `path`, which is not in the session's views.
pub(crate) fn outside(path: &Path, spec: &SandboxSpec) -> Denial {
    let layer = match spec.tier {
        Tier::Namespaced => Layer::MountNamespace,
        Tier::Flat => Layer::LandlockFiles,
    };
    let denied = |why: &str, remedy| {
        let by = Barrier::Layer(layer, None);
        Denial::new(AttemptKind::Read, path.to_string_lossy(), by, why, remedy)
    };
    if path == Path::new("/etc/resolv.conf") {
        return denied(NO_DNS, remedy_to_reach(spec));
    }
    if spec.tier == Tier::Flat && path.starts_with("/tmp") {
        let why = "In the flat tier a command cannot enter a directory below /tmp, or run a program there, by this path.";
        let advice = "use $TMPDIR, which is the same directory, in place of /tmp";
        return denied(why, Remedy::Advice(advice.into()));
    }
    if let Some(image) = &spec.policy.image {
        let why = format!(
            "It is not in the image {}, which is the root of this session's cells.",
            image.display()
        );
        return denied(
            &why,
            Remedy::Advice("add it to the image or to the project".into()),
        );
    }
    let profile = &spec.policy.profile;
    let why = match path.starts_with(&spec.scratch.home) {
        true => format!(
            "A cell has a private home directory. The profile `{profile}` does not grant this path of yours."
        ),
        false => format!("The profile `{profile}` does not show it to commands."),
    };
    denied(&why, spec.policy.remedy_to_read(path))
        .with_lease(spec.policy.lease_for(Access::Read, path))
}

/// The denial of a protected name at `path`.
pub(crate) fn protected_at(kind: AttemptKind, path: &Path, spec: &SandboxSpec) -> Denial {
    let target = path.as_os_str().as_bytes().to_vec();
    protected(
        &Refusal {
            kind,
            cause: Cause::Protected,
            object: None,
            target,
            count: 1,
        },
        spec,
    )
}

fn text(refusal: &Refusal) -> String {
    String::from_utf8_lossy(&refusal.target).into_owned()
}

fn protected(refusal: &Refusal, spec: &SandboxSpec) -> Denial {
    let (zone, relative) = match place(refusal.path(), spec) {
        Some(place) => place,
        // In leased paths, names are matched with their whole paths.
        None => match refusal.path().strip_prefix("/").ok().and_then(Path::to_str) {
            Some(whole) => return by_name(refusal, whole, text(refusal), spec),
            None => return by_object(refusal, text(refusal), spec),
        },
    };
    let target =
        ZonePath::new(zone, relative).map_or_else(|_| text(refusal), |path| path.to_string());
    by_name(refusal, relative, target, spec)
}

fn by_name(refusal: &Refusal, relative: &str, target: String, spec: &SandboxSpec) -> Denial {
    match rule(relative.as_bytes(), spec) {
        Some(NameRule::Of(name)) => by_rule(refusal, (relative, target), name, spec),
        Some(NameRule::Below(name)) => by_rule_below(refusal, (relative, target), name),
        None => by_object(refusal, target, spec),
    }
}

/// The denial of a name by a rule on it.
fn by_rule(
    refusal: &Refusal,
    (relative, target): (&str, String),
    name: &ProtectedName,
    spec: &SandboxSpec,
) -> Denial {
    let by = Barrier::Layer(Layer::ProtectedNames, Some(rule_of_name(name)));
    let remedy = match refusal.kind {
        AttemptKind::Read => spec.policy.remedy_to_reveal(Path::new(&target)),
        AttemptKind::Write => spec.policy.remedy_to_open(relative),
        AttemptKind::Run
        | AttemptKind::Metadata
        | AttemptKind::Connect
        | AttemptKind::Resolve
        | AttemptKind::SystemCall
        | AttemptKind::Use
        | AttemptKind::Call => None,
    };
    let lease = Some(refusal.path()).filter(|_| refusal.kind == AttemptKind::Write);
    let lease = lease.and_then(|path| zone_leases::to_change(path, spec));
    let remedy = remedy.unwrap_or_else(|| remedy_of_name(name));
    Denial::new(refusal.kind, target, by, &*name.why, remedy).with_lease(lease)
}

/// The denial of a name below which a rule protects others. For a repository's own name that is no reason which explains anything: many
/// rules are on names below it.
fn by_rule_below(
    refusal: &Refusal,
    (relative, target): (&str, String),
    name: &ProtectedName,
) -> Denial {
    if may_be_git_directory(relative.as_bytes()) {
        let why = "Git finds a repository by it, and obeys that one's settings and hooks outside the sandbox. A command makes one only as git \
                   does, and moves, replaces or removes none that was there before.";
        let advice = "no option allows this; the user can do it outside the sandbox (for a worktree: `git worktree remove`)";
        let by = Barrier::Layer(Layer::ProtectedNames, None);
        let remedy = Remedy::Advice(advice.to_owned());
        return Denial::new(refusal.kind, target, by, why, remedy);
    }
    let why = format!(
        "A rule protects names below it (`{}`), so no command puts another object in its place. {}",
        name.pattern, name.why
    );
    let by = Barrier::Layer(Layer::ProtectedNames, Some(rule_of_name(name)));
    Denial::new(refusal.kind, target, by, why, remedy_of_name(name))
}

/// The denial for what is closed although its name does not show it.
fn by_object(refusal: &Refusal, target: String, spec: &SandboxSpec) -> Denial {
    let path = refusal.path();
    let closed = spec
        .found()
        .also_closed
        .iter()
        .find(|closed| path.starts_with(&closed.path));
    let (why, remedy) = match closed {
        Some(closed) => why_closed(closed),
        None if refusal.kind == AttemptKind::Write && is_head(path) => {
            let why = format!(
                "Git has to find this repository, and prompts print its branch, which a shell may execute. Commands replace `HEAD` only as \
                 git does (`HEAD.lock`), with a commit or a branch in whose name there is no {SHELL_CHARACTERS} and no control character."
            );
            (
                why,
                Remedy::Advice("choose another name for the branch".to_owned()),
            )
        }
        None if refusal.kind == AttemptKind::Write && is_outside_git(path) => {
            elsewhere(path.parent().unwrap_or(path))
        }
        None => {
            let why = "It is protected although its name is not: it is the same file as a protected one, lies in a protected place, or is part of a repository.";
            (why.to_owned(), Remedy::Nothing)
        }
    };
    let by = Barrier::Layer(Layer::ProtectedNames, None);
    Denial::new(refusal.kind, target, by, why, remedy)
}

/// Why an object is closed whose name does not show it, and what would open it.
fn why_closed(closed: &AlsoClosed) -> (String, Remedy) {
    let path = closed.path.display();
    let nothing = |why: String| (why, Remedy::Nothing);
    let advice = |why: String, advice: String| (why, Remedy::Advice(advice));
    match &closed.why {
        WhyClosed::Unlisted => advice(
            "It cannot be listed, so Lazaret cannot tell whether it contains protected names.".into(),
            format!("run `chmod u+rx` on {path} outside the sandbox, or remove it"),
        ),
        WhyClosed::OtherNameOf(protected) => {
            nothing(format!("It is the same file as {}, which is protected.", protected.display()))
        }
        WhyClosed::TargetOf(link) => {
            nothing(format!("The link {}, which has a protected name, leads to it.", link.display()))
        }
        WhyClosed::Setting { file, key } => nothing(format!(
            "The setting {key} in {} names it, so the user's git acts on it outside the sandbox.",
            file.display()
        )),
        WhyClosed::Own => advice(
            "Lazaret executes or obeys it, outside the sandbox and with your rights.".into(),
            "install Lazaret, or keep its settings, outside the project".into(),
        ),
        WhyClosed::HomeLink(link) => advice(
            format!("{} leads to it, so the user's programs act on it outside the sandbox.", link.display()),
            format!("change it outside the sandbox, or remove {}", link.display()),
        ),
        WhyClosed::NotGranted(grant) => advice(
            format!("The profile shows {} without it: data of servers and tokens lie there.", grant.display()),
            format!("if commands need it, grant {path} in a profile of your own"),
        ),
        WhyClosed::Program => nothing(
            "It is a program in a repository's own directory, where the user's git may run it outside the sandbox.".into(),
        ),
        WhyClosed::OverBound(first) => nothing(format!(
            "{path} is closed as a whole: it contains more protected names (such as {}) than can be closed one by one.",
            first.display()
        )),
        WhyClosed::TooLarge => advice(
            format!("{path} is closed as a whole: with it there are more files than Lazaret looks through when a session opens."),
            "remove what is not needed in it, outside the sandbox".into(),
        ),
        WhyClosed::NotWatched => advice(
            format!("The repository {path} is closed for writing: it is one too many to be looked at after each call."),
            "remove repositories that are not needed, outside the sandbox".into(),
        ),
        WhyClosed::SetAside(_) | WhyClosed::ModeGivenBack => nothing("It is protected.".into()),
        WhyClosed::Tracked(record) => advice(
            "A command of this project made git track it, so it stays closed as a secret.".into(),
            format!("to open it, remove the line for {path} from {}", record.display()),
        ),
        WhyClosed::NotLinked(why) => nothing(format!("The project's `.git` leads there, but {why}.")),
    }
}

/// Whether this is the `HEAD` of a repository with the usual name.
fn is_head(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "HEAD")
        && path
            .parent()
            .is_some_and(|directory| is_in_git_directory(directory.as_os_str().as_bytes()))
}

/// Whether this would be the `HEAD` of a repository in a directory that may be none.
fn is_outside_git(path: &Path) -> bool {
    let is_head = |name: &OsStr| {
        Repository::member(name.as_bytes())
            .is_some_and(|(_, member)| member.kind == MemberKind::Head)
    };
    path.file_name().is_some_and(is_head)
        && is_part_elsewhere(path)
        && !is_in_git_directory(path.as_os_str().as_bytes())
}

/// A rule by which a name is closed.
enum NameRule<'s> {
    /// On this name, or on the one to which it is in transit.
    Of(&'s ProtectedName),
    Below(&'s ProtectedName),
}

/// The rule that closes a name of a zone.
fn rule<'s>(relative: &[u8], spec: &'s SandboxSpec) -> Option<NameRule<'s>> {
    let names = &spec.policy.matcher;
    let other = as_git_directory(relative);
    let paths = || std::iter::once(relative).chain(other.as_deref());
    let of = paths().find_map(|path| names.protection(path));
    let below = || paths().find_map(|path| names.leads_to(path));
    let in_transit = || names.transit(relative).first().map(|target| target.name);
    of.map(NameRule::Of)
        .or_else(|| below().map(NameRule::Below))
        .or_else(|| in_transit().map(NameRule::Of))
}

/// The zone that contains a path, and the path in it.
fn place<'p>(path: &'p Path, spec: &SandboxSpec) -> Option<(Zone, &'p str)> {
    let below = |zone: Zone| Some((zone, path.strip_prefix(spec.zone(zone).0).ok()?.to_str()?));
    // A central root may lie in a project, and the other way round: the longer root contains the path.
    let places = [Zone::Project, Zone::Central].into_iter().filter_map(below);
    places.min_by_key(|(_, relative)| relative.len())
}

fn unchangeable(refusal: &Refusal, spec: &SandboxSpec) -> Denial {
    let layer = match spec.tier {
        Tier::Namespaced => Layer::MountNamespace,
        Tier::Flat => Layer::LandlockFiles,
    };
    if let Some((zone, relative)) = place(refusal.path(), spec)
        && spec.zone(zone).1 == Access::Read
    {
        let target =
            ZonePath::new(zone, relative).map_or_else(|_| text(refusal), |path| path.to_string());
        let (profile, name) = (&spec.policy.profile, zone.name());
        let at = Some(spec.policy.zones_from[usize::from(zone == Zone::Central)].to_string());
        let by = Barrier::Layer(
            layer,
            Some(PolicyRule {
                name: format!("{name}:read"),
                at,
            }),
        );
        let why = format!(
            "The profile `{profile}` allows commands to read the {name} root, not to change it."
        );
        let remedy = Remedy::Option(format!("another --profile than `{profile}`"));
        return Denial::new(refusal.kind, target, by, why, remedy);
    }
    let why = "Commands can write only in the project, the central root and their private storage.";
    let remedy = spec.policy.remedy_to_write(refusal.path());
    Denial::new(
        refusal.kind,
        text(refusal),
        Barrier::Layer(layer, None),
        why,
        remedy,
    )
    .with_lease(spec.policy.lease_for(Access::Write, refusal.path()))
}

fn unreached(refusal: &Refusal, spec: &SandboxSpec) -> Denial {
    let layer = match spec.tier {
        Tier::Namespaced => Layer::NetworkNamespace,
        Tier::Flat => Layer::LandlockNetwork,
    };
    let path = refusal.path();
    if path.is_absolute() {
        let why = "The socket's server was not started by a command of this session.";
        let socket = toml_string(&path.to_string_lossy());
        let remedy = spec.policy.remedy_by_keys(
            &format!("sockets = [{socket}]"),
            &path.to_string_lossy(),
            None,
        );
        return Denial::new(
            refusal.kind,
            text(refusal),
            Barrier::Layer(Layer::ProtectedNames, None),
            why,
            remedy,
        );
    }
    if let Some(port) = own_port(refusal) {
        let why = "Nothing in this session listens there: 127.0.0.1 is the cell's own loopback, not this machine's.";
        let by = Barrier::Layer(layer, None);
        let policy = &spec.policy;
        let leases = network::Leasing::offered_if(policy.leases);
        let remedy = network::remedy_of_port(&policy.ports, leases, port);
        let may = policy.leases && policy.ports.may_lease(port).is_ok();
        return Denial::new(refusal.kind, text(refusal), by, why, remedy)
            .with_lease(may.then_some(Leased::Port(port)));
    }
    let why = match refusal.kind {
        AttemptKind::Resolve => NO_DNS,
        _ if is_of_no_host(refusal, spec) => OF_NO_HOST,
        _ => {
            "A cell can connect only to its own loopback. It reaches allowed hosts through the proxy in HTTP_PROXY."
        }
    };
    Denial::new(
        refusal.kind,
        text(refusal),
        Barrier::Layer(layer, None),
        why,
        remedy_to_reach(spec),
    )
}

/// The port, where a program has connected to one of its loopback.
fn own_port(refusal: &Refusal) -> Option<u16> {
    network::own_port(connected_to(refusal)?).filter(|_| refusal.kind == AttemptKind::Connect)
}

/// The address, if a program has connected to one.
fn connected_to(refusal: &Refusal) -> Option<SocketAddr> {
    std::str::from_utf8(&refusal.target).ok()?.parse().ok()
}

/// Whether an address lies among those that stand for hosts of a session, where this session has hosts: no other is refused as one.
fn is_of_no_host(refusal: &Refusal, spec: &SandboxSpec) -> bool {
    match connected_to(refusal).map(|address| address.ip().to_canonical()) {
        Some(IpAddr::V4(ip)) => spec.hosts.has(ip),
        Some(IpAddr::V6(_)) | None => false,
    }
}

/// The remedy that lets commands reach hosts: if some are open already, the relay's proxy, which resolves their names.
fn remedy_to_reach(spec: &SandboxSpec) -> Remedy {
    let leases = network::Leasing::offered_if(spec.policy.leases);
    network::remedy_of_any(&spec.policy.network, leases)
}
