//! What is granted to commands for a while: what may be, what it is, and when it ends.

mod order;
mod place;
mod session_leases;

pub use order::{check_own, order, unusable};
pub use place::{HeldPath, LeasedPath, Places};
pub use session_leases::{Leases, Missing, RULE};
