//! Qwen Code 0.24.4: `PreToolUse`. That it takes another input with `ask` was not seen.

use crate::hook::shape::{self, Shape};

/// How Qwen Code asks its hook.
pub const SHAPE: Shape = Shape {
    tool: ("tool_name", &["run_shell_command", "Bash"]),
    input: "tool_input",
    command: "command",
    asks: false,
    answer: shape::claude,
};
