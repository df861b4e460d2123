//! The hosts of the user's settings: named while settings are read, and told to the gateway before `lazaret` confines itself.

use crate::ask::HostOrigin;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use url::Url;

static NAMED: Mutex<BTreeSet<HostOrigin>> = Mutex::new(BTreeSet::new());

/// The user's settings name the host of `url`. A host named after the gateway has begun is not served.
pub fn name_host(url: &Url) {
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    named.insert(HostOrigin::of(url));
}

/// The hosts that were named.
pub fn named_hosts() -> Vec<HostOrigin> {
    let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    named.iter().cloned().collect()
}
