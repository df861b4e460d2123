//! Tools for the agent itself: batches, thoughts, subagents, images, test suites and the end of a task.

use super::web::target;
use crate::agent_call::{AgentCall, HotSwap, ReadReasoning};
use crate::input::{ToolInput, seconds};
use crate::input_error::{FieldError, InputError};
use crate::plan::{MemberInvocation, Plan, PlanContext};
use crate::subagent::Subagent;
use broker_protocol::{Bash, Framework, Stdin};
use orchestrator_reach::target::is_web_address;
use orchestrator_web::request::{TIMEOUT_S, ViewRequest, WebRequest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Maximum number of calls in a batch.
pub(crate) const INVOCATIONS_MAX: usize = 32;
/// Maximum characters of a list item.
const ITEM: usize = 2000;
/// Maximum number of list items.
const LIST: usize = 100;

/// Makes several calls that do not depend on each other at once, and returns all results in order. All are checked before the
/// first one runs, and each is allowed or refused by itself. Calls that change files run one after the other. A batch holds no
/// batch.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// What the calls are for, in a few words, for the user.
    #[serde(rename = "description")]
    #[schemars(length(min = 1, max = 1000))]
    _description: Option<String>,
    /// The calls.
    #[schemars(length(min = 1, max = INVOCATIONS_MAX))]
    invocations: Vec<BatchCall>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BatchCall {
    /// The tool.
    #[schemars(length(min = 1, max = 128))]
    tool_name: String,
    /// Its input.
    #[serde(default)]
    parameters: Map<String, Value>,
}

impl ToolInput for Batch {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        let call = |call: BatchCall| MemberInvocation {
            tool: call.tool_name,
            input: call.parameters.into(),
        };
        Ok(Plan::Batch(
            self.invocations.into_iter().map(call).collect(),
        ))
    }
}

/// Notes a thought. It has no effect.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Thinking {
    /// The thought.
    #[serde(rename = "thought")]
    #[schemars(length(min = 1, max = 20_000))]
    _thought: String,
}

impl ToolInput for Thinking {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        Ok(Plan::Thought)
    }
}

impl ToolInput for Subagent {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        if self.question.trim().is_empty() {
            let rule = "a question".to_owned();
            return Err(FieldError::Rule {
                name: "question".into(),
                rule,
                found: "white space".into(),
            }
            .into());
        }
        Ok(Plan::Agent(AgentCall::Subagent(self)))
    }
}

impl ToolInput for ReadReasoning {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        Ok(Plan::Agent(AgentCall::ReadReasoning(self)))
    }
}

impl ToolInput for HotSwap {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        Ok(Plan::Agent(AgentCall::HotSwap(self)))
    }
}

/// Ends the task and hands over its result.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FinishTask {
    /// What was done, or found out.
    #[schemars(length(min = 1, max = 8000))]
    summary: String,
    /// Whether the tests ran and passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    tests_verified: Option<bool>,
    /// Files or other things that came of it.
    #[schemars(length(max = LIST), inner(length(min = 1, max = ITEM)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    artifacts: Option<Vec<String>>,
    /// Steps that are left.
    #[schemars(length(max = LIST), inner(length(min = 1, max = ITEM)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    next_steps: Option<Vec<String>>,
    /// What else is worth knowing.
    #[schemars(length(min = 1, max = 8000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<String>,
    /// What was found out, each in a sentence or two.
    #[schemars(length(max = LIST), inner(length(min = 1, max = ITEM)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    key_findings: Option<Vec<String>>,
    /// Sources.
    #[schemars(length(max = LIST))]
    #[serde(skip_serializing_if = "Option::is_none")]
    citations: Option<Vec<Citation>>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Citation {
    /// Where it stands.
    #[schemars(length(min = 1, max = 2000))]
    url: String,
    /// What it is a source for.
    #[schemars(length(min = 1, max = 1000))]
    claim: String,
    /// When it was read.
    #[schemars(length(min = 1, max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    fetched_at: Option<String>,
}

impl ToolInput for FinishTask {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        // A struct of strings and lists always has a JSON form.
        Ok(Plan::Finish(serde_json::to_value(self).unwrap_or_default()))
    }
}

/// Shows an image: PNG, JPEG, GIF or WebP, of at most 5 MB. It is a file, or is fetched from an address, which is allowed where
/// `web_fetch` is; a redirection is not followed but named.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ViewImage {
    /// A file: absolute, or relative to the project root; `central:` before it means the central root. Or an address, with
    /// https://.
    path: String,
}

impl ToolInput for ViewImage {
    /// A path may begin with `file://`. To name a file below a directory called `https:`, a path has to begin differently
    /// (`./https:`).
    fn plan(self, context: &PlanContext<'_>) -> Result<Plan, InputError> {
        if is_web_address(&self.path) {
            let target = target("path", &self.path)?;
            return Ok(Plan::Web(WebRequest::View(ViewRequest {
                target,
                timeout_s: TIMEOUT_S,
            })));
        }
        Ok(Plan::Image(context.path(
            self.path.strip_prefix("file://").unwrap_or(&self.path),
        )?))
    }
}

/// Runs the tests of the project, or of a directory in it, and says how many passed and failed. It is a command like any
/// other: what the policy says of `bash` holds for it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunTests {
    /// auto if absent: by the files that are there.
    #[schemars(extend("enum" = Framework::NAMES))]
    framework: Option<String>,
    /// The directory to run them in; where the session's commands start if absent: mostly the project root.
    path: Option<String>,
    /// Time limit in seconds; the policy's maximum is never exceeded.
    #[schemars(range(min = 1))]
    timeout: Option<u64>,
}

impl ToolInput for RunTests {
    fn plan(self, context: &PlanContext<'_>) -> Result<Plan, InputError> {
        let framework = Framework::named(self.framework.as_deref());
        let command = Bash {
            command: framework.command(),
            directory: context.directory(self.path.as_deref())?,
            timeout_s: seconds(self.timeout),
            idle_timeout_s: None,
            stdin: Stdin::Null,
            live: false,
            background: false,
            split: false,
            attended: false,
        };
        Ok(Plan::Tests { framework, command })
    }
}
