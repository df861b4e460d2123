//! A conversation of several runs, and one run in it.

use broker_protocol::{Failed, Trust};
use orchestrator_agent::agent::{Agent, Order};
use orchestrator_agent::control::RunControl;
use orchestrator_agent::conversation::Conversation;
use orchestrator_agent::publish::EVENTS;
use orchestrator_agent::run::RunEnd;
use orchestrator_agent::transcript::Transcript;
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_terminal::chat_follow::{Answers, Front, follow, obey_signals};
use std::collections::BTreeSet;
use std::rc::Rc;
use tokio::sync::mpsc;

/// A conversation of several runs.
pub(super) struct Talk {
    pub agent: Agent,
    pub transcript: Option<Rc<Transcript>>,
    pub conversation: Conversation,
    pub id: String,
    /// How many messages the user has sent.
    pub messages: u32,
    pub trust: Trust,
    /// The sessions of this chat that the user's commands have learnt of so far.
    pub sessions: BTreeSet<String>,
    /// Changes that the user has undone, and the changes that undid them.
    pub undone: BTreeSet<u64>,
}

impl Talk {
    /// One run, from the user's message to its end; returns the signal that ended it, if any.
    pub(super) async fn run(
        &mut self,
        text: String,
        front: &mut Front,
        answers: Answers<'_>,
        signals: &mut Signals,
    ) -> Result<(RunEnd, Option<i32>), Failed> {
        self.messages += 1;
        let message = format!("{}-{}", self.id, self.messages);
        let order = Order {
            conversation: self.id.as_str().into(),
            message: message.into(),
            text,
        };
        let control = RunControl::default();
        let (sender, events) = mpsc::channel(EVENTS);
        let work = async {
            tokio::join!(
                self.agent
                    .run(order, &mut self.conversation, &control, sender),
                follow(events, &control, front, answers)
            )
        };
        tokio::pin!(work);
        let (signal, (end, followed)) = tokio::select! {
            done = &mut work => (None, done),
            number = obey_signals(signals, &control) => (Some(number), work.await),
        };
        if let Some(error) = self
            .transcript
            .as_ref()
            .and_then(|transcript| transcript.take_error())
        {
            print::problem(&format!("the transcript is not complete: {error}"));
        }
        followed.map(|()| (end, signal))
    }
}
