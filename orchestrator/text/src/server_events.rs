//! Server-sent events from the bytes of an answer, bounded before memory is allocated.
//!
//! Why no library: of those tried, `eventsource-stream` takes quadratic time for long lines and blocks its thread meanwhile, and
//! `sse-stream` has no bound on a line, and fails at lines that the format allows: a field without a colon, an unknown field, a second
//! `event`.

use crate::line_cutter::{CutLine, LineCutter, Terminator};
use std::str::Utf8Error;
use thiserror::Error;

/// An event with at least one field.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ServerEvent {
    pub event: Option<String>,
    pub data: Option<String>,
    pub id: Option<String>,
    /// How long to wait before the stream is requested again, in milliseconds.
    pub retry: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ServerEventError {
    #[error("a line or an event is too long")]
    TooLong,
    #[error("an event is not UTF-8")]
    NotUtf8(#[from] Utf8Error),
}

#[derive(Debug)]
pub struct ServerEvents {
    max: usize,
    lines: LineCutter,
    has_begun: bool,
    current: ServerEvent,
    /// Bytes of the fields of `current`.
    bytes: usize,
}

impl ServerEvents {
    /// Reads events of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            lines: LineCutter::new(Terminator::LfOrCr, max),
            has_begun: false,
            current: ServerEvent::default(),
            bytes: 0,
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// The next complete event. One that the end of the answer cuts off is none.
    ///
    /// # Errors
    /// If it, or a line, is too long or not UTF-8.
    pub fn next_event(&mut self) -> Result<Option<ServerEvent>, ServerEventError> {
        while let Some(line) = self.lines.next_line() {
            let CutLine::Whole(line) = line else {
                return Err(ServerEventError::TooLong);
            };
            let line = str::from_utf8(&line)?;
            let line = if std::mem::replace(&mut self.has_begun, true) {
                line
            } else {
                line.strip_prefix('\u{feff}').unwrap_or(line)
            };
            if !line.is_empty() {
                self.field(line)?;
            } else if self.current != ServerEvent::default() {
                self.bytes = 0;
                return Ok(Some(std::mem::take(&mut self.current)));
            }
        }
        Ok(None)
    }

    fn field(&mut self, line: &str) -> Result<(), ServerEventError> {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        let is_kept = matches!(field, "data" | "event" | "id");
        self.bytes += if is_kept { value.len() + 1 } else { 0 };
        if self.bytes > self.max + 1 {
            return Err(ServerEventError::TooLong);
        }
        match field {
            "data" => match &mut self.current.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            },
            "event" => self.current.event = Some(value.to_owned()),
            "id" if !value.contains('\0') => self.current.id = Some(value.to_owned()),
            "retry" => self.current.retry = value.parse().ok().or(self.current.retry),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 64;

    fn events(input: &[u8], piece: usize) -> Result<Vec<ServerEvent>, ServerEventError> {
        let mut events = ServerEvents::new(MAX);
        let mut read = Vec::new();
        for bytes in input.chunks(piece) {
            events.push(bytes);
            while let Some(event) = events.next_event()? {
                read.push(event);
            }
        }
        Ok(read)
    }

    #[test]
    fn data_lines_are_joined_and_what_is_no_field_is_ignored() {
        let input = "\u{feff}event: x\n: comment\ndata:a\r\ndata:  b\nid: 1\nother: z\n\n\ndata\n\nretry: 3\rretry: x\r\r\n\
                     event: a\nevent: b\nid: \0\n\ndata: cut off\n";
        for piece in 1..12 {
            assert_eq!(
                events(input.as_bytes(), piece).unwrap(),
                [
                    ServerEvent {
                        event: Some("x".into()),
                        data: Some("a\n b".into()),
                        id: Some("1".into()),
                        retry: None
                    },
                    ServerEvent {
                        data: Some(String::new()),
                        ..ServerEvent::default()
                    },
                    ServerEvent {
                        retry: Some(3),
                        ..ServerEvent::default()
                    },
                    ServerEvent {
                        event: Some("b".into()),
                        ..ServerEvent::default()
                    }
                ],
                "{piece}"
            );
        }
        assert!(matches!(
            events(b"data: \xff\n\n", 3),
            Err(ServerEventError::NotUtf8(_))
        ));
    }

    #[test]
    fn events_and_lines_are_bounded() {
        let data = |lines: usize, bytes: usize| {
            let line = format!("data:{}\n", "x".repeat(bytes));
            events(format!("{}\n", line.repeat(lines)).as_bytes(), 7)
        };
        assert_eq!(data(1, MAX - 5).unwrap().len(), 1);
        assert_eq!(data(1, MAX - 4), Err(ServerEventError::TooLong));
        // 13 lines of 4 bytes and 12 line breaks.
        assert_eq!(data(13, 4).unwrap()[0].data.as_ref().unwrap().len(), MAX);
        assert_eq!(data(13, 5), Err(ServerEventError::TooLong));
        let names = |lines: usize| events(format!("{}\n", "id:y\n".repeat(lines)).as_bytes(), 7);
        assert!(names(MAX / 2).is_ok() && names(MAX / 2 + 1).is_err());
        assert!(events(":\n".repeat(MAX).as_bytes(), 7).unwrap().is_empty());
    }
}
