//! Connections that were refused to cells of `lazaret run`, for the person who ran it: a program may hide what the gateway answered.

use broker_protocol::{ConnectionVerdict, limit};
use orchestrator_engine::{Body, Event, Subscriber, explain, gateway_advice};
use orchestrator_launch::stdio::print;
use policies::{WebPolicy, network};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Maximum number of reasons to print; of further ones, only that they exist.
const SHOWN: usize = 8;

/// Collects the reasons of refused connections, without duplicates.
#[derive(Default)]
pub(crate) struct RefusedConnections {
    reasons: RefCell<BTreeSet<String>>,
    /// Hosts that are on no list and could be granted, as `NAME:PORT`.
    leasable: RefCell<BTreeSet<String>>,
}

impl Subscriber for RefusedConnections {
    fn hear(&self, event: &Event) {
        let Body::Connection(report) = &*event.body else {
            return;
        };
        let mut reasons = self.reasons.borrow_mut();
        if let (true, Some(why)) = (is_shown(report.verdict), explain(report))
            && reasons.len() <= SHOWN
        {
            let advice = gateway_advice(report.verdict);
            reasons.insert(advice.map_or(why.clone(), |advice| format!("{why}; {advice}")));
        }
        let host = format!("{}:{}", report.host, report.port);
        let mut leasable = self.leasable.borrow_mut();
        if report.verdict == ConnectionVerdict::NotListed
            && leasable.len() < limit::WANTS
            && network::leased(WebPolicy::default(), &host).is_ok()
        {
            leasable.insert(host);
        }
    }
}

/// Whether the user could open it, or has to know of it.
fn is_shown(verdict: ConnectionVerdict) -> bool {
    match verdict {
        ConnectionVerdict::NotListed
        | ConnectionVerdict::NotPublic
        | ConnectionVerdict::RequestRefused
        | ConnectionVerdict::NoValue
        | ConnectionVerdict::NotTrusted
        | ConnectionVerdict::ProxyRefused
        | ConnectionVerdict::TlsRefused => true,
        ConnectionVerdict::Allowed
        | ConnectionVerdict::Unreachable
        | ConnectionVerdict::Malformed
        | ConnectionVerdict::Published
        | ConnectionVerdict::Stranger => false,
    }
}

impl RefusedConnections {
    /// The hosts that the user could grant.
    pub(crate) fn leasable(&self) -> Vec<String> {
        self.leasable.borrow().iter().cloned().collect()
    }

    /// Clears the list, since the command runs again.
    pub(crate) fn forget(&self) {
        self.reasons.borrow_mut().clear();
        self.leasable.borrow_mut().clear();
    }

    /// Prints the reasons after the command has ended.
    pub(crate) fn report(&self) {
        let reasons = self.reasons.borrow();
        for why in reasons.iter().take(SHOWN) {
            print::problem(&format!("refused: {why}"));
        }
        if reasons.len() > SHOWN {
            print::problem(&format!(
                "refused: more than these {SHOWN} kinds; `lazaret log list` names this run, and `lazaret log show RUN --kind connection` \
                 lists each with its reason"
            ));
        }
    }
}
