//! `lazaret chat`: models that are servers of the test or scripts, and tools that are real.
#![allow(clippy::unwrap_used)]

mod chats;
mod commands;
mod fallback;
mod hooks;
mod keyring;
mod loops;
mod providers;
mod typing;
mod vendors;

fn main() -> std::process::ExitCode {
    lazaret_tests::suite::main_of_waiting(
        [
            providers::tests(),
            keyring::tests(),
            loops::tests(),
            hooks::tests(),
            commands::tests(),
            typing::tests(),
            fallback::tests(),
        ]
        .concat(),
    )
}
