//! What a traced command has encountered, each item once, as lines of JSON.
//!
//! An item is written when it is first encountered, in case there is no last line. The last line repeats all items,
//! with a key that no process of the command can have: whatever else was printed or removed, that line is the report.

use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, Write};

/// Maximum number of different items; beyond it, only the fact that there were more is reported.
const MET_MAX: usize = 1024;
/// Maximum bytes of a reported path: what a denial can name.
const PATH_MAX: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Met {
    /// A path, with the access that was attempted.
    Path {
        /// `read`, `write`, `run` or `metadata`.
        kind: &'static str,
        path: String,
    },
    /// A system call that was not permitted.
    Call {
        name: String,
        number: u32,
        arguments: [u64; 6],
    },
}

/// Why the report may be incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Gap {
    /// An untraced process was created, or the command traces processes itself.
    Untraced,
    /// Memory or directories of a process could not be read.
    Unread,
    /// There were more different items than are reported, or paths that are not short text.
    Unnamed,
    /// There was no space to write the report.
    Full,
}

pub(crate) struct TraceReport<W> {
    out: W,
    key: String,
    counts: HashMap<Met, (usize, u64)>,
    gaps: Vec<Gap>,
}

#[derive(Serialize)]
struct TraceSummary<'a> {
    key: &'a str,
    /// Each item with its count, in order.
    met: Vec<(&'a Met, u64)>,
    gaps: &'a [Gap],
}

impl<W: Write> TraceReport<W> {
    /// A report whose last line has `key`.
    pub(crate) fn new(out: W, key: String) -> Self {
        Self {
            out,
            key,
            counts: HashMap::new(),
            gaps: Vec::new(),
        }
    }

    /// Notes an item. A new one is written at once: the command may kill us.
    pub(crate) fn note(&mut self, met: Met) -> io::Result<()> {
        if let Some((_, count)) = self.counts.get_mut(&met) {
            *count += 1;
            return Ok(());
        }
        let is_long = matches!(&met, Met::Path { path, .. } if path.len() > PATH_MAX);
        if is_long || self.counts.len() >= MET_MAX {
            self.miss(Gap::Unnamed);
            return Ok(());
        }
        write(&mut self.out, &met)?;
        let at = self.counts.len();
        self.counts.insert(met, (at, 1));
        Ok(())
    }

    /// Notes that something may be missing.
    pub(crate) fn miss(&mut self, gap: Gap) {
        if !self.gaps.contains(&gap) {
            self.gaps.push(gap);
        }
    }

    /// Writes the last line, which repeats all items.
    pub(crate) fn end(self) -> io::Result<()> {
        let Self {
            mut out,
            key,
            counts,
            gaps,
        } = self;
        let mut met: Vec<_> = counts
            .iter()
            .map(|(met, (at, count))| (*at, met, *count))
            .collect();
        met.sort_unstable_by_key(|(at, ..)| *at);
        let met = met
            .into_iter()
            .map(|(_, met, count)| (met, count))
            .collect();
        write(
            &mut out,
            &TraceSummary {
                key: &key,
                met,
                gaps: &gaps,
            },
        )
    }
}

fn write(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    out.write_all(&bytes)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str) -> Met {
        Met::Path {
            kind: "read",
            path: path.to_owned(),
        }
    }

    #[test]
    fn each_thing_is_a_line_and_the_last_line_counts() {
        let mut out = Vec::new();
        let mut report = TraceReport::new(&mut out, "k".into());
        [path("/a"), path("/b"), path("/a")]
            .into_iter()
            .for_each(|met| report.note(met).unwrap());
        report.miss(Gap::Unread);
        report.end().unwrap();
        let [a, b] = ["a", "b"]
            .map(|name| format!("{{\"path\":{{\"kind\":\"read\",\"path\":\"/{name}\"}}}}"));
        let last = format!("{{\"key\":\"k\",\"met\":[[{a},2],[{b},1]],\"gaps\":[\"unread\"]}}");
        let want = format!("{a}\n{b}\n{last}\n");
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    #[test]
    fn more_than_the_bound_is_a_gap() {
        let mut out = Vec::new();
        let mut report = TraceReport::new(&mut out, "k".into());
        (0..=MET_MAX).for_each(|number| report.note(path(&format!("/{number}"))).unwrap());
        report.note(path(&"x".repeat(PATH_MAX + 1))).unwrap();
        report.end().unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.lines().count() == MET_MAX + 1
                && text.trim_end().ends_with("\"gaps\":[\"unnamed\"]}"),
            "{text}"
        );
    }
}
