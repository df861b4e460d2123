//! A cell's first process: it confines itself, waits for an order, starts the program, kills what is left, and reports.
//!
//! It stands between the broker and the stranger's program, is confined like that program, and runs
//! only our code. The program can neither signal nor trace it: it is PID 1 of the program's
//! namespace and not dumpable; in the flat tier the program is in a Landlock domain below its own.
//!
//! A cell is used once and destroyed; its first process is reused. When it has checked that nothing of the
//! cell is left and that its own state is unchanged, it takes the next order, up to [`USES_MAX`] in all.

use crate::children;
use crate::process_state::ProcessState;
use crate::spawn::ProgramSpawner;
use broker_protocol::{Layer, frame};
use executor_layers::descriptors;
use executor_layers::ladder::confine;
use executor_layers::landlock::Rulesets;
use executor_layers::no_new_privileges::NoNewPrivileges;
use executor_layers::seccomp::Supervision;
use executor_spec::cell_order::{self, CellPlan, Steering};
use executor_spec::cell_report::{CellMessage, End, Report};
use executor_spec::error::{At, SetupError, SetupPart};
use executor_spec::leftover::Leftover;
use executor_spec::refusals::Refusals;
use executor_spec::sandbox::SandboxSpec;
use executor_supervisor::AccessRules;
use executor_supervisor::Supervisor;
use executor_supervisor::ipc_objects::IpcRecord;
use executor_supervisor::loopback_line::LoopbackLine;
use executor_sys::idle::IdleTrim;
use executor_sys::message;
use executor_sys::process::{self, ChildState, CpuAndMemory};
use executor_sys::spawn::{PreparedChild, SpawnError, SpawnStack};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::sched_yield;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::sys::stat::{Mode, fstat};
use nix::sys::statvfs::statvfs;
use nix::unistd::Pid;
use serde_bytes::ByteBuf;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

/// Calls that one first process serves in sequence. Creating one costs about 0.6 ms of CPU time:
/// with this many, a hundredth of that per call; more would gain nothing.
const USES_MAX: u32 = 64;

/// The rules that all cells of a session use, made once.
pub(crate) struct SessionRules {
    /// For the kernel: Landlock rulesets and filters.
    pub(crate) rulesets: Rulesets,
    /// For the first process, as the supervisor of its program.
    pub access: Option<AccessRules>,
}

/// Runs a first process until it exits.
pub(crate) fn run(
    spec: &SandboxSpec,
    rules: Result<&SessionRules, SetupError>,
    socket: &OwnedFd,
    line: Option<&LoopbackLine>,
    record: Option<IpcRecord>,
    nnp: NoNewPrivileges,
) -> ! {
    let prepared =
        rules.and_then(|rules| FirstProcess::prepare(spec, rules, socket, line, record, nnp));
    if let Err(error) = prepared.and_then(|first| first.serve()) {
        let errno = error.source.raw_os_error().unwrap_or(libc::EPERM);
        let end = End::Unconfined {
            part: error.part,
            errno,
        };
        let used = CpuAndMemory::default();
        let report = Report {
            end,
            reusable: false,
            scratch_full: false,
            unnamed: 0,
            used,
        };
        // If the broker is gone, nobody is left to read it.
        let _ = message::send(socket.as_fd(), &report.encode(), &[]);
    }
    process::exit_now(0)
}

/// A confined first process, which serves one cell after another.
struct FirstProcess<'a> {
    /// Receives the broker's orders and signals.
    socket: &'a OwnedFd,
    line: Option<&'a LoopbackLine>,
    /// Names what the warden removes if this process is killed.
    record: Option<Rc<IpcRecord>>,
    access: Option<&'a AccessRules>,
    spawner: ProgramSpawner<'a>,
    child_ends: SignalFd,
    /// `/dev/null` from the cells' own mounts.
    null: OwnedFd,
    null_device: Device,
    sweep: LeftoverSearch,
    /// The state of this process before its first call.
    state: ProcessState,
    /// A directory of the session's private storage, if that has a limit of its own.
    scratch: Option<&'a Path>,
}

/// The kind of a file, and the device that it stands for.
type Device = (libc::mode_t, libc::dev_t);

