//! The context that a front end supplies with a call: plain data.

use crate::call_permit::CallPermit;
use crate::execution::Executions;
use broker_protocol::{Request, Wants};
use orchestrator_results::profile::ModelProfile;
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// The circumstances of a call.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The front end that makes the call, by a name unique in the session.
    pub asker: Arc<str>,
    /// The ID that the front end's client gave the call.
    pub client_id: Option<Value>,
    /// The conversation in which a model makes it.
    pub conversation: Option<Arc<str>>,
    /// Whether the user has typed a command for it, in a session that others use too: hooks are not asked.
    pub by_person: bool,
    /// The call's place in a batch; set by the engine.
    pub part: Option<BatchPlace>,
    /// Whether to send output as it is produced.
    pub live: LiveOutput,
    /// Whether to keep unsafe characters in what is sent to this front end. Known secrets are removed in any case.
    pub raw: bool,
    /// Access that the call wants beyond what the session has.
    pub wants: Wants,
    /// When the call must have ended, if the front end cannot wait longer.
    pub deadline: Option<Instant>,
    /// Bounds the call, if the front end bounds the results that it has not passed on yet.
    pub permit: Option<CallPermit>,
    /// How much of the result is shown, if that is not the session's own profile.
    pub profile: Option<&'static ModelProfile>,
    /// Where the call's result reports what was found in the project.
    pub found: FoundIn,
    /// Whether its questions show what a write or an edit would change in the file.
    pub shows_changes: bool,
    /// Receives calls about the agent itself, if the front end has models.
    pub agent_calls: Option<Executions>,
    pub cancel: CancellationToken,
}

/// A call's place in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlace {
    /// The number of the batch in its session.
    pub batch: u64,
    /// The place in its batch, counted from 0.
    pub index: usize,
}

/// Whether a command's output is sent as it is produced, and in which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveOutput {
    Off,
    Sanitized,
    /// The unchanged bytes, including known secrets: for a command that a person runs as if there were no cell.
    Bytes,
}

/// Where a result reports what was found in the project since the last one that did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundIn {
    /// At the beginning of its text or error, and in its metadata: somebody reads the text.
    Text,
    /// In its metadata: the front end shows that.
    Metadata,
    /// In the metadata of a later call: a program reads this one's text, and nobody its metadata.
    LaterResult,
}

#[derive(Debug)]
pub enum Invocation {
    /// A tool, by its name or another of its names.
    Tool {
        name: String,
        /// The input, not checked yet.
        input: Value,
    },
    /// A request that the front end has made itself.
    Request(Request),
}

impl CallContext {
    /// A call by `asker` with default settings.
    pub fn new(asker: Arc<str>) -> Self {
        Self {
            asker,
            client_id: None,
            conversation: None,
            by_person: false,
            part: None,
            live: LiveOutput::Off,
            raw: false,
            wants: Wants::default(),
            deadline: None,
            permit: None,
            found: FoundIn::Text,
            profile: None,
            shows_changes: false,
            agent_calls: None,
            cancel: CancellationToken::new(),
        }
    }
}
