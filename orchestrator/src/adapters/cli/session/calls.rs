//! The calls of a session: each has an id until its one result is on its way.

use super::Reopening;
use super::asked::{ByLine, Slot};
use super::line::{LineError, Wrong};
use super::writer::Writer;
use crate::adapters::cli::event::{ErrorBody, GrantsEvent, Notice, OutputEvent, ResultEvent, Whole};
use crate::adapters::executor::{Control, RunningCall};
use crate::adapters::runlog::RunLog;
use crate::adapters::secrets::known;
use crate::adapters::web::WebClient;
use crate::application::call;
use crate::domain::answer::{Answer, Asked};
use crate::domain::catalogue::{Tool, canonical, web_tool};
use crate::domain::redact::Stream;
use crate::domain::request::live;
use crate::domain::web;
use crate::ports::{Approval, Audience, Gone, Sandbox};
use broker_protocol::{ErrorKind, Failed, limit};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::rc::Rc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Longest line of a call whose question says its input, in bytes: that much is kept for each call under way.
const SAID_TWICE: usize = 64 * 1024;

/// All calls of a session.
pub struct Calls(Rc<Shared>);

struct Shared {
    sandbox: Reopening,
    web: WebClient,
    writer: Rc<Writer>,
    log: Rc<RunLog>,
    /// Calls that have no result yet, by the JSON of their id.
    by_id: RefCell<HashMap<String, Rc<Entry>>>,
    /// As many calls as may be under way at once.
    places: Semaphore,
    /// Calls whose result is not written yet.
    unwritten: Cell<usize>,
    written: Notify,
}

/// A call that has no result yet.
struct Entry {
    control: RefCell<Option<Control>>,
    is_cancelled: Cell<bool>,
    cancelling: Notify,
    /// Where the answer to its question comes.
    question: Slot,
    /// The way to its standard input, if it has one that has not ended.
    input: RefCell<Option<UnboundedSender<Fed>>>,
}

/// A piece of standard input, and the permits that bound how much of it waits.
struct Fed {
    bytes: Vec<u8>,
    _held: OwnedSemaphorePermit,
}

impl Calls {
    /// No calls yet.
    pub fn new(sandbox: Reopening, web: WebClient, writer: Rc<Writer>, log: Rc<RunLog>) -> Self {
        Self(Rc::new(Shared {
            sandbox,
            web,
            writer,
            log,
            by_id: RefCell::default(),
            places: Semaphore::new(limit::CALLS),
            unwritten: Cell::new(0),
            written: Notify::new(),
        }))
    }

    /// Starts a call. `held` is given back when the executor has it.
    pub fn start(
        &self,
        id: Value,
        tool: String,
        input: Value,
        held: OwnedSemaphorePermit,
    ) -> Result<(), Wrong> {
        let shared = self.0.clone();
        let key = id.to_string();
        if shared.by_id.borrow().contains_key(&key) {
            return Err(Wrong { id, error: LineError::IdInUse });
        }
        let (entry, fed) = Entry::new(input.get("stdin") == Some(&Value::Bool(true)));
        shared.by_id.borrow_mut().insert(key.clone(), entry.clone());
        shared.unwritten.set(shared.unwritten.get() + 1);
        tokio::task::spawn_local(async move {
            let step = shared.log.call(Some(&id), &tool, &input);
            let answer = shared.answer(&id, &tool, input, held, &entry, fed).await;
            // Before the client knows: what it then asks for stands behind it.
            shared.log.answer(step, &answer);
            // From here on the id is free: who has read the result may use it again at once.
            shared.by_id.borrow_mut().remove(&key);
            // A writer that is closed ends the session.
            let _ = shared.writer.line(&ResultEvent::new(Some(&id), &answer)).await;
            shared.unwritten.set(shared.unwritten.get() - 1);
            shared.written.notify_one();
        });
        Ok(())
    }

    /// Ends a call. One that has its result already is not worth a word: the client may not have read it yet.
    pub fn cancel(&self, id: &Value) {
        if let Some(entry) = self.0.entry(id) {
            entry.cancel();
        }
    }

