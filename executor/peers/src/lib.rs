#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod approver_peer;
pub mod approvers;
pub mod connection;
pub mod gateway;
pub mod outgoing;
pub mod published;
pub mod repeats;
pub mod surroundings;
mod tickets;

pub use connection::Connection;
pub use gateway::{Gateway, GatewayEvent, GatewayMaker, GatewayStart};
pub use repeats::Repeats;
pub use tickets::TicketLine;
