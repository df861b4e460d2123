//! Pending replies that a call waits for, each by its call's place in a batch.

use broker_protocol::Extent;
use std::cell::RefCell;
use std::collections::BTreeMap;
use tokio::sync::Notify;

/// An answer to an approval question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalAnswer {
    Yes(Extent),
    /// The call may not run.
    No,
}

/// The replies that one call, or the calls of one batch, wait for.
pub(crate) struct PendingReplies<A> {
    /// By the place in the batch; holds the answer once there is one.
    waiting: RefCell<BTreeMap<Option<usize>, Option<A>>>,
    answered: Notify,
}

impl<A> Default for PendingReplies<A> {
    fn default() -> Self {
        Self {
            waiting: RefCell::default(),
            answered: Notify::new(),
        }
    }
}

impl<A> PendingReplies<A> {
    /// Delivers `answer` to the call at `part`, or to the only one that waits; false if none waits for it.
    pub(crate) fn answer(&self, part: Option<usize>, answer: A) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        let mut meant = waiting
            .iter_mut()
            .filter(|(of, answer)| answer.is_none() && (part.is_none() || **of == part));
        let (Some((_, slot)), None) = (meant.next(), meant.next()) else {
            return false;
        };
        *slot = Some(answer);
        self.answered.notify_waiters();
        true
    }

    /// Begins to wait. Dropping the returned value ends it; later answers are rejected.
    pub(crate) fn open(&self, part: Option<usize>) -> PendingReply<'_, A> {
        self.waiting.borrow_mut().insert(part, None);
        PendingReply {
            replies: self,
            part,
        }
    }
}

/// One that is waited for.
pub(crate) struct PendingReply<'a, A> {
    replies: &'a PendingReplies<A>,
    part: Option<usize>,
}

impl<A> PendingReply<'_, A> {
    pub(crate) async fn wait(self) -> A {
        loop {
            let answer = self
                .replies
                .waiting
                .borrow_mut()
                .get_mut(&self.part)
                .and_then(Option::take);
            if let Some(answer) = answer {
                return answer;
            }
            self.replies.answered.notified().await;
        }
    }
}

impl<A> Drop for PendingReply<'_, A> {
    fn drop(&mut self) {
        self.replies.waiting.borrow_mut().remove(&self.part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_to_the_call_that_it_names_or_to_the_only_one() {
        let replies = PendingReplies::default();
        assert!(!replies.answer(None, 'a'));
        let first = replies.open(Some(0));
        let second = replies.open(Some(1));
        // Without a place, the answer could be meant for either.
        assert!(!replies.answer(None, 'a') && !replies.answer(Some(2), 'a'));
        assert!(replies.answer(Some(1), 'b'));
        assert!(!replies.answer(Some(1), 'c'), "it has its answer");
        assert!(replies.answer(None, 'd'), "only one waits");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        assert_eq!(
            runtime.block_on(async { (first.wait().await, second.wait().await) }),
            ('d', 'b')
        );
        // A late answer reaches nobody, not even the next one that waits.
        assert!(!replies.answer(Some(0), 'e'));
        let next = replies.open(Some(0));
        assert_eq!(replies.waiting.borrow()[&next.part], None);
    }
}
