//! How a front end steers a run: it cancels, and it answers approval questions of calls by their IDs.

use crate::event::Confirm;
use orchestrator_engine::{ApprovalAnswer, CallHandle};
use orchestrator_wire::approval::Answer;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub struct RunControl {
    cancel: CancellationToken,
    calls: Rc<RefCell<BTreeMap<String, CallInProgress>>>,
}

/// A call in progress, with its questions that were published and wait for an answer, by the place in a batch.
struct CallInProgress {
    handle: CallHandle,
    questions: BTreeMap<Option<usize>, ExpectedAnswer>,
}

/// What an answer is held to.
struct ExpectedAnswer {
    digest: String,
    /// Whether the front end got all of what is asked about.
    is_shown: bool,
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
    /// A yes that could mean several questions of one call.
    #[error("several calls of the batch {0:?} wait for an answer")]
    Several(String),
    /// Nobody can approve what they have not seen.
    #[error("the input of the call {0:?} is too long to be shown whole, so the only answer is no")]
    NotShown(String),
    /// The answer was given to another question.
    #[error("the call {0:?} asks about something else than this answer")]
    OtherDigest(String),
}

impl RunControl {
    /// Controls a run within this one: cancelling this one cancels it, and answers given here reach its calls.
    pub(crate) fn child(&self) -> Self {
        Self {
            cancel: self.cancel.child_token(),
            calls: self.calls.clone(),
        }
    }

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
        calls.values().for_each(|call| call.handle.cancel());
        !calls.is_empty()
    }

    /// Answers the question of the call `id`; in a batch, of its call at `part`. With a `digest`, only a question about just that
    /// is answered. A no without `part` answers all questions of a batch.
    ///
    /// # Errors
    /// If nothing waits for that answer, or it is a yes to what was not shown, or to which of several questions is unknown.
    pub async fn approve(
        &self,
        id: &str,
        part: Option<usize>,
        answer: Answer,
        digest: Option<&str>,
    ) -> Result<(), NotAsked> {
        let approval = answer.into();
        let (handle, places) = self.find(id, part, digest, approval)?;
        let mut accepted = false;
        for place in places {
            if handle.approve(place, approval).await {
                accepted = true;
                // A further question of this call has to be published before it can be answered.
                self.calls
                    .borrow_mut()
                    .get_mut(id)
                    .map(|call| call.questions.remove(&place));
            }
        }
        if accepted && answer.stops() {
            self.cancel();
        }
        if accepted {
            Ok(())
        } else {
            Err(NotAsked::Answered(brief(id)))
        }
    }

    /// The call and the places of the questions that are meant, if they may be answered like this.
    fn find(
        &self,
        id: &str,
        part: Option<usize>,
        digest: Option<&str>,
        approval: ApprovalAnswer,
    ) -> Result<(CallHandle, Vec<Option<usize>>), NotAsked> {
        let calls = self.calls.borrow();
        let call = calls.get(id).ok_or_else(|| NotAsked::Unknown(brief(id)))?;
        let meant = call
            .questions
            .iter()
            .filter(|(of, _)| part.is_none() || **of == part);
        if meant.clone().next().is_none() {
            return Err(NotAsked::Answered(brief(id)));
        }
        let mut meant =
            meant.filter(|(_, asked)| digest.is_none_or(|digest| digest == asked.digest));
        match approval {
            ApprovalAnswer::No => {
                let places: Vec<_> = meant.map(|(place, _)| *place).collect();
                match places.is_empty() {
                    true => Err(NotAsked::OtherDigest(brief(id))),
                    false => Ok((call.handle.clone(), places)),
                }
            }
            ApprovalAnswer::Yes(_) => match (meant.next(), meant.next()) {
                (None, _) => Err(NotAsked::OtherDigest(brief(id))),
                (Some(_), Some(_)) if digest.is_none() => Err(NotAsked::Several(brief(id))),
                (Some((_, asked)), _) if !asked.is_shown => Err(NotAsked::NotShown(brief(id))),
                // Of questions with one digest, any is the one that was seen.
                (Some((place, _)), _) => Ok((call.handle.clone(), vec![*place])),
            },
        }
    }

    /// Registers a question that is about to be published.
    pub(crate) fn asked(&self, confirm: &Confirm) {
        if let Some(call) = self.calls.borrow_mut().get_mut(&confirm.tool_id) {
            let asked = ExpectedAnswer {
                digest: confirm.asked.digest.clone(),
                is_shown: confirm.input.is_some(),
            };
            call.questions.insert(confirm.part, asked);
        }
    }

    /// Registers that a question of a call waits no more.
    pub(crate) fn answered(&self, id: &str, part: Option<usize>, digest: &str) {
        if let Some(call) = self.calls.borrow_mut().get_mut(id)
            && call
                .questions
                .get(&part)
                .is_some_and(|asked| asked.digest == digest)
        {
            call.questions.remove(&part);
        }
    }

    /// A token that is cancelled when the run ends.
    pub(crate) fn token(&self) -> CancellationToken {
        self.cancel.child_token()
    }

    /// Registers a call in progress until the returned value is dropped.
    pub(crate) fn begin(&self, id: &str, handle: CallHandle) -> CallUnderWay<'_> {
        self.calls.borrow_mut().insert(
            id.to_owned(),
            CallInProgress {
                handle,
                questions: BTreeMap::new(),
            },
        );
        CallUnderWay {
            control: self,
            id: id.to_owned(),
        }
    }
}

/// A call under way.
pub(crate) struct CallUnderWay<'a> {
    control: &'a RunControl,
    id: String,
}

impl Drop for CallUnderWay<'_> {
    fn drop(&mut self) {
        self.control.calls.borrow_mut().remove(&self.id);
    }
}

/// The beginning of an ID that a client sent.
fn brief(id: &str) -> String {
    id.chars().take(100).collect()
}
