//! What touches the outside: the executor on one side, people and programs on the other.

pub mod cli;
pub mod executor;
pub mod policy;
pub mod confine;
pub mod web;
pub mod audit;
pub mod runlog;
pub mod secrets;
pub mod state;
