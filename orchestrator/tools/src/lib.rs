#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod name;
pub mod input_error;
mod schema_cost;
mod accept;
pub mod schema;
pub mod test_report;
pub mod metadata;
pub mod denials;
pub mod findings;
pub mod timeouts;
pub mod state;
pub mod subagent;
pub mod agent_call;
pub mod plan;
pub mod input;
pub mod inputs;
pub mod aliases;
pub mod catalogue;
pub mod remote;
pub mod registry;
pub mod scope_file;
pub mod profile;
pub mod subject;
pub mod violation;
mod rendered;
mod background;
mod changes;
mod command_results;
mod file_results;
pub mod result;
pub mod render;
pub mod web_results;
pub mod test_results;
pub mod batch;
pub mod proposal;
