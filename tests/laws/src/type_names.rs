//! Names of types that mean several things in the products' code. All that several types have are listed here, with a reason.

use super::source::Read;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Ident};

/// The names that several types may have, by the reason why each of them has it.
const SHARED: [(&str, &[&str]); 8] = [
    (
        "a request of the protocol, and the input of the tool that makes it",
        &[
            "BackgroundKill",
            "BackgroundLog",
            "Bash",
            "FileEdit",
            "FileList",
            "FileRead",
            "FileWrite",
            "Glob",
            "Grep",
        ],
    ),
    (
        "a command of `lazaret`, named by its word, and what it works on or sends",
        &[
            "Approve",
            "Credential",
            "History",
            "Hook",
            "Run",
            "Tools",
            "Undo",
        ],
    ),
    (
        "the broker's side, the client's, and the command that has one",
        &["Call", "Session"],
    ),
    (
        "written by one process and read by another, which link no crate of each other's",
        &["Gap", "Purpose", "RelaySockets"],
    ),
    (
        "a word of the design for two processes: the proof that this one is confined",
        &["Confined"],
    ),
    (
        "a word of the design for two judges: that of calls, and that of names",
        &["Rule", "Verdict"],
    ),
    (
        "the same system call; `executor-attack` links none of the crates that it attacks",
        &["Fork"],
    ),
    (
        "the same type with and without a feature",
        &["Ablation", "Export"],
    ),
];

/// Each name of several types, with the files that define one.
pub type SharedNames = BTreeMap<String, Vec<String>>;

/// The types of one file, without those of its tests.
#[derive(Default)]
struct Types(Vec<String>);

/// The types that a file defines.
fn of(file: &syn::File) -> Vec<String> {
    let mut types = Types::default();
    types.visit_file(file);
    types.0
}

/// Tells `each` what `of` makes of the files that have products' code: with a file's name, one after the other.
///
/// # Errors
/// If a file cannot be read, or there is none.
pub(super) fn of_products(
    root: &Path,
    files: &BTreeSet<PathBuf>,
    seen: &Read<Vec<String>>,
    of: fn(&syn::File) -> Vec<String>,
    mut each: impl FnMut(&str, &str),
) -> Result<(), String> {
    if files.is_empty() {
        return Err("no Rust file in the workspace".into());
    }
    for file in files {
        let path = file.strip_prefix(root).unwrap_or(file);
        if !is_product_code(path) {
            continue;
        }
        let name = path.display().to_string();
        let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
        let found = seen.read(&text, of);
        let found = found.as_ref().as_ref();
        for one in found.map_err(|error| format!("{name}: {error}"))? {
            each(&name, one);
        }
    }
    Ok(())
}

/// The names that several types of `files` have.
///
/// # Errors
/// As for `of_products`.
pub fn shared(root: &Path, files: &BTreeSet<PathBuf>) -> Result<SharedNames, String> {
    static SEEN: Read<Vec<String>> = Read::new();
    let mut all = SharedNames::new();
    of_products(root, files, &SEEN, of, |file, one| {
        all.entry(one.to_owned()).or_default().push(file.to_owned());
    })?;
    all.retain(|_, files| files.len() > 1);
    Ok(all)
}

/// Several types have a name only if it is listed, and each listed name is of several types.
///
/// # Errors
/// If a file cannot be read, or there is none.
pub fn violations(root: &Path, files: &BTreeSet<PathBuf>) -> Result<Vec<String>, String> {
    let shared = shared(root, files)?;
    let mut listed = BTreeSet::new();
    let mut violations = Vec::new();
    for name in SHARED.iter().flat_map(|(_, names)| *names) {
        if !listed.insert(*name) {
            violations.push(format!("`{name}` is listed twice"));
        } else if !shared.contains_key(*name) {
            violations.push(format!("`{name}` is listed, but of one type at most"));
        }
    }
    for (name, files) in &shared {
        if !listed.contains(name.as_str()) {
            violations.push(format!("`{name}` is of several types: {}", files.join(" ")));
        }
    }
    Ok(violations)
}

/// Whether a file has a product's code, and not only tests, examples, or what these use.
fn is_product_code(path: &Path) -> bool {
    let is_other =
        |part: &std::ffi::OsStr| part == "tests" || part == "examples" || part == "tests.rs";
    !path.iter().any(is_other)
}

pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<Ident>()
                .is_ok_and(|ident| ident == "test")
    })
}

/// A visitor of everything that defines a type.
macro_rules! visit_types {
    ($($visit:ident: $type:ident;)*) => {
        impl<'ast> Visit<'ast> for Types {
            $(fn $visit(&mut self, item: &'ast syn::$type) {
                if !is_test(&item.attrs) {
                    self.0.push(item.ident.to_string());
                }
            })*

            fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
                if !is_test(&item.attrs) {
                    visit::visit_item_mod(self, item);
                }
            }
        }
    };
}

visit_types! {
    visit_item_struct: ItemStruct;
    visit_item_enum: ItemEnum;
    visit_item_union: ItemUnion;
    visit_item_trait: ItemTrait;
    visit_item_type: ItemType;
}
