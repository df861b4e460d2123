#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod message;
pub mod error;
pub mod chunk;
pub mod provider;
pub mod accumulate;
pub mod http;
pub mod wire;
pub mod providers;
pub mod budget;
pub mod hooks;
pub use orchestrator_wire::chat_event as event;
pub(crate) mod exchange;
pub mod publish;
pub mod control;
pub mod packs;
pub mod repeat;
pub mod fallback;
pub mod limits;
pub mod settings;
pub mod conversation;
pub mod transcript;
pub mod run_lines;
mod reflection;
pub mod run;
mod spans;
mod turn;
mod hook_calls;
mod subagent;
mod agent_calls;
mod calls;
mod advance;
pub mod agent;
