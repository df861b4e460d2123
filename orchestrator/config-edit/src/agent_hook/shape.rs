//! The agents' different names for the same things: fields, and the form of an answer.

use crate::agent_hook::call::{HookDecision, ShellCall};
use serde_json::{Map, Value, json};

/// The protocol of one agent.
pub struct HookShape {
    /// The field with the tool's name, and the names of tools that are shells.
    pub tool: (&'static str, &'static [&'static str]),
    /// Tools that run command lines in another language: we cannot parse these, so they are refused.
    pub(crate) other_shells: &'static [&'static str],
    /// The field with the tool's input: an object, or its JSON text.
    pub input: &'static str,
    /// The field of the input with the command line.
    pub command: &'static str,
    /// Whether the agent can ask its user and then run the changed command.
    pub asks: bool,
    /// Builds the answer for a decision, with the tool's new input.
    pub answer: fn(AgentHookAnswer, Map<String, Value>) -> Value,
}

/// A decision in the terms that most agents use.
#[derive(Clone, Copy, Debug)]
pub struct AgentHookAnswer<'a> {
    /// One of `allow`, `ask` and `deny`.
    pub word: &'static str,
    /// The reason, unless it is `allow`.
    pub why: Option<&'a str>,
}

/// The kind of a call.
#[derive(Debug, PartialEq)]
pub enum HookCallKind {
    /// A command for a shell.
    Shell(ShellCall),
    /// A call of a tool that runs no command line.
    OtherTool,
    /// A command in a language for which a cell has no shell.
    OtherShell,
    /// A call of unknown form: what it would run is unknown.
    Unknown(&'static str),
}

impl HookShape {
    pub fn read(&self, call: &Value) -> HookCallKind {
        let (field, shells) = self.tool;
        let Some(tool) = call[field].as_str() else {
            return HookCallKind::Unknown("it names no tool");
        };
        if self.other_shells.contains(&tool) {
            return HookCallKind::OtherShell;
        }
        if !shells.contains(&tool) {
            return HookCallKind::OtherTool;
        }
        let input = match &call[self.input] {
            Value::Object(input) => Some(input.clone()),
            Value::String(text) => serde_json::from_str(text).ok(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
        };
        let Some(input) = input else {
            return HookCallKind::Unknown("the tool's input is not an object");
        };
        let Some(command) = input.get(self.command).and_then(Value::as_str) else {
            return HookCallKind::Unknown("the tool's input has no command line");
        };
        HookCallKind::Shell(ShellCall {
            command: command.to_owned(),
            directory: call["cwd"].as_str().map(Into::into),
            plans_only: call["permission_mode"] == "plan",
            input,
        })
    }

    pub fn answer(&self, call: &ShellCall, decision: &HookDecision) -> Value {
        let with = |command: &str| {
            let mut input = call.input.clone();
            input.insert(self.command.to_owned(), json!(command));
            input
        };
        match decision {
            HookDecision::Allow { command } => (self.answer)(AgentHookAnswer { word: "allow", why: None }, with(command)),
            HookDecision::Ask { command, why } if self.asks => {
                (self.answer)(AgentHookAnswer { word: "ask", why: Some(why) }, with(command))
            }
            // If it has a question of its own, the agent might run the original command.
            HookDecision::Ask { why, .. } => self.deny(&format!(
                "{why} This agent cannot ask for it here: allow it in the policy, or use a session of lower trust."
            )),
            HookDecision::Deny { why } => self.deny(why),
        }
    }

    /// The refusal of a command for another shell.
    pub fn refuse_other_shell(&self) -> Value {
        self.deny("Commands run in a cell, by bash; this tool would run them outside of it, by another shell. Use the tool for bash.")
    }

    /// The refusal of a call that is not understood or cannot be decided.
    pub fn refuse(&self, why: &str) -> Value {
        self.deny(&format!("lazaret does not run this call: {why}"))
    }

    fn deny(&self, why: &str) -> Value {
        (self.answer)(
            AgentHookAnswer {
                word: "deny",
                why: Some(why),
            },
            Map::new(),
        )
    }
}

/// The answer for Claude Code's hooks, and for those modelled on them.
pub(crate) fn claude(answer: AgentHookAnswer, input: Map<String, Value>) -> Value {
    let mut output = json!({ "hookEventName": "PreToolUse", "permissionDecision": answer.word });
    if let Some(why) = answer.why {
        output["permissionDecisionReason"] = json!(why);
    }
    if !input.is_empty() {
        output["updatedInput"] = Value::Object(input);
    }
    json!({ "hookSpecificOutput": output })
}
