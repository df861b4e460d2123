//! `lazaret serve`: clients over WebSocket and HTTP, models that are scripts or servers of the test, and tools that are real.

mod messages;
mod runs;
mod approvals;
mod guard;
mod load;
mod parents;
mod interface;
mod mcp;
mod server_log;
mod servers;
