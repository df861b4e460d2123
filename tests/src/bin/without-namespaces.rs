//! `without-namespaces CMD…` runs a command on a machine that refuses namespaces: the flat tier's home.
//!
//! It plays Ubuntu's AppArmor rule and a container's filter: `clone` and `unshare` with a namespace flag answer `EPERM`,
//! `clone3` answers `ENOSYS`. It sets `no_new_privs`, as every filter of an ordinary user does, and becomes the command:
//! the process id stays.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("usage: without-namespaces CMD…");
        return ExitCode::from(2);
    };
    if let Err(error) = seccompiler::apply_filter(&lazaret_tests::filter::without_namespaces()) {
        eprintln!("without-namespaces: cannot install the filter: {error}");
        return ExitCode::from(125);
    }
    let error = Command::new(&program).args(words).exec();
    eprintln!("without-namespaces: cannot start {}: {error}", program.display());
    ExitCode::from(127)
}