fn device(fd: &OwnedFd) -> nix::Result<Device> {
    fstat(fd).map(|stat| (stat.st_mode & libc::S_IFMT, stat.st_rdev))
}

/// How to find all processes that a program has left running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeftoverSearch {
    /// `kill(-1)` reaches exactly the processes of the cell: this process is PID 1, or a Landlock domain scopes it.
    All,
    /// This process is the subreaper of what it started, and walks its descendants.
    Descendants,
}

impl LeftoverSearch {
    /// Asks all processes of the cell to end, those too that are stopped.
    fn terminate(self) {
        match self {
            LeftoverSearch::All => {
                for signal in [libc::SIGTERM, libc::SIGCONT] {
                    // ESRCH: nothing is left.
                    let _ = process::kill_all(signal);
                }
            }
            LeftoverSearch::Descendants => children::terminate_all(),
        }
    }

    /// Kills all of its processes.
    fn kill(self) {
        match self {
            // ESRCH: nothing is left.
            LeftoverSearch::All => drop(process::kill_all(libc::SIGKILL)),
            LeftoverSearch::Descendants => children::kill_all(),
        }
    }
}

/// The state of one call, apart from its processes.
struct Cell<'c> {
    first: &'c FirstProcess<'c>,
    /// Supervises its program's calls.
    supervisor: Option<Supervisor<'c>>,
    /// The listener, once no process can call on it. Closing it makes the kernel free the filter, so that waits until after the report.
    unused_listener: Option<OwnedFd>,
    /// Our descriptors of the program's streams, where nobody waits for their end: the broker waits for the report in any case.
    streams: Vec<OwnedFd>,
    /// The refusals of its supervisor.
    refusals: Refusals,
    /// What its program has left running, if it ended by itself.
    leftover: Leftover,
    /// By everything that was reaped.
    used: CpuAndMemory,
}

