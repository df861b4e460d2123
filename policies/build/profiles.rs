//! Reads the shipped policy files when the crate is built, so that a session that opens parses no TOML.
//!
//! Writes `FILES`, a static tree of each file for `src/shipped.rs`, which the same model reads as it reads a parsed file.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The files of `profiles`, in the order in which they are read.
const FILES: [&str; 9] = [
    "rules.toml",
    "protected.toml",
    "default.toml",
    "read-only.toml",
    "rust.toml",
    "node.toml",
    "python.toml",
    "go.toml",
    "dev.toml",
];

fn main() {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("profiles");
    println!("cargo::rerun-if-changed={}", folder.display());
    println!("cargo::rerun-if-changed=build");
    let mut code = format!("static FILES: [File; {}] = [\n", FILES.len());
    for name in FILES {
        let path = folder.join(name);
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        let table = DeTable::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        write!(code, "File {{ name: {:?}, text: {text:?}, root: ", format!("shipped {name}")).expect(TAKES);
        value(&mut code, table.span().start, &DeValue::Table(table.into_inner()));
        code.push_str(" },\n");
    }
    code.push_str("];\n");
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("shipped.rs");
    fs::write(&out, code).unwrap_or_else(|error| panic!("cannot write {}: {error}", out.display()));
}

const TAKES: &str = "a string takes text";

/// Adds a `Value` that stands at byte `start` of its file.
fn value(code: &mut String, start: usize, value: &DeValue) {
    let items = |code: &mut String, list: &[Spanned<DeValue>]| {
        for item in list {
            self::value(code, item.span().start, item.get_ref());
            code.push(',');
        }
    };
    write!(code, "Value {{ start: {start}, kind: ").expect(TAKES);
    match value {
        DeValue::String(text) => write!(code, "Kind::Text({text:?})").expect(TAKES),
        DeValue::Boolean(truth) => write!(code, "Kind::Bool({truth})").expect(TAKES),
        DeValue::Integer(number) => write!(code, "Kind::Number({number})").expect(TAKES),
        DeValue::Array(list) => {
            code.push_str("Kind::List(&[");
            items(code, list);
            code.push_str("])");
        }
        DeValue::Table(table) => {
            code.push_str("Kind::Table(&[");
            for (key, item) in table {
                write!(code, "({:?}, ", key.get_ref()).expect(TAKES);
                self::value(code, item.span().start, item.get_ref());
                code.push_str("),");
            }
            code.push_str("])");
        }
        other => panic!("no key of a policy takes {other:?}"),
    }
    code.push_str(" }");
}
