//! How a front end steers a run: it cancels, and it answers the questions of calls, each by its id.

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

/// An answer to the question whether a call may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This call may.
    Once,
    /// This call may, and those like it for the rest of the session.
    Session,
    /// It may not.
    No,
    /// It may not, and the run ends.
    NoAndStop,
}

/// An answer that counts for nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotAsked {
    /// No call under way has this id.
    #[error("no call {0:?} is under way")]
    Unknown(String),
    /// Nobody waits for an answer to it.
    #[error("the call {0:?} waits for no answer")]
    Answered(String),
}

impl Control {
    /// Ends the run, and every call under way.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Whether somebody has ended it.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Waits until somebody ends it.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Cancels the calls under way, and lets the run go on; whether there were any.
    pub fn cancel_calls(&self) -> bool {
        let calls = self.calls.borrow();
        calls.values().for_each(CallHandle::cancel);
        !calls.is_empty()
    }

    /// Answers the question of the call `id`, in a batch that of the call at `part`.
    ///
    /// # Errors
    /// Nobody waits for that answer.
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

    /// A token that the run's end cancels.
    pub(crate) fn token(&self) -> CancellationToken {
        self.cancel.child_token()
    }

    /// A call is under way, until what is returned is dropped.
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

/// The beginning of an id that somebody sent.
fn brief(id: &str) -> String {
    id.chars().take(100).collect()
}
