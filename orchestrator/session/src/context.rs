//! What a front end says of a call besides what it is: data.

use broker_protocol::{Request, Wants};
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// The circumstances of a call.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The front end that asks, by a name that no other one of the session has.
    pub asker: Arc<str>,
    /// The name of the call at the client of that front end.
    pub client_id: Option<Value>,
    /// The call's place in a batch; set by the engine.
    pub part: Option<Part>,
    /// Whether output is wanted as it comes.
    pub live: Live,
    /// Whether unsafe characters stay in what this front end is sent. Known secrets go in any case.
    pub raw: bool,
    /// What it wants beyond what the session has.
    pub wants: Wants,
    /// When the call is to be over, if the front end cannot wait longer.
    pub deadline: Option<Instant>,
    /// Ends the call.
    pub cancel: CancellationToken,
}

/// A call's place in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number of the batch in its session.
    pub batch: u64,
    /// The place, from 0.
    pub index: usize,
}

/// What of a command's output is sent as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// Nothing.
    Off,
    /// Text that was sanitized.
    Sanitized,
    /// The bytes as they are, known secrets and all: for a command that a person runs as if there were no cell.
    Bytes,
}

/// What is called.
#[derive(Debug)]
pub enum Invocation {
    /// A tool, by its name or another of its names.
    Tool {
        /// The name.
        name: String,
        /// The input, not checked yet.
        input: Value,
    },
    /// A request that the front end has made itself.
    Request(Request),
}

impl CallContext {
    /// A call of `asker` with nothing special about it.
    pub fn new(asker: Arc<str>) -> Self {
        Self {
            asker,
            client_id: None,
            part: None,
            live: Live::Off,
            raw: false,
            wants: Wants::default(),
            deadline: None,
            cancel: CancellationToken::new(),
        }
    }
}
