//! The cells of a session: which call gets a cell when, and which cells are made ahead of time.

use crate::authorise::Granted;
use crate::fault::lost;
use crate::plan::CommandPlan;
use crate::running_command::{RunningCommand, unconfined};
use broker_protocol::{Broken, CallId, Failed, Stdin};
use executor_handles::CellHandle;
use executor_handles::Warden;
use executor_handles::account::Capacity;
use executor_handles::ready_cells::{CellLoad, CellsKilled, ReadyCells};
use executor_handles::streams::{self, Pipes, ProgramStreams, Streams};
use executor_leases::LeaseHandover;
use executor_leases::Mounting;
use executor_spec::cell_report::{CellMessage, End, Report};
use executor_spec::warden_message::WardenMessage;
use executor_spec::warden_message::WardenRequest;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use policies::Limits;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Pool {
    warden: Warden,
    limits: Limits,
    capacity: Capacity,
    cells: ReadyCells,
    /// Calls waiting for a cell, in order.
    waiting: VecDeque<WaitingCommand>,
    /// Calls that were given a cell, or failed to get one, since this was last taken.
    started: Vec<(CallId, Result<StartedCommand, Broken>)>,
    /// Running commands that a client waits for.
    running: usize,
    /// Whether to make the spare cells and pipes now: after a call, and at first.
    refill: bool,
    null: OwnedFd,
    /// Pipes made ahead for the next command.
    pipes: Option<Pipes>,
    /// Calls for which a cell with leases was requested, in order; some may have been cancelled since.
    leased: VecDeque<CallId>,
    /// The processes that mount leased paths in such cells.
    mounting: Vec<Mounting>,
}

#[derive(Debug)]
struct WaitingCommand {
    call: CallId,
    came: Instant,
    plan: Box<CommandPlan>,
    /// The master and the slave of the terminal, once received.
    terminal: Option<(OwnedFd, OwnedFd)>,
    /// The cell made for this call alone, if it has leases.
    own_cell: OwnCell,
}

/// The cell of a call with leases.
#[derive(Debug)]
enum OwnCell {
    /// The call has no leases, and takes any cell.
    None,
    Requested,
    Ready(CellHandle),
}

impl WaitingCommand {
    fn is_complete(&self) -> bool {
        self.has_terminal() && !matches!(self.own_cell, OwnCell::Requested)
    }

    fn has_terminal(&self) -> bool {
        self.terminal.is_some() || !self.wants_terminal()
    }

    fn wants_terminal(&self) -> bool {
        matches!(self.plan.stdin, Stdin::Terminal(_))
    }
}

/// A command that has its cell.
#[derive(Debug)]
pub(crate) struct StartedCommand {
    pub command: Box<RunningCommand>,
    pub stdin: Option<OwnedFd>,
}

impl Pool {
    /// Keeps `spare` cells ready between calls. A first one is requested of the warden already.
    pub(crate) fn new(
        warden: Warden,
        limits: Limits,
        capacity: Capacity,
        spare: u8,
    ) -> Result<Self, Failed> {
        let null = open(
            "/dev/null",
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        );
        let mut pool = Self {
            warden,
            limits,
            capacity,
            cells: ReadyCells::new(spare),
            waiting: VecDeque::new(),
            started: Vec::new(),
            running: 0,
            refill: true,
            null: null.map_err(|errno| Failed::internal(format!("/dev/null: {errno}")))?,
            pipes: None,
            leased: VecDeque::new(),
            mounting: Vec::new(),
        };
        pool.cells.requested();
        Ok(pool)
    }

    /// Gives a command to a cell, now or when one is ready.
    pub(crate) fn submit(
        &mut self,
        granted: Granted<Box<CommandPlan>>,
        came: Instant,
    ) -> Result<(), Failed> {
        let call = granted.call();
        let mut plan = granted.into_work();
        let own_cell = match plan.leases.take() {
            Some(leases) => {
                self.request_leased(call, leases)?;
                OwnCell::Requested
            }
            None => OwnCell::None,
        };
        self.waiting.push_back(WaitingCommand {
            call,
            came,
            plan,
            terminal: None,
            own_cell,
        });
        self.request_terminals()?;
        self.dispatch()
    }

    /// Requests a cell for this call alone.
    fn request_leased(&mut self, call: CallId, leases: LeaseHandover) -> Result<(), Failed> {
        let requested = self.warden.request_leased(leases.descriptors());
        requested.map_err(|error| lost(&format!("the warden takes no requests: {error}")))?;
        self.leased.push_back(call);
        self.mounting.retain(|mounting| !mounting.has_ended());
        self.mounting.extend(leases.into_mounting());
        Ok(())
    }

