#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod rpc_message;
mod links;
mod permission;
mod calls;
mod files;
mod terminals;
mod proxy;
mod command;

pub use command::Acp;
