//! An open session: its calls, its cells, its file worker, its background processes.

mod asked;
mod cells;
mod processes;
mod steer;

use super::approval::Approvals;
use super::approval::approvers::Approvers;
use super::audit::{Audit, AuditError};
use super::background::Background;
use super::capture::Capture;
use super::command::{CellHandle, Command};
use super::connection::Connection;
use super::files::{Errand, Files, Heard};
use super::keep::Keeps;
use super::open::{Ready, User};
use super::order::{Pipes, capture, order, plan, time_limit};
use super::record::{self, Around, Ending, Event};
use super::{protocol, send};
use crate::attack::{Siege, siege};
use crate::cell::cgroup::Cgroup;
use crate::cell::environment::Variables;
use crate::cell::plan::{Scratch, Walls};
use crate::sys;
use crate::warden::{Ask, Told, Warden};
use broker_protocol::{
    Bash, Broken, CallId, Captured, Channel, Ended, ErrorKind, Failed, FileReply, FromBroker, Layer,
    LayerSet, Outcome, Ran, Request, Stdin, Usage, limit,
};
use cells::Cells;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags};
use nix::sys::stat::Mode;
use policies::{Verdict, decide};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a file call that is under way may take to end when the client has left.
const LAST_WRITE: Duration = Duration::from_millis(300);

/// What a broker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// The client's socket.
    Client,
    /// The warden's.
    Warden,
    /// The file worker's.
    Worker,
    /// A cell's report.
    Report(CallId),
    /// A command's standard output, or error.
    Output(CallId, bool),
    /// A command's standard input.
    Input(CallId),
    /// The socket that approvers connect to.
    Approvers,
    /// An approver's socket.
    Approver(u64),
    /// The output or the report of a background process.
    Background(u64),
}

/// A session.
pub struct Session {
    walls: Walls,
    layers: LayerSet,
    warden: Warden,
    /// Ends with the session.
    _cgroup: Option<Cgroup>,
    audit: Audit,
    files: Files,
    approvals: Approvals,
    /// Where answers come from, if not from the client.
    approvers: Option<Approvers>,
    background: Background,
    keeps: Keeps,
    calls: BTreeMap<CallId, Call>,
    /// Commands without a cell, in order.
    waiting: VecDeque<CallId>,
    cells: Cells,
    /// Bytes of a command's output that its outcome holds.
    capture: u64,
    null: OwnedFd,
    /// For the next command.
    pipes: Option<Pipes>,
    buffer: Vec<u8>,
}

/// A call under way.
struct Call {
    started: Instant,
    work: Work,
    /// The self-attack that this call is, if it is one and no tool call.
    siege: Option<Box<Siege>>,
    /// What the audit says of it.
    filed: record::Asked,
}

/// Who has a call.
enum Work {
    /// It waits for an answer, in [`Approvals`].
    Asked,
    /// It waits for a cell (and a terminal, if it wants one).
    Waiting { bash: Box<Bash>, terminal: Option<(OwnedFd, OwnedFd)>, input: Vec<u8>, input_ended: bool },
    /// A cell has it.
    Command(Box<Command>),
    /// The file worker has it.
    File,
    /// It is answered when this background process has ended.
    Kill(u64),
}

impl Session {
    /// A session whose warden is ready, and whose client is at the other end of `client`.
    pub fn new(ready: Ready, spare: u8, client: BorrowedFd, user: &User) -> Result<Self, Failed> {
        let internal = |message: String| Failed { kind: ErrorKind::Internal, message };
        let policy = &ready.walls.policy.approval;
        let approvals =
            Approvals::new(policy).map_err(|error| internal(format!("no random bytes: {error}")))?;
        let listen = || Approvers::listen(&ready.walls, ready.opened.clone(), client, user);
        let approvers = match policy.channel {
            Channel::Relay => None,
            Channel::Separate => Some(listen().map_err(|error| internal(error.to_string()))?),
        };
        let null = open("/dev/null", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|error| internal(format!("/dev/null: {error}")))?;
        let mut session = Self {
            walls: ready.walls,
            layers: ready.layers,
            warden: ready.warden,
            _cgroup: ready.cgroup,
            audit: ready.audit,
            files: Files::new(ready.opened.session),
            approvals,
            approvers,
            background: Background::default(),
            keeps: Keeps::default(),
            calls: BTreeMap::new(),
            waiting: VecDeque::new(),
            cells: Cells::new(spare),
            capture: ready.capture,
            null,
            pipes: None,
            buffer: Vec::new(),
        };
        // A session is opened to be used: its first cell is made while the client still reads the answer.
        session.ask_for_cell()?;
        session.ask_for_cells(true)?;
        Ok(session)
    }

