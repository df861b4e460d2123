//! Lengths of functions in tokens: what a reader pays for. Lines say less, since the formatter breaks them.

use super::source::PerText;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Functions with more than `min` tokens in their bodies, each by its file and name. A function in another counts in both; tests do not
/// count.
///
/// # Errors
/// If a file cannot be read, or there is none.
pub fn above(
    root: &Path,
    files: &BTreeSet<PathBuf>,
    min: usize,
) -> Result<BTreeMap<String, usize>, String> {
    static SEEN: PerText<Result<Vec<(String, usize)>, String>> = PerText::new();
    let mut long = BTreeMap::new();
    for file in files {
        let name = file
            .strip_prefix(root)
            .unwrap_or(file)
            .display()
            .to_string();
        if name.contains("tests/") || name.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
        let lengths = SEEN.get(&text, || {
            let tokens: TokenStream = text.parse().map_err(|error| format!("{error}"))?;
            let mut lengths = Vec::new();
            add(tokens, &mut lengths);
            Ok(lengths)
        });
        let lengths = lengths.as_ref().as_ref();
        for (function, length) in lengths.map_err(|error| format!("{name}: {error}"))? {
            if *length > min {
                let longest = long.entry(format!("{name} {function}")).or_default();
                *longest = (*length).max(*longest);
            }
        }
    }
    if files.is_empty() {
        return Err("no Rust file in the workspace".into());
    }
    Ok(long)
}

/// Adds the functions among some tokens, and those within them.
fn add(tokens: TokenStream, lengths: &mut Vec<(String, usize)>) {
    let mut function = None;
    let mut is_of_tests = false;
    let mut before = String::new();
    for token in tokens {
        match &token {
            TokenTree::Ident(name) if before == "fn" => function = Some(name.to_string()),
            TokenTree::Ident(name) if before == "mod" => is_of_tests = name == "tests",
            TokenTree::Punct(end) if end.as_char() == ';' => {
                function = None;
                is_of_tests = false;
            }
            TokenTree::Group(group) => {
                if group.delimiter() == Delimiter::Brace {
                    let body = function.take().map(|name| (name, count(group.stream())));
                    lengths.extend(body);
                }
                if !std::mem::take(&mut is_of_tests) {
                    add(group.stream(), lengths);
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
        before = match token {
            TokenTree::Ident(name) => name.to_string(),
            TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => String::new(),
        };
    }
}

/// A pair of brackets counts as two.
fn count(tokens: TokenStream) -> usize {
    let of = |token| match token {
        TokenTree::Group(group) => 2 + count(group.stream()),
        TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => 1,
    };
    tokens.into_iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_of_bodies_count() {
        let text = "/// A doc.\nfn one(a: u8) -> u8 { // four\n a + f(1) }\nimpl A { fn two(&self) { fn three() { b } } }\n\
            trait T { fn four(&self); }\nmod tests { fn five() { c } }";
        let mut lengths = Vec::new();
        add(text.parse().expect("it is Rust"), &mut lengths);
        let named = lengths
            .iter()
            .map(|(name, length)| (name.as_str(), *length));
        assert_eq!(
            named.collect::<Vec<_>>(),
            [("one", 6), ("two", 7), ("three", 1)]
        );
    }
}
