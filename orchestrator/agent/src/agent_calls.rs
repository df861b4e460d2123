//! Calls about the agent itself, which the session has permitted: a subagent's question, the model's thoughts, another beginning.

use crate::conversation::Conversation;
use crate::message::ToolCall;
use crate::packs::Pack;
use crate::reflection::{Thoughts, begin_anew};
use crate::run::{Run, RunProgress};
use broker_protocol::{ErrorKind, Failed};
use orchestrator_engine::execution::{Execution, OutsideReply};
use orchestrator_tools::agent_call::{HOT_SWAP, HotSwap, READ_REASONING, ReadReasoning};
use orchestrator_tools::catalogue::{BATCH, canonical};
use serde::de::DeserializeOwned;
use serde_json::Value;

impl Run<'_> {
    /// Carries out what `call` asks for.
    pub(crate) async fn answer_agent_call(&self, call: &ToolCall, asked: Execution) {
        let answer = match asked.tool.as_str() {
            READ_REASONING => self.read_reasoning(asked.input),
            HOT_SWAP => self.order_swap(asked.input),
            _ => return self.answer_question(call, asked).await,
        };
        let answer = answer.map(|text| OutsideReply {
            text: text.into_bytes(),
            ..OutsideReply::default()
        });
        // If nobody waits for it, the result of the call says so.
        let _ = asked.reply.send(answer);
    }

    /// Makes the conversation's thoughts readable for `calls`, if one of them may read them.
    pub(crate) fn reflect(&self, calls: &[ToolCall], conversation: &Conversation) {
        let reads = |call: &ToolCall| {
            matches!(canonical(&call.name), Some(READ_REASONING | BATCH)) && self.is_main
        };
        if calls.iter().any(reads) {
            self.reflection.borrow_mut().thoughts = Thoughts::of(conversation);
        }
    }

    fn read_reasoning(&self, input: Value) -> Result<String, Failed> {
        let asked: ReadReasoning = parsed(input)?;
        let reflection = self.reflection.borrow();
        reflection.thoughts.read(&asked).map_err(invalid)
    }

    /// Takes a swap, which happens when all calls of the answer have ended.
    fn order_swap(&self, input: Value) -> Result<String, Failed> {
        let swap: HotSwap = parsed(input)?;
        let packs = &self.parts.settings.packs;
        for name in swap.skills.iter().flatten() {
            Pack::named(name, packs).map_err(|error| invalid(format!("skills: {error}")))?;
        }
        let history = match swap.preserve_history {
            Some(false) => "the conversation begins anew",
            Some(true) | None => "the history stays",
        };
        let skills = match &swap.skills {
            Some(skills) if skills.is_empty() => "no skills guide you".to_owned(),
            Some(skills) => format!("your skills are {}", skills.join(", ")),
            None => "your skills stay".to_owned(),
        };
        self.reflection.borrow_mut().swap = Some(swap);
        Ok(format!("from the next turn on {skills}, and {history}"))
    }

    /// Makes the swap that a call has ordered, if any has.
    pub(crate) fn swap(&self, conversation: &mut Conversation, progress: &mut RunProgress) {
        let Some(swap) = self.reflection.borrow_mut().swap.take() else {
            return;
        };
        if let Some(skills) = swap.skills {
            conversation.skills = skills;
            let system = self.parts.settings.system_with(&conversation.skills);
            self.system.replace(system);
        }
        if swap.preserve_history == Some(false) {
            let beginning = begin_anew(conversation);
            self.say(conversation, beginning);
        }
        let model = progress
            .instead
            .as_ref()
            .map_or(&self.model, |(_, model)| model);
        progress.budget = self.budget(model);
    }
}

/// An input that the session has checked.
fn parsed<T: DeserializeOwned>(input: Value) -> Result<T, Failed> {
    serde_json::from_value(input).map_err(|error| invalid(error.to_string()))
}

fn invalid(message: String) -> Failed {
    Failed {
        kind: ErrorKind::InvalidInput,
        message,
    }
}
