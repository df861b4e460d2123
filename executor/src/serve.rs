//! The broker: one process per connection, one thread, the user's rights. It trusts nothing that the client sends; of
//! what comes from cells it parses reports and refusals alone, of bounded size. The table in [`Broker::take`] lists what the client may send when.

use crate::call::Call;
use crate::fault::protocol;
use crate::gc;
use crate::machine::machine;
use crate::poll::{ClientQueue, Token, Waited};
use crate::ready::StandingSandbox;
use crate::sandbox::read_policies;
use crate::session::Session;
use crate::session::opening::open;
use crate::user::User;
use broker_protocol::{
    CallId, ErrorKind, Failed, FromBroker, Grant, Hello, Machine, Open, ToBroker, Wants,
};
use executor_audit::record::Record;
use executor_peers::Connection;
use executor_spec::scratch::Scratch;
use executor_sys::idle::IdleTrim;
use executor_sys::process;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use policies::Policies;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a client has to read why its connection ends.
const FAULT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the killed processes of a session have to exit.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of frames that wait for the audit while others are handled.
const DEFERRED_MAX: usize = 16;

/// The state of a connection.
enum Phase {
    /// No hello has been received.
    Connected,
    /// No session has been opened yet.
    Greeted {
        policies: Policies,
        machine: Option<Box<Machine>>,
        /// On which the client starts gateways.
        gateways: Option<OwnedFd>,
    },
    Open(Box<Session>),
}

struct Broker {
    connection: Connection,
    /// Readable when somebody has asked this process to end.
    asked_to_end: SignalFd,
    phase: Phase,
    /// Frames that wait for the audit, in order.
    deferred: VecDeque<ToBroker>,
    /// A sandbox that was built before the client came, for its session.
    ready: Option<StandingSandbox>,
    user: User,
    idle: IdleTrim,
}

/// The subject of a frame of an open session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameSubject {
    /// A call, and what it does with it may have a record.
    Recorded(CallId),
    Call(CallId),
    Session,
}

/// Serves one client until it leaves or breaks the rules, with what stands `ready` if that is what it wants.
///
/// # Errors
/// The socket cannot be used.
pub(crate) fn serve(socket: OwnedFd, user: User, ready: Option<StandingSandbox>) -> io::Result<()> {
    let mut connection = Connection::new(socket)?;
    connection.expect_descriptor();
    let mut broker = Broker {
        connection,
        asked_to_end: asked_to_end()?,
        phase: Phase::Connected,
        deferred: VecDeque::new(),
        ready,
        user,
        idle: IdleTrim::default(),
    };
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
    let mut central = None;
    let scratch = match broker.phase {
        Phase::Open(session) => {
            central = session.central().map(Path::to_owned);
            Some(session.close())
        }
        Phase::Connected | Phase::Greeted { .. } => None,
    };
    if let Some(fault) = fault {
        // A `Fault` always fits in a frame; a client that does not read it is disconnected anyway.
        let _ = broker.connection.send(&FromBroker::Fault(fault));
        broker.connection.drain(FAULT_TIMEOUT);
    }
    reap(END_TIMEOUT);
    scratch.iter().for_each(Scratch::remove);
    central.iter().for_each(|central| gc::by_age(central));
    Ok(())
}

