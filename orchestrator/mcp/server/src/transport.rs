//! Messages as lines, which the program reads and writes. An invalid message gets an error; one bad line does not end the connection.

use rmcp::RoleServer;
use rmcp::model::{
    ClientNotification, ClientRequest, ErrorCode, ErrorData, GetMeta, JsonRpcMessage, RequestId,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;
use tokio::sync::mpsc::{Receiver, Sender};

/// The receiver of our messages is gone.
#[derive(Debug, Error)]
#[error("nobody reads the output")]
pub(crate) struct ReceiverGone;

/// Lines from a client and to it.
pub(crate) struct ClientLines {
    incoming: Receiver<Vec<u8>>,
    outgoing: Sender<Vec<u8>>,
    /// Requests that have no answer yet.
    under_way: OpenRequests,
    /// Whether the client has begun, as the protocol has it.
    begun: bool,
    /// The answer to the last line that was read, where that is no message. It waits here: who receives may stop waiting at any time.
    refusal: Option<Vec<u8>>,
}

#[derive(Clone, Default)]
struct OpenRequests(Arc<Mutex<HashSet<RequestId>>>);

impl OpenRequests {
    /// Whether to accept a message: the answers to two requests with the same ID could not be told apart.
    fn take(&self, message: &RxJsonRpcMessage<RoleServer>) -> bool {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match message {
            JsonRpcMessage::Request(request) => return ids.insert(request.id.clone()),
            JsonRpcMessage::Notification(told) => {
                if let ClientNotification::CancelledNotification(cancelled) = &told.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    ids.remove(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        true
    }

    fn answered(&self, message: &TxJsonRpcMessage<RoleServer>) {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        if let Some(id) = id {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(id);
        }
    }
}

impl ClientLines {
    pub(crate) fn new(incoming: Receiver<Vec<u8>>, outgoing: Sender<Vec<u8>>) -> Self {
        Self {
            incoming,
            outgoing,
            under_way: OpenRequests::default(),
            begun: false,
            refusal: None,
        }
    }
}

/// Whether a client begins with this request. In the version after ours each request says by itself which it speaks, and the library
/// answers which there are.
fn begins(request: &ClientRequest) -> bool {
    matches!(request, ClientRequest::InitializeRequest(_))
        || request.get_meta().protocol_version().is_some()
}

/// The answer to a line that is no message.
fn rejection(line: &[u8]) -> Vec<u8> {
    let value = serde_json::from_slice::<Value>(line).ok();
    let code = if value.is_some() {
        ErrorCode::INVALID_REQUEST
    } else {
        ErrorCode::PARSE_ERROR
    };
    let id = value
        .as_ref()
        .and_then(|value| serde_json::from_value::<RequestId>(value["id"].clone()).ok());
    refusal(code, "the line is no message of the protocol", id)
}

fn refusal(code: ErrorCode, why: &'static str, id: Option<RequestId>) -> Vec<u8> {
    line_of(&TxJsonRpcMessage::<RoleServer>::error(
        ErrorData::new(code, why, None),
        id,
    ))
}

fn line_of(message: &TxJsonRpcMessage<RoleServer>) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

impl Transport<RoleServer> for ClientLines {
    type Error = ReceiverGone;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), ReceiverGone>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        self.under_way.answered(&message);
        async move {
            outgoing
                .send(line_of(&message))
                .await
                .map_err(|_| ReceiverGone)
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            // Do not read from a client that does not read answers: they would pile up here.
            let room = self.outgoing.reserve().await;
            if let Some(refusal) = self.refusal.take() {
                // If the client is gone, it gets no answer.
                let _ = room.map(|room| room.send(refusal));
                continue;
            }
            drop(room);
            let line = self.incoming.recv().await?;
            // No await from here on: a dropped future would lose the line.
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let message = serde_json::from_slice(&line);
            if let Ok(JsonRpcMessage::Request(request)) = &message {
                self.begun |= begins(&request.request);
                if !self.begun && !matches!(request.request, ClientRequest::PingRequest(_)) {
                    let why =
                        "a session begins with `initialize`; before it only `ping` is answered";
                    self.refusal = Some(refusal(
                        ErrorCode::INVALID_REQUEST,
                        why,
                        Some(request.id.clone()),
                    ));
                    continue;
                }
            }
            match message {
                Ok(message) if self.under_way.take(&message) => return Some(message),
                Ok(_) => {
                    // Without the ID: otherwise this would look like the answer to the earlier request.
                    let why = "a request with this id is under way";
                    self.refusal = Some(refusal(ErrorCode::INVALID_REQUEST, why, None));
                }
                Err(_) => self.refusal = Some(rejection(&line)),
            }
        }
    }

    async fn close(&mut self) -> Result<(), ReceiverGone> {
        self.incoming.close();
        Ok(())
    }
}
