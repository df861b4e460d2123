//! Layer `environment`: a cell's environment is built from nothing.
//!
//! *Guarantees*: a variable exists because the policy names it; one whose name looks like a secret only if a profile
//! names it as its program's credential. *Does not*: inspect values. *Needs*: nothing. *Order*: before the session; the
//! executor's own block is overwritten. *Fails*: never. *Tested by*: `the_environment_has_no_secret`, corpus `ENV-*`.

use executor_spec::variables::Variables;
use policies::EnvironmentRules;
use policies::secret::looks_secret;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// Builds a cell's environment. `own` are our variables for the network and caches; `placeholders` are variables that hold one in place
/// of the user's value, or nothing; `visible` returns whether a cell can see a directory of `PATH`.
pub fn build(
    rules: &EnvironmentRules,
    ours: &Variables,
    own: Vec<(OsString, OsString)>,
    placeholders: &BTreeMap<String, Option<String>>,
    (home, tmp): (&Path, &Path),
    visible: impl Fn(&Path) -> bool,
) -> Vec<CString> {
    let mut built: BTreeMap<OsString, OsString> = passed(rules, ours).collect();
    built.extend(
        rules
            .set
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    built.retain(|name, _| !looks_secret(name));
    built.extend(credentials(rules, ours));
    for (name, placeholder) in placeholders {
        match placeholder {
            Some(placeholder) => built.insert(name.into(), placeholder.into()),
            None => built.remove(OsStr::new(name)),
        };
    }
    built.extend(own);
    built.insert("PATH".into(), search_path(rules, ours, visible));
    built.insert("HOME".into(), home.into());
    built.insert("TMPDIR".into(), tmp.into());
    built.insert("LAZARET".into(), "1".into());
    // Without it bash looks up the user database at every start, which costs a tenth of the start.
    built
        .entry("SHELL".into())
        .or_insert_with(|| "/bin/bash".into());
    built
        .into_iter()
        .filter_map(|(name, value)| entry(name, &value))
        .collect()
}

fn entry(name: OsString, value: &OsString) -> Option<CString> {
    let mut entry = name.into_vec();
    entry.push(b'=');
    entry.extend_from_slice(value.as_bytes());
    CString::new(entry).ok()
}

fn passed<'a>(
    rules: &'a EnvironmentRules,
    ours: &'a Variables,
) -> impl Iterator<Item = (OsString, OsString)> + 'a {
    let named = |name: &OsString| name.to_str().is_some_and(|name| rules.passes(name));
    ours.iter()
        .filter(move |(name, _)| named(name))
        .map(|(name, value)| (name.clone(), value.clone()))
}

/// The variables that a profile names as its program's own secrets.
fn credentials(
    rules: &EnvironmentRules,
    ours: &Variables,
) -> impl Iterator<Item = (OsString, OsString)> {
    let held = rules
        .credentials
        .iter()
        .filter_map(|name| ours.get_key_value(&OsString::from(name)));
    held.map(|(name, value)| (name.clone(), value.clone()))
}

