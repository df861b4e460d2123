//! A unified diff of two states of a text: for the person who has to approve a change, and for the records of changes.

use crate::clean;
use crate::escape::{self, file_name};
use broker_protocol::{Hunk, ZonePath};
use serde::Serialize;
use similar::{Algorithm, TextDiff};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Lines of context around a change.
const CONTEXT: usize = 3;
/// How long to search for the shortest differences within the hunks of one answer. The hunks are already small, so this is rarely
/// needed; other calls wait meanwhile.
const TIME: Duration = Duration::from_millis(50);

/// The change that a call made in a file.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileDiff {
    /// A unified diff without unsafe characters; empty if nothing differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Whether the diff is left out: it is too large or not text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) diff_omitted: bool,
    /// How many characters and sequences were removed from it.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) diff_stripped: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl FileDiff {
    /// The changes of the file at `path`. Secrets must already be removed from `hunks`: here each line gets a prefix.
    pub fn of(path: &ZonePath, hunks: Option<&[Hunk]>) -> Self {
        let binary = |hunk: &Hunk| hunk.old.contains(&0) || hunk.new.contains(&0);
        let Some(hunks) = hunks.filter(|hunks| !hunks.iter().any(binary)) else {
            return Self {
                diff_omitted: true,
                ..Self::default()
            };
        };
        let until = Instant::now() + TIME;
        let (mut diff, mut stripped) = (Vec::new(), 0);
        for hunk in hunks {
            let [old, new] = [&hunk.old, &hunk.new].map(|bytes| clean_text(bytes, &mut stripped));
            diff.extend(lines(
                &old,
                &new,
                (hunk.old_start, hunk.new_start),
                until,
                str::to_owned,
            ));
        }
        if !diff.is_empty() {
            let named = |side: char| file_name(&format!("{side}/{}", path.relative()));
            let head = [format!("--- {}", named('a')), format!("+++ {}", named('b'))];
            diff.splice(..0, head);
            diff.push(String::new());
        }
        Self {
            diff: Some(diff.join("\n")),
            diff_omitted: false,
            diff_stripped: stripped,
        }
    }
}

fn clean_text(bytes: &[u8], stripped: &mut u64) -> String {
    let (clean, taken) = clean::lines(bytes);
    *stripped += taken;
    String::from_utf8_lossy(&clean).into_owned()
}

/// The hunks of a unified diff; each line is passed through `show` without its line break. `start` has the numbers of the first old
/// and new line. Searches for the shortest difference until `until`; after that takes a longer one.
pub fn lines(
    old: &str,
    new: &str,
    start: (u64, u64),
    until: Instant,
    show: impl Fn(&str) -> String,
) -> Vec<String> {
    let [old, new] = [old, new].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .deadline(until)
        .diff_slices(&old, &new);
    let mut hunks = Vec::new();
    for group in diff.grouped_ops(CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            continue;
        };
        let was = span(start.0, first.old_range().start..last.old_range().end);
        let is = span(start.1, first.new_range().start..last.new_range().end);
        hunks.push(format!("@@ -{was} +{is} @@"));
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let line = change.value();
            let whole = line.strip_suffix('\n');
            hunks.push(format!("{}{}", change.tag(), show(whole.unwrap_or(line))));
            if whole.is_none() {
                hunks.push("\\ No newline at end of file".into());
            }
        }
    }
    hunks
}

/// All lines of a text for the person who has to accept it, escaped, each behind a sign: `-` if only `old` has it, `+` if only `new`
/// has it, else a space. Without `old`, all are new.
pub fn whole(old: Option<&str>, new: &str) -> Vec<String> {
    let [old, new] = [old, Some(new)]
        .map(|text| text.map_or_else(Vec::new, |text| text.split('\n').collect::<Vec<_>>()));
    let until = Instant::now() + TIME;
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .deadline(until)
        .diff_slices(&old, &new);
    diff.iter_all_changes()
        .map(|change| format!("{}{}", change.tag(), escape::line(change.value())))
        .collect()
}

