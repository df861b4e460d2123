//! What is true without a process, a socket or a terminal: the tools as data, their input, their answer.

pub mod catalogue;
pub mod field;
pub mod request;
pub mod web;
pub mod readable;
pub mod select;
pub mod scope_file;
pub mod answer;
pub mod file_answer;
pub mod background;
pub mod changes;
pub mod redact;
pub mod text;
pub mod time;
pub mod visible;
pub mod proposal;
pub mod difference;
pub mod numbered;
pub mod clean;
pub mod profile;
pub mod image;
#[cfg_attr(not(test), allow(dead_code, reason = "for tools that are not built in"))]
pub mod schema;
pub mod small;
pub mod state;
pub mod test_report;
#[cfg_attr(not(test), allow(dead_code, reason = "for tools that are not built in"))]
pub mod tool_name;
pub mod violation;
