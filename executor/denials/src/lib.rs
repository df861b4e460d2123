#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod describe;
mod named;
mod explain;

pub use describe::{describe_refusals, found};
pub use explain::{Leasable, explain};
pub use named::{named, simple_commands};
