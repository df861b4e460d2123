#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod error;
pub mod guard;
pub mod hello;
pub mod owners;
pub mod place;
pub mod target;

pub use error::{ReachError, Unresolved};