    /// Answers a call's question. An answer to a call that has its result already is late, and not worth a word.
    pub fn approve(&self, id: Value, approval: Approval) -> Result<(), Wrong> {
        match self.0.entry(&id) {
            Some(entry) if !entry.question.answer(approval) => Err(Wrong { id, error: LineError::NotAsked }),
            Some(_) | None => Ok(()),
        }
    }

    /// Says which grants last for the session, after taking back one of them.
    pub async fn grants(&self, id: &Value, revoke: Option<u64>) {
        let told = match self.0.sandbox.connection(&self.0.writer).await {
            Ok(sandbox) => sandbox.standing(revoke).await,
            Err(failed) => Err(failed),
        };
        // A writer that is closed ends the session.
        let _ = match &told {
            Ok(standing) => self.0.writer.line(&GrantsEvent::new(id, standing)).await,
            Err(failed) => {
                let error = ErrorBody::new(failed);
                self.0.writer.line(&Notice { id: Some(id), event: "notice", error }).await
            }
        };
    }

    /// Feeds a call's standard input.
    pub async fn feed(
        &self,
        id: Value,
        bytes: Vec<u8>,
        end: bool,
        held: OwnedSemaphorePermit,
    ) -> Result<(), Wrong> {
        let Some(entry) = self.0.entry(&id) else { return Ok(()) };
        let sent = match &*entry.input.borrow() {
            Some(input) => input.send(Fed { bytes, _held: held }).is_ok(),
            None => false,
        };
        if end {
            entry.input.take();
        }
        if sent { Ok(()) } else { Err(Wrong { id, error: LineError::NoInput }) }
    }

    /// Says that a line is wrong. A call under way keeps its one result: then it is only a notice.
    pub async fn refuse(&self, wrong: Wrong) {
        let failed = Failed { kind: ErrorKind::InvalidInput, message: wrong.error.to_string() };
        let under_way = self.0.entry(&wrong.id).is_some() && !matches!(wrong.error, LineError::IdInUse);
        let _ = if under_way {
            let error = ErrorBody::new(&failed);
            self.0.writer.line(&Notice { id: Some(&wrong.id), event: "notice", error }).await
        } else {
            let answer = Answer::failed(&Asked::only(""), failed);
            self.0.writer.line(&ResultEvent::new(Some(&wrong.id), &answer)).await
        };
    }

    /// Waits until every call has its result written. No input comes any more.
    pub async fn finished(&self) {
        self.0.by_id.borrow().values().for_each(|entry| drop(entry.input.take()));
        while self.0.unwritten.get() > 0 {
            self.0.written.notified().await;
        }
    }
}

impl Shared {
    fn entry(&self, id: &Value) -> Option<Rc<Entry>> {
        self.by_id.borrow().get(&id.to_string()).cloned()
    }

    /// One call, from its turn to its answer.
    async fn answer(
        &self,
        id: &Value,
        tool: &str,
        input: Value,
        held: OwnedSemaphorePermit,
        entry: &Entry,
        fed: Option<UnboundedReceiver<Fed>>,
    ) -> Answer {
        if let Some(tool) = web_tool(tool) {
            return self.browse(tool, input, held, entry).await;
        }
        let said_twice = (held.num_permits() <= SAID_TWICE).then(|| input.clone());
        let begun = async {
            let place = self.places.acquire().await;
            (place, self.begin(tool, input).await)
        };
        // The place is kept until the call has ended.
        let (_place, begun) = tokio::select! {
            begun = begun => begun,
            () = entry.cancelled() => return never_run(tool, cancelled()),
        };
        drop(held);
        let call = match begun {
            Ok(call) => call,
            Err(answer) => return *answer,
        };
        let control = call.running.control();
        entry.steer(control.clone());
        let approver = ByLine {
            id,
            tool: Tool::find(tool).map_or(tool, |tool| tool.name),
            input: said_twice,
            writer: &self.writer,
            slot: &entry.question,
        };
        let clear = [known().stream(), known().stream()];
        let mut listener = Listener { id, writer: &self.writer, clear, streams: Default::default() };
        tokio::select! {
            answer = call.finish(&mut listener, &approver, known()) => {
                listener.rest().await;
                answer
            }
            never = pass_input(&control, fed) => match never {},
        }
    }

