//! `lazaret-bash`: a shell whose commands run in a cell.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    orchestrator_run::shell()
}
