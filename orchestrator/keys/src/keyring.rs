//! The desktop keyring, queried at most once for each issuer of keys.

use crate::bus_address;
use crate::error::KeyringError;
use crate::secret_service;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Time limit of all keyring requests for one key. A service that the bus has to start takes a second or two.
const LIMIT: Duration = Duration::from_secs(5);

type KeyringLookup = Result<Option<String>, KeyringError>;

/// The desktop keyring, if the user's settings permit using it.
#[derive(Clone, Deserialize, Serialize)]
#[serde(from = "bool", into = "bool")]
pub struct Keyring {
    is_asked: bool,
    found: RefCell<BTreeMap<String, KeyringLookup>>,
}

impl Default for Keyring {
    fn default() -> Self {
        Self::from(true)
    }
}

impl From<bool> for Keyring {
    fn from(is_asked: bool) -> Self {
        Self {
            is_asked,
            found: RefCell::default(),
        }
    }
}

impl From<Keyring> for bool {
    fn from(keyring: Keyring) -> Self {
        keyring.is_asked
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("is_asked", &self.is_asked)
            .finish_non_exhaustive()
    }
}

impl Keyring {
    /// The stored key of `issuer`; `None` if there is no keyring, or it has no such key.
    pub(crate) fn secret(&self, issuer: &str) -> Result<Option<String>, KeyringError> {
        if !self.is_asked {
            return Ok(None);
        }
        let mut found = self.found.borrow_mut();
        // After one timeout, the keyring is not waited for again.
        let is_silent = |found: &&KeyringLookup| matches!(found, Err(KeyringError::Timeout { .. }));
        if let Some(silent) = found.values().find(is_silent) {
            return silent.clone();
        }
        let issuer = issuer.to_owned();
        found
            .entry(issuer)
            .or_insert_with_key(|issuer| ask(issuer))
            .clone()
    }

    /// A keyring by these settings, for another process.
    pub(crate) fn unasked(&self) -> Self {
        Self::from(self.is_asked)
    }
}

fn ask(issuer: &str) -> KeyringLookup {
    let attributes = BTreeMap::from([("service", "lazaret"), ("provider", issuer)]);
    let places = bus_address::of_environment(|name| std::env::var_os(name));
    secret_service::secret(&places, &attributes, LIMIT)
}
