#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod chat_screen;
pub mod chat_follow;
pub mod chat_command;
pub mod chat_prompt;
mod line_editor;
pub mod approver;
