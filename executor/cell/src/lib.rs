#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod warden;
mod warden_handle;
mod message;
pub mod account;
mod cell;
mod cell_handle;
mod order;
pub mod leases;
mod spawn;
pub mod report;
mod process_state;
mod children;
mod leftover;
mod questions;
pub mod project;
pub mod streams;
pub mod suspend;
mod capture;
pub mod own_state;

pub use capture::Capture;
pub use cell_handle::CellHandle;
pub use leases::{HeldPath, LeaseHandover, Mounting};
pub use leftover::Leftover;
pub use message::{WardenMessage, WardenRequest};
pub use order::CellPlan;
pub use questions::{Answerer, WorkerImage};
pub use warden_handle::Warden;
