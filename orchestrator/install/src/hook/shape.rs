//! What agents call the same things: names of fields, and the form of an answer.

use crate::hook::call::{Decision, ShellCall};
use serde_json::{Map, Value, json};

/// The names of one agent.
pub struct Shape {
    /// The field with the tool's name, and the names of tools that are a shell.
    pub tool: (&'static str, &'static [&'static str]),
    /// Tools that run command lines of another language: none of them can be read, and so none is run.
    pub other_shells: &'static [&'static str],
    /// The field with the tool's input: an object, or the text of one.
    pub input: &'static str,
    /// The field of the input with the command line.
    pub command: &'static str,
    /// Whether the agent asks its user, and still runs what was put in the command's place.
    pub asks: bool,
    /// The answer for a decision, with the tool's input as it is to be.
    pub answer: fn(Answer, Map<String, Value>) -> Value,
}

/// A decision in the words of most agents.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// `allow`, `ask` or `deny`.
    pub word: &'static str,
    /// Why, where it is not `allow`.
    pub why: Option<&'a str>,
}

/// What a call is.
#[derive(Debug, PartialEq)]
pub enum Reading {
    /// A command for a shell.
    Shell(ShellCall),
    /// A call of a tool that runs no command line.
    OtherTool,
    /// A command in a language that a cell has no shell for.
    OtherShell,
    /// None of a form that is known: what it would run cannot be said.
    Unknown(&'static str),
}

impl Shape {
    /// What `call` is.
    pub fn read(&self, call: &Value) -> Reading {
        let (field, shells) = self.tool;
        let Some(tool) = call[field].as_str() else { return Reading::Unknown("it names no tool") };
        if self.other_shells.contains(&tool) {
            return Reading::OtherShell;
        }
        if !shells.contains(&tool) {
            return Reading::OtherTool;
        }
        let input = match &call[self.input] {
            Value::Object(input) => Some(input.clone()),
            Value::String(text) => serde_json::from_str(text).ok(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
        };
        let Some(input) = input else { return Reading::Unknown("the tool's input is no object") };
        let Some(command) = input.get(self.command).and_then(Value::as_str) else {
            return Reading::Unknown("the tool's input has no command line");
        };
        Reading::Shell(ShellCall {
            command: command.to_owned(),
            directory: call["cwd"].as_str().map(Into::into),
            plans_only: call["permission_mode"] == "plan",
            input,
        })
    }

    /// The answer to `call`.
    pub fn answer(&self, call: &ShellCall, decision: &Decision) -> Value {
        let with = |command: &str| {
            let mut input = call.input.clone();
            input.insert(self.command.to_owned(), json!(command));
            input
        };
        match decision {
            Decision::Allow { command } => (self.answer)(Answer { word: "allow", why: None }, with(command)),
            Decision::Ask { command, why } if self.asks => {
                (self.answer)(Answer { word: "ask", why: Some(why) }, with(command))
            }
            // With a question of its own, it might run what it was given first.
            Decision::Ask { why, .. } => self.deny(&format!(
                "{why} This agent cannot ask for it here: allow it in the policy, or use a session of lower trust."
            )),
            Decision::Deny { why } => self.deny(why),
        }
    }

    /// The answer to a command of another shell.
    pub fn refuse_other_shell(&self) -> Value {
        self.deny("Commands run by bash, in a cell; this tool runs them by another shell, and outside of one. Use the tool for bash.")
    }

    /// The answer to what is not understood, or cannot be decided.
    pub fn refuse(&self, why: &str) -> Value {
        self.deny(&format!("lazaret does not run this call: {why}"))
    }

    fn deny(&self, why: &str) -> Value {
        (self.answer)(Answer { word: "deny", why: Some(why) }, Map::new())
    }
}

/// The answer of Claude Code's hooks, and of those that were made after them.
pub fn claude(answer: Answer, input: Map<String, Value>) -> Value {
    let mut output = json!({ "hookEventName": "PreToolUse", "permissionDecision": answer.word });
    if let Some(why) = answer.why {
        output["permissionDecisionReason"] = json!(why);
    }
    if !input.is_empty() {
        output["updatedInput"] = Value::Object(input);
    }
    json!({ "hookSpecificOutput": output })
}
