//! What cells of `lazaret run` could not reach, for the person who ran it: a program may hide what the relay has told it.

use broker_protocol::ConnectionVerdict;
use orchestrator_session::{Body, Event, Subscriber};
use orchestrator_terminal::print;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Reasons that are printed; of more, only that there were some.
const SHOWN: usize = 8;

/// Collects the reasons of refused connections, each once.
#[derive(Default)]
pub struct RefusedHosts(RefCell<BTreeSet<String>>);

impl Subscriber for RefusedHosts {
    fn hear(&self, event: &Event) {
        let Body::Connection(decision) = &*event.body else { return };
        let mut reasons = self.0.borrow_mut();
        if let (true, Some(why)) = (is_shown(decision.verdict), &decision.why)
            && reasons.len() <= SHOWN
        {
            reasons.insert(why.clone());
        }
    }
}

/// Whether somebody could open it, or has to know of it.
fn is_shown(verdict: ConnectionVerdict) -> bool {
    match verdict {
        ConnectionVerdict::NotListed | ConnectionVerdict::NotPublic => true,
        ConnectionVerdict::Allowed | ConnectionVerdict::Unreachable | ConnectionVerdict::Malformed => false,
    }
}

impl RefusedHosts {
    /// Prints them.
    pub fn report(&self) {
        let reasons = self.0.borrow();
        for why in reasons.iter().take(SHOWN) {
            print::problem(&format!("refused: {why}"));
        }
        if reasons.len() > SHOWN {
            print::problem("refused: more hosts; `lazaret log` has all of them");
        }
    }
}
