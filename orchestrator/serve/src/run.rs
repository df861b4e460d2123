//! A run: turns a client's request into a session, a provider and settings. Then the loop works, and its events go to all listeners
//! of the conversation.

use crate::backends::{self, NoBackend};
use crate::client_tools::{ClientTools, attach};
use crate::conversation::{ConversationState, LiveRun, OpenSession};
use crate::incoming::{RequestError, take_history};
use crate::opener::{SessionOrder, StartableSession};
use crate::outbox::Outbox;
use crate::runs::RunResult;
use crate::service::{RUNS_MAX, ServeState};
use crate::token::new_id;
use broker_protocol::Scope;
use orchestrator_agent::agent::{Agent, Order};
use orchestrator_agent::budget::Context;
use orchestrator_agent::chunk::TokenUsage;
use orchestrator_agent::error::ProviderError;
use orchestrator_agent::event::{ChatEvent, ChatEventBody, EndReason, Notice, now};
use orchestrator_agent::message::Message;
use orchestrator_agent::packs::Pack;
use orchestrator_agent::provider::Provider;
use orchestrator_agent::publish::{EVENTS, Listener};
use orchestrator_agent::run::RunEnd;
use orchestrator_agent::settings::RunSettings;
use orchestrator_engine::Session;
use orchestrator_text::sanitize::Sanitizer;
use orchestrator_tools::ToolConfig;
use orchestrator_tools::scope_file;
use orchestrator_wire::approval::Answer;
use orchestrator_wire::chat_command::Send;
use orchestrator_wire::error::ErrorBody;
use serde_json::{Map, Value, json};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument, Span};

/// How long a run continues without listeners: a client that lost its connection may return.
const GRACE: Duration = Duration::from_secs(30);

const NO_PROJECT: &str = "No project was named, so there are no tools for files and commands. If you need them, say so to the \
                          user, who can name one.";

/// The client that begins a run, and what it brings.
pub(crate) struct Beginner {
    /// Listens from the beginning. A run without listeners is ended.
    pub(crate) outbox: Outbox,
    /// Tools that the client offers to it.
    pub tools: Option<Rc<ClientTools>>,
    /// Who answers the approval questions of its calls.
    pub answers: RunAnswerer,
    /// Whether the conversation is kept after the run.
    pub(crate) stays: bool,
}

/// Who answers the approval questions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunAnswerer {
    /// Clients, which may disconnect and return.
    Clients,
    /// Nobody: the answer to each question is no, and the run ends when its client is gone.
    Nobody,
}

/// A run that has begun.
pub(crate) struct StartedRun {
    /// The conversation that it belongs to.
    pub conversation: Arc<str>,
    /// Its ID, which its events carry as `messageId`.
    pub message: Arc<str>,
    /// Receives the result of the run, once.
    pub ended: oneshot::Receiver<RunResult>,
}

/// Everything that a run is made of.
struct RunPlan {
    order: SessionOrder,
    provider: Result<Rc<dyn Provider>, ProviderError>,
    provider_name: String,
    model: Option<String>,
    settings: RunSettings,
    text: String,
    history: Option<Vec<Message>>,
}

/// Begins a run.
///
/// # Errors
/// If the request cannot be fulfilled: then nothing has begun, and there will be no events.
pub(crate) fn start(
    service: &Rc<ServeState>,
    send: Send,
    beginner: Beginner,
) -> Result<StartedRun, RequestError> {
    let state = service.conversation(send.options.conversation_id.as_deref())?;
    if state.is_running() {
        return Err(RequestError::Busy);
    }
    if service.running_count() >= RUNS_MAX {
        return Err(RequestError::TooManyRuns(RUNS_MAX));
    }
    let span = Span::current();
    span.record("conversation", &*state.id);
    let message = new_id("run").map_err(|error| RequestError::Internal(error.to_string()))?;
    let plan = plan(service, &state, send)?;
    let run = state.begin(message.into(), &plan.text);
    state.follow(&beginner.outbox);
    service.runs.begin(&run.message, &state.id);
    let (ended, waiting) = oneshot::channel();
    let started = StartedRun {
        conversation: state.id.clone(),
        message: run.message.clone(),
        ended: waiting,
    };
    let service = service.clone();
    let working = async move {
        let result = work(&service, &state, &run, plan, &beginner).await;
        if !beginner.stays {
            service.forget(&state.id);
        }
        // A client that does not wait for this has received the events.
        let _ = ended.send(result);
    };
    tokio::task::spawn_local(working.instrument(span));
    Ok(started)
}

