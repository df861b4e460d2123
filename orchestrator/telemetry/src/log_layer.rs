//! Formats each event as a line of JSON: time, level, event, its fields and those of the spans around it.

use crate::fields::Fields;
use crate::log_file::LogFile;
use orchestrator_text::time;
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Maximum length of a line, including its line break. The rest is left out. A pipe writes up to this length atomically.
pub(crate) const LINE_MAX: usize = 4096;
/// Lowest level of events that are written.
const LEVEL: Level = Level::INFO;
/// Marks a line from which fields were left out.
const CUT: &str = ",\"cut\":true";

pub(crate) struct LogLayer(pub LogFile);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LogLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if *event.metadata().level() > LEVEL {
            return;
        }
        let mut fields = Fields::default();
        let spans = context
            .event_scope(event)
            .into_iter()
            .flat_map(|scope| scope.from_root());
        for span in spans {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                fields.update(of_span);
            }
        }
        let mut own = Fields::default();
        event.record(&mut own);
        fields.update(&own);
        self.0
            .write(&line(*event.metadata().level(), now_ms(), &fields));
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A line, with its end.
fn line(level: Level, milliseconds: u64, fields: &Fields) -> Vec<u8> {
    let mut line = format!(
        "{{\"time\":\"{}\",\"level\":\"{}\"",
        time::precise(milliseconds),
        level.as_str().to_ascii_lowercase()
    );
    // The event's name comes first; in `tracing` it is a field like others.
    let event = fields
        .iter()
        .filter(|(name, _)| *name == "message")
        .map(|(_, value)| ("event", value));
    let others = fields.iter().filter(|(name, _)| *name != "message");
    let mut is_cut = false;
    for (name, value) in event.chain(others) {
        let field = format!(",{}:{value}", Value::from(name));
        if line.len() + field.len() + CUT.len() + "}\n".len() <= LINE_MAX {
            line.push_str(&field);
        } else {
            is_cut = true;
        }
    }
    line.push_str(if is_cut { CUT } else { "" });
    line.push_str("}\n");
    line.into_bytes()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test may open what it likes.
mod tests {
    use super::*;
    use crate::fields::TEXT_MAX;
    use orchestrator_text::known;
    use std::fs;
    use std::path::PathBuf;
    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::SubscriberExt;

    const SECRET: &str = "planted-secret-0123456789";

    fn learn() {
        known::learn(&[("PLANTED_TOKEN".into(), SECRET.into())]).unwrap();
    }

    fn lines(test: impl FnOnce()) -> Vec<Value> {
        learn();
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("log");
        let log = LogFile::open(&path, |problem| panic!("{problem}")).unwrap();
        tracing::subscriber::with_default(Registry::default().with(LogLayer(log)), test);
        let text = fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn a_line_has_the_fields_of_its_event_and_of_the_spans_around_it() {
        let written = lines(|| {
            let outer = tracing::info_span!(
                "a",
                connection = 3,
                status = tracing::field::Empty,
                otel.name = "x"
            );
            let _outer = outer.enter();
            let inner = tracing::info_span!("b", tool = "bash", connection = 4);
            let _inner = inner.enter();
            outer.record("status", 200);
            tracing::info!(
                duration_ms = 7u128,
                is_late = false,
                share = 0.5,
                tool = "glob",
                "call"
            );
            tracing::debug!("not written");
        });
        assert_eq!(written.len(), 1, "{written:?}");
        let mut line = written[0].clone();
        assert!(line["time"].as_str().unwrap().ends_with('Z'));
        line["time"] = Value::Null;
        let want = serde_json::json!({
            "time": null, "level": "info", "event": "call", "connection": 4, "status": 200, "tool": "glob",
            "duration_ms": 7, "is_late": false, "share": 0.5,
        });
        assert_eq!(line, want);
    }

    #[test]
    fn secrets_and_unsafe_characters_are_not_written_and_the_rest_is() {
        let written = lines(|| {
            let text = format!("a{SECRET}b\u{1b}[31m\u{202e}\nc\"\\");
            tracing::warn!(text = text.as_str(), debug = ?text, display = %text, "{}", text);
        });
        let line = written[0].to_string();
        for field in ["text", "debug", "display", "event"] {
            let text = written[0][field].as_str().unwrap();
            assert!(
                text.contains('a') && text.contains('c'),
                "{field}: control: the rest of it is there"
            );
            assert!(
                !text.contains('\u{1b}') && !text.contains('\u{202e}'),
                "{field}: {text:?}"
            );
        }
        assert!(!line.contains(SECRET), "{line}");
        assert!(line.contains("[redacted:PLANTED_TOKEN]"), "{line}");
    }

    #[test]
    fn texts_and_lines_have_their_bounds() {
        let written = lines(|| {
            tracing::info!(
                at = "é".repeat(TEXT_MAX / 2),
                above = "x".repeat(TEXT_MAX + 1),
                "x"
            );
        });
        assert_eq!(written[0]["at"].as_str().unwrap().len(), TEXT_MAX);
        assert_eq!(
            written[0]["above"].as_str().unwrap(),
            format!("{}…", "x".repeat(TEXT_MAX))
        );
        // A quote takes two bytes in JSON.
        let quotes = "\"".repeat(TEXT_MAX);
        let written = lines(|| {
            let q = quotes.as_str();
            tracing::info!(
                a = q,
                b = q,
                c = q,
                d = q,
                e = q,
                f = q,
                g = q,
                h = q,
                last = 1,
                "full"
            );
        });
        assert_eq!(written[0]["cut"], true);
        assert!((LINE_MAX - 2 * TEXT_MAX..LINE_MAX).contains(&written[0].to_string().len()));
        assert_eq!(
            (&written[0]["event"], &written[0]["last"]),
            (&"full".into(), &1.into())
        );
    }
}
