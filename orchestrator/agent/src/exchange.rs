//! The requests to models and their answers, for records. A front end shows an answer piece by piece; a record has it whole.

use crate::chunk::{Stop, TokenUsage};
use std::sync::Arc;

/// A request to a model, or the end of its answer.
#[derive(Clone, Debug)]
pub struct ModelExchange {
    /// The conversation that the run belongs to.
    pub conversation: Arc<str>,
    /// The message in which the run answers.
    pub message: Arc<str>,
    /// The call of the subagent that asks.
    pub parent: Option<Arc<str>>,
    /// The provider's name in settings.
    pub provider: String,
    /// The model's name at the provider.
    pub model: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Which of the two, and what is known of it.
    pub(crate) side: Side,
}

/// One side of an exchange with a model.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    /// A request is about to be sent.
    Request {
        /// The number of messages in it.
        messages: usize,
        /// The number of tools in it.
        tools: usize,
        /// Whether the model may call them.
        may_call: bool,
        /// Whether it has only what every server knows.
        minimal: bool,
    },
    /// The answer is complete, or has failed.
    Answer {
        /// The text for the user, without known secrets.
        text: String,
        /// The names of the tools that it calls.
        calls: Vec<String>,
        /// Why it ended, if the model has said so.
        stop: Option<Stop>,
        /// Tokens, as the provider counts them.
        usage: TokenUsage,
        /// Milliseconds from the request to its end.
        wall_ms: u64,
        /// The code of its error.
        error: Option<&'static str>,
    },
}
