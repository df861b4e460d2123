#![doc = include_str!("../README.md")]

pub mod spawn;
pub mod process;
pub mod fd;
pub mod message;
pub mod confine;
pub mod notify;
pub mod peer;
pub mod mount;
pub mod file;
pub mod socket;
pub mod proc;
pub mod random;
pub mod idle;
mod errno;
