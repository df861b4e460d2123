//! What the application needs from outside, said without a process, a socket or a terminal.

use crate::domain::answer::Finished;
use broker_protocol::{Failed, Request, Roots};

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

    /// Says that `bytes` of output have found their reader, so that as many more may come.
    fn taken(&mut self, bytes: usize);

    /// Asks for its end; that comes as its outcome.
    fn cancel(&self);
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
    /// The call has ended: by itself, or because the executor is gone.
    Ended(Box<Result<Finished, Failed>>),
}

/// Who listens to a command while it runs. A slow one slows the command down.
pub trait Audience {
    /// Takes output.
    async fn hear(&mut self, stderr: bool, bytes: &[u8]) -> Result<(), Gone>;
}

/// Nobody listens any more.
#[derive(Debug)]
pub struct Gone;