/// A logout, a shutdown and `kill` end the session as its client's leaving does: what its commands have left is still looked at. The
/// signals stay blocked in the processes of the session, which are killed; what runs in a cell starts without a mask.
fn asked_to_end() -> io::Result<SignalFd> {
    let signals = [
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
    ];
    let mut set = SigSet::empty();
    signals.into_iter().for_each(|signal| set.add(signal));
    set.thread_block()?;
    Ok(SignalFd::with_flags(
        &set,
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?)
}

/// Waits for the processes of a closed session, so that they are gone when this program exits.
fn reap(timeout: Duration) {
    let until = Instant::now() + timeout;
    while Instant::now() < until {
        match process::reap_any() {
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Ok(Some(_)) => {}
            Err(_) => return,
        }
    }
}

impl Broker {
    /// Records why the connection ends. A failure to write is ignored: the connection ends in any case.
    fn record_fault(&mut self, fault: &Failed) {
        let record = Record::fault(fault.kind);
        let _ = match &mut self.phase {
            Phase::Open(session) => session.audit().note(&record),
            Phase::Connected | Phase::Greeted { .. } => self
                .user
                .open_audit()
                .and_then(|mut audit| audit.note(&record)),
        };
    }

    /// Waits for an event and handles it; false when the client has left.
    fn turn(&mut self) -> Result<bool, Failed> {
        // Frames that were received earlier but could not be handled then.
        self.take_frames()?;
        let ready = self
            .wait()
            .map_err(|error| protocol(format!("waiting failed: {error}")))?;
        for (token, flags) in ready {
            if token == Token::End {
                return Ok(false);
            } else if token == Token::Client {
                if !self.read_client(flags)? {
                    return Ok(false);
                }
            } else if let Phase::Open(session) = &mut self.phase {
                session.ready(token, self.connection.room())?;
                self.collect()?;
            }
        }
        if let Phase::Open(session) = &mut self.phase {
            session.tick(Instant::now())?;
            self.collect()?;
        }
        // A client that does not read any more counts as gone.
        if self.connection.flush().is_err() {
            return Ok(false);
        }
        if let Phase::Open(session) = &mut self.phase {
            // Done after the replies are sent, so that no client waits for it.
            session.prepare_cells()?;
            self.collect()?;
        }
        Ok(true)
    }

    fn wait(&mut self) -> io::Result<Vec<(Token, PollFlags)>> {
        let mut client = PollFlags::empty();
        client.set(PollFlags::POLLIN, !self.is_full());
        client.set(PollFlags::POLLOUT, self.connection.has_output());
        let mut waited = Waited::default();
        waited.add_input(Token::End, self.asked_to_end.as_fd());
        waited.add(Token::Client, self.connection.fd(), client);
        let mut timeout = PollTimeout::NONE;
        if let Phase::Open(session) = &self.phase {
            let queue = match self.connection.is_full() {
                true => ClientQueue::Full,
                false => ClientQueue::HasRoom,
            };
            session.wait_for(&mut waited, queue);
            timeout = session.deadline().map_or(PollTimeout::NONE, until);
        }
        let Waited { tokens, mut fds } = waited;
        match self.idle.poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened = |fd: &PollFd| fd.revents().filter(|flags| !flags.is_empty());
        Ok(tokens
            .into_iter()
            .zip(&fds)
            .filter_map(|(token, fd)| Some((token, happened(fd)?)))
            .collect())
    }

    fn read_client(&mut self, flags: PollFlags) -> Result<bool, Failed> {
        if flags.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR)
            && !matches!(self.connection.read(), Ok(true))
        {
            return Ok(false);
        }
        self.take_frames()?;
        Ok(true)
    }

    /// Handles complete frames until too much output or work is queued.
    fn take_frames(&mut self) -> Result<(), Failed> {
        while let Some(frame) = self.next_deferred()? {
            self.take(frame)?;
            self.collect()?;
        }
        while !self.is_full() {
            let next = self
                .connection
                .next_frame()
                .map_err(|error| protocol(error.to_string()))?;
            let Some(frame) = next else { break };
            if self.is_deferred(&frame)? {
                self.deferred.push_back(frame);
                continue;
            }
            self.take(frame)?;
            self.collect()?;
        }
        Ok(())
    }

    /// The next frame that has waited for the audit, if it need not wait longer.
    fn next_deferred(&mut self) -> Result<Option<ToBroker>, Failed> {
        let (Phase::Open(session), Some(frame)) = (&mut self.phase, self.deferred.front()) else {
            return Ok(None);
        };
        let waits = match subject(frame) {
            FrameSubject::Recorded(_) => !session.audit().try_lock()?,
            FrameSubject::Call(_) | FrameSubject::Session => false,
        };
        Ok(match waits {
            true => None,
            false => self.deferred.pop_front(),
        })
    }

    /// Whether a frame waits for the audit, which another broker holds, or for one before it that does.
    fn is_deferred(&mut self, frame: &ToBroker) -> Result<bool, Failed> {
        let Phase::Open(session) = &mut self.phase else {
            return Ok(false);
        };
        let is_of = |call, other: &ToBroker| match subject(other) {
            FrameSubject::Recorded(of) | FrameSubject::Call(of) => of == call,
            FrameSubject::Session => false,
        };
        Ok(match subject(frame) {
            FrameSubject::Recorded(_) => {
                !self.deferred.is_empty() || !session.audit().try_lock()?
            }
            FrameSubject::Call(call) => self.deferred.iter().any(|other| is_of(call, other)),
            FrameSubject::Session => false,
        })
    }

    fn is_full(&self) -> bool {
        let session_full = match &self.phase {
            Phase::Open(session) => session.is_full(),
            Phase::Connected | Phase::Greeted { .. } => false,
        };
        session_full || self.connection.is_full() || self.deferred.len() >= DEFERRED_MAX
    }

    /// Queues the session's frames for the client.
    fn collect(&mut self) -> Result<(), Failed> {
        let Phase::Open(session) = &mut self.phase else {
            return Ok(());
        };
        let (frames, pending_head) = session.collect()?;
        frames.iter().try_for_each(|frame| self.send(frame))?;
        if let Phase::Open(session) = &mut self.phase
            && let Some(pending_head) = pending_head
        {
            // The client gets its answer first. If it is gone, the end of the turn finds that too.
            let _ = self.connection.flush();
            session.audit().write_head(pending_head)?;
        }
        if let Phase::Open(session) = &mut self.phase {
            // The step that needed records is over.
            session.audit().unlock()?;
        }
        Ok(())
    }

    fn send(&mut self, frame: &FromBroker) -> Result<(), Failed> {
        self.connection
            .send(frame)
            .map_err(|error| Failed::internal(error.to_string()))
    }

    /// Lists every frame, when it is allowed, and what handles it. A frame for a call that has just
    /// ended is dropped: the client could not know of the end.
    fn take(&mut self, frame: ToBroker) -> Result<(), Failed> {
        match (&mut self.phase, frame) {
            (Phase::Connected, ToBroker::Hello(hello)) => self.greet(&hello),
            (Phase::Connected, _) => Err(protocol("the first frame of a connection is a Hello")),
            (Phase::Greeted { machine: known, .. }, ToBroker::Probe) => {
                let probed = known.get_or_insert_with(|| Box::new(machine(&self.user)));
                let probed = FromBroker::Probed((**probed).clone());
                self.send(&probed)
            }
            (Phase::Greeted { gateways, .. }, ToBroker::GatewayLine) => {
                *gateways = self.connection.take_descriptor();
                match gateways {
                    Some(_) => Ok(()),
                    None => Err(protocol("a GatewayLine carries one descriptor")),
                }
            }
            (Phase::Greeted { .. }, ToBroker::Open(request)) => self.open(&request),
            (Phase::Greeted { .. }, _) => Err(protocol(
                "unexpected frame: only Probe, GatewayLine or Open may follow Hello",
            )),
            (Phase::Open(session), ToBroker::Content { call, bytes }) => {
                session.take_content(call, &bytes)
            }
            (Phase::Open(session), ToBroker::Call { call, request }) => {
                session.call(call, request, Wants::default())
            }
            (
                Phase::Open(session),
                ToBroker::WantingCall {
                    call,
                    request,
                    wants,
                },
            ) => session.call(call, request, wants),
            (Phase::Open(session), ToBroker::Input { call, bytes }) => {
                session.take_input(call, &bytes)
            }
            (Phase::Open(session), ToBroker::InputEnd { call }) => {
                session.with_call(call, Call::end_input);
                Ok(())
            }
            (
                Phase::Open(session),
                ToBroker::Resize {
                    call,
                    rows,
                    columns,
                },
            ) => {
                session.with_call(call, |call| call.resize(rows, columns));
                Ok(())
            }
            (Phase::Open(session), ToBroker::Signal { call, signal }) => {
                session.with_call(call, |call| call.signal(signal));
                Ok(())
            }
            (Phase::Open(session), ToBroker::Credit { call, bytes }) => {
                session.with_call(call, |call| call.credit(bytes));
                Ok(())
            }
            (Phase::Open(session), ToBroker::Cancel { call }) => session.cancel(call),
            (Phase::Open(session), ToBroker::Grant(grant)) => session.grant(&grant),
            (Phase::Open(session), ToBroker::Refuse { call }) => session.refuse(call),
            (Phase::Open(session), ToBroker::Look { call }) => session.preview_for_client(call),
            (Phase::Open(session), ToBroker::Grants) => session.grants(None),
            (Phase::Open(session), ToBroker::Revoke { grant }) => session.grants(Some(grant)),
            (Phase::Open(session), ToBroker::Keep { call, bytes, last }) => {
                session.retain((call, bytes.as_slice(), last))
            }
            (Phase::Open(session), ToBroker::Explain(traced)) => session.explain(&traced),
            (
                Phase::Open(_),
                ToBroker::Hello(_) | ToBroker::Probe | ToBroker::GatewayLine | ToBroker::Open(_),
            ) => Err(protocol("the session is open; a connection has one")),
        }
    }

    fn greet(&mut self, hello: &Hello) -> Result<(), Failed> {
        hello.check().map_err(|error| protocol(error.to_string()))?;
        let policies = read_policies(&self.user).map_err(|error| error.failed())?;
        let digest = policies.digest();
        if hello.policy.is_some_and(|expected| expected != digest) {
            let message =
                format!("the policy files have the digest {digest}, the client expects another");
            return Err(Failed {
                kind: ErrorKind::DeniedPolicy,
                message,
            });
        }
        self.phase = Phase::Greeted {
            policies,
            machine: None,
            gateways: None,
        };
        self.send(&FromBroker::Hello(Hello::ours(Some(digest))))
    }

    fn open(&mut self, request: &Open) -> Result<(), Failed> {
        let before = std::mem::replace(&mut self.phase, Phase::Connected);
        let Phase::Greeted {
            policies, gateways, ..
        } = before
        else {
            return Err(protocol("an Open out of turn"));
        };
        // Nothing comes beside bytes from now on.
        drop(self.connection.take_descriptor());
        let (client, ready) = (self.connection.fd(), self.ready.take());
        let opened = open(request, policies, &self.user, (client, gateways), ready);
        let (opened, session) = opened.map_err(|error| error.failed())?;
        self.phase = Phase::Open(Box::new(session));
        self.send(&FromBroker::Opened(opened))
    }
}

fn subject(frame: &ToBroker) -> FrameSubject {
    match frame {
        ToBroker::Call { call, .. }
        | ToBroker::WantingCall { call, .. }
        | ToBroker::Grant(Grant { call, .. })
        | ToBroker::Look { call }
        | ToBroker::Keep { call, .. } => FrameSubject::Recorded(*call),
        ToBroker::Content { call, .. }
        | ToBroker::Input { call, .. }
        | ToBroker::InputEnd { call }
        | ToBroker::Resize { call, .. }
        | ToBroker::Signal { call, .. }
        | ToBroker::Credit { call, .. }
        | ToBroker::Cancel { call }
        | ToBroker::Refuse { call } => FrameSubject::Call(*call),
        ToBroker::Hello(_)
        | ToBroker::Probe
        | ToBroker::GatewayLine
        | ToBroker::Open(_)
        | ToBroker::Grants
        | ToBroker::Revoke { .. }
        | ToBroker::Explain(_) => FrameSubject::Session,
    }
}

fn until(deadline: Instant) -> PollTimeout {
    // Rounded up: rounded down, the poll would return just before the deadline and spin.
    let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}
