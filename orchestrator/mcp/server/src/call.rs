//! One call of a tool, from its request to its result.
#![expect(
    deprecated,
    reason = "a later version of the protocol has no log; clients of today's have"
)]

use crate::approvals::{self, Answerer, Asking};
use crate::log::LogLevel;
use crate::resources::Outputs;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker_protocol::{Failed, LayerState, Opened};
use futures_util::StreamExt;
use orchestrator_engine::hooks::HookOutcome;
use orchestrator_engine::{Body, Call, CallContext, CallResult, Invocation, LiveOutput, Session};
use orchestrator_results::error_body::ErrorBody;
use orchestrator_results::result::error_and_result;
use rmcp::model::{
    CallToolResult, ContentBlock, LoggingLevel, MetaObject, ProgressNotificationParam,
    ProgressToken,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use std::sync::Arc;

/// The key of a call's metadata, which a model need not see.
const METADATA: &str = "lazaret/metadata";
/// Metadata left out of the structured result: the same in each result, or useful only to an administrator.
const NOT_FOR_MODELS: [&str; 4] = ["call", "layers", "tool", "usage"];

/// What a call needs from its server.
pub(crate) struct ToolCaller<'a> {
    pub(crate) asker: &'a Arc<str>,
    pub log: &'a LogLevel,
    pub(crate) outputs: &'a Outputs,
    /// Whether to keep unsafe characters in results.
    pub raw: bool,
    /// Whether results have structured content besides their text.
    pub structured: bool,
}

/// The result of a call that was made, or whose tool does not exist.
pub(crate) enum CallAnswer {
    Result(CallToolResult),
    /// The message of a tool that does not exist.
    NoTool(String),
}

impl ToolCaller<'_> {
    pub(crate) async fn call(
        &self,
        session: &Session,
        name: String,
        input: Value,
        request: &RequestContext<RoleServer>,
    ) -> CallAnswer {
        let progress = request
            .meta
            .get_progress_token()
            .map(|token| OutputProgress::new(&request.peer, token));
        let context = CallContext {
            client_id: serde_json::to_value(&request.id).ok(),
            live: if progress.is_some() {
                LiveOutput::Sanitized
            } else {
                LiveOutput::Off
            },
            raw: self.raw,
            cancel: request.ct.child_token(),
            ..CallContext::new(self.asker.clone())
        };
        let call = session.call(context, Invocation::Tool { name, input });
        let (result, refusal) = self.follow(call, &request.peer, progress).await;
        if let Some(result) = result.as_ref().filter(|_| request.ct.is_cancelled()) {
            // The client gets no answer to a request that it has cancelled.
            session.put_back(result);
        }
        match result {
            Some(result) if result.error.as_ref().is_some_and(is_no_tool) => CallAnswer::NoTool(
                result
                    .error
                    .as_ref()
                    .map_or_else(String::new, |error| error.message.clone()),
            ),
            Some(result) => CallAnswer::Result(self.result(&result, refusal)),
            None => CallAnswer::Result(failed("the session has ended")),
        }
    }

    /// Follows a call to its result. Also returns the reason if nobody could be asked for approval.
    async fn follow(
        &self,
        mut call: Call,
        peer: &Peer<RoleServer>,
        mut progress: Option<OutputProgress>,
    ) -> (Option<Arc<CallResult>>, Option<String>) {
        let mut asking = Asking::new();
        let mut refusal = None;
        loop {
            let event = tokio::select! {
                event = call.next() => event,
                Some(()) = asking.next() => continue,
            };
            let Some(event) = event else {
                return (None, refusal);
            };
            match &*event.body {
                Body::Output { bytes, .. } => {
                    let text = String::from_utf8_lossy(bytes).into_owned();
                    send(&mut progress, text).await;
                }
                Body::ApprovalWanted(question) => {
                    let part = event.part.map(|part| part.index);
                    match approvals::ask(peer, &call.handle, part, question, &mut asking).await {
                        Answerer::User => {}
                        Answerer::Elsewhere(note) => {
                            self.log.send(peer, LoggingLevel::Notice, json!(note)).await;
                            send(&mut progress, note).await;
                        }
                        Answerer::Nobody(why) => refusal = Some(why),
                    }
                }
                Body::Violation(event) => {
                    self.log
                        .send(peer, LoggingLevel::Warning, json!(event))
                        .await
                }
                Body::Hook(ran) => self.log.send(peer, level_of(ran.outcome), json!(ran)).await,
                Body::SessionOpened(opened) => {
                    self.log
                        .send(peer, LoggingLevel::Info, describe(opened))
                        .await
                }
                Body::Result(result) if event.part.is_none() => {
                    return (Some(result.clone()), refusal);
                }
                Body::Result(_)
                | Body::Requested { .. }
                | Body::RequestSent { .. }
                | Body::Suspended
                | Body::ApprovalGiven { .. }
                | Body::ToolRegistered { .. }
                | Body::ToolUnregistered { .. }
                | Body::Connection(_) => {}
            }
        }
    }

    fn result(&self, result: &CallResult, refusal: Option<String>) -> CallToolResult {
        let text = String::from_utf8_lossy(&result.text);
        let error = result
            .error
            .as_ref()
            .map(|error| refusal.unwrap_or_else(|| error.message.clone()));
        let shown = match &error {
            Some(message) if text.is_empty() => message.clone(),
            Some(message) => error_and_result(message, &text),
            None => text.to_string(),
        };
        let mut content = vec![ContentBlock::text(shown)];
        if let Some(image) = &result.image {
            content.push(ContentBlock::image(
                STANDARD.encode(&image.data),
                image.media_type,
            ));
        }
        let metadata = json!(result.metadata());
        content.extend(
            self.outputs
                .note(&metadata)
                .map(ContentBlock::resource_link),
        );
        let is_error = error.is_some();
        let mut structured = json!({
            "status": if is_error { "error" } else { "success" },
            "result": text,
            "metadata": for_model(&metadata),
        });
        if let (Some(failed), Some(message)) = (&result.error, &error) {
            let message = message.to_string();
            let error = ErrorBody {
                message,
                ..ErrorBody::sanitized(failed)
            };
            structured["error"] = json!(error);
        }
        let mut meta = MetaObject::new();
        meta.insert(METADATA.to_owned(), metadata);
        let mut result = match is_error {
            true => CallToolResult::error(content),
            false => CallToolResult::success(content),
        };
        result.structured_content = self.structured.then_some(structured);
        result.meta = Some(meta);
        result
    }
}

