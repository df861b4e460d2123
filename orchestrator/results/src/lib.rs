#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod test_report;
pub mod metadata;
pub mod denials;
pub mod findings;
pub mod profile;
pub mod subject;
pub mod violation;
pub mod image;
mod rendered;
mod background;
mod changes;
mod command_results;
mod file_results;
pub mod error_body;
pub mod result;
pub mod render;
pub mod proposal;
