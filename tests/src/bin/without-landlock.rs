//! `without-landlock CMD…` becomes a command on a machine without Landlock; `without-landlock --pretended CMD…` on one
//! whose Landlock says yes and does nothing. Older versions are played by the executor's test build
//! (`executor/src/cell/ablation.rs`): a filter cannot take single rights away.

use lazaret_tests::filter;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    let machine = match words.next_if(|word| word == "--pretended") {
        Some(_) => filter::pretending_landlock(),
        None => filter::without_landlock(),
    };
    let Some(program) = words.next() else {
        eprintln!("usage: without-landlock [--pretended] CMD…");
        return ExitCode::from(2);
    };
    let error = match seccompiler::apply_filter(&machine) {
        Ok(()) => Command::new(program).args(words).exec().to_string(),
        Err(error) => error.to_string(),
    };
    eprintln!("without-landlock: {error}");
    ExitCode::from(125)
}