fn plan(
    service: &ServeState,
    state: &ConversationState,
    mut send: Send,
) -> Result<RunPlan, RequestError> {
    let options = &mut send.options;
    let trust = options
        .trust
        .map(|trust| trust.0)
        .or(state.trust.get())
        .unwrap_or(service.trust.get());
    let scope = options.scope.take().map(scope).transpose()?;
    let order = SessionOrder {
        project: options.project.take(),
        scope,
        profile: options.profile.take(),
        trust,
    };
    let (provider_name, backend) = service.backends.backend(options.provider.as_deref())?;
    let provider = match service
        .backends
        .provider(options.provider.as_deref(), options.api_key.as_deref())
    {
        Ok(provider) => Ok(provider),
        Err(NoBackend::Provider(error)) => Err(error),
        Err(NoBackend::Request(error)) => return Err(error),
    };
    let mut settings = settings(service, &order, &mut send)?;
    settings.weak_model = backend.weak_model.clone();
    settings.strong_model = backend.strong_model.clone();
    let options = &send.options;
    // A client's choice stays until it makes another.
    if options.trust.is_some() {
        state.trust.set(Some(trust));
    }
    let history = take_history(&mut send);
    let provider_name = provider_name.to_owned();
    Ok(RunPlan {
        order,
        provider,
        provider_name,
        model: send.options.model,
        settings,
        text: send.content,
        history,
    })
}

/// The settings of a run with what the client sets, but for the models, which are the backend's.
fn settings(
    service: &ServeState,
    order: &SessionOrder,
    send: &mut Send,
) -> Result<RunSettings, RequestError> {
    let options = &mut send.options;
    let pack = options
        .pack
        .as_ref()
        .map(|name| Pack::named(name, &service.packs))
        .transpose();
    let pack = pack.map_err(|error| RequestError::field("pack", error.to_string()))?;
    let mut instructions = vec![service.settings.instructions.clone()];
    instructions.extend(options.system_prompt.take());
    if !service.opener.has_project(order) {
        instructions.push(NO_PROJECT.to_owned());
    }
    let pack = pack.or_else(|| service.settings.pack.clone());
    let limits = pack.as_ref().map(|pack| pack.limits).unwrap_or_default();
    let settings = RunSettings {
        instructions: instructions.join("\n\n"),
        pack,
        packs: service.packs.clone(),
        input_deltas: send.input_deltas,
        ..service.settings.clone()
    };
    Ok(settings.limited(&limits))
}

/// Parses a scope from a client: the same format as in a file.
fn scope(permissions: Map<String, Value>) -> Result<Scope, RequestError> {
    // JSON is a subset of YAML.
    let text = json!({ "tool_permissions": permissions }).to_string();
    scope_file::parse("scope", &text).map_err(|error| RequestError::Invalid(error.to_string()))
}

