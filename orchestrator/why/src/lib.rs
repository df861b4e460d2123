#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod trace;
mod last;
mod findings;
mod page;
mod command;

pub use command::Why;
