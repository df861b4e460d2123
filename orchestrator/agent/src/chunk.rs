//! The pieces of a provider's stream. Every wire format is converted into these and nothing else.

use crate::error::ProviderError;
pub use orchestrator_wire::usage::{Stop, TokenUsage};
use serde_json::Value;
use tokio::sync::mpsc;

/// How many pieces may wait for the loop.
pub(crate) const CAPACITY: usize = 32;

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
    Usage(TokenUsage),
    /// The answer is complete. Nothing comes after it.
    End(Stop),
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
