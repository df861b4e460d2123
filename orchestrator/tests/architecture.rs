//! Laws of this crate's shape: imports run only downwards, and one file starts programs.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// Each layer, and what it must not name.
const LAYERS: [(&str, &[&str]); 3] = [
    (
        "domain",
        &[
            "crate::application",
            "crate::ports",
            "crate::adapters",
            "std::fs",
            "std::net",
            "std::process",
            "tokio",
        ],
    ),
    ("ports.rs", &["crate::application", "crate::adapters", "std::fs", "std::process"]),
    ("application", &["crate::adapters", "std::fs", "std::net", "std::process"]),
];

/// What only one file may name.
const ALONE: [(&str, &str); 3] = [
    ("process::{Command", "adapters/executor/start.rs"),
    ("UnixStream::pair", "adapters/executor/start.rs"),
    ("local_socket", "adapters/executor/socket.rs"),
];

/// The sources, without their tests.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap().to_owned();
            found.push((path.strip_prefix(&root).unwrap().to_owned(), code));
        }
    }
    assert!(found.len() > 20, "the sources were not found");
    found
}

/// Every line of `code` in `file` that breaks a law.
fn breaches(file: &Path, code: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    for line in code.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        for (layer, forbidden) in LAYERS {
            if file.starts_with(layer) && forbidden.iter().any(|name| line.contains(name)) {
                breaches.push(format!("{}: {line}", file.display()));
            }
        }
        for (name, place) in ALONE {
            if line.contains(name) && file != Path::new(place) {
                breaches.push(format!("{}: {line}", file.display()));
            }
        }
    }
    breaches
}

#[test]
fn imports_run_only_downwards_and_one_file_starts_programs() {
    let found: Vec<_> = sources().iter().flat_map(|(file, code)| breaches(file, code)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_check_bites() {
    let planted = [
        ("domain/answer.rs", "use crate::ports::Event;"),
        ("application/call.rs", "use crate::adapters::executor::Connection;"),
        ("adapters/cli/run.rs", "use std::process::{Command, Stdio};"),
    ];
    for (file, line) in planted {
        assert_eq!(breaches(Path::new(file), line).len(), 1, "{file}");
    }
}
