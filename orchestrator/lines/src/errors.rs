//! The errors that end a command, in the form of its JSON.

use broker_protocol::Failed;
use orchestrator_launch::launch::ErrorForm;
use orchestrator_launch::stdio::print;
use orchestrator_wire::error::ErrorBody;
use orchestrator_wire::json::failed_result;
use serde_json::json;

/// Prints an error in place of the JSON that a program reads there. If this write fails, the error is still on standard error.
pub fn print_failed(form: &ErrorForm, failed: &Failed) {
    match form {
        ErrorForm::Result(tool) => drop(print::json(&failed_result(None, tool, failed))),
        ErrorForm::Text | ErrorForm::Object | ErrorForm::Fault | ErrorForm::Chat => {
            print_error(form, ErrorBody::from(failed));
        }
    }
}

/// Prints the error of a provider in the same way. No call fails with one.
pub fn print_error(form: &ErrorForm, error: ErrorBody) {
    let line = match form {
        ErrorForm::Text | ErrorForm::Result(_) => return,
        ErrorForm::Object => json!({ "error": error }),
        ErrorForm::Fault => json!({ "event": "fault", "error": error }),
        ErrorForm::Chat => json!({ "type": "chat:error", "payload": error }),
    };
    let _ = print::json(&line);
}
