//! The broker: one process a connection, one thread, the user's rights. It believes nothing that comes down from the
//! client and parses nothing that comes up from cells.
//!
//! One request, from socket to reply: [`Connection`] cuts a frame → [`Broker::take`] asks whether it is allowed now →
//! [`Session::call`] decides by the policy and plans → a cell or the file worker carries it out → [`Session`] passes
//! its output on and sends the one `Done`.

mod connection;
mod open;
mod session;
mod order;
mod command;
mod capture;
mod account;
mod files;
mod keep;
mod approval;
mod background;
mod audit;
mod record;

pub use open::User;

use crate::cell::plan::Scratch;
use crate::rest::Rest;
use broker_protocol::{ErrorKind, Failed, FromBroker, Hello, Machine, ToBroker};
use connection::Connection;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use open::{open, open_audit, read_policies};
use policies::Policies;
use session::{Session, Token};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a client that is told why its connection ends may take to read it.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long the processes of a session may take to end; the kernel has been told to end them.
const LAST_BREATHS: Duration = Duration::from_secs(2);

/// Where a connection stands.
enum Phase {
    /// The client has not said hello.
    Greeting,
    /// It has; there is no session yet.
    Greeted { policies: Policies, machine: Option<Box<Machine>> },
    /// The session is open.
    Open(Box<Session>),
}

/// A connection and its session.
struct Broker {
    connection: Connection,
    phase: Phase,
    user: User,
    rest: Rest,
}

/// Serves one client until it leaves or breaks the rules.
///
/// # Errors
/// The socket cannot be used.
pub fn serve(socket: OwnedFd, user: User) -> io::Result<()> {
    let connection = Connection::new(socket)?;
    let mut broker = Broker { connection, phase: Phase::Greeting, user, rest: Rest::default() };
    let fault = loop {
        match broker.turn() {
            Ok(true) => {}
            Ok(false) => break None,
            Err(fault) => break Some(fault),
        }
    };
    if let Some(fault) = &fault {
        broker.record_fault(fault);
    }
    let scratch = match broker.phase {
        Phase::Open(session) => Some(session.close()),
        Phase::Greeting | Phase::Greeted { .. } => None,
    };
    if let Some(fault) = fault {
        // A Fault always fits in a frame; a client that does not read it is cut off all the same.
        let _ = broker.connection.send(&FromBroker::Fault(fault));
        broker.connection.drain(LAST_WORDS);
    }
    reap(LAST_BREATHS);
    scratch.iter().for_each(Scratch::remove);
    Ok(())
}

