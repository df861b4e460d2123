//! Counts the connections that a session was refused again and again, instead of recording each.
//!
//! The first of each host is recorded at once; what follows is counted, and recorded when a call begins or ends, once a minute and at
//! the end. A cell chooses how often it tries and which names it tries, so the number of hosts that are listed is bounded too.

use broker_protocol::{ConnectionReport, ConnectionVerdict};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often what was counted is recorded while no command ends.
const INTERVAL: Duration = Duration::from_secs(60);
/// Maximum hosts in an interval; of further ones only the number is recorded.
const HOSTS_MAX: usize = 64;

/// A host with a verdict; of requests that were refused also why, because that differs.
type RepeatKey = (String, u16, &'static str, Option<String>);

/// The refusals and failures of an interval.
#[derive(Debug, Default)]
pub struct Repeats {
    /// The hosts with their verdicts, each with what has not been recorded yet.
    hosts: BTreeMap<RepeatKey, ConnectionReport>,
    /// Further hosts of the interval, counted by verdict.
    others: BTreeMap<&'static str, ConnectionReport>,
    is_counted: bool,
    /// When the interval ends; it begins with its first refusal.
    ends: Option<Instant>,
}

impl Repeats {
    /// Counts a report; returns whether to record it now.
    pub fn is_new(&mut self, report: &ConnectionReport, now: Instant) -> bool {
        if report.verdict == ConnectionVerdict::Allowed {
            return true;
        }
        self.ends.get_or_insert(now + INTERVAL);
        let name = report.verdict.name();
        let known = self.hosts.len();
        let why = report.why.clone();
        let why = why.filter(|_| report.verdict == ConnectionVerdict::RequestRefused);
        let key = (report.host.clone(), report.port, name, why);
        if let Some(host) = self.hosts.get_mut(&key) {
            host.call = report
                .call
                .filter(|call| host.count == 0 || host.call == Some(*call));
            host.count = host.count.saturating_add(report.count);
            self.is_counted = true;
            return false;
        }
        if known < HOSTS_MAX {
            let none = ConnectionReport {
                count: 0,
                ..report.clone()
            };
            self.hosts.insert(key, none);
            return true;
        }
        let other = self.others.entry(name).or_insert_with(|| ConnectionReport {
            host: String::new(),
            port: 0,
            verdict: report.verdict,
            why: Some(format!("hosts beyond the first {HOSTS_MAX}")),
            private: None,
            count: 0,
            call: None,
        });
        other.count = other.count.saturating_add(report.count);
        self.is_counted = true;
        false
    }

    /// Takes what was counted since.
    pub fn take(&mut self) -> Vec<ConnectionReport> {
        let mut counted = Vec::new();
        if !std::mem::take(&mut self.is_counted) {
            return counted;
        }
        for host in self.hosts.values_mut() {
            if host.count > 0 {
                counted.push(host.clone());
                host.count = 0;
            }
        }
        counted.extend(std::mem::take(&mut self.others).into_values());
        counted
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.ends
    }

    /// Takes what was counted in an interval that has ended; in the next one each host is new.
    pub fn tick(&mut self, now: Instant) -> Vec<ConnectionReport> {
        if self.ends.is_none_or(|ends| ends > now) {
            return Vec::new();
        }
        let counted = self.take();
        self.hosts.clear();
        self.ends = None;
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(host: &str, verdict: ConnectionVerdict) -> ConnectionReport {
        ConnectionReport {
            host: host.into(),
            port: 443,
            verdict,
            why: Some("because".into()),
            private: None,
            count: 1,
            call: None,
        }
    }

    #[test]
    fn a_repeated_refusal_is_counted_and_a_connection_is_not() {
        use ConnectionVerdict::{Allowed, NotListed};
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        let refusals = ConnectionVerdict::ALL.into_iter();
        for verdict in refusals.filter(|verdict| *verdict != Allowed) {
            let one = report("a.example", verdict);
            assert!(repeats.is_new(&one, now));
            assert!(!repeats.is_new(&one, now) && !repeats.is_new(&one, now));
        }
        let open = report("a.example", Allowed);
        assert!(repeats.is_new(&open, now) && repeats.is_new(&open, now));
        let counts: Vec<u32> = repeats.take().iter().map(|one| one.count).collect();
        assert_eq!(counts, [2; ConnectionVerdict::ALL.len() - 1]);
        assert!(repeats.take().is_empty());
        let again = report("a.example", NotListed);
        assert!(!repeats.is_new(&again, now));
        assert!(repeats.tick(now).is_empty());
        let ends = repeats.deadline().unwrap();
        assert_eq!(repeats.tick(ends).len(), 1);
        assert!(repeats.is_new(&again, ends));
    }

    #[test]
    fn many_hosts_are_one_number() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        let new = (0..1000)
            .filter(|n| {
                let host = format!("{n}.example");
                repeats.is_new(&report(&host, ConnectionVerdict::NotListed), now)
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
