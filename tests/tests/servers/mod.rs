//! Other people's MCP servers: their tools are listed and called from every front end, wherever the server is.

mod addresses;
mod programs;
pub mod scene;
