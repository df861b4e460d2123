//! `lazaret chat`: models that are servers of the test or scripts, and tools that are real.

mod chats;
mod commands;
mod fallback;
mod hooks;
mod keyring;
mod limits;
mod local_server;
mod loops;
mod providers;
mod reflection;
mod subagents;
mod typing;
pub mod vendors;
