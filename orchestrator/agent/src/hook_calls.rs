//! Applies hooks in a run: before its session and each call, and after each call.

use crate::error::ProviderError;
use crate::event::Body;
use crate::hooks::{
    HookAnswer, HookEvent, HookOutcome, HookRan, HookedCall, HookedFile, HookedResult, Occasion,
    SessionHooks,
};
use crate::message::{ToolAnswer, ToolCall};
use crate::run::Run;
use broker_protocol::{ErrorKind, Failed};
use orchestrator_text::utf8::beginning;
use orchestrator_tools::catalogue::{BATCH, Tool, canonical};
use orchestrator_tools::inputs::INVOCATIONS_MAX;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Maximum bytes of a result that a hook receives.
const RESULT_MAX: usize = 256 << 10;

/// A call after its hooks.
pub(crate) struct PassedCall {
    pub call: ToolCall,
    /// Notes from hooks for the model, added to the result.
    pub notes: Vec<String>,
}

impl Run<'_> {
    /// Begins the session, if it has not begun; returns the user's text with the texts of hooks for the model.
    pub async fn begin_session(&self, text: String) -> Result<String, ProviderError> {
        let Some(hooks) = self
            .parts
            .hooks
            .as_ref()
            .filter(|hooks| hooks.conversation.borrow().is_none())
        else {
            return Ok(text);
        };
        let event = HookEvent::SessionStart;
        let occasion = Occasion {
            event,
            conversation_id: self.publisher.conversation.to_string(),
            call: None,
        };
        let mut notes = Vec::new();
        for hook in hooks.runner.of(event, None) {
            let name = hooks.runner.name(hook);
            match self.ask_hook(hooks, hook, &occasion).await {
                Ok(HookAnswer {
                    allow: true,
                    ask_agent,
                    ..
                }) => {
                    notes.extend(ask_agent.map(|text| self.quoted(name, &text)));
                }
                Ok(answer) => return Err(ProviderError::Hook(self.blocked(name, &answer))),
                // An event has already reported it.
                Err(_) => {}
            }
        }
        hooks.conversation.replace(Some(occasion.conversation_id));
        notes.push(text);
        Ok(notes.join("\n\n"))
    }

    /// Lets hooks judge a call; for a batch, each of its calls.
    pub async fn before_call(&self, call: &ToolCall) -> Result<PassedCall, Failed> {
        let mut passed = PassedCall {
            call: call.clone(),
            notes: Vec::new(),
        };
        if self.parts.hooks.is_none() {
            return Ok(passed);
        }
        let tool = canonical(&call.name).unwrap_or(&call.name);
        let mut input = own_form(tool, &call.input)?;
        let rewritten = match tool {
            BATCH => {
                self.before_batch(call, &mut input, &mut passed.notes)
                    .await?
            }
            tool => {
                self.before_one(call, tool, &mut input, &mut passed.notes)
                    .await?
            }
        };
        if rewritten {
            passed.call.input = input;
        }
        Ok(passed)
    }

    async fn before_batch(
        &self,
        call: &ToolCall,
        input: &mut Value,
        notes: &mut Vec<String>,
    ) -> Result<bool, Failed> {
        let mut rewritten = false;
        let parts = input.get_mut("invocations").and_then(Value::as_array_mut);
        if parts
            .as_ref()
            .is_some_and(|parts| parts.len() > INVOCATIONS_MAX)
        {
            let message = format!("invocations: at most {INVOCATIONS_MAX}");
            return Err(Failed {
                kind: ErrorKind::InvalidInput,
                message,
            });
        }
        for part in parts.into_iter().flatten() {
            // A call without a name is left for the session to refuse.
            let Some(name) = part["tool_name"].as_str() else {
                continue;
            };
            let tool = canonical(name).unwrap_or(name).to_owned();
            let mut of_part = own_form(&tool, &part["parameters"])?;
            if self.before_one(call, &tool, &mut of_part, notes).await? {
                part["parameters"] = of_part;
                rewritten = true;
            }
        }
        Ok(rewritten)
    }

    /// Returns whether hooks changed the input.
    async fn before_one(
        &self,
        call: &ToolCall,
        tool: &str,
        input: &mut Value,
        notes: &mut Vec<String>,
    ) -> Result<bool, Failed> {
        let Some(hooks) = &self.parts.hooks else {
            return Ok(false);
        };
        let mut rewritten = false;
        for hook in hooks.runner.of(HookEvent::BeforeTool, Some(tool)) {
            let name = hooks.runner.name(hook);
            let occasion = self.occasion(HookEvent::BeforeTool, call, tool, input.clone(), None);
            let answer = self.ask_hook(hooks, hook, &occasion).await;
            let answer = answer.map_err(|why| {
                denied(format!(
                    "the hook `{name}` {why}: without its answer no call is made"
                ))
            })?;
            if !answer.allow {
                return Err(denied(self.blocked(name, &answer)));
            }
            if let Some(fields) = answer.input {
                *input = own_form(tool, &Value::Object(fields))?;
                rewritten = true;
                notes.push(format!(
                    "[the hook `{name}` has changed the input of {tool}]"
                ));
            }
            notes.extend(answer.ask_agent.map(|text| self.quoted(name, &text)));
        }
        Ok(rewritten)
    }

    /// Reports the result of a call to hooks; returns its answer with their notes for the model.
    pub async fn after_call(&self, passed: PassedCall, mut answer: ToolAnswer) -> ToolAnswer {
        let PassedCall { call, mut notes } = passed;
        if let Some(hooks) = &self.parts.hooks {
            let tool = canonical(&call.name).unwrap_or(&call.name);
            let input = own_form(tool, &call.input).unwrap_or_else(|_| call.input.clone());
            let status = if answer.is_error { "error" } else { "success" };
            let result = HookedResult {
                status,
                text: beginning(&answer.text, RESULT_MAX).to_owned(),
            };
            let occasion = self.occasion(
                HookEvent::AfterTool,
                &call,
                tool,
                input.clone(),
                Some(result),
            );
            for hook in after(hooks, tool, &input) {
                let name = hooks.runner.name(hook);
                match self.ask_hook(hooks, hook, &occasion).await {
                    Ok(HookAnswer {
                        allow: true,
                        ask_agent,
                        ..
                    }) => {
                        notes.extend(ask_agent.map(|text| self.quoted(name, &text)));
                    }
                    Ok(blocked) => {
                        answer = ToolAnswer {
                            full: None,
                            found_bytes: 0,
                            text: self.blocked(name, &blocked),
                            is_error: true,
                            image: None,
                            ..answer
                        };
                        break;
                    }
                    // An event has already reported it.
                    Err(_) => {}
                }
            }
        }
        for text in notes {
            answer.text.push_str(&format!("\n{text}"));
        }
        answer
    }

    fn occasion(
        &self,
        event: HookEvent,
        call: &ToolCall,
        tool: &str,
        input: Value,
        result: Option<HookedResult>,
    ) -> Occasion {
        let file = input["path"].as_str().map(|path| HookedFile {
            path: path.to_owned(),
        });
        let call = HookedCall {
            tool_id: call.id.clone(),
            tool: tool.to_owned(),
            input,
            file,
            result,
        };
        Occasion {
            event,
            conversation_id: self.publisher.conversation.to_string(),
            call: Some(call),
        }
    }

    /// Runs a hook and publishes the outcome.
    async fn ask_hook(
        &self,
        hooks: &SessionHooks,
        hook: usize,
        occasion: &Occasion,
    ) -> Result<HookAnswer, String> {
        let answer = tokio::select! {
            answer = hooks.runner.run(hook, occasion) => answer,
            () = self.control.cancelled() => Err("was cancelled".to_owned()),
        };
        // It may contain words of the program.
        let answer = answer.map_err(|why| self.publisher.sanitizer.text(&why));
        let ran = HookRan {
            hook: hooks.runner.name(hook).to_owned(),
            event: occasion.event,
            tool_id: occasion.call.as_ref().map(|call| call.tool_id.clone()),
            tool_name: occasion.call.as_ref().map(|call| call.tool.clone()),
            outcome: answer
                .as_ref()
                .map_or(HookOutcome::Failed, HookAnswer::outcome),
            message: answer
                .as_ref()
                .map_or_else(|why| Some(why.clone()), |answer| answer.message.clone()),
            input: answer
                .as_ref()
                .ok()
                .and_then(|answer| answer.input.clone())
                .map(Value::Object),
            ask_agent: answer
                .as_ref()
                .ok()
                .and_then(|answer| answer.ask_agent.clone()),
        };
        self.publisher.publish(Body::Hook(Box::new(ran))).await;
        answer
    }

    /// A text of a hook, marked as such for the model.
    fn quoted(&self, name: &str, text: &str) -> String {
        format!(
            "[the hook `{name}` says: {}]",
            self.publisher.sanitizer.text(text)
        )
    }

    fn blocked(&self, name: &str, answer: &HookAnswer) -> String {
        let texts = [&answer.message, &answer.ask_agent].into_iter().flatten();
        let why = texts.map(String::as_str).collect::<Vec<_>>().join("\n");
        let why = if why.is_empty() {
            "it gives no reason".to_owned()
        } else {
            why
        };
        format!(
            "the hook `{name}` has blocked this: {}",
            self.publisher.sanitizer.text(&why)
        )
    }
}

