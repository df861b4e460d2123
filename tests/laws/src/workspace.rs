//! The workspace that these laws are part of.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Cargo, without the variables that it sets for a program about its own package: crates whose build depends on such a variable,
/// and all that use them, would be built again.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let told = |name: &OsString| {
        let prefixes = [
            "CARGO_PKG_",
            "CARGO_MANIFEST_",
            "CARGO_BIN_",
            "CARGO_CRATE_",
            "CARGO_PRIMARY_",
        ];
        prefixes
            .iter()
            .any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
    };
    for name in std::env::vars_os().map(|(name, _)| name).filter(told) {
        cargo.env_remove(name);
    }
    cargo
}

/// The folder of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate is in a workspace")
}
