//! A provider of one's own, and runs with it: no session is opened, because nothing is called.

use broker_protocol::{Open, Trust};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use orchestrator_agent::agent::{Agent, Order};
use orchestrator_agent::chunk::{Chunk, Chunks, Stop};
use orchestrator_agent::control::RunControl;
use orchestrator_agent::conversation::Conversation;
use orchestrator_agent::error::ProviderError;
use orchestrator_agent::event::{ChatEvent, EndReason};
use orchestrator_agent::message::Message;
use orchestrator_agent::provider::{Model, ModelRequest, Provider};
use orchestrator_agent::publish::EVENTS;
use orchestrator_agent::run::RunEnd;
use orchestrator_agent::settings::RunSettings;
use orchestrator_confine::ConfinementProof;
use orchestrator_engine::{HookGuard, Session};
use orchestrator_text::redact::Redactor;
use orchestrator_tools::ToolConfig;
use policies::secret::Secret;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;

/// The example: a model that says what it was told.
struct Echo;

impl Provider for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn models(&self) -> LocalBoxFuture<'_, Result<Vec<Model>, ProviderError>> {
        async {
            Ok(vec![Model {
                supports_tools: Some(false),
                ..Model::named("echo")
            }])
        }
        .boxed_local()
    }

    fn model<'a>(&'a self, id: &'a str) -> LocalBoxFuture<'a, Result<Model, ProviderError>> {
        async move {
            Ok(Model {
                supports_tools: Some(false),
                ..Model::named(id)
            })
        }
        .boxed_local()
    }

    fn answer<'a>(
        &'a self,
        prompt: &'a ModelRequest<'a>,
        chunks: Chunks,
    ) -> LocalBoxFuture<'a, Result<(), ProviderError>> {
        let text = prompt
            .messages
            .last()
            .map(Message::text)
            .unwrap_or_default();
        async move {
            chunks.send(Chunk::Text { index: 0, text }).await?;
            chunks.send(Chunk::End(Stop::Done)).await
        }
        .boxed_local()
    }
}

/// A provider that does in each attempt what the next step says.
struct Steps(RefCell<Vec<Vec<Step>>>);

#[derive(Clone)]
enum Step {
    Send(Chunk),
    Fail(ProviderError),
    Hang,
}

impl Steps {
    fn new(attempts: Vec<Vec<Step>>) -> Rc<Self> {
        Rc::new(Self(RefCell::new(attempts.into_iter().rev().collect())))
    }

    fn left(&self) -> usize {
        self.0.borrow().len()
    }
}

impl Provider for Steps {
    fn name(&self) -> &str {
        "steps"
    }

    fn models(&self) -> LocalBoxFuture<'_, Result<Vec<Model>, ProviderError>> {
        async { Ok(vec![]) }.boxed_local()
    }

    fn model<'a>(&'a self, id: &'a str) -> LocalBoxFuture<'a, Result<Model, ProviderError>> {
        async move { Ok(Model::named(id)) }.boxed_local()
    }

    fn answer<'a>(
        &'a self,
        _: &'a ModelRequest<'a>,
        chunks: Chunks,
    ) -> LocalBoxFuture<'a, Result<(), ProviderError>> {
        let attempt = self.0.borrow_mut().pop().expect("no attempt was expected");
        async move {
            for step in attempt {
                match step {
                    Step::Send(chunk) => chunks.send(chunk).await?,
                    Step::Fail(error) => return Err(error),
                    Step::Hang => std::future::pending().await,
                }
            }
            Ok(())
        }
        .boxed_local()
    }
}

fn settings(tools: bool) -> RunSettings {
    RunSettings {
        tools,
        ..RunSettings::new("a-model")
    }
}

