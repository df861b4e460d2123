//! Gemini CLI 0.61.0: `BeforeTool`. What is answered is merged into the tool's input. That it does so with `ask` was not seen.

use crate::hook::shape::{Answer, Shape};
use serde_json::{Map, Value, json};

/// How Gemini CLI asks its hook.
pub const SHAPE: Shape = Shape {
    tool: ("tool_name", &["run_shell_command"]),
    other_shells: &[],
    input: "tool_input",
    command: "command",
    asks: false,
    answer,
};

fn answer(answer: Answer, input: Map<String, Value>) -> Value {
    let mut said = json!({ "decision": answer.word });
    if let Some(why) = answer.why {
        said["reason"] = json!(why);
    }
    if !input.is_empty() {
        said["hookSpecificOutput"] = json!({ "hookEventName": "BeforeTool", "tool_input": input });
    }
    said
}
