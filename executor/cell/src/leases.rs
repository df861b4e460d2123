//! Leases: what may be granted to commands for a time, what a grant refers to, when it ends, and how a cell gets it.

pub(crate) mod handover;
mod path;
mod session_leases;

pub use handover::{LeaseHandover, Mounting};
pub use path::{HeldPath, LeasedPath, Places, Settings};
pub use session_leases::{Leases, Missing, RULE, check_own};
