//! Finds what the settings in a git configuration file name: programs, files, more settings.
//!
//! The text is untrusted. A library parses it, and nothing here acts on it: the result goes to the broker,
//! which closes the named paths if they lie in a root. Naming too much closes too much, and opens nothing.

use executor_spec::worker::{KEY_MAX, SETTINGS_MAX, Setting, SettingKind};
use gix_config::File;
use gix_config::file::Metadata;
use gix_config::file::init::Options;
use std::collections::BTreeSet;

/// Maximum number of different names in a section: each is searched for in all of it.
const NAMES_MAX: usize = 1024;

/// Sections whose settings name no file that is executed or leads to one that is.
const HARMLESS_SECTIONS: [&str; 14] = [
    "advice",
    "author",
    "blame",
    "branch",
    "color",
    "column",
    "commit",
    "committer",
    "extensions",
    "i18n",
    "log",
    "mailmap",
    "status",
    "user",
];

/// Harmless settings in other sections.
const HARMLESS: [&str; 4] = [
    "core.excludesfile",
    "core.worktree",
    "init.defaultbranch",
    "remote.fetch",
];

/// Settings that name files and directories: git-config(1), githooks(5), git-init(1).
const PATHS: [&str; 3] = ["core.attributesfile", "core.hookspath", "init.templatedir"];

/// Names, or ends of names, of settings that are command lines: git-config(1), gitattributes(5), gitcredentials(7),
/// git-difftool(1), git-mergetool(1), git-web--browse(1), git-help(1), git-interpret-trailers(1), git-send-email(1).
const COMMANDS: [&str; 19] = [
    "askpass",
    "clean",
    "cmd",
    "command",
    "difffilter",
    "driver",
    "editor",
    "external",
    "fsmonitor",
    "gitproxy",
    "helper",
    "hook",
    "pager",
    "path",
    "process",
    "program",
    "smudge",
    "textconv",
    "update",
];

/// What `text` names. A text that the library cannot parse is taken line by line: git may read it.
pub(crate) fn settings(text: &[u8]) -> Vec<Setting> {
    let mut found = parsed(text).unwrap_or_else(|| lines(text));
    found.truncate(SETTINGS_MAX);
    found
}

fn parsed(text: &[u8]) -> Option<Vec<Setting>> {
    let file = File::from_bytes_no_includes(text, Metadata::default(), Options::default()).ok()?;
    let mut found = Vec::new();
    for section in file.sections() {
        let (header, body) = (section.header(), section.body());
        let first = String::from_utf8_lossy(header.name()).to_ascii_lowercase();
        let sub = header
            .subsection_name()
            .map(|name| String::from_utf8_lossy(name).into_owned());
        let names: BTreeSet<String> = body
            .value_names()
            .map(|name| name.to_ascii_lowercase())
            .collect();
        if names.len() > NAMES_MAX {
            return None;
        }
        for name in names {
            for value in body.values(&name) {
                if found.len() == SETTINGS_MAX {
                    return None;
                }
                let Some(kind) = kind((&first, sub.as_deref()), &name, &value) else {
                    continue;
                };
                let key = [Some(first.as_str()), sub.as_deref(), Some(name.as_str())];
                let key = key.into_iter().flatten().collect::<Vec<_>>().join(".");
                let key = key.chars().take(KEY_MAX / 4).collect();
                found.push(Setting {
                    key,
                    kind,
                    value: value.to_vec(),
                });
            }
        }
    }
    Some(found)
}

/// How a setting names files; `None` if it does not.
fn kind((section, sub): (&str, Option<&str>), name: &str, value: &[u8]) -> Option<SettingKind> {
    let key = format!("{section}.{name}");
    let include = section == "include" && sub.is_none() || section == "includeif";
    if include && name == "path" {
        return Some(SettingKind::Include);
    }
    if value.is_empty() || HARMLESS_SECTIONS.contains(&section) || HARMLESS.contains(&key.as_str())
    {
        return None;
    }
    if PATHS.contains(&key.as_str()) {
        return Some(SettingKind::Path);
    }
    let runs = match section {
        "alias" => value.trim_ascii_start().starts_with(b"!"),
        "pager" => true,
        _ => COMMANDS.iter().any(|end| name.ends_with(end)),
    };
    Some(if runs {
        SettingKind::Command
    } else {
        SettingKind::Other
    })
}

