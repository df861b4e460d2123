//! The command line: one file a command, and what they share.

mod run;
mod call;
mod history;
mod undo;
mod tools;
mod session;
mod doctor;
mod policy;
mod attack;
mod approver;
mod approve;
mod audit;
mod log;
mod place;
mod completions;
mod toolbox;
mod event;
mod streams;
mod terminal;
pub mod say;

use crate::domain::answer::{Answer, Asked};
use broker_protocol::{ErrorKind, Failed};
use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
use clap::{Parser, Subcommand};
use event::ResultEvent;
use place::Place;
use std::ffi::OsStr;
use std::io;
use std::process::ExitCode;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

/// The exit codes that mean the same in every command.
mod exit {
    /// All is well.
    pub const OK: u8 = 0;
    /// The tool could not do what was asked; for `doctor`: no session can open.
    pub const FAILED: u8 = 1;
    /// The command line or a tool's input is wrong.
    pub const USAGE: u8 = 2;
    /// A call tried to leave what it may touch.
    pub const VIOLATION: u8 = 3;
    /// A time limit was reached.
    pub const TIMEOUT: u8 = 124;
    /// Lazaret itself failed.
    pub const LAZARET: u8 = 125;
    /// The policy said no; for `run` also: the program cannot be executed.
    pub const REFUSED: u8 = 126;
    /// The program was not found.
    pub const NOT_FOUND: u8 = 127;
    /// A signal ended the command: this and its number.
    pub const SIGNAL: u8 = 128;
}

const EXIT_CODES: &str = "\
Exit codes:
  run      the command's own; 128+N if signal N ended it (130 cancelled, 137 a
           resource limit, 141 nobody reads its output); 124 time limit;
           125 lazaret failed, or wrong arguments; 126 refused by policy, or
           not executable; 127 program not found
  call     0 done; 1 the tool failed; 2 wrong input, or no such tool;
           3 violation; 124 time limit; 125 lazaret failed; 126 refused
  history, undo  as call
  session  0 at the end of its input; 2 wrong arguments; 3 after too many
           violations; 125 no session, or it cannot write; 128+N if signal
           N ended it (141 nobody reads)
  doctor   0 if a session can open here (with --attack: and its cell holds),
           else 1
  policy   0; 1 a file is wrong; 2 wrong input; 125 no policy
  approve  0 at the end of its input; 125 lazaret failed
  audit    verify: 0 if the audit is whole, else 1
  log      0; 1 if there is no such run, or nothing was found
  others   0, or 2 for wrong arguments
  A wrong option, file or root is 2 everywhere but in run and doctor.

Examples:
  lazaret run -- make test     a command of this project, in a cell
  lazaret run -- bash          a shell in a cell
  lazaret call file_read '{\"path\":\"src/main.rs\"}'
  lazaret doctor               what this machine can keep closed
  lazaret doctor --attack      the same, proved by attacks
  lazaret approve              answer for the calls that wait";

/// Runs the tool calls of AI agents in cells that the kernel keeps closed.
#[derive(Parser)]
#[command(name = "lazaret", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Run),
    Call(call::Call),
    History(history::History),
    Undo(undo::Undo),
    Tools(tools::Tools),
    Session(session::Session),
    Doctor(doctor::Doctor),
    Policy(policy::Policy),
    Approve(approve::Approve),
    Audit(audit::Audit),
    Log(log::Log),
    Completions(completions::Completions),
}

/// The program.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let is_run = matches!(cli.command, Command::Run(_));
    let result = match cli.command {
        Command::Run(run) => told(run.json, "bash", run.main(&cli.place)),
        Command::Call(call) => told(call.json, &call.tool.clone(), call.main(&cli.place)),
        Command::History(history) => told(history.json, "history", history.main(&cli.place)),
        Command::Undo(undo) => told(undo.json, "undo", undo.main(&cli.place)),
        Command::Tools(tools) => tools.main(&cli.place),
        Command::Session(session) => session.main(cli.place),
        Command::Doctor(doctor) => doctor.main(&cli.place),
        Command::Policy(policy) => policy.main(&cli.place),
        Command::Approve(approve) => approve.main(),
        Command::Audit(audit) => audit.main(),
        Command::Log(log) => log.main(),
        Command::Completions(completions) => completions.main(),
    };
    let code = result.unwrap_or_else(|failed| {
        say::problem(&failed.message);
        // For `run`, 2 could be the command's own code.
        if failed.kind == ErrorKind::InvalidInput && !is_run { exit::USAGE } else { exit::LAZARET }
    });
    ExitCode::from(code)
}

/// Who reads results as JSON reads there, too, what kept `tool` from having one.
fn told(json: bool, tool: &str, result: Result<u8, Failed>) -> Result<u8, Failed> {
    if let (true, Err(failed)) = (json, &result) {
        let answer = Answer::failed(&Asked::only(tool.to_owned()), failed.clone());
        // Where it cannot be read, it stands on standard error.
        let _ = say::json(&ResultEvent::plain(&answer));
    }
    result
}

/// Shows help, or what is wrong with the command line. For `run`, 2 could be the command's own code.
fn usage(error: &clap::Error) -> ExitCode {
    let shown = error.print();
    if matches!(error.kind(), DisplayHelp | DisplayVersion) {
        return match shown {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                say::problem(&format!("cannot write the output: {error}"));
                ExitCode::from(exit::LAZARET)
            }
            // Who stops reading has read enough.
            _ => ExitCode::SUCCESS,
        };
    }
    let commands = [
        "run",
        "call",
        "history",
        "undo",
        "tools",
        "session",
        "doctor",
        "policy",
        "approve",
        "audit",
        "log",
        "completions",
    ]
    .map(OsStr::new);
    let first = std::env::args_os().skip(1).find(|word| commands.contains(&word.as_os_str()));
    ExitCode::from(if first.is_some_and(|word| word == "run") { exit::LAZARET } else { exit::USAGE })
}

/// One thread is enough: the work is done in other processes.
fn runtime() -> Result<LocalRuntime, Failed> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(|error| say::internal(format!("cannot prepare to wait for events: {error}")))
}
