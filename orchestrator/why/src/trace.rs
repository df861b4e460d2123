//! The report of `lazaret-trace`. The tracer ran in the cell beside the traced command, which could write into the report. So the
//! report is complete only with a last line that has our key; that line is parsed strictly, and all of it within bounds.

use broker_protocol::{AttemptKind, Traced, TracedCall, limit};
use serde::Deserialize;
use std::collections::BTreeSet;

/// Maximum bytes of a report: several times the usual size.
const BYTES_MAX: usize = 2 << 20;
/// Maximum number of items in a report.
const THINGS_MAX: usize = 1024;

/// Why something may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gap {
    /// A process was not traced, or the command traces processes itself.
    Untraced,
    /// A process's memory could not be read.
    Unread,
    /// There were more items than are reported, or a name that is no short text.
    Unnamed,
    /// The throw-away overlay ran out of space.
    Full,
    /// The tracer did not end by itself.
    Cut,
    /// Some part of it could not be parsed.
    Malformed,
    /// The command wanted a host that this run does not reach.
    Network,
}

impl Gap {
    pub(crate) fn name(self) -> &'static str {
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

    /// Describes to people what is unknown.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Gap::Untraced => {
                "a process of the command was not traced, or traces others itself: what those were denied is not known"
            }
            Gap::Unread => "of some calls it could not be read what they were about",
            Gap::Unnamed => {
                "there was more than is reported, or a path that is no text of 512 bytes"
            }
            Gap::Full => {
                "the space for what is thrown away was full: what would have come after is not known"
            }
            Gap::Cut => "the trace ended before the command did: what came after is not known",
            Gap::Malformed => "parts of the trace cannot be read",
            Gap::Network => {
                "the command wanted hosts, and this run reaches none: what it does with their answers is not known"
            }
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) things: Vec<(Traced, u32)>,
    pub(crate) gaps: Vec<Gap>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ReportedPath {
    Path {
        kind: String,
        path: String,
    },
    Call {
        name: String,
        number: u32,
        arguments: [u64; 6],
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceEnd {
    key: String,
    met: Vec<(ReportedPath, u64)>,
    gaps: Vec<String>,
}

/// The report while it is received.
#[derive(Default)]
pub(crate) struct ReceivedReport(Vec<u8>);

impl ReceivedReport {
    /// Adds bytes. Bytes beyond the bound are dropped, and the report counts as cut.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = BYTES_MAX - self.0.len();
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Parses the report if its last line has `key`. Otherwise, the part that arrived is used as far as possible.
    pub(crate) fn read(self, key: &str) -> Trace {
        let lines = || {
            self.0
                .split_inclusive(|byte| *byte == b'\n')
                .filter(|line| line.ends_with(b"\n"))
        };
        let end = lines()
            .next_back()
            .and_then(|line| serde_json::from_slice::<TraceEnd>(line).ok());
        if let Some(end) = end.filter(|end| end.key == key) {
            return Trace::of(end.met, &end.gaps);
        }
        let met = lines()
            .filter_map(|line| Some((serde_json::from_slice(line).ok()?, 1)))
            .collect();
        Trace::of(met, &[]).cut()
    }
}

/// Whether a trace has all that the command tried.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TraceExtent {
    Whole,
    WithGaps,
}

impl Trace {
    pub(crate) fn extent(&self) -> TraceExtent {
        if self.gaps.is_empty() {
            TraceExtent::Whole
        } else {
            TraceExtent::WithGaps
        }
    }

    fn of(met: Vec<(ReportedPath, u64)>, gaps: &[String]) -> Self {
        let (mut trace, mut gaps_found) = (Self::default(), BTreeSet::new());
        gaps_found.extend(gaps.iter().map(|name| gap_named(name)));
        for (met, count) in met {
            match met.traced() {
                Some(traced) if trace.things.len() < THINGS_MAX => {
                    trace
                        .things
                        .push((traced, u32::try_from(count).unwrap_or(u32::MAX).max(1)));
                }
                Some(_) | None => drop(gaps_found.insert(Gap::Malformed)),
            }
        }
        trace.gaps = gaps_found.into_iter().collect();
        trace
    }

    /// The same for a tracer that did not exit by itself.
    pub(crate) fn cut(mut self) -> Self {
        if !self.gaps.contains(&Gap::Cut) {
            self.gaps.push(Gap::Cut);
        }
        self
    }

    /// The failed calls, in pieces that the executor explains at once.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[(Traced, u32)]> {
        self.things.chunks(limit::TRACED)
    }
}

