//! What a bug report needs to say of this machine, for `--support-bundle`: settings and names, and nothing that a file or a variable
//! holds. What prints it removes known secrets, as everywhere.

use orchestrator_confine::Files;
use orchestrator_launch::policy_files;
use orchestrator_launch::state_directory;
use orchestrator_records::audit_chain::{AuditChain, Verified};
use policies::source;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Maximum bytes of a setting's value.
const SETTING_MAX: usize = 4096;
/// Settings of the kernel that decide what a cell can have.
const SETTINGS: [&str; 9] = [
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/kernel/seccomp/actions_avail",
    "/proc/sys/fs/inotify/max_user_watches",
    "/sys/kernel/security/lsm",
    "/proc/self/cgroup",
    "/proc/self/attr/current",
];
/// Files of a container's runtime.
const CONTAINERS: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];
/// Programs that stand beside the executor.
const PROGRAMS: [&str; 7] = [
    "lazaret",
    "lazaret-attack",
    "lazaret-bash",
    "lazaret-executor",
    "lazaret-gateway",
    "lazaret-trace",
    "lazaret-worker",
];

/// The sections beside the doctor's own; `executor` is the executor's program.
pub(crate) fn gather(files: &Files, executor: &Path) -> Value {
    json!({
        "version": broker_protocol::release(option_env!("LAZARET_COMMIT")),
        "system": system(),
        "settings": settings(),
        "programs": PROGRAMS.map(|name| program(&executor.with_file_name(name))),
        "policyFiles": policies_of(files),
        "variables": variables(),
        "audit": audit(state_directory::directory().join("audit")),
    })
}

/// `report` with the user's home directory as `~`: its name is often a person's.
pub(crate) fn without_home(report: Value) -> Value {
    let home = policy_files::host().home.display().to_string();
    replaced(report, &home)
}

fn replaced(value: Value, home: &str) -> Value {
    match value {
        Value::String(text) if home.len() > 1 => text.replace(home, "~").into(),
        Value::Array(items) => items.into_iter().map(|item| replaced(item, home)).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, replaced(value, home)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

fn settings() -> Value {
    let settings = SETTINGS.map(|path| (path.to_owned(), setting(path)));
    Value::Object(settings.into_iter().collect())
}

fn setting(path: &str) -> Value {
    let text = source::read_named(Path::new(path), SETTING_MAX).ok();
    json!(text.map(|text| text.trim().trim_end_matches('\0').to_owned()))
}

fn system() -> Value {
    let release = source::read_named(Path::new("/etc/os-release"), SETTING_MAX).unwrap_or_default();
    let field = |name: &str| {
        let mut lines = release.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"').to_owned())
    };
    json!({
        "id": field("ID"),
        "release": field("VERSION_ID"),
        "architecture": std::env::consts::ARCH,
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "container": CONTAINERS.iter().any(|path| Path::new(path).exists()),
        "root": nix::unistd::geteuid().is_root(),
    })
}

fn program(path: &Path) -> Value {
    let bytes = path.metadata().ok().map(|metadata| metadata.len());
    json!({ "path": path, "bytes": bytes })
}

/// Names and sizes: a policy may name what is private.
fn policies_of(files: &Files) -> Value {
    match policy_files::sources(files, &policy_files::host()) {
        Ok(sources) => sources
            .iter()
            .map(|source| json!({ "name": source.name, "bytes": source.text.len() }))
            .collect(),
        // Its text quotes the file.
        Err(_) => json!({ "error": "a file cannot be used" }),
    }
}

/// Of the doctor's report what is for others: no text that may quote a policy file or name a file of a project.
pub(crate) fn for_others(report: &Value) -> Value {
    let session = &report["session"];
    let length = |name: &str| session[name].as_array().map(Vec::len);
    let checks = report["checks"].as_array();
    json!({
        "kernel": report["kernel"],
        "landlockAbi": report["landlockAbi"],
        "tier": report["tier"],
        "layers": report["layers"],
        "orchestrator": report["orchestrator"],
        "hints": report["hints"],
        "session": {
            "ok": session["ok"],
            "project": session["project"],
            "central": session["central"],
            "profile": session["profile"],
            "policy": session["policy"],
            "tier": session["tier"],
            "notices": length("notices"),
            "found": length("found"),
            "error": session["error"]["code"],
        },
        "checks": checks.map(|checks| checks.iter().map(check_for_others).collect::<Vec<_>>()),
    })
}

fn check_for_others(check: &Value) -> Value {
    let id = check["id"].as_str().unwrap_or_default();
    let is_of_machine = ["layer/", "lazaret/", "program/", "host/"]
        .iter()
        .any(|kind| id.starts_with(kind));
    let text = is_of_machine.then_some(&check["text"]);
    json!({ "id": id, "state": check["state"], "text": text })
}

/// Names of set variables that change what we do.
fn variables() -> Vec<String> {
    let decides = |name: &String| {
        let upper = name.to_uppercase();
        upper.starts_with("LAZARET") || upper.starts_with("XDG_") || upper.ends_with("_PROXY")
    };
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> = names.filter(decides).collect();
    names.sort();
    names
}

fn audit(directory: PathBuf) -> Value {
    let opened = AuditChain::open(directory);
    let verified = opened.and_then(|audit| audit.map(|audit| audit.verify(None)).transpose());
    match verified {
        Ok(None) => Value::Null,
        Ok(Some(Verified {
            files, last, flaw, ..
        })) => json!({
            "files": files,
            "records": last.seq,
            "flaw": flaw.map(|flaw| flaw.to_string()),
        }),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::chain;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a file of the test")]
    fn flaw_of_a_whole_file_has_no_line() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(chain::file_name(1)), "").unwrap();
        let flaw = format!("{}: it is not there, or cannot be read", chain::HEAD);
        assert_eq!(audit(directory.path().to_owned())["flaw"], flaw);
    }

    #[test]
    fn the_home_stands_nowhere_in_a_report() {
        let report = json!({ "a": ["/home/eva/x", 1, null], "b": { "c": "in /home/eva: x" } });
        let want = json!({ "a": ["~/x", 1, null], "b": { "c": "in ~: x" } });
        assert_eq!(replaced(report.clone(), "/home/eva"), want);
        assert_eq!(replaced(report.clone(), "/"), report);
    }
}
