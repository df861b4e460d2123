#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod characters;
pub mod utf8;
pub mod clean;
pub mod escape;
pub mod coverage;
pub mod markdown;
mod fold;
mod forms;
mod found_secrets;
mod remote_search;
pub mod redact;
pub mod redactor_process;
pub mod secret_environment;
pub mod known;
pub mod sanitize;
pub mod truncate;
pub mod numbered;
pub mod diff;
pub mod settings;
pub mod input_lines;
pub mod line_cutter;
pub mod server_events;
pub mod variables;
pub mod shell_words;
pub mod time;
pub mod random;
