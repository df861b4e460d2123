//! Tests that return before they have shown anything, and those that wait for a time where an event could be awaited.

use super::source::{Read, code_only};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::Visit;
use syn::{Attribute, ExprClosure, ExprReturn, Item, ItemFn, ItemMod};

/// The tests that return early, by name, with their file.
///
/// # Errors
/// If a file cannot be read.
pub fn early_returns(
    root: &Path,
    files: &BTreeSet<PathBuf>,
) -> Result<BTreeMap<String, String>, String> {
    static SEEN: Read<Vec<String>> = Read::new();
    let mut all = BTreeMap::new();
    for file in files {
        let name = file.strip_prefix(root).unwrap_or(file).display();
        let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
        // To parse is what takes time.
        if !text.contains("return") || !(text.contains("test]") || text.contains("_test!")) {
            continue;
        }
        let found = SEEN.read(&text, |file| returning(&file.items));
        let found = found.as_ref().as_ref();
        let found = found.map_err(|error| format!("{name}: {error}"))?.iter();
        all.extend(found.map(|test| (test.clone(), name.to_string())));
    }
    Ok(all)
}

/// The tests among a file's items that return early.
fn returning(items: &[Item]) -> Vec<String> {
    let mut tests = Tests::default();
    tests.of(items);
    tests.returning
}

#[derive(Default)]
struct Tests {
    returning: Vec<String>,
}

impl Tests {
    fn of(&mut self, items: &[Item]) {
        let registered: BTreeSet<String> = items.iter().filter_map(registered).collect();
        for item in items {
            match item {
                Item::Fn(item) if is_test(item) || registered.contains(&name(item)) => {
                    let mut body = Body::default();
                    body.visit_block(&item.block);
                    if body.returns {
                        self.returning.push(name(item));
                    }
                }
                Item::Mod(ItemMod {
                    content: Some((_, items)),
                    ..
                }) => self.of(items),
                _ => {}
            }
        }
    }
}

fn name(item: &ItemFn) -> String {
    item.sig.ident.to_string()
}

fn is_test(item: &ItemFn) -> bool {
    let last = |attribute: &Attribute| {
        let last = attribute.path().segments.last()?;
        Some(last.ident == "test")
    };
    item.attrs
        .iter()
        .any(|attribute| last(attribute) == Some(true))
}

fn registered(item: &Item) -> Option<String> {
    let Item::Macro(item) = item else { return None };
    let called = item.mac.path.segments.last()?.ident.to_string();
    let first = item.mac.tokens.clone().into_iter().next()?;
    ["place_test", "once_test"]
        .contains(&&*called)
        .then(|| first.to_string())
}

/// The body of a test, without its closures and functions, which return for themselves.
#[derive(Default)]
struct Body {
    returns: bool,
}

impl<'ast> Visit<'ast> for Body {
    fn visit_expr_return(&mut self, _: &'ast ExprReturn) {
        self.returns = true;
    }

    fn visit_expr_closure(&mut self, _: &'ast ExprClosure) {}

    fn visit_item(&mut self, _: &'ast Item) {}
}

/// Where tests and their harness wait for a time, as `FILE FUNCTION`. Those in scripts of other languages are none.
///
/// # Errors
/// If a file cannot be read.
pub fn waits(root: &Path, files: &BTreeSet<PathBuf>) -> Result<BTreeSet<String>, String> {
    let mut all = BTreeSet::new();
    for file in files {
        let path = file.strip_prefix(root).unwrap_or(file);
        let name = path.display();
        let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
        let mut of_tests = is_test_or_harness(path);
        let (mut function, mut is_imported) = (String::new(), false);
        for line in code_only(&text).lines() {
            of_tests |= line.starts_with("mod tests {");
            is_imported |= imports_sleep(line);
            if let Some(begun) = function_in(line) {
                begun.clone_into(&mut function);
            }
            let is_wait =
                calls_sleep(line) || is_imported && line.trim_start().starts_with("sleep(");
            if of_tests && is_wait {
                all.insert(format!("{name} {function}"));
            }
        }
    }
    Ok(all)
}

/// The name of the function that begins in a line.
fn function_in(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let begins = before.is_empty() || before.ends_with(' ');
    let mut words = after.split(|letter: char| letter != '_' && !letter.is_alphanumeric());
    words.next().filter(|name| begins && !name.is_empty())
}

/// Whether a file has a test, or what runs it. Measurements (`tests/src/bin`) are no tests.
fn is_test_or_harness(path: &Path) -> bool {
    let within = |folder: &str| path.iter().any(|part| part == folder);
    !path.starts_with("tests/src/bin") && (within("tests") || within("tests.rs"))
}

/// Whether a line lets the file call them by their last name.
fn imports_sleep(line: &str) -> bool {
    let words = line.strip_prefix("use ").unwrap_or_default();
    let mut names = words.split(|letter: char| letter != '_' && !letter.is_alphanumeric());
    (words.starts_with("std::thread::") || words.starts_with("tokio::time::"))
        && names.any(|name| name == "sleep")
}

/// Only those of the standard library and of the runtime: tests have a function of that name that makes a request.
fn calls_sleep(line: &str) -> bool {
    ["thread::sleep(", "time::sleep("]
        .iter()
        .any(|call| line.contains(call))
}
