//! The state that requests and the reading task share: what was sent, what has arrived, and how it reaches each request.

use crate::executor::error::ExecutorError;
use crate::unreported::ConnectionFindings;
use broker_protocol::{
    CallId, Challenge, ConnectionReport, Decoder, Denial, ErrorKind, Failed, FileAnswer,
    FromBroker, GrantFault, Lease, Outcome, SessionGrant, Spill, StdStream, ToBroker, encode,
    frame, limit,
};
use orchestrator_results::render::FinishedRequest;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, oneshot};

/// Most reports of connections before anybody hears them.
const UNHEARD_MAX: usize = 64;
/// While more bytes than this wait for the socket, no call starts.
const BACKLOG: usize = 256 * 1024;

/// Consumed output is credited in pieces of at least this size: one message for each read would cost more than the output.
pub(super) const CREDIT: u32 = 64 * 1024;

/// What happens in a request.
#[derive(Debug)]
pub enum RequestEvent {
    /// A command printed something.
    Output {
        /// Whether on standard error.
        stderr: bool,
        /// The bytes, cut anywhere.
        bytes: Vec<u8>,
    },
    /// Its command was stopped and can be continued.
    Suspended,
    /// Connections of its command and their results: the first of each kind at once, the number of the others at its end.
    Connection(Box<ConnectionReport>),
    /// It waits for approval and has not started.
    Asked(Box<Challenge>),
    /// The file that it would change, if it could be seen.
    Seen(Option<Box<FileAnswer>>),
    /// The answer was rejected; it waits for another one.
    Rejected(GrantFault),
    /// It has ended by itself, or because the executor is gone.
    Ended(Box<Result<FinishedRequest, Failed>>),
}

/// Maximum kinds of connections of a call that a front end gets each by itself.
const CONNECTION_KINDS: usize = 64;

fn count_among_others(known: &mut Vec<ConnectionReport>, report: &ConnectionReport) {
    let is_other = |one: &&mut ConnectionReport| one.verdict == report.verdict && one.port == 0;
    match known.iter_mut().find(is_other) {
        Some(other) => other.count = other.count.saturating_add(report.count),
        None => known.push(ConnectionReport {
            host: String::new(),
            port: 0,
            why: None,
            private: None,
            ..report.clone()
        }),
    }
}

/// The state that requests and the reading task share.
pub(super) struct SharedRequests {
    /// Watched only while something waits to be written; otherwise each message that the executor reads would wake us.
    pub(super) write: UnixStream,
    pub(super) state: RefCell<ConnectionState>,
    /// Signals that something waits to be written.
    pub(super) dirty: Notify,
    /// Signals that waiting bytes were written.
    pub(super) drained: Notify,
    /// The leases in force.
    pub(super) leases: RefCell<Vec<Lease>>,
    /// What was found in the project, until a result reports it.
    pub(super) found: ConnectionFindings,
    /// Who hears of connections of cells.
    pub(super) connections: RefCell<Connections>,
}

/// Who hears of connections of cells.
pub(super) enum Connections {
    /// Nobody so far: a session that runs nothing yet has few.
    Unheard(Vec<ConnectionReport>),
    Heard(Rc<dyn Fn(&ConnectionReport)>),
}

impl Default for Connections {
    fn default() -> Self {
        Self::Unheard(Vec::new())
    }
}

#[derive(Default)]
pub(super) struct ConnectionState {
    /// Frames that the socket has not accepted yet.
    pub(super) outgoing: Vec<u8>,
    pub(super) calls: HashMap<CallId, Rc<RequestSlot>>,
    pub(super) last: CallId,
    /// Receivers of lists of grants; the executor answers in order.
    pub(super) grant_lists: VecDeque<oneshot::Sender<Vec<SessionGrant>>>,
    /// Receivers of explanations, with the expected number; the executor answers in order.
    pub(super) explanations: VecDeque<(usize, oneshot::Sender<Vec<Option<Denial>>>)>,
    /// Receivers of the results of saving.
    pub(super) saves: HashMap<CallId, oneshot::Sender<Option<Spill>>>,
    /// Why the connection ended.
    pub(super) end: Option<Failed>,
}

