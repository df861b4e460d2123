#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod fault;
mod paths;
mod metadata;
mod body;
mod multipart;
mod guard;
mod admission;
mod calls;
mod commands;
mod tools;
mod files;
mod legacy;
mod rest;
mod messages;
mod grpc;
mod reflection;
mod processes;
mod process_service;
mod server;
mod command;

pub use command::Sandboxd;