/// One run, without tools, with a clock that jumps where all wait; its end, its events and what it did to a conversation.
fn run(
    provider: Rc<dyn Provider>,
    settings: RunSettings,
    text: &str,
) -> (RunEnd, Vec<String>, Conversation) {
    let open = Open {
        profile: "default".into(),
        trust: Trust::Guided,
        ..lazaret_fakes::open("/p", "/c")
    };
    let secret = Secret {
        name: "KEY".into(),
        value: b"sk-the-secret-key".to_vec(),
    };
    let redactor: &'static Redactor = Box::leak(Box::new(Redactor::new(vec![secret]).unwrap()));
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build_local(LocalOptions::default());
    runtime.unwrap().block_on(async {
        let config = ToolConfig::new(open, redactor, HookGuard::NoHooks);
        let session = Session::start(config, ConfinementProof::of_test());
        let agent = Agent::new(session, provider, settings, None, redactor);
        let mut conversation = Conversation::default();
        let (sender, mut received) = mpsc::channel(EVENTS);
        let order = Order {
            conversation: "c".into(),
            message: "m".into(),
            text: text.into(),
        };
        let control = RunControl::default();
        let events = async {
            let mut events = Vec::new();
            while let Some(event) = received.recv().await {
                events.push(word(&event));
            }
            events
        };
        let (end, events) = tokio::join!(
            agent.run(order, &mut conversation, &control, sender),
            events
        );
        (end, events, conversation)
    })
}

fn word(event: &ChatEvent) -> String {
    let json = event.to_json();
    let kind = json["type"]
        .as_str()
        .unwrap()
        .strip_prefix("chat:")
        .unwrap()
        .to_owned();
    let detail = ["content", "code", "reason"]
        .iter()
        .find_map(|name| json["payload"][*name].as_str());
    detail.map_or(kind.clone(), |detail| format!("{kind} {detail}"))
}

fn text(text: &str) -> Step {
    Step::Send(Chunk::Text {
        index: 0,
        text: text.into(),
    })
}

fn done() -> Step {
    Step::Send(Chunk::End(Stop::Done))
}

fn busy(seconds: Option<u64>) -> Step {
    let retry_after = seconds.map(Duration::from_secs);
    Step::Fail(ProviderError::RateLimit {
        retry_after,
        reason: "busy".into(),
    })
}

#[test]
fn a_provider_of_ones_own_is_thirty_lines() {
    let (end, events, conversation) = run(Rc::new(Echo), settings(false), "hello");
    assert_eq!((end.reason, end.text.as_str()), (EndReason::Done, "hello"));
    assert_eq!(
        events,
        [
            "stream-start",
            "text-delta hello",
            "turn-end",
            "stream-end done"
        ]
    );
    assert_eq!(conversation.messages.len(), 2);
}

#[test]
fn a_model_without_tools_is_an_error_before_anything_is_sent() {
    let (end, events, conversation) = run(Rc::new(Echo), settings(true), "hello");
    assert!(matches!(end.error, Some(ProviderError::NoTools { .. })));
    assert_eq!(
        events,
        ["stream-start", "error no_tools", "stream-end error"]
    );
    assert_eq!(conversation.messages, []);
}

#[test]
fn request_is_retried_only_before_the_first_piece() {
    let steps = Steps::new(vec![
        vec![busy(Some(7))],
        vec![busy(None)],
        vec![text("hi"), done()],
    ]);
    let (end, events, _) = run(steps, settings(false), "x");
    assert_eq!(end.reason, EndReason::Done);
    let want = [
        "stream-start",
        "retry rate_limit",
        "retry rate_limit",
        "text-delta hi",
        "turn-end",
        "stream-end done",
    ];
    assert_eq!(events, want);
    // After the first piece there is no second attempt: none is there to be made.
    let steps = Steps::new(vec![vec![text("so "), text("far"), busy(None)]]);
    let (end, events, conversation) = run(steps, settings(false), "x");
    assert_eq!(
        events,
        [
            "stream-start",
            "text-delta so ",
            "text-delta far",
            "error rate_limit",
            "stream-end error"
        ]
    );
    assert_eq!(
        (end.text.as_str(), conversation.messages[1].text().as_str()),
        ("so far", "so far")
    );
}

