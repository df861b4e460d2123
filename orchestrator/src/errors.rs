//! The errors that end a command, in the form of its JSON.

use broker_protocol::Failed;
use orchestrator_launch::launch::ErrorForm;
use orchestrator_stdio::print;
use orchestrator_wire::error::ErrorBody;
use orchestrator_wire::json::failed_result;
use serde_json::{Value, json};

/// Prints an error in place of the JSON that a program reads there. If this write fails, the error is still on standard error.
pub fn print_failed(form: &ErrorForm, failed: &Failed) {
    let line = match form {
        ErrorForm::Result(tool) => Some(failed_result(None, tool, failed)),
        ErrorForm::Text | ErrorForm::Object | ErrorForm::Fault | ErrorForm::Chat => {
            line(form, ErrorBody::from(failed))
        }
    };
    let _ = line.map(|line| print::json(&line));
}

/// Prints the error of a provider in the same way. No call fails with one.
pub fn print_error(form: &ErrorForm, error: ErrorBody) {
    let _ = line(form, error).map(|line| print::json(&line));
}

fn line(form: &ErrorForm, error: ErrorBody) -> Option<Value> {
    match form {
        ErrorForm::Text | ErrorForm::Result(_) => None,
        ErrorForm::Object => Some(json!({ "error": error })),
        ErrorForm::Fault => Some(json!({ "event": "fault", "error": error })),
        ErrorForm::Chat => Some(json!({ "type": "chat:error", "payload": error })),
    }
}
