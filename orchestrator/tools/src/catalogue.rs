//! The built-in tools, as data. Policies, results and the audit know a tool by its canonical name.
//!
//! To add a tool, add the struct of its input with its plan in [`inputs`], and a row here.

use crate::agent_call::{HOT_SWAP, HotSwap, READ_REASONING, ReadReasoning};
use crate::aliases;
use crate::input::{ToolInput, schema_of};
use crate::input_error::{FieldError, InputError};
use crate::inputs;
use crate::plan::{Plan, PlanContext, Planned};
use crate::schema::Schema;
use crate::subagent::{SUBAGENT, Subagent};
use crate::timeouts::AskedTimes;
use broker_protocol::{Request, Risk};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// What a tool works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolCategory {
    /// Files of the two zones.
    File,
    Exec,
    /// Names and contents of many files.
    Search,
    /// Pages of the internet.
    Web,
    /// The agent's own notes, and several calls in one.
    Agent,
    /// A tool of a client or of a server.
    Remote,
}

impl ToolCategory {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ToolCategory::File => "file",
            ToolCategory::Exec => "exec",
            ToolCategory::Search => "search",
            ToolCategory::Web => "web",
            ToolCategory::Agent => "agent",
            ToolCategory::Remote => "remote",
        }
    }
}

pub struct CatalogueTool {
    pub name: &'static str,
    /// What it works on.
    pub category: ToolCategory,
    /// How much harm it can do.
    pub risk: Risk,
    input: LazyLock<InputType>,
}

/// What the struct of an input provides for its tool.
struct InputType {
    /// The tool's description for the model: what it does and when to use it.
    description: String,
    schema: Schema,
    plan: fn(Value, &PlanContext<'_>) -> Result<Plan, InputError>,
}

/// Several calls in one.
pub const BATCH: &str = "batch";
/// Tools for which the executor, which decides on approvals, is never asked: they change nothing. For the calls of a batch it
/// decides on each one.
pub const UNASKED: [&str; 3] = [BATCH, "thinking", "finish_task"];

/// All built-in tools, in the order in which they are listed.
pub static TOOLS: [CatalogueTool; 28] = [
    row::<inputs::Bash>("bash", ToolCategory::Exec, Risk::High),
    row::<inputs::FileRead>("file_read", ToolCategory::File, Risk::Low),
    row::<inputs::FileWrite>("file_write", ToolCategory::File, Risk::Medium),
    row::<inputs::FileEdit>("file_edit", ToolCategory::File, Risk::Medium),
    row::<inputs::FileList>("file_list", ToolCategory::File, Risk::Low),
    row::<inputs::Glob>("glob", ToolCategory::Search, Risk::Low),
    row::<inputs::Grep>("grep", ToolCategory::Search, Risk::Low),
    row::<inputs::BackgroundList>("background_list", ToolCategory::Exec, Risk::Low),
    row::<inputs::BackgroundLog>("background_log", ToolCategory::Exec, Risk::Low),
    row::<inputs::BackgroundKill>("background_kill", ToolCategory::Exec, Risk::Low),
    row::<inputs::Batch>(BATCH, ToolCategory::Agent, Risk::Low),
    row::<inputs::TodoRead>("todo_read", ToolCategory::Agent, Risk::Low),
    row::<inputs::TodoWrite>("todo_write", ToolCategory::Agent, Risk::Low),
    row::<inputs::Memory>("memory", ToolCategory::Agent, Risk::Low),
    row::<inputs::GoalCreate>("goal_create", ToolCategory::Agent, Risk::Low),
    row::<inputs::GoalSwitch>("goal_switch", ToolCategory::Agent, Risk::Low),
    row::<inputs::GoalComplete>("goal_complete", ToolCategory::Agent, Risk::Low),
    row::<inputs::GoalList>("goal_list", ToolCategory::Agent, Risk::Low),
    row::<inputs::Checkpoint>("checkpoint", ToolCategory::Agent, Risk::Low),
    row::<inputs::Thinking>("thinking", ToolCategory::Agent, Risk::Low),
    row::<inputs::FinishTask>("finish_task", ToolCategory::Agent, Risk::Low),
    row::<Subagent>(SUBAGENT, ToolCategory::Agent, Risk::Low),
    row::<ReadReasoning>(READ_REASONING, ToolCategory::Agent, Risk::Low),
    row::<HotSwap>(HOT_SWAP, ToolCategory::Agent, Risk::Low),
    row::<inputs::ViewImage>("view_image", ToolCategory::File, Risk::Low),
    row::<inputs::RunTests>("run_tests", ToolCategory::Exec, Risk::High),
    row::<inputs::WebSearch>("web_search", ToolCategory::Web, Risk::Low),
    row::<inputs::WebFetch>("web_fetch", ToolCategory::Web, Risk::Low),
];

const fn row<I: ToolInput>(
    name: &'static str,
    category: ToolCategory,
    risk: Risk,
) -> CatalogueTool {
    CatalogueTool {
        name,
        category,
        risk,
        input: LazyLock::new(input::<I>),
    }
}

fn input<I: ToolInput>() -> InputType {
    let mut schema = schema_of::<I>();
    let described = schema
        .as_object_mut()
        .and_then(|schema| schema.remove("description"));
    schema.sort_all_objects();
    let description = described
        .as_ref()
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let plan = |value: Value, context: &PlanContext<'_>| {
        // The schema accepted it, so this fails only if struct and schema differ.
        let input: I = serde_json::from_value(value).map_err(|error| FieldError::Rule {
            name: "input".into(),
            rule: error.to_string(),
            found: "an input that its schema permits".into(),
        })?;
        input.plan(context)
    };
    // A test compiles all schemas.
    #[expect(clippy::expect_used, reason = "it comes from a struct of this crate")]
    InputType {
        description,
        schema: Schema::built_in(schema).expect("the schema of a built-in tool"),
        plan,
    }
}

