#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod filter;
mod accept;
mod exchange;
mod host_signature;
mod known_hosts;
mod messages;
mod seen;
mod signed_data;
mod user_agent;
mod wire;

pub use accept::AgentSocket;
pub use filter::{AgentFilter, AgentRefusal};
pub use seen::WatchedConnection;
