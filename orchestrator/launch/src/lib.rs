#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod exit;
pub mod row;
pub mod groups;
pub mod start;
pub mod endpoint;
pub mod policy_files;
mod gain;
pub mod allow;
pub mod holder;
pub mod caller;
pub mod origin;
pub mod agent_settings;
pub mod parent;
pub mod project;
pub mod session_options;
mod runtime;
pub mod launch;
pub mod tool_options;

pub use session_options::{Opening, SessionOptions};
pub use tool_options::{ToolOptions, registry};
