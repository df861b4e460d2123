//! A cell's first process: it confines itself, waits for an order, starts the program, ends everything, and reports.
//!
//! It stands between the broker and the stranger's program, confined like it, and runs our code only. The program can
//! neither signal nor trace it: it is PID 1 of the program's namespace and not dumpable; in the flat tier the program is
//! in a Landlock domain below its own.
//!
//! A cell is used once and dies whole. What is used again is the empty place it was in: this process, which has seen that
//! nothing is left of the cell and that nothing of itself was changed, goes on to the next order, up to [`USES_MAX`] times.

use super::report::{End, Report};
use super::standing::Standing;
use super::supervisor::{self, Supervisor};
use crate::attack::{self, Targets};
use crate::cell::landlock::Rulesets;
use crate::cell::plan::{CellPlan, Task, Walls};
use crate::cell::{At, Confined, LayerError, NoNewPrivileges, confine, descriptors, limits, seccomp};
use crate::rest::Rest;
use crate::sys::{self, Before, News, Order, Program, Stage, Starter, State, Unstarted, Used};
use broker_protocol::{Layer, frame, limit};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::sched_yield;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::Pid;
use serde_bytes::ByteBuf;
use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of the longest order: the arguments, their lengths, and the rest.
pub const ORDER_MAX: usize = limit::COMMAND + limit::ARGUMENTS * 8 + 16 * 1024;

/// Calls that one first process is for, one after the other. Making one costs some 0.6 ms of CPU: with this many, a hundredth of
/// that a call; more would gain nothing.
const USES_MAX: u32 = 64;

/// What the cells of a session go by, made once.
pub struct Rules<'a> {
    /// For the kernel.
    pub rulesets: &'a Rulesets,
    /// For this process, which supervises its program.
    pub supervision: Option<&'a supervisor::Rules>,
}

/// A first process's life.
pub fn run(walls: &Walls, rules: &Rules, socket: OwnedFd, nnp: NoNewPrivileges) -> ! {
    let served = prepare(walls, rules, &socket, nnp).and_then(|place| place.serve());
    if let Err(error) = served {
        let errno = error.source.raw_os_error().unwrap_or(libc::EPERM);
        let end = End::Unconfined { layer: error.layer, errno };
        let report = Report { end, again: false, used: Used::default() };
        // The broker may be gone: then nobody is left to be told.
        let _ = sys::send(socket.as_fd(), &report.encode(), &[]);
    }
    sys::leave(0)
}

/// A place that is closed, for one cell after the other.
struct Place<'a> {
    /// The broker's orders and signals come here.
    socket: &'a OwnedFd,
    walls: &'a Walls,
    supervision: Option<&'a supervisor::Rules>,
    confined: Confined,
    /// What each program sets on itself.
    limits: Vec<(libc::c_uint, libc::rlimit)>,
    signals: SignalFd,
    sweep: Sweep,
    /// Of this process, when nobody has been here yet.
    standing: Standing,
}

/// How everything a program left running is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sweep {
    /// `kill(-1)` reaches all of the cell and nothing else: this process is PID 1, or a Landlock domain scopes it.
    All,
    /// This process is the subreaper of what it started, and goes through its descendants.
    Descendants,
}

fn prepare<'a>(
    walls: &'a Walls,
    rules: &Rules<'a>,
    socket: &'a OwnedFd,
    nnp: NoNewPrivileges,
) -> Result<Place<'a>, LayerError> {
    let step = || "prepare the cell".to_owned();
    prctl::set_name(c"lazaret-cell").at(Layer::PidNamespace, step)?;
    let sweep = if walls.has(Layer::PidNamespace) {
        prctl::set_pdeathsig(Signal::SIGKILL).at(Layer::PidNamespace, step)?;
        Sweep::All
    } else {
        prctl::set_child_subreaper(true).at(Layer::PidNamespace, step)?;
        if walls.has(Layer::LandlockScopes) { Sweep::All } else { Sweep::Descendants }
    };
    let confined = confine(walls, rules.rulesets, nnp)?;
    // The rules' paths, the warden's socket and its other children's are not for this cell.
    let supervisors = rules.supervision.into_iter().flat_map(supervisor::Rules::descriptors);
    let below = confined.program.as_ref().map(AsFd::as_fd);
    let kept: Vec<_> = [socket.as_fd()].into_iter().chain(below).chain(supervisors).collect();
    descriptors::keep_only(&kept, walls.ablation.descriptors())?;
    let signals = super::child_signals()?;
    let standing = Standing::now().at(Layer::Rlimits, step)?;
    let limits = match walls.has(Layer::Rlimits) {
        true => limits::rlimits(&walls.policy.limits, walls.tier),
        false => Vec::new(),
    };
    let supervision = rules.supervision;
    let place = Place { socket, walls, supervision, confined, limits, signals, sweep, standing };
    place.rehearse().at(Layer::PidNamespace, step)?;
    Ok(place)
}

