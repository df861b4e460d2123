//! The transcript of a conversation: every event and message in full, without known secrets, as lines of JSON. From it a run can be
//! resumed, or replayed without a model.

use crate::event::ChatEvent;
use crate::message::Message;
use crate::publish::Listener;
use orchestrator_text::redact::Redactor;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io::{self, Write};

/// Maximum bytes of a transcript; the rest is left out, and the last line says so.
pub const BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", content = "payload", rename_all = "snake_case")]
enum TranscriptLine {
    /// The first line: the settings of the conversation.
    Start(Value),
    /// An event, in its wire form.
    Event(Value),
    Message(Message),
    /// The transcript has reached its limit.
    Full,
}

/// Writes a transcript. Each line is one write, so a crash leaves only whole lines.
pub struct Transcript {
    state: RefCell<TranscriptState>,
    redactor: &'static Redactor,
}

struct TranscriptState {
    out: Box<dyn Write>,
    bytes: u64,
    /// Why writing has stopped.
    error: Option<io::Error>,
}

impl Transcript {
    /// Begins a transcript; `start` holds the settings of the conversation.
    pub fn begin(out: Box<dyn Write>, redactor: &'static Redactor, start: Value) -> Self {
        let transcript = Self {
            state: RefCell::new(TranscriptState {
                out,
                bytes: 0,
                error: None,
            }),
            redactor,
        };
        transcript.write(&TranscriptLine::Start(start));
        transcript
    }

    /// Continues a transcript of `bytes` bytes.
    pub fn resume(out: Box<dyn Write>, redactor: &'static Redactor, bytes: u64) -> Self {
        Self {
            state: RefCell::new(TranscriptState {
                out,
                bytes,
                error: None,
            }),
            redactor,
        }
    }

    pub fn message(&self, message: &Message) {
        self.write(&TranscriptLine::Message(message.clone()));
    }

    /// Why something is missing in it, if anything is; returned once.
    pub fn take_error(&self) -> Option<io::Error> {
        self.state.borrow_mut().error.take()
    }

    fn write(&self, line: &TranscriptLine) {
        let mut state = self.state.borrow_mut();
        if state.bytes > BYTES_MAX {
            return;
        }
        let mut text = self.redactor.value(&json!(line)).to_string();
        text.push('\n');
        if state.bytes + text.len() as u64 > BYTES_MAX {
            text = json!(TranscriptLine::Full).to_string() + "\n";
            state.bytes = BYTES_MAX;
        }
        state.bytes += text.len() as u64;
        if let Err(error) = state.out.write_all(text.as_bytes()) {
            state.error = Some(error);
            // Half a line may have been written: nothing may follow it.
            state.bytes = BYTES_MAX + 1;
        }
    }
}

impl Listener for Transcript {
    fn hear(&self, event: &ChatEvent) {
        self.write(&TranscriptLine::Event(event.to_json()));
    }
}

/// The content of a transcript.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The settings of the conversation.
    pub start: Value,
    pub messages: Vec<Message>,
    /// The events, in their wire form.
    pub events: Vec<Value>,
}

impl Recorded {
    /// Reads a transcript. An invalid line was cut off when its writer died, and is skipped.
    pub fn read(text: &str) -> Self {
        let mut recorded = Self::default();
        for line in text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
        {
            match line {
                TranscriptLine::Start(start) => recorded.start = start,
                TranscriptLine::Event(event) => recorded.events.push(event),
                TranscriptLine::Message(message) => recorded.messages.push(message),
                TranscriptLine::Full => {}
            }
        }
        recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies::secret::Secret;
    use std::rc::Rc;

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn transcript_has_complete_texts_without_secrets_and_no_partial_line() {
        let secret = Secret {
            name: "KEY".into(),
            value: b"very-secret-key".to_vec(),
        };
        let redactor: &'static Redactor = Box::leak(Box::new(Redactor::new(vec![secret]).unwrap()));
        let out = Shared::default();
        let transcript = Transcript::begin(Box::new(out.clone()), redactor, json!({"model": "m"}));
        let long = "x".repeat(100_000);
        transcript.message(&Message::user(format!("use very-secret-key {long}")));
        let mut text = String::from_utf8(out.0.borrow().clone()).unwrap();
        assert!(!text.contains("very-secret"));
        text.push_str(r#"{"kind":"message","payl"#);
        let recorded = Recorded::read(&text);
        assert_eq!(recorded.start, json!({"model": "m"}));
        assert_eq!(
            recorded.messages,
            [Message::user(format!("use [redacted:KEY] {long}"))]
        );
    }
}
