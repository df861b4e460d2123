//! `lazaret chat`: models that are servers of the test or scripts, and tools that are real.

mod chats;
mod commands;
mod fallback;
mod hooks;
mod keyring;
mod limits;
mod loops;
mod providers;
mod subagents;
mod typing;
pub mod vendors;

use lazaret_tests::suite::Test;

pub fn tests() -> Vec<Test> {
    [
        providers::tests(),
        keyring::tests(),
        loops::tests(),
        hooks::tests(),
        commands::tests(),
        typing::tests(),
        fallback::tests(),
        subagents::tests(),
        limits::tests(),
    ]
    .concat()
}
