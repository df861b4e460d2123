//! A tool call in progress, or one call of a batch, as the code that makes its requests sees it.

use crate::command::{StdinChunk, Steer};
use crate::context::{BatchPlace, CallContext};
use crate::engine::Engine;
use crate::event::Event;
use crate::executor::RequestControl;
use crate::hooks::{HookEvent, HookedCall, Occasion};
use crate::pending::{ApprovalAnswer, PendingReplies};
use crate::publish::{FrontEndGone, Publisher, RawEvent};
use crate::spans;
use broker_protocol::{Challenge, Extent, FileAnswer, GrantFault};
use orchestrator_results::profile::ModelProfile;
use serde_json::Value;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::{Notify, mpsc};
use tracing::Instrument;

/// Who makes a call, and on whose behalf.
pub(crate) struct Caller {
    pub number: u64,
    pub context: CallContext,
    /// The tool's canonical name, or the given name if there is no such tool.
    pub tool: String,
    /// As it was asked for.
    input: Value,
    /// As hooks have changed it.
    rewritten: OnceCell<Value>,
    pub publisher: Publisher,
    pub begun: Instant,
    announced: Cell<bool>,
    steering: Rc<CallSteering>,
    client: Option<mpsc::Sender<Event>>,
    /// The rules by which requests of this call were approved. Once a person approves one request of a call under a rule, all its
    /// requests under that rule are approved; the executor still checks each answer.
    approved_rules: RefCell<Vec<String>>,
}

/// The steering of a call; those of a batch share it.
#[derive(Default)]
pub(crate) struct CallSteering {
    controls: RefCell<Vec<RequestControl>>,
    /// A request has started, or there is more input.
    changed: Notify,
    approvals: PendingReplies<ApprovalAnswer>,
    input: RefCell<VecDeque<StdinEvent>>,
}

enum StdinEvent {
    Chunk(StdinChunk),
    End,
}

impl Caller {
    pub(crate) fn new(
        engine: &Engine,
        number: u64,
        context: CallContext,
        (tool, input): (String, Value),
        client: Option<mpsc::Sender<Event>>,
        steering: Rc<CallSteering>,
    ) -> Self {
        let publisher = Publisher::new(engine.hub.clone(), number, client.clone(), &context);
        let begun = Instant::now();
        let (announced, approved_rules) = (Cell::new(false), RefCell::default());
        Self {
            number,
            context,
            tool,
            input,
            rewritten: OnceCell::new(),
            publisher,
            begun,
            announced,
            steering,
            client,
            approved_rules,
        }
    }

    /// From here on, questions show this input. Hooks are asked once about a call.
    pub(crate) fn rewrite_input(&self, input: Value) {
        let _ = self.rewritten.set(input);
    }

    /// The ID of the call for hooks.
    pub(crate) fn shown_id(&self) -> String {
        match &self.context.client_id {
            Some(Value::String(id)) => id.clone(),
            Some(id) => id.to_string(),
            None => self.number.to_string(),
        }
    }

    /// The occasion that hooks are told of.
    pub(crate) fn occasion(&self, event: HookEvent, call: HookedCall) -> Occasion {
        Occasion {
            event,
            conversation_id: self.context.conversation.as_deref().map(str::to_owned),
            call: Some(call),
        }
    }

