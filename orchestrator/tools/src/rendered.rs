//! What became of a request, as text for the model and data for records.

use crate::metadata::{Details, Truncation};

/// The text, what was left out of it, and what only this tool knows.
#[derive(Debug)]
pub struct Rendered {
    pub text: Vec<u8>,
    pub truncation: Option<Truncation>,
    pub details: Details,
}

impl Rendered {
    /// A text that is whole.
    pub fn new(text: impl Into<Vec<u8>>, details: Details) -> Self {
        Self { text: text.into(), truncation: None, details }
    }
}
