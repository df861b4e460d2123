//! The secrets that this process knows: those in its environment, including keys for the network.

use crate::redact::{Redactor, RedactorError};
use policies::secret::secrets;
use std::ffi::OsString;
use std::sync::OnceLock;

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

/// Removes them from everything that is shown or recorded. Before they are known, everything is withheld.
pub fn redactor() -> &'static Redactor {
    KNOWN
        .get()
        .unwrap_or_else(|| NOT_YET.get_or_init(Redactor::withholding))
}