impl<'a> FirstProcess<'a> {
    fn prepare(
        spec: &'a SandboxSpec,
        rules: &'a SessionRules,
        socket: &'a OwnedFd,
        line: Option<&'a LoopbackLine>,
        record: Option<IpcRecord>,
        nnp: NoNewPrivileges,
    ) -> Result<Self, SetupError> {
        let step = || "prepare the cell".to_owned();
        prctl::set_name(c"lazaret-cell").at(SetupPart::Processes, step)?;
        let sweep = if spec.has(Layer::PidNamespace) {
            prctl::set_pdeathsig(Signal::SIGKILL).at(SetupPart::Processes, step)?;
            LeftoverSearch::All
        } else {
            prctl::set_child_subreaper(true).at(SetupPart::Processes, step)?;
            process::resume_with_parents_death().at(SetupPart::Processes, step)?;
            if spec.has(Layer::LandlockScopes) {
                LeftoverSearch::All
            } else {
                LeftoverSearch::Descendants
            }
        };
        let confined = confine(spec, &rules.rulesets, nnp)?;
        let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty());
        let null = null.at(SetupPart::Processes, || "open /dev/null".into())?;
        let null_device = device(&null).at(SetupPart::Processes, || "look at /dev/null".into())?;
        // Cells must not inherit the descriptors of the rules' paths, of the warden's socket, and of its other children.
        let access = rules.access.as_ref();
        let supervisors = access.into_iter().flat_map(AccessRules::descriptors);
        let own = [socket.as_fd(), null.as_fd()].into_iter();
        let kept: Vec<_> = own
            .chain(confined.program_ruleset())
            .chain(supervisors)
            .chain(line.map(LoopbackLine::descriptor))
            .chain(record.as_ref().map(IpcRecord::descriptor))
            .collect();
        descriptors::keep_only(&kept, spec.ablation.descriptors())?;
        drop(kept);
        let child_ends = children::end_signals()?;
        let state = ProcessState::now().at(SetupPart::Processes, step)?;
        let spawner = ProgramSpawner::new(spec, confined);
        let scratch = Some(spec.scratch.tmp.as_path()).filter(|_| spec.has(Layer::MountNamespace));
        let first = Self {
            socket,
            line,
            record: record.map(Rc::new),
            access,
            spawner,
            child_ends,
            null,
            null_device,
            sweep,
            state,
            scratch,
        };
        first.rehearse().at(SetupPart::Processes, step)?;
        Ok(first)
    }

    /// Runs through an order before one arrives: the first touch of a page after a fork costs a page fault.
    fn rehearse(&self) -> io::Result<()> {
        let arguments = ["/bin/bash", "-c", "true"].map(|word| ByteBuf::from(word.as_bytes()));
        let (directory, environment, unset) = ("/".into(), Vec::new(), Vec::new());
        let plan = CellPlan {
            call: 0,
            arguments: arguments.into(),
            terminal: None,
            directory,
            environment,
            unset,
            connect: Vec::new(),
        };
        let mut order = Vec::new();
        frame::encode(&plan, &mut order).map_err(io::Error::other)?;
        let plan: CellPlan = frame::decode(&order[frame::PREFIX..]).map_err(io::Error::other)?;
        drop(self.spawner.program(&plan)?);
        while let Ok(Some(_)) = self.child_ends.read_signal() {}
        Ok(())
    }

    /// Serves calls in sequence, until the session ends or this process must not be reused.
    fn serve(&self) -> Result<(), SetupError> {
        let (mut stack, mut idle) = (SpawnStack::default(), IdleTrim::default());
        for served in 1..=USES_MAX {
            let (child, mut cell) = self.cell(&mut stack)?;
            let end = match cell_order::receive(self.socket, &mut idle) {
                Ok(None) => return Ok(()),
                Ok(Some((plan, stdio))) => cell.carry_out(child, &plan, stdio),
                Err(error) => End::NotStarted(error.raw_os_error().unwrap_or(libc::EINVAL)),
            };
            let reusable =
                served < USES_MAX && ProcessState::now().is_ok_and(|now| now == self.state);
            let unnamed = cell.refusals.more().try_into().unwrap_or(u8::MAX);
            let scratch_full = end != End::Exited(0) && self.scratch.is_some_and(is_full);
            let report = Report {
                end,
                reusable,
                scratch_full,
                unnamed,
                used: cell.used,
            };
            // A refusal that the broker does not accept is dropped: the report matters more.
            for refusal in cell.refusals.list() {
                let _ = message::send(self.socket.as_fd(), &CellMessage::refused(refusal), &[]);
            }
            if cell.leftover.count > 0 {
                let leftover = CellMessage::leftover(&cell.leftover);
                let _ = message::send(self.socket.as_fd(), &leftover, &[]);
            }
            // The broker may be gone: then nobody is left to read it.
            if message::send(self.socket.as_fd(), &report.encode(), &[]).is_err() || !reusable {
                break;
            }
            // Lets the process that waits for the report run first, if it woke on this processor.
            let _ = sched_yield();
        }
        Ok(())
    }

    /// The program's streams, with `/dev/null` from the cell's own mounts: through a descriptor of
    /// the machine's, its mode and times could be changed.
    fn own_devices(&self, stdio: [OwnedFd; 3]) -> Result<[OwnedFd; 3], SpawnError> {
        let own = |fd: OwnedFd| {
            let own = if self.is_null(&fd) {
                self.null.try_clone()
            } else {
                Ok(fd)
            };
            own.map_err(|error| SpawnError::Program(error.raw_os_error().unwrap_or(libc::EMFILE)))
        };
        let [stdin, stdout, stderr] = stdio.map(own);
        Ok([stdin?, stdout?, stderr?])
    }

    /// Whether `fd` is a `/dev/null`.
    fn is_null(&self, fd: &OwnedFd) -> bool {
        device(fd) == Ok(self.null_device)
    }

    /// Creates a cell, and in it the process that will become the program.
    fn cell<'c>(
        &'c self,
        stack: &'c mut SpawnStack,
    ) -> Result<(PreparedChild<'c>, Cell<'c>), SetupError> {
        let step = || "prepare the program".to_owned();
        let supervision = self
            .access
            .map_or(Supervision::Whole, AccessRules::supervision);
        let (child, listener) = self
            .spawner
            .prepare(stack, supervision)
            .at(Layer::ProtectedNames, step)?;
        let supervised = self.access.zip(listener);
        let supervisor = supervised
            .map(|(rules, listener)| {
                Supervisor::new(rules, self.line, self.record.clone(), listener)
            })
            .transpose();
        let supervisor = supervisor.at(Layer::ProtectedNames, step)?;
        let (refusals, used) = (Refusals::default(), CpuAndMemory::default());
        Ok((
            child,
            Cell {
                first: self,
                supervisor,
                unused_listener: None,
                streams: Vec::new(),
                refusals,
                leftover: Leftover::default(),
                used,
            },
        ))
    }
}

