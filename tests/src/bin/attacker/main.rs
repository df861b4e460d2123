//! `attacker WHAT [ARGUMENTS…]` tries one forbidden thing and prints one line: `GOT detail` or `DENIED reason`.
//!
//! `GOT` is printed only when the thing was really had: a byte was read, a peer answered, a process started. The same
//! program runs outside first (it must get it) and then in a cell (it must not): `tests/tests/escapes.rs`.

mod sys;

mod files;
mod kernel;
mod network;
mod processes;

use std::io;
use std::process::ExitCode;

/// What an attack brings back: a detail for `GOT`, or why not.
type Loot = io::Result<String>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(loot) = attack(&words) else {
        eprintln!("attacker: unknown or incomplete: {words:?}");
        return ExitCode::from(2);
    };
    match loot {
        Ok(detail) => println!("GOT {}", detail.escape_debug()),
        Err(error) => println!("DENIED {error}"),
    }
    ExitCode::SUCCESS
}

fn attack(words: &[&str]) -> Option<Loot> {
    let attempts = [files::attack, network::attack, processes::attack, kernel::attack];
    attempts.iter().find_map(|attempt| attempt(words))
}

/// A number given as a word.
fn number(word: &str) -> io::Result<i64> {
    word.parse().map_err(|_| io::Error::other(format!("{word:?} is no number")))
}

/// An answer that is no system error.
fn denied(why: &str) -> io::Error {
    io::Error::other(why.to_owned())
}
