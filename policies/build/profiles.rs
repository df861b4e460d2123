//! Lists the shipped policy files when the crate is built, and which of them define a single profile and nothing else: such a file
//! is read when its profile is needed, as a session that opens waits for it.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};
use toml::de::{DeTable, DeValue};

/// The files of `profiles`, in the order in which they are read.
const FILES: [&str; 14] = [
    "rules",
    "protected",
    "default",
    "read-only",
    "rust",
    "node",
    "python",
    "go",
    "dev",
    "claude",
    "codex",
    "gemini",
    "opencode",
    "auto",
];

fn main() {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("profiles");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut code = String::new();
    for name in FILES {
        let path = folder.join(name).with_extension("toml");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let table = DeTable::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let table = table.get_ref();
        let only = match (table.len(), table.get("profile").map(|profiles| profiles.get_ref())) {
            (2, Some(DeValue::Table(profiles))) if profiles.len() == 1 => profiles.keys().next(),
            _ => None,
        };
        let (name, only) = (format!("shipped {name}.toml"), only.map(|name| name.get_ref()));
        writeln!(code, "shipped({name:?}, {text:?}, {only:?}),").expect("a string takes text");
    }
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("shipped.rs");
    fs::write(out, format!("[{code}]")).expect("cargo made the folder");
}
