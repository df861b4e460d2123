//! `without-namespaces CMD…` becomes a command on a machine that refuses namespaces: the flat tier's home.
//!
//! It plays Ubuntu's AppArmor rule and a container's filter: `clone` and `unshare` with a namespace flag answer `EPERM`,
//! `clone3` answers `ENOSYS`.

use lazaret_tests::filter;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words = std::env::args_os().skip(1);
    filter::become_on(&filter::without_namespaces(), "without-namespaces CMD…", words)
}
