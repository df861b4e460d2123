//! Splits an answer into lines, and lines into server-sent events; both are bounded before memory is allocated.
//!
//! Why no library: of those tried, `eventsource-stream` takes quadratic time for long lines and blocks its thread meanwhile, and
//! `sse-stream` has no bound on a line. Ollama's lines of JSON need the same bounded splitter.

use crate::error::ProviderError;

/// Longest line, and longest data of an event, in bytes.
pub const LINE_MAX: usize = 32 << 20;

/// Received bytes that are no complete line yet. Lines end with LF, CR LF or CR, wherever the pieces are cut.
#[derive(Default)]
pub struct Lines {
    buffer: Vec<u8>,
    /// Start of the next line.
    start: usize,
    /// End of the part without a line break.
    searched: usize,
    /// Whether the previous line ended with CR, so that an LF now belongs to it.
    after_return: bool,
}

impl Lines {
    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..std::mem::take(&mut self.start));
        self.searched = self.searched.min(self.buffer.len());
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete line, without its line break.
    ///
    /// # Errors
    /// If the line is too long or not UTF-8.
    pub fn next_line(&mut self) -> Result<Option<String>, ProviderError> {
        if self.after_return && self.start < self.buffer.len() {
            self.after_return = false;
            self.start += usize::from(self.buffer[self.start] == b'\n');
        }
        let from = self.start.max(self.searched);
        let found = self.buffer[from..]
            .iter()
            .position(|byte| matches!(byte, b'\n' | b'\r'));
        let Some(end) = found.map(|at| from + at) else {
            check(self.buffer.len() - self.start)?;
            // Relative to the start of the buffer, as it will be after the next push.
            self.searched = self.buffer.len() - self.start;
            return Ok(None);
        };
        check(end - self.start)?;
        self.after_return = self.buffer[end] == b'\r';
        let line = self.buffer[self.start..end].to_vec();
        (self.start, self.searched) = (end + 1, 0);
        text(line).map(Some)
    }

    /// What follows the last line break, once the input has ended.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub fn last(&mut self) -> Result<String, ProviderError> {
        text(std::mem::take(&mut self.buffer).split_off(std::mem::take(&mut self.start)))
    }
}

fn check(length: usize) -> Result<(), ProviderError> {
    if length > LINE_MAX {
        return Err(ProviderError::TooLarge {
            what: "bytes in a line",
            max: LINE_MAX,
        });
    }
    Ok(())
}

fn text(line: Vec<u8>) -> Result<String, ProviderError> {
    String::from_utf8(line).map_err(|_| ProviderError::malformed("a line is no UTF-8"))
}

/// Extracts the data of server-sent events from lines. Event names are ignored: all vendors repeat them in the data.
#[derive(Default)]
pub struct Events {
    data: Option<String>,
    begun: bool,
}

impl Events {
    /// Takes a line; returns the data of an event if the line ends one that has any.
    ///
    /// # Errors
    /// If the data is too long.
    pub fn push(&mut self, line: &str) -> Result<Option<String>, ProviderError> {
        let line = if self.begun {
            line
        } else {
            line.strip_prefix('\u{feff}').unwrap_or(line)
        };
        self.begun = true;
        if line.is_empty() {
            return Ok(self.data.take());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        if field != "data" {
            return Ok(None);
        }
        let value = value.strip_prefix(' ').unwrap_or(value);
        let data = self.data.get_or_insert_default();
        if !data.is_empty() {
            data.push('\n');
        }
        if data.len() + value.len() > LINE_MAX {
            return Err(ProviderError::TooLarge {
                what: "bytes in an event",
                max: LINE_MAX,
            });
        }
        data.push_str(value);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8], piece: usize) -> Vec<String> {
        let mut lines = Lines::default();
        let mut got = Vec::new();
        for bytes in input.chunks(piece) {
            lines.push(bytes);
            got.extend(std::iter::from_fn(|| lines.next_line().unwrap()));
        }
        got.push(lines.last().unwrap());
        got
    }

    #[test]
    fn characters_and_line_ends_may_be_split_across_pieces() {
        for piece in 1..9 {
            assert_eq!(
                lines("é\n\r\n€\r\rend".as_bytes(), piece),
                ["é", "", "€", "", "end"],
                "{piece}"
            );
        }
        let mut bad = Lines::default();
        bad.push(b"\xff\n");
        assert!(matches!(bad.next_line(), Err(ProviderError::Malformed(_))));
    }

    #[test]
    fn a_line_of_more_than_64_kib_is_whole_and_one_without_bound_is_an_error() {
        let mut cutter = Lines::default();
        cutter.push(&vec![b'x'; LINE_MAX]);
        assert_eq!(cutter.next_line(), Ok(None));
        cutter.push(b"\n");
        assert_eq!(cutter.next_line().unwrap().unwrap().len(), LINE_MAX);
        cutter.push(&vec![b'x'; LINE_MAX + 1]);
        assert!(matches!(
            cutter.next_line(),
            Err(ProviderError::TooLarge { .. })
        ));
    }

    #[test]
    fn events_have_their_data_lines_joined_and_comments_left_out() {
        let mut events = Events::default();
        let mut got = Vec::new();
        for line in "\u{feff}event: x\n: comment\ndata:a\ndata:  b\nid: 1\n\n\ndata\n\nretry: 3\n\n"
            .split('\n')
        {
            got.extend(events.push(line).unwrap());
        }
        assert_eq!(got, ["a\n b", ""]);
        let mut events = Events::default();
        let line = format!("data: {}", "x".repeat(LINE_MAX));
        assert_eq!(events.push(&line), Ok(None));
        assert!(matches!(
            events.push(&line),
            Err(ProviderError::TooLarge { .. })
        ));
    }
}
