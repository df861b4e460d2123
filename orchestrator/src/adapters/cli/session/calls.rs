//! The calls of a session: each has an id until its one result is on its way.

use super::Reopening;
use super::application::Application;
use super::asked::ByLine;
use super::line::{LineError, Registration, Wrong};
use super::waiting::Waiting;
use super::writer::Writer;
use crate::adapters::cli::event::{
    ErrorBody, GrantsEvent, Notice, OutputEvent, ResultEvent, SecurityLine, ToolEvent, ToolsEvent, Whole,
};
use crate::adapters::executor::Control;
use crate::adapters::secrets::known;
use crate::adapters::web::WebClient;
use crate::application::call::Tools;
use crate::application::registry::{self, New, Origin};
use crate::domain::answer::{Answer, Asked};
use crate::domain::catalogue::canonical;
use crate::domain::clean::Cleaner;
use crate::domain::redact;
use crate::ports::{Approval, Approver, Audience, Caller, Gone, Question, Reply};
use broker_protocol::{ErrorKind, Failed, Risk, Standing, limit};
use serde_json::{Value, json};
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
    tools: Tools<WebClient>,
    /// As many calls as may be under way at once that are not the executor's to carry out, or not it alone.
    outside: Semaphore,
    writer: Rc<Writer>,
    by_id: Rc<ById>,
    application: Rc<Application>,
    /// Calls whose result is not written yet.
    unwritten: Cell<usize>,
    written: Notify,
}

/// Calls that have no result yet, by the JSON of their id.
pub type ById = RefCell<HashMap<String, Rc<Entry>>>;

/// What the application says of a call that it was to carry out.
pub type Told = Result<Reply, Failed>;

