//! Packs: the purpose of a run as configuration. Tools, instructions, how a task ends, and what its result must have.

use crate::limits::{LimitError, RunLimits};
use crate::provider::ToolDefinition;
use orchestrator_tools::catalogue::{CatalogueTool, matches, may_match};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use thiserror::Error;

/// The tool that ends a task.
pub(crate) const FINISH: &str = "finish_task";
/// The packs that are shipped.
const SHIPPED: [&str; 3] = [
    include_str!("../packs/engineering.toml"),
    include_str!("../packs/plan.toml"),
    include_str!("../packs/research.toml"),
];
/// Maximum bytes of a pack's instructions.
const PROMPT_MAX: usize = 64 << 10;

/// The purpose of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pack {
    pub name: String,
    /// The tools to list to the model, by name or by the beginning of their names before a `*`; all if absent. A pack only narrows.
    pub tools: Option<Vec<String>>,
    /// Instructions, added to those of every run.
    #[serde(default)]
    pub prompt: String,
    /// How the task ends; with text if absent.
    pub(crate) finish: Option<Finish>,
    /// Limits of its runs; they come before those of the user's settings.
    #[serde(default)]
    pub limits: RunLimits,
}

/// The result of a task: some of the fields of `finish_task`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Finish {
    /// The fields that it may have.
    pub fields: Vec<String>,
    /// The fields that it must have, not empty.
    #[serde(default)]
    pub(crate) required: Vec<String>,
    /// Values that are not accepted.
    #[serde(default)]
    pub rejected: Map<String, Value>,
    /// Whether a tool must have been used before.
    #[serde(default = "yes")]
    pub(crate) tool_used: bool,
    /// How often to ask the model again before accepting the result that there is.
    #[serde(default = "two")]
    pub(crate) reprompts: u32,
}

fn yes() -> bool {
    true
}

fn two() -> u32 {
    2
}

/// Why a pack is invalid.
#[derive(Debug, Error)]
pub enum PackError {
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    #[error("pack {pack:?}: there is no tool {tool:?}")]
    Tool { pack: String, tool: String },
    #[error("pack {pack:?}: finish_task has no field {field:?}")]
    Field { pack: String, field: String },
    #[error("pack {pack:?}: a prompt of {bytes} bytes; {PROMPT_MAX} are allowed")]
    Prompt { pack: String, bytes: usize },
    #[error("pack {pack:?}: {error}")]
    Limit { pack: String, error: LimitError },
    #[error("there is no pack {name:?}; there are {known}")]
    Unknown { name: String, known: String },
}

impl Pack {
    /// Parses a pack from TOML.
    ///
    /// # Errors
    /// If it names a tool or field that does not exist.
    pub fn parse(text: &str) -> Result<Self, PackError> {
        let pack: Self = toml::from_str(text)?;
        pack.check().map(|()| pack)
    }

    /// Checks that the tools and fields it names exist.
    ///
    /// # Errors
    /// The tool or field that does not exist.
    pub fn check(&self) -> Result<(), PackError> {
        let pack = self;
        let name = || pack.name.clone();
        if let Some(tool) = pack.tools.iter().flatten().find(|tool| !may_match(tool)) {
            return Err(PackError::Tool {
                pack: name(),
                tool: tool.clone(),
            });
        }
        if pack.prompt.len() > PROMPT_MAX {
            return Err(PackError::Prompt {
                pack: name(),
                bytes: pack.prompt.len(),
            });
        }
        pack.limits.check().map_err(|error| PackError::Limit {
            pack: name(),
            error,
        })?;
        if let Some(finish) = &pack.finish {
            let schema = full_schema();
            let rejected = finish.rejected.keys();
            let mut named = finish.fields.iter().chain(&finish.required).chain(rejected);
            if let Some(field) =
                named.find(|field| schema["properties"].get(field.as_str()).is_none())
            {
                return Err(PackError::Field {
                    pack: name(),
                    field: field.clone(),
                });
            }
        }
        Ok(())
    }

    /// The pack called `name`: one of `own`, or else a shipped one.
    ///
    /// # Errors
    /// If it does not exist or is invalid.
    pub fn named(name: &str, own: &[Pack]) -> Result<Self, PackError> {
        let shipped = SHIPPED
            .into_iter()
            .map(Self::parse)
            .collect::<Result<Vec<_>, _>>()?;
        let all = || own.iter().chain(&shipped);
        let known = || {
            all()
                .map(|pack| pack.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let found = all().find(|pack| pack.name == name).cloned();
        found.ok_or_else(|| PackError::Unknown {
            name: name.to_owned(),
            known: known(),
        })
    }

    /// Whether `tool` is listed to the model.
    pub fn has(&self, tool: &str) -> bool {
        match tool {
            FINISH => self.finish.is_some(),
            tool => self
                .tools
                .as_ref()
                .is_none_or(|tools| tools.iter().any(|own| matches(own, tool))),
        }
    }

    /// The first tool of a server that the pack names and that is not among the `listed` ones. A built-in tool may be missing: a
    /// scope, a rule or an option has closed it.
    pub fn missing(&self, listed: &[ToolDefinition]) -> Option<&str> {
        let has = |tool: &str| listed.iter().any(|listed| matches(tool, &listed.name));
        let mut of_servers = self.tools.iter().flatten().map(String::as_str);
        of_servers.find(|tool| tool.starts_with("mcp__") && !has(tool))
    }
}

/// The schema of `finish_task` with all its fields.
fn full_schema() -> Value {
    CatalogueTool::find(FINISH)
        .map(|tool| tool.to_json()["inputSchema"].take())
        .unwrap_or_default()
}

/// Whether a run has used a tool with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolUse {
    NoneYet,
    Some,
}

impl Finish {
    /// The schema of `finish_task` in this pack.
    pub(crate) fn schema(&self) -> Value {
        let mut schema = full_schema();
        if let Some(properties) = schema["properties"].as_object_mut() {
            properties.retain(|name, _| self.fields.contains(name) || self.required.contains(name));
        }
        schema["required"] = json!(self.required);
        schema
    }

