#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod framed;

pub use framed::{Framed, HEAD};
