//! A vendor's key, from the first place that has one.

use crate::error::KeyError;
use crate::key_file;
use crate::keyring::Keyring;
use orchestrator_agent::http::Key;
use orchestrator_agent::providers::Vendor;
use orchestrator_text::known::redactor;
use policies::secret::Secret;
use std::fmt;
use std::path::Path;

/// Where a key was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The file that the user names.
    File,
    /// The variable of the environment that the vendor's own programs read.
    Environment,
    /// The desktop's, over the session bus.
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

/// A key, which from now on is taken out of all that is shown or recorded.
#[derive(Clone, Debug)]
pub struct FoundKey {
    /// The key, for its provider and nobody else.
    pub key: Key,
    /// The first place that had one.
    pub source: KeySource,
}

/// The key of `vendor`: that of `file` where one is named, else that of the environment, else that of the keyring. `None`
/// where no place has one, or the vendor wants none.
///
/// # Errors
/// A place has one that cannot be used, or does not give it.
pub fn find(vendor: Vendor, file: Option<&Path>, keyring: &Keyring) -> Result<Option<FoundKey>, KeyError> {
    let Some((text, source)) = text(vendor, file, keyring)? else { return Ok(None) };
    let key = Key::new(&text).ok_or(KeyError::NotALine)?;
    let secret = Secret { name: "MODEL_KEY".to_owned(), value: key.expose().as_bytes().to_vec() };
    redactor().learn(secret)?;
    Ok(Some(FoundKey { key, source }))
}

fn text(
    vendor: Vendor,
    file: Option<&Path>,
    keyring: &Keyring,
) -> Result<Option<(String, KeySource)>, KeyError> {
    if let Some(path) = file {
        let read = key_file::read(path);
        let text = read.map_err(|error| KeyError::File { path: path.to_owned(), error })?;
        return Ok(Some((text, KeySource::File)));
    }
    let Some(names) = vendor.key_names() else { return Ok(None) };
    let variable = std::env::var(names.variable).ok().filter(|key| !key.trim().is_empty());
    if let Some(text) = variable {
        return Ok(Some((text, KeySource::Environment)));
    }
    Ok(keyring.secret(names.issuer)?.map(|text| (text, KeySource::Keyring)))
}
