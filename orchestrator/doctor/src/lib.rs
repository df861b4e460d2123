#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod host_settings;
mod namespace_settings;
mod network;
mod programs;
mod proxy;
mod support;
mod checks;
mod attack;
mod examine;

pub use examine::Doctor;
