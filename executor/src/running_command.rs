//! One running command: its output to the client, its time limits, its cell's report, and its outcome.

use crate::plan::CommandPlan;
use broker_protocol::{
    Broken, CallId, Denial, Denials, Ended, Finding, FromBroker, LeftRunning, Limit, Outcome, Ran,
    StdStream, Stderr, Stdin, Usage, limit,
};
use executor_denials::{describe_refusals, kept_offline, named};
use executor_handles::CellHandle;
use executor_handles::account::{Account, Capacity};
use executor_project::network::NetworkReach;
use executor_spec::cell_report::{CellMessage, End, Report};
use executor_spec::error::SetupPart;
use executor_spec::leftover::Leftover;
use executor_spec::refusals::MESSAGES_MAX;
use executor_spec::refusals::Refusal;
use executor_spec::sandbox::SandboxSpec;
use executor_sys::file;
use executor_sys::process::CpuAndMemory;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::read;
use policies::{EffectivePolicy, Limits};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the processes of a command may take to end by themselves when the broker ends it: git removes its locks, a server its socket.
const GRACE: Duration = Duration::from_secs(2);
/// How long a cell may take to kill its processes before the broker kills it.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum bytes read after a command's processes are dead: the largest pipe of an ordinary user
/// (`/proc/sys/fs/pipe-max-size`). More can only come from an outside process that was given the other end.
const LAST_BYTES: usize = 1 << 20;

/// Signals to one command after which its cell is not reused: those unread when the program ended
/// are queued before the next order, and a socket holds about 250.
const SIGNALS_MAX: u32 = 64;

/// A command in its cell.
#[derive(Debug)]
pub(crate) struct RunningCommand {
    cell: CellHandle,
    plan: Box<CommandPlan>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    /// Whether the client wants output as it is produced.
    live: bool,
    /// Bytes of live output that the client still accepts.
    credit: u32,
    sequence: u64,
    clocks: Clocks,
    output_max: Option<u64>,
    kept: KeptLimits,
    account: Option<Account>,
    usage: Usage,
    /// Why the broker ended the command, if it did.
    ended: Option<Ended>,
    /// Whether it has printed more than it may: the rest is dropped.
    is_mute: bool,
    /// Why its cell is lost although it reports, if so.
    fault: Option<&'static str>,
    /// Number of signals sent.
    signals: u32,
    /// The refusals that its cell has reported.
    refusals: Vec<Refusal>,
    /// Processes that the cell has reported as left running by the program.
    leftover: Option<Leftover>,
    report: Option<Result<Report, io::ErrorKind>>,
    after_report: usize,
}

#[derive(Debug)]
struct Clocks {
    wall: Option<Instant>,
    idle: Option<Duration>,
    last_output: Instant,
    /// When the cell must kill what has not ended by itself.
    sweep: Option<Instant>,
    /// When the broker kills the cell.
    kill: Option<Instant>,
}

/// Limits that the kernel enforces with signals that kill a process.
#[derive(Clone, Copy, Debug)]
struct KeptLimits {
    cpu_s: Option<u64>,
    file_size: Option<u64>,
}

