//! Links from the user's home directory into a zone: a project may be a repository of dotfiles, on which shells, editors and the desktop
//! act through such links, whatever the files are called there.

use crate::git_settings::{MayBe, NamedPath};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most entries of each directory that are looked at.
const ENTRIES_MAX: usize = 4096;

/// The links with dot names in `home`, and those in its `.config`, that lead into one of `zones`. A link to a zone itself, or above it,
/// leads to a project and not to a file of it.
pub fn named(home: &Path, zones: [&Path; 2]) -> BTreeSet<NamedPath> {
    let has_dot = |name: &OsStr| name.as_bytes().starts_with(b".");
    let of_home = links(home).filter(|path| path.file_name().is_some_and(has_dot));
    let all = of_home.chain(links(&home.join(".config")));
    let inside = all.filter(|link| {
        let target = fs::canonicalize(link).ok();
        target.is_some_and(|target| {
            zones
                .iter()
                .any(|zone| target.starts_with(zone) && target != *zone)
        })
    });
    let outside = inside.filter(|link| !zones.iter().any(|zone| link.starts_with(zone)));
    outside
        .map(|link| NamedPath {
            directory: link.parent().unwrap_or(home).to_owned(),
            path: link.file_name().unwrap_or_default().into(),
            key: String::new(),
            may_be: MayBe::Linked,
            file: link,
        })
        .collect()
}

fn links(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .take(ENTRIES_MAX)
        .flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
        .map(|entry| entry.path())
}
