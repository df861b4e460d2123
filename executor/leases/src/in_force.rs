//! The leases of a session: what was granted beyond what the session has. Decides what may be
//! leased at all, and when a lease ends: with its call, after its minutes, or when it is revoked.
//!
//! The broker carries no connections: the session's gateway does. What the broker decides is recorded, and sent to the gateway and the
//! client. The gateway hears from the supervisors of which call each connection is, so nothing else in the session has the host meanwhile.

use crate::handover::{HeldFor, LeaseHandover};
use crate::path::{HeldPath, LeasedPath, Places, names, outermost};
use crate::pending::PendingPaths;
use broker_protocol::{
    CallId, Digest, Extent, FromBroker, Lease, Leased, Refused, Request, SessionGrant, Wants, limit,
};
use executor_audit::record::LeaseEnd;
use policies::web::HostPattern;
use policies::{Access, EffectivePolicy, network};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

pub use policies::network::LEASE_RULE as RULE;

/// The leases of a session.
#[derive(Debug, Default)]
pub struct Leases {
    held: Vec<HeldLease>,
    /// Leases that have ended and are not recorded yet.
    ended: Vec<(Lease, LeaseEnd)>,
}

#[derive(Debug)]
struct HeldLease {
    lease: Lease,
    /// The digest of the call with which it was granted.
    digest: Digest,
    calls: u64,
    ends: Option<Instant>,
    /// The held path, if it is a lease of one.
    path: Option<Rc<HeldPath>>,
}

/// What a call requests and does not have, with the objects at its paths, in order.
#[derive(Debug, Default)]
pub struct Missing {
    /// The hosts, ports and paths that need an approval.
    pub wants: Wants,
    /// The objects at those paths.
    pub paths: Vec<LeasedPath>,
}

impl Missing {
    /// The ports that need an approval, described for a question.
    pub fn ports(&self) -> impl Iterator<Item = String> {
        let ports = self.wants.connect.iter();
        ports.map(|port| format!("connect to port {port} of this machine's loopback"))
    }
}

impl Leases {
    /// Which of the `wants` of `call` must be granted before its `request` may run.
    ///
    /// # Errors
    /// Some of it cannot be granted, whoever approves.
    pub fn missing(
        &mut self,
        call: CallId,
        wants: &Wants,
        request: &Request,
        places: &Places,
    ) -> Result<Missing, Refused> {
        let mut missing = Missing::default();
        if wants.is_empty() {
            return Ok(missing);
        }
        let policy = places.policy;
        if let Some(why) = unleasable(request, wants, policy) {
            return Err(refused(why.to_owned()));
        }
        for host in &wants.hosts {
            network::leased(policy.network.clone(), host)
                .map_err(|error| refused(error.to_string()))?;
            if !self.covers(&Leased::Host(host.clone()))
                && !is_allowed(policy, host)
                && !missing.wants.hosts.contains(host)
            {
                missing.wants.hosts.push(host.clone());
            }
        }
        self.missing_ports(wants, policy, &mut missing)?;
        if wants.has_paths() {
            self.missing_paths(wants, places, &mut missing)?;
        }
        self.check(call, &missing)?;
        Ok(missing)
    }

    /// The ports of this machine that need an approval.
    fn missing_ports(
        &mut self,
        wants: &Wants,
        policy: &EffectivePolicy,
        missing: &mut Missing,
    ) -> Result<(), Refused> {
        for port in wants.connect.iter().copied() {
            let may = policy.ports.may_lease(port);
            may.map_err(|error| refused(error.to_string()))?;
            if !self.covers(&Leased::Port(port))
                && !policy.ports.connect.contains(&port)
                && !missing.wants.connect.contains(&port)
            {
                missing.wants.connect.push(port);
            }
        }
        Ok(())
    }

    /// Which of `opens`, the file of a zone that `call` changes by a file tool, must be granted before that.
    ///
    /// # Errors
    /// It cannot be granted, whoever approves.
    pub fn missing_file(
        &mut self,
        call: CallId,
        opens: Leased,
        places: &Places,
    ) -> Result<Missing, Refused> {
        let (mut wants, mut missing) = (Wants::default(), Missing::default());
        wants.push(opens);
        self.missing_paths(&wants, places, &mut missing)?;
        self.check(call, &missing)?;
        Ok(missing)
    }

