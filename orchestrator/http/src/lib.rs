#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod ask;
mod client;
mod gateway;
mod named;

pub use client::{Client, Failure, Request, Response};
pub use gateway::{Gateway, GatewayError, begin};
pub use named::{name_host, named_hosts};
