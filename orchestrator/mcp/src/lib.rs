#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod log;
mod transport;
mod tools;
mod projects;
mod approvals;
mod resources;
mod call;
mod server;
mod http;

pub use http::{Answer, Clients, Http, Refused};
pub use projects::{SessionRequest, Sessions};
pub use server::{Listing, Settings, serve};
