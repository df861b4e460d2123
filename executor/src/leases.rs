//! Leases: hosts that were granted beyond what the session has. What may be granted at all is decided here, and when it ends: with
//! its call, after its minutes, when it is taken back. Who grants is the business of `approvals`.
//!
//! The broker carries no connections. What it decides is recorded, and told to the client, which does; a lease for one call has a
//! key, which only that call's programs are given, so that nothing else in the session has the host meanwhile.

use broker_protocol::{
    CallId, Digest, Extent, FromBroker, Lease, Nonce, Refused, Request, SessionGrant, Wants, limit,
};
use executor_audit::record::LeaseEnd;
use policies::web::HostPattern;
use policies::{EffectivePolicy, network};
use std::time::{Duration, Instant};

pub use policies::network::LEASE_RULE as RULE;

/// The leases of a session.
#[derive(Debug, Default)]
pub struct Leases {
    held: Vec<Held>,
    /// Those that have ended and stand in no record yet.
    ended: Vec<(Lease, LeaseEnd)>,
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    /// Of the call it was granted with.
    digest: Digest,
    calls: u64,
    ends: Option<Instant>,
}

impl Leases {
    /// What of `wants` has to be granted before `request` may run.
    ///
    /// # Errors
    /// Something of it cannot be granted, whoever is asked.
    pub fn missing(
        &mut self,
        wants: &Wants,
        request: &Request,
        policy: &EffectivePolicy,
    ) -> Result<Wants, Refused> {
        if wants.is_empty() {
            return Ok(Wants::default());
        }
        if let Some(why) = unleasable(request, policy) {
            return Err(refused(why.to_owned()));
        }
        let mut missing = Wants::default();
        for host in &wants.hosts {
            network::leased(policy.network.clone(), host).map_err(|error| refused(error.to_string()))?;
            if !self.covers(host) && !is_allowed(policy, host) && !missing.hosts.contains(host) {
                missing.hosts.push(host.clone());
            }
        }
        if self.held.len() + missing.hosts.len() > limit::LEASES {
            return Err(refused(format!("a session has at most {} granted hosts at once", limit::LEASES)));
        }
        Ok(missing)
    }

    /// Whether every call has `host` already. Counts as a call that ran by it.
    fn covers(&mut self, host: &str) -> bool {
        let found = self.held.iter_mut().find(|held| held.lease.key.is_none() && held.lease.host == host);
        found.map(|held| held.calls += 1).is_some()
    }

    /// The leases by which `call` has what it `wants`, numbered from `first`. Those for the call alone have `key`.
    pub fn of(wants: &Wants, extent: Extent, call: CallId, first: u64, key: Nonce) -> Vec<Lease> {
        let key = match extent {
            Extent::Once => Some(key),
            Extent::Session | Extent::Minutes(_) => None,
        };
        let lease = |(lease, host): (u64, &String)| Lease { lease, host: host.clone(), call, key };
        (first..).zip(&wants.hosts).map(lease).collect()
    }

    /// Has `leases` of the call with this digest in force from now on. They stand in the audit.
    pub fn begin(&mut self, leases: Vec<Lease>, extent: Extent, digest: Digest) {
        let ends = match extent {
            Extent::Minutes(minutes) => {
                Some(Instant::now() + Duration::from_secs(60 * u64::from(minutes.min(limit::LEASE_MINUTES))))
            }
            Extent::Once | Extent::Session => None,
        };
        self.held.extend(leases.into_iter().map(|lease| Held { lease, digest, calls: 1, ends }));
    }

    pub fn revoke(&mut self, number: u64) {
        self.end(LeaseEnd::Revoked, |held| held.lease.lease == number);
    }

    /// Ends those that were for `call` alone.
    pub fn end_call(&mut self, call: CallId) {
        self.end(LeaseEnd::Call, |held| held.lease.key.is_some() && held.lease.call == call);
    }

    /// Ends those whose time is over.
    pub fn expire(&mut self, now: Instant) {
        self.end(LeaseEnd::Time, |held| held.ends.is_some_and(|ends| ends <= now));
    }

    /// Whether one is for every call.
    pub fn are_for_all(&self) -> bool {
        self.held.iter().any(|held| held.lease.key.is_none())
    }

    /// When the next one ends by itself.
    pub fn deadline(&self) -> Option<Instant> {
        self.held.iter().filter_map(|held| held.ends).min()
    }

