//! Interfaces for other agents: a shell, hooks, a server, and settings.

mod shell;
mod hook;
mod mcp;
mod install;
mod projects;
mod whole;
