//! From a tool's name and input to a planned call: looks up the tool once, checks the input and the scope.

use crate::engine::Engine;
use broker_protocol::{Denial, ErrorKind, Failed, Roots};
use orchestrator_tools::name;
use orchestrator_tools::plan::{Plan, PlanContext};
use orchestrator_tools::registry::{ClientTool, Entry, RegistryError};
use orchestrator_tools::result::ToolResult;
use orchestrator_tools::timeouts::AskedTimes;
use serde_json::Value;
use std::sync::Arc;

/// A call whose input is valid and which the scope permits.
pub(crate) struct PlannedCall {
    pub work: Work,
    pub times: AskedTimes,
    pub without_effect: Vec<&'static str>,
    /// Whether it changes files.
    pub changes_files: bool,
}

pub(crate) enum Work {
    BuiltIn(Plan),
    Remote(Arc<ClientTool>, Value),
}

/// The result of looking up a name.
pub(crate) type Found = Result<Entry, RegistryError>;

impl Engine {
    /// The tool called `name`.
    pub fn find(&self, name: &str) -> Found {
        self.registry.borrow().get(name)
    }

    /// Refuses every call once the violations have ended the session.
    pub fn check_open(&self) -> Result<(), Failed> {
        let Some(violations) = self.fatal_violations() else {
            return Ok(());
        };
        let message =
            format!("the session ended after {violations} violations; it makes no more calls");
        Err(Failed {
            kind: ErrorKind::DeniedPolicy,
            message,
        })
    }

    /// Checks a call's input and the scope.
    pub fn plan(
        &self,
        found: Found,
        input: Value,
        roots: &Roots,
    ) -> Result<PlannedCall, Box<ToolResult>> {
        // An unknown name may be anything, even a secret.
        let known = found
            .as_ref()
            .map_or_else(RegistryError::tool, |entry| entry.name().to_owned());
        let failed = |error: Failed| Box::new(ToolResult::failed(known.clone(), error));
        self.check_open().map_err(failed)?;
        let entry = found.map_err(|error| failed(error.into()))?;
        let changes_files = entry.changes_files();
        let (work, times, without_effect) = match entry {
            Entry::BuiltIn(tool) => {
                let directory = self.directory.as_ref();
                // Whoever makes a single call types paths relative to the working directory; a model takes them from results.
                let paths_from = directory.filter(|_| self.single_call);
                let context = PlanContext {
                    roots,
                    names: self.names(),
                    directory,
                    paths_from,
                };
                let planned = tool
                    .plan(input, &context)
                    .map_err(|error| failed(error.into()))?;
                (
                    Work::BuiltIn(planned.plan),
                    planned.times,
                    planned.without_effect,
                )
            }
            Entry::Registered(tool) => {
                let wrong = |error: orchestrator_tools::input_error::FieldError| {
                    failed(Failed {
                        kind: ErrorKind::InvalidInput,
                        message: error.to_string(),
                    })
                };
                tool.check(&input).map_err(wrong)?;
                (Work::Remote(tool, input), AskedTimes::default(), Vec::new())
            }
        };
        if self
            .scope
            .as_ref()
            .is_some_and(|scope| !scope.permits(&known))
        {
            let why = format!("`{known}` is not permitted in the scope of this session.");
            let message = format!("scope:{known}: {why}");
            let mut result = failed(Failed {
                kind: ErrorKind::DeniedPolicy,
                message,
            });
            result.metadata.denied.push(Denial::by_scope(&known, why));
            result.tell_denials();
            return Err(result);
        }
        Ok(PlannedCall {
            work,
            times,
            without_effect,
            changes_files,
        })
    }
}

/// A tool's canonical name, or the beginning of the given name if there is no such tool.
pub(crate) fn shown_name(found: &Found, given: &str) -> String {
    match found {
        Ok(entry) => entry.name().to_owned(),
        Err(_) => given.chars().take(2 * name::MAX).collect(),
    }
}