    /// The first defect in the result of a task.
    pub(crate) fn check(&self, input: &Value, tools: ToolUse) -> Result<(), String> {
        if self.tool_used && tools == ToolUse::NoneYet {
            return Err("no tool was used: do the task before you end it".to_owned());
        }
        let is_missing = |field: &&String| match &input[field.as_str()] {
            Value::Null => true,
            Value::String(text) => text.trim().is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
        };
        let missing: Vec<&str> = self
            .required
            .iter()
            .filter(is_missing)
            .map(String::as_str)
            .collect();
        if !missing.is_empty() {
            return Err(format!("missing or empty: {}", missing.join(", ")));
        }
        match self
            .rejected
            .iter()
            .find(|(field, value)| input.get(field.as_str()) == Some(value))
        {
            Some((field, value)) => Err(format!("{field} is {value}: the task is not done yet")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packs_that_come_with_us_are_packs() {
        for name in ["engineering", "research"] {
            let pack = Pack::named(name, &[]).unwrap();
            let finish = pack.finish.as_ref().unwrap();
            assert_eq!(finish.schema()["required"], json!(finish.required));
            assert!(pack.has("file_read") && pack.has(FINISH) && pack.has("subagent"));
        }
        assert!(!Pack::named("research", &[]).unwrap().has("bash"));
        let unknown = Pack::named("x", &[]).unwrap_err().to_string();
        assert!(unknown.contains("engineering, plan, research"), "{unknown}");
        let plan = Pack::named("plan", &[]).unwrap();
        let changes = [
            "bash",
            "file_write",
            "file_edit",
            "run_tests",
            "batch",
            FINISH,
        ];
        assert!(plan.has("file_read") && !changes.iter().any(|tool| plan.has(tool)));
    }

    #[test]
    fn configuration_alone_adds_a_pack_and_what_it_names_must_exist() {
        let own =
            Pack::parse("name = \"docs\"\ntools = [\"file_read\", \"mcp__wiki__find\"]\n").unwrap();
        let found = Pack::named("docs", &[own]).unwrap();
        assert!(found.has("mcp__wiki__find") && !found.has("bash") && !found.has(FINISH));
        let patterns =
            Pack::parse("name = \"p\"\ntools = [\"file_*\", \"Grep\", \"mcp__wiki__*\"]\n")
                .unwrap();
        assert!(
            ["file_read", "file_write", "grep", "mcp__wiki__find"]
                .iter()
                .all(|tool| patterns.has(tool))
        );
        assert!(!patterns.has("glob") && !patterns.has("mcp__other__find"));
        assert_eq!(patterns.missing(&[]), Some("mcp__wiki__*"));
        for wrong in [
            "tools = []",
            "name = \"x\"\ntools = [\"no_such_tool\"]",
            "name = \"x\"\ntools = [\"no_such_*\"]",
            "name = \"x\"\nlimits = { max_turns = 0 }",
            "name = \"x\"\nurl = 1",
            "name = \"x\"\n[finish]\nfields = [\"summry\"]",
            "name = \"x\"\n[finish]\nfields = []\nrejected = { nothing = 1 }",
        ] {
            assert!(Pack::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_gates_of_engineering() {
        let finish = Pack::named("engineering", &[]).unwrap().finish.unwrap();
        let check = |input: Value, tools| finish.check(&input, tools).is_ok();
        assert!(check(
            json!({"summary": "s", "tests_verified": true}),
            ToolUse::Some
        ));
        assert!(check(json!({"summary": "s"}), ToolUse::Some));
        assert!(
            !check(json!({"summary": "s"}), ToolUse::NoneYet),
            "no tool was used"
        );
        assert!(
            !check(json!({"summary": " "}), ToolUse::Some),
            "a required field is empty"
        );
        assert!(
            !check(json!({"notes": "n"}), ToolUse::Some),
            "a required field is missing"
        );
        assert!(!check(
            json!({"summary": "s", "tests_verified": false}),
            ToolUse::Some
        ));
    }
}
