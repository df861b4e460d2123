#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod framed;
pub mod wanted;

pub use framed::{Framed, HEAD};
