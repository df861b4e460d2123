//! Names that a profile opens although they are protected: `open` of `[profile.NAME]`.
//!
//! Only what is closed for writing can be opened, and only by a rule that says so (`opens`): not secrets, nor what would let a command
//! run a program on the host, or switch this sandbox off, before the user has done or seen anything. README.md argues which these are.

use crate::error::PolicyError;
use crate::open_fault::OpenFault;
use crate::value::{NamePattern, ValueError};
use policies_guard::names::{Matcher, ProtectedName, Protection};
use policies_guard::pattern::has_signs;
use serde::Deserialize;
use std::collections::BTreeSet;

/// One or more names between slashes, none of them a pattern: `.github/workflows`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct OpenedName(String);

impl OpenedName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for OpenedName {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        let checked = NamePattern::try_from(text)?;
        let text = checked.as_str();
        if has_signs(text) || text.starts_with('/') {
            Err(ValueError::OpenedName)
        } else {
            Ok(Self(text.to_owned()))
        }
    }
}

/// `names` without what `opened` names.
///
/// # Errors
/// One of `opened` is not protected, or may not be opened.
pub fn open(
    mut names: Vec<ProtectedName>,
    opened: &BTreeSet<OpenedName>,
    profile: &str,
) -> Result<Vec<ProtectedName>, PolicyError> {
    for OpenedName(path) in opened {
        let refused = |why| PolicyError::Open {
            profile: profile.to_owned(),
            name: path.clone(),
            why,
        };
        // Rules about the path are few; each is looked at alone.
        let (about, mut kept): (Vec<_>, Vec<_>) = names
            .into_iter()
            .map(|name| Ok((ends_at(&name, path)?, name)))
            .collect::<Result<Vec<_>, PolicyError>>()?
            .into_iter()
            .partition(|(end, _)| end.is_some());
        let whole = path.split('/').count();
        if about.is_empty() {
            return Err(refused(OpenFault::NotProtected));
        }
        for (end, name) in about {
            if name.protection == Protection::All {
                return Err(refused(OpenFault::Secret));
            }
            if !name.opens {
                return Err(refused(OpenFault::Never(name.why)));
            }
            if let Some(end) = end.filter(|end| *end < whole) {
                let above = path.split('/').take(end).collect::<Vec<_>>().join("/");
                return Err(refused(OpenFault::Below(above)));
            }
            for name in without(&name, path)? {
                kept.push((None, name));
            }
        }
        names = kept.into_iter().map(|(_, name)| name).collect();
    }
    Ok(names)
}

/// How many names of `path` lead to the end of this rule, if it is about the path.
fn ends_at(name: &ProtectedName, path: &str) -> Result<Option<usize>, PolicyError> {
    let matcher = Matcher::new(std::slice::from_ref(name))?;
    Ok(matcher
        .closings(path.as_bytes())
        .first()
        .map(|(count, _)| *count))
}

/// The rules that are left of one, without `path`: the other choices of its braces; and patterns with an exception.
fn without(name: &ProtectedName, path: &str) -> Result<Vec<ProtectedName>, PolicyError> {
    let mut left = Vec::new();
    for pattern in choices(&name.pattern) {
        let mut choice = ProtectedName {
            pattern,
            ..name.clone()
        };
        if ends_at(&choice, path)?.is_none() {
            left.push(choice);
            continue;
        }
        // Of a pattern everything else stays; a plain name is gone.
        if has_signs(&choice.pattern) {
            choice
                .except
                .extend(path.rsplit('/').next().map(str::to_owned));
            left.push(choice);
        }
    }
    Ok(left)
}

/// The patterns for which one with braces stands.
fn choices(pattern: &str) -> Vec<String> {
    let Some((start, end)) = braces(pattern) else {
        return vec![pattern.to_owned()];
    };
    let (before, inside, after) = (
        &pattern[..start],
        &pattern[start + 1..end],
        &pattern[end + 1..],
    );
    let (mut depth, mut from, mut parts) = (0usize, 0, Vec::new());
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&inside[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[from..]);
    parts
        .iter()
        .flat_map(|part| choices(&format!("{before}{part}{after}")))
        .collect()
}

