//! Sessions of the engine with tools, against a broker that does what a test says. One program, because each links all of the crate.

#![allow(clippy::unwrap_used)]

mod batches;
mod calls;
#[path = "../harness/mod.rs"]
mod harness;
mod hooks;
mod outside;
mod sessions;
