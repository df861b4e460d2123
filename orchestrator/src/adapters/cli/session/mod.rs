//! `lazaret session`: JSON lines in, JSON lines out, one session for all of them.
//!
//! Three things flow and each is bounded: lines that were read and not yet handed on (their bytes hold permits of
//! [`HELD`], and without permits nothing more is read), output (the executor's window: who does not read our output
//! stops the commands), and calls at once (the border's own limit; further ones wait their turn).

mod line;
pub mod reader;
mod writer;
mod calls;
mod asked;
mod waiting;
mod application;

use super::event::{ErrorBody, Notice, Ready};
use super::place::Place;
use super::toolbox::Toolbox;
use super::{exit, runtime, say};
use crate::adapters::confine::{Needs, confine};
use crate::adapters::executor::{Connection, Endpoint, Greeting};
use crate::adapters::runlog::RunLog;
use crate::adapters::web::WebClient;
use crate::application::call::Tools;
use crate::domain::violation;
use broker_protocol::{ErrorKind, Failed, Open};
use calls::Calls;
use clap::Args;
use line::{Line, LineError, Order};
use reader::{Lines, Next};
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal as Listener, SignalKind, signal};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use writer::{Closed, Writer};

/// Bytes of lines that may be held while they wait for a command or for their turn.
const HELD: usize = 8 << 20;
/// What holding a line costs besides its bytes.
const LINE_COST: usize = 1024;
/// How long the calls under way have to end when a signal ends the session.
const ENDING: Duration = Duration::from_secs(5);
/// Cells to keep ready between calls.
const SPARE: u8 = 1;

const EXAMPLES: &str = r#"In, one object a line:
  {"id":"1","tool":"bash","input":{"command":"make","timeout":60}}
  {"id":"2","tool":"bash","input":{"command":"cat","stdin":true}}
  {"id":"2","stdin":"text"}   {"id":"2","stdinBase64":"AP8="}
  {"id":"2","stdinEnd":true}
  {"id":"1","cancel":true}
  {"id":"1","approve":"once"}   or "session", "no", true, false
  {"id":"4","part":0,"approve":"no"}   one call of a batch, by its place
  {"id":"3","grants":true}      {"id":"3","revoke":1}
  {"id":"5","register":{"name":"deploy","description":"...",
      "inputSchema":{"type":"object"},"risk":"high","timeout":60}}
  {"id":"5","unregister":"deploy"}   {"id":"5","tools":true}
  {"id":"6","result":"done","structured":{...}}
  {"id":"6","error":{"kind":"io","message":"..."}}
  {"id":"7","part":0,"result":"..."}   one call of a batch, by its place
Out:
  {"event":"ready","session":{...}}
  {"id":"1","event":"output","stream":"stdout","chunk":"..."}
      (with "chunkBase64" instead where it is not UTF-8)
  {"id":"1","event":"approval","approval":{"digest":"...","rule":"...",
      "why":"...","risk":"high","expiresS":30,"channel":"relay",
      "session":"rule"},"tool":"bash","input":{...}}
      ("session":"call" where that answer would allow this very call only)
  {"id":"3","event":"grants","grants":[{"grant":1,"rule":"...",
      "tool":"bash","calls":2}]}
  {"id":"5","event":"registered","tool":"deploy"}   or "unregistered"
  {"id":"5","event":"tools","tools":[{"name":"bash","description":"...",
      "inputSchema":{...},"category":"exec","risk":"high","aliases":[]}]}
  {"id":"6","event":"execute","tool":"deploy","input":{...}}
  {"id":"1","event":"result","status":"success","result":"...",
      "metadata":{...}}
  {"id":"3","event":"security_event","securityEvent":{"type":
      "sandbox_violation","tool":"...","message":"...","violations":1,...}}
Without --trust nothing is asked: a program that says nothing of approvals
could not answer. With --trust guided a call that changes files or runs a
program is asked about. It waits for "approve"; without an answer in time its
result is the error approval_timeout, and it was not started. With "channel":
"separate" the answer is taken from `lazaret approve` only.
Each call ends with exactly one result. A wrong line gets a result with
status "error" and its id, or null. A cancel or input for a call that has ended
is ignored; an answer that nobody waits for gets a notice. At the end of the input, other calls under way are waited for.
Tools of your own are registered by `register` and called like any other: the
policy decides, by the tool's name and "risk" ("high" if absent). Then the call
comes to you as "execute", and waits up to "timeout" seconds (60; at most 600)
for "result" or "error". Its result without an answer of yours means that it was
cancelled or took too long: stop. An answer for which nobody waits gets a
"notice". At the end of the input such calls end as cancelled.
A call that tries to leave what it may touch is a violation. After
--max-violations of them the calls under way are cancelled, every further one
is refused (denied_policy), and the exit code is 3.

