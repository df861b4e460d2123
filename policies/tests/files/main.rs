//! Policy files: what they may say, what follows from it, and what the shipped ones say. One program, because each links all of the crate.

#![allow(clippy::unwrap_used)]

mod choice;
mod credentials;
mod resolve;
mod rules;
mod seccomp;
mod shipped;
mod ssh;
