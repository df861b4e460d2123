//! The program `lazaret-gateway`: see this package's library.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io::{self, Write};
use std::process::ExitCode;

const HELP: &str = "\
lazaret-gateway: the network and the credentials of Lazaret's sessions

`lazaret-executor` and `lazaret` start this program; it serves nobody else.

  lazaret-gateway --help | --version
";

fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn main() -> ExitCode {
    let role = std::env::args_os().nth(1);
    let served = match role.as_deref().map(OsStr::as_encoded_bytes) {
        Some(b"--help" | b"-h") => return print(HELP),
        Some(b"--version" | b"-V") => {
            let release = broker_protocol::release(option_env!("LAZARET_COMMIT"));
            return print(&format!("lazaret-gateway {release}\n"));
        }
        Some(b"client") => orchestrator_gateway::client::serve(),
        Some(_) | None => orchestrator_gateway::serve(),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "lazaret-gateway: {error}; `lazaret-executor` and `lazaret` start this program"
            );
            ExitCode::FAILURE
        }
    }
}
