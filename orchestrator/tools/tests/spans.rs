//! The spans of a call: which there are, in which order, and what stands in them.

#![allow(clippy::unwrap_used)]

mod harness;

use broker_protocol::{Channel, Ended, ErrorKind, FromBroker, Outcome, Permission, Refused, Scope};
use harness::{answering, call, config, failed, kind, plain, question, ran, with};
use orchestrator_tools::ToolConfig;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

/// A value that nobody may find in a span.
const SECRET: &str = "planted-5ecret";

#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<String>,
    fields: BTreeMap<String, String>,
}

impl Seen {
    fn of(metadata: &'static Metadata<'static>, parent: Option<String>) -> Self {
        Self {
            name: metadata.name(),
            parent,
            fields: BTreeMap::new(),
        }
    }

    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

impl Visit for Seen {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields
            .insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields
            .insert(field.name().to_owned(), format!("{value:?}"));
    }
}

/// Collects spans in the order of their beginning, and the words of events with the span that they are in.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Seen>>>,
    events: Arc<Mutex<Vec<(String, String)>>>,
}

struct Index(usize);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let mut seen = Seen::of(
            span.metadata(),
            span.parent().map(|parent| parent.name().to_owned()),
        );
        attributes.record(&mut seen);
        let mut spans = self.spans.lock().unwrap();
        span.extensions_mut().insert(Index(spans.len()));
        spans.push(seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let index = span.extensions().get::<Index>().unwrap().0;
        values.record(&mut self.spans.lock().unwrap()[index]);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if *event.metadata().level() > Level::DEBUG {
            return;
        }
        let mut seen = Seen::of(event.metadata(), None);
        event.record(&mut seen);
        let span = context.event_span(event).map_or("", |span| span.name());
        self.events
            .lock()
            .unwrap()
            .push((seen.field("message").to_owned(), span.to_owned()));
    }
}

/// Checks which calls are visible in a span of the caller's.
fn collected(
    script: impl FnOnce(&mut lazaret_fakes::Peer) + Send + 'static,
    config: ToolConfig,
    calls: &[(&str, Value)],
) -> (Vec<Seen>, Vec<(String, String)>, Vec<&'static str>) {
    let collector = Collector::default();
    // Where there is one subscriber alone, a place in the code that another thread reaches first, without any, is off for all.
    let _second = tracing::Dispatch::new(Registry::default().with(Collector::default()));
    let hearing = tracing::subscriber::set_default(Registry::default().with(collector.clone()));
    let kinds = with(script, config, async |session, _| {
        let made = async {
            let mut kinds = Vec::new();
            for (tool, input) in calls {
                kinds.push(kind(&call(&session, tool, input.clone()).await));
            }
            kinds
        };
        made.instrument(tracing::info_span!("test")).await
    });
    drop(hearing);
    let (spans, events) = (
        collector.spans.lock().unwrap().clone(),
        collector.events.lock().unwrap().clone(),
    );
    let ours = spans
        .into_iter()
        .filter(|span| span.name.starts_with("tools."))
        .collect();
    (ours, events, kinds)
}

/// Spans and parents as one text each.
fn tree(spans: &[Seen]) -> Vec<String> {
    spans
        .iter()
        .map(|span| format!("{} in {}", span.name, span.parent.as_deref().unwrap_or("-")))
        .collect()
}

