#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub(crate) mod template;
pub mod settings;
pub mod store;
pub mod hooks;
pub mod cell;