/// Works until the run has ended and its result is known.
async fn work(
    service: &Rc<ServeState>,
    state: &ConversationState,
    run: &LiveRun,
    mut plan: RunPlan,
    beginner: &Beginner,
) -> RunResult {
    let history = plan.history.take();
    let mut conversation = service.messages.borrow_mut().take(&state.id, history);
    let text = std::mem::take(&mut plan.text);
    let end = match prepare(service, state, run, &mut plan, beginner).await {
        Ok(Some(OpenedRun { agent, notices })) => {
            let order = Order {
                conversation: state.id.clone(),
                message: run.message.clone(),
                text,
            };
            let (sender, events) = mpsc::channel(EVENTS);
            let working = agent.run(order, &mut conversation, &run.control, sender);
            let (end, ()) = tokio::join!(
                working,
                follow(service, state, run, events, beginner.answers, notices)
            );
            end
        }
        begun => {
            conversation.messages.push(Message::user(text));
            not_begun(service, state, run, &plan, begun.err()).await
        }
    };
    if beginner.stays {
        service.messages.borrow_mut().put(&state.id, conversation);
    }
    state.end();
    let sanitizer = Sanitizer::new(service.redactor);
    let meta = service
        .runs
        .end(&run.message, &state.id, &end, |text| sanitizer.text(text));
    let (text, result) = (
        sanitizer.text(&end.text),
        end.result.map(|result| sanitizer.input(&result)),
    );
    RunResult {
        action: "final",
        text,
        result,
        meta,
    }
}

/// An agent whose session is open, and notices for the beginning of its run.
struct OpenedRun {
    agent: Agent,
    notices: Vec<(Notice, String)>,
}

/// The agent of a run, with its session opened; `None` if the run was cancelled meanwhile.
async fn prepare(
    service: &ServeState,
    state: &ConversationState,
    run: &LiveRun,
    plan: &mut RunPlan,
    beginner: &Beginner,
) -> Result<Option<OpenedRun>, ProviderError> {
    let provider = plan.provider.clone()?;
    let (_, backend) = service
        .backends
        .backend(Some(&plan.provider_name))
        .map_err(|error| ProviderError::Invalid {
            reason: error.to_string(),
        })?;
    plan.settings.model = backends::model(&*provider, plan.model.as_deref(), backend).await?;
    let mut notices = Vec::new();
    if !service.opener.has_project(&plan.order) {
        notices.push((Notice::NoProject, NO_PROJECT.to_owned()));
    }
    let opened = tokio::select! {
        opened = session(service, state, &plan.order) => opened?,
        () = run.control.cancelled() => return Ok(None),
    };
    let (mut open, problems) = opened;
    let sanitizer = Sanitizer::new(service.redactor);
    notices.extend(
        problems
            .iter()
            .map(|problem| (Notice::ServerMissing, sanitizer.text(problem))),
    );
    open.attached = attach(
        &open.session,
        &state.id,
        open.attached.take(),
        beginner.tools.as_ref(),
    )
    .await;
    let agent = Agent::new(
        open.session.clone(),
        provider,
        plan.settings.clone(),
        state.transcript(&*service.transcripts),
        service.redactor,
    );
    let agent = agent
        .with_hooks(open.hooks.clone())
        .with_record(service.record.clone());
    state.put_session(open);
    Ok(Some(OpenedRun { agent, notices }))
}

/// The session of the conversation: the existing one if it matches the request, otherwise a new one, and why servers are missing in it.
async fn session(
    service: &ServeState,
    state: &ConversationState,
    order: &SessionOrder,
) -> Result<(OpenSession, Vec<String>), ProviderError> {
    // A session that too many violations have ended cannot be used any more.
    let serves = |open: &OpenSession| {
        open.order == *order && open.trust == order.trust && !open.session.is_over()
    };
    match state.take_session() {
        Some(open) if serves(&open) => return Ok((open, Vec::new())),
        Some(open) => open.end(),
        None => {}
    }
    let opening = StartableSession::prepare(&*service.opener, order).await;
    let StartableSession {
        config,
        servers,
        problems,
    } = opening.map_err(ProviderError::no_session)?;
    let hooks = service.opener.hooks(&config.guard);
    let config = ToolConfig {
        tools: config.tools.with_models(),
        ..config
    };
    let session = Session::start(config, service.proof);
    servers.follow(&session);
    let order = order.clone();
    let trust = order.trust;
    Ok((
        OpenSession {
            session,
            order,
            hooks,
            servers,
            attached: None,
            trust,
        },
        problems,
    ))
}