    /// The lease by which `call` may change the file of a zone at `path`, opened for that, with its number.
    ///
    /// # Errors
    /// The call has none, or another file lies there now.
    pub fn open_file(&mut self, call: CallId, path: &Path) -> Result<(u64, OwnedFd), Refused> {
        self.end_changed();
        let all = self.paths_for(call).into_iter();
        let mut ours = all.filter(|(_, held)| held.leased().is_in_zone());
        let (lease, held) = ours
            .find(|(_, held)| held.leased().path() == path)
            .ok_or_else(|| ended(&path.to_string_lossy()))?;
        Ok((lease, held.leased().open_to_change()?))
    }

    /// Whether `missing` of `call` may be in force beside the present leases. Checked when it is
    /// requested and again when it is granted, as others may have begun meanwhile.
    fn check(&self, call: CallId, missing: &Missing) -> Result<(), Refused> {
        let paths: Vec<_> = missing.paths.iter().collect();
        self.check_beside(call, missing.wants.places(), &paths)
    }

    fn check_beside(
        &self,
        call: CallId,
        places: usize,
        new: &[&LeasedPath],
    ) -> Result<(), Refused> {
        let held = self.held.iter().filter(|held| held.path.is_some()).count();
        let all = self.held.len() + places + new.len();
        for (count, max, what) in [
            (held + new.len(), limit::WANTED_PATHS, "paths"),
            (all, limit::LEASES, "hosts, ports and paths"),
        ] {
            if count > max {
                return Err(refused(format!(
                    "a session has at most {max} granted {what} at once"
                )));
            }
        }
        let paths: Vec<_> = self
            .paths_for(call)
            .into_iter()
            .map(|(_, held)| held)
            .collect();
        let held: Vec<_> = paths.iter().map(|held| held.leased()).collect();
        new.iter().enumerate().try_for_each(|(at, path)| {
            let others = held.iter().chain(&new[..at]);
            others
                .copied()
                .try_for_each(|other| path.check_beside(other))
        })
    }

    /// Prepares the paths of `missing`, when `call` is granted them.
    ///
    /// # Errors
    /// They may not be in force beside the present leases.
    pub fn prepare(
        &mut self,
        call: CallId,
        missing: Missing,
        policy: &EffectivePolicy,
    ) -> Result<PendingPaths, Refused> {
        if !missing.paths.is_empty() {
            self.end_changed();
            self.check(call, &missing)?;
        }
        PendingPaths::new(missing.paths, policy)
    }

    /// Checks again that `paths` and so many hosts and ports of `call` may be in force: others may have begun while their paths were searched.
    ///
    /// # Errors
    /// They may not: too many are in force, or one overlaps another.
    pub fn check_held(
        &mut self,
        call: CallId,
        places: usize,
        paths: &[Rc<HeldPath>],
    ) -> Result<(), Refused> {
        if paths.is_empty() {
            return Ok(());
        }
        self.end_changed();
        let paths: Vec<_> = paths.iter().map(|held| held.leased()).collect();
        self.check_beside(call, places, &paths)
    }

    /// Opens each path that needs an approval.
    fn missing_paths(
        &mut self,
        wants: &Wants,
        places: &Places,
        missing: &mut Missing,
    ) -> Result<(), Refused> {
        self.end_changed();
        let (names, mut opened) = (names(places.policy)?, Vec::new());
        for (access, text) in each_path(wants) {
            let path = Path::new(text);
            if self.covers_path(access, path) || access == Access::Read && (places.is_shown)(path) {
                continue;
            }
            opened.push(places.open(access, text, &names)?);
        }
        missing.paths = outermost(opened, |path| path);
        missing
            .paths
            .iter()
            .for_each(|path| missing.wants.push(path.opens()));
        Ok(())
    }

    /// The paths requested for a session that opens.
    ///
    /// # Errors
    /// One of them cannot be granted.
    pub fn open_wanted(wants: &Wants, places: &Places) -> Result<Missing, Refused> {
        let mut missing = Missing::default();
        // To compile the names takes longer than most of what a session waits for.
        if wants.has_paths() {
            Self::default().missing_paths(wants, places, &mut missing)?;
        }
        Ok(missing)
    }

