//! An open session: many calls at once over one socket.
//!
//! One task reads. Senders write directly; only what the socket does not accept waits for that task. Everything lives on one
//! thread, so the state is a plain [`RefCell`], never borrowed across an `await`.

mod running_request;

pub use running_request::{HadPaths, RequestControl, RequestEvent, RunningRequest};

use running_request::CREDIT;

use crate::executor::error::ExecutorError;
use crate::unreported::ConnectionFindings;
use broker_protocol::{
    CallId, ConnectionReport, Decoder, Denial, ErrorKind, Failed, FileAnswer, FromBroker, Lease,
    Opened, Outcome, Request, Roots, SessionGrant, Spill, StdStream, ToBroker, Traced, Wants,
    content, encode, frame, limit,
};
use orchestrator_results::render::FinishedRequest;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Most reports of connections before anybody hears them.
const UNHEARD_MAX: usize = 64;
/// How often to check whether the executor has closed a session that ends.
const CLOSED_POLL: Duration = Duration::from_millis(5);
/// While more bytes than this wait for the socket, no call starts.
const BACKLOG: usize = 256 * 1024;

/// An open session with the executor.
pub struct ExecutorConnection {
    link: Rc<SharedRequests>,
    roots: Roots,
    opened: Opened,
    reader: JoinHandle<()>,
    /// Bounds the calls in progress, as the protocol does.
    places: Arc<Semaphore>,
}

impl ExecutorConnection {
    /// Takes over a non-blocking socket on which a session is open. `decoder` holds bytes received so far. Needs a local runtime.
    pub(crate) fn new(socket: UnixStream, decoder: Decoder, opened: Opened) -> io::Result<Self> {
        let read = watch(socket.try_clone()?, Interest::READABLE)?;
        let (state, dirty, drained) = (RefCell::default(), Notify::new(), Notify::new());
        let (leases, found) = (RefCell::default(), ConnectionFindings::default());
        let link = Rc::new(SharedRequests {
            write: socket,
            state,
            dirty,
            drained,
            leases,
            found,
            connections: RefCell::default(),
        });
        let reader = tokio::task::spawn_local(run(link.clone(), read, decoder));
        let roots = Roots {
            project: opened.project.clone(),
            central: opened.central.clone(),
        };
        let places = Arc::new(Semaphore::new(limit::CALLS));
        Ok(Self {
            link,
            roots,
            opened,
            reader,
            places,
        })
    }

    /// What the executor reported of the session.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Calls `hear` with each report of a cell's connection, beginning with those that have come already.
    pub(crate) fn hear_connections(&self, hear: impl Fn(&ConnectionReport) + 'static) {
        let mut connections = self.link.connections.borrow_mut();
        if let Connections::Unheard(reports) = &*connections {
            reports.iter().for_each(&hear);
        }
        *connections = Connections::Heard(Rc::new(hear));
    }

    /// What was found in the project and nobody has taken yet.
    pub(crate) fn found(&self) -> ConnectionFindings {
        self.link.found.clone()
    }

    /// The grants that last for the session, after revoking one of them if given.
    ///
    /// # Errors
    /// If the executor is gone.
    pub async fn standing_grants(&self, revoke: Option<u64>) -> Result<Vec<SessionGrant>, Failed> {
        let (sender, grants) = oneshot::channel();
        let message = revoke.map_or(ToBroker::Grants, |grant| ToBroker::Revoke { grant });
        self.link.send(&message)?;
        self.link.state.borrow_mut().grant_lists.push_back(sender);
        grants.await.map_err(|_| ExecutorError::Lost.into())
    }

    /// Which of these failed calls the cell denied.
    ///
    /// # Errors
    /// If the executor is gone.
    pub async fn explain(&self, traced: Vec<Traced>) -> Result<Vec<Option<Denial>>, Failed> {
        let (sender, explained) = oneshot::channel();
        let count = traced.len();
        self.link.send(&ToBroker::Explain(traced))?;
        self.link
            .state
            .borrow_mut()
            .explanations
            .push_back((count, sender));
        explained.await.map_err(|_| ExecutorError::Lost.into())
    }

    /// Whether calls can still be made.
    pub fn is_alive(&self) -> bool {
        self.link.state.borrow().end.is_none()
    }
}

impl Drop for ExecutorConnection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl ExecutorConnection {
    /// Says that nothing more comes, which ends the session, and waits until the executor has closed its side.
    pub(crate) async fn close(&self) {
        // One that is closed already has nothing to be told.
        let _ = self.link.write.shutdown(Shutdown::Write);
        while self.is_alive() {
            sleep(CLOSED_POLL).await;
        }
    }