/// What is of one call, besides its processes.
struct Cell<'c> {
    place: &'c Place<'c>,
    /// Who answers its program's calls.
    supervisor: Option<Supervisor<'c>>,
    /// The listener on which nobody is left to call. The kernel takes a filter apart when it is closed: after the report.
    deserted: Option<OwnedFd>,
    /// By everything that was reaped.
    used: Used,
}

impl Place<'_> {
    /// Serves one call after the other, until nobody needs it or it is not to be used again.
    fn serve(&self) -> Result<(), LayerError> {
        let (mut stage, mut rest) = (Stage::new(), Rest::default());
        for call in 1..=USES_MAX {
            let (starter, mut cell) = self.cell(&mut stage)?;
            let mut again = call < USES_MAX;
            let end = match order(self.socket, &mut rest) {
                Ok(None) => return Ok(()),
                Ok(Some((plan, stdio))) => {
                    // Our own attacks run in a copy of this process, with all that it knows.
                    again &= matches!(plan.task, Task::Program { .. });
                    cell.carry_out(starter, &plan, stdio)
                }
                Err(error) => not_started(&error),
            };
            again = again && self.is_as_it_was();
            let report = Report { end, again, used: cell.used };
            // The broker may be gone: then nobody is left to be told.
            if sys::send(self.socket.as_fd(), &report.encode(), &[]).is_err() || !again {
                break;
            }
            // Who waits for the report goes first, where it has woken on this processor.
            let _ = sched_yield();
        }
        Ok(())
    }

    fn is_as_it_was(&self) -> bool {
        Standing::now().is_ok_and(|now| now == self.standing)
    }

    /// Makes a cell, and the process in it that is to be the program.
    fn cell<'c>(&'c self, stage: &'c mut Stage) -> Result<(Starter<'c>, Cell<'c>), LayerError> {
        let walls = self.walls;
        // A domain below this one's costs each file that is opened in the cell a second walk.
        let ruleset = self.confined.program.as_ref().map(AsRawFd::as_raw_fd);
        let trapped = walls.is_supervised().then(|| seccomp::supervised(walls.tier));
        let step = || "prepare the program".to_owned();
        let made = stage.starter(&Before { limits: &self.limits, ruleset, trapped });
        let (starter, listener) = made.at(Layer::ProtectedNames, step)?;
        let supervised = self.supervision.zip(listener);
        let supervisor = supervised.map(|(rules, listener)| Supervisor::new(rules, listener)).transpose();
        let supervisor = supervisor.at(Layer::ProtectedNames, step)?;
        Ok((starter, Cell { place: self, supervisor, deserted: None, used: Used::default() }))
    }

    /// Goes through an order before it comes: a page that is first touched after a fork costs a fault.
    fn rehearse(&self) -> io::Result<()> {
        let arguments = ["/bin/bash", "-c", "true"].map(|word| ByteBuf::from(word.as_bytes()));
        let task = Task::Program { arguments: arguments.into(), terminal: None };
        let plan = CellPlan { task, directory: "/".into() };
        let mut order = Vec::new();
        frame::encode(&plan, &mut order).map_err(io::Error::other)?;
        let plan: CellPlan = frame::decode(&order[frame::PREFIX..]).map_err(io::Error::other)?;
        let Task::Program { arguments, terminal } = &plan.task else { return Ok(()) };
        drop(self.program(arguments, terminal.as_deref(), &plan.directory)?);
        while let Ok(Some(_)) = self.signals.read_signal() {}
        Ok(())
    }

    /// Starts our own attacks where a program would start, prepared as it would be.
    fn attack(
        &self,
        starter: Starter,
        mut targets: Targets,
        directory: &str,
        stdio: [RawFd; 3],
    ) -> io::Result<i32> {
        let names =
            self.walls.environment.iter().filter_map(|entry| entry.as_bytes().split(|c| *c == b'=').next());
        targets.variables = names.map(<[u8]>::to_vec).collect();
        let none = &Program::new(Vec::new(), Vec::new(), Vec::new(), CString::new(directory)?);
        let watched = self.walls.is_supervised();
        starter.start_own(&self.order(none, stdio, false), &mut || {
            // The supervisor reads the paths of a call from its caller's memory, as it can from a program's.
            if watched {
                prctl::set_dumpable(true)?;
            }
            attack::run(&targets)
        })
    }

    fn order<'o>(&self, program: &'o Program<'o>, stdio: [RawFd; 3], terminal: bool) -> Order<'o> {
        let closed = if self.walls.has(Layer::Descriptors) { 3 } else { libc::c_uint::MAX };
        Order { program, stdio, closed, terminal }
    }

    fn program(
        &self,
        arguments: &[ByteBuf],
        terminal: Option<&str>,
        directory: &str,
    ) -> io::Result<Program<'_>> {
        let entries = self.walls.environment.iter().map(CString::as_c_str);
        let kept = entries.filter(|entry| terminal.is_none() || !entry.to_bytes().starts_with(b"TERM="));
        let mut environment: Vec<Cow<CStr>> = kept.map(Cow::Borrowed).collect();
        environment.push(CString::new(format!("PWD={directory}"))?.into());
        if let Some(term) = terminal {
            environment.push(CString::new(format!("TERM={term}"))?.into());
        }
        let arguments: Vec<CString> =
            arguments.iter().map(|argument| CString::new(argument.as_slice())).collect::<Result<_, _>>()?;
        let name = arguments.first().ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?.clone();
        Ok(Program::new(candidates(name, &environment)?, arguments, environment, CString::new(directory)?))
    }
}

