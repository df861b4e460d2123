//! Background processes: calls that were answered when they began, and live on until they end, are killed, or the session
//! ends.
//!
//! Each is a [`Command`] in a cell like any other, with the same limits and the same end: when its program has ended, what
//! it left is killed. Its output goes to a file of the central root, up to the policy's `spill`; the last of it is kept here
//! besides, so that a long log has an end that can be read. The cells end with the broker or the warden, as all cells do.

use super::account;
use super::capture::Capture;
use super::command::Command;
use super::session::Token;
use broker_protocol::{
    self as protocol, Bash, Broken, Ended, ErrorKind, Failed, Logged, Outcome, Started, Usage, limit,
};
use nix::poll::PollFlags;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Bytes of output kept in memory for each process, half from the beginning and half from the end.
pub const KEPT: u64 = 2 * limit::LOG as u64;
/// Bytes of a command that lists show.
const SHOWN: usize = 1024;

/// The background processes of a session.
#[derive(Debug, Default)]
pub struct Background {
    /// By number, which is the order in which they began.
    all: Vec<Process>,
    last: u64,
}

/// One of them.
#[derive(Debug)]
struct Process {
    id: u64,
    command: String,
    started: Instant,
    started_ms: u64,
    log: Option<protocol::ZonePath>,
    work: Work,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most of those that are listed have ended")]
enum Work {
    Alive(Box<Command>),
    Ended { how: Result<Ended, Broken>, usage: Usage, output: Capture, at: Instant },
}

impl Background {
    /// Why no more can be started, if that is so.
    pub fn refusal(&self, waiting: usize) -> Option<Failed> {
        let alive = self.alive().count() + waiting;
        (alive >= limit::BACKGROUND).then(|| Failed {
            kind: ErrorKind::ResourceLimit,
            message: format!("{alive} background processes are alive, no more at once; end one first"),
        })
    }

    /// Whether nothing is alive.
    pub fn is_idle(&self) -> bool {
        self.alive().next().is_none()
    }

    fn alive(&self) -> impl Iterator<Item = (u64, &Command)> {
        self.all.iter().filter_map(|process| match &process.work {
            Work::Alive(command) => Some((process.id, &**command)),
            Work::Ended { .. } => None,
        })
    }

    /// Takes over a command that has just begun.
    pub fn add(&mut self, mut command: Command, bash: &Bash, central: &Path) -> Started {
        self.last += 1;
        let log = command.open_spill(central);
        let started = Started { id: self.last, log: log.clone(), timeout_s: command.timeout_s() };
        self.forget_one();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.all.push(Process {
            id: self.last,
            command: shown(&bash.command),
            started: Instant::now(),
            started_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            log,
            work: Work::Alive(Box::new(command)),
        });
        started
    }

    /// Makes room in the list: the one that ended longest ago goes.
    fn forget_one(&mut self) {
        if self.all.len() < limit::BACKGROUND_LISTED {
            return;
        }
        let ended = |process: &Process| match process.work {
            Work::Ended { at, .. } => Some((at, process.id)),
            Work::Alive(_) => None,
        };
        if let Some((_, oldest)) = self.all.iter().filter_map(ended).min() {
            self.all.retain(|process| process.id != oldest);
        }
    }

    /// Adds everything they wait for.
    pub fn wait_for<'s>(&'s self, mut add: impl FnMut(Token, BorrowedFd<'s>, PollFlags)) {
        for (id, command) in self.alive() {
            let fds = [command.report_fd(), command.output_fd(false), command.output_fd(true)];
            fds.into_iter().flatten().for_each(|fd| add(Token::Background(id), fd, PollFlags::POLLIN));
        }
    }

    /// When something happens by itself.
    pub fn deadline(&self) -> Option<Instant> {
        self.alive().filter_map(|(_, command)| command.deadline()).min()
    }

    /// Acts on clocks that have run out.
    pub fn tick(&mut self, now: Instant) {
        for process in &mut self.all {
            if let Work::Alive(command) = &mut process.work {
                command.tick(now);
            }
        }
    }

