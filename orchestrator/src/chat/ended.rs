//! Turns the end of a chat into an exit code.

use nix::libc::SIGINT;
use orchestrator_agent::error::ProviderError;
use orchestrator_agent::event::EndReason;
use orchestrator_agent::run::RunEnd;
use orchestrator_launch::exit;
use orchestrator_launch::launch::ErrorForm;
use orchestrator_launch::stdio::print;
use orchestrator_lines::errors::print_error;
use orchestrator_text::known::redactor;
use orchestrator_text::sanitize::Sanitizer;
use orchestrator_wire::error::ErrorBody;

/// The exit code where the model cannot call tools.
const NO_TOOLS: u8 = 4;
/// The exit code where the model had to answer before it was done.
const OUT_OF_TURNS: u8 = 5;

/// Prints why a run could not begin; returns the exit code.
pub(super) fn provider_failed(error: &ProviderError, form: &ErrorForm) -> u8 {
    print::problem(&format!("{}: {error}", error.code().name()));
    let message = Sanitizer::new(redactor()).text(&error.to_string());
    let body = error.body();
    print_error(form, ErrorBody { message, ..body });
    code_of(error)
}

fn code_of(error: &ProviderError) -> u8 {
    match error {
        ProviderError::NoTools { .. } => NO_TOOLS,
        ProviderError::Timeout { .. } => exit::TIMEOUT,
        ProviderError::Session(_) | ProviderError::SessionRefused(_) => exit::LAZARET,
        ProviderError::NoKey { .. }
        | ProviderError::PlainKey { .. }
        | ProviderError::BaseUrl(_) => exit::USAGE,
        _ => exit::FAILED,
    }
}

/// Says that a run came to a limit of its own, where it did. Each run of a conversation may.
pub(super) fn say_limit(end: &RunEnd, turns: u32) {
    let limit = match end.reason {
        EndReason::TurnLimit => format!("there were {turns} turns, as many as --max-turns allows"),
        EndReason::ContextBudget => "the context is full".to_owned(),
        EndReason::Done
        | EndReason::Finished
        | EndReason::Length
        | EndReason::Refused
        | EndReason::QualityGate
        | EndReason::Error
        | EndReason::Violations
        | EndReason::Timeout
        | EndReason::Cancelled => return,
    };
    print::problem(&format!(
        "{limit}: the model could call no more tools, and may not be done"
    ));
}

/// The exit code of a run.
pub(super) fn code(end: &RunEnd, signal: Option<i32>) -> u8 {
    if let Some(number) = signal {
        return exit::SIGNAL + number as u8;
    }
    match (&end.error, end.reason) {
        (Some(error), _) => code_of(error),
        (None, EndReason::Done | EndReason::Finished) => exit::OK,
        (None, EndReason::TurnLimit | EndReason::ContextBudget) => OUT_OF_TURNS,
        (
            None,
            EndReason::Length | EndReason::Refused | EndReason::QualityGate | EndReason::Error,
        ) => exit::FAILED,
        (None, EndReason::Violations) => exit::VIOLATION,
        (None, EndReason::Timeout) => exit::TIMEOUT,
        (None, EndReason::Cancelled) => exit::SIGNAL + SIGINT as u8,
    }
}
