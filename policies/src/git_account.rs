//! Account settings that git in a cell needs: whose commits it makes, which files it ignores, how the user likes it to work, which filters
//! files go through, and which settings have no effect there.
//!
//! Comes from files of the user's. Settings that decide a name are read strictly: a commit under the wrong name would be worse than none. Settings that
//! are only named or closed are read line by line, and rather find one too many.

use crate::git_config::{plain, plain_settings};
use std::collections::BTreeSet;

/// Maximum bytes of a preference.
const PREFERENCE_MAX: usize = 200;

/// Settings, in lower case, by which people like git to work, and whose values are words, numbers or names of branches. None names a
/// program, a file, a host or another setting's section, and none makes git write its index or its objects in another form.
/// Source: git, Documentation/config/*.adoc.
const PREFERENCES: [&str; 63] = [
    "am.threeway",
    "apply.whitespace",
    "blame.date",
    "branch.autosetupmerge",
    "branch.autosetuprebase",
    "branch.sort",
    "checkout.defaultremote",
    "checkout.guess",
    "clone.defaultremotename",
    "color.ui",
    "column.ui",
    "commit.cleanup",
    "commit.status",
    "commit.verbose",
    "core.abbrev",
    "core.autocrlf",
    "core.eol",
    "core.quotepath",
    "core.safecrlf",
    "core.whitespace",
    "diff.algorithm",
    "diff.colormoved",
    "diff.context",
    "diff.indentheuristic",
    "diff.interhunkcontext",
    "diff.mnemonicprefix",
    "diff.noprefix",
    "diff.relative",
    "diff.renamelimit",
    "diff.renames",
    "diff.submodule",
    "fetch.prune",
    "fetch.prunetags",
    "grep.linenumber",
    "grep.patterntype",
    "init.defaultbranch",
    "log.abbrevcommit",
    "log.date",
    "log.decorate",
    "log.follow",
    "merge.conflictstyle",
    "merge.ff",
    "merge.renamelimit",
    "merge.renames",
    "merge.stat",
    "pull.ff",
    "pull.rebase",
    "push.autosetupremote",
    "push.default",
    "push.followtags",
    "push.useforceifincludes",
    "rebase.abbreviatecommands",
    "rebase.autosquash",
    "rebase.autostash",
    "rebase.missingcommitscheck",
    "rebase.stat",
    "rebase.updaterefs",
    "stash.showpatch",
    "stash.showstat",
    "status.branch",
    "status.short",
    "status.showuntrackedfiles",
    "tag.sort",
];

/// A file of the account's with a pattern on each line, by the setting that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PatternFile {
    /// Patterns that git ignores in every repository: `core.excludesFile`.
    Ignore,
    /// Attributes of files in every repository: `core.attributesFile`.
    Attributes,
}

impl PatternFile {
    /// The key in the spelling that people know.
    pub fn key(self) -> &'static str {
        match self {
            Self::Ignore => "core.excludesFile",
            Self::Attributes => "core.attributesFile",
        }
    }
}

/// One thing that a file says to git in cells, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountSetting {
    Name(String),
    Email(String),
    /// `key`, in lower case, is one of those by which people like git to work.
    Preference {
        /// The section and the name.
        key: &'static str,
        /// The value without quotes and comment.
        value: String,
    },
    /// Patterns of files count here too.
    Patterns {
        /// The setting that names the file.
        kind: PatternFile,
        /// The path as the setting has it, which may be empty; `None` if more of the format would have to be understood.
        path: Option<String>,
    },
    /// Another file counts here: always, or under a condition (`gitdir:~/work/`).
    Include {
        /// As git reads it, if it is not met always.
        condition: Option<String>,
        /// The path as the setting has it.
        path: String,
    },
}

/// Settings for cells in a file; `None` if more of the format would have to be understood.
pub fn git_account(bytes: &[u8]) -> Option<Vec<AccountSetting>> {
    let mut settings = Vec::new();
    plain_settings(bytes, |section, name, value| {
        match (section, name) {
            (("user", None), "name") => settings.push(AccountSetting::Name(plain(value)?)),
            (("user", None), "email") => settings.push(AccountSetting::Email(plain(value)?)),
            (("include", None), "path") => settings.push(AccountSetting::Include {
                condition: None,
                path: plain(value)?,
            }),
            (("includeif", Some(condition)), "path") => settings.push(AccountSetting::Include {
                condition: Some(condition.to_owned()),
                path: plain(value)?,
            }),
            ((section, None), name) => settings.extend(preference(section, name, value)),
            ((_, Some(_)), _) => {}
        }
        Some(())
    })?;
    Some(settings)
}

