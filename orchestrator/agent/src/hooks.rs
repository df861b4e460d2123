//! Hooks: the user's programs that are notified of calls and may block or change them. This file defines what they receive and may
//! answer; how to run one is left to a [`HookRunner`].

use futures_util::future::LocalBoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::cell::RefCell;

/// Maximum bytes of each text of an answer.
pub const TEXT_MAX: usize = 64 << 10;

/// What a hook is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// A session begins: before its first run.
    SessionStart,
    /// Before a call of a tool.
    BeforeTool,
    /// After a call, with its result.
    AfterTool,
    /// After the last run of a session.
    SessionEnd,
}

impl HookEvent {
    /// The name in settings and events.
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionStart => "session_start",
            Self::BeforeTool => "before_tool",
            Self::AfterTool => "after_tool",
            Self::SessionEnd => "session_end",
        }
    }

    /// Whether the event is about a call.
    pub fn has_tool(self) -> bool {
        match self {
            Self::BeforeTool | Self::AfterTool => true,
            Self::SessionStart | Self::SessionEnd => false,
        }
    }
}

/// The input of a hook: the JSON on its standard input.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Occasion {
    pub event: HookEvent,
    pub conversation_id: String,
    #[serde(flatten)]
    pub call: Option<HookedCall>,
}

/// A call as hooks receive it, with canonical names.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HookedCall {
    pub tool_id: String,
    pub tool: String,
    pub input: Value,
    /// The file that the call is about, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<HookedFile>,
    /// The result, once the call was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<HookedResult>,
}

/// A file, by the name that the model used.
#[derive(Clone, Debug, Serialize)]
pub struct HookedFile {
    pub path: String,
}

/// The result of a call.
#[derive(Clone, Debug, Serialize)]
pub struct HookedResult {
    /// `success` or `error`.
    pub status: &'static str,
    /// The beginning of the text for the model.
    pub text: String,
}

/// The answer of a hook: the JSON on its standard output.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookAnswer {
    /// Whether the call or the session may go on.
    #[serde(alias = "continue")]
    pub allow: bool,
    /// The reason, for the model and for people.
    #[serde(default)]
    pub message: Option<String>,
    /// The call's input from here on.
    #[serde(default)]
    pub input: Option<Map<String, Value>>,
    /// A text for the model.
    #[serde(default)]
    pub ask_agent: Option<String>,
}

impl HookAnswer {
    /// Parses the answer to `event`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(event: HookEvent, bytes: &[u8]) -> Result<Self, String> {
        // Serde would accept an array in place of the object.
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err("gave no answer: it is one object of JSON".to_owned());
        }
        let answer: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("gave no answer: {error}"))?;
        if answer.input.is_some() && (event != HookEvent::BeforeTool || !answer.allow) {
            return Err("gave an input for what is not to be called".to_owned());
        }
        let texts = [&answer.message, &answer.ask_agent].into_iter().flatten();
        if texts.map(String::len).any(|bytes| bytes > TEXT_MAX) {
            return Err(format!("gave a text of more than {TEXT_MAX} bytes"));
        }
        Ok(answer)
    }

    pub(crate) fn outcome(&self) -> HookOutcome {
        match self {
            Self { allow: false, .. } => HookOutcome::Blocked,
            Self { input: Some(_), .. } => HookOutcome::Rewrote,
            Self {
                ask_agent: Some(_), ..
            } => HookOutcome::Asked,
            Self { .. } => HookOutcome::Allowed,
        }
    }
}

/// What a hook has done, as front ends are told.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookRan {
    pub hook: String,
    pub event: HookEvent,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<String>,
    /// The tool; of a batch that of the call in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    pub outcome: HookOutcome,
    /// Why, or what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The call's input from here on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// What the model is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask_agent: Option<String>,
}

