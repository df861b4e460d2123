//! `without-landlock CMD…` becomes a command on a machine without Landlock; `without-landlock --pretended CMD…` on one
//! whose Landlock says yes and does nothing. Older versions are played by the executor's test build
//! (`executor/layers/src/ablation.rs`): a filter cannot take single rights away.

use lazaret_tests::filter;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    let machine = match words.next_if(|word| word == "--pretended") {
        Some(_) => filter::pretending_landlock(),
        None => filter::without_landlock(),
    };
    filter::become_on(&machine, "without-landlock [--pretended] CMD…", words)
}
