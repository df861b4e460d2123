//! The calls of tools, as the engine asks for them: looked up, planned, carried out.

mod hooked;
mod planning;
mod members;
mod outside;
mod perform;
mod state;
mod toolbox;
mod view;

pub use toolbox::Toolbox;

use crate::plan::Plan;
use crate::registry::Entry;
use broker_protocol::{Failed, Scope};
use orchestrator_engine::tools::{Calling, ToolLookup};
use orchestrator_engine::{
    CallWork, MemberCall, NewTool, Registered, Tool, Tools, UnknownTool, spans,
};
use orchestrator_results::result::ToolResult;
use planning::{PlannedCall, PlannedWork, plan};
use serde_json::Value;
use std::rc::Rc;

/// What a session of the engine with tools is started with.
pub type ToolConfig = orchestrator_engine::Config<Toolbox>;

impl Tools for Toolbox {
    fn find(self: Rc<Self>, name: &str) -> ToolLookup {
        match self.get(name) {
            Ok(entry) => Ok(Rc::new(BoundTool {
                toolbox: self,
                entry,
            })),
            Err(error) => Err(UnknownTool {
                tool: error.tool(),
                why: error.into(),
            }),
        }
    }

    fn register(&self, tool: NewTool) -> Result<Registered, Failed> {
        Ok(self.registry.borrow_mut().register(tool)?)
    }

    fn unregister(&self, name: &str) -> Result<(), Failed> {
        Ok(self.registry.borrow_mut().unregister(name)?)
    }

    fn list(&self, scope: Option<&Scope>) -> Vec<Value> {
        let listed = self.registry.borrow().list(scope);
        listed.iter().map(Entry::to_json).collect()
    }
}

/// A tool, with what its calls need.
struct BoundTool {
    toolbox: Rc<Toolbox>,
    entry: Entry,
}

impl Tool for BoundTool {
    fn name(&self) -> &str {
        self.entry.name()
    }

    fn runs_outside(&self) -> bool {
        self.entry.runs_outside()
    }

    fn own_names(&self, tool: &str, input: &Value) -> Result<Value, Failed> {
        hooked::own_names(tool, input)
    }

    fn members(&self, input: &mut Value) -> Result<Option<Vec<MemberCall>>, Failed> {
        hooked::members(self.name(), input)
    }

    fn call<'c>(&'c self, work: CallWork<'c>, input: Value) -> Calling<'c> {
        Box::pin(call(&self.toolbox, work, self.entry.clone(), input))
    }
}

async fn call(toolbox: &Toolbox, work: CallWork<'_>, entry: Entry, input: Value) -> ToolResult {
    let planned = spans::validation().in_scope(|| plan(work, Ok(entry), input));
    match planned {
        Ok(PlannedCall {
            work: PlannedWork::BuiltIn(Plan::Batch(calls)),
            ..
        }) => members::batch(toolbox, work, calls).await,
        Ok(planned) => perform::perform(toolbox, work, planned, work.profile().file.keep).await,
        Err(result) => *result,
    }
}
