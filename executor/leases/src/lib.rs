#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod handover;
mod path;
mod pending;
mod in_force;

pub use handover::{LeaseHandover, Mounting};
pub use in_force::{Leases, Missing, RULE, check_own};
pub use path::{HeldPath, LeasedPath, Places};
pub use pending::{PendingPaths, SettingsSource};
