//! A key that this process never has: another one finds it and passes it to the gateway, and says here only where it was.

use crate::error::KeyError;
use crate::find::{FoundKey, KeySource, find_here};
use crate::keyring::Keyring;
use orchestrator_confine::Files;
use orchestrator_http::ask::KeyValue;
use orchestrator_http::key::{Key, KeyNames};
use orchestrator_text::known::redactor;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where a key is looked for.
#[derive(Serialize, Deserialize)]
struct KeyQuery {
    variable: Option<String>,
    issuer: Option<String>,
    file: Option<PathBuf>,
    keyring: Keyring,
}

/// The result of a [`KeyQuery`].
#[derive(Serialize, Deserialize)]
enum KeyAnswer {
    Found {
        number: u32,
        source: KeySource,
    },
    Missing,
    /// An error in words; without the key.
    Failed(String),
    KeyringFailed(String),
}

/// The key with these names: from `file` if one is named, else from the environment, else from the keyring. `None` if no place has
/// one, or none is needed.
///
/// # Errors
/// If a place has a key that cannot be used or read.
pub fn find(
    files: &Files,
    names: Option<KeyNames>,
    file: Option<&Path>,
    keyring: &Keyring,
) -> Result<Option<FoundKey>, KeyError> {
    let (variable, issuer) = names.map(|names| (names.variable, names.issuer)).unzip();
    let query = KeyQuery {
        variable: variable.map(str::to_owned),
        issuer: issuer.map(str::to_owned),
        file: file.map(Path::to_owned),
        keyring: keyring.unasked(),
    };
    match ask(&query)? {
        Some(found) => Ok(found),
        None => find_here(files, (variable, issuer), file, keyring),
    }
}

/// Asks the process with the secrets; `None` if there is none.
fn ask(query: &KeyQuery) -> Result<Option<Option<FoundKey>>, KeyError> {
    let text = serde_json::to_vec(query).map_err(|error| KeyError::Held(error.to_string()))?;
    let Some(answer) = redactor().hold(&text)? else {
        return Ok(None);
    };
    let answer = serde_json::from_value(answer);
    match answer.map_err(|error: serde_json::Error| KeyError::Held(error.to_string()))? {
        KeyAnswer::Found { number, source } => Ok(Some(Some(FoundKey {
            key: Key::held(number),
            source,
        }))),
        KeyAnswer::Missing => Ok(Some(None)),
        KeyAnswer::Failed(why) => Err(KeyError::Held(why)),
        KeyAnswer::KeyringFailed(why) => Err(KeyError::HeldKeyring(why)),
    }
}

/// Finds keys for another process, and passes them on.
#[derive(Debug, Default)]
pub struct KeyFinder {
    count: u32,
    /// The keyring, which remembers that it did not answer.
    keyring: Option<Keyring>,
}

impl KeyFinder {
    /// The answer to a question of [`find`] in another process. A key that is found is written to `line`.
    ///
    /// # Errors
    /// If it is no question, or the line takes no more.
    pub fn find(&mut self, files: &Files, query: &[u8], line: impl Write) -> io::Result<Value> {
        let query: KeyQuery = serde_json::from_slice(query)?;
        let keyring = self.keyring.get_or_insert(query.keyring);
        let found = find_here(
            files,
            (query.variable.as_deref(), query.issuer.as_deref()),
            query.file.as_deref(),
            keyring,
        );
        let answer = match found {
            Ok(Some(found)) => {
                let number = self.pass(&found.key, line)?;
                let source = found.source;
                KeyAnswer::Found { number, source }
            }
            Ok(None) => KeyAnswer::Missing,
            Err(error @ KeyError::Keyring(_)) => KeyAnswer::KeyringFailed(error.to_string()),
            Err(error) => KeyAnswer::Failed(error.to_string()),
        };
        Ok(serde_json::to_value(answer)?)
    }

    fn pass(&mut self, key: &Key, mut line: impl Write) -> io::Result<u32> {
        let number = self.count;
        self.count += 1;
        let value = KeyValue {
            number,
            value: key.expose().to_owned(),
        };
        let mut text = serde_json::to_vec(&value)?;
        text.push(b'\n');
        line.write_all(&text)?;
        Ok(number)
    }
}
