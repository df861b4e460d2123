//! Exceptions from a directory that a profile grants: data of servers and files with tokens that lie among programs.
//!
//! The profile's patterns (`except`) are looked for when a session opens, in directories of other people's programs: so the work is bounded,
//! and a directory with too much in it is closed as a whole. What a further grant names is granted all the same.

use crate::protected::Discovery;
use executor_spec::also_closed::{AlsoClosed, WhyClosed};
use executor_spec::pins::{Pin, PinMode};
use executor_spec::sandbox::{Rooted, ViewKind};
use policies::PathGrant;
use policies_guard::Protection;
use policies_guard::pattern::NamePattern;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most entries of directories that are looked at for one grant.
const ENTRIES_MAX: usize = 4096;

/// Adds to `found` what is not granted, as places that nobody reads.
pub fn close(found: &mut Discovery, spec: &Rooted) {
    for (path, grant) in excepted(&spec.policy.grants) {
        let shown = |view: &executor_spec::sandbox::View| {
            view.kind == ViewKind::System && path.starts_with(&view.path)
        };
        let Some(metadata) = fs::symlink_metadata(&path)
            .ok()
            .filter(|_| spec.views.iter().any(shown))
        else {
            continue;
        };
        // Under another hidden place there is nothing to mount over.
        if found.objects.protection_of_place(&path) == Some(Protection::All) {
            continue;
        }
        found.objects.places.insert(path.clone(), Protection::All);
        found.pins.push(Pin {
            path: path.clone(),
            mode: PinMode::Hidden {
                directory: metadata.is_dir(),
            },
        });
        found.also_closed.push(AlsoClosed {
            path,
            why: WhyClosed::NotGranted(grant),
        });
    }
}

/// The existing paths that are not granted, without links, each with its grant.
fn excepted(grants: &[PathGrant]) -> BTreeMap<PathBuf, PathBuf> {
    let mut excepted = BTreeMap::new();
    for grant in grants.iter().filter(|grant| !grant.except.is_empty()) {
        let Ok(root) = fs::canonicalize(&grant.path) else {
            continue;
        };
        let mut left = ENTRIES_MAX;
        let mut paths = Vec::new();
        for pattern in &grant.except {
            let names: Vec<&str> = pattern.split('/').collect();
            expand(&root, &names, &mut left, &mut paths);
        }
        let is_granted = |path: &Path| {
            grants
                .iter()
                .any(|other| other.path != grant.path && other.path.starts_with(path))
        };
        let real = paths.iter().filter_map(|path| fs::canonicalize(path).ok());
        let inside = real.filter(|path| *path != root && !is_granted(path));
        excepted.extend(inside.map(|path| (path, grant.path.clone())));
    }
    excepted
}

/// Adds the paths below `directory` that match `names`; `directory` itself if it has more entries than may be looked at, or cannot be listed.
fn expand(directory: &Path, names: &[&str], left: &mut usize, paths: &mut Vec<PathBuf>) {
    let Some((name, rest)) = names.split_first() else {
        return paths.push(directory.to_owned());
    };
    if !name.contains(['*', '?', '[', '{']) {
        let path = directory.join(name);
        if path.symlink_metadata().is_ok() {
            expand(&path, rest, left, paths);
        }
        return;
    }
    let Ok(pattern) = NamePattern::parse(name) else {
        return paths.push(directory.to_owned());
    };
    let Ok(entries) = fs::read_dir(directory) else {
        if directory.is_dir() {
            paths.push(directory.to_owned());
        }
        return;
    };
    for entry in entries {
        *left = left.saturating_sub(1);
        let Ok(entry) = entry
            .map_err(drop)
            .and_then(|entry| if *left > 0 { Ok(entry) } else { Err(()) })
        else {
            return paths.push(directory.to_owned());
        };
        if pattern.matches(entry.file_name().as_bytes()) {
            expand(&entry.path(), rest, left, paths);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(path: &Path, except: &[&str]) -> PathGrant {
        let except = except.iter().map(|path| (*path).to_owned()).collect();
        PathGrant {
            path: path.to_owned(),
            optional: true,
            except,
        }
    }

    fn found(grants: &[PathGrant], root: &Path) -> Vec<String> {
        let relative = |path: PathBuf| {
            path.strip_prefix(root)
                .unwrap()
                .to_string_lossy()
                .into_owned()
        };
        excepted(grants).into_keys().map(relative).collect()
    }

    #[test]
    fn patterns_find_what_exists() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        for path in [
            "i/pg/16/data/base",
            "i/pg/17/bin",
            "i/node/22/etc",
            "var/x",
            "bin",
        ] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        fs::write(root.join("i/node/22/etc/npmrc"), "").unwrap();
        std::os::unix::fs::symlink("16", root.join("i/pg/latest")).unwrap();
        let all = ["i/*/*/data", "i/*/*/etc/npmrc", "var", "none"];
        assert_eq!(
            found(&[grant(&root, &all)], &root),
            ["i/node/22/etc/npmrc", "i/pg/16/data", "var"]
        );
        assert_eq!(found(&[grant(&root, &[])], &root), [""; 0]);
        // A further grant names it.
        let both = [grant(&root, &all), grant(&root.join("var/x"), &[])];
        assert_eq!(found(&both, &root), ["i/node/22/etc/npmrc", "i/pg/16/data"]);
        // By a link too.
        let link = root.join("link");
        std::os::unix::fs::symlink(&root, &link).unwrap();
        assert_eq!(found(&[grant(&link, &["var"])], &root), ["var"]);
    }

    #[test]
    fn a_directory_with_too_much_in_it_is_closed_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("i")).unwrap();
        for number in 0..ENTRIES_MAX {
            fs::write(root.join(format!("i/{number}")), "").unwrap();
        }
        assert_eq!(found(&[grant(&root, &["i/*/data"])], &root), ["i"]);
    }
}
