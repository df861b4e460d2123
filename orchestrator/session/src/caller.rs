//! A tool call under way, or one call of a batch, as its requests see it.

use crate::command::{StdinChunk, Steer};
use crate::context::{CallContext, Part};
use crate::engine::Engine;
use crate::event::Event;
use crate::executor::Control;
use crate::pending::{Approval, PendingReplies};
use crate::publish::{Publisher, RawEvent};
use crate::spans;
use broker_protocol::{Challenge, Extent, GrantFault};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::{Notify, mpsc};
use tracing::Instrument;

/// Who asks for a call, and what for.
pub(crate) struct Caller {
    pub number: u64,
    pub context: CallContext,
    /// The tool's canonical name, or what was given where there is no such tool.
    pub tool: String,
    pub input: Value,
    pub publisher: Publisher,
    pub begun: Instant,
    steering: Rc<Steering>,
    client: Option<mpsc::Sender<Event>>,
    /// The rules by which a request of this call was allowed. What a person has allowed of a call by one rule, all of its
    /// requests are allowed by that rule; the executor checks each answer all the same.
    allowed: RefCell<Vec<String>>,
}

/// The steering of a call; those of a batch share it.
#[derive(Default)]
pub(crate) struct Steering {
    /// The requests under way.
    controls: RefCell<Vec<Control>>,
    /// A request has started, or there is more input.
    changed: Notify,
    approvals: PendingReplies<Approval>,
    input: RefCell<VecDeque<Input>>,
}

enum Input {
    Chunk(StdinChunk),
    End,
}

impl Caller {
    pub fn new(
        engine: &Engine,
        number: u64,
        context: CallContext,
        (tool, input): (String, Value),
        client: Option<mpsc::Sender<Event>>,
        steering: Rc<Steering>,
    ) -> Self {
        let publisher = Publisher::new(engine.hub.clone(), number, client.clone(), &context);
        let begun = Instant::now();
        Self { number, context, tool, input, publisher, begun, steering, client, allowed: RefCell::default() }
    }

    /// One call of the batch that this is.
    pub fn member(&self, engine: &Engine, index: usize, tool: String, input: Value) -> Self {
        let part = Some(Part { batch: self.number, index });
        let context = CallContext { part, live: crate::context::Live::Off, ..self.context.clone() };
        let (client, steering) = (self.client.clone(), self.steering.clone());
        Self::new(engine, engine.next_number(), context, (tool, input), client, steering)
    }

    /// A request of the call is under way. What was cancelled before is cancelled here.
    pub fn started(&self, control: Control) {
        if self.context.cancel.is_cancelled() {
            control.cancel();
        }
        self.steering.controls.borrow_mut().push(control);
        self.steering.changed.notify_waiters();
    }

    /// The answer to a question of the executor's: one that was given before to the same rule, or the client's.
    pub async fn approve(&self, challenge: &Challenge, rejected: Option<GrantFault>) -> Approval {
        let span = spans::approval(challenge);
        let approval = self.asked(challenge, rejected).instrument(span.clone()).await;
        span.record("answer", spans::answer(approval));
        approval
    }

    async fn asked(&self, challenge: &Challenge, rejected: Option<GrantFault>) -> Approval {
        let is_again = challenge.wants.is_empty() && rejected.is_none();
        let is_allowed = is_again && self.allowed.borrow().contains(&challenge.rule);
        let approval = match is_allowed {
            true => Approval::Yes(Extent::Once),
            false => {
                let reply = self.steering.approvals.open(self.context.part.map(|part| part.index));
                self.ask(challenge, rejected).await;
                reply.wait().await
            }
        };
        if let Approval::Yes(_) = approval {
            self.allowed.borrow_mut().push(challenge.rule.clone());
        }
        // A front end that is gone ends the call.
        let _ = self.publisher.publish(RawEvent::ApprovalGiven { challenge, approval }).await;
        approval
    }

    /// Publishes a question.
    pub async fn ask(&self, challenge: &Challenge, rejected: Option<GrantFault>) {
        let (tool, input) = (self.tool.as_str(), &self.input);
        tracing::debug!(rule = challenge.rule, channel = challenge.channel.name(), "question");
        // A front end that is gone ends the call.
        let _ = self.publisher.publish(RawEvent::ApprovalWanted { challenge, tool, input, rejected }).await;
    }
}

impl Steering {
    /// Does what comes from the front end. Never returns: it is the call that ends.
    pub async fn follow(&self, mut words: mpsc::UnboundedReceiver<Steer>) -> Infallible {
        while let Some(word) = words.recv().await {
            match word {
                Steer::Input(chunk) => self.queue(Input::Chunk(chunk)),
                Steer::EndInput => self.queue(Input::End),
                Steer::Signal(signal) => self.main().await.signal(signal),
                Steer::Resize { rows, columns } => self.main().await.resize(rows, columns),
                Steer::Approve { part, approval, accepted } => {
                    // Whoever asked may be gone.
                    let _ = accepted.send(self.approvals.answer(part, approval));
                }
            }
        }
        pending().await
    }

    /// Feeds the main request, as fast as it takes its input. Never returns.
    pub async fn feed(&self) -> Infallible {
        loop {
            let control = self.controls.borrow().first().cloned();
            let next = control.as_ref().and_then(|_| self.input.borrow_mut().pop_front());
            match (control, next) {
                (Some(control), Some(Input::Chunk(chunk))) => control.feed(&chunk.bytes).await,
                (Some(control), Some(Input::End)) => control.end_input(),
                _ => self.changed.notified().await,
            }
        }
    }

    /// Cancels the requests under way; those that start later see it for themselves.
    pub fn cancel(&self) {
        self.controls.borrow().iter().for_each(Control::cancel);
    }

    fn queue(&self, input: Input) {
        self.input.borrow_mut().push_back(input);
        self.changed.notify_waiters();
    }

    /// The main request, once it has started. Nothing is asked of a front end before.
    async fn main(&self) -> Control {
        loop {
            let control = self.controls.borrow().first().cloned();
            match control {
                Some(control) => return control,
                None => self.changed.notified().await,
            }
        }
    }
}
