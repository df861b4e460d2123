#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod warden;
mod published;
mod cell;
mod leased;
mod spawn;
mod process_state;
mod children;

pub use children::end_all;
pub use warden::run_warden;
