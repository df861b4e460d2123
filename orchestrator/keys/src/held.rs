//! Secrets that this process never has: another one finds them and passes them to the gateway, and says here only where they were.

use crate::error::KeyError;
use crate::find::{self, FoundKey, find_here, learned};
use crate::header_list;
use crate::held_answer::{HeldAnswer, HeldQuery, KeyQuery};
use crate::keyring::Keyring;
use crate::login_key;
use http::header::HeaderName;
use orchestrator_confine::Files;
use orchestrator_http::ask::{KEYS_MAX, KeyValue};
use orchestrator_http::key::{Key, KeyNames};
use orchestrator_text::known::redactor;
use orchestrator_text::secret_environment;
use orchestrator_text::variables;
use policies::secret::{Secret, looks_secret};
use serde_json::Value;
use std::io::{self, Write};
use std::path::Path;

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
    let query = HeldQuery::Key(KeyQuery {
        variable: variable.map(str::to_owned),
        issuer: issuer.map(str::to_owned),
        file: file.map(Path::to_owned),
        keyring: keyring.unasked(),
    });
    match ask(&query)? {
        Some(HeldAnswer::Key { number, source }) => Ok(Some(FoundKey {
            key: Key::held(number),
            source,
        })),
        Some(answer) => answer.no_secret().map(|()| None),
        None => find_here(files, (variable, issuer), file, keyring),
    }
}

/// The key in `file`, which from now on is removed from everything that is shown or recorded, by `name`.
///
/// # Errors
/// If it cannot be read or used.
pub fn in_file(files: &Files, name: &str, file: &Path) -> Result<Key, KeyError> {
    let query = HeldQuery::File {
        name: name.to_owned(),
        file: file.to_owned(),
    };
    match ask(&query)? {
        Some(HeldAnswer::Secret(number)) => Ok(Key::held(number)),
        Some(answer) => Err(answer.no_secret().err().unwrap_or(KeyError::NotALine)),
        None => find::in_file(files, name, file),
    }
}

/// Has the variable `name`, if it is a secret of the environment, stand for its value from now on: only the gateway has that.
///
/// # Errors
/// If its value cannot be used.
pub fn hold_variable(name: &str) -> Result<(), KeyError> {
    if !secret_environment::is_hidden(name) {
        return Ok(());
    }
    match ask(&HeldQuery::Variable(name.to_owned()))? {
        Some(HeldAnswer::Secret(number)) => {
            secret_environment::stand_in(name, Key::held(number).expose());
            Ok(())
        }
        Some(answer) => answer.no_secret(),
        None => Ok(()),
    }
}

/// The key by which the gateway encrypts tokens of logins, in `file`, which is made if there is none. `None` where no other process has it.
///
/// # Errors
/// If it cannot be made or read.
pub fn login_key(file: &Path) -> Result<Option<Key>, KeyError> {
    match ask(&HeldQuery::Login(file.to_owned()))? {
        Some(HeldAnswer::Secret(number)) => Ok(Some(Key::held(number))),
        Some(answer) => answer.no_secret().map(|()| None),
        None => Ok(None),
    }
}

/// The headers that the variable `name` has for a collector.
///
/// # Errors
/// If they are none.
pub fn collector_headers(name: &str) -> Result<Vec<(HeaderName, Key)>, KeyError> {
    match ask(&HeldQuery::Collector(name.to_owned()))? {
        Some(HeldAnswer::Headers(all)) => all
            .into_iter()
            .map(|(name, number)| Some((HeaderName::try_from(name).ok()?, Key::held(number))))
            .collect::<Option<_>>()
            .ok_or(KeyError::NotHeaders),
        Some(answer) => answer.no_secret().map(|()| Vec::new()),
        None => headers_here(name),
    }
}

fn headers_here(name: &str) -> Result<Vec<(HeaderName, Key)>, KeyError> {
    let text = secret_environment::text(name).unwrap_or_default();
    let headers = header_list::parse(&text).ok_or(KeyError::NotHeaders)?;
    for (header, value) in &headers {
        learn_parts(header.as_str(), value.expose())?;
    }
    Ok(headers)
}

/// The settings in `file`, without their secrets. `None` where this process reads them itself.
///
/// # Errors
/// If they cannot be read.
pub fn settings(file: &Path) -> Result<Option<Value>, KeyError> {
    match ask(&HeldQuery::Settings(file.to_owned()))? {
        Some(HeldAnswer::Settings(settings)) => Ok(Some(settings)),
        Some(answer) => Err(answer.no_secret().err().unwrap_or(KeyError::NotALine)),
        None => Ok(None),
    }
}

/// Whether a header is secret: by its name, or because its value comes from the environment.
pub fn is_secret_header(name: &str, text: &str) -> bool {
    const NAMES: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];
    NAMES.contains(&name.to_ascii_lowercase().as_str())
        || looks_secret(name.replace('-', "_").as_ref())
        || !variables::names(text).is_empty()
}

/// The texts that a header's value makes secret: it as a whole and, in `Bearer TOKEN`, the token alone, which may appear elsewhere.
pub fn secret_parts(value: &str) -> impl Iterator<Item = &str> {
    value.split_whitespace().chain([value])
}

/// Has these texts removed, by `name`, from everything that is shown or recorded.
///
/// # Errors
/// If one cannot be searched for.
pub fn learn_parts(name: &str, value: &str) -> Result<(), KeyError> {
    for part in secret_parts(value) {
        redactor().learn(Secret {
            name: name.to_owned(),
            value: part.as_bytes().to_vec(),
        })?;
    }
    Ok(())
}

