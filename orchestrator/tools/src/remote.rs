//! Calls of tools that are not built in: whoever has registered such a tool carries them out.

use broker_protocol::Failed;
use orchestrator_web::image::Image;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Where the calls of a tool go. A closed one answers that its owner is gone.
pub type Executions = mpsc::UnboundedSender<Execution>;

/// A call for the owner of a tool to carry out. Its input was checked against the tool's schema, and the policy permits it.
#[derive(Debug)]
pub struct Execution {
    /// The number of the call in its session.
    pub call: u64,
    /// The front end that made the call.
    pub asker: Arc<str>,
    /// The name of the call at the client of that front end.
    pub client_id: Option<Value>,
    /// The call's place in its batch, if it is part of one.
    pub part: Option<usize>,
    /// The tool.
    pub tool: String,
    /// The input, whole.
    pub input: Value,
    /// Takes the answer. Closed when nobody waits for one any more: then the work is to stop.
    pub reply: oneshot::Sender<Result<Reply, Failed>>,
}

/// What a tool that is not built in answers: a stranger's word.
#[derive(Debug, Default, PartialEq)]
pub struct Reply {
    /// For the model.
    pub text: Vec<u8>,
    /// For records.
    pub structured: Option<Value>,
    /// For the model, where it takes images.
    pub image: Option<Image>,
}