/// One request, as the reading task sees it.
pub(super) struct RequestSlot {
    pub(super) events: RefCell<VecDeque<RequestEvent>>,
    pub(super) arrived: Notify,
    /// Parts of a file tool's answer.
    pub(super) answer: RefCell<Vec<u8>>,
    /// Parts of the file that it would change.
    pub(super) before: RefCell<Vec<u8>>,
    /// Bytes of output that the executor may still send without further credit.
    pub(super) window: Cell<u32>,
    /// Sequence number of the next chunk of output.
    pub(super) sequence: Cell<u64>,
    /// Bytes of input that we may send.
    pub(super) input: Cell<u32>,
    pub(super) input_room: Notify,
    /// Connections of each kind, with how many were not passed on yet.
    pub(super) connections: RefCell<Vec<ConnectionReport>>,
    /// The leases that it ever had, by number, and whether each has ended.
    pub(super) leased: RefCell<BTreeMap<u64, (Lease, bool)>>,
    /// Whether its end was requested.
    pub(super) cancelled: Cell<bool>,
    pub(super) ended: Cell<bool>,
}

impl Default for RequestSlot {
    fn default() -> Self {
        Self {
            events: RefCell::default(),
            arrived: Notify::new(),
            answer: RefCell::default(),
            before: RefCell::default(),
            window: Cell::new(limit::OUTPUT_WINDOW),
            sequence: Cell::new(0),
            input: Cell::new(limit::INPUT_WINDOW),
            input_room: Notify::new(),
            connections: RefCell::default(),
            leased: RefCell::default(),
            cancelled: Cell::new(false),
            ended: Cell::new(false),
        }
    }
}

impl RequestSlot {
    pub(super) fn push_end(&self, ended: Result<FinishedRequest, Failed>) {
        self.ended.set(true);
        self.input_room.notify_one();
        let connections = self.connections.take().into_iter();
        let counted = connections.filter(|report| report.count > 0);
        counted.for_each(|report| self.push(RequestEvent::Connection(Box::new(report))));
        self.push(RequestEvent::Ended(Box::new(ended)));
    }

    /// A cell chooses how many connections it makes, so what a front end gets of them has a bound.
    pub(super) fn connected(&self, report: &ConnectionReport) {
        let mut known = self.connections.borrow_mut();
        let is_known = |one: &&mut ConnectionReport| {
            one.verdict == report.verdict && one.host == report.host && one.port == report.port
        };
        if let Some(one) = known.iter_mut().find(is_known) {
            one.count = one.count.saturating_add(report.count);
            return;
        }
        if known.len() >= CONNECTION_KINDS {
            // Of further ones, only how many there were.
            return count_among_others(&mut known, report);
        }
        known.push(ConnectionReport {
            count: 0,
            ..report.clone()
        });
        self.push(RequestEvent::Connection(Box::new(report.clone())));
    }

    pub(super) fn push(&self, event: RequestEvent) {
        self.events.borrow_mut().push_back(event);
        self.arrived.notify_one();
    }

    pub(super) fn output(
        &self,
        stream: StdStream,
        sequence: u64,
        bytes: Vec<u8>,
    ) -> Result<(), ExecutorError> {
        if sequence != self.sequence.get() {
            return Err(ExecutorError::Protocol("a piece of output is missing"));
        }
        let left = u32::try_from(bytes.len())
            .ok()
            .and_then(|count| self.window.get().checked_sub(count));
        let left = left.ok_or(ExecutorError::Protocol("more output than its window"))?;
        self.window.set(left);
        self.sequence.set(sequence + 1);
        let stderr = stream == StdStream::Stderr;
        self.push(RequestEvent::Output { stderr, bytes });
        Ok(())
    }