/// Waits for the processes of a session that has been closed: when this program ends, they are gone.
fn reap(patience: Duration) {
    let until = Instant::now() + patience;
    while Instant::now() < until {
        match waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_millis(1)),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

fn protocol(message: impl Into<String>) -> Failed {
    Failed { kind: ErrorKind::Protocol, message: message.into() }
}

impl Broker {
    /// Records why the connection ends. Nothing is held back for it: what follows is the end in any case.
    fn record_fault(&mut self, fault: &Failed) {
        let event = record::fault(fault);
        let _ = match &mut self.phase {
            Phase::Open(session) => session.audit().note(event),
            Phase::Greeting | Phase::Greeted { .. } => {
                open_audit(&self.user).and_then(|mut audit| audit.note(event))
            }
        };
    }

    /// Waits for something to happen and acts on it; false when the client has left.
    fn turn(&mut self) -> Result<bool, Failed> {
        // Frames that had to wait when they came.
        self.take_frames()?;
        let ready = self.wait().map_err(|error| protocol(format!("waiting failed: {error}")))?;
        for (token, flags) in ready {
            if token == Token::Client {
                if !self.hear_client(flags)? {
                    return Ok(false);
                }
            } else if let Phase::Open(session) = &mut self.phase {
                session.ready(token, &mut self.connection)?;
            }
        }
        if let Phase::Open(session) = &mut self.phase {
            session.tick(Instant::now(), &mut self.connection)?;
        }
        // A client that does not listen any more has left.
        Ok(self.connection.flush().is_ok())
    }

    fn wait(&mut self) -> io::Result<Vec<(Token, PollFlags)>> {
        let mut client = PollFlags::empty();
        client.set(PollFlags::POLLIN, !self.is_full());
        client.set(PollFlags::POLLOUT, self.connection.has_output());
        let mut waited = vec![(Token::Client, PollFd::new(self.connection.fd(), client))];
        let mut timeout = PollTimeout::NONE;
        if let Phase::Open(session) = &self.phase {
            session.wait_for(&mut waited, self.connection.is_full());
            timeout = session.deadline().map_or(PollTimeout::NONE, until);
        }
        let (tokens, mut fds): (Vec<_>, Vec<_>) = waited.into_iter().unzip();
        match self.rest.poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened = |fd: &PollFd| fd.revents().filter(|flags| !flags.is_empty());
        Ok(tokens.into_iter().zip(&fds).filter_map(|(token, fd)| Some((token, happened(fd)?))).collect())
    }

    fn hear_client(&mut self, flags: PollFlags) -> Result<bool, Failed> {
        if flags.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR)
            && !matches!(self.connection.read(), Ok(true))
        {
            return Ok(false);
        }
        self.take_frames()?;
        Ok(true)
    }

    /// Takes the frames that have come whole, until enough waits to be sent or done.
    fn take_frames(&mut self) -> Result<(), Failed> {
        while !self.is_full() {
            let next = self.connection.next().map_err(|error| protocol(error.to_string()))?;
            let Some(frame) = next else { break };
            self.take(frame)?;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        let session_full = match &self.phase {
            Phase::Open(session) => session.is_full(),
            Phase::Greeting | Phase::Greeted { .. } => false,
        };
        session_full || self.connection.is_full()
    }

    /// Every frame, when it is allowed, and who answers it.
    fn take(&mut self, frame: ToBroker) -> Result<(), Failed> {
        match (&mut self.phase, frame) {
            (Phase::Greeting, ToBroker::Hello(hello)) => self.greet(&hello),
            (Phase::Greeted { machine, .. }, ToBroker::Probe) => {
                let machine = machine.get_or_insert_with(|| Box::new(open::machine(&self.user)));
                send(&mut self.connection, &FromBroker::Probed((**machine).clone()))
            }
            (Phase::Greeted { policies, .. }, ToBroker::Open(request)) => {
                let ready = open(&request, policies, &self.user).map_err(|error| error.failed())?;
                send(&mut self.connection, &FromBroker::Opened(ready.opened.clone()))?;
                let session = Session::new(ready, request.spare, self.connection.fd(), &self.user)?;
                self.phase = Phase::Open(Box::new(session));
                Ok(())
            }
            (Phase::Open(session), ToBroker::Call { call, request }) => {
                session.call(call, request, &mut self.connection)
            }
            (Phase::Open(session), ToBroker::Input { call, bytes }) => {
                session.input(call, &bytes, &mut self.connection)
            }
            (Phase::Open(session), ToBroker::InputEnd { call }) => {
                session.input_end(call, &mut self.connection)
            }
            (Phase::Open(session), ToBroker::Resize { call, rows, columns }) => {
                session.resize(call, rows, columns);
                Ok(())
            }
            (Phase::Open(session), ToBroker::Signal { call, signal }) => {
                session.signal(call, signal);
                Ok(())
            }
            (Phase::Open(session), ToBroker::Credit { call, bytes }) => {
                session.credit(call, bytes);
                Ok(())
            }
            (Phase::Open(session), ToBroker::Cancel { call }) => session.cancel(call, &mut self.connection),
            (Phase::Open(session), ToBroker::Attack { call }) => {
                session.attack(call, &self.user.variables, &mut self.connection)
            }
            (Phase::Open(session), ToBroker::Grant(grant)) => session.grant(&grant, &mut self.connection),
            (Phase::Open(session), ToBroker::Refuse { call }) => {
                session.refuse_asked(call, &mut self.connection)
            }
            (Phase::Open(session), ToBroker::Grants) => session.grants(None, &mut self.connection),
            (Phase::Open(session), ToBroker::Revoke { grant }) => {
                session.grants(Some(grant), &mut self.connection)
            }
            (Phase::Open(session), ToBroker::Keep { call, bytes, last }) => {
                session.keep(call, &bytes, last, &mut self.connection)
            }
            (Phase::Greeting, _) => Err(protocol("the first frame of a connection is a Hello")),
            (Phase::Greeted { .. }, _) => Err(protocol("after the Hello come Probe and Open")),
            (Phase::Open(_), ToBroker::Hello(_) | ToBroker::Probe | ToBroker::Open(_)) => {
                Err(protocol("the session is open; a connection has one"))
            }
        }
    }

    fn greet(&mut self, hello: &Hello) -> Result<(), Failed> {
        hello.check().map_err(|error| protocol(error.to_string()))?;
        let policies = read_policies(&self.user).map_err(|error| error.failed())?;
        let digest = policies.digest();
        if hello.policy.is_some_and(|expected| expected != digest) {
            let message = format!("the policy files have the digest {digest}, the client expects another");
            return Err(Failed { kind: ErrorKind::DeniedPolicy, message });
        }
        self.phase = Phase::Greeted { policies, machine: None };
        send(&mut self.connection, &FromBroker::Hello(Hello::ours(Some(digest))))
    }
}

/// Queues a frame of ours.
fn send(connection: &mut Connection, message: &FromBroker) -> Result<(), Failed> {
    let internal =
        |error: broker_protocol::FrameError| Failed { kind: ErrorKind::Internal, message: error.to_string() };
    connection.send(message).map_err(internal)
}

fn until(deadline: Instant) -> PollTimeout {
    // Up, not down: a clock looked at too early is waited for again, at no wait at all.
    let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}
