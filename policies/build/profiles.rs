//! Lists the shipped policy files when the crate is built, and which of them define a single profile and nothing else: such a file
//! is read when its profile is needed, as a session that opens waits for it. For the same reason the texts are without what is for
//! people only, each line in its place: comments, and the sources of names. Protected names, which are most of the text, and what is
//! closed in leases, which each denial asks about, become tables, which cost nothing to read.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::{env, fs};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The files of `profiles`, in the order in which they are read.
const FILES: [&str; 15] = [
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
    "pod",
    "auto",
];

fn main() {
    let folder =
        Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("profiles");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut code = String::new();
    for name in FILES {
        let path = folder.join(name).with_extension("toml");
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let table =
            DeTable::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let table = table.get_ref();
        let only = match (
            table.len(),
            table.get("profile").map(|profiles| profiles.get_ref()),
        ) {
            (2, Some(DeValue::Table(profiles))) if profiles.len() == 1 => profiles.keys().next(),
            _ => None,
        };
        let (name, only) = (
            format!("shipped {name}.toml"),
            only.map(|name| name.get_ref()),
        );
        let (names, whole) = (protected_names(&text, table), lean(&text, table));
        let text = without_names(&whole);
        writeln!(
            code,
            "shipped({name:?}, ({whole:?}, {text:?}), {only:?}, &[{names}]),"
        )
        .expect("a string takes text");
    }
    let out = |name: &str| Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join(name);
    fs::write(out("shipped.rs"), format!("[{code}]")).expect("cargo made the folder");
    fs::write(out("lease_names.rs"), lease_names()).expect("cargo made the folder");
}

/// The names of `leases.toml`, each with its protection and the reason.
fn lease_names() -> String {
    let path =
        Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("leases.toml");
    println!("cargo::rerun-if-changed={}", path.display());
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let table: toml::Table = text
        .parse()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
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
            writeln!(code, "({name:?}, Protection::{protection}, {why:?}),")
                .expect("a string takes text");
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
    lean.split_inclusive('\n')
        .map(|line| if line.starts_with('#') { "\n" } else { line })
        .collect()
}

/// The protected names of a file, each with all that stands with it.
fn protected_names(text: &str, table: &DeTable) -> String {
    let mut code = String::new();
    for protect in table.get("protect").into_iter().flat_map(items) {
        let protect = protect.get_ref().as_table().expect("a table");
        let word = |key: &str| {
            protect
                .get(key)
                .map(|value| value.get_ref().as_str().expect("a string"))
        };
        let protection = if word("protection") == Some("all") {
            "All"
        } else {
            "Write"
        };
        let new = match word("new") {
            Some("open") => "Open",
            Some("harmless") => "Harmless",
            None | Some("closed") => "Closed",
            other => panic!("no `new` {other:?}"),
        };
        let (protection, new) = (
            format!("Protection::{protection}"),
            format!("WhenNew::{new}"),
        );
        let opens = protect
            .get("opens")
            .is_some_and(|value| value.get_ref().as_bool() == Some(true));
        let why = word("why").expect("a reason");
        let except = protect.get("except").into_iter().flat_map(items);
        let except: Vec<_> = except
            .map(|pattern| pattern.get_ref().as_str().expect("a pattern"))
            .collect();
        for name in protect.get("names").into_iter().flat_map(items) {
            let line = text[..name.span().start].matches('\n').count() + 1;
            let value = name.get_ref();
            let pattern = value
                .as_table()
                .map_or(value, |table| table["name"].get_ref());
            let pattern = pattern.as_str().expect("a pattern");
            writeln!(
                code,
                "ShippedName {{ pattern: {pattern:?}, except: &{except:?}, protection: {protection}, new: {new}, opens: {opens}, why: {why:?}, line: {line} }},"
            )
            .expect("a string takes text");
        }
    }
    code
}

/// The text without the tables of protected names, each line in its place.
fn without_names(text: &str) -> String {
    let mut is_name = false;
    let mut rest = String::new();
    for line in text.split_inclusive('\n') {
        if line.starts_with('[') {
            is_name = line.starts_with("[[protect]]");
        }
        rest += if is_name { "\n" } else { line };
    }
    // Only tables are left out.
    let [mut with, without]: [toml::Table; 2] =
        [text, &rest].map(|text| text.parse().expect("a file without some tables is one"));
    with.remove("protect");
    assert_eq!(
        with, without,
        "a table of protected names is written in another way than all others"
    );
    rest
}

/// The places of those tables and of the names in them, in order.
fn named(table: &DeTable) -> Vec<(Range<usize>, Range<usize>)> {
    let protect = table.get("protect").into_iter().flat_map(items);
    let names = protect
        .filter_map(|entry| entry.get_ref().as_table()?.get("names"))
        .flat_map(items);
    names
        .filter_map(|name| Some((name.span(), name.get_ref().as_table()?.get("name")?.span())))
        .collect()
}

fn items<'v, 'i>(
    value: &'v Spanned<DeValue<'i>>,
) -> impl Iterator<Item = &'v Spanned<DeValue<'i>>> {
    value
        .get_ref()
        .as_array()
        .into_iter()
        .flat_map(|array| array.iter())
}
