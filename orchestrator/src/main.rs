#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod adapters;
mod application;
mod ports;
mod domain;

fn main() -> std::process::ExitCode {
    adapters::cli::main()
}
