//! The tool `subagent`: another model, or the same one, answers one question with tools that only read. It sees nothing of the
//! conversation, and only its answer is kept.

use crate::conversation::Conversation;
use crate::event::EndReason;
use crate::message::{Message, ToolCall};
use crate::packs::SUBAGENT;
use crate::provider::{ToolDefinition, no_tools};
use crate::publish::Publisher;
use crate::run::{Progress, Run};
use crate::settings::SUBAGENT_TURNS;
use broker_protocol::{ErrorKind, Failed};
use serde::Deserialize;
use serde_json::json;

/// The tools that it may call, if the run may.
const TOOLS: [&str; 7] = [
    "file_read",
    "file_list",
    "glob",
    "grep",
    "web_search",
    "web_fetch",
    "view_image",
];
/// Maximum characters of a question.
const QUESTION_MAX: usize = 20_000;

const SYSTEM: &str = "\
You answer one question for another model, with tools that read. Look things up, then answer: short, with paths and lines, or \
addresses, for what you claim. Nobody sees anything but your last message.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    question: String,
    #[serde(default)]
    model_strength: Strength,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Strength {
    #[default]
    Weak,
    Strong,
}

/// The tool as it is described to a model.
pub(crate) fn definition() -> ToolDefinition {
    let schema = json!({
        "type": "object",
        "properties": {
            "question": { "type": "string", "minLength": 1, "maxLength": QUESTION_MAX, "description": "The question, with all that is needed to answer it." },
            "model_strength": { "type": "string", "enum": ["weak", "strong"], "description": "weak if absent: for looking up; strong for what needs thought." }
        },
        "required": ["question"],
        "additionalProperties": false
    });
    let description = "Has another model answer one question. It reads files and the web, knows nothing of this conversation, and \
                       its answer is all that comes back.";
    ToolDefinition {
        name: SUBAGENT.to_owned(),
        description: description.to_owned(),
        schema,
        is_safe: false,
    }
}

impl Run<'_> {
    /// Lets a subagent answer.
    pub async fn subagent(&self, call: &ToolCall) -> Result<String, Failed> {
        let invalid = |message: String| Failed {
            kind: ErrorKind::InvalidInput,
            message,
        };
        let input: Input = serde_json::from_value(call.input.clone())
            .map_err(|error| invalid(error.to_string()))?;
        if input.question.trim().is_empty() || input.question.chars().count() > QUESTION_MAX {
            return Err(invalid(format!(
                "a question has 1 to {QUESTION_MAX} characters"
            )));
        }
        let settings = &self.parts.settings;
        let named = match input.model_strength {
            Strength::Weak => &settings.weak_model,
            Strength::Strong => &settings.strong_model,
        };
        let model = match named {
            Some(id) => self
                .parts
                .provider
                .model(id)
                .await
                .map_err(|error| io(error.to_string()))?,
            None => self.model.clone(),
        };
        if model.supports_tools == Some(false) {
            return Err(io(no_tools(&*self.parts.provider, &model)
                .await
                .to_string()));
        }
        let publisher = Publisher {
            parent: Some(call.id.as_str().into()),
            ..self.publisher.clone()
        };
        let tools = self
            .tools
            .iter()
            .filter(|tool| TOOLS.contains(&tool.name.as_str()))
            .cloned()
            .collect();
        let run = Run {
            parts: self.parts,
            publisher,
            control: self.control,
            ids: self.ids.clone(),
            system: SYSTEM.to_owned(),
            tools,
            finish: None,
            max_turns: SUBAGENT_TURNS,
            is_main: false,
            model,
        };
        // Its calls get IDs that no other call of the conversation has.
        let mut conversation = Conversation {
            messages: Vec::new(),
            ids: self.ids.clone(),
        };
        conversation.messages.push(Message::user(input.question));
        let mut progress = Progress::new(run.budget(&run.model));
        let end = run.go(&mut conversation, &mut progress).await;
        match (end.error, end.reason) {
            (Some(error), _) => Err(io(error.to_string())),
            (None, EndReason::Cancelled) => Err(Failed {
                kind: ErrorKind::Cancelled,
                message: "the subagent was cancelled".into(),
            }),
            (None, _) if end.text.trim().is_empty() => {
                Err(io("the subagent has no answer".to_owned()))
            }
            (None, _) => Ok(end.text),
        }
    }
}

fn io(message: String) -> Failed {
    Failed {
        kind: ErrorKind::Io,
        message,
    }
}
