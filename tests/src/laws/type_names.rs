//! Names of types that mean several things in the products' code.

use super::source::Read;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Ident};

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

/// The names that several types of `files` have.
///
/// # Errors
/// If a file cannot be read, or there is none.
pub fn shared(root: &Path, files: &BTreeSet<PathBuf>) -> Result<SharedNames, String> {
    static SEEN: Read<Vec<String>> = Read::new();
    let mut all = SharedNames::new();
    for file in files {
        let path = file.strip_prefix(root).unwrap_or(file);
        if is_of_tests(path) {
            continue;
        }
        let name = path.display().to_string();
        let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
        let types = SEEN.read(&text, of);
        let types = types.as_ref().as_ref();
        for one in types.map_err(|error| format!("{name}: {error}"))? {
            all.entry(one.clone()).or_default().push(name.clone());
        }
    }
    if files.is_empty() {
        return Err("no Rust file in the workspace".into());
    }
    all.retain(|_, files| files.len() > 1);
    Ok(all)
}

/// Whether a file has only tests, or what they use.
fn is_of_tests(path: &Path) -> bool {
    let is_tests =
        |part: &std::ffi::OsStr| part == "tests" || part == "examples" || part == "tests.rs";
    path.iter().any(is_tests)
}

fn is_test(attributes: &[Attribute]) -> bool {
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
