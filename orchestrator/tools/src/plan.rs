//! What a call asks for once its input is checked: mostly one [`Request`].

use crate::state::StateCommand;
use crate::timeouts::AskedTimes;
use broker_protocol::{
    Bash, FileBytes, FileRead, Framework, PathError, Request, Roots, State, StateChange, ZonePath,
};
use orchestrator_web::request::WebRequest;
use serde_json::Value;

/// What an input is held against besides its schema.
#[derive(Clone, Copy, Debug)]
pub struct PlanContext<'a> {
    /// Where the zones lie.
    pub roots: &'a Roots,
    /// Where commands start that name no directory; `None` for the project root.
    pub directory: Option<&'a ZonePath>,
    /// What relative paths are relative to: the project root if `None`.
    pub paths_from: Option<&'a ZonePath>,
    /// The longest time that the policy gives a command, in seconds; above it, a number may mean milliseconds.
    pub timeout_max_s: u32,
}

impl PlanContext<'_> {
    /// A path as a person or a model wrote it.
    ///
    /// # Errors
    /// It is in neither zone.
    pub fn path(&self, text: &str) -> Result<ZonePath, PathError> {
        let named = ["/", "project:", "central:"].iter().any(|start| text.starts_with(start));
        match self.paths_from.filter(|_| !named) {
            // The text of a directory of a zone reads back as itself.
            Some(from) => ZonePath::new(from.zone(), &format!("{}/{text}", from.relative())),
            None => self.roots.parse(text),
        }
    }

    /// The directory of a command, where it is not the project root.
    ///
    /// # Errors
    /// It is in neither zone.
    pub fn directory(&self, asked: Option<&str>) -> Result<Option<ZonePath>, PathError> {
        asked.map_or(Ok(self.directory.cloned()), |text| self.path(text).map(Some))
    }
}

/// A plan, and the times that were asked for.
#[derive(Debug, PartialEq)]
pub struct Planned {
    /// What is to be done.
    pub plan: Plan,
    /// Compared with the times in force, for the result.
    pub times: AskedTimes,
    /// Fields of other systems that were given and change nothing here.
    pub without_effect: Vec<&'static str>,
}

impl Planned {
    /// What the result says of those fields.
    pub fn note(without_effect: &[&str]) -> Option<String> {
        let names = || without_effect.join(", ");
        (!without_effect.is_empty()).then(|| format!("[without effect here: {}]", names()))
    }
}

/// What a call asks for.
#[derive(Debug, PartialEq)]
pub enum Plan {
    /// One request to the broker.
    Request(Request),
    /// A read whose lines are shown with their numbers.
    NumberedRead(FileRead),
    /// A look at a file of state, or a change of it.
    State(StateCommand),
    /// An image file, in pieces.
    Image(ZonePath),
    /// Something from the internet, once the executor permits it.
    Web(WebRequest),
    /// A test suite: a command whose output is read.
    Tests {
        /// The runner.
        framework: Framework,
        /// Its command.
        command: Bash,
    },
    /// Several calls at once.
    Batch(Vec<Invocation>),
    /// Nothing: a thought.
    Thought,
    /// Nothing: the task is over, and this is its result.
    Finish(Value),
}

/// A call within a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Invocation {
    /// The tool's name as it was given.
    pub tool: String,
    /// Its input.
    pub input: Value,
}

impl Plan {
    /// The request that the broker decides on; of several, the one that weighs most. `None` where the broker has no part, or
    /// decides on each call of a batch by itself.
    pub fn decisive_request(self) -> Option<Request> {
        match self {
            Plan::Request(request) => Some(request),
            Plan::NumberedRead(read) => Some(Request::FileRead(read)),
            Plan::State(command) => {
                let tool = command.tool();
                let change = StateChange { content: Vec::new(), expected_sha256: None };
                Some(Request::State(State { tool, change: (!tool.only_reads()).then_some(change) }))
            }
            Plan::Image(path) => Some(Request::FileBytes(FileBytes { path, offset: 0, limit: 1 })),
            Plan::Web(request) => Some(Request::Effect(request.effect())),
            Plan::Tests { command, .. } => Some(Request::Bash(command)),
            Plan::Batch(_) | Plan::Thought | Plan::Finish(_) => None,
        }
    }
}
