//! What a client may rely on: tools, scopes, trust and rules, through the real programs.
#![allow(clippy::unwrap_used)]

mod application;
mod approval;
mod policy;
mod tools;
mod web;
mod workspace;

fn main() -> std::process::ExitCode {
    lazaret_tests::suite::main_of_waiting(
        [
            application::tests(),
            approval::tests(),
            policy::tests(),
            tools::tests(),
            web::tests(),
            workspace::tests(),
        ]
        .concat(),
    )
}
