//! Crush 0.96: `PreToolUse`, matcher `^bash$`. Its subagents call no hook.

use crate::agent_hook::shape::{AgentHookAnswer, HookShape};
use serde_json::{Map, Value, json};

/// The protocol between Crush and its hook.
pub const SHAPE: HookShape = HookShape {
    tool: ("tool_name", &["bash"]),
    other_shells: &[],
    input: "tool_input",
    command: "command",
    asks: false,
    answer,
};

fn answer(answer: AgentHookAnswer, input: Map<String, Value>) -> Value {
    let mut said = json!({ "decision": answer.word });
    if let Some(why) = answer.why {
        said["reason"] = json!(why);
    }
    if !input.is_empty() {
        said["updated_input"] = Value::Object(input);
    }
    said
}
