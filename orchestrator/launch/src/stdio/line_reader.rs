//! Splits standard input into lines of at most [`LINE_MAX`] bytes; longer ones are skipped without being stored.

use crate::stdio::streams::InputStream;
use orchestrator_text::line_cutter::{CutLine, LineCutter, Terminator};

/// Longest line in bytes: a write of the largest content (`limit::WRITE`), of which every second byte is escaped, and some more.
pub const LINE_MAX: usize = 32 << 20;
const READ: usize = 64 * 1024;

/// Standard input, line by line.
pub struct StdinLines {
    input: InputStream,
    cutter: LineCutter,
    chunk: Box<[u8]>,
}

/// The next item of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum NextLine {
    /// A line without its line break.
    Line(Vec<u8>),
    /// A line that was too long and was skipped.
    TooLong,
    /// The end of the input.
    End,
}

impl StdinLines {
    pub fn new(input: InputStream) -> Self {
        Self {
            input,
            cutter: LineCutter::new(Terminator::Lf, LINE_MAX),
            chunk: vec![0; READ].into(),
        }
    }

    /// The next line. A read error counts as the end.
    pub async fn next(&mut self) -> NextLine {
        loop {
            if let Some(line) = self.cutter.next_line() {
                return NextLine::of(line);
            }
            match self.input.read(&mut self.chunk).await {
                Ok(count @ 1..) => self.cutter.push(&self.chunk[..count]),
                Ok(0) | Err(_) => return self.cutter.last().map_or(NextLine::End, NextLine::of),
            }
        }
    }

    /// The next bytes, whether or not they form a line; empty at the end. A read error counts as the end. Cancel-safe.
    pub async fn bytes(&mut self) -> Vec<u8> {
        let waiting = self.cutter.rest();
        if !waiting.is_empty() {
            return waiting;
        }
        let count = self.input.read(&mut self.chunk).await.unwrap_or_default();
        self.chunk[..count].to_vec()
    }

    /// Discards input that arrived before the next question, as it cannot be its answer.
    pub fn discard(&mut self) {
        self.cutter.rest();
    }
}

impl NextLine {
    fn of(line: CutLine) -> Self {
        match line {
            CutLine::Whole(line) => Self::Line(line),
            CutLine::TooLong(_) => Self::TooLong,
        }
    }
}
