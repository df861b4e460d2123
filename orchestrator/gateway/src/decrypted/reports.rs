//! Uses of credentials, for the broker's audit, and refusals, for the people who run the command: the first of each kind at once,
//! further ones counted.

use super::limits::Times;
use broker_protocol::gateway::{CredentialReport, CredentialVerdict, FromGateway};
use broker_protocol::{CallId, ConnectionReport, ConnectionVerdict};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::sleep;

/// Methods that are named in a report. Others are a program's own words, and would be as many as it likes.
const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE",
];
/// Most different refusals that are told with their reasons, since a program chooses what it asks for. Further ones are counted by
/// host and verdict.
const REFUSALS_MAX: usize = 64;
/// Maximum kinds of uses that are counted; after that, all begin anew.
const USES_MAX: usize = 256;

/// A request that was refused, or an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RefusedRequest {
    /// The call of a program, whose result gives the reason, where the refusal is of its own.
    call: Option<CallId>,
    host: String,
    port: u16,
    verdict: ConnectionVerdict,
    why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UseKind {
    call: Option<CallId>,
    credential: u16,
    host: String,
    port: u16,
    method: &'static str,
    verdict: CredentialVerdict,
}

/// Every kind that was reported, with how often it has come since.
struct Tally<K>(RefCell<HashMap<K, u32>>);

impl<K: Clone + Eq + Hash> Tally<K> {
    fn new() -> Self {
        Self(RefCell::default())
    }

    /// Whether nothing of this kind was reported before; otherwise it is counted.
    fn is_first(&self, kind: &K) -> bool {
        let mut counts = self.0.borrow_mut();
        match counts.get_mut(kind) {
            Some(count) => {
                *count = count.saturating_add(1);
                false
            }
            None => {
                counts.insert(kind.clone(), 0);
                true
            }
        }
    }

    /// Whether there are so many other kinds that this one has no room.
    fn is_full_for(&self, kind: &K, most: usize) -> bool {
        let counts = self.0.borrow();
        counts.len() >= most && !counts.contains_key(kind)
    }

    fn any(&self, is_wanted: impl Fn(&K) -> bool) -> bool {
        self.0.borrow().keys().any(is_wanted)
    }

    /// Forgets kinds, what was counted of them too.
    fn retain(&self, is_kept: impl Fn(&K) -> bool) {
        self.0.borrow_mut().retain(|kind, _| is_kept(kind));
    }

    /// Takes what was counted since.
    fn take(&self) -> Vec<(K, u32)> {
        let mut counts = self.0.borrow_mut();
        let counted = counts.iter_mut().filter(|(_, count)| **count > 0);
        let take = |(kind, count): (&K, &mut u32)| (kind.clone(), std::mem::take(count));
        counted.map(take).collect()
    }
}

pub(crate) struct UseReports {
    uses: Tally<UseKind>,
    refused: Tally<RefusedRequest>,
    /// Whether what is counted will be reported.
    is_pending: Cell<bool>,
    /// How many reports of uses were sent, of which the last that was the first of its kind, and how many are in the audit.
    sent: Cell<u64>,
    first: Cell<u64>,
    recorded: watch::Sender<u64>,
    times: Times,
    pub(crate) tell: Rc<dyn Fn(FromGateway)>,
}

impl UseReports {
    pub(crate) fn new(times: Times, tell: Rc<dyn Fn(FromGateway)>) -> Rc<Self> {
        Rc::new(Self {
            uses: Tally::new(),
            refused: Tally::new(),
            is_pending: Cell::new(false),
            sent: Cell::new(0),
            first: Cell::new(0),
            recorded: watch::Sender::new(0),
            times,
            tell,
        })
    }

    pub(super) fn count(
        self: &Rc<Self>,
        call: Option<CallId>,
        credential: u16,
        (host, port): (&str, u16),
        method: &str,
        verdict: CredentialVerdict,
    ) {
        let method = METHODS
            .into_iter()
            .find(|known| *known == method)
            .unwrap_or("OTHER");
        let kind = UseKind {
            call,
            credential,
            host: host.into(),
            port,
            method,
            verdict,
        };
        if self.uses.is_full_for(&kind, USES_MAX) {
            self.flush();
            self.uses.retain(|_| false);
        }
        if self.uses.is_first(&kind) {
            self.send(kind, 1);
            return self.first.set(self.sent.get());
        }
        self.report_later();
    }

    /// Waits until the first use of each kind so far is in the audit.
    pub(super) async fn firsts_recorded(&self) {
        let (first, mut recorded) = (self.first.get(), self.recorded.subscribe());
        // The sender is ours, so this does not fail.
        let _ = recorded.wait_for(|recorded| *recorded >= first).await;
    }

