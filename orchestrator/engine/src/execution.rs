//! Calls that their front end carries out: those of registered tools, and those about the agent.

use broker_protocol::Failed;
use orchestrator_results::image::Image;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Receives the calls of a tool. If it is closed, calls report that the owner is gone.
pub type Executions = mpsc::UnboundedSender<Execution>;

/// A call for the owner of a tool to carry out. Its input matches the tool's schema, and the policy permits it.
#[derive(Debug)]
pub struct Execution {
    /// The number of the call in its session.
    pub call: u64,
    /// The front end that made the call.
    pub asker: Arc<str>,
    /// The ID that the front end's client gave the call.
    pub client_id: Option<Value>,
    /// The call's place in its batch, if it is part of one.
    pub part: Option<usize>,
    pub tool: String,
    pub input: Value,
    /// Takes the answer. When it closes, nobody waits for the answer and the work should stop.
    pub reply: oneshot::Sender<Result<OutsideReply, Failed>>,
}

/// The answer of a registered tool: untrusted.
#[derive(Debug, Default, PartialEq)]
pub struct OutsideReply {
    pub text: Vec<u8>,
    pub structured: Option<Value>,
    /// For the model, if it accepts images.
    pub image: Option<Image>,
}
