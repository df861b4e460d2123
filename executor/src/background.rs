//! Background processes: their calls are answered when they begin, and they live on until they end,
//! are killed, or the session ends.
//!
//! Each is a [`RunningCommand`] in a cell like any other, with the same limits and the same end: when its program has ended, the
//! processes it left are killed. Its output goes to a file in the central root, up to the policy's `spill`; the last part is also
//! kept here, so that the end of a long log can be read. The cells end with the broker or the warden, as all cells do.

use crate::poll::{Token, Waited};
use crate::running_command::{FinishedCommand, RunningCommand};
use broker_protocol::{
    Background, BackgroundLog, Broken, Ended, ErrorKind, Failed, FileAnswer, FileReply, Logged,
    Started, Usage, ZonePath, limit,
};
use executor_handles::account;
use executor_project::capture::Capture;
use executor_spec::refusals::Refusal;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Maximum bytes of a command shown in a list.
const COMMAND_MAX: usize = 1024;

/// The background processes of a session.
#[derive(Debug, Default)]
pub(crate) struct BackgroundProcesses {
    /// Ordered by number, which is the order in which they began.
    all: Vec<BackgroundProcess>,
    last: u64,
    /// The refusals of those that have ended since somebody asked; absent if none has.
    ended: Option<Vec<Refusal>>,
}

#[derive(Debug)]
struct BackgroundProcess {
    id: u64,
    command: String,
    started: Instant,
    started_ms: u64,
    log: Option<ZonePath>,
    state: BackgroundState,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "most of those that are listed have ended"
)]
enum BackgroundState {
    Alive(Box<RunningCommand>),
    Ended {
        how: Result<Ended, Broken>,
        usage: Usage,
        output: Capture,
        at: Instant,
    },
}

impl BackgroundProcesses {
    pub(crate) fn alive_count(&self) -> usize {
        self.alive().count()
    }

    fn alive(&self) -> impl Iterator<Item = (u64, &RunningCommand)> {
        self.all.iter().filter_map(|process| match &process.state {
            BackgroundState::Alive(command) => Some((process.id, &**command)),
            BackgroundState::Ended { .. } => None,
        })
    }

    /// Those that are alive.
    pub(crate) fn commands_mut(&mut self) -> impl Iterator<Item = &mut RunningCommand> {
        self.all
            .iter_mut()
            .filter_map(|process| match &mut process.state {
                BackgroundState::Alive(command) => Some(&mut **command),
                BackgroundState::Ended { .. } => None,
            })
    }

    /// The refusals of those that have ended since the last time this was asked; `None` if none has.
    pub(crate) fn take_ended(&mut self) -> Option<Vec<Refusal>> {
        self.ended.take()
    }

    /// Adds a command that has just begun.
    pub(crate) fn add(&mut self, mut command: Box<RunningCommand>) -> Started {
        self.last += 1;
        let log = command.plan_mut().output.open();
        let started = Started {
            id: self.last,
            log: log.clone(),
            timeout_s: command.plan().timeout_s,
        };
        self.forget_one();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.all.push(BackgroundProcess {
            id: self.last,
            command: command_line(&command),
            started: Instant::now(),
            started_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            log,
            state: BackgroundState::Alive(command),
        });
        started
    }

    /// Makes room in the list by removing the one that ended longest ago.
    fn forget_one(&mut self) {
        if self.all.len() < limit::BACKGROUND_LISTED {
            return;
        }
        let ended = |process: &BackgroundProcess| match process.state {
            BackgroundState::Ended { at, .. } => Some((at, process.id)),
            BackgroundState::Alive(_) => None,
        };
        if let Some((_, oldest)) = self.all.iter().filter_map(ended).min() {
            self.all.retain(|process| process.id != oldest);
        }
    }

