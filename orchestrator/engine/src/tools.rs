//! The interface of the tools above the engine. It runs calls, puts questions and publishes events; which tools exist and what their
//! inputs mean is known only there. A front end that makes requests itself has no tools, `()`, and links none.

use crate::registration::{NewTool, Registered};
use crate::work::CallWork;
use broker_protocol::{ErrorKind, Failed, Request, Scope};
use orchestrator_results::result::ToolResult;
use serde_json::Value;
use std::pin::Pin;
use std::rc::Rc;

/// Maximum characters that are shown of a name without a tool.
const SHOWN_NAME: usize = 128;

pub trait Tools {
    /// The tool with this name or alias.
    ///
    /// # Errors
    /// If there is none.
    fn find(self: Rc<Self>, name: &str) -> ToolLookup;

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

pub trait Tool {
    fn name(&self) -> &str;

    /// Whether the executor only permits its call, and something else carries it out.
    fn runs_outside(&self) -> bool;

    /// `input` with the own names of the fields of `tool`, this one or one of its [`Tool::members`].
    ///
    /// # Errors
    /// If a field has two names in it.
    fn own_names(&self, tool: &str, input: &Value) -> Result<Value, Failed>;

    /// The calls that a batch with this input makes; their inputs get the own names of their tools. `None` if this is no batch.
    ///
    /// # Errors
    /// If there are too many, or a field has two names in one.
    fn members(&self, input: &mut Value) -> Result<Option<Vec<MemberCall>>, Failed>;

    /// Checks the input, and makes the call.
    fn call<'c>(&'c self, work: CallWork<'c>, input: Value) -> Calling<'c>;
}

/// A call in a batch.
#[derive(Debug)]
pub struct MemberCall {
    /// The tool's canonical name, or the given name if there is no such tool.
    pub tool: String,
    /// Where its input is in that of the batch: a JSON Pointer.
    pub pointer: String,
}

pub type Calling<'c> = Pin<Box<dyn Future<Output = ToolResult> + 'c>>;

/// The result of looking up a name.
pub type ToolLookup = Result<Rc<dyn Tool>, UnknownTool>;

/// The target of a call, after the lookup.
pub(crate) enum CallTarget {
    Tool(ToolLookup, Value),
    Request(Request),
}

/// Why there is no tool for a name.
#[derive(Debug)]
pub struct UnknownTool {
    /// The tool, if its name is known all the same. An unknown name may be anything, even a secret.
    pub tool: String,
    pub why: Failed,
}

/// A tool's canonical name, or the beginning of the given name if there is no such tool.
pub fn shown_name(canonical: Option<&str>, given: &str) -> String {
    match canonical {
        Some(name) => name.to_owned(),
        None => given.chars().take(SHOWN_NAME).collect(),
    }
}

fn none() -> Failed {
    Failed {
        kind: ErrorKind::UnknownTool,
        message: "this session has no tools".into(),
    }
}

/// No tools: the front end makes its requests itself.
impl Tools for () {
    fn find(self: Rc<Self>, _: &str) -> ToolLookup {
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