impl Cell<'_> {
    /// Carries out an order. Nothing of it is left afterwards.
    fn carry_out(&mut self, starter: Starter, plan: &CellPlan, stdio: [OwnedFd; 3]) -> End {
        let end = match self.start(starter, plan, stdio) {
            Ok(program) => self.watch(program),
            Err(end) => end,
        };
        // The supervisor goes after them: what is left would be told that its calls do not exist.
        self.sweep();
        end
    }

    fn start(&self, starter: Starter, plan: &CellPlan, stdio: [OwnedFd; 3]) -> Result<Pid, End> {
        let place = self.place;
        let raw = stdio.each_ref().map(AsRawFd::as_raw_fd);
        let pid = match &plan.task {
            Task::Program { arguments, terminal } => {
                let program = place.program(arguments, terminal.as_deref(), &plan.directory);
                let program = &program.map_err(|error| not_started(&error))?;
                if let Some(supervisor) = self.supervisor.as_ref().filter(|_| terminal.is_some()) {
                    supervisor.has_terminal();
                }
                starter.start(&place.order(program, raw, terminal.is_some())).map_err(End::from)?
            }
            Task::Attack(targets) => {
                let started = place.attack(starter, targets.clone(), &plan.directory, raw);
                started.map_err(|error| not_started(&error))?
            }
        };
        Ok(Pid::from_raw(pid))
    }

    /// Reaps, obeys and answers, until the program has ended or the broker has had enough.
    fn watch(&mut self, program: Pid) -> End {
        let mut ended = true;
        loop {
            if ended && let Some(end) = self.reap(program) {
                return end;
            }
            let Ok(ready) = self.wait() else {
                return End::Signalled(libc::SIGKILL);
            };
            ended = ready.ended;
            if ended {
                while let Ok(Some(_)) = self.place.signals.read_signal() {}
            }
            if ready.ordered && !forward(program, self.place.socket) {
                return End::Signalled(libc::SIGKILL);
            }
            match &mut self.supervisor {
                // The last process that could call is gone.
                _ if ready.deserted => {
                    self.deserted = self.supervisor.take().map(Supervisor::into_listener);
                }
                Some(supervisor) if ready.called => supervisor.answer(),
                Some(supervisor) => supervisor.look_again(),
                None => {}
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&self) -> nix::Result<Ready> {
        /// How soon a call that waits for another process is tried again.
        const AGAIN_MS: u8 = 10;
        let input = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let supervisor = self.supervisor.as_ref();
        let listener = supervisor.map(|supervisor| input(supervisor.listener().as_fd()));
        let own = [input(self.place.socket.as_fd()), input(self.place.signals.as_fd())];
        let mut ready: Vec<PollFd> = own.into_iter().chain(listener).collect();
        let patience =
            if supervisor.is_some_and(Supervisor::waits) { AGAIN_MS.into() } else { PollTimeout::NONE };
        match poll(&mut ready, patience) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let has = |at: usize, flag| {
            ready.get(at).and_then(PollFd::revents).is_some_and(|events| events.intersects(flag))
        };
        let called = has(2, PollFlags::POLLIN);
        Ok(Ready {
            ordered: has(0, PollFlags::all()),
            ended: has(1, PollFlags::all()),
            called,
            deserted: !called && has(2, PollFlags::all()),
        })
    }

    /// Takes note of every child that has ended; `Some` when the program has.
    fn reap(&mut self, program: Pid) -> Option<End> {
        while let Ok(Some(news)) = sys::news(false) {
            super::let_go(&news);
            self.used.add(&news);
            match news.state {
                State::Exited(code) if news.pid == program.as_raw() => return Some(End::Exited(code)),
                State::Killed(signal) if news.pid == program.as_raw() => return Some(End::Signalled(signal)),
                _ => {}
            }
        }
        None
    }

    /// Ends all that is left of the cell and waits until it is gone.
    fn sweep(&mut self) {
        // What is left is below a child of this process. A look is cheaper than a signal, for which the kernel goes through
        // all processes of the machine.
        let mut look = |wait| sys::news(wait).map(|news| news.iter().for_each(|news| self.used.add(news)));
        while look(false) != Err(Errno::ECHILD) {
            match self.place.sweep {
                // ESRCH: nothing is left.
                Sweep::All => drop(sys::kill_all(libc::SIGKILL)),
                Sweep::Descendants => super::descendants::kill_all(),
            }
            let _ = look(true);
        }
    }
}

impl Used {
    /// Adds what a child has used; one that has only stopped will end.
    fn add(&mut self, news: &News) {
        if let State::Exited(_) | State::Killed(_) = news.state {
            self.user_us += news.used.user_us;
            self.system_us += news.used.system_us;
            self.peak_kib = self.peak_kib.max(news.used.peak_kib);
        }
    }
}

impl From<Unstarted> for End {
    fn from(why: Unstarted) -> Self {
        match why {
            Unstarted::Directory(errno) => End::NoDirectory(errno),
            Unstarted::Program(errno) => End::NotStarted(errno),
        }
    }
}

fn not_started(error: &io::Error) -> End {
    End::NotStarted(error.raw_os_error().unwrap_or(libc::EINVAL))
}

/// Waits for an order, with its descriptors; `None` when the session is over, and this place is not needed.
fn order(socket: &OwnedFd, rest: &mut Rest) -> io::Result<Option<(CellPlan, [OwnedFd; 3])>> {
    loop {
        rest.before_reading(socket);
        // Most orders are some hundred bytes; room for the longest would cost more than this question.
        let length = recv(socket.as_raw_fd(), &mut [], MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC)?;
        let mut order = vec![0; length.min(ORDER_MAX)];
        let (_, stdio) = sys::receive(socket.as_fd(), &mut order, 0)?;
        match length {
            0 => return Ok(None),
            // A signal for a program that ended before it came.
            1 => continue,
            _ => {}
        }
        let plan = frame::decode(&order).map_err(io::Error::other)?;
        let stdio = stdio.try_into().map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
        return Ok(Some((plan, stdio)));
    }
}

/// What there is to do.
struct Ready {
    /// The broker has an order, or is gone.
    ordered: bool,
    /// A child has ended.
    ended: bool,
    /// The program has made a call.
    called: bool,
    /// Nobody is left to make one.
    deserted: bool,
}

/// Passes one signal on; false when the broker is gone.
fn forward(program: Pid, socket: &OwnedFd) -> bool {
    let mut number = [0];
    match sys::receive(socket.as_fd(), &mut number, libc::MSG_DONTWAIT) {
        Ok((1, _)) => {
            if let Ok(signal) = Signal::try_from(i32::from(number[0])) {
                // The program is the leader of its own session and group; it may have ended just now.
                let _ = kill(Pid::from_raw(-program.as_raw()), signal);
            }
            true
        }
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        Ok(_) => false,
    }
}

/// Where a program may be: its own path, or each directory of `PATH`. One without a name is nowhere.
fn candidates(name: CString, environment: &[Cow<CStr>]) -> io::Result<Vec<CString>> {
    if name.is_empty() || name.as_bytes().contains(&b'/') {
        return Ok(vec![name]);
    }
    let path =
        environment.iter().find_map(|entry| entry.to_bytes().strip_prefix(b"PATH=")).unwrap_or_default();
    let name = Path::new(OsStr::from_bytes(name.as_bytes()));
    // A look costs a microsecond, an `execve` that fails ten.
    let files = std::env::split_paths(OsStr::from_bytes(path)).map(|directory| directory.join(name));
    files
        .skip_while(|file| !file.exists())
        .map(|file| Ok(CString::new(file.into_os_string().as_bytes())?))
        .collect()
}