    /// Where the two zones lie.
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Starts a request with `wants` beyond what the session has. Waits while the protocol's limit of requests or the backlog is reached.
    ///
    /// # Errors
    /// If the executor is gone.
    pub async fn start(
        &self,
        mut request: Request,
        wants: Wants,
    ) -> Result<RunningRequest, Failed> {
        let pieces = content::split(&mut request).map_err(|error| Failed {
            kind: ErrorKind::InvalidInput,
            message: error.to_string(),
        })?;
        // The semaphore is never closed, so this succeeds in the end.
        let place = self.places.clone().acquire_owned().await.ok();
        self.link.room().await;
        let slot = Rc::new(RequestSlot::default());
        let call = self.link.enter(slot.clone());
        let control = RequestControl {
            link: self.link.clone(),
            call,
            slot,
        };
        control.slot.hear_leases(call, &self.link.leases.borrow());
        let begin = match wants.is_empty() {
            true => ToBroker::Call { call, request },
            false => ToBroker::WantingCall {
                call,
                request,
                wants,
            },
        };
        // Without a pause: the broker takes the pieces of one call at a time.
        let pieces = pieces
            .into_iter()
            .map(|bytes| ToBroker::Content { call, bytes });
        let sent = pieces
            .chain([begin])
            .try_for_each(|message| self.link.send(&message));
        if let Err(failed) = sent {
            self.link.state.borrow_mut().calls.remove(&call);
            return Err(failed);
        }
        Ok(RunningRequest {
            control,
            uncredited: 0,
            ended: false,
            place,
        })
    }

    /// Lets the executor save text that the effect of `call` produced; `None` if it was not saved, such as an empty text.
    pub async fn save_output(&self, call: CallId, text: &[u8]) -> Option<Spill> {
        let mut pieces = text.chunks(limit::CHUNK).peekable();
        pieces.peek()?;
        while let Some(piece) = pieces.next() {
            self.link.room().await;
            let last = pieces.peek().is_none();
            self.link
                .send(&ToBroker::Keep {
                    call,
                    bytes: piece.to_vec(),
                    last,
                })
                .ok()?;
        }
        let (sender, saved) = oneshot::channel();
        self.link.state.borrow_mut().saves.insert(call, sender);
        saved.await.ok()?
    }
}

/// The state that requests and the reading task share.
struct SharedRequests {
    /// Watched only while something waits to be written; otherwise each message that the executor reads would wake us.
    write: UnixStream,
    state: RefCell<ConnectionState>,
    /// Signals that something waits to be written.
    dirty: Notify,
    /// Signals that waiting bytes were written.
    drained: Notify,
    /// The leases in force.
    leases: RefCell<Vec<Lease>>,
    /// What was found in the project, until a result reports it.
    found: ConnectionFindings,
    /// Who hears of connections of cells.
    connections: RefCell<Connections>,
}

/// Who hears of connections of cells.
enum Connections {
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
struct ConnectionState {
    /// Frames that the socket has not accepted yet.
    outgoing: Vec<u8>,
    calls: HashMap<CallId, Rc<RequestSlot>>,
    last: CallId,
    /// Receivers of lists of grants; the executor answers in order.
    grant_lists: VecDeque<oneshot::Sender<Vec<SessionGrant>>>,
    /// Receivers of explanations, with the expected number; the executor answers in order.
    explanations: VecDeque<(usize, oneshot::Sender<Vec<Option<Denial>>>)>,
    /// Receivers of the results of saving.
    saves: HashMap<CallId, oneshot::Sender<Option<Spill>>>,
    /// Why the connection ended.
    end: Option<Failed>,
}

/// One request, as the reading task sees it.
struct RequestSlot {
    events: RefCell<VecDeque<RequestEvent>>,
    arrived: Notify,
    /// Parts of a file tool's answer.
    answer: RefCell<Vec<u8>>,
    /// Parts of the file that it would change.
    before: RefCell<Vec<u8>>,
    /// Bytes of output that the executor may still send without further credit.
    window: Cell<u32>,
    /// Sequence number of the next chunk of output.
    sequence: Cell<u64>,
    /// Bytes of input that we may send.
    input: Cell<u32>,
    input_room: Notify,
    /// The leases that it ever had, by number, and whether each has ended.
    leased: RefCell<BTreeMap<u64, (Lease, bool)>>,
    /// Whether its end was requested.
    cancelled: Cell<bool>,
    ended: Cell<bool>,
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
            leased: RefCell::default(),
            cancelled: Cell::new(false),
            ended: Cell::new(false),
        }
    }
}

impl RequestSlot {
    fn push_end(&self, ended: Result<FinishedRequest, Failed>) {
        self.ended.set(true);
        self.input_room.notify_one();
        self.push(RequestEvent::Ended(Box::new(ended)));
    }

    fn push(&self, event: RequestEvent) {
        self.events.borrow_mut().push_back(event);
        self.arrived.notify_one();
    }

