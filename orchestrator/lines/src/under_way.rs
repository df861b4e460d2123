//! A call of the client that has no result yet, and what it needs from the client.

use broker_protocol::Failed;
use orchestrator_engine::CallHandle;
use orchestrator_engine::execution::OutsideReply;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Receives the client's answer to an `execute`.
type ReplyTo = oneshot::Sender<Result<OutsideReply, Failed>>;

/// The standard input of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallInput {
    /// The call was started without `stdin`.
    None,
    Open,
    Ended,
}

/// A call without a result yet. What it waits for is keyed by the place of its call in a batch.
pub(crate) struct UnderWay {
    pub handle: CallHandle,
    input: Cell<CallInput>,
    /// Bounds how many lines wait for the executor.
    permit: RefCell<Option<OwnedSemaphorePermit>>,
    /// The questions that the client may answer.
    questions: RefCell<BTreeSet<Option<usize>>>,
    executing: RefCell<BTreeMap<Option<usize>, ReplyTo>>,
    is_batch: Cell<bool>,
}

impl UnderWay {
    pub(crate) fn new(handle: CallHandle, input: CallInput, permit: OwnedSemaphorePermit) -> Self {
        Self {
            handle,
            input: Cell::new(input),
            permit: RefCell::new(Some(permit)),
            questions: RefCell::default(),
            executing: RefCell::default(),
            is_batch: Cell::new(false),
        }
    }

    /// The executor has the call.
    pub(crate) fn drop_permit(&self) {
        self.permit.take();
    }

    pub(crate) fn input(&self) -> CallInput {
        self.input.get()
    }

    pub(crate) fn end_input(&self) {
        self.input.set(CallInput::Ended);
        self.handle.end_input();
    }

    /// An event of one of its calls has arrived.
    pub(crate) fn set_batch(&self) {
        self.is_batch.set(true);
    }

    /// Whether it has calls of its own, as far as their events tell.
    pub(crate) fn is_batch(&self) -> bool {
        self.is_batch.get()
    }

    pub(crate) fn asked(&self, part: Option<usize>) {
        self.questions.borrow_mut().insert(part);
    }

    pub(crate) fn answered(&self, part: Option<usize>) {
        self.questions.borrow_mut().remove(&part);
    }

    pub(crate) fn open_questions(&self) -> Vec<Option<usize>> {
        self.questions.borrow().iter().copied().collect()
    }

    /// Registers that the client has to carry out the call at `part`.
    pub(crate) fn executing(&self, part: Option<usize>, reply: ReplyTo) {
        self.executing.borrow_mut().insert(part, reply);
    }

    /// Delivers the client's answer to the call at `part`, or to the only one that waits; false if none waits for it.
    pub(crate) fn executed(
        &self,
        part: Option<usize>,
        result: Result<OutsideReply, Failed>,
    ) -> bool {
        let mut executing = self.executing.borrow_mut();
        executing.retain(|_, reply| !reply.is_closed());
        let mut meant = executing
            .keys()
            .filter(|of| part.is_none() || **of == part)
            .copied();
        let (Some(meant), None) = (meant.next(), meant.next()) else {
            return false;
        };
        executing
            .remove(&meant)
            .is_some_and(|reply| reply.send(result).is_ok())
    }

    /// Fails pending executions, which the client can no longer answer.
    pub(crate) fn fail_executions(&self, failed: &Failed) {
        for (_, reply) in self.executing.take() {
            // The call may have been cancelled meanwhile.
            let _ = reply.send(Err(failed.clone()));
        }
    }
}
