//! Other people's MCP servers: their tools are listed and called from every front end, wherever the server is.
#![allow(clippy::unwrap_used)]

mod addresses;
mod programs;
mod scene;

use lazaret_tests::suite;
use std::process::ExitCode;

fn main() -> ExitCode {
    suite::main_of_waiting([programs::tests(), addresses::tests()].concat())
}