/// Whether no more can be written to the storage that contains `directory`.
fn is_full(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|stat| stat.blocks_available() == 0 || stat.files_available() == 0)
}

impl Cell<'_> {
    /// Carries out an order. None of its processes is left when this returns.
    fn carry_out(&mut self, child: PreparedChild, plan: &CellPlan, stdio: [OwnedFd; 3]) -> End {
        if let Some(supervisor) = self.supervisor.as_ref().filter(|_| plan.terminal.is_some()) {
            supervisor.note_terminal();
        }
        self.first
            .access
            .iter()
            .for_each(|access| access.begin_call(plan.call, &plan.connect));
        let started = self
            .first
            .own_devices(stdio)
            .and_then(|stdio| self.start(child, plan, stdio));
        let end = match started {
            Ok(program) => self.watch(program),
            Err(SpawnError::Directory(errno)) => End::NoDirectory(errno),
            Err(SpawnError::Program(errno)) => End::NotStarted(errno),
        };
        // The supervisor is dropped after them: without it, calls of processes still alive would fail with ENOSYS.
        self.sweep();
        self.take_refusals();
        end
    }

    /// Starts the program. The broker hears of a terminal's last descriptor, and of a pipe that no program reads, so those are closed
    /// here as soon as the program has its own. All others are kept until the report.
    fn start(
        &mut self,
        child: PreparedChild,
        plan: &CellPlan,
        stdio: [OwnedFd; 3],
    ) -> Result<Pid, SpawnError> {
        let is_kept = plan.terminal.is_none() && self.first.is_null(&stdio[0]);
        let wait = || {
            if is_kept {
                // Whatever has happened is found again in `watch`.
                let _ = self.wait();
            }
        };
        let started = self.first.spawner.start(child, plan, &stdio, wait);
        let [input, output @ ..] = stdio;
        if plan.terminal.is_none() {
            self.streams.extend(output);
            self.streams.extend(Some(input).filter(|_| is_kept));
        }
        started
    }

    /// Reaps children, forwards signals and answers supervised calls, until the program or the broker ends the call. When the broker
    /// asks all processes to end, this waits for each of them: a shell ends before what it has started.
    fn watch(&mut self, program: Pid) -> End {
        let (mut ended, mut end, mut terminates) = (true, None, false);
        loop {
            if ended {
                let (now, is_last) = self.reap(program);
                end = end.or(now);
                if let Some(end) = end.filter(|_| is_last || !terminates) {
                    if !is_last {
                        self.leftover = Leftover::find();
                    }
                    return end;
                }
            }
            let Ok(ready) = self.wait() else {
                return End::Signalled(libc::SIGKILL);
            };
            ended = ready.ended;
            if ended {
                while let Ok(Some(_)) = self.first.child_ends.read_signal() {}
            }
            if ready.ordered {
                match cell_order::receive_steering(self.first.socket) {
                    Some(Steering::Signal(_)) if end.is_some() => {}
                    Some(Steering::Signal(signal)) => {
                        // The program is the leader of its own session and group; an error means that it has just ended.
                        let _ = kill(Pid::from_raw(-program.as_raw()), signal);
                    }
                    Some(Steering::Terminate) => {
                        terminates = true;
                        self.first.sweep.terminate();
                    }
                    Some(Steering::End) => return end.unwrap_or(End::Signalled(libc::SIGKILL)),
                    None => {}
                }
            }
            self.supervise(&ready);
        }
    }

    /// Takes what was refused, once no process is left that could call.
    fn take_refusals(&mut self) {
        if let Some(supervisor) = &self.supervisor {
            supervisor.finish_program();
            self.refusals = supervisor.take_refusals();
        }
    }

    /// Answers a supervised call, if there is one.
    fn supervise(&mut self, ready: &ReadyWork) {
        if ready.requested {
            self.supervisor
                .iter_mut()
                .for_each(Supervisor::connect_others);
        }
        match &mut self.supervisor {
            // No process that could call is left.
            _ if ready.deserted => {
                self.take_refusals();
                self.unused_listener = self.supervisor.take().map(Supervisor::into_listener);
            }
            Some(supervisor) if ready.called => supervisor.serve_next(),
            Some(supervisor) => supervisor.retry(),
            None => {}
        }
    }

    /// Blocks until there is something to do.
    fn wait(&self) -> nix::Result<ReadyWork> {
        /// Interval for retrying a call that waits for another process.
        const RETRY_MS: u8 = 10;
        let input = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let supervisor = self.supervisor.as_ref();
        let listener = supervisor.map(|supervisor| input(supervisor.listener().as_fd()));
        let own = [
            input(self.first.socket.as_fd()),
            input(self.first.child_ends.as_fd()),
        ];
        let line = supervisor.and_then(Supervisor::line).map(input);
        let mut fds: Vec<PollFd> = own.into_iter().chain(listener).chain(line).collect();
        let timeout = match supervisor.is_some_and(Supervisor::is_waiting) {
            true => RETRY_MS.into(),
            false => PollTimeout::NONE,
        };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let has = |at: usize, flag| {
            fds.get(at)
                .and_then(PollFd::revents)
                .is_some_and(|events| events.intersects(flag))
        };
        let called = has(2, PollFlags::POLLIN);
        Ok(ReadyWork {
            ordered: has(0, PollFlags::all()),
            ended: has(1, PollFlags::all()),
            called,
            deserted: !called && has(2, PollFlags::all()),
            requested: has(3, PollFlags::all()),
        })
    }

    /// Reaps every child that has ended; returns the program's end if it was among them, and whether no child is left.
    fn reap(&mut self, program: Pid) -> (Option<End>, bool) {
        let mut end = None;
        loop {
            let change = match process::reap_any() {
                Ok(Some(change)) => change,
                Ok(None) => return (end, false),
                Err(_) => return (end, true),
            };
            children::detach(&change);
            self.add(&change);
            match change.state {
                ChildState::Exited(code) if change.pid == program.as_raw() => {
                    end = Some(End::Exited(code));
                }
                ChildState::Killed(signal) if change.pid == program.as_raw() => {
                    end = Some(End::Signalled(signal));
                }
                ChildState::Exited(_) | ChildState::Killed(_) | ChildState::Stopped(_) => {}
            }
        }
    }

    /// Kills all processes left in the cell, and waits until they are gone.
    fn sweep(&mut self) {
        let sweep = self.first.sweep;
        // All that is left descends from this process, so it checks for children first: that is
        // cheaper than a signal, for which the kernel walks all processes of the machine.
        let mut next = |next: fn() -> nix::Result<Option<process::ChildChange>>| {
            next().map(|change| change.iter().for_each(|one| self.add(one)))
        };
        while next(process::reap_any) != Err(Errno::ECHILD) {
            sweep.kill();
            let _ = next(process::wait_any);
        }
    }

    /// Adds a child's usage; for one that has only stopped, the rest follows when it ends.
    fn add(&mut self, change: &process::ChildChange) {
        if let ChildState::Exited(_) | ChildState::Killed(_) = change.state {
            self.used.user_us += change.used.user_us;
            self.used.system_us += change.used.system_us;
            self.used.peak_kib = self.used.peak_kib.max(change.used.peak_kib);
        }
    }
}

/// What there is to do.
struct ReadyWork {
    /// The broker has sent a signal, or is gone.
    ordered: bool,
    /// A child has ended.
    ended: bool,
    /// The program has made a supervised call.
    called: bool,
    /// No process is left that could make one.
    deserted: bool,
    /// Another cell wants to connect.
    requested: bool,
}
