//! `lazaret chat`: models that are servers of the test or scripts, and tools that are real.

mod chats;
mod commands;
mod fallback;
mod hooks;
mod keyring;
mod limits;
mod loops;
mod providers;
mod subagents;
mod reflection;
mod typing;
pub mod vendors;