/// The line range in a hunk's header: the first line and, unless it is 1, the count. For zero lines it is the line before.
fn span(start: u64, lines: Range<usize>) -> String {
    let first = start.saturating_add(lines.start as u64);
    match lines.len() {
        0 => format!("{},0", first.saturating_sub(1)),
        1 => first.to_string(),
        count => format!("{first},{count}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::Zone;

    fn file_diff(hunks: &[(u64, u64, &[u8], &[u8])]) -> FileDiff {
        let hunk = |(old_start, new_start, old, new): &(u64, u64, &[u8], &[u8])| Hunk {
            old_start: *old_start,
            new_start: *new_start,
            old: old.to_vec(),
            new: new.to_vec(),
        };
        let hunks: Vec<Hunk> = hunks.iter().map(hunk).collect();
        FileDiff::of(&ZonePath::new(Zone::Project, "d/f").unwrap(), Some(&hunks))
    }

    fn diff(old: &[u8], new: &[u8]) -> String {
        let diff = file_diff(&[(5, 6, old, new)]).diff.unwrap();
        diff.strip_prefix("--- a/d/f\n+++ b/d/f\n")
            .unwrap_or(&diff)
            .to_owned()
    }

    #[test]
    fn hunks_have_the_numbers_of_the_file() {
        let hunks: [(u64, u64, &[u8], &[u8]); 2] =
            [(5, 5, b"a\nb\nc\n", b"a\nc\n"), (20, 19, b"x\n", b"y\n")];
        let want = "--- a/d/f\n+++ b/d/f\n@@ -5,3 +5,2 @@\n a\n-b\n c\n@@ -20 +19 @@\n-x\n+y\n";
        assert_eq!(file_diff(&hunks).diff.as_deref(), Some(want));
        assert_eq!(file_diff(&[]).diff.as_deref(), Some(""));
        assert_eq!(
            file_diff(&[(1, 1, b"a\n", b"a\n")]).diff.as_deref(),
            Some("")
        );
        assert_eq!(
            diff(b"a", b""),
            "@@ -5 +5,0 @@\n-a\n\\ No newline at end of file\n"
        );
        // Far apart within one hunk.
        let (old, new) = (
            "1\n2\n3\n4\n5\n6\n7\n8\n9\n",
            "one\n2\n3\n4\n5\n6\n7\n8\nnine\n",
        );
        let two =
            "@@ -5,4 +6,4 @@\n-1\n+one\n 2\n 3\n 4\n@@ -10,4 +11,4 @@\n 6\n 7\n 8\n-9\n+nine\n";
        assert_eq!(diff(old.as_bytes(), new.as_bytes()), two);
    }

    #[test]
    fn diff_for_approval_omits_no_line_and_no_line_passes_for_another() {
        let many = "x\n".repeat(20);
        let new = format!("{many}run it\u{202e}\r\n+y\n");
        let shown = whole(Some(&format!("{many}y")), &new);
        let same = vec![" x"; 20];
        assert_eq!(
            shown,
            [&same[..], &["-y", "+run it\\u{202e}\\u{d}", "++y", "+"]].concat()
        );
        assert_eq!(whole(None, "a\nb"), ["+a", "+b"]);
        assert_eq!(
            (whole(Some("a"), ""), whole(Some(""), "")),
            (vec!["-a".into(), "+".into()], vec![" ".into()])
        );
        // The longest that is shown, without a line in common, takes no longer than the search for differences.
        let [old, new] = ["a\n", "b\n"].map(|line| line.repeat(64 << 10));
        let begun = Instant::now();
        assert_eq!(whole(Some(&old), &new).len(), (128 << 10) + 1);
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{:?}",
            begun.elapsed()
        );
    }

    #[test]
    fn line_ends_and_odd_bytes_stay_sane() {
        assert_eq!(
            diff(b"a\r\nb\r\n", b"a\r\nc\r\n"),
            "@@ -5,2 +6,2 @@\n a\r\n-b\r\n+c\r\n"
        );
        assert_eq!(diff(b"a\r\n", b"a\n"), "@@ -5 +6 @@\n-a\r\n+a\n");
        let none = "\\ No newline at end of file";
        assert_eq!(
            diff(b"a\nb", b"a\nb\n"),
            format!("@@ -5,2 +6,2 @@\n a\n-b\n{none}\n+b\n")
        );
        assert_eq!(
            diff(b"a\nb", b"c\nb"),
            format!("@@ -5,2 +6,2 @@\n-a\n+c\n b\n{none}\n")
        );
        assert_eq!(
            diff(b"\xff\n", b"\xff\xc3\nb\n"),
            "@@ -5 +6,2 @@\n-\u{fffd}\n+\u{fffd}\u{fffd}\n+b\n"
        );
        assert!(
            file_diff(&[(1, 1, b"a\0\n", b"b\n")]).diff_omitted
                && file_diff(&[(1, 1, b"", b"\0")]).diff.is_none()
        );
        let omitted = FileDiff::of(&ZonePath::root(Zone::Project), None);
        assert_eq!(
            serde_json::json!(omitted),
            serde_json::json!({ "diffOmitted": true })
        );
    }

    #[test]
    fn unsafe_characters_are_taken_out_counted_and_make_no_line_of_their_own() {
        let shown = file_diff(&[(1, 1, b"a\n", "\u{1b}[2Jb\u{202e}c\r+d\n".as_bytes())]);
        let want = "--- a/d/f\n+++ b/d/f\n@@ -1 +1 @@\n-a\n+bc␍+d\n";
        assert_eq!(
            (shown.diff.as_deref(), shown.diff_stripped),
            (Some(want), 2)
        );
        let path = ZonePath::new(Zone::Project, "two\nlines").unwrap();
        let hunk = Hunk {
            old_start: u64::MAX,
            new_start: 0,
            old: b"a\n".into(),
            new: vec![],
        };
        let odd = FileDiff::of(&path, Some(&[hunk])).diff.unwrap();
        assert!(
            odd.starts_with("--- \"a/two\\nlines\"\n+++ \"b/two\\nlines\"\n@@ -1844"),
            "{odd}"
        );
    }

    #[test]
    fn the_largest_hunk_takes_no_longer_than_it_may() {
        let half = broker_protocol::limit::HUNKS / 4;
        let text = |step: usize| -> String {
            (0..half)
                .map(|at| if at * step % 7 < 3 { "a\n" } else { "b\n" })
                .collect()
        };
        let begun = Instant::now();
        assert!(
            file_diff(&[(1, 1, text(3).as_bytes(), text(5).as_bytes())])
                .diff
                .is_some()
        );
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{:?}",
            begun.elapsed()
        );
    }
}
