#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod token;
mod case;
mod once;
mod rate;
pub mod guard;
pub mod incoming;
pub(crate) mod packet;
mod outbox;
pub mod backends;
pub mod opener;
mod client_tools;
mod conversation;
pub mod service;
mod run;
mod client;
mod runs;
mod bodies;
mod schema;
mod access;
mod response;
mod page;
mod mcp_sessions;
mod route_table;
mod routes;
mod websocket;
pub mod server;

pub use case::WireCase;
pub use schema::{async_api, open_api};
