#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod kept;
pub mod audit_chain;
pub mod ocsf;
pub mod otlp;
pub mod signed_head;
pub mod export_cursor;
pub mod transcripts;
pub mod chat_history;