/// Settings for cells in a file that [`git_account`] does not understand: without the identity, and without what counts under conditions.
pub fn git_preferences(bytes: &[u8]) -> Vec<AccountSetting> {
    let text = String::from_utf8_lossy(bytes);
    let mut settings = Vec::new();
    by_line(&text, |section, name, value| match (section, name) {
        ("include", "path") => settings.extend(plain(value).map(|path| AccountSetting::Include {
            condition: None,
            path,
        })),
        (section, name) => settings.extend(preference(section, name, value)),
    });
    settings
}

/// A setting by which people like git to work, or one with patterns.
fn preference(section: &str, name: &str, value: &str) -> Option<AccountSetting> {
    let key = format!("{section}.{name}");
    let kinds = [PatternFile::Ignore, PatternFile::Attributes];
    if let Some(kind) = kinds
        .into_iter()
        .find(|kind| kind.key().eq_ignore_ascii_case(&key))
    {
        let path = plain(value);
        return Some(AccountSetting::Patterns { kind, path });
    }
    let at = PREFERENCES.binary_search(&key.as_str()).ok()?;
    let is_quoted = value.contains(['"', '\\']);
    let end = value.find(['#', ';']).filter(|_| !is_quoted);
    let value = plain(value[..end.unwrap_or(value.len())].trim_end())?;
    let is_word = |c: char| c.is_alphanumeric() || " -_./,:+=".contains(c);
    let is_fit = value.len() <= PREFERENCE_MAX && value.chars().all(is_word);
    is_fit.then(|| AccountSetting::Preference {
        key: PREFERENCES[at],
        value,
    })
}

/// The paths of all files that a file includes, under whatever condition.
pub fn git_includes(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut includes = Vec::new();
    by_line(&text, |section, name, value| {
        if section.starts_with("include") && name == "path" {
            includes.push(value.trim_matches('"').to_owned());
        }
    });
    includes
}

/// Settings of an account by which commits are made otherwise than in a cell, each with its key.
pub fn git_commit_settings(bytes: &[u8]) -> BTreeSet<&'static str> {
    let text = String::from_utf8_lossy(bytes);
    let mut found = BTreeSet::new();
    by_line(&text, |section, name, value| {
        let is_off = ["false", "no", "off", "0"]
            .iter()
            .any(|off| value.eq_ignore_ascii_case(off));
        match (section, name) {
            ("core", "hookspath") if !value.is_empty() => drop(found.insert("core.hooksPath")),
            ("commit", "gpgsign") if !is_off => drop(found.insert("commit.gpgsign")),
            ("tag", "gpgsign") if !is_off => drop(found.insert("tag.gpgsign")),
            (_, _) => {}
        }
    });
    found
}

/// Gives `take` each line that looks like a setting: section and name in lower case, and the value.
fn by_line(text: &str, mut take: impl FnMut(&str, &str, &str)) {
    let mut section = String::new();
    for line in text.lines() {
        let mut body = line.trim();
        if let Some((header, rest)) = body.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let name = header.split([' ', '\t', '"', '.']).next();
            section = name.unwrap_or_default().to_ascii_lowercase();
            body = rest.trim();
        }
        let (name, value) = body.split_once('=').unwrap_or((body, ""));
        let name = name.trim().to_ascii_lowercase();
        if !name.is_empty() && !name.starts_with(['#', ';']) {
            take(&section, &name, value.trim());
        }
    }
}

/// The names of the filter drivers of which a file says anything: each `[filter "NAME"]` or `[filter.NAME]`. Reads headers only, and rather
/// finds one too many.
pub fn git_filter_drivers(bytes: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(bytes);
    let name_of = |line: &str| {
        let header = line.trim_start().strip_prefix('[')?.trim_start();
        let (section, rest) = header.split_at_checked("filter".len())?;
        let name = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?.0.to_owned(),
            // In this form git takes the name in lower case.
            None => rest
                .strip_prefix('.')?
                .split_once(']')?
                .0
                .to_ascii_lowercase(),
        };
        let is_plain = |name: &str| !name.contains('\\') && !name.chars().any(char::is_control);
        Some(name).filter(|name| section.eq_ignore_ascii_case("filter") && is_plain(name))
    };
    text.lines().filter_map(name_of).collect()
}

#[cfg(test)]
mod tests {
    use super::AccountSetting::{Email, Include, Name, Patterns, Preference};
    use super::*;

    fn include(condition: Option<&str>, path: &str) -> AccountSetting {
        Include {
            condition: condition.map(str::to_owned),
            path: path.to_owned(),
        }
    }

