//! Counts what programs are refused: the first of a kind is reported at once, repeated ones each time that their number has doubled. So a
//! program in a loop fills neither the audit nor what waits for the broker.

use broker_protocol::CallId;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Most kinds that are counted; those of other calls are forgotten before.
const KINDS_MAX: usize = 256;

/// A refusal of a call: the host and port, if there is one, and why.
type RefusalKind = (CallId, String, u16, String);

#[derive(Debug, Default)]
pub(super) struct AgentRefusals(RefCell<BTreeMap<RefusalKind, u32>>);

impl AgentRefusals {
    /// Counts one; returns how many of its kind to report now.
    pub(super) fn count(&self, kind: RefusalKind) -> Option<u32> {
        let mut counts = self.0.borrow_mut();
        if counts.len() >= KINDS_MAX {
            counts.retain(|(call, ..), _| *call == kind.0);
        }
        if counts.len() >= KINDS_MAX {
            return None;
        }
        let count = counts.entry(kind).or_default();
        *count = count.saturating_add(1);
        count.is_power_of_two().then(|| (*count / 2).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_refusals_are_reported_as_numbers() {
        let refusals = AgentRefusals::default();
        let kind = |call, why: u32| (call, String::new(), 0, why.to_string());
        let reported = |_| refusals.count(kind(1, 0));
        let reported: Vec<u32> = (0..1000).filter_map(reported).collect();
        assert_eq!(reported, [1, 1, 2, 4, 8, 16, 32, 64, 128, 256]);
        // Another call's are its own.
        assert_eq!(refusals.count(kind(2, 0)), Some(1));
        let more = (0..1000).filter_map(|why| refusals.count(kind(3, why)));
        assert_eq!(more.count(), KINDS_MAX);
        assert_eq!(refusals.0.borrow().len(), KINDS_MAX);
    }
}
