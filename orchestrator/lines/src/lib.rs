#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod streams;
pub mod line_reader;
pub mod json;
mod line;
pub mod ready;
pub mod event_line;
mod under_way;
pub mod writer;
pub mod calls;
pub mod line_loop;
