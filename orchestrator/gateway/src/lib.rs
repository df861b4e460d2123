#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod confine;
mod control;
pub mod client;
pub mod decrypted;
mod relay;
mod reports;
mod resolver;
mod serve;
mod traffic;

pub use resolver::System;
pub use serve::serve;
pub use traffic::{ProgramConnection, Traffic};
