#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod name;
pub mod input_error;
mod schema_cost;
mod accept;
pub mod schema;
pub(crate) mod timeouts;
pub mod state;
pub mod subagent;
pub mod agent_call;
pub mod plan;
pub mod input;
pub mod inputs;
pub mod aliases;
pub mod catalogue;
pub mod registry;
pub mod scope_file;
pub(crate) mod web_results;
pub(crate) mod test_results;
pub mod batch;
mod calls;

pub use calls::{ToolConfig, Toolbox};
