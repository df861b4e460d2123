#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod confine;
mod control;
pub mod client;
pub mod ended;
mod relay;
mod reports;
mod resolver;
mod serve;

pub use resolver::System;
pub use serve::{GatewayError, serve};
