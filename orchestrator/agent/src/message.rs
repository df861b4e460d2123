//! A vendor-neutral conversation, which each wire format converts to its own form.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message, in the order of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "role",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Message {
    /// A message of the user, or of the loop in the user's place.
    User { text: String },
    /// The model's text and calls.
    Assistant {
        /// Its parts, in order.
        parts: Vec<MessagePart>,
    },
    /// The answers to the calls of the previous message: one for each, in the order of the calls.
    Tools { answers: Vec<ToolAnswer> },
}

/// A part of a model's message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum MessagePart {
    /// Text for the user.
    Text {
        text: String,
    },
    /// Thoughts. With a signature they are returned to the vendor unchanged.
    Thinking {
        text: String,
        /// The vendor's signature of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// Data that only its vendor can read, returned to it unchanged: encrypted thoughts.
    Sealed {
        /// The vendor, by the name of its wire format.
        vendor: String,
        data: Value,
    },
    ToolCall(ToolCall),
}

/// A call requested by a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Its ID, unique in the conversation and its subagents.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The input: an object.
    pub input: Value,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnswer {
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The text for the model.
    pub text: String,
    /// Whether the call failed.
    pub is_error: bool,
    /// An image for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageData>,
    /// The file that has the whole text, if it was saved.
    #[serde(skip)]
    pub full: Option<String>,
    /// Bytes at the beginning that report what was found in the project; they are not cut.
    #[serde(skip)]
    pub found_bytes: usize,
}

/// An image in the form in which models receive it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageData {
    /// Its media type, such as `image/png`.
    pub media_type: String,
    /// Its bytes.
    pub base64: String,
}

impl Message {
    /// A message of the user.
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
            MessagePart::ToolCall(call) => Some(call),
            MessagePart::Text { .. }
            | MessagePart::Thinking { .. }
            | MessagePart::Sealed { .. } => None,
        })
    }

    /// The text for the user in it.
    pub fn text(&self) -> String {
        match self {
            Message::User { text } => text.clone(),
            Message::Assistant { parts } => text_of(parts),
            Message::Tools { answers } => answers
                .iter()
                .map(|answer| answer.text.as_str())
                .collect::<Vec<_>>()
                .join("\n"),
        }
    }
}

/// The text for the user in `parts`.
pub(crate) fn text_of(parts: &[MessagePart]) -> String {
    let text = |part: &MessagePart| match part {
        MessagePart::Text { text } => Some(text.clone()),
        MessagePart::Thinking { .. } | MessagePart::Sealed { .. } | MessagePart::ToolCall(_) => {
            None
        }
    };
    parts.iter().filter_map(text).collect()
}
