//! The questions of a call, as lines.

use super::application::Application;
use super::waiting::Waiting;
use super::writer::Writer;
use crate::adapters::cli::event::ApprovalEvent;
use crate::ports::{Approval, Approver, Question};
use serde_json::Value;
use std::future::pending;

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
    pub questions: &'a Waiting<Approval>,
    /// From whom: when it says nothing any more, no answer can come.
    pub application: &'a Application,
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
        let open = self.questions.open(asked.part.map(|part| part.index));
        if !self.say(asked).await {
            // A writer that is closed ends the session.
            pending::<()>().await;
        }
        tokio::select! {
            biased;
            answer = open.wait() => answer,
            () = self.application.gone() => Approval::No,
        }
    }

    async fn elsewhere(&self, asked: &Question<'_>) {
        self.say(asked).await;
    }
}
