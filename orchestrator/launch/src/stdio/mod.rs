#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod streams;
pub mod line_reader;
pub mod print;
pub mod signals;
pub mod terminal;
pub mod job;
pub mod feed;
pub mod typed;
