//! Providers of models. One program, because each links all of the crate.

#![allow(clippy::unwrap_used)]

mod provider;
mod wire;
