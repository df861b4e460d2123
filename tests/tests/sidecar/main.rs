//! `lazaret serve`: clients over WebSocket and HTTP, models that are scripts or servers of the test, and tools that are real.
#![allow(clippy::unwrap_used)]

mod messages;
mod runs;
mod approvals;
mod guard;
mod load;
mod parents;
mod interface;
mod mcp;
mod server_log;
#[path = "../chat/vendors.rs"]
mod vendors;

fn main() -> std::process::ExitCode {
    let tests = [
        runs::tests(),
        approvals::tests(),
        guard::tests(),
        load::tests(),
        parents::tests(),
        interface::tests(),
        mcp::tests(),
        server_log::tests(),
    ];
    lazaret_tests::suite::main_of_waiting(tests.concat())
}
