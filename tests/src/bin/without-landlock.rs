//! `without-landlock CMD…` executes a command on a simulated machine without Landlock; `without-landlock --pretended CMD…` on one
//! whose Landlock reports success without effect. The executor's test build simulates older versions
//! (`executor/spec/src/ablation.rs`): a filter cannot remove single rights.

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
