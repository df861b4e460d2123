//! The questions of a call, as lines, and the lines that answer them.

use super::writer::Writer;
use crate::adapters::cli::event::ApprovalEvent;
use crate::ports::{Approval, Approver, Question};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::pending;
use tokio::sync::Notify;

/// The questions of a call that are open: one, or in a batch one for each call in it.
#[derive(Default)]
pub struct Questions {
    /// By the place in the batch; with the answer, once there is one.
    open: RefCell<BTreeMap<Option<u64>, Option<Approval>>>,
    answered: Notify,
}

impl Questions {
    /// Leaves an answer for the question about `part`, or for the only one; false when nobody waits for it.
    pub fn answer(&self, part: Option<u64>, approval: Approval) -> bool {
        let mut open = self.open.borrow_mut();
        let mut meant =
            open.iter_mut().filter(|(of, answer)| answer.is_none() && (part.is_none() || **of == part));
        let (Some((_, answer)), None) = (meant.next(), meant.next()) else { return false };
        *answer = Some(approval);
        self.answered.notify_waiters();
        true
    }

    /// Opens a question. It is closed when what is returned goes.
    fn open(&self, part: Option<u64>) -> Open<'_> {
        self.open.borrow_mut().insert(part, None);
        Open { questions: self, part }
    }
}

/// A question that is open. An answer that comes when it is closed is none, for it or for another.
struct Open<'a> {
    questions: &'a Questions,
    part: Option<u64>,
}

impl Open<'_> {
    async fn wait(&self) -> Approval {
        loop {
            if let Some(Some(approval)) = self.questions.open.borrow().get(&self.part) {
                return *approval;
            }
            self.questions.answered.notified().await;
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.questions.open.borrow_mut().remove(&self.part);
    }
}

/// Asks by lines.
pub struct ByLine<'a> {
    /// The call, as the client named it.
    pub id: &'a Value,
    /// The canonical name of its tool.
    pub tool: &'a str,
    /// Its input, where that is not too long to be said twice.
    pub input: Option<Value>,
    /// Where lines go.
    pub writer: &'a Writer,
    /// Where the answers come.
    pub questions: &'a Questions,
}

impl ByLine<'_> {
    async fn say(&self, asked: &Question<'_>) -> bool {
        let (tool, input) = match &asked.part {
            Some(part) => (part.tool, self.input.as_ref().map(|_| part.input)),
            None => (self.tool, self.input.as_ref()),
        };
        self.writer.line(&ApprovalEvent::new(self.id, asked, tool, input)).await.is_ok()
    }
}

impl Approver for ByLine<'_> {
    async fn approve(&self, asked: &Question<'_>) -> Approval {
        let open = self.questions.open(asked.part.map(|part| part.index as u64));
        if !self.say(asked).await {
            // A writer that is closed ends the session.
            pending::<()>().await;
        }
        open.wait().await
    }

    async fn elsewhere(&self, asked: &Question<'_>) {
        self.say(asked).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_for_the_question_that_it_names_or_the_only_one() {
        let questions = Questions::default();
        assert!(!questions.answer(None, Approval::No));
        let first = questions.open(Some(0));
        let second = questions.open(Some(1));
        // It could be for either.
        assert!(!questions.answer(None, Approval::No) && !questions.answer(Some(2), Approval::No));
        assert!(questions.answer(Some(1), Approval::No));
        assert!(!questions.answer(Some(1), Approval::No), "it has its answer");
        assert!(questions.answer(None, Approval::No), "only one waits");
        drop((first, second));
        // A late one is for nobody, also not for who asks next.
        assert!(!questions.answer(Some(0), Approval::No));
        let next = questions.open(Some(0));
        assert_eq!(questions.open.borrow()[&next.part], None);
    }
}
