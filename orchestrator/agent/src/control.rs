//! How a front end steers a run: it cancels, and it answers approval questions of calls by their IDs.

use broker_protocol::Extent;
use orchestrator_session::{Approval, CallHandle};
use std::cell::RefCell;
use std::collections::BTreeMap;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

/// Steers one run.
#[derive(Default)]
pub struct Control {
    cancel: CancellationToken,
    calls: RefCell<BTreeMap<String, CallHandle>>,
}

/// An answer to an approval question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This call may run.
    Once,
    /// This call and those like it may run for the rest of the session.
    Session,
    /// The call may not run.
    No,
    /// The call may not run, and the run ends.
    NoAndStop,
}

/// An answer without effect.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotAsked {
    /// No call in progress has this ID.
    #[error("no call {0:?} is under way")]
    Unknown(String),
    /// The call waits for no answer.
    #[error("the call {0:?} waits for no answer")]
    Answered(String),
}

impl Control {
    /// Ends the run and every call in progress.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Waits until it is cancelled.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Cancels the calls in progress, and lets the run continue; returns whether there were any.
    pub fn cancel_calls(&self) -> bool {
        let calls = self.calls.borrow();
        calls.values().for_each(CallHandle::cancel);
        !calls.is_empty()
    }

    /// Answers the question of the call `id`; in a batch, of its call at `part`.
    ///
    /// # Errors
    /// If nothing waits for that answer.
    pub async fn approve(&self, id: &str, part: Option<usize>, answer: Answer) -> Result<(), NotAsked> {
        let handle = self.calls.borrow().get(id).cloned().ok_or_else(|| NotAsked::Unknown(brief(id)))?;
        let approval = match answer {
            Answer::Once => Approval::Yes(Extent::Once),
            Answer::Session => Approval::Yes(Extent::Session),
            Answer::No | Answer::NoAndStop => Approval::No,
        };
        let accepted = handle.approve(part, approval).await;
        if accepted && answer == Answer::NoAndStop {
            self.cancel();
        }
        if accepted { Ok(()) } else { Err(NotAsked::Answered(brief(id))) }
    }

    /// A token that is cancelled when the run ends.
    pub(crate) fn token(&self) -> CancellationToken {
        self.cancel.child_token()
    }

    /// Registers a call in progress until the returned value is dropped.
    pub(crate) fn begin(&self, id: &str, handle: CallHandle) -> UnderWay<'_> {
        self.calls.borrow_mut().insert(id.to_owned(), handle);
        UnderWay { control: self, id: id.to_owned() }
    }
}

/// A call under way.
pub(crate) struct UnderWay<'a> {
    control: &'a Control,
    id: String,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.control.calls.borrow_mut().remove(&self.id);
    }
}

/// The beginning of an ID that a client sent.
fn brief(id: &str) -> String {
    id.chars().take(100).collect()
}
