//! What was found in the project and no result has reported yet, of all connections of a session.

use broker_protocol::Findings;
use std::cell::RefCell;
use std::rc::Rc;

/// What one connection has received.
pub(crate) type Received = Rc<RefCell<Findings>>;

/// Collects what was found until a result reports it.
#[derive(Default)]
pub(crate) struct Unreported(RefCell<Vec<Received>>);

impl Unreported {
    /// Also takes what a connection receives, as long as it is used.
    pub fn listen(&self, received: Received) {
        self.0.borrow_mut().push(received);
    }

    /// All of it, for a result.
    pub fn take(&self) -> Findings {
        let mut all = Findings::default();
        let mut received = self.0.borrow_mut();
        received.iter().for_each(|one| all.append(one.take()));
        received.retain(|one| Rc::strong_count(one) > 1);
        all
    }

    /// Puts back what nobody has received with a result.
    pub fn put_back(&self, found: Findings) {
        if !found.is_empty() {
            self.listen(Rc::new(RefCell::new(found)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{Finding, FindingKind};

    #[test]
    fn findings_of_lost_connections_and_undelivered_results_stay() {
        let (unreported, received) = (Unreported::default(), Received::default());
        unreported.listen(received.clone());
        let find = |kind| received.borrow_mut().push(Finding::new(kind, "x", "Why."));
        find(FindingKind::Lock);
        let found = unreported.take();
        assert_eq!((found.list().len(), unreported.take().list().len()), (1, 0));
        unreported.put_back(found);
        find(FindingKind::History);
        drop(received);
        assert_eq!(unreported.take().list().len(), 2);
        assert!(unreported.take().is_empty() && unreported.0.borrow().is_empty());
    }
}
