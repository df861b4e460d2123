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

pub use projects::{SessionRequest, Sessions};
pub use server::{Settings, serve};