    /// Ends everything. Without a PID namespace cells and the warden see the end of their sockets, and sweep. What is
    /// returned is to be removed when they are gone.
    pub fn close(mut self) -> Scratch {
        self.files.settle(LAST_WRITE);
        if self.walls.has(Layer::PidNamespace) {
            // PID 1 of the session: the kernel ends the rest. It is gone already if this fails.
            let _ = sys::pidfd_signal(self.warden.child.pidfd.as_fd(), libc::SIGKILL);
        }
        // In the flat tier this ends the rest: before the audit waits for the disk.
        let under_way: Vec<_> =
            self.calls.into_iter().map(|(call, entry)| (call, entry.started, entry.filed)).collect();
        drop((self.warden, self.cells, self.files));
        let around = around(&self.walls, self.layers);
        let mut unfinished = self.keeps.end().into_iter();
        let _ = unfinished.try_for_each(|kept| self.audit.append(kept.event()));
        // Nobody is left to be told that this fails.
        let _ = record_end(&mut self.audit, around, under_way);
        self.walls.scratch
    }

    /// The audit of this session.
    pub fn audit(&mut self) -> &mut Audit {
        &mut self.audit
    }

    /// Records how a request has ended.
    fn record(
        &mut self,
        call: CallId,
        filed: &record::Asked,
        outcome: &Outcome,
        usage: &Usage,
    ) -> Result<(), AuditError> {
        let around = around(&self.walls, self.layers);
        self.audit.ended(Ending::new(call, filed, around, outcome, usage))
    }

