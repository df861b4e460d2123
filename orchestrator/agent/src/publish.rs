//! The one place that every event of a run passes. It removes known secrets and unsafe characters from texts of a model or its
//! vendor, then sends the event to the transcript and the front end. Events of calls were already sanitized by the session.

use crate::event::{ChatEvent, ChatEventBody, now};
use crate::exchange::{ModelExchange, Side};
use orchestrator_text::redact::Redactor;
use orchestrator_text::sanitize::{SanitizedStream, Sanitizer, Unsafe};
use orchestrator_wire::error::ErrorBody;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Most events that wait for a front end.
pub const EVENTS: usize = 64;

/// Receives every event, in order. It must not block.
pub trait Listener {
    fn hear(&self, event: &ChatEvent);

    /// Takes a request to a model, or its answer.
    fn record(&self, _: &ModelExchange) {}
}

/// Publishes the events of a run.
#[derive(Clone)]
pub(crate) struct RunPublisher {
    pub(crate) sanitizer: Sanitizer,
    pub(crate) listeners: Rc<[Rc<dyn Listener>]>,
    pub client: mpsc::Sender<ChatEvent>,
    pub conversation: Arc<str>,
    pub message: Arc<str>,
    /// The call of this subagent, if it is one.
    pub parent: Option<Arc<str>>,
    /// Whether the front end is gone.
    pub gone: Rc<Cell<bool>>,
}

impl RunPublisher {
    /// Sends an event once the front end has room.
    pub(crate) async fn publish(&self, body: ChatEventBody) {
        let body = self.sanitize(body);
        let event = ChatEvent {
            conversation: self.conversation.clone(),
            message: self.message.clone(),
            parent: self.parent.clone(),
            timestamp: now(),
            body,
        };
        self.listeners
            .iter()
            .for_each(|listener| listener.hear(&event));
        if self.client.send(event).await.is_err() {
            self.gone.set(true);
        }
    }

    /// Records one side of an exchange with a model.
    pub(crate) fn record(&self, provider: &str, model: &str, attempt: u32, side: Side) {
        let exchange = ModelExchange {
            conversation: self.conversation.clone(),
            message: self.message.clone(),
            parent: self.parent.clone(),
            provider: provider.to_owned(),
            model: self.sanitizer.text(model),
            attempt,
            side,
        };
        self.listeners
            .iter()
            .for_each(|listener| listener.record(&exchange));
    }

    /// A stream that sanitizes a text in pieces.
    pub(crate) fn stream(&self) -> SanitizedStream {
        self.sanitizer.stream(Unsafe::Remove)
    }

    pub(crate) fn redactor(&self) -> &'static Redactor {
        self.sanitizer.redactor()
    }

    /// Makes texts of the model, its vendor or our own errors safe to show. Deltas have already passed a stream.
    fn sanitize(&self, body: ChatEventBody) -> ChatEventBody {
        let text = |text: String| self.sanitizer.text(&text);
        match body {
            ChatEventBody::StreamStart { provider, model } => ChatEventBody::StreamStart {
                provider: text(provider),
                model: text(model),
            },
            ChatEventBody::ToolInputDelta {
                index,
                tool_name,
                chunk,
            } => ChatEventBody::ToolInputDelta {
                index,
                tool_name: text(tool_name),
                chunk,
            },
            ChatEventBody::ToolStart {
                tool_id,
                tool_name,
                input,
            } => ChatEventBody::ToolStart {
                tool_id,
                tool_name: text(tool_name),
                input: self.sanitizer.input(&input),
            },
            ChatEventBody::Retry {
                code,
                message,
                attempt,
                delay_ms,
            } => ChatEventBody::Retry {
                code,
                message: text(message),
                attempt,
                delay_ms,
            },
            ChatEventBody::Hook(mut ran) => {
                (ran.message, ran.ask_agent) = (ran.message.map(text), ran.ask_agent.map(text));
                ran.tool_name = ran.tool_name.map(text);
                ran.input = ran.input.map(|input| self.sanitizer.input(&input));
                ChatEventBody::Hook(ran)
            }
            ChatEventBody::Notice { kind, message } => ChatEventBody::Notice {
                kind,
                message: text(message),
            },
            ChatEventBody::Error(error) => ChatEventBody::Error(ErrorBody {
                message: text(error.message),
                ..error
            }),
            ChatEventBody::ToolResult(mut result) => {
                // Calls that no session has made carry names that the model wrote.
                result.tool_name = text(result.tool_name);
                result.result = self.redactor().text(&result.result).into_owned();
                result
                    .error
                    .iter_mut()
                    .for_each(|error| error.message = text(std::mem::take(&mut error.message)));
                ChatEventBody::ToolResult(result)
            }
            ChatEventBody::StreamEnd {
                partial,
                reason,
                turns,
                usage,
                context,
                result,
            } => {
                let result = result.map(|result| self.sanitizer.input(&result));
                ChatEventBody::StreamEnd {
                    partial,
                    reason,
                    turns,
                    usage,
                    context,
                    result,
                }
            }
            passed @ (ChatEventBody::Session { .. }
            | ChatEventBody::TextDelta { .. }
            | ChatEventBody::ThinkingDelta { .. }
            | ChatEventBody::ToolConfirm(_)
            | ChatEventBody::ToolDelta { .. }
            | ChatEventBody::Security { .. }
            | ChatEventBody::Connection { .. }
            | ChatEventBody::TurnEnd { .. }) => passed,
        }
    }
}
