//! Finds a key in the first place that has one.

use crate::error::KeyError;
use crate::key_file;
use crate::keyring::Keyring;
use orchestrator_confine::Files;
use orchestrator_http::key::Key;
use orchestrator_text::known::redactor;
use orchestrator_text::secret_environment;
use policies::secret::Secret;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// Where a key was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeySource {
    /// The file that the user names.
    File,
    /// The variable of the environment that the vendor's own programs read.
    Environment,
    /// The desktop keyring, over the session bus.
    Keyring,
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Environment => "environment",
            Self::Keyring => "keyring",
        })
    }
}

/// A key. From now on it is removed from everything that is shown or recorded.
#[derive(Clone, Debug)]
pub struct FoundKey {
    /// The key, for its provider and nobody else.
    pub key: Key,
    /// The first place that had one.
    pub source: KeySource,
}

/// A key for another process, or for one that has no other to ask: it comes into this one's memory.
pub(crate) fn find_here(
    _: &Files,
    names: (Option<&str>, Option<&str>),
    file: Option<&Path>,
    keyring: &Keyring,
) -> Result<Option<FoundKey>, KeyError> {
    let Some((text, source)) = text(names, file, keyring)? else {
        return Ok(None);
    };
    let key = learned("MODEL_KEY", &text)?;
    Ok(Some(FoundKey { key, source }))
}

/// The key in `file`, which from now on is removed from everything that is shown or recorded, by `name`.
///
/// # Errors
/// If it cannot be read or used.
pub(crate) fn in_file(_: &Files, name: &str, file: &Path) -> Result<Key, KeyError> {
    learned(name, &from_file(file)?)
}

fn from_file(path: &Path) -> Result<String, KeyError> {
    key_file::read(path).map_err(|error| KeyError::File {
        path: path.to_owned(),
        error,
    })
}

pub(crate) fn learned(name: &str, text: &str) -> Result<Key, KeyError> {
    let key = Key::new(text).ok_or(KeyError::NotALine)?;
    let secret = Secret {
        name: name.to_owned(),
        value: key.expose().as_bytes().to_vec(),
    };
    redactor().learn(secret)?;
    Ok(key)
}

fn text(
    (variable, issuer): (Option<&str>, Option<&str>),
    file: Option<&Path>,
    keyring: &Keyring,
) -> Result<Option<(String, KeySource)>, KeyError> {
    if let Some(path) = file {
        return Ok(Some((from_file(path)?, KeySource::File)));
    }
    let (Some(variable), Some(issuer)) = (variable, issuer) else {
        return Ok(None);
    };
    let variable = secret_environment::text(variable).filter(|key| !key.trim().is_empty());
    if let Some(text) = variable {
        return Ok(Some((text, KeySource::Environment)));
    }
    Ok(keyring
        .secret(issuer)?
        .map(|text| (text, KeySource::Keyring)))
}
