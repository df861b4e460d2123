//! The report of `lazaret-trace`. It ran in the cell, and so could what it reports on: each line is read strictly and within bounds,
//! and a report without its last line is not whole.

use broker_protocol::{AttemptKind, Traced, TracedCall, limit};
use serde::Deserialize;

/// Bytes of a report that are taken, some times what one has.
const BYTES_MAX: usize = 2 << 20;
/// Most things in a report.
const THINGS_MAX: usize = 1024;

/// Why something may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gap {
    /// A process was not traced, or the command traces processes itself.
    Untraced,
    /// Memory of a process could not be read.
    Unread,
    /// There was more than is reported, or a name that is no short text.
    Unnamed,
    /// What is thrown away had no room left.
    Full,
    /// The tracer did not end by itself.
    Cut,
    /// What came is no report.
    Malformed,
    /// The command wanted a host that this run does not reach.
    Network,
}

impl Gap {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Gap::Untraced => "untraced",
            Gap::Unread => "unread",
            Gap::Unnamed => "unnamed",
            Gap::Full => "full",
            Gap::Cut => "cut",
            Gap::Malformed => "malformed",
            Gap::Network => "network",
        }
    }

    /// What is not known, for people.
    pub fn describe(self) -> &'static str {
        match self {
            Gap::Untraced => "a process of the command was not traced, or traces others itself: what those were denied is not known",
            Gap::Unread => "of some calls it could not be read what they were about",
            Gap::Unnamed => "there was more than is reported, or a path that is no text of 512 bytes",
            Gap::Full => "the space for what is thrown away was full: what would have come after is not known",
            Gap::Cut => "the trace ended before the command did: what came after is not known",
            Gap::Malformed => "the trace cannot be read",
            Gap::Network => "the command wanted hosts, and this run reaches none: what it does with their answers is not known",
        }
    }
}

/// What a report says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What failed, and how often.
    pub things: Vec<(Traced, u32)>,
    /// What may be missing.
    pub gaps: Vec<Gap>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Path { path: PathLine },
    Call { call: CallLine },
    End { counts: Vec<u64>, gaps: Vec<String> },
}

#[derive(Deserialize)]
struct PathLine {
    kind: String,
    path: String,
}

#[derive(Deserialize)]
struct CallLine {
    name: String,
    number: u32,
    arguments: [u64; 6],
}

/// The report while it comes.
#[derive(Default)]
pub struct Report(Vec<u8>);

impl Report {
    /// Takes bytes. What is over the bound is dropped, and makes the report one that was cut.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = BYTES_MAX - self.0.len();
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// What it says.
    pub fn read(self) -> Trace {
        let mut trace = Trace::default();
        let mut lines = self.0.split_inclusive(|byte| *byte == b'\n');
        let end = loop {
            let Some(line) = lines.next() else { break Err(Gap::Cut) };
            if !line.ends_with(b"\n") {
                break Err(Gap::Cut);
            }
            match serde_json::from_slice(line).ok().map(|line| trace.take(line)) {
                Some(Ok(None)) => {}
                Some(Ok(Some(gaps))) => break Ok(gaps),
                Some(Err(gap)) => break Err(gap),
                None => break Err(Gap::Malformed),
            }
        };
        match end {
            Ok(gaps) => trace.gaps = gaps,
            Err(gap) => trace.gaps.push(gap),
        }
        // Nothing comes after the last line.
        if lines.next().is_some() {
            trace.gaps.push(Gap::Malformed);
        }
        trace
    }
}

impl Trace {
    /// Takes a line; what may be missing, if it is the last one.
    fn take(&mut self, line: Line) -> Result<Option<Vec<Gap>>, Gap> {
        let traced = match line {
            Line::Path { path: PathLine { kind, path } } => {
                let kinds =
                    [AttemptKind::Read, AttemptKind::Write, AttemptKind::Run, AttemptKind::Metadata];
                let kind = kinds.into_iter().find(|known| known.name() == kind).ok_or(Gap::Malformed)?;
                Traced::Path { kind, path }
            }
            Line::Call { call: CallLine { name, number, arguments } } => {
                Traced::Call(TracedCall { name, number, arguments })
            }
            Line::End { counts, gaps } => {
                if counts.len() != self.things.len() {
                    return Err(Gap::Malformed);
                }
                let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
                self.things.iter_mut().zip(counts).for_each(|(thing, count)| thing.1 = small(count).max(1));
                return gaps.iter().map(|gap| gap_named(gap)).collect::<Result<_, _>>().map(Some);
            }
        };
        if self.things.len() >= THINGS_MAX || Traced::check(std::slice::from_ref(&traced)).is_err() {
            return Err(Gap::Malformed);
        }
        self.things.push((traced, 1));
        Ok(None)
    }

    /// The same of a tracer that did not end by itself.
    pub fn cut(mut self) -> Self {
        if !self.gaps.contains(&Gap::Cut) {
            self.gaps.push(Gap::Cut);
        }
        self
    }

    /// What failed, in pieces that the executor explains at once.
    pub fn pieces(&self) -> impl Iterator<Item = &[(Traced, u32)]> {
        self.things.chunks(limit::TRACED)
    }
}

fn gap_named(name: &str) -> Result<Gap, Gap> {
    let known = [Gap::Untraced, Gap::Unread, Gap::Unnamed, Gap::Full];
    known.into_iter().find(|gap| gap.name() == name).ok_or(Gap::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Trace {
        let mut report = Report::default();
        text.as_bytes().chunks(3).for_each(|bytes| report.push(bytes));
        report.read()
    }

    const ONE: &str = "{\"path\":{\"kind\":\"read\",\"path\":\"/a\"}}\n";

    #[test]
    fn a_whole_report_says_what_failed_and_how_often() {
        let call = "{\"call\":{\"name\":\"unshare\",\"number\":272,\"arguments\":[1,0,0,0,0,0]}}\n";
        let trace = read(&format!("{ONE}{call}{{\"counts\":[3,1],\"gaps\":[\"unread\"]}}\n"));
        assert_eq!(trace.gaps, [Gap::Unread]);
        let path = Traced::Path { kind: AttemptKind::Read, path: "/a".into() };
        let call = TracedCall { name: "unshare".into(), number: 272, arguments: [1, 0, 0, 0, 0, 0] };
        assert_eq!(trace.things, [(path, 3), (Traced::Call(call), 1)]);
    }

    #[test]
    fn a_report_that_was_cut_or_forged_is_not_whole() {
        for (text, gap) in [
            (String::new(), Gap::Cut),
            (ONE.to_owned(), Gap::Cut),
            (format!("{ONE}{{\"counts\":[1],\"gaps\":[]}}"), Gap::Cut),
            (format!("{ONE}{{\"counts\":[1,2],\"gaps\":[]}}\n"), Gap::Malformed),
            (format!("{ONE}{{\"counts\":[1],\"gaps\":[]}}\n{ONE}"), Gap::Malformed),
            (format!("{ONE}{{\"counts\":[1],\"gaps\":[\"none\"]}}\n"), Gap::Malformed),
            (ONE.replace("read", "call"), Gap::Malformed),
            (ONE.replace("/a", &"x".repeat(600)), Gap::Malformed),
            (ONE.repeat(THINGS_MAX + 1), Gap::Malformed),
            ("anything\n".to_owned(), Gap::Malformed),
        ] {
            assert_eq!(read(&text).gaps, [gap], "{}", &text[..text.len().min(200)]);
        }
        assert!(read("{\"counts\":[],\"gaps\":[]}\n").gaps.is_empty());
    }
}