/// A cell's `PATH`: the policy's directories, then those of the executor's own `PATH`, as far as a cell can see them.
pub fn search_path(
    rules: &EnvironmentRules,
    ours: &Variables,
    visible: impl Fn(&Path) -> bool,
) -> OsString {
    let own = ours
        .get(&OsString::from("PATH"))
        .cloned()
        .unwrap_or_default();
    let own: Vec<PathBuf> = std::env::split_paths(&own).collect();
    let standard: Vec<PathBuf> = std::env::split_paths(PATH_DEFAULT).collect();
    let mut path: Vec<PathBuf> = Vec::new();
    for directory in rules.path.iter().chain(&own).chain(&standard) {
        if directory.is_absolute() && visible(directory) && !path.contains(directory) {
            path.push(directory.clone());
        }
    }
    std::env::join_paths(path).unwrap_or_else(|_| PATH_DEFAULT.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn built(pass: &[&str], ours: &[(&str, &str)]) -> Vec<String> {
        let rules = EnvironmentRules {
            pass: pass.iter().map(|name| name.to_string()).collect(),
            set: BTreeMap::from([("CARGO_NET_OFFLINE".into(), "true".into())]),
            path: vec!["/tool/bin".into()],
            ..EnvironmentRules::default()
        };
        let ours = ours
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let seen = |path: &Path| path.starts_with("/usr") || path.starts_with("/tool");
        build(
            &rules,
            &ours,
            vec![],
            &BTreeMap::new(),
            (Path::new("/home/u"), Path::new("/tmp")),
            seen,
        )
        .into_iter()
        .map(|entry| entry.into_string().unwrap())
        .collect()
    }

    #[test]
    fn only_what_is_named_is_taken_over() {
        let got = built(
            &["LANG", "LC_*"],
            &[("LANG", "C"), ("LC_ALL", "C"), ("OTHER", "x")],
        );
        assert!(got.contains(&"LANG=C".into()) && got.contains(&"LC_ALL=C".into()));
        assert!(!got.iter().any(|entry| entry.starts_with("OTHER")));
    }

    #[test]
    fn names_of_secrets_never_pass_even_when_named() {
        let ours = [
            ("MY_API_KEY", "s"),
            ("GITHUB_TOKEN", "s"),
            ("aws_secret", "s"),
            ("DATABASE_URL", "s"),
        ];
        assert!(
            !built(&["*"], &ours)
                .iter()
                .any(|entry| entry.ends_with("=s"))
        );
    }

    #[test]
    fn a_credential_passes_by_its_whole_name() {
        let rules = EnvironmentRules {
            credentials: ["ONE_API_KEY".into()].into(),
            ..Default::default()
        };
        let ours =
            ["ONE_API_KEY", "ONE_API_KEY_2", "TWO_API_KEY"].map(|name| (name.into(), "s".into()));
        let built = build(
            &rules,
            &ours.into(),
            vec![],
            &BTreeMap::new(),
            (Path::new("/h"), Path::new("/t")),
            |_| false,
        );
        let secrets: Vec<_> = built
            .iter()
            .filter(|entry| entry.to_bytes().ends_with(b"=s"))
            .collect();
        assert_eq!(secrets, [c"ONE_API_KEY=s"]);
    }

    #[test]
    fn a_placeholder_is_in_place_of_the_users_value() {
        let names = ["ONE", "TWO_TOKEN", "THREE_TOKEN"];
        let rules = EnvironmentRules {
            pass: vec!["ONE".into()],
            credentials: names.map(String::from).into(),
            ..Default::default()
        };
        let ours = names.map(|name| (name.into(), "s".into())).into();
        let placeholders = [
            ("ONE".into(), None),
            ("TWO_TOKEN".into(), Some("p".into())),
            ("FOUR_TOKEN".into(), Some("p".into())),
        ];
        let private = (Path::new("/h"), Path::new("/t"));
        let built = build(&rules, &ours, vec![], &placeholders.into(), private, |_| {
            false
        });
        let has = |entry: &CStr| built.iter().any(|built| **built == *entry);
        assert!(has(c"TWO_TOKEN=p") && has(c"FOUR_TOKEN=p") && has(c"THREE_TOKEN=s"));
        assert!(
            !built
                .iter()
                .any(|entry| entry.to_bytes().starts_with(b"ONE="))
        );
    }

    #[test]
    fn the_path_holds_what_a_cell_can_see() {
        let got = built(
            &[],
            &[("PATH", "/opt/x:/usr/bin:relative:/usr/bin:/home/u/bin")],
        );
        let path = got.iter().find(|entry| entry.starts_with("PATH=")).unwrap();
        assert_eq!(
            path,
            "PATH=/tool/bin:/usr/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin"
        );
    }
}
