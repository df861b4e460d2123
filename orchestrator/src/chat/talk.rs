//! A conversation that goes on, and one run in it.

use broker_protocol::{Failed, Trust};
use orchestrator_agent::agent::{Agent, Order};
use orchestrator_agent::control::Control;
use orchestrator_agent::conversation::Conversation;
use orchestrator_agent::publish::EVENTS;
use orchestrator_agent::run::End;
use orchestrator_agent::transcript::Transcript;
use orchestrator_terminal::chat_follow::{Answers, Front, follow, obey};
use orchestrator_terminal::print;
use orchestrator_terminal::signals::Signals;
use std::collections::BTreeSet;
use std::rc::Rc;
use tokio::sync::mpsc;

/// A conversation that goes on.
pub struct Talk {
    pub agent: Agent,
    pub transcript: Option<Rc<Transcript>>,
    pub conversation: Conversation,
    pub id: String,
    /// How many messages the user has sent.
    pub messages: u32,
    pub trust: Trust,
    /// The sessions that this chat has had, as far as a command of the user's asked.
    pub sessions: BTreeSet<String>,
    /// Changes that the user has undone, and those that undid them.
    pub undone: BTreeSet<u64>,
}

impl Talk {
    /// One run, from what the user says to its end; the signal that ended it, if one did.
    pub async fn run(
        &mut self,
        text: String,
        front: &mut Front,
        answers: Answers<'_>,
        signals: &mut Signals,
    ) -> Result<(End, Option<i32>), Failed> {
        self.messages += 1;
        let message = format!("{}-{}", self.id, self.messages);
        let order = Order { conversation: self.id.as_str().into(), message: message.into(), text };
        let control = Control::default();
        let (sender, events) = mpsc::channel(EVENTS);
        let work = async {
            tokio::join!(
                self.agent.run(order, &mut self.conversation, &control, sender),
                follow(events, &control, front, answers)
            )
        };
        tokio::pin!(work);
        let (signal, (end, followed)) = tokio::select! {
            done = &mut work => (None, done),
            number = obey(signals, &control) => (Some(number), work.await),
        };
        if let Some(error) = self.transcript.as_ref().and_then(|transcript| transcript.take_error()) {
            print::problem(&format!("the transcript is not complete: {error}"));
        }
        followed.map(|()| (end, signal))
    }
}