SIGTERM, SIGINT and SIGHUP cancel the calls under way and end the session.

Exit code: 0 at the end of the input; 2 wrong arguments; 3 at its end after
too many violations; 125 no session could be opened, or the output cannot be
written; 128+N if signal N ended it (141 nobody reads the output)."#;

/// Speak JSON lines: many calls at once in one session
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Session {
    #[command(flatten)]
    toolbox: Toolbox,
    /// Violations that end the session; 0: none do [default: with --trust 3, or 1 if it is autonomous; else 0]
    #[arg(long, value_name = "N")]
    max_violations: Option<u32>,
}

impl Session {
    /// Serves standard input until it ends; returns our exit code.
    pub fn main(self, place: Place) -> Result<u8, Failed> {
        let log = Rc::new(place.log());
        let open = self.toolbox.open(place.open(SPARE)?);
        let most = self.max_violations.unwrap_or(place.trust().map_or(0, violation::most));
        let tools = self.toolbox.tools(&open, place.policy(), (most > 0).then_some(most), log.clone())?;
        let endpoint = place.endpoint().lasting();
        let socket = endpoint.as_ref().ok().and_then(|endpoint| endpoint.socket().map(Path::to_owned));
        confine(&Needs { web: true, socket, ..Needs::default() });
        let sandbox = Reopening::new(endpoint.map_err(Failed::from), open, log.clone());
        let served = runtime()?.block_on(serve(sandbox, tools));
        log.end(served.as_ref().map_or("no session could be opened", End::reason));
        served.map(End::code)
    }
}

/// Why a session is over.
enum End {
    Input,
    Violations,
    /// Nobody reads the output.
    Unread,
    /// The output cannot be written.
    Unwritten,
    /// Somebody sent us this signal.
    Signal(u8),
}

impl End {
    fn reason(&self) -> &'static str {
        match self {
            End::Input => "the input ended",
            End::Violations => "there were too many violations",
            End::Unread => "nobody reads the output",
            End::Unwritten => "the output cannot be written",
            End::Signal(_) => "a signal ended it",
        }
    }

    fn code(self) -> u8 {
        match self {
            End::Input => exit::OK,
            End::Violations => exit::VIOLATION,
            End::Unread => exit::SIGNAL + nix::libc::SIGPIPE as u8,
            End::Unwritten => exit::LAZARET,
            End::Signal(number) => exit::SIGNAL + number,
        }
    }

    /// That nothing can be written any more.
    async fn of(writer: &Writer) -> Self {
        let error = writer.closed().await;
        if error.kind() == io::ErrorKind::BrokenPipe {
            return End::Unread;
        }
        say::problem(&format!("cannot write the output: {error}"));
        End::Unwritten
    }
}

/// The signals that ask for the end of a session.
struct Signals {
    terminate: Listener,
    interrupt: Listener,
    hangup: Listener,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one of them.
    async fn next(&mut self) -> End {
        let number = tokio::select! {
            _ = self.terminate.recv() => nix::libc::SIGTERM,
            _ = self.interrupt.recv() => nix::libc::SIGINT,
            _ = self.hangup.recv() => nix::libc::SIGHUP,
        };
        End::Signal(number as u8)
    }
}

async fn serve(sandbox: Reopening, tools: Tools<WebClient>) -> Result<End, Failed> {
    let streams = |error| say::internal(format!("cannot use the standard streams: {error}"));
    let mut lines = Lines::new(super::streams::Input::stdin().map_err(streams)?);
    let writer = Rc::new(Writer::new(super::streams::Output::stdout().map_err(streams)?));
    let mut signals =
        Signals::listen().map_err(|error| say::internal(format!("cannot watch signals: {error}")))?;
    let opened = tokio::select! {
        opened = sandbox.connection(&writer) => opened,
        end = signals.next() => return Ok(end),
    };
    if let Err(failed) = opened {
        let fault = Notice { id: None, event: "fault", error: ErrorBody::new(&failed) };
        return match writer.line(&fault).await {
            Ok(()) => Err(failed),
            Err(Closed) => Ok(End::of(&writer).await),
        };
    }
    tokio::task::spawn_local(sandbox.log.clone().write_later());
    let calls = Calls::new(sandbox, tools, writer.clone());
    let desk = Desk { calls, held: Arc::new(Semaphore::new(HELD)) };
    let end = tokio::select! {
        () = desk.serve(&mut lines) => if desk.calls.are_over() { End::Violations } else { End::Input },
        end = End::of(&writer) => end,
        end = signals.next() => end,
    };
    if let End::Signal(_) = end {
        desk.calls.cancel_all();
        // An executor or a reader that does nothing more does not keep us.
        let _ = timeout(ENDING, desk.calls.finished()).await;
    }
    Ok(end)
}

