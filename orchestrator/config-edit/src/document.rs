//! A settings file as text, with operations on single keys.

use serde_json::Value;
use thiserror::Error;

/// The format of a settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON according to the standard.
    Json,
    /// JSON with comments, but without trailing commas.
    JsonWithComments,
    /// JSON with comments and trailing commas.
    Jsonc,
    Toml,
    /// YAML in block style, as programs write it.
    Yaml,
    /// A whole text of ours.
    Text,
}

/// Why a text cannot be edited.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum DocumentError {
    /// The text is invalid in its format.
    #[error("it cannot be read: {0}")]
    Syntax(String),
    /// There is a different kind of value at the key or on the path to it.
    #[error("`{path}` is not {expected} there")]
    Shape {
        /// The path of keys, with dots.
        path: String,
        /// The expected kind of value.
        expected: &'static str,
    },
    /// Its syntax is one that we do not edit in place.
    #[error("`{0}` is written in a form that this command cannot change; change it by hand")]
    Unsupported(String),
}

/// A text in one of the formats.
pub(crate) trait Document {
    /// All keys with their values; `None` if the text has none.
    fn whole(&self) -> Option<Value>;
    /// The value of a key, if it is there.
    fn get(&self, path: &[&str]) -> Option<Value>;
    /// Sets a key; creates the objects on its path.
    fn set(&mut self, path: &[&str], value: &Value) -> Result<(), DocumentError>;
    /// Removes a key. A missing key is no error.
    fn remove(&mut self, path: &[&str]) -> Result<(), DocumentError>;
    /// Appends a text to the list of a key, which is created if missing.
    fn append(&mut self, path: &[&str], item: &str) -> Result<(), DocumentError>;
    /// Removes a text from the list of a key.
    fn remove_item(&mut self, path: &[&str], item: &str) -> Result<(), DocumentError>;
    /// The keys that follow a key in its object, in formats where order matters: JSON.
    fn behind(&self, path: &[&str]) -> Vec<String>;
    fn text(&self) -> String;
}

/// The error for a key whose value has another type.
pub(crate) fn shape(path: &[&str], expected: &'static str) -> DocumentError {
    DocumentError::Shape {
        path: path.join("."),
        expected,
    }
}

/// Features that parsers do not preserve: the byte order mark, and carriage returns at line ends.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    mark: bool,
    returns: bool,
}

impl Frame {
    /// Returns the text without mark and carriage returns, and what was removed.
    pub(crate) fn take(text: &str) -> Result<(Self, String), DocumentError> {
        let plain = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        let ends = plain.matches("\r\n").count();
        if ends > 0 && ends != plain.matches('\n').count() {
            let why = "some of its lines end with a carriage return, and some without";
            return Err(DocumentError::Syntax(why.into()));
        }
        let frame = Self {
            mark: plain.len() != text.len(),
            returns: ends > 0,
        };
        Ok((frame, plain.replace("\r\n", "\n")))
    }

    /// Restores the mark and line ends that were removed.
    pub(crate) fn put(self, text: &str) -> String {
        let mark = if self.mark { BYTE_ORDER_MARK } else { "" };
        let text = if self.returns {
            text.replace('\n', "\r\n")
        } else {
            text.to_owned()
        };
        mark.to_owned() + &text
    }
}

/// Written by some editors at the beginning of files.
pub(crate) const BYTE_ORDER_MARK: &str = "\u{feff}";
