//! From a tool and an input to a planned call: checks the input and the scope.

use crate::input_error::FieldError;
use crate::plan::{Plan, PlanContext};
use crate::registry::{ClientTool, Entry, RegistryError};
use crate::timeouts::AskedTimes;
use broker_protocol::{Denial, ErrorKind, Failed};
use orchestrator_engine::CallWork;
use orchestrator_results::result::ToolResult;
use serde_json::Value;
use std::sync::Arc;

/// A call whose input is valid and which the scope permits.
pub(crate) struct PlannedCall {
    pub work: PlannedWork,
    pub times: AskedTimes,
    pub(crate) without_effect: Vec<&'static str>,
    /// Whether it changes files.
    pub(crate) changes_files: bool,
}

/// What a call does.
pub(crate) enum PlannedWork {
    BuiltIn(Plan),
    Registered(Arc<ClientTool>, Value),
}

/// Checks a call's input and the scope.
pub(crate) fn plan(
    work: CallWork<'_>,
    found: Result<Entry, RegistryError>,
    input: Value,
) -> Result<PlannedCall, Box<ToolResult>> {
    // An unknown name may be anything, even a secret.
    let known = found
        .as_ref()
        .map_or_else(RegistryError::tool, |entry| entry.name().to_owned());
    let failed = |error: Failed| Box::new(ToolResult::failed(known.clone(), error));
    work.check_violations().map_err(failed)?;
    let entry = found.map_err(|error| failed(error.into()))?;
    let planned = planned(work, entry, input).map_err(failed)?;
    if work.scope().is_some_and(|scope| !scope.permits(&known)) {
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
    Ok(planned)
}

fn planned(work: CallWork<'_>, entry: Entry, input: Value) -> Result<PlannedCall, Failed> {
    let changes_files = entry.changes_files();
    match entry {
        Entry::BuiltIn(tool) => {
            let directory = work.directory();
            let context = PlanContext {
                roots: work.roots(),
                names: work.names(),
                directory,
                // Whoever makes a single call types paths relative to the working directory; a model takes them from results.
                paths_from: directory.filter(|_| work.is_single()),
            };
            let planned = tool.plan(input, &context)?;
            Ok(PlannedCall {
                work: PlannedWork::BuiltIn(planned.plan),
                times: planned.times,
                without_effect: planned.without_effect,
                changes_files,
            })
        }
        Entry::Registered(tool) => {
            tool.check(&input).map_err(|error: FieldError| Failed {
                kind: ErrorKind::InvalidInput,
                message: error.to_string(),
            })?;
            Ok(PlannedCall {
                work: PlannedWork::Registered(tool, input),
                times: AskedTimes::default(),
                without_effect: Vec::new(),
                changes_files,
            })
        }
    }
}