/// The result if no session could make the call.
pub(crate) fn no_session(error: &Failed) -> CallToolResult {
    let structured = json!({
        "status": "error",
        "result": "",
        "error": ErrorBody::from(error),
        "metadata": {},
    });
    let mut result = failed(&error.message);
    result.structured_content = Some(structured);
    result
}

fn for_model(metadata: &Value) -> Value {
    let fields = metadata.as_object().into_iter().flatten();
    let kept = fields.filter(|(name, _)| !NOT_FOR_MODELS.contains(&name.as_str()));
    Value::Object(
        kept.map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}

fn failed(message: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message)])
}

fn is_no_tool(error: &Failed) -> bool {
    error.kind == broker_protocol::ErrorKind::UnknownTool
}

fn level_of(outcome: HookOutcome) -> LoggingLevel {
    match outcome {
        HookOutcome::Allowed => LoggingLevel::Debug,
        HookOutcome::Rewrote | HookOutcome::Asked => LoggingLevel::Info,
        HookOutcome::Blocked | HookOutcome::Failed => LoggingLevel::Warning,
    }
}

/// A session that has opened, for the client's log.
fn describe(opened: &Opened) -> Value {
    let in_force = opened
        .layers
        .iter()
        .filter(|report| matches!(report.state, LayerState::InForce(_)));
    json!({
        "session": opened.session,
        "project": opened.project,
        "central": opened.central,
        "profile": opened.profile,
        "tier": opened.tier.name(),
        "layers": in_force.map(|report| report.layer.name()).collect::<Vec<_>>(),
        "alsoClosed": opened.also_closed,
        "notices": opened.notices,
    })
}

/// Live output, as progress of the request.
struct OutputProgress {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    sent: u32,
}

impl OutputProgress {
    fn new(peer: &Peer<RoleServer>, token: ProgressToken) -> Self {
        Self {
            peer: peer.clone(),
            token,
            sent: 0,
        }
    }

    async fn send(&mut self, message: String) {
        self.sent += 1;
        let progress = ProgressNotificationParam::new(self.token.clone(), self.sent.into())
            .with_message(message);
        // If the client is gone, the call ends by itself.
        let _ = self.peer.notify_progress(progress).await;
    }
}

/// Sends to a client that wants to hear of progress.
async fn send(progress: &mut Option<OutputProgress>, message: String) {
    if let Some(progress) = progress {
        progress.send(message).await;
    }
}
