//! What the application needs from outside, said without a process, a socket or a terminal.

use crate::domain::answer::{Answer, Finished};
use crate::domain::image::Image;
use crate::domain::violation::SecurityEvent;
use crate::domain::web::{Fetch, Found, Page, Search, View, WebError};
use broker_protocol::{CallId, Challenge, Extent, Failed, GrantFault, Request, Roots, Spill};
use serde_json::Value;
use std::pin::Pin;

/// The one door to the machine.
pub trait Sandbox {
    /// A call under way.
    type Call: Running;

    /// Where the two zones lie.
    fn roots(&self) -> &Roots;

    /// Starts a call. Waits while too much is still to be sent.
    async fn start(&self, request: Request) -> Result<Self::Call, Failed>;

    /// Has a text kept that the effect of `call` has brought, and says where; `None` where it is not kept.
    async fn keep(&self, call: CallId, text: &[u8]) -> Option<Spill>;
}

/// A call under way. Dropped before its end, it is cancelled.
pub trait Running {
    /// A way to steer it while somebody else follows it.
    type Control;

    /// The number under which the executor knows it.
    fn number(&self) -> CallId;

    /// A way to steer it.
    fn control(&self) -> Self::Control;

    /// What happens next. [`Event::Ended`] is the last.
    async fn next(&mut self) -> Event;

    /// Says that `bytes` of output have found their reader, so that as many more may come.
    fn taken(&mut self, bytes: usize);

    /// Asks for its end; that comes as its outcome.
    fn cancel(&self);

    /// Answers its question.
    fn answer(&self, challenge: &Challenge, approval: Approval);
}

/// What happens in a call.
#[derive(Debug)]
pub enum Event {
    /// A command printed something.
    Output {
        /// Whether on standard error.
        stderr: bool,
        /// What, as it came.
        bytes: Vec<u8>,
    },
    /// It waits for an answer; nothing of it has started.
    Asked(Box<Challenge>),
    /// The answer was not taken, and it waits for another.
    NotTaken(GrantFault),
    /// The call has ended: by itself, or because the executor is gone.
    Ended(Box<Result<Finished, Failed>>),
}

/// Who listens to a command while it runs. A slow one slows the command down.
pub trait Audience {
    /// Takes output.
    async fn hear(&mut self, stderr: bool, bytes: &[u8]) -> Result<(), Gone>;
}

/// Who answers for the user when the policy asks about a call.
pub trait Approver {
    /// Answers a question. Dropped when the call ends first, and never
    /// asked where answers are taken elsewhere.
    async fn approve(&self, asked: &Question<'_>) -> Approval;

    /// Says that a question waits for an answer elsewhere.
    async fn elsewhere(&self, asked: &Question<'_>);
}

/// What is asked about a call.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The executor's question.
    pub challenge: &'a Challenge,
    /// Why the answer before was none.
    pub not_taken: Option<GrantFault>,
    /// Which call of a batch it is about, if it is about one.
    pub part: Option<Part<'a>>,
}

/// One call of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its place, from 0.
    pub index: usize,
    /// The tool's canonical name.
    pub tool: &'a str,
    /// Its input.
    pub input: &'a Value,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// The call may run.
    Yes(Extent),
    /// It may not.
    No,
}

/// The web, as far as the policy lets it be reached.
pub trait Web {
    /// Asks the search engines.
    async fn search(&self, asked: &Search) -> Result<Found, WebError>;

    /// Fetches a page as text.
    async fn fetch(&self, asked: &Fetch) -> Result<Page, WebError>;

    /// Fetches an image.
    async fn view(&self, asked: &View) -> Result<Image, WebError>;
}

/// Who asked for a call: it hears its output, answers its questions and may steer it. One call may be several requests to the executor.
pub trait Caller<C>: Audience + Approver {
    /// What its client calls the call, if it is named there.
    fn id(&self) -> Option<&Value> {
        None
    }

    /// The place in its batch, if the call is part of one.
    fn part(&self) -> Option<usize> {
        None
    }

    /// Whether output is wanted while it comes.
    fn is_live(&self) -> bool;

    /// A request of the call is under way. What was cancelled before is cancelled here.
    fn begun(&self, control: C);

    /// Whether the call shall end: nothing new is started for it.
    fn is_cancelled(&self) -> bool;

    /// Waits until it shall.
    async fn cancelled(&self);
}

/// Sees every call that is asked for, whoever asks and whatever comes of it. Told in the order of things, and never
/// waited for.
pub trait Observer {
    /// A call is asked for; nothing of it is checked yet. `id` is its client's name for it, `batch` the call that it is part
    /// of.
    fn asked(&self, call: u64, id: Option<&Value>, batch: Option<u64>, tool: &str, input: &Value);

    /// The executor has a request of a call, under this number.
    fn started(&self, call: u64, number: CallId);

    /// A call waits for an answer to this question, or has `answer`.
    fn approval(&self, call: u64, challenge: &Challenge, answer: Option<Approval>);

    /// A call tried to leave what it may touch. Its answer comes next.
    fn violated(&self, call: u64, event: &SecurityEvent);

    /// A call has its answer.
    fn answered(&self, call: u64, answer: &Answer);
}

/// Nobody looks.
impl Observer for () {
    fn asked(&self, _: u64, _: Option<&Value>, _: Option<u64>, _: &str, _: &Value) {}
    fn started(&self, _: u64, _: CallId) {}
    fn approval(&self, _: u64, _: &Challenge, _: Option<Approval>) {}
    fn violated(&self, _: u64, _: &SecurityEvent) {}
    fn answered(&self, _: u64, _: &Answer) {}
}

/// Carries out a tool that is not built in: one of a server, or of whoever embeds us. Its input was checked against its
/// schema; what it answers is a stranger's.
pub trait Remote {
    /// Makes one call. Dropped before its end, it is to stop.
    fn call<'a>(
        &'a self,
        named: Named<'a>,
        input: Value,
    ) -> Pin<Box<dyn Future<Output = Result<Reply, Failed>> + 'a>>;
}

/// How its client names the call that a tool is wanted for.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// See [`Caller::id`].
    pub id: Option<&'a Value>,
    /// See [`Caller::part`].
    pub part: Option<usize>,
}

/// What such a tool answers.
#[derive(Debug, Default, PartialEq)]
pub struct Reply {
    /// For the model.
    pub text: Vec<u8>,
    /// For records.
    pub structured: Option<Value>,
}

/// Who listens, and who answers: two in one.
pub struct With<'a, A, P>(pub &'a mut A, pub &'a P);

impl<A: Audience, P> Audience for With<'_, A, P> {
    async fn hear(&mut self, stderr: bool, bytes: &[u8]) -> Result<(), Gone> {
        self.0.hear(stderr, bytes).await
    }
}

impl<A, P: Approver> Approver for With<'_, A, P> {
    async fn approve(&self, asked: &Question<'_>) -> Approval {
        self.1.approve(asked).await
    }

    async fn elsewhere(&self, asked: &Question<'_>) {
        self.1.elsewhere(asked).await;
    }
}

/// Nobody listens any more.
#[derive(Debug)]
pub struct Gone;
