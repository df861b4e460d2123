#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod confine;
mod control;
pub mod ended;
mod relay;
mod reports;
mod serve;

pub use serve::{GatewayError, serve};
