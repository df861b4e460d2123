//! Uses of credentials, for the broker's audit: the first of each kind at once, further ones counted.

use super::limits::Times;
use broker_protocol::gateway::{CredentialReport, CredentialVerdict, FromGateway};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use tokio::task::spawn_local;
use tokio::time::sleep;

/// Methods that are named in a report. Others are a program's own words, and would be as many as it likes.
const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE",
];
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    credential: u16,
    host: String,
    port: u16,
    method: &'static str,
    verdict: CredentialVerdict,
}
pub struct Reports {
    counts: RefCell<HashMap<Kind, u32>>,
    seen: RefCell<HashSet<Kind>>,
    times: Times,
    tell: Rc<dyn Fn(FromGateway)>,
}

impl Reports {
    pub fn new(times: Times, tell: Rc<dyn Fn(FromGateway)>) -> Rc<Self> {
        Rc::new(Self {
            counts: RefCell::default(),
            seen: RefCell::default(),
            times,
            tell,
        })
    }
    pub fn count(
        self: &Rc<Self>,
        credential: u16,
        (host, port): (&str, u16),
        method: &str,
        verdict: CredentialVerdict,
    ) {
        let method = METHODS
            .into_iter()
            .find(|known| *known == method)
            .unwrap_or("OTHER");
        let kind = Kind {
            credential,
            host: host.into(),
            port,
            method,
            verdict,
        };
        if self.seen.borrow_mut().insert(kind.clone()) {
            return self.send(kind, 1);
        }
        let mut counts = self.counts.borrow_mut();
        if counts.is_empty() {
            let reports = self.clone();
            spawn_local(async move {
                sleep(reports.times.report).await;
                reports.flush();
            });
        }
        let count = counts.entry(kind).or_default();
        *count = count.saturating_add(1);
    }

    /// Reports all that was counted.
    pub fn flush(&self) {
        for (kind, count) in self.counts.take() {
            self.send(kind, count);
        }
    }

    fn send(&self, kind: Kind, count: u32) {
        (self.tell)(FromGateway::Used(CredentialReport {
            credential: kind.credential,
            host: kind.host,
            port: kind.port,
            method: kind.method.into(),
            verdict: kind.verdict,
            count,
        }));
    }
}
