//! Renders the changes made by file tools as text and data.

use crate::metadata::{Changed, Details, Truncation};
use crate::rendered::Rendered;
use broker_protocol::{Changes, FileChange, Undone, ZonePath};
use orchestrator_text::escape::file_name;
use orchestrator_text::time::utc;

/// Digits of a session ID that a list shows to people.
const SHORT: usize = 8;

/// The note in the result of a change that cannot be undone.
pub(crate) fn undo_note(change: Option<u64>) -> &'static str {
    if change.is_some() {
        ""
    } else {
        " (this cannot be undone)"
    }
}

/// A list with one change a line, newest first.
pub(crate) fn listed(changes: &Changes) -> Rendered {
    let mut lines: Vec<String> = changes.changes.iter().map(line).collect();
    if lines.is_empty() {
        lines.push("no changes".to_owned());
    }
    let truncation = changes.truncated.map(|cut| Truncation {
        total: cut.total,
        shown: cut.shown,
        strategy: "head",
        full: None,
    });
    lines.extend(truncation.as_ref().map(Truncation::note));
    let changes = changes.changes.iter().map(describe).collect();
    Rendered {
        truncation,
        ..Rendered::new(lines.join("\n"), Details::Changes { changes })
    }
}

/// A change that has been undone.
pub(crate) fn undone(undone: &Undone, path: &ZonePath, absolute: String) -> Rendered {
    let path = file_name(&path.to_string());
    let change = undone.change.map_or(undo_note(None).to_owned(), |change| {
        format!(" (change {change})")
    });
    let text = match undone.sha256 {
        Some(_) => format!("restored {} bytes of {path}{change}", undone.bytes),
        None => format!("removed {path}{change}"),
    };
    let sha256 = undone.sha256.map(|digest| digest.to_string());
    Rendered::new(
        text,
        Details::Undone {
            path: absolute,
            bytes: undone.bytes,
            sha256,
            change: undone.change,
        },
    )
}

fn line(change: &FileChange) -> String {
    let what = match (change.before, change.after) {
        (None, _) => "made",
        (Some(_), Some(_)) => "changed",
        (Some(_), None) => "removed",
    };
    let (number, time, path) = (
        change.number,
        utc(change.time_ms / 1000),
        file_name(&change.path.to_string()),
    );
    let session = change.session.get(..SHORT).unwrap_or(&change.session);
    format!(
        "{number}  {time}  {what:<7}  {session}:{}  {path}",
        change.call
    )
}

fn describe(change: &FileChange) -> Changed {
    Changed {
        number: change.number,
        session: change.session.clone(),
        call: change.call,
        time_ms: change.time_ms,
        path: change.path.to_string(),
        before: change.before.map(|digest| digest.to_string()),
        after: change.after.map(|digest| digest.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{Digest, Truncated, Zone, ZonePath};

    #[test]
    fn a_change_is_one_line() {
        let change = |before, after| FileChange {
            number: 7,
            session: "5e".repeat(16),
            call: 1,
            time_ms: 0,
            path: ZonePath::new(Zone::Project, "a\nb").unwrap(),
            before,
            after,
        };
        let digest = Some(Digest([1; 32]));
        let changes = vec![
            change(None, digest),
            change(digest, digest),
            change(digest, None),
        ];
        let truncated = Some(Truncated {
            total: Some(9),
            shown: 3,
        });
        let Rendered { text, .. } = listed(&Changes { changes, truncated });
        let want = "7  1970-01-01 00:00:00Z  made     5e5e5e5e:1  \"a\\nb\"\n\
                    7  1970-01-01 00:00:00Z  changed  5e5e5e5e:1  \"a\\nb\"\n\
                    7  1970-01-01 00:00:00Z  removed  5e5e5e5e:1  \"a\\nb\"\n\
                    [truncated: total=9 shown=3 strategy=head]";
        assert_eq!(String::from_utf8(text).unwrap(), want);
        let none = Changes {
            changes: vec![],
            truncated: None,
        };
        assert_eq!(listed(&none).text, b"no changes");
    }
}
