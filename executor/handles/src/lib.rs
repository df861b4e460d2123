#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod warden_handle;
mod cell_handle;
pub mod ready_cells;
pub mod streams;
pub mod input;
mod suspend;
pub mod account;

pub use cell_handle::CellHandle;
pub use warden_handle::Warden;