    /// Takes what a process has printed, and its end; true when it is over.
    pub fn ready(&mut self, id: u64, buffer: &mut [u8], central: &Path) -> bool {
        let Ok(process) = self.find(id) else { return false };
        let Work::Alive(command) = &mut process.work else { return false };
        command.hear();
        for stderr in [false, true] {
            // While it runs each has its turn; afterwards what is left is read to its end.
            while command.output_fd(stderr).is_some() {
                let running = command.report_fd().is_some();
                command.read(stderr, buffer, central);
                if running {
                    break;
                }
            }
        }
        let over = command.is_over();
        if over {
            process.end();
        }
        over
    }

    /// Ends a process; false if it has ended already.
    pub fn kill(&mut self, id: u64) -> Result<bool, Failed> {
        match &mut self.find(id)?.work {
            Work::Alive(command) => {
                command.end(Ended::Cancelled);
                Ok(true)
            }
            Work::Ended { .. } => Ok(false),
        }
    }

    /// All of them, those that have ended too.
    pub fn list(&self) -> Vec<protocol::Background> {
        self.all.iter().map(Process::describe).collect()
    }

    /// One of them.
    pub fn describe(&mut self, id: u64) -> Result<protocol::Background, Failed> {
        Ok(self.find(id)?.describe())
    }

    /// A piece of what a process has printed.
    pub fn log(&mut self, request: &protocol::BackgroundLog) -> Result<Logged, Failed> {
        let process = self.find(request.id)?;
        let (output, alive) = match &process.work {
            Work::Alive(command) => (command.capture(), true),
            Work::Ended { output, .. } => (output, false),
        };
        let (from, bytes) = output.piece(request.from, request.most as usize);
        Ok(Logged { from, bytes, total: output.total(), alive })
    }

    fn find(&mut self, id: u64) -> Result<&mut Process, Failed> {
        let found = self.all.iter_mut().find(|process| process.id == id);
        found.ok_or_else(|| Failed {
            kind: ErrorKind::NotFound,
            message: format!("there is no background process {id} in this session"),
        })
    }
}

impl Process {
    fn end(&mut self) {
        let none = Capture::new(0, 0, String::new());
        let ended = Work::Ended {
            how: Ok(Ended::Cancelled),
            usage: Usage::default(),
            output: none,
            at: Instant::now(),
        };
        let Work::Alive(mut command) = std::mem::replace(&mut self.work, ended) else { return };
        let output = command.take_capture();
        let (outcome, usage, _) = command.finish();
        let how = match outcome {
            Outcome::Ran(ran) => Ok(ran.ended),
            Outcome::Broken(broken) => Err(broken),
            other => Err(Broken { message: format!("{other:?}") }),
        };
        let usage = Usage { wall_us: self.wall_us(), ..usage };
        self.work = Work::Ended { how, usage, output, at: Instant::now() };
    }

    fn wall_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn describe(&self) -> protocol::Background {
        let (ended, usage) = match &self.work {
            Work::Alive(command) => {
                let usage = account::usage(command.pidfd());
                (None, Usage { wall_us: self.wall_us(), ..command.usage(usage) })
            }
            Work::Ended { how, usage, .. } => (Some(how.clone()), *usage),
        };
        protocol::Background {
            id: self.id,
            command: self.command.clone(),
            started_ms: self.started_ms,
            log: self.log.clone(),
            ended,
            usage,
        }
    }
}

/// The beginning of a command, as people read it.
fn shown(command: &protocol::Command) -> String {
    let mut text = match command {
        protocol::Command::Shell(text) => text.clone(),
        protocol::Command::Arguments(arguments) => {
            let words = arguments.iter().map(|argument| String::from_utf8_lossy(argument).into_owned());
            words.collect::<Vec<_>>().join(" ")
        }
    };
    let cut = (0..=SHOWN.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(cut.unwrap_or(0));
    text
}
