//! Copilot CLI: `preToolUse`. The tool's arguments come as an object or as its JSON text.

use crate::agent_hook::shape::{AgentHookAnswer, HookShape};
use serde_json::{Map, Value, json};

/// The protocol between Copilot CLI and its hook.
pub const SHAPE: HookShape = HookShape {
    tool: ("toolName", &["bash", "shell"]),
    other_shells: &["powershell"],
    input: "toolArgs",
    command: "command",
    asks: false,
    answer,
};

fn answer(answer: AgentHookAnswer, input: Map<String, Value>) -> Value {
    let mut said = json!({ "permissionDecision": answer.word });
    if let Some(why) = answer.why {
        said["permissionDecisionReason"] = json!(why);
    }
    if !input.is_empty() {
        said["modifiedArgs"] = Value::Object(input);
    }
    said
}