    /// Records which of `leases` belong to the request with number `call`.
    pub(super) fn hear_leases(&self, call: CallId, leases: &[Lease]) {
        let mut leased = self.leased.borrow_mut();
        leased.values_mut().for_each(|(_, over)| *over = true);
        let ours = leases.iter().filter(|lease| lease.is_for(call));
        leased.extend(ours.map(|lease| (lease.lease, (lease.clone(), false))));
    }

    pub(super) fn part(&self, bytes: &[u8]) -> Result<(), ExecutorError> {
        add_part(&self.answer, bytes)
    }

    pub(super) fn seen(&self) {
        let before = self.before.take();
        // A malformed one is like none: the broker passes it on unparsed.
        let answer = frame::decode_whole(&before).ok();
        self.push(RequestEvent::Seen(answer.map(Box::new)));
    }

    pub(super) fn credit(&self, bytes: u32) {
        self.input.set(self.input.get().saturating_add(bytes));
        self.input_room.notify_one();
    }

    /// Takes the answer of a file tool. The broker passes it on from the file worker without parsing it, so a malformed answer
    /// fails this call and not the connection.
    pub(super) fn take_answer(
        &self,
        outcome: &Outcome,
    ) -> Result<Option<FileAnswer>, ExecutorError> {
        match outcome {
            Outcome::Answered => {
                let answer: FileAnswer = frame::decode_whole(&self.answer.take())?;
                if answer.as_ref().is_ok_and(|reply| reply.check().is_err()) {
                    return Err(ExecutorError::Protocol("an answer passes a limit"));
                }
                Ok(Some(answer))
            }
            Outcome::Ran(_)
            | Outcome::Granted
            | Outcome::Refused(_)
            | Outcome::Failed(_)
            | Outcome::Broken(_) => Ok(None),
        }
    }
}

pub(super) fn add_part(answer: &RefCell<Vec<u8>>, bytes: &[u8]) -> Result<(), ExecutorError> {
    let mut answer = answer.borrow_mut();
    if answer.len() + bytes.len() > limit::ANSWER {
        return Err(ExecutorError::Protocol("an answer is too long"));
    }
    answer.extend_from_slice(bytes);
    Ok(())
}

impl SharedRequests {
    pub(super) fn enter(&self, slot: Rc<RequestSlot>) -> CallId {
        let mut state = self.state.borrow_mut();
        state.last += 1;
        let call = state.last;
        state.calls.insert(call, slot);
        call
    }

    /// Sends `message` now, or as soon as the socket accepts it.
    pub(super) fn send(&self, message: &ToBroker) -> Result<(), Failed> {
        let mut state = self.state.borrow_mut();
        if let Some(end) = &state.end {
            return Err(end.clone());
        }
        let waiting = !state.outgoing.is_empty();
        encode(message, &mut state.outgoing).map_err(|error| Failed {
            kind: ErrorKind::Internal,
            message: error.to_string(),
        })?;
        if !waiting && self.flush(&mut state) {
            self.dirty.notify_one();
        }
        Ok(())
    }

