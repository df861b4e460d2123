//! The user's hooks: programs that hear of calls and may stop or change them. This file says what they hear and may answer. When they run
//! is in `guard`; how one is run is left to a [`HookRunner`].

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::pin::Pin;
use std::rc::Rc;

/// Maximum bytes of each text of an answer.
pub const TEXT_MAX: usize = 64 << 10;

/// What a hook is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// A conversation begins: before its first run.
    SessionStart,
    /// Before a call of a tool.
    BeforeTool,
    /// After a call, with its result.
    AfterTool,
    /// After the last run of a conversation.
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
    /// Absent where no conversation makes the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    #[serde(flatten)]
    pub call: Option<HookedCall>,
}

/// A call as hooks receive it, with canonical names.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HookedCall {
    /// The client's ID of the call, else its number in the session.
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

/// A file, by the name that the caller used.
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

impl Occasion {
    /// An event about a whole conversation.
    pub fn of_conversation(event: HookEvent, conversation: &str) -> Self {
        Self {
            event,
            conversation_id: Some(conversation.to_owned()),
            call: None,
        }
    }
}

impl HookedCall {
    pub fn new(tool_id: String, tool: &str, input: Value) -> Self {
        let file = input["path"].as_str().map(|path| HookedFile {
            path: path.to_owned(),
        });
        Self {
            tool_id,
            tool: tool.to_owned(),
            input,
            file,
            result: None,
        }
    }
}

/// The answer of a hook: the JSON on its standard output.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookAnswer {
    /// Whether the call or the conversation may go on.
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
    /// The reason why it is malformed.
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

    fn outcome(&self) -> HookOutcome {
        match self {
            Self { allow: false, .. } => HookOutcome::Blocked,
            Self { input: Some(_), .. } => HookOutcome::Rewrote,
            Self {
                ask_agent: Some(_), ..
            } => HookOutcome::Asked,
            Self { .. } => HookOutcome::Allowed,
        }
    }

    /// Why the hook `name` lets nothing go on.
    pub fn refusal(&self, name: &str) -> String {
        let texts = [&self.message, &self.ask_agent].into_iter().flatten();
        let why = texts.map(String::as_str).collect::<Vec<_>>().join("\n");
        let why = if why.is_empty() {
            "it gives no reason"
        } else {
            &why
        };
        format!("the hook `{name}` has blocked this: {why}")
    }
}

/// A text of the hook `name`, marked as such for a model.
pub fn quoted(name: &str, text: &str) -> String {
    format!("[the hook `{name}` says: {text}]")
}

/// What a hook has done, as front ends are told and as it is written down.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
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

impl HookRan {
    pub fn new(hook: &str, occasion: &Occasion, answer: &Result<HookAnswer, String>) -> Self {
        let call = occasion.call.as_ref();
        let given = answer.as_ref().ok();
        Self {
            hook: hook.to_owned(),
            event: occasion.event,
            tool_id: call.map(|call| call.tool_id.clone()),
            tool_name: call.map(|call| call.tool.clone()),
            outcome: given.map_or(HookOutcome::Failed, HookAnswer::outcome),
            message: match answer {
                Ok(answer) => answer.message.clone(),
                Err(why) => Some(why.clone()),
            },
            input: given
                .and_then(|answer| answer.input.clone())
                .map(Value::Object),
            ask_agent: given.and_then(|answer| answer.ask_agent.clone()),
        }
    }
}

/// What came of a hook that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
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

/// The answer of a hook, or why it gave none, as words to follow its name.
pub type HookAnswering<'a> = Pin<Box<dyn Future<Output = Result<HookAnswer, String>> + 'a>>;

/// Knows the hooks of one session and runs them.
pub trait HookRunner {
    /// The hooks for `event`, of a call of `tool` if it is about one, in order.
    fn of(&self, event: HookEvent, tool: Option<&str>) -> Vec<usize>;

    /// The name of a hook.
    fn name(&self, hook: usize) -> &str;

    /// Runs a hook. Dropping the future ends it and leaves nothing of it.
    fn run<'a>(&'a self, hook: usize, occasion: &'a Occasion) -> HookAnswering<'a>;
}

/// Whether the user's hooks guard the calls of a session. Whoever starts one says so.
#[derive(Clone)]
pub enum HookGuard {
    Hooks(Rc<dyn HookRunner>),
    NoHooks,
    /// Nobody but the user makes calls, each by a command that they have typed.
    ByPerson,
}

impl HookGuard {
    /// The hooks, if there are any.
    pub fn hooks(&self) -> Option<&Rc<dyn HookRunner>> {
        match self {
            Self::Hooks(hooks) => Some(hooks),
            Self::NoHooks | Self::ByPerson => None,
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
        for (answer, outcome) in [
            (r#"{"allow": true}"#, HookOutcome::Allowed),
            (
                r#"{"continue": false, "message": "no"}"#,
                HookOutcome::Blocked,
            ),
            (r#"{"allow": true, "askAgent": "a"}"#, HookOutcome::Asked),
            (r#"{"allow": true, "input": {}}"#, HookOutcome::Rewrote),
        ] {
            assert_eq!(before(answer).unwrap().outcome(), outcome, "{answer}");
        }
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
