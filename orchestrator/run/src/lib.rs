#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod shell_arguments;
mod shell_directory;
mod refused_connections;
mod more_hosts;
mod out;
mod run;
mod shell;

pub use run::Run;
pub use shell::{guarded as guarded_shell, main as shell};