    /// Writes waiting bytes; returns whether some still wait. The reading task handles a failure: it sees the failure too and knows
    /// more about it.
    pub(super) fn flush(&self, state: &mut ConnectionState) -> bool {
        while !state.outgoing.is_empty() {
            match (&self.write).write(&state.outgoing) {
                Ok(count) => drop(state.outgoing.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => state.outgoing.clear(),
            }
        }
        state.outgoing.shrink_to(CREDIT as usize);
        false
    }

    /// Waits until the socket is writable.
    pub(super) async fn writable(&self) -> io::Result<()> {
        let socket = watch(self.write.try_clone()?, Interest::WRITABLE)?;
        socket.writable().await.map(drop)
    }

    /// Waits until the backlog is small enough.
    pub(super) async fn room(&self) {
        while self.state.borrow().outgoing.len() > BACKLOG {
            self.drained.notified().await;
        }
        // Only one waiter was woken; wake the next.
        self.drained.notify_one();
    }

    pub(super) fn handle(&self, message: FromBroker) -> Result<(), ExecutorError> {
        match message {
            FromBroker::Output {
                call,
                stderr,
                sequence,
                bytes,
            } => {
                let stream = StdStream::stderr_if(stderr);
                self.slot(call)?.output(stream, sequence, bytes)
            }
            // The call may have ended meanwhile.
            FromBroker::Suspended { call } => {
                self.slot(call)
                    .into_iter()
                    .for_each(|slot| slot.push(RequestEvent::Suspended));
                Ok(())
            }
            FromBroker::InputCredit { call, bytes } => {
                self.slot(call).map(|slot| slot.credit(bytes))
            }
            FromBroker::Part { call, bytes } => self.slot(call)?.part(&bytes),
            FromBroker::Done {
                call,
                outcome,
                usage,
                layers,
                denied,
            } => {
                denied
                    .check()
                    .map_err(|_| ExecutorError::Protocol("denials pass a limit"))?;
                let slot = self.slot(call)?;
                self.state.borrow_mut().calls.remove(&call);
                let answer = slot.take_answer(&outcome).map_err(Failed::from);
                slot.push_end(answer.map(|answer| FinishedRequest {
                    outcome,
                    answer,
                    usage,
                    layers,
                    denied,
                }));
                Ok(())
            }
            FromBroker::Asked { call, challenge } => {
                self.slot(call)?
                    .push(RequestEvent::Asked(Box::new(challenge)));
                Ok(())
            }
            // The call may have ended meanwhile.
            FromBroker::Before { call, bytes } => self
                .slot(call)
                .map_or(Ok(()), |slot| add_part(&slot.before, &bytes)),
            FromBroker::Seen { call } => {
                self.slot(call).into_iter().for_each(|slot| slot.seen());
                Ok(())
            }
            // The call may have ended while our answer was in transit.
            FromBroker::Ungranted(not) => {
                self.slot(not.call)
                    .into_iter()
                    .for_each(|slot| slot.push(RequestEvent::Rejected(not.fault)));
                Ok(())
            }
            FromBroker::Fault(failed) => Err(ExecutorError::Fault(failed)),
            FromBroker::Grants(standing) => self.take_grants(standing),
            FromBroker::Leases(leases) => {
                self.take_leases(leases);
                Ok(())
            }
            FromBroker::Connected(report) => {
                report
                    .check()
                    .map_err(|_| ExecutorError::Protocol("a connection's report passes a limit"))?;
                let slot = report.call.and_then(|call| self.slot(call).ok());
                slot.into_iter().for_each(|slot| slot.connected(&report));
                self.hear(report)
            }
            FromBroker::Found(found) => {
                found
                    .check()
                    .map_err(|_| ExecutorError::Protocol("findings pass a limit"))?;
                self.found.borrow_mut().append(found);
                Ok(())
            }
            FromBroker::Kept { call, spill } => self.take_saved(call, spill),
            FromBroker::Explained(denials) => self.take_explanations(denials),
            FromBroker::Hello(_) | FromBroker::Probed(_) | FromBroker::Opened(_) => {
                Err(ExecutorError::Protocol("a message out of turn"))
            }
        }
    }

    pub(super) fn take_grants(&self, standing: Vec<SessionGrant>) -> Result<(), ExecutorError> {
        let waiting = self.state.borrow_mut().grant_lists.pop_front();
        let waiting = waiting.ok_or(ExecutorError::Protocol("an unsolicited grant list"))?;
        // The receiver may have been dropped meanwhile.
        let _ = waiting.send(standing);
        Ok(())
    }

    pub(super) fn take_leases(&self, leases: Vec<Lease>) {
        let state = self.state.borrow();
        state
            .calls
            .iter()
            .for_each(|(call, slot)| slot.hear_leases(*call, &leases));
        self.leases.replace(leases);
    }

    pub(super) fn take_saved(
        &self,
        call: CallId,
        spill: Option<Spill>,
    ) -> Result<(), ExecutorError> {
        let waiting = self.state.borrow_mut().saves.remove(&call);
        let waiting = waiting.ok_or(ExecutorError::Protocol("an unsolicited saved output"))?;
        let _ = waiting.send(spill);
        Ok(())
    }

    pub(super) fn take_explanations(
        &self,
        denials: Vec<Option<Denial>>,
    ) -> Result<(), ExecutorError> {
        let waiting = self.state.borrow_mut().explanations.pop_front();
        let (_, waiting) = waiting
            .filter(|(count, _)| *count == denials.len())
            .ok_or(ExecutorError::Protocol("unsolicited explanations"))?;
        let _ = waiting.send(denials);
        Ok(())
    }

    pub(super) fn hear(&self, report: ConnectionReport) -> Result<(), ExecutorError> {
        let hear = match &mut *self.connections.borrow_mut() {
            Connections::Heard(hear) => hear.clone(),
            Connections::Unheard(reports) if reports.len() < UNHEARD_MAX => {
                reports.push(report);
                return Ok(());
            }
            Connections::Unheard(_) => {
                return Err(ExecutorError::Protocol("connections before any call"));
            }
        };
        hear(&report);
        Ok(())
    }

    pub(super) fn slot(&self, call: CallId) -> Result<Rc<RequestSlot>, ExecutorError> {
        let slot = self.state.borrow().calls.get(&call).cloned();
        slot.ok_or(ExecutorError::Protocol(
            "a message about a call that is not under way",
        ))
    }

    /// Ends every call in progress, and fails all later ones.
    pub(super) fn end(&self, error: ExecutorError) {
        let failed = Failed::from(error);
        let mut state = self.state.borrow_mut();
        state.end = Some(failed.clone());
        state.outgoing = Vec::new();
        state.grant_lists.clear();
        state.explanations.clear();
        state.saves.clear();
        // A peer that broke the protocol is not left waiting: the executor ends when its socket closes.
        let _ = self.write.shutdown(Shutdown::Both);
        for (_, slot) in state.calls.drain() {
            slot.push_end(Err(failed.clone()));
        }
        self.drained.notify_one();
    }
}

/// The reading task: handles incoming messages and writes waiting bytes until the connection ends.
pub(super) async fn run(link: Rc<SharedRequests>, read: AsyncFd<UnixStream>, mut decoder: Decoder) {
    let mut bytes = vec![0; limit::CHUNK];
    let error = loop {
        if let Err(error) = step(&link, &read, &mut bytes, &mut decoder).await {
            break error;
        }
    };
    link.end(error);
}

pub(super) async fn step(
    link: &SharedRequests,
    read: &AsyncFd<UnixStream>,
    bytes: &mut [u8],
    decoder: &mut Decoder,
) -> Result<(), ExecutorError> {
    while let Some(message) = decoder.next()? {
        link.handle(message)?;
    }
    let waiting = !link.state.borrow().outgoing.is_empty();
    tokio::select! {
        received = receive(read, bytes, decoder) => received,
        () = link.dirty.notified(), if !waiting => Ok(()),
        writable = link.writable(), if waiting => {
            writable?;
            link.flush(&mut link.state.borrow_mut());
            link.drained.notify_one();
            Ok(())
        }
    }
}

/// Receives what is available. Cancel-safe.
pub(super) async fn receive(
    read: &AsyncFd<UnixStream>,
    bytes: &mut [u8],
    decoder: &mut Decoder,
) -> Result<(), ExecutorError> {
    let mut guard = read.ready(Interest::READABLE).await?;
    match guard.get_inner().read(bytes) {
        Ok(0) => Err(ExecutorError::Lost),
        Ok(count) => {
            decoder.push(&bytes[..count]);
            // The socket is empty: what comes now is a new event.
            if count < bytes.len() {
                guard.clear_ready();
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            guard.clear_ready();
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(ExecutorError::Lost),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Our socket, watched for one kind of event.
// Deprecated for types whose descriptor may change or close while watched. A `UnixStream` never does; the successor requires that
// as an `unsafe` promise, because a trait cannot check it.
#[allow(deprecated)]
pub(super) fn watch(socket: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(socket, interest)
}