impl KeptLimits {
    fn of(limits: &Limits) -> Self {
        Self {
            cpu_s: limits.cpu_s,
            file_size: limits.file_size,
        }
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct FinishedCommand {
    pub end: Result<Ended, Broken>,
    pub usage: Usage,
    pub plan: Box<CommandPlan>,
    /// The cell, if it can be reused.
    pub cell: Option<CellHandle>,
    /// The refusals that its cell has reported, and how many more there were.
    pub refusals: Vec<Refusal>,
    pub unnamed: u64,
    /// Whether it has failed, and left no room in the session's private storage.
    pub scratch_full: bool,
    /// Processes that its program has left running.
    pub leftover: Leftover,
}

impl RunningCommand {
    /// Creates the state of a command whose order has just been sent.
    pub(crate) fn new(
        cell: CellHandle,
        stdout: OwnedFd,
        stderr: Option<OwnedFd>,
        plan: Box<CommandPlan>,
        limits: &Limits,
        capacity: &mut Capacity,
    ) -> Self {
        let output_max = limits.output.filter(|_| !plan.service);
        let now = Instant::now();
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Self {
            cell,
            stdout: Some(stdout),
            stderr,
            live: plan.live,
            credit: limit::OUTPUT_WINDOW,
            sequence: 0,
            clocks: Clocks {
                wall: plan.timeout_s.map(|limit| now + seconds(limit)),
                idle: plan.idle_timeout_s.map(seconds),
                last_output: now,
                sweep: None,
                kill: None,
            },
            plan,
            output_max,
            kept: KeptLimits::of(limits),
            account: Account::open(limits, capacity),
            usage: Usage::default(),
            ended: None,
            is_mute: false,
            fault: None,
            signals: 0,
            refusals: Vec::new(),
            leftover: None,
            report: None,
            after_report: 0,
        }
    }

    pub(crate) fn plan(&self) -> &CommandPlan {
        &self.plan
    }

    pub(crate) fn plan_mut(&mut self) -> &mut CommandPlan {
        &mut self.plan
    }

    pub(crate) fn is_at_terminal(&self) -> bool {
        matches!(self.plan.stdin, Stdin::Terminal(_))
    }

    /// Its cell's first process.
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.cell.pidfd.as_fd()
    }

    /// Its resource usage so far.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// The cell's socket, which becomes readable when the cell reports; `None` once it has.
    pub(crate) fn report_fd(&self) -> Option<BorrowedFd<'_>> {
        self.report.is_none().then(|| self.cell.socket.as_fd())
    }

