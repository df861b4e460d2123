//! `lazaret chat`: models that are servers of the test or scripts, and tools that are real.
#![allow(clippy::unwrap_used)]

mod chats;
mod commands;
mod hooks;
mod loops;
mod providers;
mod vendors;

fn main() -> std::process::ExitCode {
    lazaret_tests::suite::main(
        [providers::tests(), loops::tests(), hooks::tests(), commands::tests()].concat(),
    )
}
