#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod out;
mod run;
mod shell;

pub use run::Run;
pub use shell::main as shell;
