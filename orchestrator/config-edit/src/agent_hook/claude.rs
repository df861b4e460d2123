//! Claude Code 2.1.330: `PreToolUse`. It accepts a changed input with `ask` too, and shows it in the question.

use crate::agent_hook::shape::{self, HookShape};

/// The protocol between Claude Code and its hook.
pub const SHAPE: HookShape = HookShape {
    tool: ("tool_name", &["Bash", "Monitor"]),
    other_shells: &["PowerShell"],
    input: "tool_input",
    command: "command",
    asks: true,
    answer: shape::claude,
};