    /// One call of a web tool. There is nothing to steer: cancelled, it is dropped.
    async fn browse(
        &self,
        tool: &Tool<web::Build>,
        input: Value,
        held: OwnedSemaphorePermit,
        entry: &Entry,
    ) -> Answer {
        let answered = async {
            let _place = self.places.acquire().await;
            drop(held);
            call::web(&self.web, tool, input).await
        };
        tokio::select! {
            answer = answered => answer,
            () = entry.cancelled() => {
                never_run(tool.name, Failed { kind: ErrorKind::Cancelled, message: "the call was cancelled".into() })
            }
        }
    }

    async fn begin(&self, tool: &str, input: Value) -> Result<call::Call<RunningCall>, Box<Answer>> {
        let sandbox = self
            .sandbox
            .connection(&self.writer)
            .await
            .map_err(|failed| Box::new(never_run(tool, failed)))?;
        let request = call::plan(tool, input, sandbox.roots())?;
        call::begin(&*sandbox, live(request)).await
    }
}

fn never_run(tool: &str, failed: Failed) -> Answer {
    Answer::failed(&Asked::only(canonical(tool)), failed)
}

fn cancelled() -> Failed {
    Failed { kind: ErrorKind::Cancelled, message: "the call was cancelled before it began".into() }
}

impl Entry {
    fn new(has_input: bool) -> (Rc<Self>, Option<UnboundedReceiver<Fed>>) {
        let (input, fed) = has_input.then(unbounded_channel).unzip();
        let entry = Self {
            control: RefCell::default(),
            is_cancelled: Cell::new(false),
            cancelling: Notify::new(),
            question: Slot::default(),
            input: RefCell::new(input),
        };
        (Rc::new(entry), fed)
    }

    fn cancel(&self) {
        self.is_cancelled.set(true);
        self.cancelling.notify_one();
        if let Some(control) = &*self.control.borrow() {
            control.cancel();
        }
    }

    async fn cancelled(&self) {
        while !self.is_cancelled.get() {
            self.cancelling.notified().await;
        }
    }

    /// The call is under way now; what was asked for before goes to it.
    fn steer(&self, control: Control) {
        if self.is_cancelled.get() {
            control.cancel();
        }
        self.control.replace(Some(control));
    }
}

/// Feeds a call what the client sends, in order, until that ends. Never returns: it is the call that ends.
async fn pass_input(control: &Control, fed: Option<UnboundedReceiver<Fed>>) -> Infallible {
    if let Some(mut fed) = fed {
        while let Some(fed) = fed.recv().await {
            control.feed(&fed.bytes).await;
        }
        control.end_input();
    }
    pending().await
}

/// Passes output on as events.
struct Listener<'a> {
    id: &'a Value,
    writer: &'a Writer,
    /// Takes out secrets: of standard output and of standard error.
    clear: [Stream<'static>; 2],
    /// Standard output and standard error.
    streams: [Whole; 2],
}

impl Audience for Listener<'_> {
    async fn hear(&mut self, stderr: bool, bytes: &[u8]) -> Result<(), Gone> {
        let clear = self.clear[usize::from(stderr)].push(bytes);
        let chunk = self.streams[usize::from(stderr)].push(&clear);
        self.say(stderr, &chunk).await
    }
}

impl Listener<'_> {
    async fn say(&self, stderr: bool, chunk: &[u8]) -> Result<(), Gone> {
        if chunk.is_empty() {
            return Ok(());
        }
        self.writer.line(&OutputEvent::new(self.id, stderr, chunk)).await.map_err(|_| Gone)
    }

    /// Passes on what never became a whole character.
    async fn rest(&mut self) {
        for stderr in [false, true] {
            let number = usize::from(stderr);
            let held = self.clear[number].rest();
            let last = self.streams[number].push(&held).into_owned();
            let rest = self.streams[number].rest();
            let _ = self.say(stderr, &[last, rest].concat()).await;
        }
    }
}
