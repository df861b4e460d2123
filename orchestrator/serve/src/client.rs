//! Carries out the messages of one WebSocket.

use crate::access;
use crate::case::WireCase;
use crate::client_tools::ClientTools;
use crate::incoming::{ClientRequest, RequestError, tool_result};
use crate::outbox::Outbox;
use crate::packet::Packet;
use crate::run::{Beginner, RunAnswerer, start};
use crate::service::ServeState;
use orchestrator_agent::event::{ChatEvent, ChatEventBody, now};
use orchestrator_text::sanitize::Sanitizer;
use orchestrator_wire::chat_command::{ClientMessage, Send};
use orchestrator_wire::error::ErrorBody;
use orchestrator_wire::server_message::ServerMessage;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tracing::Instrument;

/// A client with a connection.
pub(crate) struct Client {
    service: Rc<ServeState>,
    outbox: Outbox,
    tools: Rc<ClientTools>,
}

/// What a message was about, for the answer to it.
#[derive(Default)]
struct MessageSubject {
    conversation: Option<Arc<str>>,
    message: Option<Arc<str>>,
}

impl Client {
    /// A client that receives through `outbox`.
    pub(crate) fn new(service: Rc<ServeState>, outbox: Outbox) -> Self {
        let tools = ClientTools::new(outbox.clone(), service.case);
        Self {
            service,
            outbox,
            tools,
        }
    }

    /// Sends the first message to the client.
    pub(crate) async fn greet(&self) {
        self.send(&ServerMessage::Hello {
            version: env!("CARGO_PKG_VERSION"),
            trust: self.service.trust.get().name(),
            provider: self.service.backends.default_name().to_owned(),
            project: self.service.opener.project(),
        })
        .await;
    }

    /// Carries out a message, and answers it if the client wants an answer.
    pub(crate) async fn take(&self, text: &str) {
        self.answer(text).instrument(access::message()).await;
    }

    async fn answer(&self, text: &str) {
        let begun = Instant::now();
        let ClientRequest {
            kind,
            request_id,
            conversation,
            case,
            message,
        } = ClientRequest::parse(text, self.service.case);
        // Answers repeat both, and they may contain anything.
        let (kind, request_id) = (
            self.sanitized(&kind),
            request_id.map(|id| self.sanitized(&id)),
        );
        let carried_out = match message {
            Ok(message) => self.carry_out(message).await,
            Err(error) => Err(error),
        };
        access::taken(
            &kind,
            carried_out.as_ref().err().map(|error| error.code().name()),
            begun,
        );
        match carried_out {
            Ok(MessageSubject {
                conversation,
                message,
            }) => {
                // A message with a request ID gets an answer.
                if request_id.is_some() {
                    let [conversation_id, message_id] =
                        [conversation, message].map(|id| id.map(|id| id.to_string()));
                    let request_type = kind;
                    self.send(&ServerMessage::Done {
                        request_type,
                        request_id,
                        conversation_id,
                        message_id,
                    })
                    .await;
                }
            }
            Err(error) => {
                let error = error.in_case(case);
                self.reject(&kind, request_id, &error).await;
                self.report_in_chat(&kind, conversation, &error).await;
            }
        }
    }

    /// Reports a rejected message of a chat as an error of the chat too, because clients with the older case know no other one.
    async fn report_in_chat(&self, kind: &str, conversation: Option<String>, error: &RequestError) {
        if self.service.case == WireCase::Camel || !kind.starts_with("chat:") {
            return;
        }
        let event = ChatEvent {
            conversation: conversation.unwrap_or_default().into(),
            message: "".into(),
            parent: None,
            timestamp: now(),
            body: ChatEventBody::Error(self.body(error)),
        };
        let packet = Packet::outside_run(&event, self.service.case);
        // If the client is gone, it needs no report.
        let _ = self.outbox.send(packet).await;
    }

    /// Answers a binary message.
    pub(crate) async fn reject_bytes(&self) {
        self.reject(
            "",
            None,
            &RequestError::Invalid("messages are text".to_owned()),
        )
        .await;
    }

    async fn carry_out(&self, message: ClientMessage) -> Result<MessageSubject, RequestError> {
        let of_run = |message| MessageSubject {
            conversation: None,
            message: Some(message),
        };
        match message {
            ClientMessage::Send(send) => return self.begin(*send),
            ClientMessage::Cancel(cancel) => {
                return self
                    .service
                    .cancel(&cancel)
                    .map(|run| of_run(run.message.clone()));
            }
            ClientMessage::Approve(approve) => {
                return self
                    .service
                    .approve(&approve)
                    .await
                    .map(|run| of_run(run.message.clone()));
            }
            ClientMessage::Resume(resume) => self.service.resume(&resume, &self.outbox)?,
            ClientMessage::Trust(set) => self.service.set_trust(&set)?,
            ClientMessage::Register(tool) => self.tools.register(tool)?,
            ClientMessage::Unregister(tool) => self.tools.unregister(&tool.name)?,
            ClientMessage::ToolAnswer(answer) => {
                let id = answer.execution_id.clone();
                self.tools.answer(&id, tool_result(answer)?)?;
            }
        }
        Ok(MessageSubject::default())
    }

    fn begin(&self, send: Send) -> Result<MessageSubject, RequestError> {
        let beginner = Beginner {
            outbox: self.outbox.clone(),
            tools: Some(self.tools.clone()),
            answers: RunAnswerer::Clients,
            stays: true,
        };
        let started = start(&self.service, send, beginner)?;
        Ok(MessageSubject {
            conversation: Some(started.conversation),
            message: Some(started.message),
        })
    }

    /// Ends what waits for this client after its connection has closed.
    pub(crate) fn close(&self) {
        self.tools.close();
    }

    fn sanitized(&self, text: &str) -> String {
        Sanitizer::new(self.service.redactor).text(text)
    }

    /// Reports why a message was not carried out. What the report quotes may contain a secret.
    async fn reject(&self, kind: &str, request_id: Option<String>, error: &RequestError) {
        self.send(&ServerMessage::Error {
            request_type: kind.to_owned(),
            request_id,
            error: self.body(error),
        })
        .await;
    }

    fn body(&self, error: &RequestError) -> ErrorBody {
        ErrorBody::new(error.code(), self.sanitized(&error.to_string()))
    }

    async fn send(&self, answer: &ServerMessage) {
        // If the client is gone, it needs no answer.
        let _ = self
            .outbox
            .send(Packet::answer(answer, self.service.case))
            .await;
    }
}