/// Asks the process with the secrets; `None` if there is none, or it can find no more.
fn ask(query: &HeldQuery) -> Result<Option<HeldAnswer>, KeyError> {
    let text = serde_json::to_vec(query).map_err(|error| KeyError::Held(error.to_string()))?;
    let answer = redactor().hold(&text)?.map(serde_json::from_value);
    let answer = answer.transpose();
    answer.map_err(|error| KeyError::Held(error.to_string()))
}

impl HeldAnswer {
    /// The error in an answer without a secret, unless there is just none.
    fn no_secret(self) -> Result<(), KeyError> {
        match self {
            Self::Missing => Ok(()),
            Self::Failed(why) => Err(KeyError::Held(why)),
            Self::KeyringFailed(why) => Err(KeyError::HeldKeyring(why)),
            Self::Key { .. } | Self::Secret(_) | Self::Headers(_) | Self::Settings(_) => {
                Err(KeyError::Held("another question was answered".to_owned()))
            }
        }
    }
}

/// Passes a key on, and returns the number by which the gateway has it.
pub type HoldKey<'a> = dyn FnMut(&Key) -> Result<u32, KeyError> + 'a;

/// Reads the settings in a file, with numbers in place of secrets.
pub type SettingsReader = fn(&Files, &Path, &mut HoldKey<'_>) -> Result<Value, KeyError>;

/// Finds secrets for another process, and passes them on.
pub struct KeyFinder {
    read_settings: SettingsReader,
    count: u32,
    bytes: usize,
    /// The keyring, which remembers that it did not answer.
    keyring: Option<Keyring>,
}

impl KeyFinder {
    pub fn new(read_settings: SettingsReader) -> Self {
        Self {
            read_settings,
            count: 0,
            bytes: 0,
            keyring: None,
        }
    }

    /// The answer to a question in another process. A secret that is found is written to `line`.
    ///
    /// # Errors
    /// If it is no question, or the line takes no more.
    pub fn find(&mut self, files: &Files, query: &[u8], line: impl Write) -> io::Result<Value> {
        let answer = match self.answer(files, serde_json::from_slice(query)?, line) {
            Ok(answer) => answer,
            Err(error @ KeyError::Keyring(_)) => HeldAnswer::KeyringFailed(error.to_string()),
            Err(error) => HeldAnswer::Failed(error.to_string()),
        };
        Ok(serde_json::to_value(answer)?)
    }

    fn answer(
        &mut self,
        files: &Files,
        query: HeldQuery,
        mut line: impl Write,
    ) -> Result<HeldAnswer, KeyError> {
        match query {
            HeldQuery::Key(query) => self.key(files, &query, line),
            HeldQuery::File { name, file } => {
                let key = find::in_file(files, &name, &file)?;
                Ok(HeldAnswer::Secret(self.pass(&key, &mut line)?))
            }
            HeldQuery::Login(file) => {
                let path = file.clone();
                login_key::make(&file).map_err(|error| KeyError::LoginKey { path, error })?;
                let key = find::in_file(files, "LOGIN_KEY", &file)?;
                Ok(HeldAnswer::Secret(self.pass(&key, &mut line)?))
            }
            HeldQuery::Variable(name) => match secret_environment::text(&name) {
                Some(text) => {
                    let key = learned(&name, &text)?;
                    Ok(HeldAnswer::Secret(self.pass(&key, &mut line)?))
                }
                None => Ok(HeldAnswer::Missing),
            },
            HeldQuery::Collector(name) => {
                let headers = headers_here(&name)?;
                let mut numbered = |(name, value): (HeaderName, Key)| {
                    Ok((name.to_string(), self.pass(&value, &mut line)?))
                };
                let all: Result<_, KeyError> = headers.into_iter().map(&mut numbered).collect();
                all.map(HeldAnswer::Headers)
            }
            HeldQuery::Settings(file) => {
                let read = self.read_settings;
                let mut hold = |key: &Key| self.pass(key, &mut line);
                let settings = read(files, &file, &mut hold)?;
                Ok(HeldAnswer::Settings(settings))
            }
        }
    }

    fn key(
        &mut self,
        files: &Files,
        query: &KeyQuery,
        line: impl Write,
    ) -> Result<HeldAnswer, KeyError> {
        let keyring = self.keyring.get_or_insert(query.keyring.unasked());
        let found = find_here(
            files,
            (query.variable.as_deref(), query.issuer.as_deref()),
            query.file.as_deref(),
            keyring,
        );
        match found? {
            Some(found) => Ok(HeldAnswer::Key {
                number: self.pass(&found.key, line)?,
                source: found.source,
            }),
            None => Ok(HeldAnswer::Missing),
        }
    }

    fn pass(&mut self, key: &Key, mut line: impl Write) -> Result<u32, KeyError> {
        let number = self.count;
        let value = KeyValue {
            number,
            value: key.expose().to_owned(),
        };
        let unsent = |error: io::Error| KeyError::Held(error.to_string());
        let mut text = serde_json::to_vec(&value).map_err(|error| unsent(error.into()))?;
        text.push(b'\n');
        if self.bytes + text.len() > KEYS_MAX {
            return Err(KeyError::TooMany);
        }
        line.write_all(&text).map_err(unsent)?;
        self.bytes += text.len();
        self.count += 1;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_secrets_are_known_by_name_or_origin() {
        for (name, text) in [
            ("Authorization", "Bearer x"),
            ("X-Api-Key", "x"),
            ("cookie", "x"),
            ("X-Tenant", "${TENANT}"),
        ] {
            assert!(is_secret_header(name, text), "{name}");
        }
        assert!(!is_secret_header("X-Client", "lazaret"));
    }
}
