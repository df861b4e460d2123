//! The environment of the broker, from which that of cells is taken.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// The environment with which this process was started, copied before it is overwritten.
pub type Variables = BTreeMap<OsString, OsString>;
