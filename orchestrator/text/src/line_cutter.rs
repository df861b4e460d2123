//! Cuts bytes that arrive in pieces into lines of a bounded length.
//!
//! Why not the `LinesCodec` that Cargo has: its lines are strings, so one byte that is not UTF-8 fails the stream, where a client gets an
//! answer for the line and the next one counts; it ends no line with CR, as server-sent events may; and the beginning of a line that is
//! too long is lost, which a log keeps.

/// The buffer that stays allocated between lines, in bytes.
const KEPT: usize = 128 << 10;

/// The bytes that end a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminator {
    Lf,
    /// LF, CR LF or CR.
    LfOrCr,
}

#[derive(Debug, PartialEq, Eq)]
pub enum CutLine {
    /// A line without its line break.
    Whole(Vec<u8>),
    /// The beginning of a line that is too long. The rest of it is skipped.
    TooLong(Vec<u8>),
}

/// Bytes that were received but not yet returned as lines.
#[derive(Debug)]
pub struct LineCutter {
    terminator: Terminator,
    max: usize,
    buffer: Vec<u8>,
    /// Start of the next line.
    start: usize,
    /// End of the part without a line break.
    searched: usize,
    /// Whether the line at `start` has been returned as too long.
    skipping: bool,
    /// Whether the previous line ended with CR, so that an LF now belongs to it.
    after_return: bool,
}

impl LineCutter {
    /// Cuts lines of at most `max` bytes.
    pub fn new(terminator: Terminator, max: usize) -> Self {
        Self {
            terminator,
            max,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            skipping: false,
            after_return: false,
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next line. Without one, at most `max` bytes stay in memory until the next push.
    pub fn next_line(&mut self) -> Option<CutLine> {
        loop {
            if self.after_return && self.start < self.buffer.len() {
                self.after_return = false;
                self.start += usize::from(self.buffer[self.start] == b'\n');
            }
            let Some(end) = self.end() else {
                return self.unfinished();
            };
            self.after_return = self.buffer[end] == b'\r';
            let line = self.start..end;
            self.start = end + 1;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            return Some(if line.len() > self.max {
                CutLine::TooLong(self.buffer[line.start..line.start + self.max].to_vec())
            } else {
                CutLine::Whole(self.buffer[line].to_vec())
            });
        }
    }

    fn end(&self) -> Option<usize> {
        let from = self.start.max(self.searched);
        let found = self.buffer[from..]
            .iter()
            .position(|byte| match self.terminator {
                Terminator::Lf => *byte == b'\n',
                Terminator::LfOrCr => matches!(byte, b'\n' | b'\r'),
            });
        found.map(|at| from + at)
    }

    fn unfinished(&mut self) -> Option<CutLine> {
        if self.start > 0 {
            self.buffer.drain(..std::mem::take(&mut self.start));
            self.buffer.shrink_to(KEPT);
        }
        let too_long = self.buffer.len() > self.max && !self.skipping;
        let beginning = too_long.then(|| self.buffer[..self.max].to_vec());
        self.skipping |= too_long;
        if self.skipping {
            self.buffer.clear();
        }
        self.searched = self.buffer.len();
        beginning.map(CutLine::TooLong)
    }

    /// The last line, which needs no line break, once the input has ended.
    pub fn last(&mut self) -> Option<CutLine> {
        self.next_line().or_else(|| {
            let rest = self.rest();
            (!rest.is_empty()).then_some(CutLine::Whole(rest))
        })
    }

    /// All bytes that are not yet part of a line. Bytes pushed after this begin a line.
    pub fn rest(&mut self) -> Vec<u8> {
        let cutter = std::mem::replace(self, Self::new(self.terminator, self.max));
        let mut bytes = cutter.buffer;
        bytes.drain(..cutter.start);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 8;

    fn whole(text: &str) -> CutLine {
        CutLine::Whole(text.into())
    }

    fn lines(terminator: Terminator, input: &[u8], piece: usize) -> Vec<CutLine> {
        let mut cutter = LineCutter::new(terminator, MAX);
        let mut cut = Vec::new();
        for bytes in input.chunks(piece) {
            cutter.push(bytes);
            cut.extend(std::iter::from_fn(|| cutter.next_line()));
            assert!(cutter.buffer.len() <= MAX);
        }
        cut.extend(cutter.last());
        assert_eq!(cutter.last(), None);
        cut
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        for piece in 1..12 {
            assert_eq!(
                lines(Terminator::Lf, b"one\n\ntwo\r\n\xff\nend", piece),
                [
                    whole("one"),
                    whole(""),
                    whole("two\r"),
                    CutLine::Whole(vec![0xff]),
                    whole("end")
                ]
            );
            assert_eq!(
                lines(Terminator::LfOrCr, "é\n\r\n€\r\rend".as_bytes(), piece),
                [whole("é"), whole(""), whole("€"), whole(""), whole("end")]
            );
        }
        assert_eq!(lines(Terminator::Lf, b"", 1), []);
    }

    #[test]
    fn long_line_is_skipped_and_the_next_one_is_whole() {
        let long = || CutLine::TooLong(vec![b'y'; MAX]);
        for piece in 1..40 {
            for end in ["\n", "\r", "\r\n"] {
                let input = format!("{}{end}{}{end}z{end}", "x".repeat(MAX), "y".repeat(MAX + 1));
                assert_eq!(
                    lines(Terminator::LfOrCr, input.as_bytes(), piece),
                    [whole("xxxxxxxx"), long(), whole("z")],
                    "{piece}"
                );
            }
            assert_eq!(lines(Terminator::Lf, &[b'y'; 2 * MAX], piece), [long()]);
        }
    }

    #[test]
    fn rest_is_what_no_line_has() {
        let mut cutter = LineCutter::new(Terminator::Lf, MAX);
        cutter.push(b"one\ntwo\nth");
        assert_eq!(cutter.next_line(), Some(whole("one")));
        assert_eq!(cutter.rest(), b"two\nth");
        cutter.push(&[b'y'; MAX + 1]);
        assert!(matches!(cutter.next_line(), Some(CutLine::TooLong(_))));
        assert_eq!(cutter.rest(), b"");
        cutter.push(b"a\n");
        assert_eq!(cutter.next_line(), Some(whole("a")));
    }

    #[test]
    fn a_long_line_leaves_no_large_buffer() {
        let mut cutter = LineCutter::new(Terminator::Lf, 32 << 20);
        cutter.push(&vec![b'x'; 32 << 20]);
        cutter.push(b"\n");
        assert!(matches!(cutter.next_line(), Some(CutLine::Whole(_))));
        assert_eq!(cutter.next_line(), None);
        assert!(cutter.buffer.capacity() <= KEPT);
    }
}
