//! An agent: a session, a provider, and the settings of its runs.

use crate::budget::Budget;
use crate::control::RunControl;
use crate::conversation::Conversation;
use crate::error::ProviderError;
use crate::event::{ChatEvent, ChatEventBody, EndReason};
use crate::hooks::SessionHooks;
use crate::message::Message;
use crate::packs::FINISH;
use crate::provider::{Provider, ToolDefinition, no_tools};
use crate::publish::{Listener, RunPublisher};
use crate::run::{Run, RunEnd, RunProgress, SharedParts};
use crate::settings::RunSettings;
use crate::spans;
use crate::transcript::Transcript;
use broker_protocol::Failed;
use orchestrator_engine::Session;
use orchestrator_text::redact::Redactor;
use orchestrator_text::sanitize::Sanitizer;
use orchestrator_tools::agent_call::HOT_SWAP;
use orchestrator_tools::catalogue::BATCH;
use orchestrator_tools::subagent::SUBAGENT;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::Instrument;

/// Makes the runs of an agent.
pub struct Agent {
    parts: SharedParts,
    /// Receives the events of all runs, besides the transcript.
    record: Option<Rc<dyn Listener>>,
    redactor: &'static Redactor,
}

/// What a run is to answer.
#[derive(Clone, Debug)]
pub struct Order {
    /// The conversation's ID, for the events.
    pub conversation: Arc<str>,
    /// The answer's ID, for the events.
    pub message: Arc<str>,
    pub text: String,
}

impl Agent {
    /// An agent from whose texts `redactor` removes secrets.
    pub fn new(
        session: Session,
        provider: Rc<dyn Provider>,
        settings: RunSettings,
        transcript: Option<Rc<Transcript>>,
        redactor: &'static Redactor,
    ) -> Self {
        let parts = SharedParts {
            session,
            provider,
            settings,
            transcript,
            hooks: None,
            opened: Cell::new(false),
        };
        Self {
            parts,
            record: None,
            redactor,
        }
    }

    /// Adds the hooks of its session.
    pub fn with_hooks(mut self, hooks: Option<Rc<SessionHooks>>) -> Self {
        self.parts.hooks = hooks;
        self
    }

    /// Adds a record of its runs.
    pub fn with_record(mut self, record: Rc<dyn Listener>) -> Self {
        self.record = Some(record);
        self
    }

    fn listeners(&self) -> Rc<[Rc<dyn Listener>]> {
        let transcript = self.parts.transcript.clone();
        let transcript = transcript.map(|one| one as Rc<dyn Listener>);
        transcript.into_iter().chain(self.record.clone()).collect()
    }

    /// The session in which it makes calls.
    pub fn session(&self) -> &Session {
        &self.parts.session
    }

    /// The provider of its runs.
    pub fn provider(&self) -> &Rc<dyn Provider> {
        &self.parts.provider
    }

    /// The model of its runs.
    pub fn model(&self) -> &str {
        &self.parts.settings.model
    }

    /// Sets another model of the same provider for all later runs.
    pub fn set_model(&mut self, model: String) {
        self.parts.settings.model = model;
    }

    /// Sets another transcript for all later runs.
    pub fn set_transcript(&mut self, transcript: Rc<Transcript>) {
        self.parts.transcript = Some(transcript);
    }

    /// Answers the user's message. `events` receives everything up to the end of the stream, which is always the last event.
    pub async fn run(
        &self,
        order: Order,
        conversation: &mut Conversation,
        control: &RunControl,
        events: mpsc::Sender<ChatEvent>,
    ) -> RunEnd {
        let (provider, model) = (self.parts.provider.name(), &self.parts.settings.model);
        let span = spans::run(&order.conversation, &order.message, provider, model);
        self.answer(order, conversation, control, events)
            .instrument(span)
            .await
    }

    async fn answer(
        &self,
        order: Order,
        conversation: &mut Conversation,
        control: &RunControl,
        events: mpsc::Sender<ChatEvent>,
    ) -> RunEnd {
        let begun = Instant::now();
        let gone = Rc::new(Cell::new(false));
        let publisher = RunPublisher {
            sanitizer: Sanitizer::new(self.redactor),
            listeners: self.listeners(),
            client: events,
            conversation: order.conversation,
            message: order.message,
            parent: None,
            gone: gone.clone(),
        };
        let start = ChatEventBody::StreamStart {
            provider: self.parts.provider.name().to_owned(),
            model: self.parts.settings.model.clone(),
        };
        publisher.publish(start).await;
        let mut progress =
            RunProgress::new(Budget::new(None, self.parts.settings.answer_tokens(), None));
        let ended = self
            .perform(order.text, conversation, control, &publisher, &mut progress)
            .await;
        if let Some(error) = &ended.error {
            publisher.publish(ChatEventBody::Error(error.body())).await;
        }
        let end = ChatEventBody::StreamEnd {
            partial: is_partial(ended.reason),
            reason: ended.reason,
            turns: progress.turns,
            usage: progress.usage,
            context: progress.budget.context(&conversation.messages),
            result: ended.result.clone(),
        };
        publisher.publish(end).await;
        spans::end_run(&ended, progress.turns, progress.usage, begun.elapsed());
        ended
    }