    /// The streams to read now if the client accepts output.
    pub(crate) fn output_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [StdStream::Stdout, StdStream::Stderr]
            .into_iter()
            .filter_map(|stream| self.output_fd(stream))
    }

    fn output_fd(&self, stream: StdStream) -> Option<BorrowedFd<'_>> {
        if self.is_live() && self.credit == 0 {
            return None;
        }
        match stream {
            StdStream::Stdout => self.stdout.as_ref(),
            StdStream::Stderr => self.stderr.as_ref(),
        }
        .map(AsFd::as_fd)
    }

    /// Whether output is sent as it is produced. After the broker has ended the command, a client
    /// that gives no credit cannot delay the end: the remaining output goes only into the result.
    fn is_live(&self) -> bool {
        self.live && (self.credit > 0 || self.ended.is_none())
    }

    /// When the next timeout is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let idle = self.clocks.idle.map(|idle| self.clocks.last_output + idle);
        let account = self.account.as_ref().map(Account::due);
        let watched = match (&self.report, self.ended) {
            (None, None) => [self.clocks.wall, idle, account],
            // What it does with the time that it is given counts.
            (None, Some(_)) => [self.clocks.sweep, self.clocks.kill, account],
            (Some(_), _) => [None; 3],
        };
        watched.into_iter().flatten().min()
    }

    /// Handles the timeouts that are due.
    pub(crate) fn tick(&mut self, now: Instant) {
        let over = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if self.ended.is_some() {
            self.tick_ended(now);
        } else if over(self.clocks.wall) {
            self.end(Ended::TimedOut);
        } else if over(self.clocks.idle.map(|idle| self.clocks.last_output + idle)) {
            self.end(Ended::Idle);
        } else if over(self.account.as_ref().map(Account::due)) {
            self.check_account(now);
        }
    }

    /// Handles the timeouts of a command that the broker has ended.
    fn tick_ended(&mut self, now: Instant) {
        let over = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if over(self.clocks.kill) {
            self.clocks.kill = None;
            self.cell.kill();
        } else if over(self.clocks.sweep) {
            self.sweep();
        } else if over(self.account.as_ref().map(Account::due)) {
            self.check_account(now);
        }
    }

    fn check_account(&mut self, now: Instant) {
        let pidfd = self.cell.pidfd.as_fd();
        let exceeded = self
            .account
            .as_mut()
            .and_then(|account| account.check(pidfd, now));
        if let Some(limit) = exceeded {
            // Each moment more costs the machine.
            self.end_at_once(Ended::Limited(limit));
        }
    }

    /// Ends the command: its processes may end by themselves, and what has not in time is killed by the cell, which then reports.
    /// Ending it again kills at once.
    pub(crate) fn end(&mut self, why: Ended) {
        if self.report.is_some() || self.ended.is_some() {
            return self.end_at_once(why);
        }
        self.ended = Some(why);
        self.clocks.sweep = Some(Instant::now() + GRACE);
        // If the cell takes no more, it is stuck; if it is gone, its closed socket shows it.
        if self.cell.terminate().is_err() {
            self.sweep();
        }
    }

    /// Ends the command: the cell kills everything in it and reports.
    pub(crate) fn end_at_once(&mut self, why: Ended) {
        if self.report.is_some() {
            // It has ended by itself; a client that cancels it need not take the rest of its output.
            self.live = false;
            return;
        }
        self.ended.get_or_insert(why);
        if self.clocks.kill.is_none() {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        (self.account, self.clocks.sweep) = (None, None);
        self.clocks.kill = Some(Instant::now() + SWEEP_TIMEOUT);
        self.cell.end();
    }

    /// Waits for the exit of its cell's first process; false if that has not come by then.
    pub(crate) fn exits_until(&self, until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            match poll(&mut [PollFd::new(self.pidfd(), PollFlags::POLLIN)], left) {
                Err(Errno::EINTR) => {}
                exited => return exited == Ok(1),
            }
        }
    }

    /// Sends a signal to the program. A cell that does not accept it is stuck, and lost.
    pub(crate) fn signal(&mut self, signal: i32) {
        if self.report.is_some() || self.ended.is_some() {
            return;
        }
        self.signals = self.signals.saturating_add(1);
        // If the cell is gone, its closed socket shows it.
        let sent = self.cell.signal(signal);
        if sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.fault = Some("the cell did not accept a signal and was killed");
            self.cell.kill();
        }
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        if let (true, Some(terminal)) = (self.is_at_terminal(), &self.stdout) {
            // A terminal whose program has ended has no size to set.
            let _ = file::set_window_size(terminal.as_fd(), rows, columns);
        }
    }

    /// Adds credit for live output, up to one window.
    pub(crate) fn give_credit(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes).min(limit::OUTPUT_WINDOW);
    }

    /// Receives the cell's report, and reads output until `room` bytes of it are queued for the client: live output goes to
    /// `outbox` as frames of `call`. True when the command is over: its processes are dead and their output is read.
    pub(crate) fn read_output(
        &mut self,
        call: CallId,
        mut room: usize,
        buffer: &mut [u8],
        outbox: &mut Vec<FromBroker>,
    ) -> bool {
        self.receive_report();
        for stream in [StdStream::Stdout, StdStream::Stderr] {
            // While the command runs, the streams take turns; afterwards the rest of each is read to its end.
            while room > 0 && self.output_fd(stream).is_some() {
                if let Some((sequence, bytes)) = self.read(stream, buffer) {
                    room = room.saturating_sub(bytes.len());
                    outbox.push(FromBroker::Output {
                        call,
                        stderr: stream == StdStream::Stderr,
                        sequence,
                        bytes,
                    });
                }
                if self.report.is_none() {
                    break;
                }
            }
        }
        self.report.is_some() && self.stdout.is_none() && self.stderr.is_none()
    }

    /// Reads a piece of output; returns the part to be sent live, with its sequence number.
    fn read(&mut self, from: StdStream, buffer: &mut [u8]) -> Option<(u64, Vec<u8>)> {
        let live = self.is_live();
        let max = if live {
            buffer.len().min(self.credit as usize)
        } else {
            buffer.len()
        };
        let stream = match from {
            StdStream::Stdout => &mut self.stdout,
            StdStream::Stderr => &mut self.stderr,
        };
        let length = match read(stream.as_ref()?, &mut buffer[..max]) {
            Ok(length) if length > 0 => length,
            Err(Errno::EAGAIN) if self.report.is_none() => return None,
            Err(Errno::EINTR) => return None,
            // End of output; a terminal whose last process is gone returns EIO. When all processes are dead, no more can come.
            Ok(_) | Err(_) => {
                *stream = None;
                return None;
            }
        };
        if !self.take_output(from, &buffer[..length]) || !live {
            return None;
        }
        self.credit -= length as u32;
        self.sequence += 1;
        Some((self.sequence - 1, buffer[..length].to_vec()))
    }

    /// Takes a piece of output; false if it is over the limit, and dropped.
    fn take_output(&mut self, from: StdStream, bytes: &[u8]) -> bool {
        if self.report.is_some() {
            self.after_report += bytes.len();
            if self.after_report > 2 * LAST_BYTES {
                (self.stdout, self.stderr) = (None, None);
            }
        }
        if self.is_mute {
            return false;
        }
        self.clocks.last_output = Instant::now();
        match &mut self.plan.stderr {
            Some(apart) if from == StdStream::Stderr => apart.push(bytes),
            Some(_) | None => self.plan.output.push(bytes),
        }
        let counter = match from {
            StdStream::Stdout => &mut self.usage.stdout_bytes,
            StdStream::Stderr => &mut self.usage.stderr_bytes,
        };
        *counter += bytes.len() as u64;
        let total = self.usage.stdout_bytes + self.usage.stderr_bytes;
        if self.output_max.is_some_and(|max| total > max) {
            self.is_mute = true;
            self.end(Ended::Limited(Limit::Output));
        }
        true
    }

    fn receive_report(&mut self) {
        if self.report.is_some() {
            return;
        }
        self.report = loop {
            match self.cell.receive() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(CellMessage::Refused(refusal)) if self.refusals.len() < MESSAGES_MAX => {
                    self.refusals.push(refusal);
                }
                Ok(CellMessage::Leftover(leftover)) if self.leftover.is_none() => {
                    self.leftover = Some(leftover);
                }
                // It is no cell of ours any more.
                Ok(CellMessage::Refused(_) | CellMessage::Leftover(_)) => {
                    self.cell.kill();
                    break Some(Err(io::ErrorKind::InvalidData));
                }
                Ok(CellMessage::Report(report)) => break Some(Ok(report)),
                Err(error) => break Some(Err(error.kind())),
            }
        };
        self.clocks.kill = None;
    }

    /// The refusals of a command whose cell has exited.
    pub(crate) fn refusals(&mut self) -> &[Refusal] {
        self.receive_report();
        &self.refusals
    }

    /// Makes the result of a command that is over.
    pub(crate) fn finish(self) -> FinishedCommand {
        let Self {
            cell,
            plan,
            ended,
            refusals,
            leftover,
            report,
            usage,
            kept,
            ..
        } = self;
        let broken = |message: &str| {
            Err(Broken {
                message: message.to_owned(),
            })
        };
        // A cell killed by the broker on purpose counts as ended; only its usage is lost.
        let fault = self.fault.unwrap_or("the cell ended without a report");
        let unreported = FinishedCommand {
            end: ended.map_or_else(|| broken(fault), Ok),
            usage,
            plan,
            cell: None,
            refusals,
            unnamed: 0,
            scratch_full: false,
            leftover: leftover.unwrap_or_default(),
        };
        let Some(Ok(report)) = report else {
            return unreported;
        };
        let CpuAndMemory {
            user_us,
            system_us,
            peak_kib,
        } = report.used;
        let usage = Usage {
            user_us,
            system_us,
            peak_kib,
            ..usage
        };
        let end = match (self.fault, report.end) {
            (Some(fault), _) => broken(fault),
            (None, End::Unconfined { part, errno }) => broken(&unconfined(part, errno)),
            (None, end) => Ok(ended.unwrap_or_else(|| natural_end(end, &usage, kept))),
        };
        // A cell whose command the broker has ended sees its orders closed, and exits.
        let reusable =
            report.reusable && ended.is_none() && end.is_ok() && self.signals <= SIGNALS_MAX;
        FinishedCommand {
            end,
            usage,
            cell: reusable.then_some(cell),
            unnamed: report.unnamed.into(),
            scratch_full: report.scratch_full,
            ..unreported
        }
    }
}

