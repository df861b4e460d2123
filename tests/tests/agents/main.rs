//! What agents of others are given: a shell, hooks, a server, and settings.
#![allow(clippy::unwrap_used)]

mod shell;
mod hook;
mod mcp;
mod install;
mod whole;

fn main() -> std::process::ExitCode {
    lazaret_tests::suite::main_of_waiting(
        [shell::tests(), hook::tests(), mcp::tests(), install::tests(), whole::tests()].concat(),
    )
}