    /// Adds every descriptor that they wait for.
    pub(crate) fn wait_for<'s>(&'s self, waited: &mut Waited<'s>) {
        for (id, command) in self.alive() {
            let fds = command.report_fd().into_iter().chain(command.output_fds());
            fds.for_each(|fd| waited.add_input(Token::Background(id), fd));
        }
    }

    /// When the next timeout is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.alive()
            .filter_map(|(_, command)| command.deadline())
            .min()
    }

    /// Handles the timeouts that are due.
    pub(crate) fn tick(&mut self, now: Instant) {
        for process in &mut self.all {
            if let BackgroundState::Alive(command) = &mut process.state {
                command.tick(now);
            }
        }
    }

    /// Takes what a process has printed, and its end.
    pub(crate) fn read_output(&mut self, id: u64, buffer: &mut [u8]) {
        let Some(at) = self.all.iter().position(|process| process.id == id) else {
            return;
        };
        let BackgroundState::Alive(command) = &mut self.all[at].state else {
            return;
        };
        // Nothing of it is sent live.
        if command.read_output(id, usize::MAX, buffer, &mut Vec::new()) {
            let (process, refusals) = self.all.remove(at).end();
            self.all.insert(at, process);
            self.ended.get_or_insert_default().extend(refusals);
        }
    }

    /// Ends a process, if it is alive.
    pub(crate) fn kill(&mut self, id: u64) {
        for process in self.all.iter_mut().filter(|process| process.id == id) {
            if let BackgroundState::Alive(command) = &mut process.state {
                command.end(Ended::Cancelled);
            }
        }
    }

    /// The answer to a `background_kill`; `None` while the process is alive.
    pub(crate) fn killed(&self, id: u64) -> Option<FileAnswer> {
        match self.find(id) {
            Ok(process) if matches!(process.state, BackgroundState::Alive(_)) => None,
            found => Some(found.map(|process| FileReply::Killed(process.describe()))),
        }
    }

    /// Lists all of them, including those that have ended.
    pub(crate) fn list(&self) -> FileAnswer {
        let all = self.all.iter().map(BackgroundProcess::describe);
        Ok(FileReply::Background(all.collect()))
    }

    /// Returns a piece of a process's output.
    pub(crate) fn log(&self, request: &BackgroundLog) -> FileAnswer {
        let (output, alive) = match &self.find(request.id)?.state {
            BackgroundState::Alive(command) => (&command.plan().output, true),
            BackgroundState::Ended { output, .. } => (output, false),
        };
        let (from, [before, bytes, behind]) =
            output.piece_with_sides(request.from, request.most as usize, limit::LOG_MARGIN);
        Ok(FileReply::Logged(Logged {
            from,
            bytes,
            before,
            behind,
            total: output.total(),
            alive,
        }))
    }

    fn find(&self, id: u64) -> Result<&BackgroundProcess, Failed> {
        let found = self.all.iter().find(|process| process.id == id);
        found.ok_or_else(|| Failed {
            kind: ErrorKind::NotFound,
            message: format!("there is no background process {id} in this session"),
        })
    }
}

impl BackgroundProcess {
    /// The process as one that has ended, and its refusals.
    fn end(mut self) -> (Self, Vec<Refusal>) {
        let wall_us = self.wall_us();
        let refusals;
        (self.state, refusals) = match self.state {
            BackgroundState::Alive(command) => {
                let FinishedCommand {
                    end: how,
                    usage,
                    plan,
                    refusals,
                    ..
                } = command.finish();
                let usage = Usage { wall_us, ..usage };
                (
                    BackgroundState::Ended {
                        how,
                        usage,
                        output: plan.output,
                        at: Instant::now(),
                    },
                    refusals,
                )
            }
            ended @ BackgroundState::Ended { .. } => (ended, Vec::new()),
        };
        (self, refusals)
    }

    fn wall_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn describe(&self) -> Background {
        let (ended, usage) = match &self.state {
            BackgroundState::Alive(command) => {
                let Usage {
                    user_us,
                    system_us,
                    peak_kib,
                    ..
                } = account::usage(command.pidfd());
                let wall_us = self.wall_us();
                (
                    None,
                    Usage {
                        wall_us,
                        user_us,
                        system_us,
                        peak_kib,
                        ..command.usage()
                    },
                )
            }
            BackgroundState::Ended { how, usage, .. } => (Some(how.clone()), *usage),
        };
        Background {
            id: self.id,
            command: self.command.clone(),
            started_ms: self.started_ms,
            log: self.log.clone(),
            ended,
            usage,
        }
    }
}

/// The beginning of a command as a person would write it.
fn command_line(command: &RunningCommand) -> String {
    let words = command.plan().words();
    let mut text = words
        .iter()
        .map(|word| String::from_utf8_lossy(word))
        .collect::<Vec<_>>()
        .join(" ");
    let end = (0..=COMMAND_MAX.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    text
}