    /// How much of the result is shown.
    pub(crate) fn profile(&self, engine: &Engine) -> &'static ModelProfile {
        self.context.profile.unwrap_or(engine.profile)
    }

    /// The caller of one call in this batch.
    pub(crate) fn member(&self, engine: &Engine, index: usize, tool: String, input: Value) -> Self {
        let part = Some(BatchPlace {
            batch: self.number,
            index,
        });
        let context = CallContext {
            part,
            live: crate::context::LiveOutput::Off,
            ..self.context.clone()
        };
        let (client, steering) = (self.client.clone(), self.steering.clone());
        Self::new(
            engine,
            engine.next_number(),
            context,
            (tool, input),
            client,
            steering,
        )
    }

    /// Publishes an event of the call. A call is announced before its first event.
    pub(crate) async fn publish(&self, event: RawEvent<'_>) -> Result<(), FrontEndGone> {
        self.announce().await;
        self.publisher.publish(event).await
    }

    /// Announces the call, unless it was announced before.
    pub(crate) async fn announce(&self) {
        if self.announced.replace(true) {
            return;
        }
        let (client_id, tool, input) = (
            self.context.client_id.as_ref(),
            self.tool.as_str(),
            &self.input,
        );
        // If the front end is gone, the call ends anyway.
        let _ = self
            .publisher
            .publish(RawEvent::Requested {
                client_id,
                tool,
                input,
            })
            .await;
    }

    /// Announces the call, then never completes; for `select!`.
    pub(crate) async fn announce_only(&self) -> Infallible {
        self.announce().await;
        pending().await
    }

    /// Registers a started request. If the call is already cancelled, cancels the request.
    pub(crate) fn started(&self, control: RequestControl) {
        if self.context.cancel.is_cancelled() {
            control.cancel();
        }
        self.steering.controls.borrow_mut().push(control);
        self.steering.changed.notify_waiters();
    }

    /// Answers a question of the executor: as before if the same rule was already approved, else as the client answers.
    pub(crate) async fn answer_question(
        &self,
        challenge: &Challenge,
        rejected: Option<GrantFault>,
        before: Option<&FileAnswer>,
    ) -> ApprovalAnswer {
        let span = spans::approval(challenge);
        let approval = self
            .earlier_or_asked(challenge, rejected, before)
            .instrument(span.clone())
            .await;
        span.record("answer", spans::answer(approval));
        approval
    }

    /// The answer given before to the same rule, or the client's now.
    async fn earlier_or_asked(
        &self,
        challenge: &Challenge,
        rejected: Option<GrantFault>,
        before: Option<&FileAnswer>,
    ) -> ApprovalAnswer {
        let may_repeat =
            challenge.wants.is_empty() && !challenge.covers.is_of_program() && rejected.is_none();
        let is_allowed = may_repeat && self.approved_rules.borrow().contains(&challenge.rule);
        let approval = match is_allowed {
            true => ApprovalAnswer::Yes(Extent::Once),
            false => {
                let reply = self
                    .steering
                    .approvals
                    .open(self.context.part.map(|part| part.index));
                self.publish_question(challenge, rejected, before).await;
                reply.wait().await
            }
        };
        if let ApprovalAnswer::Yes(_) = approval {
            self.approved_rules
                .borrow_mut()
                .push(challenge.rule.clone());
        }
        // If the front end is gone, the call ends anyway.
        let _ = self
            .publish(RawEvent::ApprovalGiven {
                challenge,
                approval,
            })
            .await;
        approval
    }

    /// Publishes a question; `before` is the file that the call would change.
    pub(crate) async fn publish_question(
        &self,
        challenge: &Challenge,
        rejected: Option<GrantFault>,
        before: Option<&FileAnswer>,
    ) {
        let input = self.rewritten.get().unwrap_or(&self.input);
        let tool = self.tool.as_str();
        tracing::debug!(
            rule = challenge.rule,
            channel = challenge.channel.name(),
            "question"
        );
        // If the front end is gone, the call ends anyway.
        let _ = self
            .publish(RawEvent::ApprovalWanted {
                challenge,
                tool,
                input,
                rejected,
                before,
            })
            .await;
    }
}

impl CallSteering {
    /// Carries out steering commands of the front end. Never returns: the end of the call ends it.
    pub(crate) async fn follow(&self, mut words: mpsc::UnboundedReceiver<Steer>) -> Infallible {
        while let Some(word) = words.recv().await {
            match word {
                Steer::Input(chunk) => self.queue(StdinEvent::Chunk(chunk)),
                Steer::EndInput => self.queue(StdinEvent::End),
                Steer::CancelAgain => self.cancel_again(),
                Steer::Signal(signal) => self.main().await.signal(signal),
                Steer::Resize { rows, columns } => self.main().await.resize(rows, columns),
                Steer::Approve {
                    part,
                    approval,
                    accepted,
                } => {
                    // The front end that asked may be gone.
                    let _ = accepted.send(self.approvals.answer(part, approval));
                }
            }
        }
        pending().await
    }

    /// Feeds the main request as fast as it accepts input. Never returns.
    pub(crate) async fn feed(&self) -> Infallible {
        loop {
            let control = self.controls.borrow().first().cloned();
            let next = control
                .as_ref()
                .and_then(|_| self.input.borrow_mut().pop_front());
            match (control, next) {
                (Some(control), Some(StdinEvent::Chunk(chunk))) => control.feed(&chunk.bytes).await,
                (Some(control), Some(StdinEvent::End)) => control.end_input(),
                _ => self.changed.notified().await,
            }
        }
    }

    /// Cancels the requests in progress; those that start later see the cancellation themselves.
    pub(crate) fn cancel(&self) {
        self.controls
            .borrow()
            .iter()
            .for_each(RequestControl::cancel);
    }

    /// The same without time for commands to end by themselves, if they were cancelled before.
    pub(crate) fn cancel_again(&self) {
        self.controls
            .borrow()
            .iter()
            .for_each(RequestControl::cancel_again);
    }

    fn queue(&self, input: StdinEvent) {
        self.input.borrow_mut().push_back(input);
        self.changed.notify_waiters();
    }

    /// The main request, once it has started. Until then, nothing is read from the front end.
    async fn main(&self) -> RequestControl {
        loop {
            let control = self.controls.borrow().first().cloned();
            match control {
                Some(control) => return control,
                None => self.changed.notified().await,
            }
        }
    }
}
