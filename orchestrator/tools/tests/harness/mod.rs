//! A session of the engine against a broker that does what a test says.

#![allow(dead_code, clippy::unwrap_used)]

use broker_protocol::{
    CallId, Challenge, Channel, Coverage, Digest, Ended, ErrorKind, Failed, FileAnswer, FileReply,
    FromBroker, Listed, Nonce, Open, Outcome, Read, Request, Risk, Spill, ToBroker, Written, Zone,
    ZonePath,
};
use lazaret_fakes::{Peer, Script};
use orchestrator_confine::ConfinementProof;
use orchestrator_engine::executor::{Dial, ExecutorError};
use orchestrator_engine::{
    ApprovalAnswer, Body, Call, CallContext, CallResult, Event, HookGuard, Invocation, Session,
    Subscriber,
};
use orchestrator_results::profile::STANDARD;
use orchestrator_text::redact::Redactor;
use orchestrator_tools::ToolConfig;
use serde_json::Value;
use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;

/// A broker that serves one connection after the other, each by its script.
pub(crate) struct Broker {
    waiting: Arc<Mutex<Vec<Script>>>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Dial for Broker {
    fn dial(&self) -> Result<UnixStream, ExecutorError> {
        let mut waiting = self.waiting.lock().unwrap();
        let Some(script) = (!waiting.is_empty()).then(|| waiting.remove(0)) else {
            return Err(ExecutorError::Lost);
        };
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut threads = self.threads.lock().unwrap();
        let number = threads.len() as u8;
        threads.push(thread::spawn(move || {
            script(&mut Peer::new(theirs, number))
        }));
        Ok(ours)
    }
}

/// What the records of a session have, one word for each event, and the events.
#[derive(Default)]
pub(crate) struct RecordedEvents(pub RefCell<Vec<Event>>, Notify);

impl Subscriber for RecordedEvents {
    fn hear(&self, event: &Event) {
        self.0.borrow_mut().push(event.clone());
        self.1.notify_one();
    }
}

impl RecordedEvents {
    /// Returns when the last record is such a one.
    pub(crate) async fn until_last(&self, is_so: impl Fn(&str) -> bool) {
        while !self.words().last().is_some_and(|word| is_so(word)) {
            self.1.notified().await;
        }
    }