    /// Whether every call has `access` to `path` already. Counts this use of the lease.
    fn covers_path(&mut self, access: Access, path: &Path) -> bool {
        let covers = |held: &&mut HeldLease| {
            let path_held = held.path.as_ref().map(|held| held.leased());
            !held.lease.alone && path_held.is_some_and(|held| held.covers(access, path))
        };
        self.held
            .iter_mut()
            .find(covers)
            .map(|held| held.calls += 1)
            .is_some()
    }

    /// The paths that `call` has, without those covered by another, each with the number of its lease.
    pub fn paths_for(&self, call: CallId) -> Vec<(u64, Rc<HeldPath>)> {
        let ours = self.held.iter().filter(|held| held.lease.is_for(call));
        let ours = ours
            .filter_map(|held| Some((held.lease.lease, held.path.clone()?)))
            .collect();
        outermost(ours, |(_, held)| held.leased())
    }

    /// The handover to a cell of `paths`, which its call has.
    ///
    /// # Errors
    /// It cannot be prepared.
    pub fn handover(
        &self,
        paths: &[(u64, Rc<HeldPath>)],
        user_namespace: Option<&OwnedFd>,
    ) -> Result<Option<LeaseHandover>, Refused> {
        let has = |lease: u64| paths.iter().any(|(number, _)| *number == lease);
        let ends = |held: &HeldLease| held.lease.alone || held.ends.is_some();
        let is_shorter = |held: &HeldLease| has(held.lease.lease) && ends(held);
        let duration = if self.held.iter().any(is_shorter) {
            HeldFor::Shorter
        } else {
            HeldFor::Session
        };
        let handover = LeaseHandover::new(paths, duration, user_namespace);
        handover.map_err(|error| {
            refused(format!(
                "the leased path cannot be handed to a cell: {error}"
            ))
        })
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Ends the leases whose paths now lead elsewhere.
    pub fn end_changed(&mut self) {
        let changed = |held: &HeldLease| {
            held.path
                .as_ref()
                .is_some_and(|held| !held.leased().is_unchanged())
        };
        self.end(LeaseEnd::Changed, changed);
    }

    /// Whether every call has this host or port already. Counts this use of the lease.
    fn covers(&mut self, place: &Leased) -> bool {
        let found = self
            .held
            .iter_mut()
            .find(|held| !held.lease.alone && held.lease.opens == *place);
        found.map(|held| held.calls += 1).is_some()
    }

    /// The leases that give `call` what it `wants`, numbered from `first`.
    pub fn of(wants: &Wants, extent: Extent, call: CallId, first: u64) -> Vec<Lease> {
        let alone = match extent {
            Extent::Once => true,
            Extent::Session | Extent::Minutes(_) => false,
        };
        (first..)
            .zip(wants.each())
            .map(|(lease, opens)| Lease {
                lease,
                opens,
                call,
                alone,
            })
            .collect()
    }

    /// Puts `leases` of the call with this digest in force; those of paths use `paths`, in the same
    /// order. They are already in the audit.
    pub fn begin(
        &mut self,
        leases: Vec<Lease>,
        paths: Vec<Rc<HeldPath>>,
        extent: Extent,
        digest: Digest,
    ) {
        let mut paths = paths.into_iter();
        let ends = match extent {
            Extent::Minutes(minutes) => Some(
                Instant::now()
                    + Duration::from_secs(60 * u64::from(minutes.min(limit::LEASE_MINUTES))),
            ),
            Extent::Once | Extent::Session => None,
        };
        for lease in leases {
            let path = if lease.opens.is_place() {
                None
            } else {
                paths.next()
            };
            self.held.push(HeldLease {
                lease,
                digest,
                calls: 1,
                ends,
                path,
            });
        }
    }

    /// Ends the lease with this number, if there is one.
    pub fn revoke(&mut self, number: u64) {
        self.end(LeaseEnd::Revoked, |held| held.lease.lease == number);
    }

    /// Ends the leases that were for `call` alone.
    pub fn end_call(&mut self, call: CallId) {
        self.end(LeaseEnd::Call, |held| {
            held.lease.alone && held.lease.call == call
        });
    }

    /// Ends the leases whose time is over.
    pub fn expire(&mut self, now: Instant) {
        self.end(LeaseEnd::Time, |held| {
            held.ends.is_some_and(|ends| ends <= now)
        });
    }

    /// Whether any host is leased to the programs of `call`.
    pub fn open_host(&self, call: CallId) -> bool {
        self.held
            .iter()
            .any(|held| held.lease.is_for(call) && held.lease.opens.host().is_some())
    }

    /// The ports of this machine that are leased to the programs of `call`.
    pub fn ports_for(&self, call: CallId) -> Vec<u16> {
        let ours = self.held.iter().filter(|held| held.lease.is_for(call));
        ours.filter_map(|held| held.lease.opens.port()).collect()
    }

    /// When the next lease expires.
    pub fn deadline(&self) -> Option<Instant> {
        self.held.iter().filter_map(|held| held.ends).min()
    }

    fn end(&mut self, how: LeaseEnd, over: impl Fn(&HeldLease) -> bool) {
        let ended = self.held.extract_if(.., |held| over(held));
        self.ended.extend(ended.map(|held| (held.lease, how)));
    }

    /// Whether leases have ended since the last call of [`take_ended`](Self::take_ended).
    pub fn have_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The leases that have ended since the last call of this.
    pub fn take_ended(&mut self) -> Vec<(Lease, LeaseEnd)> {
        std::mem::take(&mut self.ended)
    }

    /// All leases in force, as a frame for the client.
    pub fn message(&self) -> FromBroker {
        FromBroker::Leases(self.in_force().collect())
    }

    /// Every lease in force now, of hosts, of ports and of paths.
    pub fn in_force(&self) -> impl Iterator<Item = Lease> {
        self.held.iter().map(|held| held.lease.clone())
    }

    /// All leases in force, for a list of grants.
    pub fn listed(&self) -> impl Iterator<Item = SessionGrant> {
        let now = Instant::now();
        self.held.iter().map(move |held| SessionGrant {
            grant: held.lease.lease,
            rule: RULE.to_owned(),
            tool: "bash".to_owned(),
            calls: held.calls,
            programs: Vec::new(),
            only: held.lease.alone.then_some(held.digest),
            opens: Some(held.lease.opens.clone()),
            ends_s: held.ends.and_then(|ends| {
                ends.saturating_duration_since(now)
                    .as_secs()
                    .try_into()
                    .ok()
            }),
        })
    }
}

/// Why a request may not ask for leases.
fn unleasable(request: &Request, wants: &Wants, policy: &EffectivePolicy) -> Option<&'static str> {
    let Request::Bash(bash) = request else {
        return Some("only commands can use leased hosts, ports and paths");
    };
    if bash.background {
        return Some("a background command cannot have a lease, which ends with its call");
    }
    if wants.has_places() && !policy.leases {
        return Some(
            "this session grants no more hosts and ports: it was opened without leases, or its scope closes the network",
        );
    }
    (wants.has_paths() && !policy.path_leases.asked)
        .then_some("this session grants no more paths: it was opened without leases")
}