impl FinishedCommand {
    /// The denials for package managers of a failed command that its profile keeps offline.
    pub(crate) fn kept_offline(&self, policy: &EffectivePolicy) -> Vec<Denial> {
        let has_failed = self.end.as_ref().is_ok_and(|ended| match ended {
            Ended::Exited(code) => *code != 0,
            Ended::Signalled(_)
            | Ended::TimedOut
            | Ended::Idle
            | Ended::Cancelled
            | Ended::Limited(_)
            | Ended::NotStarted(_)
            | Ended::NoDirectory(_) => false,
        });
        // A call with hosts of its own has unset the variables.
        let unset = &self.plan.cell.unset;
        if !has_failed || NetworkReach::of(policy) == NetworkReach::Online || !unset.is_empty() {
            return Vec::new();
        }
        let command = self.plan.command();
        command.map_or_else(Vec::new, |command| kept_offline(&command, policy))
    }

    /// What was denied to the command, and what was found after it besides what it has misplaced.
    pub(crate) fn described(&self, spec: &SandboxSpec) -> (Denials, Vec<Finding>) {
        let (refused, found) = describe_refusals(&self.refusals, spec);
        (self.denied(refused, spec), found)
    }

    fn denied(&self, refused: Vec<Denial>, spec: &SandboxSpec) -> Denials {
        let (policy, mut denied) = (&spec.policy, Denials::default());
        match self.end {
            Ok(Ended::Limited(limit)) => denied.push(policy.denied_use(limit)),
            Ok(Ended::TimedOut) => {
                if let Some(seconds) = self.plan.timeout_s {
                    denied.push(match self.plan.attended {
                        true => policy.denied_attended_time(seconds),
                        false => policy.denied_time(seconds),
                    });
                }
            }
            Ok(Ended::Idle) => denied.push(policy.denied_idle_time()),
            Ok(
                Ended::Exited(_)
                | Ended::Signalled(_)
                | Ended::Cancelled
                | Ended::NotStarted(_)
                | Ended::NoDirectory(_),
            )
            | Err(_) => {}
        }
        if self.made_foreign_calls() {
            denied.push(policy.denied_foreign_calls());
        }
        refused.into_iter().for_each(|denial| denied.push(denial));
        denied.add_unnamed(self.unnamed);
        if !matches!(self.end, Ok(Ended::Exited(0))) {
            let directory = Path::new(&self.plan.cell.directory);
            let command = self.plan.command();
            let granted = |path: &Path| self.plan.granted.iter().any(|granted| granted.shows(path));
            // For a traced command, the tracer knows what failed.
            let command = command.filter(|_| spec.tracer.is_none());
            let named = command
                .map(|command| named(&command, directory, spec, &granted))
                .unwrap_or_default();
            named.into_iter().for_each(|denial| denied.push_new(denial));
            self.reached_limits(policy)
                .into_iter()
                .for_each(|denial| denied.push_new(denial));
        }
        denied
    }

