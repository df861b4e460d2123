#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod line;
mod under_way;
pub mod writer;
pub mod calls;
pub mod line_loop;
pub mod errors;
