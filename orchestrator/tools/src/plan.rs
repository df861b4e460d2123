//! What a call requests once its input is checked: usually one [`Request`].

use crate::agent_call::AgentCall;
use crate::state::StateCommand;
use crate::timeouts::AskedTimes;
use broker_protocol::{
    Bash, FileBytes, FileRead, Framework, PathError, Request, Roots, State, StateChange, ZonePath,
};
use orchestrator_web::request::WebRequest;
use serde_json::Value;
use std::borrow::Cow;

/// The context in which an input is interpreted, besides its schema.
#[derive(Clone, Copy, Debug)]
pub struct PlanContext<'a> {
    /// Locations of the two zones.
    pub roots: &'a Roots,
    /// Other absolute paths of the project root, through links.
    pub names: &'a [String],
    /// The working directory of commands that name none; `None` for the project root.
    pub directory: Option<&'a ZonePath>,
    /// The base of relative paths: the project root if `None`.
    pub paths_from: Option<&'a ZonePath>,
}

impl PlanContext<'_> {
    /// Parses a path as a person or a model wrote it.
    ///
    /// # Errors
    /// If it lies in neither zone.
    pub fn path(&self, text: &str) -> Result<ZonePath, PathError> {
        let named = ["/", "project:", "central:"]
            .iter()
            .any(|start| text.starts_with(start));
        match self.paths_from.filter(|_| !named) {
            // A directory of a zone, written as text, parses back to itself.
            Some(from) => ZonePath::new(from.zone(), &format!("{}/{text}", from.relative())),
            None => self.roots.parse(&self.in_project(text)),
        }
    }

    /// The text with the project's own path in place of another one that leads there.
    fn in_project<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let below = |name: &String| {
            let rest = text.strip_prefix(name.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then_some(rest)
        };
        match self.names.iter().find_map(below) {
            Some(rest) => format!("{}{rest}", self.roots.project).into(),
            None => text.into(),
        }
    }

    /// The directory of a command, if it is not the project root.
    ///
    /// # Errors
    /// If it lies in neither zone.
    pub fn directory(&self, asked: Option<&str>) -> Result<Option<ZonePath>, PathError> {
        asked.map_or(Ok(self.directory.cloned()), |text| {
            self.path(text).map(Some)
        })
    }
}

/// A plan with the time limits that the input requested.
#[derive(Debug, PartialEq)]
pub struct Planned {
    pub plan: Plan,
    /// Compared with the limits in force, for the result.
    pub times: AskedTimes,
    /// Fields of other agents in the input that have no effect here.
    pub(crate) without_effect: Vec<&'static str>,
}

impl Planned {
    /// The note in the result about fields without effect.
    pub fn note(without_effect: &[&str]) -> Option<String> {
        let names = || without_effect.join(", ");
        (!without_effect.is_empty()).then(|| format!("[without effect here: {}]", names()))
    }
}

/// What a call requests.
#[derive(Debug, PartialEq)]
pub enum Plan {
    /// One request to the broker.
    Request(Request),
    /// A read whose lines are shown with their numbers.
    NumberedRead(FileRead),
    /// A read or a change of a state file.
    State(StateCommand),
    /// An image file, in pieces.
    Image(ZonePath),
    /// A request to the internet, made after the executor permits it.
    Web(WebRequest),
    /// A test suite: a command whose output is parsed.
    Tests { framework: Framework, command: Bash },
    /// Several calls at once.
    Batch(Vec<MemberInvocation>),
    /// A call about the agent itself, carried out by the front end after the executor permits it.
    Agent(AgentCall),
    /// No request: a thought.
    Thought,
    /// No request: the task has ended with this result.
    Finish(Value),
}

/// A call within a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberInvocation {
    /// The tool's name as it was given.
    pub tool: String,
    pub input: Value,
}

impl Plan {
    /// The request that the broker decides on; of several, the most dangerous one. `None` if the broker has no part in the call, or
    /// decides on each call of a batch.
    pub fn decisive_request(self) -> Option<Request> {
        match self {
            Plan::Request(request) => Some(request),
            Plan::NumberedRead(read) => Some(Request::FileRead(read)),
            Plan::State(command) => {
                let tool = command.tool();
                let change = StateChange {
                    content: Vec::new(),
                    expected_sha256: None,
                };
                Some(Request::State(State {
                    tool,
                    change: (!tool.only_reads()).then_some(change),
                }))
            }
            Plan::Image(path) => Some(Request::FileBytes(FileBytes {
                path,
                offset: 0,
                limit: 1,
            })),
            Plan::Web(request) => Some(Request::Effect(request.effect())),
            Plan::Tests { command, .. } => Some(Request::Bash(command)),
            Plan::Agent(call) => Some(Request::Effect(call.effect())),
            Plan::Batch(_) | Plan::Thought | Plan::Finish(_) => None,
        }
    }
}
