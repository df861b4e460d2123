//! Follows one line of a session through the files that it passes.

#[path = "../../session/tests/fake_broker/mod.rs"]
mod fake_broker;

use crate::calls::Calls;
use crate::line_loop::LineLoop;
use crate::line_reader::Lines;
use crate::ready::Announced;
use crate::streams::{Input, Output};
use crate::writer::Writer;
use broker_protocol::{Ended, Open, Trust};
use fake_broker::Peer;
use orchestrator_records::runlog::RunLog;
use orchestrator_session::executor::{Dial, ExecutorError};
use orchestrator_session::{Config, Session};
use policies::{Host, Policies};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread;
use tokio::runtime::{Builder, LocalOptions};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata};

/// Records which files the line passes.
#[derive(Clone, Default)]
struct Passed(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Passed {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let file = event.metadata().file().unwrap_or_default();
        if let Some(at) = file.find("orchestrator/") {
            self.0
                .lock()
                .unwrap()
                .push(file[at + "orchestrator/".len()..].to_owned());
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An executor that can be reached once.
struct One(RefCell<Option<UnixStream>>);

impl Dial for One {
    fn dial(&self) -> Result<UnixStream, ExecutorError> {
        self.0.take().ok_or(ExecutorError::Lost)
    }
}

/// The files that the README lists, in order.
fn listed() -> Vec<String> {
    let readme = include_str!("../../README.md");
    let list = readme
        .split("```path\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    list.lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_line_passes_the_files_that_the_readme_lists_in_that_order() {
    orchestrator_text::known::learn(&[]).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let broker = thread::spawn(move || {
        let mut peer = Peer::new(theirs, 0);
        peer.open();
        let (call, _) = peer.call();
        peer.ended(call, Ended::Exited(0), b"hello");
        assert_eq!(peer.receive(), None);
    });
    let (input, mut lines) = std::io::pipe().unwrap();
    let (mut read, output) = std::io::pipe().unwrap();
    let passed = Passed::default();
    // With only one subscriber, a callsite that another thread without a subscriber reaches first is disabled for all threads.
    let _second = tracing::Dispatch::new(Passed::default());
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let open = Open {
            project: "/p".into(),
            central: "/c".into(),
            profile: String::new(),
            spare: 0,
            scope: None,
            trust: Trust::Autonomous,
            capture: None,
            network: None,
            image: None,
            read: Vec::new(),
            write: Vec::new(),
            throw_away: false,
            reveal: Vec::new(),
            answer_s: None,
        };
        let host = Host {
            home: "/nowhere".into(),
            variables: Default::default(),
        };
        let policy = Policies::load(vec![]).and_then(|policies| policies.resolve("default", &host));
        let announced = Announced::new(&policy, &open, None, None);
        let config = Config {
            executor: Some(Box::new(One(RefCell::new(Some(ours))))),
            subscribers: vec![Rc::new(RunLog::begin("test", true, |_| {}))],
            ..Config::new(open, orchestrator_text::known::redactor())
        };
        let writer = Writer::new(Output::of(output.as_fd()).unwrap());
        let (calls, _) = Calls::new(Session::start(config), writer, announced, false);
        calls.open().await.unwrap();
        let _recording = tracing::subscriber::set_default(passed.clone());
        lines
            .write_all(
                b"{\"op\":\"call\",\"id\":1,\"tool\":\"bash\",\"input\":{\"command\":\"x\"}}\n",
            )
            .unwrap();
        drop(lines);
        LineLoop::new(calls)
            .run(&mut Lines::new(Input::of(input.as_fd()).unwrap()))
            .await;
    });
    drop((runtime, output));
    let mut written = String::new();
    read.read_to_string(&mut written).unwrap();
    assert!(
        written.contains("\"event\":\"result\"") && written.contains("hello"),
        "{written}"
    );
    broker.join().unwrap();
    let mut first_visits: Vec<String> = Vec::new();
    for file in passed.0.lock().unwrap().iter() {
        if !first_visits.contains(file) {
            first_visits.push(file.clone());
        }
    }
    assert_eq!(first_visits, listed());
}
