//! The program `lazaret-gateway`: see this package's library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    eprintln!("lazaret-gateway: only the executor starts this program");
    ExitCode::FAILURE
}
