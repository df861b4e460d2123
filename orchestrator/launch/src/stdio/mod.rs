//! The standard streams, the signals and the terminal of this process, for a front end with one call.

pub mod streams;
pub mod line_reader;
pub mod print;
pub mod signals;
pub mod terminal;
pub mod pages;
pub mod job;
pub mod feed;
pub mod typed;
