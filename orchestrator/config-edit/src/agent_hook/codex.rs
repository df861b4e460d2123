//! Codex 0.169.0: `PreToolUse`. It accepts a changed input only with `allow`.

use crate::agent_hook::shape::{self, HookShape};

/// The protocol between Codex and its hook.
pub const SHAPE: HookShape = HookShape {
    tool: ("tool_name", &["Bash"]),
    other_shells: &[],
    input: "tool_input",
    command: "command",
    asks: false,
    answer: shape::claude,
};
