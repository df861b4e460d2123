//! The tool `subagent`: another model, or the same one, answers one question with tools that only read. It sees nothing of the
//! conversation, and only its answer is kept. The session permits the call like any other, then its question comes back here.

use crate::control::RunControl;
use crate::conversation::Conversation;
use crate::event::EndReason;
use crate::message::{Message, ToolCall};
use crate::provider::{Model, ToolDefinition, no_tools};
use crate::publish::RunPublisher;
use crate::run::{Run, RunEnd, RunProgress};
use crate::settings::SUBAGENT_TURNS;
use broker_protocol::{ErrorKind, Failed};
use orchestrator_engine::execution::{Execution, OutsideReply};
use orchestrator_tools::subagent::{ModelStrength, Subagent};
use std::cell::RefCell;

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

const SYSTEM: &str = "\
You answer one question for another model, with tools that read. Look things up, then answer: short, with paths and lines, or \
addresses, for what you claim. Nobody sees anything but your last message.";

impl Run<'_> {
    /// Answers a question that `call` has asked. If nobody waits for the answer any more, the calls in progress are cancelled first.
    pub(crate) async fn answer_question(&self, call: &ToolCall, question: Execution) {
        let Execution {
            input, mut reply, ..
        } = question;
        let control = self.control.child();
        let answered = async {
            let mut answering = std::pin::pin!(self.subagent(call, input, &control));
            tokio::select! {
                answer = &mut answering => answer,
                () = reply.closed() => {
                    control.cancel();
                    answering.await
                }
            }
        };
        let answer = answered.await.map(|text| OutsideReply {
            text: text.into_bytes(),
            ..OutsideReply::default()
        });
        // Then the result of the call says so.
        let _ = reply.send(answer);
    }

    async fn subagent(
        &self,
        call: &ToolCall,
        input: serde_json::Value,
        control: &RunControl,
    ) -> Result<String, Failed> {
        // The session has checked it.
        let asked: Subagent = serde_json::from_value(input).map_err(|error| Failed {
            kind: ErrorKind::InvalidInput,
            message: error.to_string(),
        })?;
        let model = tokio::select! {
            model = self.model_of(asked.model_strength) => model?,
            () = control.cancelled() => return Err(cancelled()),
        };
        let run = Run {
            parts: self.parts,
            publisher: RunPublisher {
                parent: Some(call.id.as_str().into()),
                ..self.publisher.clone()
            },
            control,
            ids: self.ids.clone(),
            system: SYSTEM.to_owned().into(),
            tools: self.reading_tools(),
            finish: None,
            max_turns: SUBAGENT_TURNS,
            is_main: false,
            reflection: RefCell::default(),
            model,
        };
        // Its calls get IDs that no other call of the conversation has.
        let mut conversation = Conversation {
            ids: self.ids.clone(),
            ..Conversation::default()
        };
        conversation.messages.push(Message::user(asked.question));
        let mut progress = RunProgress::new(run.budget(&run.model));
        answer_of(run.go(&mut conversation, &mut progress).await)
    }

    /// The model that answers for a subagent of this strength.
    async fn model_of(&self, strength: ModelStrength) -> Result<Model, Failed> {
        let settings = &self.parts.settings;
        let named = match strength {
            ModelStrength::Weak => &settings.weak_model,
            ModelStrength::Strong => &settings.strong_model,
        };
        let model = match named {
            Some(id) => self.parts.provider.model(id).await,
            None => Ok(self.model.clone()),
        };
        let model = model.map_err(|error| io(error.to_string()))?;
        match model.supports_tools {
            Some(false) => Err(io(no_tools(&*self.parts.provider, &model)
                .await
                .to_string())),
            Some(true) | None => Ok(model),
        }
    }

    fn reading_tools(&self) -> Vec<ToolDefinition> {
        let reads = |tool: &&ToolDefinition| TOOLS.contains(&tool.name.as_str());
        self.tools.iter().filter(reads).cloned().collect()
    }
}

fn answer_of(end: RunEnd) -> Result<String, Failed> {
    match (end.error, end.reason) {
        (Some(error), _) => Err(io(error.to_string())),
        (None, EndReason::Cancelled) => Err(cancelled()),
        (None, _) if end.text.trim().is_empty() => Err(io("the subagent has no answer".to_owned())),
        (None, _) => Ok(end.text),
    }
}

fn cancelled() -> Failed {
    Failed {
        kind: ErrorKind::Cancelled,
        message: "the subagent was cancelled".into(),
    }
}

fn io(message: String) -> Failed {
    Failed {
        kind: ErrorKind::Io,
        message,
    }
}
