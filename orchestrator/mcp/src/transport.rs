//! Messages as lines, which the program reads and writes. What is no message gets an error: one bad line is not the end.

use rmcp::RoleServer;
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use std::future::Future;
use thiserror::Error;
use tokio::sync::mpsc::{Receiver, Sender};

/// Nobody takes what is sent any more.
#[derive(Debug, Error)]
#[error("nobody reads the output")]
pub struct Closed;

/// Lines from a client and to it.
pub struct Lines {
    incoming: Receiver<Vec<u8>>,
    outgoing: Sender<Vec<u8>>,
}

impl Lines {
    pub fn new(incoming: Receiver<Vec<u8>>, outgoing: Sender<Vec<u8>>) -> Self {
        Self { incoming, outgoing }
    }

    /// Answers a line that is no message.
    async fn reject(&self, line: &[u8]) {
        let value = serde_json::from_slice::<Value>(line).ok();
        let code = if value.is_some() { ErrorCode::INVALID_REQUEST } else { ErrorCode::PARSE_ERROR };
        let id =
            value.as_ref().and_then(|value| serde_json::from_value::<RequestId>(value["id"].clone()).ok());
        let error = ErrorData::new(code, "the line is no message of the protocol", None);
        let message = TxJsonRpcMessage::<RoleServer>::error(error, id);
        // Who reads no answers gets none.
        let _ = self.outgoing.send(line_of(&message)).await;
    }
}

fn line_of(message: &TxJsonRpcMessage<RoleServer>) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

impl Transport<RoleServer> for Lines {
    type Error = Closed;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Closed>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        async move { outgoing.send(line_of(&message)).await.map_err(|_| Closed) }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            // Who takes no answers is not read from: they would wait here without end.
            let _ = self.outgoing.reserve().await;
            let line = self.incoming.recv().await?;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match serde_json::from_slice(&line) {
                Ok(message) => return Some(message),
                Err(_) => self.reject(&line).await,
            }
        }
    }

    async fn close(&mut self) -> Result<(), Closed> {
        self.incoming.close();
        Ok(())
    }
}
