#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod settings;
pub mod edit;
pub mod store;
pub mod log;
pub mod messages;
pub(crate) mod blocks;
pub(crate) mod pins;
pub mod address;
pub mod held_settings;
mod state;
mod http;
mod sse;
pub mod login;
mod live;
mod tool_changes;
mod servers;
pub mod server_reports;
mod session_servers;
mod available;

pub use available::Available;
pub use servers::ServerReport;
pub use session_servers::{SessionServers, find, named};
pub use settings::read;