/// Takes each line's text after its first `=`: as an include if it may be one, and as words.
fn lines(text: &[u8]) -> Vec<Setting> {
    let lines = text.split(|byte| matches!(byte, b'\n' | b'\r'));
    let settings = lines.filter_map(|line| {
        let equals = line.iter().position(|byte| *byte == b'=')?;
        let value = line[equals + 1..].trim_ascii();
        let name = line[..equals].trim_ascii().to_ascii_lowercase();
        let value = value.strip_prefix(b"\"").unwrap_or(value);
        let value = value.strip_suffix(b"\"").unwrap_or(value);
        let kind = if name.ends_with(b"path") {
            SettingKind::Include
        } else {
            SettingKind::Command
        };
        Some(Setting {
            key: "an unreadable line".into(),
            kind,
            value: value.to_vec(),
        })
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use SettingKind::{Command, Include, Other, Path};

    fn found(text: &str) -> Vec<(String, SettingKind, String)> {
        let plain = |setting: Setting| {
            (
                setting.key,
                setting.kind,
                String::from_utf8_lossy(&setting.value).into_owned(),
            )
        };
        settings(text.as_bytes()).into_iter().map(plain).collect()
    }

    #[test]
    fn every_spelling_of_a_git_setting_that_runs_or_reads_is_found() {
        for (text, key, kind, value) in [
            (
                "[core]\n\thooksPath = tools/git-hooks\n",
                "core.hookspath",
                Path,
                "tools/git-hooks",
            ),
            (
                "[CORE]\nHOOKSPATH=\"a \\\"b\\\"\" # c",
                "core.hookspath",
                Path,
                "a \"b\"",
            ),
            (
                "[core]\nfsmonitor = a\\\nb ; c\n",
                "core.fsmonitor",
                Command,
                "ab",
            ),
            (
                "[core] sshCommand = ./ssh",
                "core.sshcommand",
                Command,
                "./ssh",
            ),
            ("[include]\npath = ../x", "include.path", Include, "../x"),
            (
                "[includeIf \"gitdir:~/a/\"]\npath = ../x",
                "includeif.gitdir:~/a/.path",
                Include,
                "../x",
            ),
            (
                "[filter \"F\"]\nclean = tools/f %f",
                "filter.F.clean",
                Command,
                "tools/f %f",
            ),
            ("[filter.f]\nprocess = x", "filter.f.process", Command, "x"),
            (
                "[diff \"x\"]\ntextconv = t",
                "diff.x.textconv",
                Command,
                "t",
            ),
            ("[diff]\nexternal = t", "diff.external", Command, "t"),
            (
                "[merge \"x\"]\ndriver = d %A",
                "merge.x.driver",
                Command,
                "d %A",
            ),
            (
                "[credential \"https://h\"]\nhelper = !x",
                "credential.https://h.helper",
                Command,
                "!x",
            ),
            (
                "[gpg \"ssh\"]\nprogram = g",
                "gpg.ssh.program",
                Command,
                "g",
            ),
            ("[alias]\nx = !./y", "alias.x", Command, "!./y"),
            ("[alias]\nx = log", "alias.x", Other, "log"),
            ("[pager]\nlog = less", "pager.log", Command, "less"),
            ("[sequence]\neditor = e", "sequence.editor", Command, "e"),
            ("[hook \"x\"]\ncommand = c", "hook.x.command", Command, "c"),
            ("[new]\nthing = tools/x", "new.thing", Other, "tools/x"),
        ] {
            assert_eq!(
                found(text),
                [(key.to_owned(), kind, value.to_owned())],
                "{text}"
            );
        }
        let harmless = "[user]\nname = a\n[core]\nworktree = ../x\nexcludesFile = x\n[branch \"m\"]\nmerge = refs/heads/m\n";
        assert!(found(harmless).is_empty());
    }

    /// Every value is found that git itself reports.
    #[test]
    fn reader_agrees_with_git_config() {
        let folder = tempfile::tempdir().unwrap();
        for (number, text) in [
            "[core]\n\tfsmonitor = \"a b\" c\n\tfsmonitor=x;y\n[core]fsmonitor = z\n",
            "\u{feff}[core]\nfsmonitor = x\n",
            "[core]\r\nfsmonitor = x\r\n",
            "[core]\nfsmonitor = \"a#b\" # c\nfsmonitor = a\\tb\n",
            "[a \"b\\\"c\"]\ncommand = x\n[a.B]\ncommand = y\n",
            "# c\n; d\n[core] ; e\n[core]\nfsmonitor = \\\n  x\n",
            "[core]\nfsmonitor = \"a\\\nb\"\nfsmonitor\t=\tx  y  \n",
        ]
        .into_iter()
        .enumerate()
        {
            let file = folder.path().join(number.to_string());
            std::fs::write(&file, text).unwrap();
            let git = std::process::Command::new("git")
                .args(["config", "-z", "--list", "-f"])
                .arg(&file)
                .output();
            let git = String::from_utf8(git.unwrap().stdout).unwrap();
            let mut theirs: Vec<&str> = git
                .split_terminator('\0')
                .filter_map(|line| Some(line.split_once('\n')?.1))
                .collect();
            let mut ours: Vec<String> = found(text).into_iter().map(|(.., value)| value).collect();
            theirs.sort_unstable();
            ours.sort_unstable();
            assert_eq!(ours, theirs, "{text:?}");
            assert!(!theirs.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn malformed_git_settings_are_read_line_by_line() {
        let found = found("[core\nhooksPath = \"a\"\nx = tools/y\n");
        let kinds: Vec<_> = found
            .iter()
            .map(|(_, kind, value)| (*kind, value.as_str()))
            .collect();
        assert_eq!(kinds, [(Include, "a"), (Command, "tools/y")]);
    }

    #[test]
    fn no_more_than_the_bound_is_found() {
        let many = |count: usize| "[core]\n".to_owned() + &"fsmonitor = x\n".repeat(count);
        assert_eq!(found(&many(SETTINGS_MAX)).len(), SETTINGS_MAX);
        assert_eq!(found(&many(SETTINGS_MAX + 1)).len(), SETTINGS_MAX);
        let names = |count: usize| {
            "[a]\n".to_owned()
                + &(0..count)
                    .map(|n| format!("n{n} = x.y\n"))
                    .collect::<String>()
        };
        assert_eq!(found(&names(NAMES_MAX))[0].0, "a.n0");
        assert_eq!(found(&names(NAMES_MAX + 1))[0].0, "an unreadable line");
    }

    /// Texts that the broker skips would name no path here either.
    #[test]
    fn settings_that_the_broker_skips_name_no_path() {
        let known = PATHS
            .iter()
            .chain(&HARMLESS)
            .filter_map(|key| key.split_once('.'));
        let includes = [
            ("include", "path"),
            ("includeif \"onbranch:m\"", "path"),
            ("new", "thing"),
        ];
        let commands = COMMANDS
            .iter()
            .flat_map(|end| [("core", *end), ("credential", *end), ("a \"b\"", *end)]);
        let mut judged = 0;
        for (section, name) in known.chain(includes).chain(commands) {
            for value in [
                "word", "a-b_c", "word.sh", "a/b", "~", "..", "!x", "a b", "\"x\"",
            ] {
                let text = format!("[{section}]\n{name} = {value}\n");
                if !policies::names_no_path(text.as_bytes()) {
                    continue;
                }
                judged += 1;
                for Setting { kind, value, .. } in settings(text.as_bytes()) {
                    let plain = value
                        .iter()
                        .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
                    assert!(kind == Command || kind == Other, "{text}");
                    assert!(
                        plain || kind == Command && value == b"word.sh" || value == b"..",
                        "{text}"
                    );
                }
            }
        }
        assert!(judged > 100, "{judged}");
    }
}
