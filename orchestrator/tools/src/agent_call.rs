//! Calls about the agent itself: planned here, permitted by the executor, carried out by a front end with models.

use crate::subagent::{SUBAGENT, Subagent};
use broker_protocol::{Effect, Risk};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Reads the model's own thoughts again.
pub const READ_REASONING: &str = "read_reasoning";
/// Changes the instructions of the conversation, and may begin it anew.
pub const HOT_SWAP: &str = "trigger_hot_swap";
/// The tools that only a front end with models has.
pub(crate) const AGENT_TOOLS: [&str; 3] = [SUBAGENT, READ_REASONING, HOT_SWAP];

/// Maximum number of thoughts that one call returns.
const TRACES_MAX: u32 = 50;
/// Maximum number of skills at once.
const SKILLS_MAX: usize = 8;
/// Maximum characters of a skill's name.
const SKILL_NAME: usize = 64;

/// A call about the agent itself.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentCall {
    Subagent(Subagent),
    ReadReasoning(ReadReasoning),
    HotSwap(HotSwap),
}

/// Returns your earlier thoughts of this conversation, newest first.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadReasoning {
    /// Only the thought with this number.
    #[schemars(range(min = 1))]
    pub trace_id: Option<u32>,
    /// How many; 5 if absent.
    #[schemars(range(min = 1, max = TRACES_MAX))]
    pub limit: Option<u32>,
    /// Whether also those from before the conversation was begun anew.
    #[serde(default)]
    pub include_archived: bool,
}

/// Changes which skills guide you: instructions that the user has written for a kind of work, each named like a pack. Without the
/// history, the conversation begins anew with what the user has said; save what you need with `memory` or `checkpoint` first.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HotSwap {
    /// The skills from now on, in place of those before; these stay if absent.
    #[schemars(length(max = SKILLS_MAX), inner(length(min = 1, max = SKILL_NAME)))]
    pub skills: Option<Vec<String>>,
    /// Whether your answers, calls and their results stay; true if absent.
    pub preserve_history: Option<bool>,
}

impl AgentCall {
    /// The canonical name of its tool.
    pub fn tool(&self) -> &'static str {
        match self {
            AgentCall::Subagent(_) => SUBAGENT,
            AgentCall::ReadReasoning(_) => READ_REASONING,
            AgentCall::HotSwap(_) => HOT_SWAP,
        }
    }

    /// Its input as the tool takes it.
    pub fn input(&self) -> Value {
        match self {
            AgentCall::Subagent(input) => json!(input),
            AgentCall::ReadReasoning(input) => json!(input),
            AgentCall::HotSwap(input) => json!(input),
        }
    }

    /// The effect that the executor decides on. Each call of a subagent is decided on by itself.
    pub fn effect(&self) -> Effect {
        Effect::Added {
            tool: self.tool().to_owned(),
            risk: Risk::Low,
            input: self.input().to_string(),
        }
    }
}
