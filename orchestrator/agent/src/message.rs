//! A conversation as no vendor writes it: each wire format makes its own of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message, in the order in which it was said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Message {
    /// What the user, or the loop in their place, says.
    User {
        /// The text.
        text: String,
    },
    /// What the model said and asked for.
    Assistant {
        /// Its parts, in order.
        parts: Vec<Part>,
    },
    /// What became of the calls of the message before: one answer for each, in the order of the calls.
    Tools {
        /// The answers.
        answers: Vec<ToolAnswer>,
    },
}

/// A part of a model's message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Part {
    /// Text for the user.
    Text {
        /// The text.
        text: String,
    },
    /// Thoughts. With a signature they go back to the vendor as they came.
    Thinking {
        /// The text.
        text: String,
        /// The vendor's signature of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// Something that only its vendor reads, and that goes back to it as it came: thoughts that are encrypted.
    Sealed {
        /// The vendor, by the name of its wire format.
        vendor: String,
        /// The thing.
        data: Value,
    },
    /// A call.
    ToolCall(ToolCall),
}

/// A call that a model asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Its name in this conversation; no other call has it.
    pub id: String,
    /// The tool, as the model named it.
    pub name: String,
    /// The input: an object.
    pub input: Value,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnswer {
    /// The call's id.
    pub id: String,
    /// The tool, as the model named it.
    pub name: String,
    /// The text for the model.
    pub text: String,
    /// Whether the call went wrong.
    pub is_error: bool,
    /// An image for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageData>,
}

/// An image as models are sent it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageData {
    /// Its media type, such as `image/png`.
    pub media_type: String,
    /// Its bytes.
    pub base64: String,
}

impl Message {
    /// What the user says.
    pub fn user(text: impl Into<String>) -> Self {
        Message::User { text: text.into() }
    }

    /// The calls in it.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        let parts = match self {
            Message::Assistant { parts } => parts.as_slice(),
            Message::User { .. } | Message::Tools { .. } => &[],
        };
        parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            Part::Text { .. } | Part::Thinking { .. } | Part::Sealed { .. } => None,
        })
    }

    /// The text for the user in it.
    pub fn text(&self) -> String {
        match self {
            Message::User { text } => text.clone(),
            Message::Assistant { parts } => text_of(parts),
            Message::Tools { answers } => {
                answers.iter().map(|answer| answer.text.as_str()).collect::<Vec<_>>().join("\n")
            }
        }
    }
}

/// The text for the user in `parts`.
pub fn text_of(parts: &[Part]) -> String {
    let text = |part: &Part| match part {
        Part::Text { text } => Some(text.clone()),
        Part::Thinking { .. } | Part::Sealed { .. } | Part::ToolCall(_) => None,
    };
    parts.iter().filter_map(text).collect()
}
