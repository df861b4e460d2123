#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod host_modes;
mod describe;
mod named;
mod explain;
mod kept_offline;

pub use describe::{describe_refusals, found};
pub use explain::explain;
pub use kept_offline::kept_offline;
pub use named::{named, simple_commands};
