//! Findings in the project that no result has reported yet, of all connections of a session.

use broker_protocol::{Finding, Findings};
use orchestrator_text::escape;
use std::cell::RefCell;
use std::rc::Rc;

/// Findings that one connection has received.
pub(crate) type ConnectionFindings = Rc<RefCell<Findings>>;

/// Collects what was found until a result reports it.
#[derive(Default)]
pub(crate) struct Unreported {
    received: RefCell<Vec<ConnectionFindings>>,
    /// In results that nobody has received: escaped already.
    returned: RefCell<Findings>,
}

impl Unreported {
    /// Also takes what a connection receives, as long as it is used.
    pub(crate) fn listen(&self, received: ConnectionFindings) {
        self.received.borrow_mut().push(received);
    }

    /// All of it, for a result, with texts of one line each.
    pub(crate) fn take(&self) -> Findings {
        let mut all = self.returned.take();
        let mut received = self.received.borrow_mut();
        received
            .iter()
            .for_each(|one| all.append(escaped(one.take())));
        received.retain(|one| Rc::strong_count(one) > 1);
        all
    }

    /// Puts back what nobody has received with a result.
    pub(crate) fn put_back(&self, found: Findings) {
        self.returned.borrow_mut().append(found);
    }
}

fn escaped(mut found: Findings) -> Findings {
    let texts = found.list_mut().iter_mut().flat_map(Finding::texts_mut);
    texts.for_each(|text| *text = escape::one_line(text));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{Finding, FindingKind};

    #[test]
    fn findings_of_lost_connections_and_undelivered_results_stay() {
        let (unreported, received) = (Unreported::default(), ConnectionFindings::default());
        unreported.listen(received.clone());
        let find = |kind| received.borrow_mut().push(Finding::new(kind, "x", "Why."));
        find(FindingKind::Lock);
        let found = unreported.take();
        assert_eq!((found.list().len(), unreported.take().list().len()), (1, 0));
        unreported.put_back(found);
        find(FindingKind::History);
        drop(received);
        assert_eq!(unreported.take().list().len(), 2);
        assert!(unreported.take().is_empty() && unreported.received.borrow().is_empty());
    }
}
