//! `lazaret run`: one command in a cell, as if it ran here.

use super::approver::Typed;
use super::event::ResultEvent;
use super::place::Place;
use super::streams::{Input, Output};
use super::terminal::{self, Raw};
use super::{exit, runtime, say};
use crate::adapters::confine::{Needs, confine};
use crate::adapters::executor::{Connection, Control, Greeting};
use crate::adapters::runlog::RunLog;
use crate::adapters::secrets::known;
use crate::application::call;
use crate::domain::answer::{Answer, Details};
use crate::domain::profile::WHOLE;
use crate::ports::{Audience, Gone, Observer, Running};
use broker_protocol::{Bash, Command, Ended, ErrorKind, Failed, Request, Signal, Stdin, Terminal, limit};
use clap::Args;
use serde_json::json;
use std::convert::Infallible;
use std::ffi::OsString;
use std::future::pending;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStringExt;
use tokio::signal::unix::{Signal as Listener, SignalKind, signal};

const EXAMPLES: &str = "\
Examples:
  lazaret run -- cargo test
  lazaret run --timeout 10 -- sh -c 'yes | head -c 1000'
  tar c src | lazaret run -- tar t
  lazaret run -- bash                 on a terminal: a shell with job control

Exit code: the command's own, or 128+N if signal N ended it; 124 time limit;
125 lazaret failed; 126 refused by policy, or not executable; 127 not found.
The first Ctrl-C goes to the command, the second one kills it.";

/// Run a command in a cell
///
/// Standard input, output and error are those of the command. On a terminal it gets a terminal of its own.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Run {
    /// Time limit in seconds [default: what the policy allows]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=i64::from(limit::TIMEOUT_S)))]
    timeout: Option<u32>,
    /// End the command after this many seconds without output
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=i64::from(limit::TIMEOUT_S)))]
    idle_timeout: Option<u32>,
    /// Print one JSON object with the result at the end, and nothing before
    #[arg(long, conflicts_with = "tty")]
    pub json: bool,
    /// Give the command a terminal even if this is none
    #[arg(long)]
    tty: bool,
    /// Give the command no terminal
    #[arg(long, conflicts_with = "tty")]
    no_tty: bool,
    /// The program, found by the cell's PATH, and its arguments; no shell is between
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Run {
    /// Runs the command; returns our exit code.
    pub fn main(self, place: &Place) -> Result<u8, Failed> {
        let greeting = Greeting::open(&place.endpoint(), place.open(0)?)?;
        let log = place.log();
        confine(&Needs::default());
        let code = runtime()?.block_on(self.perform(greeting, &log));
        log.end(if code.is_ok() { "the command has ended" } else { "the command was not run" });
        code
    }

    async fn perform(mut self, greeting: Greeting, log: &RunLog) -> Result<u8, Failed> {
        let mut signals =
            Signals::listen().map_err(|error| say::internal(format!("cannot watch signals: {error}")))?;
        let asked =
            json!({ "command": self.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>() });
        let request = self.request();
        request.check().map_err(|error| say::invalid(error.to_string()))?;
        let Some(sandbox) = unless_interrupted(greeting, &mut signals).await? else {
            return Ok(exit::SIGNAL + nix::libc::SIGINT as u8);
        };
        let mut out =
            self.audience().map_err(|error| say::internal(format!("cannot use the output: {error}")))?;
        log.session("run", sandbox.opened());
        // The only call of this run.
        log.asked(1, None, None, "bash", &asked);
        let answer = follow(&sandbox, request, signals, &mut out).await?;
        log.answered(1, &answer);
        self.report(&answer, out.gone())
    }

    /// A terminal for the command makes sense where a person sits at both ends.
    fn is_interactive(&self) -> bool {
        let here = || io::stdin().is_terminal() && io::stdout().is_terminal();
        self.tty || (!self.json && !self.no_tty && here())
    }

    fn request(&mut self) -> Request {
        let interactive = self.is_interactive();
        let command =
            std::mem::take(&mut self.command).into_iter().map(|word| word.into_vec().into()).collect();
        let stdin = match interactive {
            true => {
                let (rows, columns) = terminal::size();
                Stdin::Terminal(Terminal { rows, columns, term: terminal::term() })
            }
            false if Input::is_null() => Stdin::Null,
            false => Stdin::Stream,
        };
        // A command line has no model behind it that could forget a limit: the policy's maximum is enough. Who works in
        // a shell is not thrown out of it.
        let longest = if interactive { None } else { Some(limit::TIMEOUT_S) };
        Request::Bash(Bash {
            command: Command::Arguments(command),
            directory: None,
            timeout_s: self.timeout.or(longest),
            idle_timeout_s: self.idle_timeout,
            stdin,
            live: !self.json,
            background: false,
        })
    }

    fn audience(&self) -> io::Result<Shown> {
        match self.json {
            true => Ok(Shown::Nowhere),
            false => Ok(Shown::Here { out: Output::stdout()?, err: Output::stderr()?, gone: false }),
        }
    }

    fn report(&self, answer: &Answer, gone: bool) -> Result<u8, Failed> {
        if self.json {
            say::json(&ResultEvent::plain(answer))?;
        } else if let Some(problem) = self.problem(answer) {
            say::problem(&problem);
        }
        Ok(code(answer, gone))
    }

    /// What to say about an end that the command itself says nothing about.
    fn problem(&self, answer: &Answer) -> Option<String> {
        let message = &answer.error.as_ref()?.message;
        match answer.ended {
            Some(Ended::Exited(_) | Ended::Signalled(_) | Ended::Cancelled) => None,
            Some(Ended::TimedOut) => Some(format!("{message} ({})", self.longer(answer))),
            Some(Ended::Idle) => Some(format!("{message} (raise it with --idle-timeout)")),
            Some(Ended::Limited(_)) => Some(format!("{message} (raise it in the policy)")),
            Some(Ended::NotStarted(_) | Ended::NoDirectory(_)) | None => Some(message.clone()),
        }
    }

    /// How to get more time than the command had.
    fn longer(&self, answer: &Answer) -> String {
        let had = match answer.about.details {
            Details::Command { timeout, .. } => timeout,
            _ => None,
        };
        match self.timeout {
            Some(asked) if had.is_some_and(|had| had < asked) => {
                format!("{asked} s were asked for; raise the policy's timeout_max_s")
            }
            Some(_) => "raise it with --timeout".to_owned(),
            None => "raise the policy's timeout_max_s".to_owned(),
        }
    }
}

