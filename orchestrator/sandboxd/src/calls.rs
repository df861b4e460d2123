//! The calls of all clients in the one session: how many there may be, and what their ends mean.

use crate::fault::{FaultKind, SandboxFault};
use broker_protocol::{Channel, limit};
use orchestrator_engine::{
    ApprovalAnswer, Body, Call, CallContext, CallHandle, CallResult, FoundIn, Invocation,
    LiveOutput, Session,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

pub(crate) struct SandboxCalls {
    session: Session,
    asker: Arc<str>,
    places: Arc<Semaphore>,
    ending: Cell<bool>,
    under_way: RefCell<HashMap<u64, CallHandle>>,
}

/// A call in progress. Dropping it cancels it.
pub(crate) struct SandboxCall {
    call: Call,
    calls: Rc<SandboxCalls>,
    _place: OwnedSemaphorePermit,
}

/// An event of a call that concerns its client.
pub(crate) enum CallEvent {
    /// The executor has its request: signals reach it from now on.
    RequestSent,
    Output {
        stderr: bool,
        bytes: Vec<u8>,
    },
    Ended(Arc<CallResult>),
}

impl SandboxCalls {
    pub(crate) fn new(session: Session) -> Rc<Self> {
        Rc::new(Self {
            session,
            asker: "sandboxd".into(),
            places: Arc::new(Semaphore::new(limit::CALLS)),
            ending: Cell::new(false),
            under_way: RefCell::default(),
        })
    }

    /// Makes a call, when there is a place for it. Without live output its result keeps unsafe characters.
    ///
    /// # Errors
    /// No more calls are made.
    pub(crate) async fn make(
        self: &Rc<Self>,
        invocation: Invocation,
        live: LiveOutput,
        deadline: Option<Instant>,
    ) -> Result<SandboxCall, SandboxFault> {
        self.check_violations()?;
        let place = self.places.clone().acquire_owned().await;
        let place = place.map_err(|_| ending())?;
        // It may have waited for long.
        self.check_violations()?;
        let found = match live {
            LiveOutput::Off => FoundIn::LaterResult,
            LiveOutput::Sanitized | LiveOutput::Bytes => FoundIn::Metadata,
        };
        let context = CallContext {
            live,
            raw: true,
            found,
            deadline: deadline.map(Instant::into_std),
            ..CallContext::new(self.asker.clone())
        };
        let call = self.session.call(context, invocation);
        let handle = call.handle.clone();
        self.under_way.borrow_mut().insert(handle.number(), handle);
        Ok(SandboxCall {
            call,
            calls: self.clone(),
            _place: place,
        })
    }

    /// Makes a call whose output nobody follows, and returns its result, also of one that failed.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub(crate) async fn result(
        self: &Rc<Self>,
        invocation: Invocation,
    ) -> Result<Arc<CallResult>, SandboxFault> {
        let mut call = self.make(invocation, LiveOutput::Off, None).await?;
        loop {
            if let CallEvent::Ended(result) = call.next().await? {
                return Ok(result);
            }
        }
    }

    /// # Errors
    /// No calls are made any more.
    pub(crate) fn check_violations(&self) -> Result<(), SandboxFault> {
        match self.ending.get() || self.session.is_over() {
            true => Err(ending()),
            false => Ok(()),
        }
    }

    /// From now on no call is made; those under way go on.
    pub(crate) fn refuse(&self) {
        self.ending.set(true);
    }

    /// Ends the calls under way: their processes get SIGTERM and two seconds.
    pub(crate) fn cancel(&self) {
        let under_way = self.under_way.borrow();
        under_way.values().for_each(CallHandle::cancel);
    }

    /// Ends the session: the executor records that before this returns.
    pub(crate) async fn close(&self) {
        self.session.close().await;
    }

    /// How many calls are under way.
    pub(crate) fn count(&self) -> usize {
        self.under_way.borrow().len()
    }
}

impl SandboxCall {
    pub(crate) fn handle(&self) -> &CallHandle {
        &self.call.handle
    }

    /// The next event; after [`CallEvent::Ended`] there is none. Nobody here can answer a question, so each is a no, unless it is
    /// put to `lazaret approve`. Cancel-safe.
    ///
    /// # Errors
    /// The session has ended.
    pub(crate) async fn next(&mut self) -> Result<CallEvent, SandboxFault> {
        loop {
            let event = self.call.next().await.ok_or_else(ending)?;
            match &*event.body {
                Body::Output { stderr, bytes } => {
                    let (stderr, bytes) = (*stderr, bytes.clone());
                    return Ok(CallEvent::Output { stderr, bytes });
                }
                Body::RequestSent { .. } => return Ok(CallEvent::RequestSent),
                Body::Result(result) => return Ok(CallEvent::Ended(result.clone())),
                Body::ApprovalWanted(question)
                    if question.challenge.channel == Channel::Separate => {}
                Body::ApprovalWanted(_) => {
                    let handle = self.call.handle.clone();
                    // An answer that comes too late changes nothing.
                    tokio::task::spawn_local(async move {
                        handle.approve(None, ApprovalAnswer::No).await;
                    });
                }
                Body::SessionOpened(_)
                | Body::ToolRegistered { .. }
                | Body::ToolUnregistered { .. }
                | Body::Requested { .. }
                | Body::Suspended
                | Body::ApprovalGiven { .. }
                | Body::Violation(_)
                | Body::Hook(_)
                | Body::Connection(_) => {}
            }
        }
    }
}

impl Drop for SandboxCall {
    fn drop(&mut self) {
        let number = self.call.handle.number();
        self.calls.under_way.borrow_mut().remove(&number);
    }
}

/// No calls are made any more.
fn ending() -> SandboxFault {
    SandboxFault::new(FaultKind::Unavailable, "the sandbox is shutting down")
}
