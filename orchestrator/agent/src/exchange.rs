//! The requests to models and their answers, for records. A front end shows an answer piece by piece; a record has it whole.

use crate::chunk::{Stop, Usage};
use std::sync::Arc;

/// A request to a model, or the end of its answer.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The conversation.
    pub conversation: Arc<str>,
    /// The answer that the run gives.
    pub message: Arc<str>,
    /// The call of the subagent that asks.
    pub parent: Option<Arc<str>>,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Which of the two, and what is known of it.
    pub side: Side,
}

/// One side of an exchange with a model.
#[derive(Clone, Debug)]
pub enum Side {
    /// A request is about to be sent.
    Request {
        /// Messages in it.
        messages: usize,
        /// Tools in it.
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
        /// Tokens.
        usage: Usage,
        /// Milliseconds since the request.
        wall_ms: u64,
        /// The code of its error.
        error: Option<&'static str>,
    },
}
