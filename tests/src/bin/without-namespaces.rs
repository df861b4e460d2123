//! `without-namespaces CMD…` becomes a command on a machine that refuses namespaces: the flat tier's home. With `--profile NAME` it has
//! the seccomp profile of that container runtime, `docker` or `podman`.
//!
//! Otherwise it plays Ubuntu's AppArmor rule and a container's filter: `clone` and `unshare` with a namespace flag answer `EPERM`,
//! `clone3` answers `ENOSYS`.

use lazaret_tests::container::Runtime;
use lazaret_tests::filter;
use std::process::ExitCode;

const USAGE: &str = "without-namespaces [--profile docker|podman] CMD…";

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    let machine = if words.next_if(|word| word == "--profile").is_some() {
        let name = words.next();
        let Some(runtime) = name.and_then(|name| Runtime::named(&name.to_string_lossy())) else {
            eprintln!("usage: {USAGE}");
            return ExitCode::from(2);
        };
        runtime.filter()
    } else {
        filter::without_namespaces()
    };
    filter::become_on(&machine, USAGE, words)
}
