//! What an approved call is to get, until what is protected in its paths is known.

use crate::approvals::GivenApproval;
use crate::authorise::Granted;
use executor_leases::PendingPaths;

/// The leases of an approval, and the request that starts with them.
#[derive(Debug)]
pub(crate) struct PendingLeases {
    pub granted: Granted,
    /// Its paths are taken out: they are searched.
    pub approval: GivenApproval,
    pub paths: PendingPaths,
}