/// The paths in the order in which leases are numbered.
fn each_path(wants: &Wants) -> impl Iterator<Item = (Access, &String)> {
    let read = wants.read.iter().map(|path| (Access::Read, path));
    read.chain(wants.write.iter().map(|path| (Access::Write, path)))
}

/// Checks that a call which wants paths has them: a lease may have ended since the question, or lead elsewhere.
///
/// # Errors
/// It lacks one.
pub fn check_own(
    wants: &Wants,
    paths: &[(u64, Rc<HeldPath>)],
    is_shown: impl Fn(&Path) -> bool,
) -> Result<(), Refused> {
    for (access, text) in each_path(wants) {
        let path = Path::new(text);
        let has = paths
            .iter()
            .any(|(_, held)| held.leased().covers(access, path));
        let shown = access == Access::Read && is_shown(path);
        if !has && !shown {
            return Err(ended(text));
        }
    }
    Ok(())
}

fn ended(path: &str) -> Refused {
    refused(format!(
        "the grant of {path} has ended, or another file lies there now"
    ))
}

fn refused(why: String) -> Refused {
    Refused {
        rule: RULE.to_owned(),
        why,
        violation: false,
    }
}

/// Whether the policy allows `host` without a lease.
fn is_allowed(policy: &EffectivePolicy, host: &str) -> bool {
    let pattern = HostPattern::try_from(host.to_owned()).ok();
    let named = pattern.as_ref().and_then(HostPattern::one);
    named.is_some_and(|(name, port)| port.is_some_and(|port| policy.network.allows(name, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(leases: &mut Leases, call: CallId, extent: Extent, host: &str) {
        let wants = Wants {
            hosts: vec![host.to_owned()],
            ..Wants::default()
        };
        begin(leases, call, extent, wants);
    }

    fn begin(leases: &mut Leases, call: CallId, extent: Extent, wants: Wants) {
        let new = Leases::of(&wants, extent, call, call);
        leases.begin(new, Vec::new(), extent, Digest([call as u8; 32]));
    }

    fn covers(leases: &mut Leases, host: &str) -> bool {
        leases.covers(&Leased::Host(host.to_owned()))
    }

    fn ended(leases: &mut Leases) -> Vec<(u64, LeaseEnd)> {
        leases
            .take_ended()
            .into_iter()
            .map(|(lease, how)| (lease.lease, how))
            .collect()
    }

    #[test]
    fn a_port_is_leased_to_its_call_and_is_no_host() {
        let mut leases = Leases::default();
        let port = |port| Wants {
            connect: vec![port],
            ..Wants::default()
        };
        begin(&mut leases, 1, Extent::Once, port(5432));
        begin(&mut leases, 2, Extent::Session, port(6379));
        let ports = |call| leases.ports_for(call);
        assert_eq!([ports(1), ports(2)], [vec![5432, 6379], vec![6379]]);
        assert_eq!(ports(0), [6379], "a background process has no call");
        assert!(!leases.open_host(1) && !leases.open_host(2));
        assert!(!leases.covers(&Leased::Port(5432)) && leases.covers(&Leased::Port(6379)));
        leases.end_call(1);
        assert_eq!(leases.ports_for(1), [6379]);
    }

    #[test]
    fn each_lease_ends_in_its_own_way_and_once() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        begun(&mut leases, 1, Extent::Once, "a.example:443");
        assert!(
            leases.open_host(1) && !leases.open_host(2) && !covers(&mut leases, "a.example:443"),
            "it is its call's alone"
        );
        begun(&mut leases, 2, Extent::Minutes(10), "b.example:443");
        begun(&mut leases, 3, Extent::Session, "c.example:443");
        begun(&mut leases, 4, Extent::Minutes(u16::MAX), "d.example:443");
        assert!(covers(&mut leases, "b.example:443") && !covers(&mut leases, "b.example:80"));
        leases.end_call(3);
        assert_eq!(
            ended(&mut leases),
            [],
            "what is for the session does not end with its call"
        );
        leases.end_call(1);
        assert_eq!(ended(&mut leases), [(1, LeaseEnd::Call)]);
        assert!(
            leases
                .deadline()
                .is_some_and(|end| end <= now + Duration::from_secs(601))
        );
        leases.expire(now + Duration::from_secs(599));
        assert_eq!(ended(&mut leases), []);
        leases.expire(now + Duration::from_secs(601));
        assert_eq!(ended(&mut leases), [(2, LeaseEnd::Time)]);
        assert!(!covers(&mut leases, "b.example:443"));
        leases.expire(now + Duration::from_secs(60 * u64::from(limit::LEASE_MINUTES) + 1));
        assert_eq!(
            ended(&mut leases),
            [(4, LeaseEnd::Time)],
            "nothing is longer than the longest"
        );
        leases.revoke(3);
        leases.revoke(3);
        assert_eq!(ended(&mut leases), [(3, LeaseEnd::Revoked)]);
        assert_eq!((leases.listed().count(), leases.deadline()), (0, None));
    }
}
