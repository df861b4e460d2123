//! The pieces of a provider's stream. Every wire format is converted into these and nothing else.

use crate::error::ProviderError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

/// How many pieces may wait for the loop.
pub const CAPACITY: usize = 32;

/// A piece of a model's answer. `index` distinguishes the parts of one answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Chunk {
    /// Text for the user.
    Text { index: u32, text: String },
    /// Thoughts.
    Thinking { index: u32, text: String },
    /// The signature of the thoughts at `index`.
    Signature { index: u32, signature: String },
    /// A part that only its vendor can read.
    Sealed {
        index: u32,
        vendor: &'static str,
        data: Value,
    },
    /// A call begins.
    ToolStart {
        index: u32,
        id: String,
        name: String,
    },
    /// A piece of the call's input as JSON text.
    ToolDelta { index: u32, json: String },
    /// The call's input is complete.
    ToolEnd { index: u32 },
    /// What the answer has cost so far. Fields that are 0 are unknown.
    Usage(Usage),
    /// The answer is complete. Nothing comes after it.
    End(Stop),
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model had no more to say, or waits for the results of its calls.
    Done,
    /// It ran into the most tokens that an answer may have.
    Length,
    /// The vendor or the model refused.
    Refused,
}

/// Tokens of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Tokens of the request, those of the vendor's cache among them.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Those of the request that were in the vendor's cache.
    pub cached_tokens: u64,
}

impl Usage {
    /// Overwrites counts with those that a later report has.
    pub fn update(&mut self, later: Usage) {
        self.input_tokens = self.input_tokens.max(later.input_tokens);
        self.output_tokens = self.output_tokens.max(later.output_tokens);
        self.cached_tokens = self.cached_tokens.max(later.cached_tokens);
    }

    /// Adds the tokens of another turn.
    pub fn add(&mut self, other: Usage) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
    }
}

/// Where a provider sends its chunks. Sending waits for the receiver.
#[derive(Clone, Debug)]
pub struct Chunks(mpsc::Sender<Chunk>);

impl Chunks {
    /// A channel for chunks, with its receiver.
    pub fn channel() -> (Self, mpsc::Receiver<Chunk>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        (Self(sender), receiver)
    }

    /// Sends a chunk.
    ///
    /// # Errors
    /// [`ProviderError::Cancelled`] if the receiver is gone.
    pub async fn send(&self, chunk: Chunk) -> Result<(), ProviderError> {
        self.0
            .send(chunk)
            .await
            .map_err(|_| ProviderError::Cancelled)
    }
}
