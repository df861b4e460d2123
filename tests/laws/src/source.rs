//! Rust files, their code without comments and strings, and values made of their syntax. All of them are made once a text, since many laws
//! and many copies of the tree read the same files.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

/// A value, once somebody has made it.
type FromText<T> = Arc<OnceLock<Arc<T>>>;

pub(super) struct PerText<T>(LazyLock<Mutex<HashMap<String, FromText<T>>>>);

impl<T> PerText<T> {
    pub(super) const fn new() -> Self {
        Self(LazyLock::new(Mutex::default))
    }

    /// The value of a text. Whoever wants it meanwhile waits.
    pub(super) fn get(&self, text: &str, make: impl FnOnce() -> T) -> Arc<T> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let one = match made.get(text) {
            Some(one) => one.clone(),
            None => made.entry(text.to_owned()).or_default().clone(),
        };
        drop(made);
        one.get_or_init(|| Arc::new(make())).clone()
    }
}

/// What `read` makes of the syntax of files. The error is the parser's.
pub(super) type Read<T> = PerText<Result<T, String>>;

impl<T> PerText<Result<T, String>> {
    /// Parses a text, if nobody has.
    pub(super) fn read(&self, text: &str, read: fn(&syn::File) -> T) -> Arc<Result<T, String>> {
        self.get(text, || {
            let file = syn::parse_file(text).map_err(|error| error.to_string())?;
            Ok(read(&file))
        })
    }
}

/// The names of the functions in some files and folders.
pub fn functions(root: &Path, places: &[&str]) -> BTreeSet<String> {
    static SEEN: PerText<Vec<String>> = PerText::new();
    let named = |text: &str| {
        let after = text.split("fn ").skip(1);
        let names = after.filter_map(|rest| Some(rest.split_once('(')?.0));
        let is_name = |name: &&str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        names.filter(is_name).map(str::to_owned).collect()
    };
    let files = places
        .iter()
        .flat_map(|place| rust_files(&root.join(place)));
    let texts = files.filter_map(|file| fs::read_to_string(file).ok());
    texts
        .flat_map(|text| SEEN.get(&text, || named(&text)).to_vec())
        .collect()
}

/// The Rust files below a folder, except build output.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "target" {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The code without its comments and without the content of strings and characters; line numbers stay the same.
pub fn code_only(text: &str) -> Arc<String> {
    static SEEN: PerText<String> = PerText::new();
    SEEN.get(text, || without_comments(text))
}

fn without_comments(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = skipped(&chars, at).unwrap_or(at);
        if end > at {
            out.extend(chars[at..end].iter().filter(|c| **c == '\n'));
            out.push(' ');
            at = end;
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

/// The end of the comment, string or character that begins at `at`, if one does.
fn skipped(chars: &[char], at: usize) -> Option<usize> {
    let rest = &chars[at..];
    let after_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match rest {
        ['/', '/', ..] => Some(at + rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())),
        ['/', '*', ..] => Some(at + end_of_block(rest)),
        ['"', ..] => Some(at + end_of_quote(rest, '"')),
        ['r', '"' | '#', ..] if !after_word => raw_end(rest).map(|end| at + end),
        ['\'', '\\', ..] => Some(at + end_of_quote(rest, '\'')),
        ['\'', _, '\'', ..] => Some(at + 3),
        _ => None,
    }
}

fn end_of_block(rest: &[char]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at + 1 < rest.len() {
        match (rest[at], rest[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn end_of_quote(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The end of `r"…"` or `r#"…"#`; `None` for a raw name such as `r#type`.
fn raw_end(rest: &[char]) -> Option<usize> {
    let marks = rest[1..].iter().take_while(|c| **c == '#').count();
    let start = 1 + marks;
    if rest.get(start) != Some(&'"') {
        return None;
    }
    let closes = |at: usize| {
        rest[at] == '"'
            && rest[at + 1..]
                .iter()
                .take(marks)
                .filter(|c| **c == '#')
                .count()
                == marks
    };
    (start + 1..rest.len())
        .find(|at| closes(*at))
        .map(|at| at + 1 + marks)
        .or(Some(rest.len()))
}
