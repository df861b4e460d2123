//! The secrets that this process knows: those in its environment, including keys for the network.

use crate::redact::{Redactor, RedactorError};
use policies::secret::secrets;
use std::ffi::OsString;
use std::sync::OnceLock;

/// The variable with the key for Claude.
pub const ANTHROPIC_KEY: &str = "ANTHROPIC_API_KEY";
/// The variable with the key for OpenAI.
pub const OPENAI_KEY: &str = "OPENAI_API_KEY";
/// The variable with the key for Brave's API.
pub const BRAVE_KEY: &str = "BRAVE_SEARCH_API_KEY";
/// The variables with keys of ours, for the network: what we start gets none of them.
pub const OWN_KEYS: [&str; 3] = [BRAVE_KEY, ANTHROPIC_KEY, OPENAI_KEY];

/// The variable with headers for all collectors, which may have keys in them.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// The variables with headers for a collector of logs: the first that is set counts.
pub const LOG_HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_LOGS_HEADERS", HEADERS];
/// The same for spans.
pub const SPAN_HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", HEADERS];
/// All of them: their names look like no secret's.
pub const COLLECTOR_HEADERS: [&str; 3] = [HEADERS, LOG_HEADERS[0], SPAN_HEADERS[0]];

static KNOWN: OnceLock<Redactor> = OnceLock::new();
static NOT_YET: OnceLock<Redactor> = OnceLock::new();

/// Learns the secrets of an environment; to be called once. A program that cannot recognise secrets does not start.
///
/// # Errors
/// If it is impossible to search for all of them.
pub fn learn(variables: &[(OsString, OsString)]) -> Result<(), RedactorError> {
    let redactor = Redactor::new(secrets(variables.iter().map(|(name, value)| (name, value))))?;
    KNOWN.get_or_init(|| redactor);
    Ok(())
}

/// Has `redactor` find them from now on; the first one stays.
pub fn install(redactor: Redactor) {
    let _ = KNOWN.set(redactor);
}

/// Removes them from everything that is shown or recorded. Before they are known, everything is withheld.
pub fn redactor() -> &'static Redactor {
    KNOWN
        .get()
        .unwrap_or_else(|| NOT_YET.get_or_init(Redactor::withholding))
}