    /// One more report of uses is in the audit.
    pub(super) fn recorded(&self) {
        self.recorded.send_modify(|recorded| *recorded += 1);
    }

    /// Reports a refusal to the people who run the command, the first of each kind of each call at once. `why` names what would allow it.
    pub(crate) fn refuse(
        self: &Rc<Self>,
        call: Option<CallId>,
        (host, port): (&str, u16),
        verdict: ConnectionVerdict,
        why: &str,
    ) {
        let mut refused = RefusedRequest {
            call,
            host: host.to_owned(),
            port,
            verdict,
            why: why.to_owned(),
        };
        let is_of_another = |kind: &RefusedRequest| kind.call != call;
        if self.refused.is_full_for(&refused, REFUSALS_MAX) && self.refused.any(is_of_another) {
            // Calls that have ended must not take the room of this one.
            self.flush();
            self.refused.retain(|kind| !is_of_another(kind));
        }
        if self.refused.is_full_for(&refused, REFUSALS_MAX) {
            refused.why = "further requests were refused".to_owned();
        }
        if self.refused.is_first(&refused) {
            return self.send_refused(refused, 1);
        }
        self.report_later();
    }

    fn report_later(self: &Rc<Self>) {
        if self.is_pending.replace(true) {
            return;
        }
        let reports = self.clone();
        spawn_local(async move {
            sleep(reports.times.report).await;
            reports.flush();
        });
    }

    /// Reports all that was counted.
    pub(crate) fn flush(&self) {
        self.is_pending.set(false);
        for (kind, count) in self.uses.take() {
            self.send(kind, count);
        }
        for (refused, count) in self.refused.take() {
            self.send_refused(refused, count);
        }
    }

    fn send_refused(&self, refused: RefusedRequest, count: u32) {
        let report = ConnectionReport {
            host: refused.host,
            port: refused.port,
            verdict: refused.verdict,
            count,
            call: refused.call,
            why: Some(refused.why),
            private: None,
        };
        (self.tell)(FromGateway::Connected(report.cut()));
    }

    fn send(&self, kind: UseKind, count: u32) {
        self.sent.set(self.sent.get() + 1);
        (self.tell)(FromGateway::Used(CredentialReport {
            credential: kind.credential,
            host: kind.host,
            port: kind.port,
            method: kind.method.into(),
            verdict: kind.verdict,
            count,
            call: kind.call,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;
    use tokio::task::LocalSet;

    #[test]
    fn endless_refusals_are_a_limited_record() {
        let place = ("a.example", 443);
        let (reports, told) = recorded(|reports| {
            for number in 0..1000 {
                let why = format!("path {number}");
                reports.refuse(None, place, ConnectionVerdict::RequestRefused, &why);
                reports.refuse(None, place, ConnectionVerdict::RequestRefused, "the same");
            }
        });
        assert_eq!(told.borrow().len(), REFUSALS_MAX + 1);
        reports.flush();
        let told = told.borrow();
        assert_eq!(told.len(), REFUSALS_MAX + 3);
        let count: u32 = told.iter().map(|report| report.count).sum();
        assert_eq!(count, 2000, "none is lost");
    }

    #[test]
    fn first_refusal_of_each_call_is_reported_at_once() {
        let calls = 3 * REFUSALS_MAX;
        let (reports, told) = recorded(|reports| {
            for call in 0..calls {
                let refuse = || {
                    let call = CallId::try_from(call).ok();
                    let (verdict, why) = (ConnectionVerdict::RequestRefused, "the same");
                    reports.refuse(call, ("", 0), verdict, why);
                };
                refuse();
                refuse();
            }
        });
        assert!(told.borrow().len() >= calls, "{}", told.borrow().len());
        reports.flush();
        let count: u32 = told.borrow().iter().map(|report| report.count).sum();
        assert_eq!(count as usize, 2 * calls, "none is lost");
    }

    type Reported = Rc<RefCell<Vec<ConnectionReport>>>;

    /// Reports of some refusals, before the rest is flushed.
    fn recorded(refuse: impl Fn(&Rc<UseReports>)) -> (Rc<UseReports>, Reported) {
        let told = Reported::default();
        let heard = told.clone();
        let tell = move |frame| {
            if let FromGateway::Connected(report) = frame {
                heard.borrow_mut().push(report);
            }
        };
        let reports = UseReports::new(Times::default(), Rc::new(tell));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async { refuse(&reports) });
        (reports, told)
    }
}
