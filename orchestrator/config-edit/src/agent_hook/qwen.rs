//! Qwen Code 0.24.4: `PreToolUse`. It respects a refusal, but runs everything else as the model wrote it, even if the answer has a
//! changed input: so nothing is allowed.

use crate::agent_hook::shape::{self, AgentHookAnswer, HookShape};
use serde_json::{Map, Value};

/// The protocol between Qwen Code and its hook.
pub const SHAPE: HookShape = HookShape {
    tool: ("tool_name", &["run_shell_command", "Bash"]),
    other_shells: &[],
    input: "tool_input",
    command: "command",
    asks: false,
    answer,
};

/// The reason for the model: if our server is installed too, it finds a tool that works.
const WHY: &str = "Qwen Code runs a command as it is written, so a hook cannot put it into a cell. Use the tool bash of the server \
                   lazaret, which `lazaret install qwen` sets up.";

fn answer(answer: AgentHookAnswer, input: Map<String, Value>) -> Value {
    let answer = if input.is_empty() {
        answer
    } else {
        AgentHookAnswer {
            word: "deny",
            why: Some(WHY),
        }
    };
    shape::claude(answer, Map::new())
}
