//! The published schema is the one that the types make.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::Path;
use std::process::Command;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/wire/schema.json");

/// A type that changes without the file would surprise whoever reads the file: `LAZARET_GOLDEN=write` writes it again.
#[test]
fn published_schema_is_that_of_the_types() {
    let printed = Command::new(env!("CARGO_BIN_EXE_lazaret"))
        .arg("schema")
        .output()
        .unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let printed = String::from_utf8(printed.stdout).unwrap();
    if std::env::var_os("LAZARET_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(FILE, &printed).unwrap();
    }
    let published = std::fs::read_to_string(Path::new(FILE)).unwrap();
    assert!(
        published == printed,
        "wire/schema.json differs: LAZARET_GOLDEN=write"
    );
}
