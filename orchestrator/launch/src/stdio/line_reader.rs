//! Splits standard input into lines of at most [`LINE_MAX`] bytes; longer ones are skipped without being stored.

use crate::stdio::streams::Input;

/// Longest line in bytes: a write of the largest content (`limit::WRITE`), of which every second byte is escaped, and some more.
pub const LINE_MAX: usize = 32 << 20;
const READ: usize = 64 * 1024;

/// Standard input, line by line.
pub struct Lines {
    input: Input,
    cutter: Cutter,
    chunk: Box<[u8]>,
}

/// The next item of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A line without its line break.
    Line(Vec<u8>),
    /// A line that was too long and was skipped.
    TooLong,
    /// The end of the input.
    End,
}

impl Lines {
    /// Reads lines from `input`.
    pub fn new(input: Input) -> Self {
        Self {
            input,
            cutter: Cutter::default(),
            chunk: vec![0; READ].into(),
        }
    }

    /// The next line. A read error counts as the end.
    pub async fn next(&mut self) -> Next {
        loop {
            if let Some(next) = self.cutter.next() {
                return next;
            }
            match self.input.read(&mut self.chunk).await {
                Ok(count @ 1..) => self.cutter.push(&self.chunk[..count]),
                Ok(0) | Err(_) => return self.cutter.end(),
            }
        }
    }
}

impl Lines {
    /// The next bytes, whether or not they form a line; empty at the end. A read error counts as the end. Cancel-safe.
    pub async fn bytes(&mut self) -> Vec<u8> {
        let waiting = std::mem::take(&mut self.cutter).buffer;
        if !waiting.is_empty() {
            return waiting;
        }
        let count = self.input.read(&mut self.chunk).await.unwrap_or_default();
        self.chunk[..count].to_vec()
    }

    /// Discards input that arrived before the next question, as it cannot be its answer.
    pub fn discard(&mut self) {
        self.cutter = Cutter::default();
    }
}

/// Bytes that were received but not yet returned as lines.
#[derive(Default)]
struct Cutter {
    buffer: Vec<u8>,
    /// Length of the prefix known to contain no line break.
    searched: usize,
    /// Whether the current line is already too long.
    skipping: bool,
}

impl Cutter {
    fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Option<Next> {
        let found = self.buffer[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n');
        let Some(end) = found.map(|end| self.searched + end) else {
            self.searched = self.buffer.len();
            if self.searched > LINE_MAX {
                self.forget();
            }
            return None;
        };
        let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
        line.pop();
        self.searched = 0;
        self.buffer.shrink_to(2 * READ);
        let skipped = std::mem::take(&mut self.skipping) || line.len() > LINE_MAX;
        Some(if skipped {
            Next::TooLong
        } else {
            Next::Line(line)
        })
    }

    fn forget(&mut self) {
        self.buffer.clear();
        self.searched = 0;
        self.skipping = true;
    }

    /// The last line needs no line break.
    fn end(&mut self) -> Next {
        match std::mem::take(self) {
            Self { skipping: true, .. } => Next::TooLong,
            Self { buffer, .. } if buffer.is_empty() => Next::End,
            Self { buffer, .. } => Next::Line(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8], chunk: usize) -> Vec<Next> {
        let mut cutter = Cutter::default();
        let mut got = Vec::new();
        for chunk in input.chunks(chunk) {
            cutter.push(chunk);
            got.extend(std::iter::from_fn(|| cutter.next()));
            assert!(cutter.buffer.len() <= LINE_MAX + chunk.len());
        }
        // A reader that got the last line reads once more.
        loop {
            match cutter.next().unwrap_or_else(|| cutter.end()) {
                Next::End => return got,
                next => got.push(next),
            }
        }
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let line = |text: &str| Next::Line(text.into());
        for chunk in 1..12 {
            assert_eq!(
                lines(b"one\n\ntwo\r\nend", chunk),
                [line("one"), line(""), line("two\r"), line("end")]
            );
        }
        assert_eq!(lines(b"", 1), []);
    }

    #[test]
    fn a_long_line_is_read_past_and_the_next_one_is_whole() {
        let mut input = vec![b'x'; LINE_MAX];
        input.extend_from_slice(b"\n");
        input.extend(vec![b'y'; LINE_MAX + 1]);
        input.extend_from_slice(b"\nz\n");
        let got = lines(&input, 1 << 20);
        assert!(matches!(&got[0], Next::Line(line) if line.len() == LINE_MAX));
        assert_eq!(got[1..], [Next::TooLong, Next::Line(b"z".to_vec())]);
        assert_eq!(lines(&vec![b'y'; 2 * LINE_MAX], 1 << 20), [Next::TooLong]);
    }
}
