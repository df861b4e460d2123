#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod log;
mod transport;
mod tools;
mod projects;
mod approvals;
mod resources;
mod call;
mod listing;
mod server;
mod http;

pub use http::{AnswerBody, BODY_MAX, Clients, HttpClients};
pub use listing::Listing;
pub use projects::{SessionOpener, open_sessions};
pub use server::{McpSettings, serve};