    pub(crate) fn words(&self) -> Vec<String> {
        self.0.borrow().iter().map(word).collect()
    }
}

pub(crate) fn word(event: &Event) -> String {
    let of = event.part.map_or(String::new(), |part| {
        format!(" of {}.{}", part.batch, part.index)
    });
    let what = match &*event.body {
        Body::SessionOpened(_) => "opened".to_owned(),
        Body::ToolRegistered { tool, .. } => format!("registered {tool}"),
        Body::ToolUnregistered { tool, .. } => format!("unregistered {tool}"),
        Body::Requested { tool, .. } => format!("requested {tool}"),
        Body::RequestSent { .. } => "started".to_owned(),
        Body::Hook(ran) => format!("hook {} {}", ran.hook, ran.event.name()),
        Body::Suspended => "suspended".to_owned(),
        Body::Output { bytes, .. } => format!("output {}", String::from_utf8_lossy(bytes)),
        Body::ApprovalWanted(_) => "wants an answer".to_owned(),
        Body::ApprovalGiven { .. } => "has an answer".to_owned(),
        Body::Violation(event) => format!("violation {}", event.violations),
        Body::Connection(decision) => {
            format!("connection {} {}", decision.host, decision.verdict.name())
        }
        Body::Result(result) => {
            format!(
                "result {}",
                result
                    .error
                    .as_ref()
                    .map_or("success", |error| error.kind.name())
            )
        }
    };
    format!("{}{of} {what}", event.call)
}

/// A session whose policy asks nothing, with all tools and no web.
pub(crate) fn config() -> ToolConfig {
    let open = Open {
        profile: "default".into(),
        ..lazaret_fakes::open("/p", "/c")
    };
    let redactor = Box::leak(Box::new(Redactor::new(vec![]).unwrap()));
    ToolConfig {
        profile: &STANDARD,
        max_violations: Some(3),
        ..ToolConfig::new(open, redactor, HookGuard::NoHooks)
    }
}

/// Runs `test` with a session of `config` and what its records have, against `scripts`.
pub(crate) fn with_scripts<T>(
    scripts: Vec<Script>,
    config: ToolConfig,
    test: impl AsyncFnOnce(Session, Rc<RecordedEvents>) -> T,
) -> T {
    let threads = Arc::default();
    let broker = Broker {
        waiting: Arc::new(Mutex::new(scripts)),
        threads: Arc::clone(&threads),
    };
    let records = Rc::new(RecordedEvents::default());
    let config = ToolConfig {
        executor: Some(Box::new(broker)),
        subscribers: vec![records.clone()],
        ..config
    };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .unwrap();
    let result = runtime.block_on(async {
        let session = Session::start(config, ConfinementProof::of_test());
        test(session, records).await
    });
    drop(runtime);
    for thread in threads.lock().unwrap().drain(..) {
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
    result
}

/// The same with one script.
pub(crate) fn with<T>(
    script: impl FnOnce(&mut Peer) + Send + 'static,
    config: ToolConfig,
    test: impl AsyncFnOnce(Session, Rc<RecordedEvents>) -> T,
) -> T {
    with_scripts(vec![Box::new(script)], config, test)
}

/// A text that was to be saved, by the number of its call.
pub(crate) type Saved = (CallId, Vec<u8>);

/// What a broker that only answers has seen.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    requests: Arc<Mutex<Vec<Request>>>,
    saved: Arc<Mutex<Vec<Saved>>>,
}

impl Seen {
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn saved(&self) -> Vec<Saved> {
        self.saved.lock().unwrap().clone()
    }
}

/// How a request ends, and what a file tool answered.
pub(crate) type Done = (Outcome, Option<FileAnswer>);

/// A script that answers every request by `answer`, and saves texts where `saves`.
pub(crate) fn answering(
    mut answer: impl FnMut(&Request) -> Done + Send + 'static,
    saves: bool,
) -> (impl FnOnce(&mut Peer) + Send + 'static, Seen) {
    let seen = Seen::default();
    let (requests, saved) = (seen.requests.clone(), seen.saved.clone());
    let script = move |peer: &mut Peer| {
        peer.open();
        let mut text = Vec::new();
        while let Some(message) = peer.receive() {
            match message {
                ToBroker::Call { call, request } => {
                    let (outcome, file) = answer(&request);
                    requests.lock().unwrap().push(request);
                    match file {
                        Some(file) => peer.answer(call, &file, 64 * 1024),
                        None => peer.done(call, outcome),
                    }
                }
                ToBroker::Keep { call, bytes, last } => {
                    text.extend(bytes);
                    if last {
                        let path = ZonePath::new(Zone::Central, "outputs/1.log").unwrap();
                        let spill = Spill {
                            path,
                            bytes: text.len() as u64,
                            whole: true,
                        };
                        saved
                            .lock()
                            .unwrap()
                            .push((call, std::mem::take(&mut text)));
                        peer.send(&FromBroker::Kept {
                            call,
                            spill: saves.then_some(spill),
                        });
                    }
                }
                _ => {}
            }
        }
    };
    (script, seen)
}

/// What a command is to run it prints, every file holds its path, and every effect is permitted.
pub(crate) fn plain(request: &Request) -> Done {
    match request {
        Request::Bash(_) => ran(Ended::Exited(0), lazaret_fakes::shell(request).as_bytes()),
        Request::FileRead(file) => answered(read(file.path.to_string().as_bytes())),
        Request::FileWrite(_) => answered(written()),
        Request::Effect(_) => (Outcome::Granted, None),
        _ => answered(Ok(FileReply::Listed(Listed {
            entries: vec![],
            truncated: None,
        }))),
    }
}

pub(crate) fn ran(ended: Ended, output: &[u8]) -> Done {
    (lazaret_fakes::ran(ended, output, None), None)
}

pub(crate) fn answered(answer: FileAnswer) -> Done {
    (Outcome::Answered, Some(answer))
}

pub(crate) fn read(content: &[u8]) -> FileAnswer {
    Ok(FileReply::Read(Read {
        content: content.to_vec(),
        first_line: 1,
        lines: 1,
        size: content.len() as u64,
        truncated: None,
        sha256: Some(Digest([1; 32])),
        total_lines: None,
    }))
}

pub(crate) fn written() -> FileAnswer {
    let sha256 = Digest([1; 32]);
    Ok(FileReply::Written(Written {
        bytes: 1,
        created: true,
        sha256,
        change: None,
        hunks: Some(vec![]),
    }))
}

pub(crate) fn failed(kind: ErrorKind) -> Failed {
    Failed {
        kind,
        message: "m".into(),
    }
}

/// A question that is answered through `channel`.
pub(crate) fn question(channel: Channel) -> Challenge {
    Challenge {
        digest: Digest([0; 32]),
        nonce: Nonce([0; 16]),
        rule: "trust:supervised".into(),
        why: "w".into(),
        risk: Risk::Low,
        expires_s: 30,
        channel,
        covers: Coverage::Rule,
        programs: Vec::new(),
        wants: broker_protocol::Wants::default(),
    }
}

/// Starts a call of a tool.
pub(crate) fn start(session: &Session, tool: &str, input: Value) -> Call {
    session.call(
        CallContext::new("test".into()),
        Invocation::Tool {
            name: tool.into(),
            input,
        },
    )
}

/// Makes a call whose questions are allowed once.
pub(crate) async fn call(session: &Session, tool: &str, input: Value) -> Arc<CallResult> {
    finish(start(session, tool, input)).await.1
}

/// Follows a call to its result; every event before it too.
pub(crate) async fn finish(mut call: Call) -> (Vec<Event>, Arc<CallResult>) {
    let mut events = Vec::new();
    while let Some(event) = call.next().await {
        match &*event.body {
            Body::Result(result) if event.part.is_none() => return (events, result.clone()),
            Body::ApprovalWanted(question) if question.challenge.channel == Channel::Relay => {
                let yes = ApprovalAnswer::Yes(broker_protocol::Extent::Once);
                call.handle
                    .approve(event.part.map(|part| part.index), yes)
                    .await;
            }
            _ => {}
        }
        events.push(event);
    }
    panic!("no result")
}

pub(crate) fn kind(result: &Arc<CallResult>) -> &'static str {
    result.error.as_ref().map_or("", |error| error.kind.name())
}

pub(crate) fn text(result: &Arc<CallResult>) -> String {
    String::from_utf8(result.text.clone()).unwrap()
}

pub(crate) fn metadata(result: &Arc<CallResult>) -> Value {
    serde_json::to_value(result.metadata()).unwrap()
}