impl ReportedPath {
    /// The item in the executor's form, if it has one.
    fn traced(self) -> Option<Traced> {
        let traced = match self {
            ReportedPath::Path { kind, path } => {
                let kinds = [
                    AttemptKind::Read,
                    AttemptKind::Write,
                    AttemptKind::Run,
                    AttemptKind::Metadata,
                ];
                let kind = kinds.into_iter().find(|known| known.name() == kind)?;
                Traced::Path { kind, path }
            }
            ReportedPath::Call {
                name,
                number,
                arguments,
            } => Traced::Call(TracedCall {
                name,
                number,
                arguments,
            }),
        };
        Traced::check(std::slice::from_ref(&traced))
            .is_ok()
            .then_some(traced)
    }
}

fn gap_named(name: &str) -> Gap {
    let known = [Gap::Untraced, Gap::Unread, Gap::Unnamed, Gap::Full];
    known
        .into_iter()
        .find(|gap| gap.name() == name)
        .unwrap_or(Gap::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Trace {
        let mut report = ReceivedReport::default();
        text.as_bytes()
            .chunks(3)
            .for_each(|bytes| report.push(bytes));
        report.read("k")
    }

    const ONE: &str = "{\"path\":{\"kind\":\"read\",\"path\":\"/a\"}}";
    const CALL: &str =
        "{\"call\":{\"name\":\"unshare\",\"number\":272,\"arguments\":[1,0,0,0,0,0]}}";

    fn end(met: &str, gaps: &str) -> String {
        format!("{{\"key\":\"k\",\"met\":[{met}],\"gaps\":[{gaps}]}}\n")
    }

    #[test]
    fn the_last_line_says_what_failed_and_how_often() {
        let path = Traced::Path {
            kind: AttemptKind::Read,
            path: "/a".into(),
        };
        let call = TracedCall {
            name: "unshare".into(),
            number: 272,
            arguments: [1, 0, 0, 0, 0, 0],
        };
        let want = Trace {
            things: vec![(path, 3), (Traced::Call(call), 1)],
            gaps: vec![Gap::Unread],
        };
        let last = end(&format!("[{ONE},3],[{CALL},1]"), "\"unread\"");
        // Whatever the command has inserted before it or removed.
        for before in ["", ONE, "anything\n", &format!("{CALL}\n{}", end("", ""))] {
            assert_eq!(
                read(&format!("{}\n{last}", before.trim_end())),
                want,
                "{before}"
            );
        }
        assert!(read(&end("", "")).gaps.is_empty());
    }

    #[test]
    fn a_report_without_it_is_not_whole() {
        let last = end(&format!("[{ONE},3]"), "");
        for text in [
            String::new(),
            format!("{ONE}\n"),
            format!("{ONE}\n{}", last.trim_end()),
            format!("{ONE}\n{}", last.replace("\"k\"", "\"x\"")),
            format!("{last}{ONE}\n"),
            format!("{}\n{last}more\n", "x".repeat(BYTES_MAX)),
        ] {
            let trace = read(&text);
            assert!(
                trace.gaps.contains(&Gap::Cut),
                "{}",
                &text[..text.len().min(200)]
            );
        }
        assert_eq!(read(&format!("{ONE}\n{CALL}\n")).things.len(), 2);
    }

    #[test]
    fn trace_over_a_limit_or_with_unknown_parts_is_malformed() {
        for met in [
            format!("[{},1]", ONE.replace("read", "call")),
            format!("[{},1]", ONE.replace("/a", &"x".repeat(600))),
            vec![format!("[{ONE},1]"); THINGS_MAX + 1].join(","),
        ] {
            assert_eq!(read(&end(&met, "")).gaps, [Gap::Malformed]);
        }
        assert_eq!(read(&end("", "\"none\"")).gaps, [Gap::Malformed]);
    }
}
