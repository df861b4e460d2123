//! The secrets that this process knows: those of its environment, keys for the network among them.

use crate::redact::{Redactor, RedactorError};
use policies::secret::secrets;
use std::ffi::OsString;
use std::sync::OnceLock;

static KNOWN: OnceLock<Redactor> = OnceLock::new();
static NOT_YET: OnceLock<Redactor> = OnceLock::new();

/// Learns those of an environment, once. A program that cannot tell secrets from text does not start.
///
/// # Errors
/// Where they cannot all be looked for.
pub fn learn(variables: &[(OsString, OsString)]) -> Result<(), RedactorError> {
    let redactor = Redactor::new(secrets(variables.iter().map(|(name, value)| (name, value))))?;
    KNOWN.get_or_init(|| redactor);
    Ok(())
}

/// Takes them out of everything that is shown or recorded. Before they are known, nothing is shown.
pub fn redactor() -> &'static Redactor {
    KNOWN.get().unwrap_or_else(|| NOT_YET.get_or_init(Redactor::withholding))
}
