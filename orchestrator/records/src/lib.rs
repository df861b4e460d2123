#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod state_directory;
pub mod kept;
pub mod runlog_files;
mod agent_lines;
pub mod runlog;
pub mod audit_chain;
pub mod transcripts;
pub mod chat_history;