/// The first braces of a pattern: the places of both.
fn braces(pattern: &str) -> Option<(usize, usize)> {
    let start = pattern.find('{')?;
    let mut depth = 0usize;
    for (at, byte) in pattern.bytes().enumerate().skip(start) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some((start, at));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Policies, PolicySource, SourceKind};

    fn resolve(profile: &str, more: &str) -> Result<crate::EffectivePolicy, PolicyError> {
        let text = format!("version = 1\n{more}\n[profile.own]\n{profile}\n");
        let own = PolicySource {
            name: "own".into(),
            kind: SourceKind::User,
            text,
        };
        Policies::load(vec![own]).unwrap().resolve(
            "own",
            &Host {
                home: "/home/u".into(),
                ..Host::default()
            },
        )
    }

    fn fault(name: &str) -> OpenFault {
        match resolve(&format!("open = ['{name}']"), "") {
            Err(PolicyError::Open { why, .. }) => why,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn a_name_is_opened_and_nothing_beside_it() {
        let names = ".github/workflows', '.vscode/settings.json', '.husky', 'uv.toml', '.forgejo/actions', 'x.code-workspace";
        let policy = resolve(&format!("open = ['{names}']"), "").unwrap();
        let shipped = resolve("", "").unwrap();
        let closed = |policy: &crate::EffectivePolicy, path: &str| {
            policy.matcher.protection(path.as_bytes()).is_some()
        };
        for open in [
            ".github/workflows/ci.yml",
            "sub/.github/workflows",
            ".vscode/settings.json",
            ".husky/pre-commit",
            "uv.toml",
            ".forgejo/actions/x",
            "x.code-workspace",
        ] {
            assert!(closed(&shipped, open) && !closed(&policy, open), "{open}");
        }
        for path in [
            ".github/actions/x",
            ".gitea/actions",
            ".forgejo/workflows",
            ".gitea/workflows",
            ".vscode/tasks.json",
            "y.code-workspace",
            ".git/config",
            ".env",
            ".yarnrc",
            ".claude/settings.json",
        ] {
            assert!(closed(&policy, path), "{path}");
        }
        assert_ne!(policy.digest, shipped.digest);
    }

    #[test]
    fn names_that_act_at_once_are_never_opened() {
        for name in [
            ".git/config",
            ".git/hooks",
            ".git/hooks/pre-commit",
            "x/.git/config",
            ".envrc",
            ".bashrc",
            ".claude",
            ".mcp.json",
            "opencode.json",
            ".lazaret",
            ".gdbinit",
            ".gitconfig",
            ".hg/hgrc",
            ".mise.toml",
            ".npmrc",
        ] {
            assert!(
                matches!(fault(name), OpenFault::Never(_)),
                "{name}: {:?}",
                fault(name)
            );
        }
        for name in [".env", "id_rsa", ".ssh", ".ssh/config", "credentials.json"] {
            assert_eq!(fault(name), OpenFault::Secret, "{name}");
        }
        assert_eq!(fault("src/main.rs"), OpenFault::NotProtected);
        assert_eq!(fault(".github"), OpenFault::NotProtected);
        assert_eq!(
            fault(".github/workflows/ci.yml"),
            OpenFault::Below(".github/workflows".into())
        );
    }

    #[test]
    fn name_that_a_policy_file_protects_is_not_opened() {
        let more = "[[protect]]\nnames = ['.github/workflows']\nprotection = 'write'\nwhy = 'the site says so'\n";
        let refused = resolve("open = ['.github/workflows']", more);
        assert!(
            matches!(refused, Err(PolicyError::Open { why: OpenFault::Never(why), .. }) if why.contains("site"))
        );
    }

    #[test]
    fn opened_name_with_wildcards_is_refused() {
        for text in [".github/*", "*", "{.npmrc,.env}", "", "/x", "../x", "a//b"] {
            assert!(OpenedName::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn choices_of_braces_are_all_found() {
        assert_eq!(choices("a"), ["a"]);
        assert_eq!(
            choices(".{a,b}/{c,d}.x"),
            [".a/c.x", ".a/d.x", ".b/c.x", ".b/d.x"]
        );
        assert_eq!(
            choices("{,.}x{,.{y,z}}"),
            ["x", "x.y", "x.z", ".x", ".x.y", ".x.z"]
        );
    }
}