#[test]
fn a_call_has_its_stages_in_order_and_nothing_of_its_input() {
    let script = |peer: &mut lazaret_fakes::Peer| {
        peer.open();
        let (call, _) = peer.call();
        peer.send(&FromBroker::Asked {
            call,
            challenge: question(Channel::Relay),
        });
        peer.receive();
        peer.ended(call, Ended::Exited(0), SECRET.as_bytes());
    };
    let input = json!({ "command": format!("echo {SECRET}") });
    let (spans, events, kinds) = collected(script, config(), &[("Bash", input.clone())]);
    assert_eq!(kinds, [""]);
    let want = [
        "tools.run_tool in test",
        "tools.connect in tools.run_tool",
        "tools.validate in tools.run_tool",
        "tools.execute in tools.run_tool",
        "tools.approve in tools.execute",
    ];
    assert_eq!(tree(&spans), want);
    let run = &spans[0];
    let fields = [
        "otel.name",
        "tool",
        "call",
        "agent",
        "outcome",
        "bytes",
        "tier",
        "audit_call",
        "error",
    ];
    let values = fields.map(|field| run.field(field));
    let bytes = SECRET.len().to_string();
    assert_eq!(
        values,
        [
            "tools.run_tool.bash",
            "bash",
            "1",
            "test",
            "ok",
            &bytes,
            "namespaced",
            "1",
            ""
        ]
    );
    assert_eq!(spans[3].field("request"), "bash");
    assert_eq!(spans[3].field("wall_us"), "7");
    assert_eq!(
        ["rule", "answer"].map(|field| spans[4].field(field)),
        ["trust:supervised", "once"]
    );
    let words: Vec<(&str, &str)> = events
        .iter()
        .map(|(word, span)| (word.as_str(), span.as_str()))
        .collect();
    assert_eq!(
        words,
        [
            ("lookup", "tools.run_tool"),
            ("question", "tools.approve"),
            ("call", "tools.run_tool")
        ]
    );
    assert!(
        input.to_string().contains(SECRET),
        "control: it was in the input"
    );
    assert!(
        !format!("{spans:?}{events:?}").contains(SECRET),
        "{spans:#?}"
    );
}

#[test]
fn each_outcome_has_its_name_and_an_unknown_tool_has_none() {
    let mut answers = vec![
        (
            Outcome::Refused(Refused {
                rule: "r".into(),
                why: "w".into(),
                violation: false,
            }),
            None,
        ),
        ran(Ended::Exited(1), b"x"),
        (Outcome::Failed(failed(ErrorKind::Internal)), None),
    ]
    .into_iter();
    let (script, _) = answering(move |_| answers.next().unwrap(), false);
    let command = || json!({"command": "x"});
    let permission = |tool: &str| Permission {
        tool: tool.into(),
        allowed: true,
        paths: vec![],
        timeout_s: None,
        network: true,
    };
    let mut config = config();
    config.open.scope = Some(Scope {
        permissions: vec![permission("bash")],
    });
    let calls = [
        ("bash", command()),
        ("bash", command()),
        ("bash", command()),
        ("bash", json!({})),
        ("file_read", json!({"path": "a"})),
        (SECRET, json!({ SECRET: SECRET })),
    ];
    let (spans, events, kinds) = collected(script, config, &calls);
    let ends: Vec<[&str; 4]> = spans
        .iter()
        .filter(|span| span.name == "tools.run_tool")
        .map(|span| ["tool", "outcome", "error", "stage"].map(|field| span.field(field)))
        .collect();
    let want = [
        ["bash", "denied", "denied_policy", "policy"],
        ["bash", "failed", "exit_nonzero", "result"],
        ["bash", "broken", "internal", "execution"],
        ["bash", "failed", "invalid_input", "validation"],
        ["file_read", "denied", "denied_policy", "policy"],
        ["unknown", "failed", "unknown_tool", "validation"],
    ];
    assert_eq!(ends, want, "{kinds:?}");
    assert!(
        !format!("{spans:?}{events:?}").contains(SECRET),
        "{spans:#?}"
    );
}

#[test]
fn the_calls_of_a_batch_are_spans_in_that_of_the_batch() {
    let (script, _) = answering(plain, false);
    let calls = json!({"invocations": [
        {"tool_name": "file_read", "input": {"path": "a"}},
        {"tool_name": "glob", "input": {"pattern": "*"}},
    ]});
    let (spans, ..) = collected(script, config(), &[("batch", calls)]);
    let runs: Vec<_> = spans
        .iter()
        .filter(|span| span.name == "tools.run_tool")
        .collect();
    let of = |span: &Seen| {
        ["tool", "batch", "part", "outcome"].map(|field| span.field(field).to_owned())
    };
    let batch = runs[0].field("call");
    assert_eq!(of(runs[0]), ["batch", "", "", "ok"]);
    for (run, (tool, part)) in runs[1..].iter().zip([("file_read", "0"), ("glob", "1")]) {
        assert_eq!(of(run), [tool, batch, part, "ok"]);
        assert_eq!(run.parent.as_deref(), Some("tools.run_tool"));
    }
    assert_eq!(runs.len(), 3);
}