    fn end(&mut self, how: LeaseEnd, over: impl Fn(&Held) -> bool) {
        let ended = self.held.extract_if(.., |held| over(held));
        self.ended.extend(ended.map(|held| (held.lease, how)));
    }

    /// Those that have ended since this was asked.
    pub fn take_ended(&mut self) -> Vec<(Lease, LeaseEnd)> {
        std::mem::take(&mut self.ended)
    }

    /// All that are in force, for the client.
    pub fn message(&self) -> FromBroker {
        FromBroker::Leases(self.held.iter().map(|held| held.lease.clone()).collect())
    }

    /// The same, for a list of grants.
    pub fn listed(&self) -> impl Iterator<Item = SessionGrant> {
        let now = Instant::now();
        self.held.iter().map(move |held| SessionGrant {
            grant: held.lease.lease,
            rule: RULE.to_owned(),
            tool: "bash".to_owned(),
            calls: held.calls,
            only: held.lease.key.map(|_| held.digest),
            host: Some(held.lease.host.clone()),
            ends_s: held.ends.and_then(|ends| ends.saturating_duration_since(now).as_secs().try_into().ok()),
        })
    }
}

/// Why a request may want nothing.
fn unleasable(request: &Request, policy: &EffectivePolicy) -> Option<&'static str> {
    let Request::Bash(bash) = request else {
        return Some("only commands reach hosts by the network of their cell");
    };
    match (policy.leases, bash.background) {
        (true, false) => None,
        (true, true) => Some("a command in the background has no end with which a grant of hosts could end"),
        (false, _) => Some(
            "nobody can grant more hosts in this session: it was opened without leases, or its scope closes the network",
        ),
    }
}

fn refused(why: String) -> Refused {
    Refused { rule: RULE.to_owned(), why, violation: false }
}

/// Whether the policy allows `host` by itself.
fn is_allowed(policy: &EffectivePolicy, host: &str) -> bool {
    let pattern = HostPattern::try_from(host.to_owned()).ok();
    let named = pattern.as_ref().and_then(HostPattern::one);
    named.is_some_and(|(name, port)| port.is_some_and(|port| policy.network.allows(name, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(leases: &mut Leases, call: CallId, extent: Extent, host: &str) {
        let wants = Wants { hosts: vec![host.to_owned()] };
        let new = Leases::of(&wants, extent, call, call, Nonce([call as u8; 16]));
        leases.begin(new, extent, Digest([call as u8; 32]));
    }

    fn ended(leases: &mut Leases) -> Vec<(u64, LeaseEnd)> {
        leases.take_ended().into_iter().map(|(lease, how)| (lease.lease, how)).collect()
    }

    #[test]
    fn each_lease_ends_in_its_own_way_and_once() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        begun(&mut leases, 1, Extent::Once, "a.example:443");
        assert!(!leases.are_for_all() && !leases.covers("a.example:443"), "it is its call's alone");
        begun(&mut leases, 2, Extent::Minutes(10), "b.example:443");
        begun(&mut leases, 3, Extent::Session, "c.example:443");
        begun(&mut leases, 4, Extent::Minutes(u16::MAX), "d.example:443");
        assert!(leases.covers("b.example:443") && !leases.covers("b.example:80"));
        leases.end_call(3);
        assert_eq!(ended(&mut leases), [], "what is for the session does not end with its call");
        leases.end_call(1);
        assert_eq!(ended(&mut leases), [(1, LeaseEnd::Call)]);
        assert!(leases.deadline().is_some_and(|end| end <= now + Duration::from_secs(601)));
        leases.expire(now + Duration::from_secs(599));
        assert_eq!(ended(&mut leases), []);
        leases.expire(now + Duration::from_secs(601));
        assert_eq!(ended(&mut leases), [(2, LeaseEnd::Time)]);
        assert!(!leases.covers("b.example:443"));
        leases.expire(now + Duration::from_secs(60 * u64::from(limit::LEASE_MINUTES) + 1));
        assert_eq!(ended(&mut leases), [(4, LeaseEnd::Time)], "nothing is longer than the longest");
        leases.revoke(3);
        leases.revoke(3);
        assert_eq!(ended(&mut leases), [(3, LeaseEnd::Revoked)]);
        assert_eq!((leases.listed().count(), leases.deadline()), (0, None));
    }
}
