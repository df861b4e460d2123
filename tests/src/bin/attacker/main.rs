//! `attacker WHAT [ARGUMENTS…]` tries one forbidden thing and prints one line: `GOT detail` or `DENIED reason`.
//!
//! `GOT` is printed only when the thing was really had: a byte was read, a peer answered, a process started. The same
//! program runs outside first (it must get it) and then in a cell (it must not): `tests/tests/escapes.rs`.
#![allow(unreachable_pub)]

mod sys;

mod files;
mod kernel;
mod network;
mod processes;
mod outcome;

use outcome::Outcome;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(outcome) = attack(&words) else {
        eprintln!("attacker: unknown or incomplete: {words:?}");
        return ExitCode::from(2);
    };
    match outcome {
        Ok(detail) => println!("GOT {}", detail.escape_debug()),
        Err(error) => println!("DENIED {error}"),
    }
    ExitCode::SUCCESS
}

fn attack(words: &[&str]) -> Option<Outcome> {
    let attempts = [
        files::attack,
        network::attack,
        processes::attack,
        kernel::attack,
    ];
    attempts.iter().find_map(|attempt| attempt(words))
}
