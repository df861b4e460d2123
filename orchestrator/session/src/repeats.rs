//! Counts the connections that a session was refused again and again, instead of recording each.
//!
//! The first of each host is recorded at once; what follows is counted, and recorded when a command ends, once a minute and at the
//! end. A cell chooses how often it tries and which names it tries, so the number of hosts that are listed is bounded too.

use broker_protocol::ConnectionVerdict;
use orchestrator_gateway::relay::Decision;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often what was counted is recorded while no command ends.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);
/// Maximum hosts in an interval; of further ones only the number is recorded.
const HOSTS_MAX: usize = 64;

/// The refusals and failures of an interval.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// The hosts with their verdicts, each with what has not been recorded yet.
    hosts: RefCell<BTreeMap<(String, u16, &'static str), Decision>>,
    /// Other hosts, by verdict.
    others: RefCell<BTreeMap<&'static str, Decision>>,
}

impl Repeats {
    /// Counts a decision; returns whether to record it now.
    pub fn is_new(&self, decision: &Decision) -> bool {
        if decision.verdict == ConnectionVerdict::Allowed {
            return true;
        }
        let name = decision.verdict.name();
        let mut hosts = self.hosts.borrow_mut();
        let known = hosts.len();
        let key = (decision.host.clone(), decision.port, name);
        if let Some(host) = hosts.get_mut(&key) {
            host.count = host.count.saturating_add(1);
            return false;
        }
        if known < HOSTS_MAX {
            let none = Decision {
                count: 0,
                ..decision.clone()
            };
            hosts.insert(key, none);
            return true;
        }
        let mut others = self.others.borrow_mut();
        let other = others.entry(name).or_insert_with(|| Decision {
            host: String::new(),
            port: 0,
            verdict: decision.verdict,
            why: Some(format!("hosts beyond the first {HOSTS_MAX}")),
            private: None,
            count: 0,
        });
        other.count = other.count.saturating_add(1);
        false
    }

    /// Takes what was counted since.
    pub fn take(&self) -> Vec<Decision> {
        let mut counted = Vec::new();
        for host in self.hosts.borrow_mut().values_mut() {
            if host.count > 0 {
                counted.push(host.clone());
                host.count = 0;
            }
        }
        counted.extend(std::mem::take(&mut *self.others.borrow_mut()).into_values());
        counted
    }

    /// Begins another interval, in which each host is new.
    pub fn forget(&self) {
        self.hosts.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(host: &str, verdict: ConnectionVerdict) -> Decision {
        Decision {
            host: host.into(),
            port: 443,
            verdict,
            why: Some("because".into()),
            private: None,
            count: 1,
        }
    }

    #[test]
    fn a_repeated_refusal_is_counted_and_a_connection_is_not() {
        use ConnectionVerdict::{Allowed, Malformed, NotListed, NotPublic, Unreachable};
        let repeats = Repeats::default();
        for verdict in [NotListed, NotPublic, Unreachable, Malformed] {
            let one = decision("a.example", verdict);
            assert!(repeats.is_new(&one));
            assert!(!repeats.is_new(&one) && !repeats.is_new(&one));
        }
        let open = decision("a.example", Allowed);
        assert!(repeats.is_new(&open) && repeats.is_new(&open));
        let counts: Vec<u32> = repeats.take().iter().map(|one| one.count).collect();
        assert_eq!(counts, [2; 4]);
        assert!(repeats.take().is_empty());
        assert!(!repeats.is_new(&decision("a.example", NotListed)));
        repeats.forget();
        assert!(repeats.is_new(&decision("a.example", NotListed)));
    }

    #[test]
    fn many_hosts_are_one_number() {
        let repeats = Repeats::default();
        let new = (0..1000)
            .filter(|n| {
                let host = format!("{n}.example");
                repeats.is_new(&decision(&host, ConnectionVerdict::NotListed))
            })
            .count();
        assert_eq!(new, HOSTS_MAX);
        let counted = repeats.take();
        assert_eq!(counted.len(), 1);
        let other = &counted[0];
        assert_eq!(
            (other.host.as_str(), other.port, other.count as usize),
            ("", 0, 1000 - HOSTS_MAX)
        );
    }
}