/// Waits for the session; none if the user has had enough first.
async fn unless_interrupted(greeting: Greeting, signals: &mut Signals) -> Result<Option<Connection>, Failed> {
    tokio::select! {
        opened = greeting.opened() => Ok(Some(opened?)),
        _ = signals.interrupt.recv() => Ok(None),
    }
}

/// Runs the call, and meanwhile passes on what comes from this side: input, signals, the size of the window.
async fn follow(
    sandbox: &Connection,
    request: Request,
    mut signals: Signals,
    out: &mut Shown,
) -> Result<Answer, Failed> {
    let (input, raw) =
        this_side(&request).map_err(|error| say::internal(format!("cannot use the input: {error}")))?;
    let call = match call::begin(sandbox, request, &WHOLE, known()).await {
        Ok(call) => call,
        Err(answer) => return Ok(*answer),
    };
    let control = call.running.control();
    tokio::select! {
        answer = call.finish(out, &Typed) => Ok(answer),
        never = pass_input(&control, input) => match never {},
        never = signals.pass(&control, raw.as_ref()) => match never {},
    }
}

/// Our input, where the command has one, in the mode that it needs.
fn this_side(request: &Request) -> io::Result<(Option<Input>, Option<Raw>)> {
    let Request::Bash(Bash { stdin, .. }) = request else { return Ok((None, None)) };
    match stdin {
        Stdin::Null => Ok((None, None)),
        Stdin::Stream => Ok((Some(Input::stdin()?), None)),
        Stdin::Terminal(_) if io::stdin().is_terminal() => Ok((Some(Input::stdin()?), Some(Raw::enter()?))),
        Stdin::Terminal(_) => Ok((Some(Input::stdin()?), None)),
    }
}

/// Feeds the command from our input until that ends. Never returns: it is the call that ends.
pub async fn pass_input(control: &Control, input: Option<Input>) -> Infallible {
    if let Some(input) = input {
        let mut bytes = vec![0; limit::CHUNK];
        // An input that cannot be read is at its end.
        while let Ok(count @ 1..) = input.read(&mut bytes).await {
            control.feed(&bytes[..count]).await;
        }
        control.end_input();
    }
    pending().await
}

