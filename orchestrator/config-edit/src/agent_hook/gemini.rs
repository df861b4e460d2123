//! Gemini CLI 0.61.0: `BeforeTool`. It merges the answer into the tool's input. Whether it does so with `ask` was not tested.

use crate::agent_hook::shape::{AgentHookAnswer, HookShape};
use serde_json::{Map, Value, json};

/// The protocol between Gemini CLI and its hook.
pub const SHAPE: HookShape = HookShape {
    tool: ("tool_name", &["run_shell_command"]),
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
        said["hookSpecificOutput"] = json!({ "hookEventName": "BeforeTool", "tool_input": input });
    }
    said
}