    fn output(
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
    fn hear_leases(&self, call: CallId, leases: &[Lease]) {
        let mut leased = self.leased.borrow_mut();
        leased.values_mut().for_each(|(_, over)| *over = true);
        let ours = leases.iter().filter(|lease| lease.is_for(call));
        leased.extend(ours.map(|lease| (lease.lease, (lease.clone(), false))));
    }

    fn part(&self, bytes: &[u8]) -> Result<(), ExecutorError> {
        add_part(&self.answer, bytes)
    }

    fn seen(&self) {
        let before = self.before.take();
        // A malformed one is like none: the broker passes it on unparsed.
        let answer = frame::decode_whole(&before).ok();
        self.push(RequestEvent::Seen(answer.map(Box::new)));
    }

    fn credit(&self, bytes: u32) {
        self.input.set(self.input.get().saturating_add(bytes));
        self.input_room.notify_one();
    }

    /// Takes the answer of a file tool. The broker passes it on from the file worker without parsing it, so a malformed answer
    /// fails this call and not the connection.
    fn take_answer(&self, outcome: &Outcome) -> Result<Option<FileAnswer>, ExecutorError> {
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

fn add_part(answer: &RefCell<Vec<u8>>, bytes: &[u8]) -> Result<(), ExecutorError> {
    let mut answer = answer.borrow_mut();
    if answer.len() + bytes.len() > limit::ANSWER {
        return Err(ExecutorError::Protocol("an answer is too long"));
    }
    answer.extend_from_slice(bytes);
    Ok(())
}

impl SharedRequests {
    fn enter(&self, slot: Rc<RequestSlot>) -> CallId {
        let mut state = self.state.borrow_mut();
        state.last += 1;
        let call = state.last;
        state.calls.insert(call, slot);
        call
    }

    /// Sends `message` now, or as soon as the socket accepts it.
    fn send(&self, message: &ToBroker) -> Result<(), Failed> {
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
    fn flush(&self, state: &mut ConnectionState) -> bool {
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
    async fn writable(&self) -> io::Result<()> {
        let socket = watch(self.write.try_clone()?, Interest::WRITABLE)?;
        socket.writable().await.map(drop)
    }

    /// Waits until the backlog is small enough.
    async fn room(&self) {
        while self.state.borrow().outgoing.len() > BACKLOG {
            self.drained.notified().await;
        }
        // Only one waiter was woken; wake the next.
        self.drained.notify_one();
    }

    fn handle(&self, message: FromBroker) -> Result<(), ExecutorError> {
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

    fn take_grants(&self, standing: Vec<SessionGrant>) -> Result<(), ExecutorError> {
        let waiting = self.state.borrow_mut().grant_lists.pop_front();
        let waiting = waiting.ok_or(ExecutorError::Protocol("an unsolicited grant list"))?;
        // The receiver may have been dropped meanwhile.
        let _ = waiting.send(standing);
        Ok(())
    }

    fn take_leases(&self, leases: Vec<Lease>) {
        let state = self.state.borrow();
        state
            .calls
            .iter()
            .for_each(|(call, slot)| slot.hear_leases(*call, &leases));
        self.leases.replace(leases);
    }

    fn take_saved(&self, call: CallId, spill: Option<Spill>) -> Result<(), ExecutorError> {
        let waiting = self.state.borrow_mut().saves.remove(&call);
        let waiting = waiting.ok_or(ExecutorError::Protocol("an unsolicited saved output"))?;
        let _ = waiting.send(spill);
        Ok(())
    }

    fn take_explanations(&self, denials: Vec<Option<Denial>>) -> Result<(), ExecutorError> {
        let waiting = self.state.borrow_mut().explanations.pop_front();
        let (_, waiting) = waiting
            .filter(|(count, _)| *count == denials.len())
            .ok_or(ExecutorError::Protocol("unsolicited explanations"))?;
        let _ = waiting.send(denials);
        Ok(())
    }

    fn hear(&self, report: ConnectionReport) -> Result<(), ExecutorError> {
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

    fn slot(&self, call: CallId) -> Result<Rc<RequestSlot>, ExecutorError> {
        let slot = self.state.borrow().calls.get(&call).cloned();
        slot.ok_or(ExecutorError::Protocol(
            "a message about a call that is not under way",
        ))
    }

    /// Ends every call in progress, and fails all later ones.
    fn end(&self, error: ExecutorError) {
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
async fn run(link: Rc<SharedRequests>, read: AsyncFd<UnixStream>, mut decoder: Decoder) {
    let mut bytes = vec![0; limit::CHUNK];
    let error = loop {
        if let Err(error) = step(&link, &read, &mut bytes, &mut decoder).await {
            break error;
        }
    };
    link.end(error);
}

async fn step(
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
async fn receive(
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
fn watch(socket: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(socket, interest)
}
