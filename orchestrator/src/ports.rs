//! What the application needs from outside, said without a process, a socket or a terminal.

use crate::domain::answer::Finished;
use crate::domain::web::{Fetch, Found, Page, Search, WebError};
use broker_protocol::{CallId, Challenge, Extent, Failed, GrantFault, Request, Roots};

/// The one door to the machine.
pub trait Sandbox {
    /// A call under way.
    type Call: Running;

    /// Where the two zones lie.
    fn roots(&self) -> &Roots;

    /// Starts a call. Waits while too much is still to be sent.
    async fn start(&self, request: Request) -> Result<Self::Call, Failed>;
}

/// A call under way. Dropped before its end, it is cancelled.
pub trait Running {
    /// What happens next. [`Event::Ended`] is the last.
    async fn next(&mut self) -> Event;

    /// Its number in the broker's audit.
    fn number(&self) -> CallId;

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
    /// Answers a question; `not_taken` says why the answer before was none. Dropped when the call ends first, and never
    /// asked where answers are taken elsewhere.
    async fn approve(&self, challenge: &Challenge, not_taken: Option<GrantFault>) -> Approval;

    /// Says that a question waits for an answer elsewhere.
    async fn elsewhere(&self, challenge: &Challenge);
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
}

/// Nobody listens any more.
#[derive(Debug)]
pub struct Gone;
