#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod stdio;
pub mod exit;
pub mod state_directory;
pub mod runlog_files;
pub mod runlog;
pub mod row;
pub mod groups;
pub mod tickets;
mod secret_file;
pub mod start;
mod gateway_starter;
pub mod secrets;
pub mod endpoint;
pub mod policy_files;
pub(crate) mod holder;
pub mod hooks;
pub mod caller;
mod central_root;
pub mod origin;
pub mod agent_files;
pub mod examiner;
pub mod parent;
pub mod project;
pub mod session_options;
pub mod warm;
mod runtime;
pub mod network;
pub mod launch;

pub use session_options::{SessionOpening, SessionOptions};