    #[test]
    fn an_identity_is_read_where_a_file_says_it_plainly() {
        let (name, email) = (
            |text: &str| Name(text.to_owned()),
            |text: &str| Email(text.to_owned()),
        );
        for (text, want) in [
            (
                "[user]\n\tname = A \u{c9}\n\temail = a@h.invalid\n[alias]\n\tx = !a; b\n",
                Some(vec![name("A \u{c9}"), email("a@h.invalid")]),
            ),
            (
                "[User]\nName=\"A B\"\nEMAIL=x\n[user]\nname = C\n",
                Some(vec![name("A B"), email("x"), name("C")]),
            ),
            ("# [user]\n[core]\n\teditor = vim # x\n", Some(vec![])),
            ("", Some(vec![])),
            (
                "[include]\npath = x\n[user]\nname = A\n[includeIf \"gitdir:~/w/\"]\n\tpath = \"~/y\"\n",
                Some(vec![
                    include(None, "x"),
                    name("A"),
                    include(Some("gitdir:~/w/"), "~/y"),
                ]),
            ),
            ("[includeIf \"a\\\\b\"]\npath = x\n", None),
            ("[include]\npath = \"a\\\\b\"\n", None),
            ("[user]\nname = A \\\nB\n", None),
            ("[user]\nname = \"A\" # x\n", None),
            ("[user] name = A\n", None),
        ] {
            assert_eq!(git_account(text.as_bytes()), want, "{text}");
        }
    }

    fn likes(key: &'static str, value: &str) -> AccountSetting {
        Preference {
            key,
            value: value.to_owned(),
        }
    }

    #[test]
    fn preferences_run_and_open_nothing() {
        assert!(PREFERENCES.is_sorted());
        let text = "[init]\n\tdefaultBranch = main # x\n[Pull]\nREBASE=\"true\"\n[core]\n\tpager = less\n\teditor = vim\n\tautocrlf = input ; x\n\
            [push \"x\"]\n\tdefault = current\n[tag]\n\tsort = $(x)\n[alias]\n\tx = !y\n[url \"a\"]\n\tinsteadOf = b\n";
        let want = [
            likes("init.defaultbranch", "main"),
            likes("pull.rebase", "true"),
            likes("core.autocrlf", "input"),
        ];
        assert_eq!(git_account(text.as_bytes()).unwrap(), want);
        let limited = |length: usize| {
            let text = format!("[branch]\nsort = {}\n", "x".repeat(length));
            git_account(text.as_bytes()).unwrap().len()
        };
        assert_eq!(
            [limited(PREFERENCE_MAX), limited(PREFERENCE_MAX + 1)],
            [1, 0]
        );
    }

    /// An alias that is hard to read is common in people's settings.
    #[test]
    fn failed_strict_reading_still_gives_ignore_patterns() {
        let text = "[user]\n\tname = A\n[alias]\n\tx = \"!f() { \\\n\t}\"\n[core]\n\texcludesFile = ~/i\n\tattributesfile = \"a\\\\b\"\n\
            [include]\npath = m\n[includeIf \"onbranch:m\"]\npath = n\n";
        assert_eq!(git_account(text.as_bytes()), None);
        let patterns = |kind, path: Option<&str>| Patterns {
            kind,
            path: path.map(str::to_owned),
        };
        let want = [
            patterns(PatternFile::Ignore, Some("~/i")),
            patterns(PatternFile::Attributes, None),
            include(None, "m"),
        ];
        assert_eq!(git_preferences(text.as_bytes()), want);
    }

    #[test]
    fn includes_are_found_whatever_else_a_file_says() {
        let text = "[alias]\n\tx = !a \\\n b\n[include] path = a\n[IncludeIf \"onbranch:m\"]\n  Path=\"b c\"\n[core]\npath = no\n";
        assert_eq!(git_includes(text.as_bytes()), ["a", "b c"]);
    }

    #[test]
    fn settings_that_change_commits_are_named() {
        let all = |text: &str| {
            git_commit_settings(text.as_bytes())
                .into_iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(
            all("[core]\n\thooksPath = ~/h\n[commit]\n\tgpgSign\n[tag]\ngpgsign = true\n"),
            ["commit.gpgsign", "core.hooksPath", "tag.gpgsign"]
        );
        assert_eq!(
            all(
                "[commit]\ngpgsign = no\n[core]\n#hooksPath = x\nhooksPath =\n[gpg]\nformat = ssh\n"
            ),
            [""; 0]
        );
    }

    #[test]
    fn filter_drivers_are_found_in_each_form_of_their_header() {
        let text = "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n[Filter \"a b\"] clean = x\n [filter.Crypt]\n\tsmudge = y\n\
            [filters \"no\"]\n[core]\n\tx = [filter \"no\"]\n[filter]\n\tclean = z\n[filter \"b\\\\c\"]\n";
        let found: Vec<_> = git_filter_drivers(text.as_bytes()).into_iter().collect();
        assert_eq!(found, ["a b", "crypt", "lfs"]);
    }
}
