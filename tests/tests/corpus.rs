//! The corpus is complete: each probe has its header, an oracle that is known, an id of its own and bounds, and the page for
//! testers names every word. The checks are those of `run.py --lint`; here each is shown to fail on a violation.
#![allow(clippy::unwrap_used)]

use lazaret_tests::corpus::folder;
use lazaret_tests::run;
use lazaret_tests::world::unique;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Whether the corpus in a folder passes, and what is wrong with it.
fn lint(corpus: &Path) -> (bool, String) {
    let mut python = Command::new("/usr/bin/python3");
    python
        .arg("-B")
        .arg(folder().join("run.py"))
        .arg("--lint")
        .arg(corpus);
    let finished = run(&mut python, LIMIT);
    (finished.code() == 0, finished.text() + &finished.errors())
}

#[test]
fn every_probe_is_complete_and_bounded() {
    let (passes, text) = lint(&folder());
    assert!(passes, "{text}");
}

/// A copy of the corpus with a probe that has everything, to be broken.
struct Copy(PathBuf);

const PROBE: &str = "probes/FS-990-planted.sh";
const TEXT: &str = "#!/bin/bash\n# Goal:    g\n# Models:  m\n# Oracle:  token OUTSIDE\n# Tier:    core\n# Needs:   -\n. \"$2/probe/ctk.sh\"\ncontained\n";

impl Copy {
    fn new() -> Self {
        let root = std::env::temp_dir().join(format!("corpus-copy-{}", unique()));
        for part in ["probes", "controls", "sessions"] {
            fs::create_dir_all(root.join(part)).unwrap();
            for entry in fs::read_dir(folder().join(part)).unwrap().flatten() {
                fs::copy(entry.path(), root.join(part).join(entry.file_name())).unwrap();
            }
        }
        fs::copy(folder().join("README.md"), root.join("README.md")).unwrap();
        fs::write(root.join(PROBE), TEXT).unwrap();
        Self(root)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn each_check_can_fail() {
    let copy = Copy::new();
    let (passes, text) = lint(&copy.0);
    assert!(passes, "the copy is fine before it is broken: {text}");
    let changes = [
        ("# Goal:    g\n", "", "no Goal"),
        ("# Models:  m\n", "", "no Models"),
        ("# Oracle:  token OUTSIDE\n", "", "no Oracle"),
        ("# Tier:    core\n", "", "no Tier"),
        ("# Needs:   -\n", "", "no Needs"),
        ("token OUTSIDE", "-", "no oracle decides it"),
        ("token OUTSIDE", "tokens OUTSIDE", "unknown oracle tokens"),
        ("token OUTSIDE", "token", "does not take 0 words"),
        ("token OUTSIDE", "outside", "that of sessions"),
        ("core", "kernel", "unknown tier"),
        ("Needs:   -", "Needs:   luck", "unknown need luck"),
        (
            "# Needs:   -\n",
            "# Needs:   -\n# Fixture: magic\n",
            "unknown fixture magic",
        ),
        (
            "# Needs:   -\n",
            "# Needs:   -\n# Limit:   600\n",
            "the limit is not between",
        ),
        (
            "# Needs:   -\n",
            "# Needs:   -\n# Wants:   x\n",
            "unknown or repeated field Wants",
        ),
        (". \"$2/probe/ctk.sh\"\n", "", "the helpers of its language"),
        ("contained\n", "while true; do :; done\n", "is not bounded"),
        ("contained\n", "sleep 3600\n", "is not bounded"),
        (
            "contained\n",
            "ping 192.0.2.1\n",
            "leads beyond the loopback",
        ),
        (
            "contained\n",
            "curl https://example.org/\n",
            "leads beyond the loopback",
        ),
        (
            "contained\n",
            "/lib64/ld-linux-x86-64.so.2 true\n",
            "is for x86 alone",
        ),
    ];
    for (from, to, complaint) in changes {
        assert!(TEXT.contains(from), "{from}");
        fs::write(copy.0.join(PROBE), TEXT.replacen(from, to, 1)).unwrap();
        let (passes, text) = lint(&copy.0);
        assert!(
            !passes && text.contains(complaint),
            "{from:?} as {to:?} is not `{complaint}`: {text}"
        );
    }
}

/// A probe in Python that makes the call `number`.
fn python_probe(number: u32) -> String {
    let head = TEXT.split_once(". \"").unwrap().0;
    let head = head.replace("#!/bin/bash", "#!/usr/bin/python3");
    format!("{head}from ctk import *\n\nsc({number})\n")
}

#[test]
fn system_call_without_a_number_for_aarch64_is_seen() {
    let copy = Copy::new();
    let probe = copy.0.join("probes/FS-991-planted.py");
    // 76 is truncate, which aarch64 has under another number; 437, openat2, has one number everywhere; 21, access, is x86's alone.
    for (number, is_known) in [(76, true), (437, true), (21, false)] {
        fs::write(&probe, python_probe(number)).unwrap();
        let (passes, text) = lint(&copy.0);
        assert_eq!(passes, is_known, "{number}: {text}");
        assert_eq!(!text.contains("has no number for aarch64"), is_known);
    }
}

#[test]
fn names_ids_and_the_page_are_checked() {
    let copy = Copy::new();
    let broken = |complaint: &str| {
        let (passes, text) = lint(&copy.0);
        assert!(
            !passes && text.contains(complaint),
            "no `{complaint}`: {text}"
        );
    };
    let other = copy.0.join("probes/FS-990-again.sh");
    fs::write(&other, TEXT).unwrap();
    broken("has the id of");
    fs::rename(&other, copy.0.join("probes/ZZZ-001-class.sh")).unwrap();
    broken("unknown class ZZZ");
    fs::rename(
        copy.0.join("probes/ZZZ-001-class.sh"),
        copy.0.join("probes/FS-99-short.sh"),
    )
    .unwrap();
    broken("is not named");
    fs::remove_file(copy.0.join("probes/FS-99-short.sh")).unwrap();
    let page = copy.0.join("README.md");
    let text = fs::read_to_string(&page).unwrap();
    fs::write(&page, text.replace("`survivor`", "survivor")).unwrap();
    broken("no row for survivor");
    fs::write(&page, text).unwrap();
    for part in ["probes", "controls", "sessions"] {
        fs::remove_dir_all(copy.0.join(part)).unwrap();
    }
    broken("no probe");
}
