//! The question of a call, as a line, and the line that answers it.

use super::writer::Writer;
use crate::adapters::cli::event::ApprovalEvent;
use crate::ports::{Approval, Approver};
use broker_protocol::{Challenge, GrantFault};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::future::pending;
use tokio::sync::Notify;

/// Where an answer is left for the call that waits for it.
#[derive(Default)]
pub struct Slot {
    waits: Cell<bool>,
    answer: RefCell<Option<Approval>>,
    answered: Notify,
}

impl Slot {
    /// Leaves an answer; false when nobody waits for one.
    pub fn answer(&self, approval: Approval) -> bool {
        if !self.waits.replace(false) {
            return false;
        }
        self.answer.replace(Some(approval));
        self.answered.notify_one();
        true
    }

    async fn wait(&self) -> Approval {
        loop {
            if let Some(approval) = self.answer.take() {
                return approval;
            }
            self.answered.notified().await;
        }
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
    /// Where the answer comes.
    pub slot: &'a Slot,
}

impl ByLine<'_> {
    async fn say(&self, challenge: &Challenge, not_taken: Option<GrantFault>) -> bool {
        let event = ApprovalEvent::new(self.id, challenge, self.tool, self.input.as_ref(), not_taken);
        self.writer.line(&event).await.is_ok()
    }
}

impl Approver for ByLine<'_> {
    async fn approve(&self, challenge: &Challenge, not_taken: Option<GrantFault>) -> Approval {
        self.slot.waits.set(true);
        if !self.say(challenge, not_taken).await {
            // A writer that is closed ends the session.
            pending::<()>().await;
        }
        self.slot.wait().await
    }

    async fn elsewhere(&self, challenge: &Challenge) {
        self.say(challenge, None).await;
    }
}
