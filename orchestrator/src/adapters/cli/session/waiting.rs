//! What a call waits for from its client: the answers to its questions, or what the application's own tools came to.

use std::cell::RefCell;
use std::collections::BTreeMap;
use tokio::sync::Notify;

/// What of one call waits for an answer: one thing, or in a batch one for each call in it.
pub struct Waiting<A> {
    /// By the place in the batch; with the answer, once there is one.
    open: RefCell<BTreeMap<Option<u64>, Option<A>>>,
    answered: Notify,
}

impl<A> Default for Waiting<A> {
    fn default() -> Self {
        Self { open: RefCell::default(), answered: Notify::new() }
    }
}

impl<A> Waiting<A> {
    /// Leaves an answer for who waits as `part`, or for the only one; false when nobody waits for it.
    pub fn answer(&self, part: Option<u64>, given: A) -> bool {
        let mut open = self.open.borrow_mut();
        let mut meant =
            open.iter_mut().filter(|(of, answer)| answer.is_none() && (part.is_none() || **of == part));
        let (Some((_, answer)), None) = (meant.next(), meant.next()) else { return false };
        *answer = Some(given);
        self.answered.notify_waiters();
        true
    }

    /// Begins to wait. It ends when what is returned goes.
    pub fn open(&self, part: Option<usize>) -> Open<'_, A> {
        let part = part.map(|part| part as u64);
        self.open.borrow_mut().insert(part, None);
        Open { waiting: self, part }
    }
}

/// Somebody who waits. An answer that comes when this is gone is none, for it or for another.
pub struct Open<'a, A> {
    waiting: &'a Waiting<A>,
    part: Option<u64>,
}

impl<A> Open<'_, A> {
    /// The answer.
    pub async fn wait(self) -> A {
        loop {
            let given = self.waiting.open.borrow_mut().get_mut(&self.part).and_then(Option::take);
            if let Some(given) = given {
                return given;
            }
            self.waiting.answered.notified().await;
        }
    }
}

impl<A> Drop for Open<'_, A> {
    fn drop(&mut self) {
        self.waiting.open.borrow_mut().remove(&self.part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_for_who_it_names_or_the_only_one() {
        let waiting = Waiting::default();
        assert!(!waiting.answer(None, 'a'));
        let first = waiting.open(Some(0));
        let second = waiting.open(Some(1));
        // It could be for either.
        assert!(!waiting.answer(None, 'a') && !waiting.answer(Some(2), 'a'));
        assert!(waiting.answer(Some(1), 'b'));
        assert!(!waiting.answer(Some(1), 'c'), "it has its answer");
        assert!(waiting.answer(None, 'd'), "only one waits");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(async { (first.wait().await, second.wait().await) }), ('d', 'b'));
        // A late one is for nobody, also not for who waits next.
        assert!(!waiting.answer(Some(0), 'e'));
        let next = waiting.open(Some(0));
        assert_eq!(waiting.open.borrow()[&next.part], None);
    }
}
