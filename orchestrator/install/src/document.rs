//! A text of settings, of which single keys are read and changed.

use serde_json::Value;
use thiserror::Error;

/// The format of a file of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON as the standard has it.
    Json,
    /// JSON with comments, but without trailing commas.
    JsonWithComments,
    /// JSON with comments and trailing commas.
    Jsonc,
    #[allow(missing_docs)]
    Toml,
    /// YAML in blocks, as programs write it.
    Yaml,
}

/// Why a text cannot be changed.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum EditError {
    /// It is not of its format.
    #[error("it cannot be read: {0}")]
    Syntax(String),
    /// On the way to a key, or at it, there is something else than there should be.
    #[error("`{path}` is not {expected} there")]
    Shape {
        /// The keys up to it, with dots.
        path: String,
        /// What it should be.
        expected: &'static str,
    },
    /// It is written in a way that is not changed in place.
    #[error("`{0}` is written in a way that is not changed here; change it by hand")]
    Unsupported(String),
}

/// A text in one of the formats.
pub trait Document {
    /// The value of a key, if it is there.
    fn get(&self, path: &[&str]) -> Option<Value>;
    /// Sets a key; makes the objects on its way.
    fn set(&mut self, path: &[&str], value: &Value) -> Result<(), EditError>;
    /// Takes a key out. One that is not there is no error.
    fn remove(&mut self, path: &[&str]) -> Result<(), EditError>;
    /// Adds a text to the list of a key, which is made.
    fn append(&mut self, path: &[&str], item: &str) -> Result<(), EditError>;
    /// Takes a text out of the list of a key.
    fn remove_item(&mut self, path: &[&str], item: &str) -> Result<(), EditError>;
    /// The keys behind a key in its object, where their order counts: in JSON.
    fn behind(&self, path: &[&str]) -> Vec<String>;
    /// The text.
    fn text(&self) -> String;
}

/// The error of a key that is something else.
pub fn shape(path: &[&str], expected: &'static str) -> EditError {
    EditError::Shape { path: path.join("."), expected }
}

/// What parsers of a text do not keep: the mark at its beginning, and a carriage return at each end of a line.
#[derive(Clone, Copy)]
pub struct Frame {
    mark: bool,
    returns: bool,
}

impl Frame {
    /// The text without its mark and with plain line ends, and what it had.
    pub fn take(text: &str) -> Result<(Self, String), EditError> {
        let plain = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        let ends = plain.matches("\r\n").count();
        if ends > 0 && ends != plain.matches('\n').count() {
            let why = "some of its lines end with a carriage return, and some without";
            return Err(EditError::Syntax(why.into()));
        }
        let frame = Self { mark: plain.len() != text.len(), returns: ends > 0 };
        Ok((frame, plain.replace("\r\n", "\n")))
    }

    /// The text with the mark and line ends that were taken.
    pub fn put(self, text: &str) -> String {
        let mark = if self.mark { BYTE_ORDER_MARK } else { "" };
        let text = if self.returns { text.replace('\n', "\r\n") } else { text.to_owned() };
        mark.to_owned() + &text
    }
}

/// At the beginning of files that some editors write.
pub const BYTE_ORDER_MARK: &str = "\u{feff}";