    /// The same without the first and the last event.
    async fn perform(
        &self,
        text: String,
        conversation: &mut Conversation,
        control: &RunControl,
        publisher: &RunPublisher,
        progress: &mut RunProgress,
    ) -> RunEnd {
        let run = match self.prepare(control, publisher, conversation).await {
            Ok(run) => run,
            Err(error) => return failed(error),
        };
        progress.budget = run.budget(&run.model);
        match self.announce(&run).await {
            Ok(()) => {}
            Err(why) => return failed(ProviderError::no_session(why)),
        }
        let text = match run.begin_session(text).await {
            Ok(text) => text,
            Err(blocked) => return failed(blocked),
        };
        run.say(conversation, Message::user(text));
        let mut going = run.go(conversation, progress);
        let reason = tokio::select! {
            end = &mut going => return end,
            () = after(self.parts.settings.timeout) => EndReason::Timeout,
            () = publisher.client.closed() => EndReason::Cancelled,
        };
        // Calls in progress end as after any cancellation: with a result.
        control.cancel();
        let end = going.await;
        if end.reason == EndReason::Cancelled {
            RunEnd { reason, ..end }
        } else {
            end
        }
    }

    /// Prepares all that a run needs. Nothing has been sent to a model yet.
    async fn prepare<'a>(
        &'a self,
        control: &'a RunControl,
        publisher: &RunPublisher,
        conversation: &Conversation,
    ) -> Result<Run<'a>, ProviderError> {
        let model = tokio::select! {
            model = self.parts.provider.model(&self.parts.settings.model) => model?,
            () = control.cancelled() => return Err(ProviderError::Cancelled),
        };
        if self.parts.settings.tools && model.supports_tools == Some(false) {
            return Err(no_tools(&*self.parts.provider, &model).await);
        }
        let finish = self
            .parts
            .settings
            .pack
            .as_ref()
            .and_then(|pack| pack.finish.clone());
        let tools = self.tools().await;
        if let Some(pack) = &self.parts.settings.pack
            && let Some(tool) = pack.missing(&tools)
        {
            return Err(ProviderError::PackTool {
                pack: pack.name.clone(),
                tool: tool.to_owned(),
            });
        }
        Ok(Run {
            parts: &self.parts,
            publisher: publisher.clone(),
            control,
            ids: conversation.ids.clone(),
            model,
            system: self.parts.settings.system_with(&conversation.skills).into(),
            tools,
            finish,
            max_turns: self.parts.settings.max_turns,
            is_main: true,
            reflection: RefCell::default(),
        })
    }

    async fn announce(&self, run: &Run<'_>) -> Result<(), Failed> {
        if self.parts.settings.tools && !self.parts.opened.get() {
            let opened = self.parts.session.open().await?;
            run.announce(&opened).await;
        }
        Ok(())
    }

    /// The tools to list to the model.
    pub(crate) async fn tools(&self) -> Vec<ToolDefinition> {
        if !self.parts.settings.tools {
            return Vec::new();
        }
        let pack = self.parts.settings.pack.as_ref();
        // The tool that ends a task is listed only if the pack wants such an end.
        let is_shown = |tool: &ToolDefinition| match pack {
            Some(pack) => pack.has(&tool.name),
            None => tool.name != FINISH,
        };
        let listed = self.parts.session.tools().await;
        let mut tools: Vec<ToolDefinition> =
            listed.iter().map(definition).filter(is_shown).collect();
        if let Some(finish) = pack.and_then(|pack| pack.finish.as_ref())
            && let Some(tool) = tools.iter_mut().find(|tool| tool.name == FINISH)
        {
            tool.schema = finish.schema();
        }
        tools
    }
}

/// Ends after a time limit, if there is one.
async fn after(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => pending().await,
    }
}

/// A tool of a list of tools.
fn definition(listed: &Value) -> ToolDefinition {
    let text = |name: &str| listed[name].as_str().unwrap_or_default().to_owned();
    let name = text("name");
    // A batch may contain any call, and a subagent makes calls of its own.
    let runs_in_parallel =
        listed["risk"] == "low" && ![BATCH, FINISH, SUBAGENT, HOT_SWAP].contains(&name.as_str());
    ToolDefinition {
        name,
        description: text("description"),
        schema: listed["inputSchema"].clone(),
        runs_in_parallel,
    }
}

fn failed(error: ProviderError) -> RunEnd {
    let reason = match error {
        ProviderError::Cancelled => EndReason::Cancelled,
        _ => EndReason::Error,
    };
    let error = (reason == EndReason::Error).then_some(error);
    RunEnd {
        reason,
        error,
        result: None,
        text: String::new(),
    }
}

/// Whether the model was cut off before it had finished.
fn is_partial(reason: EndReason) -> bool {
    match reason {
        EndReason::Cancelled
        | EndReason::Timeout
        | EndReason::Error
        | EndReason::Violations
        | EndReason::Length => true,
        EndReason::Done
        | EndReason::Finished
        | EndReason::Refused
        | EndReason::TurnLimit
        | EndReason::ContextBudget
        | EndReason::QualityGate => false,
    }
}