impl CatalogueTool {
    /// The tool with this name or alias.
    pub fn find(name: &str) -> Option<&'static CatalogueTool> {
        let name = policies::tool::canonical(name)?;
        TOOLS.iter().find(|tool| tool.name == name)
    }

    /// Gives the fields of an input the tool's own names and forms; returns the names of known fields without effect.
    ///
    /// # Errors
    /// See [`aliases::translate`].
    pub(crate) fn translate(&self, input: &mut Value) -> Result<Vec<&'static str>, FieldError> {
        let Value::Object(fields) = input else {
            return Ok(Vec::new());
        };
        let properties = self.input.schema.value()["properties"].as_object();
        let own = |name: &str| properties.is_some_and(|properties| properties.contains_key(name));
        let without_effect = aliases::translate(self.name, &own, fields)?;
        normalize_integers(fields, self.input.schema.value());
        Ok(without_effect)
    }

    /// The plan of a call with this input. No call that fails here reaches the executor.
    ///
    /// # Errors
    /// Any error in the input; see [`Schema::check`] for the order.
    pub fn plan(&self, mut input: Value, context: &PlanContext<'_>) -> Result<Planned, InputError> {
        let mut times = AskedTimes::default();
        let without_effect = self.translate(&mut input)?;
        if let Value::Object(fields) = &mut input {
            times = AskedTimes::take(fields)?;
        }
        self.input.schema.check(&input)?;
        let plan = (self.input.plan)(input, context)?;
        match &plan {
            Plan::Request(request) => request.check()?,
            Plan::NumberedRead(read) => Request::FileRead(read.clone()).check()?,
            _ => {}
        }
        Ok(Planned {
            plan,
            times,
            without_effect,
        })
    }

    /// The tool as an entry of the JSON list of tools.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "description": self.input.description,
            "inputSchema": self.input.schema.value(),
            "category": self.category.name(),
            "risk": self.risk.name(),
            "aliases": policies::tool::aliases(self.name),
        })
    }
}

/// The canonical name of a built-in tool.
pub fn canonical(name: &str) -> Option<&'static str> {
    CatalogueTool::find(name).map(|tool| tool.name)
}

/// Whether `pattern` names the tool `name`: one of its names, or the beginning of its name before a `*`.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => canonical(pattern).unwrap_or(pattern) == name,
    }
}

/// Whether a pattern matches a built-in tool, or may match one of a server.
pub fn may_match(pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => {
            let is_fit = |name: &str| name.starts_with(beginning);
            beginning.starts_with("mcp__")
                || is_fit("mcp__")
                || TOOLS.iter().any(|tool| is_fit(tool.name))
        }
        None => pattern.starts_with("mcp__") || canonical(pattern).is_some(),
    }
}

/// The name of a tool in the executor and in rules.
pub fn policy_name(tool: &str) -> &str {
    if tool == broker_protocol::Framework::TOOL {
        "bash"
    } else {
        tool
    }
}

/// Converts whole numbers to integers where the schema requires them: to JSON Schema `5.0` is an integer.
fn normalize_integers(fields: &mut Map<String, Value>, schema: &Value) {
    for (name, value) in fields {
        let schema = &schema["properties"][name];
        match (schema["type"].as_str(), value) {
            (Some("integer"), value) => {
                let whole = value
                    .as_f64()
                    .filter(|number| number.fract() == 0.0 && (0.0..9e15).contains(number));
                if let (true, Some(whole)) = (value.is_f64(), whole) {
                    *value = (whole as u64).into();
                }
            }
            (Some("array"), Value::Array(items)) => {
                let objects = items.iter_mut().filter_map(Value::as_object_mut);
                objects.for_each(|fields| normalize_integers(fields, &schema["items"]));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
