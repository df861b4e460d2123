//! The secrets that this process knows: those of its own environment, keys for the network among them.

use crate::domain::redact::Redactor;
use policies::secret::secrets;
use std::ffi::OsString;
use std::sync::OnceLock;

/// What takes them out of everything that is shown or recorded.
pub fn known() -> &'static Redactor {
    static KNOWN: OnceLock<Redactor> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        Redactor::new(secrets(variables.iter().map(|(name, value)| (name, value))))
    })
}
