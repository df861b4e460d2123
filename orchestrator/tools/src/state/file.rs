//! A state file: parsed and written within its bounds.

use broker_protocol::{ErrorKind, Failed, limit};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The effect of a command.
#[derive(Debug, PartialEq)]
pub struct StateEffect {
    /// The new content of the file, if it changed.
    pub(crate) save: Option<Vec<u8>>,
    /// For the model.
    pub text: String,
    /// How many entries there are.
    pub count: u64,
}

/// Why a command has no effect.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// The file was not written by a tool.
    #[error("central:{file} is not a file of this tool ({why}); remove it to begin anew")]
    Corrupt { file: &'static str, why: String },
    /// The entry, value or goal does not exist.
    #[error("there is no {0}")]
    Missing(String),
    /// A bound has been reached.
    #[error("no more than {max} {what} fit; remove some first")]
    Full {
        max: usize,
        /// The kind of item.
        what: &'static str,
    },
}

impl From<StateError> for Failed {
    fn from(error: StateError) -> Self {
        let kind = match error {
            StateError::Corrupt { .. } => ErrorKind::Io,
            StateError::Missing(_) => ErrorKind::NotFound,
            StateError::Full { .. } => ErrorKind::ResourceLimit,
        };
        Failed {
            kind,
            message: error.to_string(),
        }
    }
}

/// The content of a file.
pub(super) trait StateFile: Default + Serialize + DeserializeOwned {
    /// Its path below the central root.
    const PATH: &'static str;

    /// The bound that is exceeded, if one is.
    fn fault(&self) -> Option<&'static str>;

    /// Its entries as lines, with their number.
    fn listing(&self) -> (String, usize);
}

/// Parses a file and checks its bounds.
pub(super) fn parse<F: StateFile>(file: Option<&[u8]>) -> Result<F, StateError> {
    let Some(bytes) = file else {
        return Ok(F::default());
    };
    let corrupt = |why: &str| StateError::Corrupt {
        file: F::PATH,
        why: why.to_owned(),
    };
    if bytes.len() > limit::STATE {
        return Err(corrupt("it is too long"));
    }
    // The parser's error could quote the untrusted content.
    let parsed: F = serde_json::from_slice(bytes).map_err(|error| {
        corrupt(&format!(
            "line {}, column {} is not what it should be",
            error.line(),
            error.column()
        ))
    })?;
    match parsed.fault() {
        Some(fault) => Err(corrupt(fault)),
        None => Ok(parsed),
    }
}

/// The entries, without a change.
pub(super) fn listing<F: StateFile>(file: &F) -> StateEffect {
    let (text, count) = file.listing();
    StateEffect {
        save: None,
        text,
        count: count as u64,
    }
}

/// The entries, and the new content of the file.
pub(super) fn changed<F: StateFile>(file: &F) -> Result<StateEffect, StateError> {
    let bytes = serde_json::to_vec_pretty(file).unwrap_or_default();
    if bytes.len() > limit::STATE {
        return Err(StateError::Full {
            max: limit::STATE,
            what: "bytes",
        });
    }
    Ok(StateEffect {
        save: Some(bytes),
        ..listing(file)
    })
}

/// Whether a text has more than `max` characters.
pub(super) fn is_long(text: &str, max: usize) -> bool {
    text.len() > max && text.chars().take(max + 1).count() > max
}