/// The hooks to run after a call; for a batch, including those for any of its calls.
fn after(hooks: &SessionHooks, tool: &str, input: &Value) -> BTreeSet<usize> {
    let parts = if tool == BATCH {
        input["invocations"].as_array()
    } else {
        None
    };
    let parts = parts
        .into_iter()
        .flatten()
        .filter_map(|part| part["tool_name"].as_str());
    let tools = parts
        .map(|name| canonical(name).unwrap_or(name))
        .chain([tool]);
    tools
        .flat_map(|tool| hooks.runner.of(HookEvent::AfterTool, Some(tool)))
        .collect()
}

fn denied(message: String) -> Failed {
    Failed {
        kind: ErrorKind::DeniedPolicy,
        message,
    }
}

/// An input with canonical field names: an alias must not evade a hook that checks a field.
fn own_form(tool: &str, input: &Value) -> Result<Value, Failed> {
    let mut input = if input.is_null() {
        json!({})
    } else {
        input.clone()
    };
    if let Some(tool) = Tool::find(tool) {
        tool.translate(&mut input).map_err(|error| Failed {
            kind: ErrorKind::InvalidInput,
            message: error.to_string(),
        })?;
    }
    Ok(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_name_of_a_field_hides_it_from_a_hook() {
        let input = own_form("bash", &json!({"cmd": "ls", "timeout_s": 3})).unwrap();
        assert_eq!(input, json!({"command": "ls", "timeout": 3}));
        let batch = own_form(
            "batch",
            &json!({"invocations": [{"tool": "Bash", "input": {"cmd": "ls"}}]}),
        )
        .unwrap();
        assert_eq!(
            batch["invocations"][0],
            json!({"tool_name": "Bash", "parameters": {"cmd": "ls"}})
        );
        assert_eq!(
            own_form("mcp__a__b", &json!({"cmd": "x"})).unwrap(),
            json!({"cmd": "x"})
        );
        assert!(own_form("bash", &json!({"cmd": "ls", "command": "rm"})).is_err());
    }

    #[test]
    fn a_beginning_ends_within_no_character() {
        assert_eq!(
            (beginning("éé", 3), beginning("éé", 4), beginning("", 4)),
            ("é", "éé", "")
        );
    }
}
