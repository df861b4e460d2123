//! Account settings that git in a cell needs: whose commits it makes, which filters files go through, and which settings
//! have no effect there.
//!
//! Comes from files of the user's. What decides a name is read strictly: a commit under the wrong name would be worse than none. What is
//! only named or closed is read by its lines, and rather finds one too many.

use crate::git_config::{plain, plain_settings};
use std::collections::BTreeSet;

/// One thing that a file says about the identity, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentitySetting {
    /// `user.name`
    Name(String),
    /// `user.email`
    Email(String),
    /// Another file counts here: always, or under a condition (`gitdir:~/work/`).
    Include {
        /// As git reads it, if it is not met always.
        condition: Option<String>,
        /// The path as the setting has it.
        path: String,
    },
}

/// Identity settings in a file; `None` if more of the format would have to be understood.
pub fn git_identity(bytes: &[u8]) -> Option<Vec<IdentitySetting>> {
    let mut settings = Vec::new();
    plain_settings(bytes, |section, name, value| {
        match (section, name) {
            (("user", None), "name") => settings.push(IdentitySetting::Name(plain(value)?)),
            (("user", None), "email") => settings.push(IdentitySetting::Email(plain(value)?)),
            (("include", None), "path") => settings.push(IdentitySetting::Include {
                condition: None,
                path: plain(value)?,
            }),
            (("includeif", Some(condition)), "path") => settings.push(IdentitySetting::Include {
                condition: Some(condition.to_owned()),
                path: plain(value)?,
            }),
            (_, _) => {}
        }
        Some(())
    })?;
    Some(settings)
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
    use super::IdentitySetting::{Email, Include, Name};
    use super::*;

    fn include(condition: Option<&str>, path: &str) -> IdentitySetting {
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
            assert_eq!(git_identity(text.as_bytes()), want, "{text}");
        }
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
