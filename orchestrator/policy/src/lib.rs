#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod sessions;
mod decision;
mod bundle;
mod sources;
mod check;
mod install_bundle;
mod explain;
mod matrix;
pub mod show;
mod allow;
mod test;
mod command;

pub use command::Policy;