    /// Whether its program, or the last process of a shell, ended as the filters end one that makes calls of another interface.
    fn made_foreign_calls(&self) -> bool {
        match self.end {
            Ok(Ended::Signalled(signal)) => signal == libc::SIGSYS,
            Ok(Ended::Exited(code)) => code == 128 + libc::SIGSYS,
            Ok(
                Ended::TimedOut
                | Ended::Idle
                | Ended::Cancelled
                | Ended::Limited(_)
                | Ended::NotStarted(_)
                | Ended::NoDirectory(_),
            )
            | Err(_) => false,
        }
    }

    /// Limits that a failed command reached without being killed for them: its own calls failed.
    /// Derived from figures only, never from its output.
    fn reached_limits(&self, policy: &EffectivePolicy) -> Vec<Denial> {
        let mut met = Vec::new();
        let peak = self.usage.peak_kib.saturating_mul(1024);
        // A process whose allocation fails has already used most of its limit.
        if let Some(memory) = policy.limits.memory.filter(|memory| peak >= memory / 4 * 3) {
            let (peak, memory) = (peak >> 20, memory >> 20);
            let why =
                format!("A process held {peak} MiB; the limit for one process is {memory} MiB.");
            met.push(policy.denied_by_key("memory", Limit::Memory.name(), why, "'4 GiB'"));
        }
        if self.scratch_full {
            let size = policy.limits.scratch >> 20;
            let why = format!(
                "The private storage of commands (home, /tmp, /dev/shm) is full; it takes {size} MiB."
            );
            met.push(policy.denied_by_key("private storage", "scratch", why, "'8 GiB'"));
        }
        met
    }

