//! Directories of packages, in which names are judged less strictly: for discovery and supervisors alike.

use std::path::Path;

/// Directories into which package managers unpack: npm's, and those of Python.
const PACKAGES: [&str; 3] = ["node_modules", "site-packages", "dist-packages"];

/// Whether a directory on the way to `below`, a path in a zone, is one of packages.
pub fn is_in_packages(below: &Path) -> bool {
    let mut above = below.ancestors().skip(1).filter_map(Path::file_name);
    above.any(|name| PACKAGES.iter().any(|packages| name == *packages))
}
