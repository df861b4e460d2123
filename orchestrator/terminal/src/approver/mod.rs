//! The questions of all sessions in one queue, answered on a terminal, by lines of text or by lines of JSON.

pub mod queue;
pub mod page;
mod screen;
pub mod lines;
pub mod keys;
pub mod json;
