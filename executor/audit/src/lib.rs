#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod record;
pub mod audit;
mod prune;
