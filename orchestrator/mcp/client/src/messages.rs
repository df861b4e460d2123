//! A server's output as protocol messages: split into lines and parsed within bounds, which are checked before memory is allocated.

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

/// Splits pieces into lines.
#[derive(Debug, Default)]
pub struct LineCutter(Vec<u8>);

/// A line is longer than a message may be. The text has no subject: that is the server.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("sent a line of more than {MESSAGE_MAX} bytes")]
pub struct LineTooLong;

impl LineCutter {
    /// The lines that a piece completes, without line breaks. Empty lines are skipped.
    pub fn push(&mut self, piece: &[u8]) -> Result<Vec<Vec<u8>>, LineTooLong> {
        let mut lines = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            if self.0.len() + text.len() > MESSAGE_MAX {
                return Err(LineTooLong);
            }
            self.0.extend_from_slice(text);
            if part.ends_with(b"\n") {
                lines.push(std::mem::take(&mut self.0));
            }
        }
        lines.retain(|line| !line.iter().all(u8::is_ascii_whitespace));
        Ok(lines)
    }
}

/// A message has more values than a message may have. The text has no subject: that is the server.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("sent a message of more than {VALUES_MAX} values")]
pub struct TooManyValues;

/// Why a line is no message.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// It has more values than a message may have.
    #[error("it {TooManyValues}")]
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
pub struct Closed;

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
    type Error = Closed;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Closed>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        async move {
            let mut line = serde_json::to_vec(&message).map_err(|_| Closed)?;
            line.push(b'\n');
            outgoing.send(line).await.map_err(|_| Closed)
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // Do not read from a server that sends requests and does not read the answers: they would pile up here.
        drop(self.outgoing.reserve().await.ok()?);
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), Closed> {
        self.incoming.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_lines_up_to_the_longest() {
        let mut cutter = LineCutter::default();
        assert_eq!(cutter.push(b"{\"a\"").unwrap(), [b""; 0]);
        assert_eq!(cutter.push(b":1}\n \r\n\n[").unwrap(), [b"{\"a\":1}"]);
        assert_eq!(cutter.push(b"]\n").unwrap(), [b"[]"]);
        let mut cutter = LineCutter::default();
        assert!(cutter.push(&vec![b'x'; MESSAGE_MAX]).is_ok());
        assert_eq!(cutter.push(b"\n").unwrap()[0].len(), MESSAGE_MAX);
        assert!(cutter.push(&vec![b'x'; MESSAGE_MAX]).is_ok());
        assert_eq!(cutter.push(b"x"), Err(LineTooLong));
    }

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
