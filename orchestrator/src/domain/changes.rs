//! What the file tools have changed, in words.

use super::answer::{Changed, Details};
use super::file_answer::{Place, Told, head};
use super::text::name;
use super::time::Utc;
use broker_protocol::{Change, Changes, Undone};

/// Digits of a session's id in a list for people.
const SHORT: usize = 8;

/// What the result of a change says of it beside what was done.
pub fn note(change: Option<u64>) -> &'static str {
    if change.is_some() { "" } else { " (this cannot be undone)" }
}

/// All of them, one a line, newest first.
pub fn listed(changes: &Changes) -> Told {
    let mut lines: Vec<String> = changes.changes.iter().map(line).collect();
    if lines.is_empty() {
        lines.push("no change is kept".to_owned());
    }
    let cut = changes.truncated.map(head);
    if let Some(cut) = &cut {
        let total = cut.total.map_or("unknown".to_owned(), |total| total.to_string());
        lines.push(format!("[truncated: total={total} shown={} strategy=head]", cut.shown));
    }
    let changes = changes.changes.iter().map(describe).collect();
    (lines.join("\n").into_bytes(), cut, Details::Changes { changes })
}

/// One is undone.
pub fn undone(undone: &Undone, place: &Place) -> Told {
    let path = name(&place.path.to_string());
    let kept = undone.change.map_or(note(None).to_owned(), |change| format!(" (change {change})"));
    let text = match undone.sha256 {
        Some(_) => format!("restored {} bytes of {path}{kept}", undone.bytes),
        None => format!("removed {path}{kept}"),
    };
    let sha256 = undone.sha256.map(|digest| digest.to_string());
    let details =
        Details::Undone { path: place.absolute.clone(), bytes: undone.bytes, sha256, change: undone.change };
    (text.into_bytes(), None, details)
}

fn line(change: &Change) -> String {
    let what = match (change.before, change.after) {
        (None, _) => "made",
        (Some(_), Some(_)) => "changed",
        (Some(_), None) => "removed",
    };
    let (number, time, path) =
        (change.number, Utc::from_seconds(change.time_ms / 1000), name(&change.path.to_string()));
    let session = change.session.get(..SHORT).unwrap_or(&change.session);
    format!("{number}  {time}  {what:<7}  {session}:{}  {path}", change.call)
}

fn describe(change: &Change) -> Changed {
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
        let change = |before, after| Change {
            number: 7,
            session: "5e".repeat(16),
            call: 1,
            time_ms: 0,
            path: ZonePath::new(Zone::Project, "a\nb").unwrap(),
            before,
            after,
        };
        let digest = Some(Digest([1; 32]));
        let changes = vec![change(None, digest), change(digest, digest), change(digest, None)];
        let truncated = Some(Truncated { total: Some(9), shown: 3 });
        let (text, _, _) = listed(&Changes { changes, truncated });
        let want = "7  1970-01-01 00:00:00Z  made     5e5e5e5e:1  \"a\\nb\"\n\
                    7  1970-01-01 00:00:00Z  changed  5e5e5e5e:1  \"a\\nb\"\n\
                    7  1970-01-01 00:00:00Z  removed  5e5e5e5e:1  \"a\\nb\"\n\
                    [truncated: total=9 shown=3 strategy=head]";
        assert_eq!(String::from_utf8(text).unwrap(), want);
        let none = Changes { changes: vec![], truncated: None };
        assert_eq!(listed(&none).0, b"no change is kept");
    }
}