#[test]
fn a_provider_that_stays_busy_is_asked_four_times_and_one_that_wants_an_hour_once() {
    let steps = Steps::new((0..5).map(|_| vec![busy(None)]).collect());
    let (end, _, _) = run(steps.clone(), settings(false), "x");
    assert!(matches!(end.error, Some(ProviderError::RateLimit { .. })));
    assert_eq!(steps.left(), 1);
    let steps = Steps::new(vec![vec![busy(Some(3600))], vec![done()]]);
    let (end, events, _) = run(steps.clone(), settings(false), "x");
    assert_eq!(
        (end.error.unwrap().retry_after(), steps.left()),
        (Some(Duration::from_secs(3600)), 1)
    );
    assert_eq!(
        events,
        ["stream-start", "error rate_limit", "stream-end error"]
    );
}

#[test]
fn an_error_of_the_request_is_not_repeated() {
    for error in [
        ProviderError::Auth {
            reason: "no".into(),
        },
        ProviderError::Invalid {
            reason: "no".into(),
        },
        ProviderError::Cut,
        ProviderError::Malformed("no".into()),
    ] {
        let steps = Steps::new(vec![vec![Step::Fail(error.clone())], vec![done()]]);
        let (end, _, _) = run(steps.clone(), settings(false), "x");
        assert_eq!((end.error, steps.left()), (Some(error), 1));
    }
}

#[test]
fn an_answer_has_a_time_limit_and_so_has_a_run() {
    let steps = Steps::new(vec![vec![text("slow"), Step::Hang]]);
    let (end, events, _) = run(steps, settings(false), "x");
    assert_eq!(end.error, Some(ProviderError::Timeout { seconds: 120 }));
    assert_eq!(
        events,
        [
            "stream-start",
            "text-delta slow",
            "error timeout",
            "stream-end error"
        ]
    );
    let steps = Steps::new(vec![vec![text("slow"), Step::Hang]]);
    let short = RunSettings {
        timeout: Some(Duration::from_secs(5)),
        ..settings(false)
    };
    let (end, events, _) = run(steps, short, "x");
    assert_eq!((end.reason, end.error), (EndReason::Timeout, None));
    assert_eq!(
        events,
        ["stream-start", "text-delta slow", "stream-end timeout"]
    );
}

#[test]
fn model_text_has_no_known_secret_and_no_control_character_however_it_is_cut() {
    let pieces = ["the key is sk-the-", "secret", "-key\u{1b}[2J.", " bye"];
    let attempt = pieces.into_iter().map(text).chain([done()]).collect();
    let (_, events, conversation) = run(Steps::new(vec![attempt]), settings(false), "x");
    let shown: String = events
        .iter()
        .filter_map(|event| event.strip_prefix("text-delta "))
        .collect();
    assert_eq!(shown, "the key is [redacted:KEY]. bye");
    // The model reads its own words as they were.
    assert!(
        conversation.messages[1]
            .text()
            .contains("sk-the-secret-key")
    );
    let refused = ProviderError::Auth {
        reason: "wrong key sk-the-secret-key\u{7}".into(),
    };
    let (_, events, _) = run(
        Steps::new(vec![vec![Step::Fail(refused)]]),
        settings(false),
        "x",
    );
    assert!(!format!("{events:?}").contains("the-secret"));
}

#[test]
fn chunks_that_do_not_fit_end_the_answer_and_nothing_hangs() {
    let json = |index| {
        Step::Send(Chunk::ToolDelta {
            index,
            json: "{}".into(),
        })
    };
    let (end, _, _) = run(
        Steps::new(vec![vec![json(3), json(3), done()]]),
        settings(false),
        "x",
    );
    assert!(matches!(end.error, Some(ProviderError::Malformed(_))));
}
