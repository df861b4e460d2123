#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod kept;
pub mod audit_chain;
pub mod ocsf;
pub mod signed_head;
pub mod transcripts;
pub mod chat_history;
