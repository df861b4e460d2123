//! One call from its frame to its end: its state, its input, and its frames for the client.

use crate::background::BackgroundProcesses;
use crate::fault::{check_chunk, failed, protocol};
use crate::files::LeasedTarget;
use crate::pending_leases::PendingLeases;
use crate::poll::{ClientQueue, Token, Waited};
use crate::pool::StartedCommand;
use crate::running_command::{FinishedCommand, RunningCommand};
use broker_protocol::ticket::WebTicket;
use broker_protocol::{
    CallId, Captured, Denials, Ended, ErrorKind, Failed, FileAnswer, FromBroker, LeftRunning,
    Outcome, Ran, Request, Signal, Stdin, Usage, Wants, ZonePath, frame, limit,
};
use executor_handles::input::ProgramInput;
use nix::poll::PollFlags;
use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Call {
    pub id: CallId,
    pub started: Instant,
    pub state: CallState,
    /// The targets of links on its file's path, as far as they have been followed.
    pub real: Vec<ZonePath>,
    /// The hosts and paths it requests beyond what the session has.
    pub wants: Wants,
    /// The leases of paths that its command or its file tool holds.
    pub leases: Vec<u64>,
    /// The file that its file tool may change by a lease, until the file worker has it.
    pub leased_file: Option<LeasedTarget>,
    input: ProgramInput,
    /// The client's window size, if it changed before there was a terminal.
    size: Option<(u16, u16)>,
    /// A ticket for its client's gateway, to be sent once its end is recorded.
    pub ticket: Option<WebTicket>,
    /// Whether the client has requested to see the file that it would change.
    pub looked: bool,
    /// Whether its end is reported only after a check: it may have changed something, or reports which commands have ended.
    pub awaits_check: bool,
    /// Whether that check is complete.
    pub is_checked: bool,
    /// Frames for the client, in order.
    pub outbox: Vec<FromBroker>,
}

#[derive(Debug)]
pub(crate) enum CallState {
    /// It waits for an approval.
    Asked(Request),
    /// It was approved. Protected names in the paths that it gets are looked for; without such paths it goes on at once.
    Approved(Box<PendingLeases>),
    /// It waits for a cell.
    Waiting,
    /// A cell is running it.
    Running(Box<RunningCommand>),
    /// The file worker is processing it.
    Worker(Request),
    /// It is answered when this background process has ended.
    Killing(u64),
    /// Its `Done` has not been sent yet.
    Ended(Box<(Outcome, Usage, Denials)>),
}

/// A call that is over.
#[derive(Debug)]
pub(crate) struct CallEnd {
    pub call: CallId,
    pub outcome: Outcome,
    pub usage: Usage,
    pub denied: Denials,
    pub ticket: Option<WebTicket>,
}

impl Call {
    /// Creates a new call without a request.
    pub(crate) fn new(id: CallId, wants: Wants) -> Self {
        let (started, state, input) = (Instant::now(), CallState::Waiting, ProgramInput::default());
        Self {
            id,
            started,
            state,
            real: Vec::new(),
            wants,
            leases: Vec::new(),
            leased_file: None,
            input,
            size: None,
            ticket: None,
            looked: false,
            awaits_check: false,
            is_checked: false,
            outbox: Vec::new(),
        }
    }

    /// The request that waits for an approval, if it does.
    pub(crate) fn asked(&self) -> Option<&Request> {
        if let CallState::Asked(request) = &self.state {
            Some(request)
        } else {
            None
        }
    }

    /// Takes that request out, so that it can start.
    pub(crate) fn take_asked(&mut self) -> Option<Request> {
        match std::mem::replace(&mut self.state, CallState::Waiting) {
            CallState::Asked(request) => Some(request),
            state => {
                self.state = state;
                None
            }
        }
    }

    /// The leases that it waits for, if it does.
    pub(crate) fn leasing(&self) -> Option<&PendingLeases> {
        if let CallState::Approved(leases) = &self.state {
            Some(leases)
        } else {
            None
        }
    }