/// Where lines are taken in.
struct Desk {
    calls: Calls,
    held: Arc<Semaphore>,
}

impl Desk {
    /// Takes every line until the input ends, then waits for the calls under way.
    async fn serve(&self, lines: &mut Lines) {
        loop {
            let taken = match lines.next().await {
                Next::Line(bytes) if bytes.iter().all(u8::is_ascii_whitespace) => Ok(()),
                Next::Line(bytes) => self.take(bytes).await,
                Next::TooLong => Err(LineError::TooLong.into()),
                Next::End => break,
            };
            if let Err(wrong) = taken {
                self.calls.refuse(wrong).await;
            }
        }
        self.calls.finished().await;
    }

    async fn take(&self, bytes: Vec<u8>) -> Result<(), line::Wrong> {
        let cost = (bytes.len() + LINE_COST).min(HELD) as u32;
        let Line { id, order } = line::parse(&bytes)?;
        drop(bytes);
        let calls = &self.calls;
        match order {
            Order::Call { tool, input } => {
                let Some(held) = self.hold(cost).await else { return Ok(()) };
                calls.start(id, tool, input, held)?;
            }
            Order::Feed { bytes, end } => {
                let Some(held) = self.hold(cost).await else { return Ok(()) };
                calls.feed(id, bytes, end, held).await?;
            }
            Order::Cancel => calls.cancel(&id),
            Order::Approve(part, approval) => calls.approve(&id, part, approval).await,
            Order::Grants(revoke) => calls.grants(&id, revoke).await,
            Order::Register(asked) => calls.register(&id, *asked).await,
            Order::Unregister(tool) => calls.unregister(&id, tool).await,
            Order::Tools => calls.tools(&id).await,
            Order::Tell(part, told) => calls.tell(&id, part, told).await,
        }
        Ok(())
    }

    /// Waits until `cost` more may be held. It is never closed, so there is always a permit in the end.
    async fn hold(&self, cost: u32) -> Option<OwnedSemaphorePermit> {
        self.held.clone().acquire_many_owned(cost).await.ok()
    }
}

/// The session's connection. A lost executor ends the calls that were under way; the next call opens a new session.
struct Reopening {
    /// Where the executor is, or why it is nowhere.
    endpoint: Result<Endpoint, Failed>,
    open: Open,
    log: Rc<RunLog>,
    current: RefCell<Option<Rc<Connection>>>,
    /// Held while a connection is made, so that only one is.
    opening: Mutex<()>,
}

impl Reopening {
    fn new(endpoint: Result<Endpoint, Failed>, open: Open, log: Rc<RunLog>) -> Self {
        Self { endpoint, open, log, current: RefCell::default(), opening: Mutex::new(()) }
    }

    /// A connection that is alive, so far as we know. A new one is announced.
    async fn connection(&self, writer: &Writer) -> Result<Rc<Connection>, Failed> {
        if let Some(connection) = self.alive() {
            return Ok(connection);
        }
        let _opening = self.opening.lock().await;
        if let Some(connection) = self.alive() {
            return Ok(connection);
        }
        let endpoint = self.endpoint.as_ref().map_err(Failed::clone)?;
        let connection = Rc::new(Greeting::open(endpoint, self.open.clone())?.opened().await?);
        self.log.session("session", connection.opened());
        self.current.replace(Some(connection.clone()));
        match writer.line(&Ready::new(connection.opened())).await {
            Ok(()) => Ok(connection),
            Err(Closed) => {
                Err(Failed { kind: ErrorKind::Cancelled, message: "nobody reads the output".into() })
            }
        }
    }

    fn alive(&self) -> Option<Rc<Connection>> {
        self.current.borrow().as_ref().filter(|connection| connection.is_alive()).cloned()
    }
}
