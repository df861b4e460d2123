//! Lists the shipped policy files when the crate is built, and which of them define a single profile and nothing else: such a file
//! is read when its profile is needed, as a session that opens waits for it. For the same reason the texts are without what is for
//! people only, each line in its place: comments, and the sources of names. What is closed in leases becomes a table, which costs
//! nothing to read: each denial asks it.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::{env, fs};
use toml::Spanned;
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
        let text = lean(&text, table);
        writeln!(code, "shipped({name:?}, {text:?}, {only:?}),").expect("a string takes text");
    }
    let out = |name: &str| Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join(name);
    fs::write(out("shipped.rs"), format!("[{code}]")).expect("cargo made the folder");
    fs::write(out("lease_names.rs"), lease_names()).expect("cargo made the folder");
}

/// The names of `leases.toml`, each with its protection and the reason.
fn lease_names() -> String {
    let path = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("leases.toml");
    println!("cargo::rerun-if-changed={}", path.display());
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut code = String::new();
    for entry in table["protect"].as_array().expect("tables") {
        let protection = match entry["protection"].as_str() {
            Some("all") => "All",
            Some("write") => "Write",
            other => panic!("{}: no protection {other:?}", path.display()),
        };
        let why = entry["why"].as_str().expect("a reason");
        for name in entry["names"].as_array().expect("names") {
            let name = name["name"].as_str().expect("a name");
            writeln!(code, "({name:?}, Protection::{protection}, {why:?}),").expect("a string takes text");
        }
    }
    format!("&[{code}]")
}

/// The text without comment lines, and with a name in place of a table of the name and its source.
fn lean(text: &str, table: &DeTable) -> String {
    let mut lean = String::new();
    let mut done = 0;
    for (entry, name) in named(table) {
        lean += &text[done..entry.start];
        lean += &text[name];
        done = entry.end;
    }
    lean += &text[done..];
    lean.split_inclusive('\n').map(|line| if line.starts_with('#') { "\n" } else { line }).collect()
}

/// The places of those tables and of the names in them, in order.
fn named(table: &DeTable) -> Vec<(Range<usize>, Range<usize>)> {
    let protect = table.get("protect").into_iter().flat_map(items);
    let names = protect.filter_map(|entry| entry.get_ref().as_table()?.get("names")).flat_map(items);
    names.filter_map(|name| Some((name.span(), name.get_ref().as_table()?.get("name")?.span()))).collect()
}

fn items<'v, 'i>(value: &'v Spanned<DeValue<'i>>) -> impl Iterator<Item = &'v Spanned<DeValue<'i>>> {
    value.get_ref().as_array().into_iter().flat_map(|array| array.iter())
}
