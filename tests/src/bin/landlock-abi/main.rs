//! `landlock-abi N CMD…` runs a command on a machine whose Landlock has version N; 0 is a machine without Landlock.
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
    let version = words.next().and_then(|word| word.to_str()?.parse::<u32>().ok());
    let (Some(version), Some(program)) = (version, words.next()) else {
        eprintln!("usage: landlock-abi N CMD…");
        return ExitCode::from(2);
    };
    let mut command = Command::new(program);
    command.args(words);
    match if version == 0 { without(&mut command) } else { with(version, &mut command) } {
        Ok(status) => {
            ExitCode::from(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)) as u8)
        }
        Err(error) => {
            eprintln!("landlock-abi: {error}");
            ExitCode::from(125)
        }
    }
}

/// Becomes the command on a machine without Landlock.
fn without(command: &mut Command) -> std::io::Result<ExitStatus> {
    use std::os::unix::process::CommandExt;
    seccompiler::apply_filter(&filter::without_landlock()).map_err(std::io::Error::other)?;
    Err(command.exec())
}

/// Starts the command and answers its questions until it ends.
fn with(version: u32, command: &mut Command) -> std::io::Result<ExitStatus> {
    let listener = sys::install_with_listener(&filter::asking_for_landlock_version())?;
    std::thread::spawn(move || while sys::answer(&listener, i64::from(version)).is_ok() {});
    command.spawn()?.wait()
}
