//! A server's lines as protocol messages, parsed within bounds, which are checked before memory is allocated.

use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::future::Future;
use thiserror::Error;
use tokio::sync::mpsc::{Receiver, Sender};

/// Maximum bytes of one message: the largest image as base64 fits.
pub const MESSAGE_MAX: usize = 8 << 20;
/// Maximum number of values in one message: once parsed, each takes some forty bytes, whatever it is.
pub const VALUES_MAX: usize = 100_000;

/// Messages, and bytes of all streams, that a server may send between calls.
pub const UNASKED_MESSAGES: u32 = 10_000;
pub const UNASKED_BYTES: u64 = 64 << 20;

/// Maximum bytes of a session ID or an event ID, which we send back.
pub const ID_MAX: usize = 4096;

/// A bound that a server has exceeded. The text has no subject: that is the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Excess {
    #[error("sent a line of more than {MESSAGE_MAX} bytes")]
    Line,
    #[error("sent an event of more than {MESSAGE_MAX} bytes")]
    Event,
    #[error("sent a message of more than {VALUES_MAX} values")]
    Values,
    #[error("gave a name of more than {ID_MAX} bytes")]
    Name,
    #[error("sent more than {UNASKED_MESSAGES} messages that nobody asked for")]
    UnaskedMessages,
    #[error("sent more than {UNASKED_BYTES} bytes that nobody asked for")]
    UnaskedBytes,
}

/// Why a line is no message.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// It has more values than a message may have.
    #[error("it {}", Excess::Values)]
    TooMany,
    /// It is something else, such as what programs print by mistake.
    #[error("this is not a message of the protocol")]
    Other,
}

/// Parses a line as a message.
pub fn read(line: &[u8]) -> Result<RxJsonRpcMessage<RoleClient>, MessageError> {
    if values(line) > VALUES_MAX {
        return Err(MessageError::TooMany);
    }
    // The parser refuses nesting deeper than 128.
    serde_json::from_slice(line).map_err(|_| MessageError::Other)
}

/// The maximum number of values in a JSON text: one for each comma, bracket and brace outside strings, plus one.
fn values(text: &[u8]) -> usize {
    let (mut count, mut in_string, mut escaped) = (1, false, false);
    for byte in text {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b',' | b'[' | b'{') => count += 1,
            _ => {}
        }
    }
    count
}

/// The connection to a server is closed.
#[derive(Debug, Error)]
#[error("the server is gone")]
pub struct ConnectionClosed;

/// Messages from a server, and lines to it.
pub struct Messages {
    incoming: Receiver<RxJsonRpcMessage<RoleClient>>,
    outgoing: Sender<Vec<u8>>,
}

impl Messages {
    pub fn new(
        incoming: Receiver<RxJsonRpcMessage<RoleClient>>,
        outgoing: Sender<Vec<u8>>,
    ) -> Self {
        Self { incoming, outgoing }
    }
}

impl Transport<RoleClient> for Messages {
    type Error = ConnectionClosed;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), ConnectionClosed>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        async move {
            let mut line = serde_json::to_vec(&message).map_err(|_| ConnectionClosed)?;
            line.push(b'\n');
            outgoing.send(line).await.map_err(|_| ConnectionClosed)
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // Do not read from a server that sends requests and does not read the answers: they would pile up here.
        drop(self.outgoing.reserve().await.ok()?);
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), ConnectionClosed> {
        self.incoming.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_before_they_are_read() {
        let message = |count: usize| {
            let list = vec!["1"; count - 4].join(",");
            format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{{\"a\":[{list}]}}}}"
            )
        };
        // Two braces, a bracket and two commas of the message, plus one.
        assert_eq!(values(message(VALUES_MAX - 1).as_bytes()), VALUES_MAX);
        assert!(read(message(VALUES_MAX - 1).as_bytes()).is_ok());
        assert_eq!(
            read(message(VALUES_MAX).as_bytes()).unwrap_err(),
            MessageError::TooMany
        );
        assert_eq!(values(br#"{"a":"[,{\",[","b":"\\"}"#), 3);
    }

    #[test]
    fn message_nested_too_deep_is_refused() {
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{{\"a\":{open}{close}}}}}"
            )
        };
        assert!(read(nested(100).as_bytes()).is_ok());
        assert_eq!(
            read(nested(200).as_bytes()).unwrap_err(),
            MessageError::Other
        );
        assert_eq!(read(b"hello").unwrap_err(), MessageError::Other);
    }
}
