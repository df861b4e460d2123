//! A run as data: its fixed parts, its progress and its end.

use crate::budget::Budget;
use crate::chunk::TokenUsage;
use crate::control::RunControl;
use crate::conversation::{CallIds, Conversation};
use crate::error::ProviderError;
use crate::event::{ChatEventBody, EndReason};
use crate::hooks::SessionHooks;
use crate::message::Message;
use crate::packs::{Finish, ToolUse};
use crate::provider::{Model, Provider, ToolDefinition};
use crate::publish::RunPublisher;
use crate::reflection::Reflection;
use crate::repeat::CallRepeats;
use crate::settings::RunSettings;
use crate::transcript::Transcript;
use broker_protocol::Opened;
use orchestrator_engine::Session;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What all runs of an agent share.
pub(crate) struct SharedParts {
    pub session: Session,
    pub provider: Rc<dyn Provider>,
    pub settings: RunSettings,
    pub transcript: Option<Rc<Transcript>>,
    pub hooks: Option<Rc<SessionHooks>>,
    /// Whether a session was announced: then the next one replaces a lost one.
    pub opened: Cell<bool>,
}

pub(crate) struct Run<'a> {
    pub parts: &'a SharedParts,
    pub(crate) publisher: RunPublisher,
    pub control: &'a RunControl,
    /// The IDs of the conversation's calls, also for a subagent's.
    pub(crate) ids: CallIds,
    pub model: Model,
    pub system: RefCell<String>,
    pub tools: Vec<ToolDefinition>,
    pub(crate) finish: Option<Finish>,
    pub max_turns: u32,
    /// Whether it answers a user; otherwise it answers the model that called a subagent.
    pub(crate) is_main: bool,
    /// What calls about the agent itself read and want.
    pub(crate) reflection: RefCell<Reflection>,
}

/// The progress of a run.
pub(crate) struct RunProgress {
    pub(crate) budget: Budget,
    pub(crate) repeats: CallRepeats,
    pub tools: ToolUse,
    pub turns: u32,
    pub usage: TokenUsage,
    /// How often the model was asked again because of its pack.
    pub(crate) reprompts: u32,
    /// The provider and model that replace the run's own.
    pub(crate) instead: Option<(Rc<dyn Provider>, Model)>,
    /// Whether it replaces an absent model of the same provider.
    pub replaced: bool,
    /// Whether it is the fallback.
    pub(crate) fell_back: bool,
    /// Number of answers with malformed calls.
    pub(crate) malformed: u32,
    /// Why the model may make no more calls.
    pub(crate) closing: Option<EndReason>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct RunEnd {
    pub reason: EndReason,
    /// What went wrong, if anything did.
    pub error: Option<ProviderError>,
    /// The result of the task, if it has a structured one.
    pub result: Option<Value>,
    /// The text of the last answer.
    pub text: String,
}

impl RunProgress {
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            budget,
            repeats: CallRepeats::default(),
            tools: ToolUse::NoneYet,
            turns: 0,
            usage: TokenUsage::default(),
            reprompts: 0,
            instead: None,
            replaced: false,
            fell_back: false,
            malformed: 0,
            closing: None,
        }
    }

    /// Whether the model may be asked once more, at most `max` times.
    pub(crate) fn reprompt(&mut self, max: u32) -> bool {
        self.reprompts += 1;
        self.reprompts <= max
    }
}

impl RunEnd {
    /// An end with only a reason.
    pub fn new(reason: EndReason) -> Self {
        Self {
            reason,
            error: None,
            result: None,
            text: String::new(),
        }
    }
}

impl Run<'_> {
    /// The budget of the context of `model`.
    pub(crate) fn budget(&self, model: &Model) -> Budget {
        let settings = &self.parts.settings;
        let budget = Budget::new(
            model.context_window,
            settings.answer_tokens(),
            settings.reserve_tokens,
        );
        budget.with_prompt(&self.system.borrow(), &self.tools)
    }

    pub(crate) fn say(&self, conversation: &mut Conversation, message: Message) {
        if self.is_main
            && let Some(transcript) = &self.parts.transcript
        {
            transcript.message(&message);
        }
        conversation.messages.push(message);
    }

    /// Publishes that a session is open.
    pub(crate) async fn announce(&self, opened: &Opened) {
        let body = ChatEventBody::Session {
            session: opened.session.clone(),
            project: opened.project.clone(),
            tier: opened.tier.name(),
            replaced: self.parts.opened.replace(true),
        };
        self.publisher.publish(body).await;
    }
}