    /// Gives a cell with leases to its call; if that was cancelled, the cell is not used.
    fn add_leased(&mut self, cell: CellHandle) {
        let call = self.leased.pop_front();
        let waiting = self
            .waiting
            .iter_mut()
            .find(|waiting| Some(waiting.call) == call);
        if let Some(waiting) =
            waiting.filter(|waiting| matches!(waiting.own_cell, OwnCell::Requested))
        {
            waiting.own_cell = OwnCell::Ready(cell);
        }
    }

    /// Requests as many terminals as calls wait for. The terminal of a cancelled call goes to the
    /// next one, so a client that calls and cancels causes no more requests than it may have calls.
    fn request_terminals(&mut self) -> Result<(), Failed> {
        let wanted = self
            .waiting
            .iter()
            .filter(|waiting| !waiting.has_terminal())
            .count();
        let missing = wanted.saturating_sub(self.warden.in_flight(WardenRequest::Terminal));
        let missing = missing.min(self.warden.room(WardenRequest::Terminal));
        (0..missing).try_for_each(|_| self.request(WardenRequest::Terminal))
    }

    /// Withdraws a call that has no cell yet; false if it is not waiting here.
    pub(crate) fn cancel(&mut self, call: CallId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.call != call);
        self.waiting.len() < before
    }

    /// Number of background processes waiting for a cell.
    pub(crate) fn waiting_in_background(&self) -> usize {
        self.waiting
            .iter()
            .filter(|waiting| waiting.plan.background)
            .count()
    }

    /// The calls that were given a cell since the last call of this.
    pub(crate) fn take_started(&mut self) -> Vec<(CallId, Result<StartedCommand, Broken>)> {
        std::mem::take(&mut self.started)
    }

    /// A command that a client waited for has ended. Its cell, if reusable, is ready again.
    pub(crate) fn command_ended(&mut self, cell: Option<CellHandle>) {
        self.running = self.running.saturating_sub(1);
        self.refill = true;
        self.cells.command_ended();
        if let Some(cell) = cell {
            let load = match self.running > 0 || !self.waiting.is_empty() {
                true => CellLoad::Busy,
                false => CellLoad::Idle,
            };
            self.cells.return_cell(cell, load);
        }
    }

    /// Starts every command that has what it needs.
    fn dispatch(&mut self) -> Result<(), Failed> {
        while let Some(at) = self.waiting.iter().position(WaitingCommand::is_complete) {
            let own = std::mem::replace(&mut self.waiting[at].own_cell, OwnCell::None);
            let cell = match own {
                OwnCell::Ready(cell) => cell,
                OwnCell::None | OwnCell::Requested => match self.cells.take().map_err(killed)? {
                    Some(cell) => cell,
                    None => return Ok(()),
                },
            };
            let Some(waiting) = self.waiting.remove(at) else {
                return Ok(());
            };
            let (call, is_waited_for) = (waiting.call, waiting.plan.is_waited_for());
            let started = self.start(waiting, cell);
            match (&started, is_waited_for) {
                (Ok(_), true) => self.running += 1,
                (Ok(_), false) => self.refill = true,
                (Err(_), _) => {}
            }
            self.started.push((call, started));
        }
        Ok(())
    }

    fn start(
        &mut self,
        waiting: WaitingCommand,
        cell: CellHandle,
    ) -> Result<StartedCommand, Broken> {
        self.cells.command_begins(waiting.came);
        let WaitingCommand { plan, terminal, .. } = waiting;
        let ordered = self.order(&plan, terminal, &cell);
        let streams = ordered.map_err(|error| {
            let message = match cell.receive() {
                Ok(CellMessage::Report(Report {
                    end: End::Unconfined { part, errno },
                    ..
                })) => unconfined(part, errno),
                Ok(_) | Err(_) => format!("the cell cannot be used: {error}"),
            };
            Broken { message }
        })?;
        let Streams {
            stdout,
            stderr,
            stdin,
        } = streams;
        let command =
            RunningCommand::new(cell, stdout, stderr, plan, &self.limits, &mut self.capacity);
        Ok(StartedCommand {
            command: Box::new(command),
            stdin,
        })
    }

    fn order(
        &mut self,
        plan: &CommandPlan,
        terminal: Option<(OwnedFd, OwnedFd)>,
        cell: &CellHandle,
    ) -> io::Result<Streams> {
        let (ours, program) = match (&plan.stdin, terminal) {
            (Stdin::Terminal(size), Some((master, slave))) => {
                streams::terminal(master, slave, size)?
            }
            (stdin, _) => self
                .pipes
                .take()
                .map_or_else(Pipes::new, Ok)?
                .streams(stdin)?,
        };
        let stdio = match &program {
            ProgramStreams::Terminal(slave) => [slave.as_fd(); 3],
            ProgramStreams::Pipes(stdin, stdout, stderr) => [
                stdin.as_ref().unwrap_or(&self.null).as_fd(),
                stdout.as_fd(),
                stderr.as_fd(),
            ],
        };
        cell.order(&plan.cell, stdio)?;
        Ok(ours)
    }

    /// Starts commands for which a cell is now free, and makes ahead of time what the next call will need.
    pub(crate) fn prepare(&mut self) -> Result<(), Failed> {
        let refill = std::mem::take(&mut self.refill);
        if refill && self.pipes.is_none() {
            // A failure is ignored: a command that needs pipes tries again, and reports the error.
            self.pipes = Pipes::new().ok();
        }
        if refill && self.limits.disk_share.is_some() {
            self.capacity.measure();
        }
        self.dispatch()?;
        self.request_terminals()?;
        let takes_any = |waiting: &&WaitingCommand| matches!(waiting.own_cell, OwnCell::None);
        let load = if refill {
            CellLoad::Idle
        } else {
            CellLoad::Busy
        };
        let missing = self
            .cells
            .missing(self.waiting.iter().filter(takes_any).count(), load);
        let missing = missing.min(self.warden.room(WardenRequest::Cell));
        (0..missing).try_for_each(|_| self.request_cell())
    }

    fn request_cell(&mut self) -> Result<(), Failed> {
        self.cells.requested();
        self.request(WardenRequest::Cell)
    }

    fn request(&mut self, request: WardenRequest) -> Result<(), Failed> {
        let lost = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock => lost("the warden does not take its requests"),
            _ => lost(&format!("the warden takes no requests: {error}")),
        };
        self.warden.request(request).map_err(lost)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.warden.socket.as_fd()
    }

    /// Handles the messages of the warden.
    pub(crate) fn receive(&mut self) -> Result<(), Failed> {
        match self.warden.receive() {
            Ok(WardenMessage::Cell(socket, pidfd)) => self.cells.add(CellHandle { socket, pidfd }),
            Ok(WardenMessage::LeasedCell(socket, pidfd)) => {
                self.add_leased(CellHandle { socket, pidfd })
            }
            Ok(WardenMessage::Terminal(master, slave)) => {
                let wants = |waiting: &&mut WaitingCommand| !waiting.has_terminal();
                if let Some(waiting) = self.waiting.iter_mut().find(wants) {
                    waiting.terminal = Some((master, slave));
                }
            }
            Ok(WardenMessage::Failed {
                part, errno, step, ..
            }) => {
                let error = io::Error::from_raw_os_error(errno);
                return Err(lost(&format!("{part}: {step}: {error}")));
            }
            Ok(WardenMessage::Lost(request)) => self.lose_one(request),
            // Sent before the session is open only.
            Ok(WardenMessage::Ready(_) | WardenMessage::Relay(_)) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(lost(&format!("the warden has ended: {error}"))),
        }
        self.dispatch()
    }

    /// A cell or a terminal arrived that this process had no descriptors for: the call that has waited longest fails.
    fn lose_one(&mut self, request: WardenRequest) {
        let without = match request {
            WardenRequest::Cell => {
                self.cells.lost_one();
                let takes_any =
                    |waiting: &WaitingCommand| matches!(waiting.own_cell, OwnCell::None);
                self.waiting
                    .iter()
                    .position(takes_any)
                    .and_then(|at| self.waiting.remove(at))
            }
            WardenRequest::LeasedCell => {
                let call = self.leased.pop_front();
                let at = self
                    .waiting
                    .iter()
                    .position(|waiting| Some(waiting.call) == call);
                at.and_then(|at| self.waiting.remove(at))
            }
            WardenRequest::Terminal => {
                let wants = self
                    .waiting
                    .iter()
                    .position(|waiting| !waiting.has_terminal());
                wants.and_then(|at| self.waiting.remove(at))
            }
        };
        if let Some(WaitingCommand { call, .. }) = without {
            let message = "no cell: the broker has too many open files".to_owned();
            self.started.push((call, Err(Broken { message })));
        }
    }

    /// When the next timeout is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let idle = self.cells.deadline().filter(|_| self.running == 0);
        [idle, self.warden.deadline()].into_iter().flatten().min()
    }

    /// Handles the timeouts that are due.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<(), Failed> {
        if self.running == 0 {
            self.cells.tick(now);
        }
        if self.warden.deadline().is_some_and(|late| late <= now) {
            // A warden that does not answer would not obey the end of the session either.
            self.warden.kill();
            return Err(lost("the warden does not answer"));
        }
        Ok(())
    }

    /// Kills the warden. With it dies everything in the session if the warden is the first process of a PID namespace; otherwise its
    /// descendants become children of this process.
    pub(crate) fn kill(&self) {
        self.warden.kill();
    }
}

fn killed(_: CellsKilled) -> Failed {
    lost("more than 16 idle cells in a row died; something on this machine kills them")
}
