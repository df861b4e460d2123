//! Questions for the process with the secrets, and its answers, which have none.

use crate::find::KeySource;
use crate::keyring::Keyring;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// A question for a secret.
#[derive(Serialize, Deserialize)]
pub(crate) enum HeldQuery {
    Key(KeyQuery),
    /// For the key in this file, which is removed from texts by this name.
    File {
        name: String,
        file: PathBuf,
    },
    /// For the value of this variable of the environment.
    Variable(String),
    /// For the headers in the value of this variable, for a collector.
    Collector(String),
    /// For the key of logins in this file, which is made if there is none.
    Login(PathBuf),
    /// For the settings in this file, without their secrets.
    Settings(PathBuf),
}

/// Where a key is looked for.
#[derive(Serialize, Deserialize)]
pub(crate) struct KeyQuery {
    pub variable: Option<String>,
    pub issuer: Option<String>,
    pub file: Option<PathBuf>,
    pub keyring: Keyring,
}

/// The result of a [`HeldQuery`]; secrets have numbers in it.
#[derive(Serialize, Deserialize)]
pub(crate) enum HeldAnswer {
    Key {
        number: u32,
        source: KeySource,
    },
    Secret(u32),
    /// Each with the name of its header.
    Headers(Vec<(String, u32)>),
    /// As the [`crate::held::SettingsReader`] has them.
    Settings(Value),
    Missing,
    /// An error in words; without the secret.
    Failed(String),
    KeyringFailed(String),
}
