#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod report;
mod process;
mod calls;
mod guard;
mod trace;

use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const HELP: &str = "\
lazaret-trace: traces a command and reports which of its system calls have failed. `lazaret why` has it run in a cell.

Usage:
  lazaret-trace run CMD…   standard input is the key of the report's last line, standard output the report, and standard
                           error the output of CMD, which has no input
  lazaret-trace --help

Exit code: that of CMD, or 128+N if signal N ended it; 125 it cannot be traced, 126 it is not executable, 127 it is not
found; 2 wrong usage.
";

const NOT_TRACED: u8 = 125;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let mode = words.next();
    let command: Vec<OsString> = words.collect();
    match (
        mode.as_ref().and_then(|mode| mode.to_str()),
        command.is_empty(),
    ) {
        (Some("run"), false) => {
            trace::run(&command).map_or_else(|error| failed(&error), ExitCode::from)
        }
        (Some("traced"), false) => become_traced(&command),
        (Some("--help" | "-h"), true) => io::stdout()
            .write_all(HELP.as_bytes())
            .map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS),
        _ => {
            eprintln!("lazaret-trace: wrong usage; see lazaret-trace --help");
            ExitCode::from(2)
        }
    }
}

fn failed(error: &io::Error) -> ExitCode {
    eprintln!("lazaret-trace: {error}");
    ExitCode::from(NOT_TRACED)
}

/// The process that becomes the command: it waits until its parent is ready to trace it.
fn become_traced(command: &[OsString]) -> ExitCode {
    if let Err(error) = guard::enter() {
        return failed(&error);
    }
    if let Err(errno) = ptrace::traceme().and_then(|()| raise(Signal::SIGSTOP)) {
        return failed(&errno.into());
    }
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    eprintln!("{}: {error}", command[0].display());
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    })
}
