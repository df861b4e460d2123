//! The leased paths of one cell, from the broker to that cell.

use crate::known_directories::KnownDirectories;
use crate::protected_objects::{ObjectId, ProtectedObjects};
use policies::Access;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Sent by the mounting process when everything is attached; otherwise it sends an error number.
pub const ATTACHED: [u8; 4] = [0; 4];

/// A file of a zone that a lease opens to one cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ZoneLease {
    /// The path that was granted, absolute and without links.
    pub path: PathBuf,
    /// To read what is masked otherwise, or to change what a name closes.
    pub access: Access,
    /// The file that was granted.
    pub id: ObjectId,
}

/// A cell's leases, as the cell needs to know them.
#[derive(Serialize, Deserialize)]
pub struct CellLeases {
    /// The paths, each with its access.
    pub paths: Vec<(PathBuf, Access)>,
    /// Those of them that are files of a zone.
    pub zone_files: Vec<ZoneLease>,
    /// The protected objects in them.
    pub objects: ProtectedObjects,
    /// The directories that were in them when the lease began.
    pub directories: KnownDirectories,
    /// Whether one of them can end before the session.
    pub ends: bool,
}