/// A call that has no result yet.
pub struct Entry {
    /// Its requests to the executor: one, or for a batch several.
    controls: RefCell<Vec<Control>>,
    is_cancelled: Cell<bool>,
    /// Told when it is cancelled, and when a request is under way.
    changed: Notify,
    /// Where the answers to its questions come.
    questions: Waiting<Approval>,
    /// Where what the application's tools came to comes.
    pub told: Waiting<Told>,
    /// What of its line the executor does not have yet.
    held: RefCell<Option<OwnedSemaphorePermit>>,
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
    pub fn new(sandbox: Reopening, tools: Tools<WebClient>, writer: Rc<Writer>) -> Self {
        let by_id = Rc::<ById>::default();
        Self(Rc::new(Shared {
            sandbox,
            tools,
            outside: Semaphore::new(limit::CALLS),
            application: Rc::new(Application::new(by_id.clone(), writer.clone())),
            writer,
            by_id,
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
        let (entry, fed) = Entry::new(input.get("stdin") == Some(&Value::Bool(true)), held);
        shared.by_id.borrow_mut().insert(key.clone(), entry.clone());
        shared.unwritten.set(shared.unwritten.get() + 1);
        tokio::task::spawn_local(async move {
            let answer = shared.answer(&id, &tool, input, &entry, fed).await;
            for event in &answer.security {
                let _ = shared.writer.line(&SecurityLine::new(&id, event)).await;
            }
            // From here on the id is free: who has read the result may use it again at once.
            shared.by_id.borrow_mut().remove(&key);
            if !answer.security.is_empty() && shared.tools.is_over() {
                shared.cancel_all();
            }
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

    /// Ends all of them.
    pub fn cancel_all(&self) {
        self.0.cancel_all();
    }

    /// Answers a call's question. Who answers what nobody asks is told: a yes is never lost without a word.
    pub async fn approve(&self, id: &Value, part: Option<u64>, approval: Approval) {
        if !self.0.entry(id).is_some_and(|entry| entry.questions.answer(part, approval)) {
            self.nobody(id, LineError::NotAsked).await;
        }
    }

    /// Says which grants last for the session, after taking back one of them.
    pub async fn grants(&self, id: &Value, revoke: Option<u64>) {
        match self.standing(revoke).await {
            // A writer that is closed ends the session.
            Ok(standing) => drop(self.0.writer.line(&GrantsEvent::new(id, &standing)).await),
            Err(failed) => self.notice(id, &failed).await,
        }
    }

    async fn standing(&self, revoke: Option<u64>) -> Result<Vec<Standing>, Failed> {
        let sandbox = self.0.sandbox.connection(&self.0.writer).await?;
        let standing = sandbox.standing(None).await?;
        match revoke {
            None => Ok(standing),
            Some(grant) if standing.iter().any(|one| one.grant == grant) => sandbox.standing(revoke).await,
            Some(grant) => {
                let message = format!("there is no grant {grant} in this session");
                Err(Failed { kind: ErrorKind::NotFound, message })
            }
        }
    }

    /// Adds a tool of the application's.
    pub async fn register(&self, id: &Value, asked: Registration) {
        let Registration { name, description, input_schema, risk, timeout } = asked;
        let (risk, timeout_s) = (Risk::from(risk), timeout.unwrap_or(registry::TIMEOUT_S));
        let noted = json!({
            "id": id, "tool": name, "description": description, "inputSchema": input_schema.to_string(),
            "risk": risk.name(), "timeout": timeout_s,
        });
        let new = New {
            origin: Origin::Local { tool: name.clone() },
            description,
            schema: input_schema,
            risk,
            timeout_s,
            remote: self.0.application.tool(&name),
        };
        let made = self.0.tools.registry.borrow_mut().register(new);
        if made.is_ok() {
            self.0.sandbox.log.note("register", 0, &noted);
        }
        self.told(id, made.map(|made| ("registered", made.name))).await;
    }

    /// Takes one out again, with the grants for it. Calls of it that are under way go on.
    pub async fn unregister(&self, id: &Value, tool: String) {
        let gone = self.0.tools.registry.borrow_mut().unregister(&tool);
        if gone.is_ok() {
            self.0.sandbox.log.note("unregister", 0, &json!({ "id": id, "tool": tool }));
            self.forget(&tool).await;
        }
        self.told(id, gone.map(|()| ("unregistered", tool))).await;
    }

    /// Takes back what was allowed of `tool` for the session: the next tool of that name is another. A session that is lost
    /// has no grants.
    async fn forget(&self, tool: &str) {
        let Some(sandbox) = self.0.sandbox.alive() else { return };
        let standing = sandbox.standing(None).await.unwrap_or_default();
        for one in standing.iter().filter(|one| one.tool == tool) {
            let _ = sandbox.standing(Some(one.grant)).await;
        }
    }

    async fn told(&self, id: &Value, done: Result<(&'static str, String), registry::RegistryError>) {
        // A writer that is closed ends the session.
        let _ = match done {
            Ok((event, tool)) => self.0.writer.line(&ToolEvent { id, event, tool: &tool }).await,
            Err(error) => return self.fail(id, error.into()).await,
        };
    }

    /// Says which tools there are, as far as the scope permits them.
    pub async fn tools(&self, id: &Value) {
        let tools = self.0.tools.listed();
        // A writer that is closed ends the session.
        let _ = self.0.writer.line(&ToolsEvent { id, event: "tools", tools }).await;
    }

    /// Takes what the application says of a call that it was to carry out. Of what nobody waits for any more it is told.
    pub async fn tell(&self, id: &Value, part: Option<u64>, told: Told) {
        if !self.0.entry(id).is_some_and(|entry| entry.told.answer(part, told)) {
            self.nobody(id, LineError::NotExecuting).await;
        }
    }

    /// Says that an answer is for nobody. It is only a notice: the call may have its result, and it has one only.
    async fn nobody(&self, id: &Value, error: LineError) {
        self.notice(id, &Failed { kind: ErrorKind::InvalidInput, message: error.to_string() }).await;
    }

    async fn notice(&self, id: &Value, failed: &Failed) {
        let error = ErrorBody::new(failed);
        // A writer that is closed ends the session.
        let _ = self.0.writer.line(&Notice { id: Some(id), event: "notice", error }).await;
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
        self.fail(&wrong.id, Failed { kind: ErrorKind::InvalidInput, message: wrong.error.to_string() })
            .await;
    }

    /// Answers a line that is no call, or none that is understood.
    async fn fail(&self, id: &Value, failed: Failed) {
        match self.0.entry(id) {
            Some(_) => self.notice(id, &failed).await,
            None => self.end(id, failed).await,
        }
    }

    async fn end(&self, id: &Value, failed: Failed) {
        let answer = Answer::failed(&Asked::only(""), failed);
        let _ = self.0.writer.line(&ResultEvent::new(Some(id), &answer)).await;
    }

    /// Whether there were so many violations that no call is made any more.
    pub fn are_over(&self) -> bool {
        self.0.tools.is_over()
    }

    /// Waits until every call has its result written. No input comes any more.
    pub async fn finished(&self) {
        self.0.by_id.borrow().values().for_each(|entry| drop(entry.input.take()));
        self.0.application.leave();
        while self.0.unwritten.get() > 0 {
            self.0.written.notified().await;
        }
    }
}

impl Shared {
    fn cancel_all(&self) {
        self.by_id.borrow().values().for_each(|entry| entry.cancel());
    }

    fn entry(&self, id: &Value) -> Option<Rc<Entry>> {
        self.by_id.borrow().get(&id.to_string()).cloned()
    }

    /// One call, from its line to its answer.
    async fn answer(
        &self,
        id: &Value,
        tool: &str,
        input: Value,
        entry: &Entry,
        fed: Option<UnboundedReceiver<Fed>>,
    ) -> Answer {
        let is_short = entry.held.borrow().as_ref().is_some_and(|held| held.num_permits() <= SAID_TWICE);
        let approver = ByLine {
            id,
            tool: Some(canonical(tool)).filter(|name| !name.is_empty()).unwrap_or(tool),
            input: is_short.then(|| input.clone()),
            writer: &self.writer,
            questions: &entry.questions,
            application: &self.application,
        };
        let mut listener = Listener::new(id, &self.writer, entry, approver, self.tools.is_raw());
        // What the executor has given leave to is no call of its any more, so it does not bound these.
        let _place = match self.tools.goes_outside(tool) {
            true => tokio::select! {
                place = self.outside.acquire() => place.ok(),
                () = entry.cancelled() => return self.tools.never_ran(Some(id), tool, &input, cancelled()),
            },
            false => None,
        };
        let sandbox = tokio::select! {
            sandbox = self.sandbox.connection(&self.writer) => sandbox,
            () = entry.cancelled() => Err(cancelled()),
        };
        let sandbox = match sandbox {
            Ok(sandbox) => sandbox,
            Err(failed) => return self.tools.never_ran(Some(id), tool, &input, failed),
        };
        tokio::select! {
            answer = self.tools.call(&*sandbox, tool, input, &mut listener) => {
                listener.rest().await;
                answer
            }
            never = entry.pass_input(fed) => match never {},
        }
    }
}

fn cancelled() -> Failed {
    Failed { kind: ErrorKind::Cancelled, message: "the call was cancelled before it began".into() }
}

impl Entry {
    fn new(has_input: bool, held: OwnedSemaphorePermit) -> (Rc<Self>, Option<UnboundedReceiver<Fed>>) {
        let (input, fed) = has_input.then(unbounded_channel).unzip();
        let entry = Self {
            controls: RefCell::default(),
            is_cancelled: Cell::new(false),
            changed: Notify::new(),
            questions: Waiting::default(),
            told: Waiting::default(),
            held: RefCell::new(Some(held)),
            input: RefCell::new(input),
        };
        (Rc::new(entry), fed)
    }

    fn cancel(&self) {
        self.is_cancelled.set(true);
        self.changed.notify_waiters();
        self.controls.borrow().iter().for_each(Control::cancel);
    }

    async fn cancelled(&self) {
        while !self.is_cancelled.get() {
            self.changed.notified().await;
        }
    }

    /// A request is under way now; what was asked for before goes to it.
    fn steer(&self, control: Control) {
        if self.is_cancelled.get() {
            control.cancel();
        }
        self.held.take();
        self.controls.borrow_mut().push(control);
        self.changed.notify_waiters();
    }

    /// Feeds the call's request what the client sends, once there is one. Never returns: it is the call that ends.
    async fn pass_input(&self, fed: Option<UnboundedReceiver<Fed>>) -> Infallible {
        let Some(fed) = fed else { return pending().await };
        loop {
            let control = self.controls.borrow().first().cloned();
            match control {
                Some(control) => return pass_input(&control, fed).await,
                None => self.changed.notified().await,
            }
        }
    }
}

/// Feeds a request what the client sends, in order, until that ends. Never returns.
async fn pass_input(control: &Control, mut fed: UnboundedReceiver<Fed>) -> Infallible {
    while let Some(fed) = fed.recv().await {
        control.feed(&fed.bytes).await;
    }
    control.end_input();
    pending().await
}

/// Passes output on as events.
struct Listener<'a> {
    id: &'a Value,
    writer: &'a Writer,
    entry: &'a Entry,
    approver: ByLine<'a>,
    /// Standard output and standard error.
    streams: [Stream; 2],
}

/// One stream of output, on its way to a line: secrets are taken out, characters are joined, and what is not seen goes.
struct Stream {
    clear: redact::Stream<'static>,
    whole: Whole,
    cleaner: Option<Cleaner>,
}

impl Stream {
    fn new(raw: bool) -> Self {
        let cleaner = (!raw).then(Cleaner::default);
        Self { clear: known().stream(), whole: Whole::default(), cleaner }
    }

    fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let clear = self.clear.push(bytes);
        let whole = self.whole.push(&clear);
        match &mut self.cleaner {
            None => whole.into_owned(),
            Some(cleaner) => cleaner.clean(&whole).into_owned(),
        }
    }

    /// What was held back: for a secret that never came whole, or a character.
    fn rest(&mut self) -> Vec<u8> {
        let held = self.clear.rest();
        let mut last = self.whole.push(&held).into_owned();
        last.extend(self.whole.rest());
        match &mut self.cleaner {
            None => last,
            Some(cleaner) => cleaner.clean(&last).into_owned(),
        }
    }
}

impl Audience for Listener<'_> {
    async fn hear(&mut self, stderr: bool, bytes: &[u8]) -> Result<(), Gone> {
        let chunk = self.streams[usize::from(stderr)].push(bytes);
        self.say(stderr, &chunk).await
    }
}

impl Approver for Listener<'_> {
    async fn approve(&self, asked: &Question<'_>) -> Approval {
        self.approver.approve(asked).await
    }

    async fn elsewhere(&self, asked: &Question<'_>) {
        self.approver.elsewhere(asked).await;
    }
}

impl Caller<Control> for Listener<'_> {
    fn id(&self) -> Option<&Value> {
        Some(self.id)
    }

    fn is_live(&self) -> bool {
        true
    }

    fn begun(&self, control: Control) {
        self.entry.steer(control);
    }

    fn is_cancelled(&self) -> bool {
        self.entry.is_cancelled.get()
    }

    async fn cancelled(&self) {
        self.entry.cancelled().await;
    }
}

impl<'a> Listener<'a> {
    fn new(id: &'a Value, writer: &'a Writer, entry: &'a Entry, approver: ByLine<'a>, raw: bool) -> Self {
        Self { id, writer, entry, approver, streams: [Stream::new(raw), Stream::new(raw)] }
    }

    async fn say(&self, stderr: bool, chunk: &[u8]) -> Result<(), Gone> {
        if chunk.is_empty() {
            return Ok(());
        }
        // Without what is not seen, pieces may have become a secret.
        let chunk = known().bytes(chunk);
        self.writer.line(&OutputEvent::new(self.id, stderr, &chunk)).await.map_err(|_| Gone)
    }

    /// Passes on what was held back to the end.
    async fn rest(&mut self) {
        for stderr in [false, true] {
            let rest = self.streams[usize::from(stderr)].rest();
            let _ = self.say(stderr, &rest).await;
        }
    }
}
