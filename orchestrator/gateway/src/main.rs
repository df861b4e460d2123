//! The program `lazaret-gateway`: see this package's library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    match orchestrator_gateway::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lazaret-gateway: {error}; `lazaret-executor` starts this program");
            ExitCode::FAILURE
        }
    }
}
