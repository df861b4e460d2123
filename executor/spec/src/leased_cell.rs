//! The leased paths of one cell, from the broker to that cell.

use crate::known_directories::KnownDirectories;
use crate::protected_objects::ProtectedObjects;
use policies::Access;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Sent by the mounting process when everything is attached; otherwise it sends an error number.
pub const ATTACHED: [u8; 4] = [0; 4];

/// A cell's leases, as the cell needs to know them.
#[derive(Serialize, Deserialize)]
pub struct CellLeases {
    /// The paths, each with its access.
    pub paths: Vec<(PathBuf, Access)>,
    /// The protected objects in them.
    pub objects: ProtectedObjects,
    /// The directories that were in them when the lease began.
    pub directories: KnownDirectories,
    /// Whether one of them can end before the session.
    pub ends: bool,
}