    /// When something of it is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let leases = || self.leasing()?.paths.deadline();
        self.command()
            .and_then(RunningCommand::deadline)
            .or_else(leases)
    }

    /// Takes the request back from the file worker, to start again.
    pub(crate) fn take_from_worker(&mut self) -> Option<Request> {
        match std::mem::replace(&mut self.state, CallState::Waiting) {
            CallState::Worker(request) => Some(request),
            state => {
                self.state = state;
                None
            }
        }
    }

    /// The running command, if it is in a cell.
    pub(crate) fn command(&self) -> Option<&RunningCommand> {
        if let CallState::Running(command) = &self.state {
            Some(command)
        } else {
            None
        }
    }

    pub(crate) fn command_mut(&mut self) -> Option<&mut RunningCommand> {
        if let CallState::Running(command) = &mut self.state {
            Some(command)
        } else {
            None
        }
    }

    /// Adds every descriptor it waits for. While the client's queue is full, output is not read.
    pub(crate) fn wait_for<'s>(&'s self, waited: &mut Waited<'s>, client: ClientQueue) {
        if let Some((socket, flags)) = self.leasing().and_then(|leases| leases.paths.waits_for()) {
            waited.add(Token::Lease(self.id), socket, flags);
        }
        let Some(command) = self.command() else {
            return;
        };
        if let Some(fd) = command.report_fd() {
            waited.add_input(Token::Report(self.id), fd);
        }
        if let Some(fd) = self.input.fd() {
            waited.add(Token::Input(self.id), fd, PollFlags::POLLOUT);
        }
        if client == ClientQueue::HasRoom {
            command
                .output_fds()
                .for_each(|fd| waited.add_input(Token::Output(self.id), fd));
        }
    }

    /// Its command has been given a cell.
    pub(crate) fn start(&mut self, started: StartedCommand) {
        let StartedCommand { command, stdin } = started;
        if let Some((rows, columns)) = self.size {
            command.resize(rows, columns);
        }
        match stdin {
            Some(terminal) if command.is_at_terminal() => self.input.start_at(terminal),
            pipe => self.input.start(pipe),
        }
        self.state = CallState::Running(command);
        self.feed();
    }

    /// Takes input. Input for a call that has none is dropped: the client cannot always know.
    pub(crate) fn take_input(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        check_chunk(bytes, "input")?;
        match self.state {
            CallState::Asked(_)
            | CallState::Approved(_)
            | CallState::Waiting
            | CallState::Running(_)
                if !self.input.take(bytes) =>
            {
                Err(protocol(format!(
                    "more input for the call {} than its window allows",
                    self.id
                )))
            }
            CallState::Asked(_)
            | CallState::Approved(_)
            | CallState::Waiting
            | CallState::Running(_) => {
                self.feed();
                Ok(())
            }
            CallState::Worker(_) | CallState::Killing(_) | CallState::Ended(_) => Ok(()),
        }
    }

    /// The client has closed the input.
    pub(crate) fn end_input(&mut self) {
        self.input.end();
        self.feed();
    }

    /// Writes as much input as the command accepts now.
    pub(crate) fn feed(&mut self) {
        let bytes = self.input.feed();
        if bytes > 0 {
            self.outbox.push(FromBroker::InputCredit {
                call: self.id,
                bytes,
            });
        }
        if self.input.take_suspend() {
            self.signal(Signal::Suspend);
        }
    }

    /// Sets the size of its terminal, if it has one.
    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        match &mut self.state {
            CallState::Running(command) => command.resize(rows, columns),
            CallState::Approved(_) | CallState::Waiting => self.size = Some((rows, columns)),
            // The window size is not part of what is approved.
            CallState::Asked(Request::Bash(bash)) => {
                if let Stdin::Terminal(terminal) = &mut bash.stdin {
                    (terminal.rows, terminal.columns) = (rows, columns);
                }
            }
            CallState::Asked(_)
            | CallState::Worker(_)
            | CallState::Killing(_)
            | CallState::Ended(_) => {}
        }
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        let number = match signal {
            Signal::Interrupt => libc::SIGINT,
            Signal::Terminate => libc::SIGTERM,
            Signal::Hangup => libc::SIGHUP,
            Signal::Quit => libc::SIGQUIT,
            Signal::Suspend => libc::SIGSTOP,
            Signal::Continue => libc::SIGCONT,
        };
        if let Some(command) = self.command_mut() {
            command.signal(number);
            if signal == Signal::Suspend {
                self.outbox.push(FromBroker::Suspended { call: self.id });
            }
        }
    }

    /// Gives credit for live output.
    pub(crate) fn credit(&mut self, bytes: u32) {
        if let Some(command) = self.command_mut() {
            command.give_credit(bytes);
        }
    }

    /// Reads its command's output, at most `room` bytes of it live; returns the finished command when it is over.
    pub(crate) fn read_output(
        &mut self,
        room: usize,
        buffer: &mut [u8],
    ) -> Option<FinishedCommand> {
        let CallState::Running(command) = &mut self.state else {
            return None;
        };
        let over = command.read_output(self.id, room, buffer, &mut self.outbox);
        if command.report_fd().is_none() {
            self.input.close();
        }
        if !over {
            return None;
        }
        let CallState::Running(command) = std::mem::replace(&mut self.state, CallState::Waiting)
        else {
            return None;
        };
        let mut finished = command.finish();
        finished.usage.stdin_bytes = self.input.written();
        Some(finished)
    }

    /// A command that nobody and no limit has ended.
    pub(crate) fn has_exited(&self) -> bool {
        let CallState::Ended(end) = &self.state else {
            return false;
        };
        match &end.0 {
            Outcome::Ran(ran) => matches!(ran.ended, Ended::Exited(_) | Ended::Signalled(_)),
            Outcome::Answered
            | Outcome::Granted
            | Outcome::Refused(_)
            | Outcome::Failed(_)
            | Outcome::Broken(_) => false,
        }
    }

    pub(crate) fn end(&mut self, outcome: Outcome, usage: Usage) {
        self.end_denied(outcome, usage, Denials::default());
    }

    /// Ends a call to which something was denied.
    pub(crate) fn end_denied(&mut self, outcome: Outcome, usage: Usage, denied: Denials) {
        self.state = CallState::Ended(Box::new((outcome, usage, denied)));
    }

    /// Cancels the call for the client; a command that has not begun does not start.
    pub(crate) fn cancel(&mut self) {
        let outcome = match &self.state {
            CallState::Waiting => Outcome::Ran(Ran {
                ended: Ended::Cancelled,
                output: Captured::default(),
                spill: None,
                stderr: None,
                timeout_s: None,
                profile: None,
                leftover: LeftRunning::default(),
            }),
            CallState::Asked(_)
            | CallState::Approved(_)
            | CallState::Running(_)
            | CallState::Worker(_)
            | CallState::Killing(_) => failed(ErrorKind::Cancelled, "the client ended the call"),
            CallState::Ended(_) => return,
        };
        self.end(outcome, Usage::default());
    }

    /// Its end for the audit and the client, if it has ended.
    pub(crate) fn into_end(self) -> Option<CallEnd> {
        let CallState::Ended(end) = self.state else {
            return None;
        };
        let wall_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (outcome, usage, denied) = *end;
        Some(CallEnd {
            call: self.id,
            outcome,
            usage: Usage { wall_us, ..usage },
            denied,
            ticket: self.ticket,
        })
    }

    /// The end of a call whose client has left.
    pub(crate) fn into_cancelled(mut self) -> Option<CallEnd> {
        self.end(
            failed(ErrorKind::Cancelled, "the client has left"),
            Usage::default(),
        );
        self.into_end()
    }

    /// Answers a `background_kill` when its process has ended.
    pub(crate) fn answer_kill(&mut self, background: &BackgroundProcesses) -> Result<(), Failed> {
        match self.state {
            CallState::Killing(process) => background
                .killed(process)
                .map_or(Ok(()), |answer| self.answer(&answer)),
            CallState::Asked(_)
            | CallState::Approved(_)
            | CallState::Waiting
            | CallState::Running(_)
            | CallState::Worker(_)
            | CallState::Ended(_) => Ok(()),
        }
    }

    /// Ends it with an answer that the broker makes.
    pub(crate) fn answer(&mut self, answer: &FileAnswer) -> Result<(), Failed> {
        let bytes =
            frame::encode_whole(answer).map_err(|error| Failed::internal(error.to_string()))?;
        let parts = bytes.chunks(limit::CHUNK).map(<[u8]>::to_vec);
        self.outbox.extend(parts.map(|bytes| FromBroker::Part {
            call: self.id,
            bytes,
        }));
        let usage = Usage {
            stdout_bytes: bytes.len() as u64,
            ..Usage::default()
        };
        self.end(Outcome::Answered, usage);
        Ok(())
    }
}