/// Publishes the events of a run up to the last one, with `notices` after the first, and answers its questions if nobody else does.
async fn follow(
    service: &ServeState,
    state: &ConversationState,
    run: &LiveRun,
    mut events: mpsc::Receiver<ChatEvent>,
    answers: RunAnswerer,
    mut notices: Vec<(Notice, String)>,
) {
    let grace = match answers {
        RunAnswerer::Clients => GRACE,
        RunAnswerer::Nobody => Duration::ZERO,
    };
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = state.abandoned(grace), if !run.control.is_cancelled() => {
                run.control.cancel();
                continue;
            }
        };
        let Some(event) = event else { return };
        state.publish(&event, service.case).await;
        let sanitizer = Sanitizer::new(service.redactor);
        let changed = state.take_notices();
        notices.extend(
            changed
                .iter()
                .map(|text| (Notice::ServerChanged, sanitizer.text(text))),
        );
        // A run's last event is its end.
        let is_last = matches!(event.body, ChatEventBody::StreamEnd { .. });
        for (kind, message) in notices.drain(..).filter(|_| !is_last) {
            let notice = ChatEvent {
                timestamp: now(),
                body: ChatEventBody::Notice { kind, message },
                ..event.clone()
            };
            record(service, state, &notice);
            state.publish(&notice, service.case).await;
        }
        match &event.body {
            ChatEventBody::ToolConfirm(confirm) => {
                run.pending.borrow_mut().insert(confirm.tool_id.clone());
                if answers == RunAnswerer::Nobody && confirm.asked.channel != "separate" {
                    // A call that has ended by now needs no answer.
                    let _ = run
                        .control
                        .approve(&confirm.tool_id, confirm.part, Answer::No, None)
                        .await;
                }
            }
            ChatEventBody::ToolResult(result) => {
                run.pending.borrow_mut().remove(&result.tool_id);
            }
            _ => {}
        }
    }
}

/// Records an event that the agent has not published itself.
fn record(service: &ServeState, state: &ConversationState, event: &ChatEvent) {
    service.record.hear(event);
    if let Some(transcript) = state.transcript(&*service.transcripts) {
        transcript.hear(event);
    }
}

/// Publishes the end of a run that could not begin, or that was cancelled before.
async fn not_begun(
    service: &ServeState,
    state: &ConversationState,
    run: &LiveRun,
    plan: &RunPlan,
    error: Option<ProviderError>,
) -> RunEnd {
    let model = plan.model.clone().unwrap_or_default();
    let reason = if error.is_some() {
        EndReason::Error
    } else {
        EndReason::Cancelled
    };
    let code = error.as_ref().map(|error| error.code().name());
    let run_id = &*run.message;
    let (provider, model_id) = (plan.provider_name.as_str(), model.as_str());
    tracing::warn!(
        run = run_id,
        provider,
        model = model_id,
        reason = reason.name(),
        error = code,
        "run"
    );
    let failed = error.as_ref().map(ProviderError::body).map(|error| {
        let message = Sanitizer::new(service.redactor).text(&error.message);
        ChatEventBody::Error(ErrorBody { message, ..error })
    });
    let first = ChatEventBody::StreamStart {
        provider: plan.provider_name.clone(),
        model,
    };
    let last = ChatEventBody::StreamEnd {
        partial: true,
        reason,
        turns: 0,
        usage: TokenUsage::default(),
        context: Context::default(),
        result: None,
    };
    for body in std::iter::once(first).chain(failed).chain([last]) {
        let (conversation, message) = (state.id.clone(), run.message.clone());
        let event = ChatEvent {
            conversation,
            message,
            parent: None,
            timestamp: now(),
            body,
        };
        record(service, state, &event);
        state.publish(&event, service.case).await;
    }
    RunEnd {
        error,
        ..RunEnd::new(reason)
    }
}