/// The signals that are meant for the command.
struct Signals {
    interrupt: Listener,
    terminate: Listener,
    hangup: Listener,
    quit: Listener,
    window: Listener,
    resumed: Listener,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            window: signal(SignalKind::window_change())?,
            resumed: signal(SignalKind::from_raw(nix::libc::SIGCONT))?,
        })
    }

    async fn pass(&mut self, control: &Control, raw: Option<&Raw>) -> Infallible {
        let mut interrupted = false;
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {
                    if interrupted { control.cancel() } else { control.signal(Signal::Interrupt) }
                    interrupted = true;
                }
                _ = self.terminate.recv() => control.signal(Signal::Terminate),
                _ = self.hangup.recv() => control.signal(Signal::Hangup),
                _ = self.quit.recv() => control.signal(Signal::Quit),
                _ = self.window.recv() => resize(control, raw),
                _ = self.resumed.recv() => {
                    // A terminal that cannot be set any more is gone, and its end comes as the end of the input.
                    let _ = raw.map(Raw::again);
                    resize(control, raw);
                }
            }
        }
    }
}

fn resize(control: &Control, raw: Option<&Raw>) {
    if raw.is_some() {
        let (rows, columns) = terminal::size();
        control.resize(rows, columns);
    }
}

/// Where live output goes.
enum Shown {
    /// To our own output.
    Here { out: Output, err: Output, gone: bool },
    /// It is kept for the result.
    Nowhere,
}

impl Shown {
    fn gone(&self) -> bool {
        matches!(self, Shown::Here { gone: true, .. })
    }
}

impl Audience for Shown {
    async fn hear(&mut self, stderr: bool, bytes: &[u8]) -> Result<(), Gone> {
        let Shown::Here { out, err, gone } = self else { return Ok(()) };
        let stream = if stderr { err } else { out };
        stream.write_all(bytes).await.map_err(|_| {
            *gone = true;
            Gone
        })
    }
}

fn code(answer: &Answer, gone: bool) -> u8 {
    let signalled = |number: i32| exit::SIGNAL.saturating_add(u8::try_from(number).unwrap_or(0));
    match answer.ended {
        // The kernel keeps the low eight bits of what a program returns.
        Some(Ended::Exited(code)) => (code & 0xff) as u8,
        Some(Ended::Signalled(number)) => signalled(number),
        Some(Ended::TimedOut | Ended::Idle) => exit::TIMEOUT,
        Some(Ended::Cancelled) if gone => signalled(nix::libc::SIGPIPE),
        Some(Ended::Cancelled) => signalled(nix::libc::SIGINT),
        Some(Ended::Limited(_)) => signalled(nix::libc::SIGKILL),
        Some(Ended::NotStarted(nix::libc::ENOENT)) => exit::NOT_FOUND,
        Some(Ended::NotStarted(_)) => exit::REFUSED,
        // As with `env --chdir`.
        Some(Ended::NoDirectory(_)) => exit::LAZARET,
        None => match answer.error.as_ref().map(|error| error.kind) {
            Some(ErrorKind::DeniedPolicy | ErrorKind::DeniedUser | ErrorKind::ApprovalTimeout) => {
                exit::REFUSED
            }
            Some(ErrorKind::Violation) => exit::REFUSED,
            _ => exit::LAZARET,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::answer::Asked;

    fn ended(ended: Ended) -> Answer {
        let failed = Failed { kind: ErrorKind::Internal, message: String::new() };
        Answer { ended: Some(ended), ..Answer::failed(&Asked::only("bash"), failed) }
    }

    fn failed(kind: ErrorKind) -> Answer {
        Answer::failed(&Asked::only("bash"), Failed { kind, message: String::new() })
    }

    #[test]
    fn each_end_has_its_exit_code() {
        let cases = [
            (Ended::Exited(0), 0),
            (Ended::Exited(42), 42),
            (Ended::Signalled(9), 137),
            (Ended::TimedOut, 124),
            (Ended::Idle, 124),
            (Ended::Cancelled, 130),
            (Ended::NotStarted(nix::libc::ENOENT), 127),
            (Ended::NotStarted(nix::libc::EACCES), 126),
            (Ended::NoDirectory(nix::libc::ENOENT), 125),
        ];
        for (end, want) in cases {
            assert_eq!(code(&ended(end), false), want, "{end:?}");
        }
        assert_eq!(code(&ended(Ended::Cancelled), true), 141);
        for (kind, want) in [
            (ErrorKind::DeniedPolicy, 126),
            (ErrorKind::Violation, 126),
            (ErrorKind::ExecutorLost, 125),
            (ErrorKind::Internal, 125),
        ] {
            assert_eq!(code(&failed(kind), false), want, "{kind:?}");
        }
    }
}
