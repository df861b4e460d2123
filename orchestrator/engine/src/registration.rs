//! Tools of clients and servers, as they are registered: data.

use crate::execution::Executions;
use broker_protocol::Risk;
use serde_json::Value;

#[derive(Debug)]
pub struct NewTool {
    /// The owner of the tool. A policy knows the tool by this and never by its bare name.
    pub origin: ToolOrigin,
    /// For the model: what it does.
    pub description: String,
    /// Its input, as JSON Schema 2020-12.
    pub schema: Value,
    /// How much harm it can do, according to its owner.
    pub risk: Risk,
    /// How long a call may take, in seconds.
    pub timeout_s: u32,
    pub executions: Executions,
}

/// A tool's owner, and the owner's name for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolOrigin {
    /// A server, which has to be added first.
    Server { server: String, tool: String },
    /// A client of the session.
    Client { tool: String },
}

/// The name under which a tool was registered.
#[derive(Debug, PartialEq, Eq)]
pub struct Registered {
    /// The tool's name in this session.
    pub name: String,
    /// A note for the user: the name differs from the expected one.
    pub warning: Option<String>,
}
