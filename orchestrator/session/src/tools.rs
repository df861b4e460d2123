//! What the engine asks of the tools above it. It runs calls, puts questions and publishes events; which tools exist and what their
//! inputs mean is known only there. A front end that makes requests itself has [no tools](NoTools), and links none.

use crate::execution::Executions;
use crate::work::Work;
use broker_protocol::{ErrorKind, Failed, Risk, Scope};
use orchestrator_results::result::ToolResult;
use serde_json::Value;
use std::pin::Pin;
use std::rc::Rc;

/// The tools of a session.
pub trait Tools {
    /// The tool with this name or alias.
    ///
    /// # Errors
    /// If there is none.
    fn find(self: Rc<Self>, name: &str) -> Found;

    /// Adds a tool of a client or a server.
    ///
    /// # Errors
    /// Why it is refused.
    fn register(&self, tool: NewTool) -> Result<Registered, Failed>;

    /// Removes a tool of a client or a server.
    ///
    /// # Errors
    /// If there is none with this name, or it is built in.
    fn unregister(&self, name: &str) -> Result<(), Failed>;

    /// The tools as they are listed to a model.
    fn list(&self, scope: Option<&Scope>) -> Vec<Value>;
}

/// A tool, looked up once.
pub trait Tool {
    /// Its canonical name.
    fn name(&self) -> &str;

    /// Whether its call may still run when the executor no longer has a request of it.
    fn leaves_executor(&self) -> bool;

    /// Checks the input, and makes the call.
    fn call<'c>(&'c self, work: Work<'c>, input: Value) -> Calling<'c>;
}

/// A call under way.
pub type Calling<'c> = Pin<Box<dyn Future<Output = ToolResult> + 'c>>;

/// The result of looking up a name.
pub type Found = Result<Rc<dyn Tool>, UnknownTool>;

/// Why there is no tool for a name.
#[derive(Debug)]
pub struct UnknownTool {
    /// The tool, if its name is known all the same. An unknown name may be anything, even a secret.
    pub tool: String,
    pub why: Failed,
}

/// A tool to register.
#[derive(Debug)]
pub struct NewTool {
    /// The owner of the tool. A policy knows the tool by this and never by its bare name.
    pub origin: Origin,
    /// For the model: what it does.
    pub description: String,
    /// Its input, as JSON Schema 2020-12.
    pub schema: Value,
    /// How much harm it can do, according to its owner.
    pub risk: Risk,
    /// How long a call may take, in seconds.
    pub timeout_s: u32,
    /// Receives the tool's calls.
    pub executions: Executions,
}

/// A tool's owner, and the owner's name for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
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

/// No tools: the front end makes its requests itself.
#[derive(Debug, Default)]
pub struct NoTools;

fn none() -> Failed {
    Failed {
        kind: ErrorKind::UnknownTool,
        message: "this session has no tools".into(),
    }
}

impl Tools for NoTools {
    fn find(self: Rc<Self>, _: &str) -> Found {
        Err(UnknownTool {
            tool: String::new(),
            why: none(),
        })
    }

    fn register(&self, _: NewTool) -> Result<Registered, Failed> {
        Err(none())
    }

    fn unregister(&self, _: &str) -> Result<(), Failed> {
        Err(none())
    }

    fn list(&self, _: Option<&Scope>) -> Vec<Value> {
        Vec::new()
    }
}
