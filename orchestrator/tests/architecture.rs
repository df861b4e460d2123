//! What these crates do not name, with planted violations. Circles and sizes of all crates are laws of the workspace
//! (`tests/tests/architecture.rs`).

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// All crates of this folder, read from the disk: a new one is looked at without being listed.
fn crates() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut crates = vec![".".to_owned()];
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
        {
            if path.join("Cargo.toml").exists() {
                let name = path.strip_prefix(root).unwrap();
                crates.push(name.to_str().unwrap().to_owned());
            } else if !path.join("package.json").exists() {
                folders.push(path);
            }
        }
    }
    crates
}

/// A crate, and the names that its files do not have.
const FORBIDDEN: &str = "
text: std::fs std::net std::process std::env tokio
reach: std::fs std::process std::env
gateway: process::Command UnixListener clap::
web: std::fs std::process
tools: std::fs std::net std::process std::env
results: std::fs std::net std::process std::env tokio
config-edit: std::net process::Command process::{ Command::new tokio clap::
mcp/server: std::fs std::net std::process std::env io::stdin io::stdout clap::
mcp/client: std::net process::Command io::stdin io::stdout clap::
hooks: std::net std::process std::env io::stdin io::stdout clap::
keys: std::net std::process io::stdin io::stdout clap:: tokio::process orchestrator_agent ::session( ::address(
wire: std::fs std::net std::process std::env tokio
engine: TcpListener TcpStream std::process std::env io::stdin io::stdout clap::
records: std::net Command clap:: orchestrator_agent
terminal: std::fs std::net std::process clap::
lines: std::fs std::process std::env clap::
serve: std::fs std::process std::env io::stdin io::stdout clap::
run: std::net::Tcp process::Command
acp: std::fs process::Command std::env io::stdin io::stdout tokio::net
telemetry: std::net process::Command io::stdin io::stdout
doctor: std::process std::net::Tcp tokio::net
agent: std::fs std::process std::env io::stdin io::stdout clap:: axum::
";

/// Names that a few files only may have: the name, and each file by its crate and module.
const ALONE: [(&str, &[(&str, &str)]); 4] = [
    // What works has confined itself, but for the question to the desktop keyring, which comes before.
    (
        "new_current_thread",
        &[
            ("launch", "runtime"),
            ("keys", "secret_service"),
            ("gateway", "serve"),
            // For tests of what asks one.
            ("gateway", "client::in_process"),
        ],
    ),
    ("process::{Command", &[("launch", "start")]),
    // The gateway's leads to the warden, which answers on it; that of `http` to the client's gateway.
    (
        "UnixStream::pair",
        &[
            ("launch", "start"),
            ("gateway", "relay::published"),
            ("gateway", "client::in_process"),
            ("http", "gateway"),
        ],
    ),
    ("local_socket", &[("engine", "executor::socket")]),
];

/// Names that a crate may not have but in one module: the crate, the module, the name.
const BUT_IN: [(&str, &str, &str); 3] = [
    // The variables that were put aside at the start, in a file of memory, for all crates that ask for one.
    ("text", "secret_environment", "std::fs"),
    ("text", "secret_environment", "std::env"),
    // The kernel's lists of TCP sockets in `/proc`, opened before the gateway is confined; no other file.
    ("reach", "owners", "std::fs"),
];

/// The modules of a crate by path, `""` for its root, without their tests.
type Modules = BTreeMap<String, String>;

fn modules(folder: &str) -> Modules {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(folder)
        .join("src");
    let mut modules = Modules::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let module = path.strip_prefix(&root).unwrap().with_extension("");
            let mut parts: Vec<_> = module
                .iter()
                .map(|part| part.to_str().unwrap().to_owned())
                .collect();
            parts.retain(|part| !["lib", "main", "mod"].contains(&part.as_str()));
            if parts.last().is_some_and(|last| last == "tests") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap().to_owned();
            modules.insert(parts.join("::"), code);
        }
    }
    modules
}

fn breaches(folder: &str, modules: &Modules) -> Vec<String> {
    let mut breaches = Vec::new();
    for (module, code) in modules {
        let names = |name: &&str| code.contains(*name);
        let forbidden = FORBIDDEN.lines().filter_map(|row| row.split_once(": "));
        let forbidden = forbidden
            .filter(|(of, _)| *of == folder)
            .flat_map(|(_, names)| names.split(' '));
        let forbidden = forbidden.filter(|name| !BUT_IN.contains(&(folder, module.as_str(), name)));
        breaches.extend(
            forbidden
                .filter(names)
                .map(|name| format!("{folder}: {module} names {name}")),
        );
        let alone = ALONE
            .iter()
            .filter(|(_, files)| !files.contains(&(folder, module.as_str())));
        let alone = alone.map(|(name, _)| *name).filter(names);
        breaches.extend(alone.map(|name| format!("{folder}: {module} names {name}")));
    }
    breaches
}

#[test]
fn each_crate_has_the_shape_that_it_should() {
    let found: Vec<_> = crates()
        .iter()
        .flat_map(|folder| breaches(folder, &modules(folder)))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// Where a manifest turns on what only tests may have, outside of its `[dev-dependencies]`.
fn product_has_test_support(manifest: &str) -> bool {
    let mut table = "";
    manifest.lines().any(|line| {
        if line.starts_with('[') {
            table = line;
        }
        let is_definition = line == "test-support = []";
        let is_used = line.contains("test-support") && !line.starts_with('#');
        is_used && !(is_definition && table == "[features]") && table != "[dev-dependencies]"
    })
}

#[test]
fn product_is_built_without_test_support() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |folder: &String| fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap();
    let mut crates = crates();
    crates.push("..".to_owned());
    crates.retain(|folder| product_has_test_support(&read(folder)));
    assert!(crates.is_empty(), "{crates:?}");
    // The checks bite.
    let line = "orchestrator-confine = { workspace = true, features = [\"test-support\"] }";
    assert!(product_has_test_support(&format!(
        "[dependencies]\n{line}\n"
    )));
    assert!(product_has_test_support(
        "[features]\ndefault = [\"test-support\"]\n"
    ));
    assert!(!product_has_test_support(&format!(
        "[features]\ntest-support = []\n[dev-dependencies]\n{line}\n"
    )));
}

#[test]
fn each_check_bites() {
    let planted = [
        ("engine", "call", "use std::process::Command;"),
        ("text", "escape", "use std::fs;"),
        ("run", "run", "use std::process::{Command, Stdio};"),
        ("run", "shell", "let stream = UnixStream::pair();"),
        ("web", "fetch", "let stream = UnixStream::pair();"),
        ("reach", "guard", "use std::fs;"),
        ("engine", "connections", "use std::net::TcpListener;"),
        ("gateway", "relay", "use std::process::Command;"),
        (
            "acp",
            "command",
            "let runtime = Builder::new_current_thread();",
        ),
        ("telemetry", "export", "use std::net::TcpStream;"),
        (
            "config-edit",
            "agent_hook::shape",
            "let child = Command::new(shell);",
        ),
    ];
    for (folder, module, line) in planted {
        let mut modules = modules(folder);
        let code = modules.get_mut(module).unwrap();
        *code = format!("{line}\n{code}");
        assert!(
            !breaches(folder, &modules).is_empty(),
            "{folder}: {module}: {line}"
        );
    }
}
