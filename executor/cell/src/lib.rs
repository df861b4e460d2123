#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod account;
pub mod input;
pub mod ready_cells;
pub mod streams;
pub mod suspend;
mod warden;
mod published;
mod warden_handle;
mod cell;
mod cell_handle;
mod leased;
mod spawn;
mod process_state;
mod children;

pub use cell_handle::CellHandle;
pub use children::end_all;
pub use warden_handle::Warden;
