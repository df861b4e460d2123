//! The status of runs by their ID: those in progress and the last that have ended.

use crate::incoming::{RequestError, brief};
use orchestrator_agent::error::ProviderError;
use orchestrator_agent::event::{EndReason, now};
use orchestrator_agent::run::RunEnd;
use orchestrator_wire::error::ErrorBody;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::VecDeque;

/// Maximum number of runs that are kept.
const RUNS_MAX: usize = 1_000;

/// The state and result of a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunStatus {
    /// The name of the run, which its events have as `messageId`.
    pub(crate) run_id: String,
    /// The conversation that it is part of.
    pub(crate) conversation_id: String,
    /// `running`, or `ended` when it is over.
    pub status: &'static str,
    /// When it began, in milliseconds since 1970.
    pub(crate) started_at: u64,
    /// When it ended, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_at: Option<u64>,
    /// Why it has ended, as in `chat:stream-end`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
    /// What went wrong, if anything did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

impl RunStatus {
    fn begun(run_id: &str, conversation_id: &str) -> Self {
        Self {
            run_id: run_id.to_owned(),
            conversation_id: conversation_id.to_owned(),
            status: "running",
            started_at: now(),
            ended_at: None,
            reason: None,
            error: None,
        }
    }

    /// Its status after this end.
    fn ended(self, end: &RunEnd, redacted: impl Fn(&str) -> String) -> Self {
        let error = end.error.as_ref();
        let error = error.map(ProviderError::body).map(|error| ErrorBody {
            message: redacted(&error.message),
            ..error
        });
        Self {
            status: "ended",
            ended_at: Some(now()),
            reason: Some(end.reason),
            error,
            ..self
        }
    }
}

/// The result of a run over HTTP.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RunResult {
    /// Always `final`, for compatibility with other systems.
    pub action: &'static str,
    /// The text of the last answer.
    pub text: String,
    /// What the task ended with, where it had a form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// The run that has come to this.
    #[serde(rename = "_meta")]
    pub meta: RunStatus,
}

/// The runs that are kept, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Runs(RefCell<VecDeque<RunStatus>>);

impl Runs {
    /// Registers a run that begins.
    pub(crate) fn begin(&self, run_id: &str, conversation_id: &str) {
        let mut runs = self.0.borrow_mut();
        if runs.len() >= RUNS_MAX {
            // The oldest that has ended; runs in progress are fewer than the maximum.
            let oldest = runs
                .iter()
                .position(|run| run.ended_at.is_some())
                .unwrap_or(0);
            runs.remove(oldest);
        }
        runs.push_back(RunStatus::begun(run_id, conversation_id));
    }

    /// Records the end of a run; returns its status.
    pub(crate) fn end(
        &self,
        run_id: &str,
        conversation_id: &str,
        end: &RunEnd,
        redacted: impl Fn(&str) -> String,
    ) -> RunStatus {
        let mut runs = self.0.borrow_mut();
        let known = runs.iter_mut().find(|run| run.run_id == run_id);
        // A run that was already dropped has begun too.
        let begun = known
            .as_deref()
            .cloned()
            .unwrap_or_else(|| RunStatus::begun(run_id, conversation_id));
        let ended = begun.ended(end, redacted);
        if let Some(known) = known {
            *known = ended.clone();
        }
        ended
    }

    /// The status of `run_id`.
    ///
    /// # Errors
    /// If there is no such run.
    pub(crate) fn status(&self, run_id: &str) -> Result<RunStatus, RequestError> {
        let runs = self.0.borrow();
        let found = runs.iter().find(|run| run.run_id == run_id);
        found
            .cloned()
            .ok_or_else(|| RequestError::UnknownRun(brief(run_id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_are_over_are_forgotten() {
        let runs = Runs::default();
        runs.begin("under-way", "c");
        for number in 0..RUNS_MAX {
            let id = format!("run-{number}");
            runs.begin(&id, "c");
            runs.end(&id, "c", &RunEnd::new(EndReason::Done), str::to_owned);
        }
        assert_eq!(runs.status("under-way").unwrap().status, "running");
        assert!(matches!(
            runs.status("run-0"),
            Err(RequestError::UnknownRun(_))
        ));
        assert_eq!(
            runs.status("run-999").unwrap().reason,
            Some(EndReason::Done)
        );
        assert_eq!(runs.0.borrow().len(), RUNS_MAX);
    }
}
