#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod print;
pub mod signals;
pub mod terminal;
pub mod pages;
pub mod chat_screen;
pub mod chat_follow;
pub mod chat_command;
pub mod chat_prompt;
mod line_editor;
pub mod typed;
pub mod refused_connections;
pub mod more_hosts;
pub mod job;
pub mod feed;
pub mod approver;