    /// The outcome and the usage. `profile` names a profile that would provide a missing program.
    pub(crate) fn outcome(self, profile: Option<String>) -> (Outcome, Usage) {
        let ended = match self.end {
            Ok(ended) => ended,
            Err(broken) => return (Outcome::Broken(broken), self.usage),
        };
        let timeout_s = self.plan.timeout_s;
        let (output, spill) = self.plan.output.finish();
        let stderr = self.plan.stderr.map(|apart| {
            let (output, spill) = apart.finish();
            Box::new(Stderr { output, spill })
        });
        (
            Outcome::Ran(Ran {
                ended,
                output,
                spill,
                stderr,
                timeout_s,
                profile,
                leftover: named_processes(&self.leftover),
            }),
            self.usage,
        )
    }
}

/// Leftover processes for the client: bytes that the program has chosen, as text.
fn named_processes(leftover: &Leftover) -> LeftRunning {
    let text = |name: &Vec<u8>| String::from_utf8_lossy(name).into_owned();
    LeftRunning {
        count: leftover.count,
        names: leftover.names.iter().map(text).collect(),
    }
}

/// Why a cell with a failed layer has run nothing.
pub(crate) fn unconfined(part: SetupPart, errno: i32) -> String {
    let error = io::Error::from_raw_os_error(errno);
    format!("nothing was run: {part}: {error}")
}

/// How a command ended that the broker did not end; limits enforced by the kernel kill it with signals.
fn natural_end(end: End, usage: &Usage, kept: KeptLimits) -> Ended {
    // The kernel compares CPU time counted in its ticks, which on a busy machine we measured up to 1.4 times the exact figure used here.
    let used_us = usage.user_us + usage.system_us;
    let cpu_spent = kept
        .cpu_s
        .is_some_and(|limit| used_us >= limit.saturating_mul(500_000));
    match end {
        End::Signalled(libc::SIGXFSZ) => Ended::Limited(Limit::FileSize),
        End::Signalled(libc::SIGXCPU) => Ended::Limited(Limit::Cpu),
        End::Signalled(libc::SIGKILL) if cpu_spent => Ended::Limited(Limit::Cpu),
        // A shell reports the end of its last process in this way.
        End::Exited(code)
            if cpu_spent && [128 + libc::SIGXCPU, 128 + libc::SIGKILL].contains(&code) =>
        {
            Ended::Limited(Limit::Cpu)
        }
        End::Exited(code) if kept.file_size.is_some() && code == 128 + libc::SIGXFSZ => {
            Ended::Limited(Limit::FileSize)
        }
        End::Signalled(signal) => Ended::Signalled(signal),
        End::Exited(code) => Ended::Exited(code),
        End::NotStarted(errno) | End::Unconfined { errno, .. } => Ended::NotStarted(errno),
        End::NoDirectory(errno) => Ended::NoDirectory(errno),
    }
}
