//! What is written down: the executor's audit, the run log, and that secrets are in neither.
#![allow(clippy::unwrap_used)]

mod audit;
mod tamper;
mod runlog;
mod canary;
mod written;

fn main() -> std::process::ExitCode {
    lazaret_tests::suite::main_of_waiting(
        [audit::tests(), tamper::tests(), runlog::tests(), canary::tests()].concat(),
    )
}
