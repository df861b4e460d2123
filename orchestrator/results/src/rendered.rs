//! The outcome of a request, as text for the model and data for records.

use crate::metadata::{Details, Truncation};

/// The text, what it leaves out, and the metadata of this tool.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub text: Vec<u8>,
    pub(crate) truncation: Option<Truncation>,
    pub details: Details,
}

impl Rendered {
    /// A text from which nothing is left out.
    pub(crate) fn new(text: impl Into<Vec<u8>>, details: Details) -> Self {
        Self {
            text: text.into(),
            truncation: None,
            details,
        }
    }
}
