#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod text;
pub mod address;
pub mod web;
pub mod network;
pub mod http;
pub mod ports;
pub mod dotenv;
pub mod shell;
mod runners;