/// What came of a hook that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookOutcome {
    /// It goes on as it is.
    Allowed,
    /// It does not go on.
    Blocked,
    /// It goes on with another input.
    Rewrote,
    /// It goes on, and the model is told something.
    Asked,
    /// It gave no answer: before a call a no.
    Failed,
}

/// Knows the hooks and runs them.
pub trait HookRunner {
    /// The hooks for `event`, of a call of `tool` if it is about one, in order.
    fn of(&self, event: HookEvent, tool: Option<&str>) -> Vec<usize>;

    /// The name of a hook.
    fn name(&self, hook: usize) -> &str;

    /// Runs a hook. Dropping the future ends it and leaves nothing of it.
    ///
    /// # Errors
    /// Why it gave no answer, as words to follow its name.
    fn run<'a>(
        &'a self,
        hook: usize,
        occasion: &'a Occasion,
    ) -> LocalBoxFuture<'a, Result<HookAnswer, String>>;
}

/// The hooks of one session.
pub struct SessionHooks {
    pub(crate) runner: Box<dyn HookRunner>,
    tell: fn(&str),
    /// The conversation in which the session began.
    pub(crate) conversation: RefCell<Option<String>>,
}

impl SessionHooks {
    /// Hooks of a session that has not begun. Errors after the last run, which no event can report, go to `tell`.
    pub fn new(runner: Box<dyn HookRunner>, tell: fn(&str)) -> Self {
        Self {
            runner,
            tell,
            conversation: RefCell::default(),
        }
    }

    /// Ends the session: runs the hooks for its end, if it had begun.
    pub async fn end(&self) {
        let Some(conversation_id) = self.conversation.take() else {
            return;
        };
        let occasion = Occasion {
            event: HookEvent::SessionEnd,
            conversation_id,
            call: None,
        };
        for hook in self.runner.of(occasion.event, None) {
            if let Err(why) = self.runner.run(hook, &occasion).await {
                (self.tell)(&format!("the hook `{}` {why}", self.runner.name(hook)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(event: HookEvent, answer: &str) -> Result<HookAnswer, String> {
        HookAnswer::parse(event, answer.as_bytes())
    }

    #[test]
    fn invalid_hook_answer_is_refused() {
        let before = |answer: &str| parse(HookEvent::BeforeTool, answer);
        assert_eq!(
            before(r#"{"allow": true}"#).unwrap().outcome(),
            HookOutcome::Allowed
        );
        assert_eq!(
            before(r#"{"continue": false, "message": "no"}"#)
                .unwrap()
                .outcome(),
            HookOutcome::Blocked
        );
        assert_eq!(
            before(r#"{"allow": true, "askAgent": "a"}"#)
                .unwrap()
                .outcome(),
            HookOutcome::Asked
        );
        assert_eq!(
            before(r#"{"allow": true, "input": {}}"#).unwrap().outcome(),
            HookOutcome::Rewrote
        );
        for wrong in [
            "",
            "{}",
            "yes",
            "[true]",
            r#"{"allow": "true"}"#,
            r#"{"allow": true} {"allow": true}"#,
            r#"{"allow": false, "allow": true}"#,
            r#"{"allow": false, "continue": true}"#,
            r#"{"allow": true, "decision": "block"}"#,
            r#"{"allow": false, "input": {}}"#,
            r#"{"allow": true, "input": []}"#,
        ] {
            assert!(before(wrong).is_err(), "{wrong}");
        }
        assert!(parse(HookEvent::AfterTool, r#"{"allow": true, "input": {}}"#).is_err());
    }

    #[test]
    fn a_text_has_a_bound() {
        for field in ["message", "askAgent"] {
            let of = |bytes: usize| {
                let answer = json!({"allow": true, field: "x".repeat(bytes)}).to_string();
                parse(HookEvent::AfterTool, &answer)
            };
            assert!(of(TEXT_MAX).is_ok() && of(TEXT_MAX + 1).is_err(), "{field}");
        }
    }
}
