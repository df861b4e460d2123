//! Settings of the host that would close more than a cell can: how the user's programs treat a project on their own.
//!
//! Only `lazaret doctor` reads them, and only `lazaret doctor --fix` changes one, after asking about the exact command.

use broker_protocol::Failed;
use broker_protocol::paste::shell_word;
use orchestrator_confine::Files;
use orchestrator_launch::exit;
use orchestrator_launch::start::git;
use orchestrator_launch::state_directory;
use orchestrator_launch::stdio::{pages, print};
use orchestrator_text::time;
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum bytes of a settings file to read.
const FILE_MAX: u64 = 1 << 20;

/// A gap that the host could close.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Hint {
    /// The name of the setting in the host's program.
    pub(crate) setting: &'static str,
    /// What it would close.
    pub(crate) closes: &'static str,
    /// The arguments of `git` that set it; absent if only its own program can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<&'static [&'static str]>,
}

impl Hint {
    /// What to do, as text or as a command.
    pub(crate) fn remedy(&self) -> String {
        self.git.map_or_else(
            || format!("set `{}` in the program's own settings", self.setting),
            |words| {
                format!(
                    "git {}",
                    words
                        .iter()
                        .map(|word| shell_word(word))
                        .collect::<Vec<_>>()
                        .join(" ")
                )
            },
        )
    }
}

/// What this machine's user could still close.
pub(crate) fn hints(files: &Files) -> Vec<Hint> {
    let one = |name: &str| git(files, &["config", "--global", "--get-all", name]).ok();
    let mut hints: Vec<Hint> = one("safe.bareRepository")
        .map(|values| git_hints(&values))
        .unwrap_or_default();
    if one("safe.directory").is_some_and(|values| values.lines().any(|value| value == "*")) {
        hints.push(EVERY_DIRECTORY);
    }
    hints.extend(
        editors()
            .iter()
            .filter_map(|file| read(file))
            .filter_map(|text| editor_hint(&text))
            .take(1),
    );
    hints
}

const BARE: Hint = Hint {
    setting: "safe.bareRepository",
    closes: "git would take no directory inside a project for a repository of its own, with settings that run programs",
    git: Some(&["config", "--global", "safe.bareRepository", "explicit"]),
};
const EVERY_DIRECTORY: Hint = Hint {
    setting: "safe.directory",
    closes: "git would run nothing that the settings of another user's repository name",
    git: Some(&[
        "config",
        "--global",
        "--unset-all",
        "safe.directory",
        r"^\*$",
    ]),
};
const WORKSPACE_TRUST: Hint = Hint {
    setting: "security.workspace.trust.enabled",
    closes: "the editor would ask before it runs tasks and extensions of a folder that it does not know",
    git: None,
};

/// What the values of `safe.bareRepository` leave open.
fn git_hints(values: &str) -> Vec<Hint> {
    if values.lines().last() == Some("explicit") {
        Vec::new()
    } else {
        vec![BARE]
    }
}

/// Whether an editor's settings (JSON with comments) disable workspace trust.
fn editor_hint(text: &str) -> Option<Hint> {
    let (_, rest) = text.split_once("\"security.workspace.trust.enabled\"")?;
    rest.trim_start()
        .strip_prefix(':')?
        .trim_start()
        .starts_with("false")
        .then_some(WORKSPACE_TRUST)
}

/// The settings of editors of the VS Code family.
fn editors() -> Vec<PathBuf> {
    let home = state_directory::home();
    let configuration =
        state_directory::variable("XDG_CONFIG_HOME").filter(|path| !path.is_empty());
    let configuration = configuration.map_or_else(|| home.join(".config"), PathBuf::from);
    ["Code", "Code - Insiders", "VSCodium", "Cursor"]
        .iter()
        .map(|name| configuration.join(name).join("User/settings.json"))
        .collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the user's settings, in neither root"
)]
fn read(path: &Path) -> Option<String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let mut text = String::new();
    let is_file = file.metadata().ok()?.is_file();
    (is_file && file.take(FILE_MAX).read_to_string(&mut text).is_ok()).then_some(text)
}

/// Asks about each setting that can be changed here, and changes those that the user accepts; returns the exit code.
pub(crate) fn fix(files: &Files) -> Result<u8, Failed> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Failed::invalid(
            "--fix asks before each change, and needs a terminal for it",
        ));
    }
    let hints = hints(files);
    if hints.is_empty() {
        print::result(b"nothing to set\n")?;
    }
    for hint in &hints {
        let Some(words) = hint.git else {
            print::result(format!("{}: {}\n", hint.closes, hint.remedy()).as_bytes())?;
            continue;
        };
        print::result(format!("{}\n  {}\n", hint.closes, hint.remedy()).as_bytes())?;
        if !pages::confirm("run this?")? {
            continue;
        }
        if let Some(backup) = back_up()? {
            print::result(format!("the settings before are in {}\n", backup.display()).as_bytes())?;
        }
        git(files, words)
            .map_err(|error| Failed::internal(format!("git did not set it: {error}")))?;
        print::result(b"done\n")?;
    }
    Ok(exit::OK)
}

/// Copies the user's git settings, if any, to a new file beside them.
fn back_up() -> Result<Option<PathBuf>, Failed> {
    let Some(file) = global_file() else {
        return Ok(None);
    };
    let failed = |error: io::Error| {
        Failed::internal(format!(
            "no copy of {} can be made: {error}",
            file.display()
        ))
    };
    let Some(text) = read(&file) else {
        return Err(failed(io::ErrorKind::InvalidData.into()));
    };
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut name = file.clone().into_os_string();
    name.push(format!(".lazaret-{}", time::compact(now.as_secs())));
    let backup = PathBuf::from(name);
    write_new(&backup, &text).map_err(failed)?;
    Ok(Some(backup))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the user's settings, in neither root"
)]
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?
        .write_all(text.as_bytes())
}

/// The file that `git config --global` changes, if it exists.
fn global_file() -> Option<PathBuf> {
    let named = |name: &str| {
        state_directory::variable(name)
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
    };
    if let Some(file) = named("GIT_CONFIG_GLOBAL") {
        return file.exists().then_some(file);
    }
    let home = named("HOME").unwrap_or_else(state_directory::home);
    let configuration = named("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
    [home.join(".gitconfig"), configuration.join("git/config")]
        .into_iter()
        .find(|file| file.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_host_setting_is_reported_with_its_command() {
        assert_eq!(git_hints("explicit\n"), []);
        assert_eq!(git_hints("explicit\nall\n"), [BARE]);
        assert_eq!(
            git_hints("")[0].remedy(),
            "git config --global safe.bareRepository explicit"
        );
        assert_eq!(
            EVERY_DIRECTORY.remedy(),
            r"git config --global --unset-all safe.directory '^\*$'"
        );
        let off = "{ // mine\n \"security.workspace.trust.enabled\" : false }";
        assert_eq!(editor_hint(off), Some(WORKSPACE_TRUST));
        assert_eq!(editor_hint(&off.replace("false", "true")), None);
        assert_eq!(editor_hint("{}"), None);
    }
}