    /// Adds everything this session waits for. A client that takes no more stops the output, and so the cells.
    pub fn wait_for<'s>(&'s self, waited: &mut Vec<(Token, PollFd<'s>)>, client_full: bool) {
        let mut add = |token, fd: BorrowedFd<'s>, flags| waited.push((token, PollFd::new(fd, flags)));
        add(Token::Warden, self.warden.socket.as_fd(), PollFlags::POLLIN);
        if let Some((fd, sending)) = self.files.fd() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, !client_full);
            flags.set(PollFlags::POLLOUT, sending);
            add(Token::Worker, fd, flags);
        }
        self.background.wait_for(&mut add);
        if let Some(approvers) = &self.approvers {
            add(Token::Approvers, approvers.fd(), PollFlags::POLLIN);
            approvers.fds().for_each(|(number, fd, flags)| add(Token::Approver(number), fd, flags));
        }
        for (call, command) in self.commands() {
            if let Some(fd) = command.report_fd() {
                add(Token::Report(call), fd, PollFlags::POLLIN);
            }
            if let Some(fd) = command.input_fd() {
                add(Token::Input(call), fd, PollFlags::POLLOUT);
            }
            for stderr in [false, true] {
                if let Some(fd) = command.output_fd(stderr).filter(|_| !client_full) {
                    add(Token::Output(call, stderr), fd, PollFlags::POLLIN);
                }
            }
        }
    }

    fn commands(&self) -> impl Iterator<Item = (CallId, &Command)> {
        self.calls.iter().filter_map(|(call, entry)| match &entry.work {
            Work::Command(command) => Some((*call, &**command)),
            Work::Asked | Work::Waiting { .. } | Work::File | Work::Kill(_) => None,
        })
    }

    /// Whether a command runs that a client waits for.
    fn runs_any(&self) -> bool {
        self.commands().next().is_some()
    }

    fn command(&mut self, call: CallId) -> Option<&mut Command> {
        match &mut self.calls.get_mut(&call)?.work {
            Work::Command(command) => Some(command),
            Work::Asked | Work::Waiting { .. } | Work::File | Work::Kill(_) => None,
        }
    }

    /// Whether so much waits for the file worker that nothing more should be taken from the client.
    pub fn is_full(&self) -> bool {
        self.files.is_full()
    }

    /// When something happens by itself.
    pub fn deadline(&self) -> Option<Instant> {
        let commands = self.commands().filter_map(|(_, command)| command.deadline());
        let others = [
            self.cells.deadline().filter(|_| !self.runs_any()),
            self.files.deadline(),
            self.background.deadline(),
            self.warden.deadline(),
            self.approvals.deadline(),
            self.audit.deadline(),
        ];
        commands.chain(others.into_iter().flatten()).min()
    }

    /// Acts on clocks that have run out.
    pub fn tick(&mut self, now: Instant, connection: &mut Connection) -> Result<(), Failed> {
        for entry in self.calls.values_mut() {
            if let Work::Command(command) = &mut entry.work {
                command.tick(now);
            }
        }
        self.background.tick(now);
        if !self.runs_any() {
            self.cells.tick(now);
        }
        if self.warden.deadline().is_some_and(|late| late <= now) {
            // It would not hear that the session is over either.
            let _ = sys::pidfd_signal(self.warden.child.pidfd.as_fd(), libc::SIGKILL);
            return Err(lost("the warden does not answer"));
        }
        match self.files.tick(now) {
            Some(Errand::Call(call)) => {
                let message = "the file tool took too long and was ended".to_owned();
                self.done(call, failed(ErrorKind::Timeout, message), Usage::default(), connection)?;
            }
            Some(Errand::Look { approver, call }) => self.seen(approver, call),
            None => {}
        }
        self.expire(now, connection)?;
        if let Some(approvers) = &mut self.approvers {
            approvers.flush();
        }
        Ok(self.audit.tick(now)?)
    }

    /// Starts a call.
    pub fn call(
        &mut self,
        call: CallId,
        request: Request,
        connection: &mut Connection,
    ) -> Result<(), Failed> {
        if self.calls.contains_key(&call) {
            return Err(protocol(format!("the call {call} is under way already")));
        }
        let started = Instant::now();
        let filed = self.audit.asked(&request);
        let outcome = match self.refuse(&request) {
            Some(outcome) => outcome,
            None => match decide(&self.walls.policy, &request) {
                Verdict::Allow => return self.begin(call, request, filed, started, connection),
                Verdict::Ask(question) => {
                    return self.ask_about(call, request, filed, question, started, connection);
                }
                Verdict::Deny(refused) => Outcome::Refused(refused),
            },
        };
        self.send_done(call, &filed, outcome, used(started, Usage::default()), connection)
    }

    /// Hands a call that may run to who does its work.
    fn begin(
        &mut self,
        call: CallId,
        request: Request,
        filed: record::Asked,
        started: Instant,
        connection: &mut Connection,
    ) -> Result<(), Failed> {
        let work = match request {
            Request::Bash(bash) => self.queue(call, bash)?,
            Request::BackgroundKill(kill) => Work::Kill(kill.id),
            Request::BackgroundList | Request::BackgroundLog(_) => {
                let answer = self.inspect(&request);
                return self.send_answer(call, &filed, &answer, started, connection);
            }
            // It is the client's to do.
            Request::Effect(effect) => {
                self.permit_keep(call, effect.tool())?;
                let usage = used(started, Usage::default());
                return self.send_done(call, &filed, Outcome::Granted, usage, connection);
            }
            request => {
                self.send_to_worker(Errand::Call(call), &request)?;
                Work::File
            }
        };
        self.calls.insert(call, Call { started, work, siege: None, filed });
        if let Some(Work::Kill(id)) = self.calls.get(&call).map(|entry| &entry.work) {
            return self.kill(*id, connection);
        }
        self.dispatch(connection)
    }

    /// Starts a self-attack. It runs our own code only, so no policy is asked; its cell is like any other.
    pub fn attack(
        &mut self,
        call: CallId,
        variables: &Variables,
        connection: &mut Connection,
    ) -> Result<(), Failed> {
        if !(self.calls.is_empty() && self.background.is_idle()) {
            return Err(protocol(
                "a session is attacked only while no call and no background process is under way",
            ));
        }
        let started = Instant::now();
        let siege = match Siege::begin(&self.walls, variables) {
            Ok(siege) => Some(Box::new(siege)),
            Err(error) => {
                let broken = Broken { message: format!("the self-attack cannot be prepared: {error}") };
                let (filed, outcome) = (record::Asked::attack(), Outcome::Broken(broken));
                return self.send_done(call, &filed, outcome, Usage::default(), connection);
            }
        };
        let work = self.queue(call, Siege::request())?;
        self.calls.insert(call, Call { started, work, siege, filed: record::Asked::attack() });
        self.dispatch(connection)
    }

    /// Why a request is not even tried.
    fn refuse(&self, request: &Request) -> Option<Outcome> {
        if let Err(error) = request.check() {
            return Some(failed(ErrorKind::InvalidInput, error.to_string()));
        }
        if self.calls.len() >= limit::CALLS {
            let message =
                format!("{} calls are under way, no more at once; wait for one to end", limit::CALLS);
            return Some(failed(ErrorKind::ResourceLimit, message));
        }
        if let Request::Bash(Bash { background: true, .. }) = request
            && let Some(failed) = self.background.refusal(self.waiting_in_background())
        {
            return Some(Outcome::Failed(failed));
        }
        None
    }

    fn queue(&mut self, call: CallId, bash: Bash) -> Result<Work, Failed> {
        match &bash.stdin {
            Stdin::Terminal(_) => self.ask(Ask::Terminal)?,
            Stdin::Null | Stdin::Stream => {}
        }
        self.waiting.push_back(call);
        Ok(Work::Waiting { bash: Box::new(bash), terminal: None, input: Vec::new(), input_ended: false })
    }

    fn send_to_worker(&mut self, errand: Errand, request: &Request) -> Result<(), Failed> {
        self.files.push(errand, request).map_err(|error| protocol(error.to_string()))?;
        if self.files.ask() { self.ask(Ask::Worker) } else { Ok(()) }
    }

    fn ask(&mut self, what: Ask) -> Result<(), Failed> {
        self.warden.ask(what).map_err(|error| lost(&format!("the warden does not listen: {error}")))
    }

    /// Has as many cells ready or on their way as calls wait for, and the spare ones if it is time for them.
    fn ask_for_cells(&mut self, idle: bool) -> Result<(), Failed> {
        let missing = self.cells.missing(self.waiting.len(), idle);
        (0..missing).try_for_each(|_| self.ask_for_cell())
    }

    fn ask_for_cell(&mut self) -> Result<(), Failed> {
        self.ask(Ask::Cell)?;
        self.cells.was_asked_for();
        Ok(())
    }

    /// Starts every command that has what it needs.
    fn dispatch(&mut self, connection: &mut Connection) -> Result<(), Failed> {
        let mut passed_over = VecDeque::new();
        while let Some(call) = self.waiting.pop_front() {
            let has_terminal = |work: &Work| match work {
                Work::Waiting { bash, terminal, .. } => {
                    terminal.is_some() || !matches!(bash.stdin, Stdin::Terminal(_))
                }
                Work::Asked | Work::Command(_) | Work::File | Work::Kill(_) => false,
            };
            match self.calls.get(&call) {
                Some(entry) if !has_terminal(&entry.work) => passed_over.push_back(call),
                Some(_) => match self.cells.take()? {
                    Some(cell) => self.start(call, cell, connection)?,
                    None => {
                        passed_over.push_back(call);
                        break;
                    }
                },
                None => {}
            }
        }
        passed_over.append(&mut self.waiting);
        self.waiting = passed_over;
        self.ask_for_cells(false)
    }

    /// Hands a call to a cell.
    fn start(&mut self, call: CallId, cell: CellHandle, connection: &mut Connection) -> Result<(), Failed> {
        let Some(entry) = self.calls.get_mut(&call) else { return Ok(()) };
        let Work::Waiting { bash, terminal, input, input_ended } = &mut entry.work else { return Ok(()) };
        self.cells.begins(entry.started);
        let timeout_s = time_limit(&self.walls.policy, bash);
        let (plan, capture) = match &entry.siege {
            None => (plan(&self.walls, bash), capture(&self.walls.policy, self.capture, bash, call)),
            Some(siege) => (siege.plan(&self.walls), Capture::new(2 * siege::OUTPUT, 0, String::new())),
        };
        let (input, input_ended) = (std::mem::take(input), *input_ended);
        self.audit.started(call, &entry.filed)?;
        let streams = order(&plan, bash, terminal.take(), &cell, self.null.as_fd(), &mut self.pipes);
        let streams = match streams {
            Ok(streams) => streams,
            Err(error) => {
                let message = format!("the cell cannot be used: {error}");
                let outcome = cell.refusal().unwrap_or(Outcome::Broken(Broken { message }));
                return self.done(call, outcome, Usage::default(), connection);
            }
        };
        let mut command = Command::new(cell, streams, bash, timeout_s, &self.walls.policy.limits, capture);
        if bash.background {
            let started = self.background.add(command, bash, &self.walls.central);
            self.answer(call, &Ok(FileReply::Started(started)), connection)?;
            return self.ask_for_cells(true);
        }
        // What has waited here was within the window when it came.
        let _ = command.take_input(&input);
        if input_ended {
            command.end_input();
        }
        entry.work = Work::Command(Box::new(command));
        Ok(())
    }

    /// Acts on one descriptor that is ready.
    pub fn ready(&mut self, token: Token, connection: &mut Connection) -> Result<(), Failed> {
        match token {
            Token::Client => Ok(()),
            Token::Warden => self.hear_warden(connection),
            Token::Worker => self.hear_worker(connection),
            Token::Input(call) => self.feed(call, connection),
            Token::Background(id) => self.hear_background(id, connection),
            Token::Report(call) => {
                if let Some(command) = self.command(call) {
                    command.hear();
                }
                self.pass_output(call, connection)
            }
            Token::Output(call, _) => self.pass_output(call, connection),
            Token::Approvers => {
                self.approvers.iter_mut().for_each(Approvers::admit);
                Ok(())
            }
            Token::Approver(number) => self.hear_approver(number, connection),
        }
    }

    fn hear_warden(&mut self, connection: &mut Connection) -> Result<(), Failed> {
        match self.warden.hear(false) {
            Ok(Told::Made(Ask::Cell, socket, pidfd)) => {
                self.cells.came(CellHandle { socket, pidfd });
                self.dispatch(connection)
            }
            Ok(Told::Made(Ask::Worker, socket, pidfd)) => {
                self.files.attach(socket, pidfd).map_err(|error| lost(&format!("the file worker: {error}")))
            }
            Ok(Told::Made(Ask::Terminal, master, slave)) => {
                self.give_terminal((master, slave));
                self.dispatch(connection)
            }
            Ok(Told::Failed { layer, errno, step }) => {
                let error = io::Error::from_raw_os_error(errno);
                Err(lost(&format!("the layer {} failed: {step}: {error}", layer.name())))
            }
            // Said before the session is open only.
            Ok(Told::Ready | Told::Unsupervised(_)) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(lost(&format!("the warden has ended: {error}"))),
        }
    }

    /// The first call that wants a terminal gets it.
    fn give_terminal(&mut self, made: (OwnedFd, OwnedFd)) {
        let wanting = |work: &&mut Work| match work {
            Work::Waiting { bash, terminal, .. } => {
                terminal.is_none() && matches!(bash.stdin, Stdin::Terminal(_))
            }
            Work::Asked | Work::Command(_) | Work::File | Work::Kill(_) => false,
        };
        let mut works = self.calls.values_mut().map(|entry| &mut entry.work);
        if let Some(Work::Waiting { terminal, .. }) = works.find(wanting) {
            *terminal = Some(made);
        }
    }

    fn hear_worker(&mut self, connection: &mut Connection) -> Result<(), Failed> {
        self.files.advance();
        let mut buffer = std::mem::take(&mut self.buffer);
        let heard = self.files.hear(&mut buffer);
        self.buffer = buffer;
        match heard {
            Heard::Nothing => Ok(()),
            Heard::Part(Errand::Call(call), bytes) => send(connection, &FromBroker::Part { call, bytes }),
            Heard::Part(Errand::Look { approver, call }, bytes) => {
                self.show_before(approver, call, bytes);
                Ok(())
            }
            Heard::Last(errand, bytes, usage) => {
                self.files.advance();
                self.answered(errand, bytes, usage, connection)
            }
            Heard::Gone(errand) => {
                if self.files.ask() {
                    self.ask(Ask::Worker)?;
                }
                self.lost_errand(errand, connection)
            }
        }
    }

    fn answered(
        &mut self,
        errand: Errand,
        bytes: Vec<u8>,
        usage: Usage,
        connection: &mut Connection,
    ) -> Result<(), Failed> {
        match errand {
            Errand::Call(call) => {
                send(connection, &FromBroker::Part { call, bytes })?;
                self.done(call, Outcome::Answered, usage, connection)
            }
            Errand::Look { approver, call } => {
                self.show_before(approver, call, bytes);
                self.seen(approver, call);
                Ok(())
            }
        }
    }

    fn lost_errand(&mut self, errand: Option<Errand>, connection: &mut Connection) -> Result<(), Failed> {
        match errand {
            Some(Errand::Call(call)) => {
                let message =
                    "the file worker ended in the middle of the call; the next call gets a new one".into();
                self.done(call, Outcome::Broken(Broken { message }), Usage::default(), connection)
            }
            Some(Errand::Look { approver, call }) => {
                self.seen(approver, call);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Passes on what a command has printed, and its end.
    fn pass_output(&mut self, call: CallId, connection: &mut Connection) -> Result<(), Failed> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(limit::CHUNK, 0);
        let central = self.walls.central.clone();
        let passed = match self.command(call) {
            Some(command) => pass(call, command, &mut buffer, &central, connection),
            None => Ok(false),
        };
        self.buffer = buffer;
        if passed? { self.finish(call, connection) } else { Ok(()) }
    }

    fn finish(&mut self, call: CallId, connection: &mut Connection) -> Result<(), Failed> {
        let Some(entry) = self.calls.remove(&call) else { return Ok(()) };
        let Call { started, work: Work::Command(command), siege, filed } = entry else { return Ok(()) };
        let (mut outcome, usage, place) = command.finish();
        self.cells.ends();
        if let Some(place) = place {
            self.cells.take_back(place, self.runs_any() || !self.waiting.is_empty());
        }
        if let Some(siege) = siege {
            match siege.finish(outcome, self.walls.tier, self.layers) {
                Ok(reports) => {
                    let failed = reports.iter().filter(|report| !report.passes()).count();
                    self.audit.note(Event::Attack { call, tried: reports.len(), failed })?;
                    send(connection, &FromBroker::Attacked { call, reports })?;
                    return self.ask_for_cells(true);
                }
                Err(other) => outcome = other,
            }
        }
        self.send_done(call, &filed, outcome, used(started, usage), connection)?;
        // Nobody waits for what comes next. A client that has left is found out when this is tried again.
        let _ = connection.flush();
        self.dispatch(connection)?;
        if self.pipes.is_none() {
            // Whoever needs them and has none tries again, and says why there are none.
            self.pipes = Pipes::new().ok();
        }
        self.ask_for_cells(true)
    }

    fn done(
        &mut self,
        call: CallId,
        outcome: Outcome,
        usage: Usage,
        connection: &mut Connection,
    ) -> Result<(), Failed> {
        let Some(entry) = self.calls.remove(&call) else { return Ok(()) };
        self.waiting.retain(|waiting| *waiting != call);
        self.send_done(call, &entry.filed, outcome, used(entry.started, usage), connection)
    }

    /// Ends a call: first for the audit, then for the client.
    fn send_done(
        &mut self,
        call: CallId,
        filed: &record::Asked,
        outcome: Outcome,
        usage: Usage,
        connection: &mut Connection,
    ) -> Result<(), Failed> {
        self.record(call, filed, &outcome, &usage)?;
        send(connection, &FromBroker::Done { call, outcome, usage, layers: self.layers })
    }
}

fn around(walls: &Walls, layers: LayerSet) -> Around {
    Around { policy: walls.policy.digest, tier: walls.tier, layers }
}

/// Records that a session is over, and with it the calls that were under way.
fn record_end(
    audit: &mut Audit,
    around: Around,
    under_way: Vec<(CallId, Instant, record::Asked)>,
) -> Result<(), AuditError> {
    let outcome = failed(ErrorKind::Cancelled, "the client has left".into());
    for (call, started, asked) in under_way {
        let usage = used(started, Usage::default());
        audit.ended(Ending::new(call, &asked, around, &outcome, &usage))?;
    }
    audit.close()
}

/// Reads what there is, stream by stream; true when the command is over.
fn pass(
    call: CallId,
    command: &mut Command,
    buffer: &mut [u8],
    central: &Path,
    connection: &mut Connection,
) -> Result<bool, Failed> {
    for stderr in [false, true] {
        while !connection.is_full() && command.output_fd(stderr).is_some() {
            let before = command.report_fd().is_some();
            let chunk = command.read(stderr, buffer, central);
            let stop = chunk.is_none() || before;
            if let Some(chunk) = chunk {
                let (sequence, bytes) = (chunk.sequence, chunk.bytes);
                send(connection, &FromBroker::Output { call, stderr: chunk.stderr, sequence, bytes })?;
            }
            // While the command runs each stream has its turn; afterwards what is left is read to its end.
            if stop && command.report_fd().is_some() {
                break;
            }
        }
    }
    Ok(command.is_over())
}

fn never_started() -> Outcome {
    Outcome::Ran(Ran { ended: Ended::Cancelled, output: Captured::default(), spill: None, timeout_s: None })
}

fn failed(kind: ErrorKind, message: String) -> Outcome {
    Outcome::Failed(Failed { kind, message })
}

fn lost(message: &str) -> Failed {
    Failed { kind: ErrorKind::ExecutorLost, message: format!("the session cannot go on: {message}") }
}

fn used(since: Instant, usage: Usage) -> Usage {
    Usage { wall_us: u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX), ..usage }
}
