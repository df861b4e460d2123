//! `landlock-abi N CMD…` runs a command on a machine whose Landlock has version N; 0 is a machine without Landlock, and
//! `pretended` one whose Landlock says yes and does nothing.
//!
//! For N of 1 and more a supervisor answers the question for the version (`landlock_create_ruleset(NULL, 0, VERSION)`).
//! Rulesets are made by the kernel that is really there: the supervisor cannot look at their bits without a race, so a
//! program that asks for rights which version N does not have is not caught. What is tested is that it asks for the
//! version, believes the answer, and says what is lost.
//!
//! For N of 1 and more this process stays as the parent, and the command cannot have a supervised filter of its own:
//! the kernel allows one listener for a chain of filters.

mod sys;

use lazaret_tests::filter;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let machine = words.next().and_then(|word| Machine::parse(word.to_str()?));
    let (Some(machine), Some(program)) = (machine, words.next()) else {
        eprintln!("usage: landlock-abi N|pretended CMD…");
        return ExitCode::from(2);
    };
    let mut command = Command::new(program);
    command.args(words);
    let done = match machine {
        Machine::Version(0) => behind(&filter::without_landlock(), &mut command),
        Machine::Version(version) => with(version, &mut command),
        Machine::Pretended => behind(&filter::pretending_landlock(), &mut command),
    };
    match done {
        Ok(status) => {
            ExitCode::from(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)) as u8)
        }
        Err(error) => {
            eprintln!("landlock-abi: {error}");
            ExitCode::from(125)
        }
    }
}

/// What is played.
enum Machine {
    Version(u32),
    Pretended,
}

impl Machine {
    fn parse(word: &str) -> Option<Self> {
        if word == "pretended" { Some(Self::Pretended) } else { word.parse().ok().map(Self::Version) }
    }
}

/// Becomes the command behind a filter.
fn behind(filter: &seccompiler::BpfProgram, command: &mut Command) -> std::io::Result<ExitStatus> {
    use std::os::unix::process::CommandExt;
    seccompiler::apply_filter(filter).map_err(std::io::Error::other)?;
    Err(command.exec())
}

/// Starts the command and answers its questions until it ends.
fn with(version: u32, command: &mut Command) -> std::io::Result<ExitStatus> {
    let listener = sys::install_with_listener(&filter::asking_for_landlock_version())?;
    std::thread::spawn(move || while sys::answer(&listener, i64::from(version)).is_ok() {});
    command.spawn()?.wait()
}
