//! Each name that a released agent, package manager, editor or interpreter looks for in a project is decided. `name_probe` records them.
#![allow(clippy::unwrap_used)]

#[path = "../src/bin/name_probe/names.rs"]
mod names;

use names::{known_open, looked_for, recorded, undecided};
use policies::{Host, Policies};
use policies_guard::ProtectedName;
use std::collections::BTreeSet;
use std::path::Path;

fn protected() -> Vec<ProtectedName> {
    let host = Host {
        home: "/home/u".into(),
        ..Host::default()
    };
    Policies::load(vec![])
        .unwrap()
        .resolve("default", &host)
        .unwrap()
        .protected
        .to_vec()
}

#[test]
fn each_recorded_name_is_decided() {
    let (protected, open, recorded) = (protected(), known_open(), recorded());
    for (program, names) in &recorded {
        assert_eq!(undecided(names, &protected, &open), [""; 0], "{program}");
    }
    for program in [
        "claude", "codex", "opencode", "gemini", "qwen", "npm", "git", "python3",
    ] {
        assert!(
            recorded.iter().any(|(known, _)| known == program),
            "{program} is not recorded"
        );
    }
}

/// The control: a name of which one list is robbed is found.
#[test]
fn a_name_that_nobody_decided_on_is_found() {
    let (mut protected, mut open, recorded) = (protected(), known_open(), recorded());
    let names = |program: &str| &recorded.iter().find(|(name, _)| name == program).unwrap().1;
    protected.retain(|name| !name.pattern.contains("tui"));
    assert!(
        undecided(names("opencode"), &protected, &open)
            .iter()
            .any(|name| name.starts_with("tui.json"))
    );
    open.retain(|(pattern, _)| pattern != "package.json");
    assert!(undecided(names("npm"), &protected, &open).contains(&"package.json".to_owned()));
}

#[test]
fn each_open_name_has_a_reason_and_is_not_protected_as_well() {
    for (name, why) in known_open() {
        assert!(why.len() > 20 && why.ends_with('.'), "{name}: {why}");
    }
}

#[test]
fn names_are_read_from_a_trace() {
    let log = "12 openat(AT_FDCWD</p>, \".npmrc\", O_RDONLY) = -1 ENOENT\n\
        12 access(\"/p/a/../tui.json\", F_OK) = -1 ENOENT\n\
        12 newfstatat(3</p/sub>, \"x\", {st_mode}, 0) = 0\n\
        13 rename(\"/p/new\", \"/p/old\") = 0\n\
        13 stat(\"/etc/passwd\", {}) = 0\n\
        13 execve(\"/usr/bin/git\", [\"git\", \"status\"], 0x1) = 0\n\
        13 readlink(\"/p/link\", \"its text\", 4095) = 8\n\
        13 openat(AT_FDCWD</home>, \"y\", O_RDONLY) = 3</home/y>\n\
        13 +++ exited with 0 +++\n\
        13 openat(AT_FDCWD</p>, \"./.env.123456.tmp\", O_RDONLY <unfinished ...>\n";
    let names: BTreeSet<String> = [
        ".npmrc",
        "tui.json",
        "sub/x",
        "new",
        "old",
        "link",
        ".env.000000.tmp",
    ]
    .map(str::to_owned)
    .into();
    assert_eq!(looked_for(log, Path::new("/p")), names);
}
