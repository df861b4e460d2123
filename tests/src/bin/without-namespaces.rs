//! `without-namespaces CMD…` becomes a command on a machine that refuses namespaces: the flat tier's home. With `--profile NAME` it has
//! the seccomp profile of that container runtime, `docker` or `podman`, or the one that we ship for them: `shipped`, or `shipped-CALL`
//! without one of the calls that it adds.
//!
//! Otherwise it plays Ubuntu's AppArmor rule and a container's filter: `clone` and `unshare` with a namespace flag answer `EPERM`,
//! `clone3` answers `ENOSYS`.

use lazaret_tests::container::{self, Runtime};
use lazaret_tests::filter;
use seccompiler::BpfProgram;
use std::process::ExitCode;

const USAGE: &str = "without-namespaces [--profile docker|podman|shipped[-CALL]] CMD…";

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    let machine = if words.next_if(|word| word == "--profile").is_some() {
        let name = words.next().unwrap_or_default();
        let Some(machine) = profile(&name.to_string_lossy()) else {
            eprintln!("usage: {USAGE}");
            return ExitCode::from(2);
        };
        machine
    } else {
        filter::without_namespaces()
    };
    filter::become_on(&machine, USAGE, words)
}

/// The profile with this name.
fn profile(name: &str) -> Option<BpfProgram> {
    match name.strip_prefix("shipped") {
        Some("") => Some(container::shipped(None)),
        Some(call) => Some(container::shipped(Some(call.strip_prefix('-')?))),
        None => Runtime::named(name).map(Runtime::filter),
    }
}
