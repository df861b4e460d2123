//! Rust files, and their code without comments and strings.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

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

/// The code without its comments and without the content of strings and characters; line numbers stay the same. Cached by text,
/// since many laws and many copies read the same files.
pub fn code_only(text: &str) -> Arc<str> {
    static SEEN: LazyLock<Mutex<HashMap<String, Arc<str>>>> = LazyLock::new(Mutex::default);
    let seen = || SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(code) = seen().get(text) {
        return code.clone();
    }
    let code: Arc<str> = without_comments(text).into();
    seen().insert(text.to_owned(), code.clone());
    code
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
