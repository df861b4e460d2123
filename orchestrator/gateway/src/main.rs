//! The program `lazaret-gateway`: see this package's library.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::process::ExitCode;

fn main() -> ExitCode {
    let role = std::env::args_os().nth(1);
    let served = match role.as_deref().map(OsStr::as_encoded_bytes) {
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
