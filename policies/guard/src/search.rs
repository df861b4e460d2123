//! A directory as a search of the disk sees it: by which paths it is known, what its entries lead to, and where nothing is to be found. The
//! search lists; whether an entry is closed, the judge says ([`Change::Find`](crate::Change::Find)).

use crate::names::{Matcher, Protection};
use crate::repository::Repository;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories into which package managers unpack: npm's, and those of Python. Names are judged less strictly there.
const PACKAGES: [&str; 3] = ["node_modules", "site-packages", "dist-packages"];

/// Data of git, git-lfs and git-annex in a repository's directory: no program acts on these entries as on a program.
const GIT_DATA: [&str; 26] = [
    "HEAD",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "AUTO_MERGE",
    "MERGE_MSG",
    "MERGE_MODE",
    RERERE,
    "SQUASH_MSG",
    "COMMIT_EDITMSG",
    "TAG_EDITMSG",
    "BISECT_LOG",
    "index",
    "packed-refs",
    "refs",
    "logs",
    "objects",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "rr-cache",
    "lfs",
    "annex",
];

/// The list of files that git's `rerere` is to record: it reads and writes each of them.
const RERERE: &str = "MERGE_RR";

/// Files that name another directory. See gitrepository-layout(5) and gitworktrees(5); `hg help share`; Sapling's `share`; Jujutsu's
/// `workspace add`.
const REDIRECTIONS: [(&str, Redirection); 5] = [
    (".git", Redirection::to(".git", "gitdir:")),
    (".git/commondir", Redirection::to(".git", "")),
    (".hg/sharedpath", Redirection::to(".hg", "")),
    (".sl/sharedpath", Redirection::to(".sl", "")),
    (".jj/repo", Redirection::to(".jj/repo", "")),
];

/// A file whose content leads to another directory, as a link does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirection {
    /// The text in the file before the directory's path.
    pub before: &'static str,
    /// The path as which the directory counts.
    pub counts_as: &'static str,
}

impl Redirection {
    const fn to(counts_as: &'static str, before: &'static str) -> Self {
        Self { before, counts_as }
    }
}

/// A directory that is searched, with all its paths.
#[derive(Clone, Copy, Debug)]
pub struct SearchedDirectory<'d> {
    pub names: &'d Matcher,
    pub path: &'d Path,
    /// The path relative to the root of its zone.
    pub relative: &'d Path,
    /// The paths, relative to a zone's root, as which it counts besides.
    pub others: &'d [PathBuf],
}

impl<'d> SearchedDirectory<'d> {
    fn paths(self) -> impl Iterator<Item = &'d Path> {
        let others = self.others.iter().map(PathBuf::as_path);
        [self.relative].into_iter().chain(others)
    }

    /// How the name of an entry is protected, besides what a name above does.
    pub(crate) fn protection(self, name: &OsStr) -> Option<Protection> {
        let rules = self.paths().filter_map(|parent| {
            let rule = self
                .names
                .name(parent.as_os_str().as_bytes(), name.as_bytes())?;
            // Pinned, it would keep the package from being removed, and nobody acts on it there.
            let is_loose =
                rule.may_be_removed_from_packages() && is_in_packages(&parent.join(name));
            (!is_loose).then_some(rule)
        });
        rules.map(|rule| rule.protection).max()
    }

    /// The paths of an entry below which names are protected: a link there leads to something protected.
    pub fn led_to_by(self, name: &OsStr) -> Vec<PathBuf> {
        let paths = self.paths().map(|parent| parent.join(name));
        let leads = |path: &PathBuf| self.names.leads_to(path.as_os_str().as_bytes()).is_some();
        paths.filter(leads).collect()
    }

    /// Where a file leads that names another directory.
    pub fn redirections(self, name: &OsStr) -> Vec<Redirection> {
        let last = |file: &str| {
            let last = Path::new(file).file_name();
            last.is_some_and(|last| name.eq_ignore_ascii_case(last))
        };
        let ends = |parent: &Path, file: &str| {
            let path = parent.join(name);
            let (path, end) = (path.as_os_str().as_bytes(), file.as_bytes());
            let start = path.len().checked_sub(end.len());
            start.is_some_and(|start| {
                path[start..].eq_ignore_ascii_case(end) && (start == 0 || path[start - 1] == b'/')
            })
        };
        let named = REDIRECTIONS.into_iter().filter(|(file, _)| last(file));
        let all = named.filter(|(file, _)| self.paths().any(|parent| ends(parent, file)));
        all.map(|(_, redirection)| redirection).collect()
    }

    /// The repository that the directory is by the shape of its entries, whatever it is called: the path as which it counts then, if it
    /// has no such name.
    pub fn repository<'n>(self, entries: impl Iterator<Item = &'n [u8]>) -> Option<ByShape> {
        let repository = Repository::of_entries(entries)?;
        let counts_as = Some(repository.name).filter(|_| !self.is_git());
        Some(ByShape { counts_as })
    }

    /// Whether nothing is to be found below an entry: git's objects have digests for names, and there are many.
    pub fn is_nameless(self, name: &OsStr) -> bool {
        name == "objects" && self.is_git()
    }

    fn is_git(self) -> bool {
        let mut paths = [self.path].into_iter().chain(self.paths());
        paths.any(|path| path.file_name().is_some_and(is_dot_git))
    }
}

/// The repository that a directory is by its shape, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByShape {
    pub counts_as: Option<&'static str>,
}

fn is_dot_git(name: &OsStr) -> bool {
    name.eq_ignore_ascii_case(".git")
}

/// Whether a directory with these entries is a work tree of git's.
pub fn is_work_tree<'n>(mut entries: impl Iterator<Item = &'n [u8]>) -> bool {
    entries.any(|name| name == b".git")
}

/// Whether this is the name of the file that lists what git's `rerere` is to record.
pub fn is_rerere_list(name: &OsStr) -> bool {
    name.eq_ignore_ascii_case(RERERE)
}

/// Whether `relative`, a path in a repository's directory, is git's own data.
pub fn is_git_data(relative: &Path) -> bool {
    let first = relative.iter().next().unwrap_or_default();
    GIT_DATA.iter().any(|data| first == *data) || relative.iter().any(|name| name == "objects")
}

/// Whether a directory on the way to `below`, a path in a zone, is one of packages.
pub fn is_in_packages(below: &Path) -> bool {
    let mut above = below.ancestors().skip(1).filter_map(Path::file_name);
    above.any(|name| PACKAGES.iter().any(|packages| name == *packages))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{ProtectedName, WhenNew};
    use crate::origin::Origin;

    fn names() -> Matcher {
        let name = |(pattern, protection, new)| ProtectedName {
            pattern: String::from(pattern),
            except: vec![],
            protection,
            new,
            opens: false,
            why: String::new(),
            origin: Origin::default(),
        };
        let names = [
            (".env", Protection::All, WhenNew::Open),
            (".npmrc", Protection::Write, WhenNew::Harmless),
            (".git/config", Protection::Write, WhenNew::Open),
            (".git/hooks", Protection::Write, WhenNew::Closed),
        ];
        Matcher::new(&names.map(name)).unwrap()
    }

    /// Asks about a directory of the zone `/z`, which counts as `others` too.
    fn ask<R>(path: &str, others: &[&str], question: impl FnOnce(SearchedDirectory) -> R) -> R {
        let others: Vec<PathBuf> = others.iter().map(PathBuf::from).collect();
        let path = Path::new("/z").join(path);
        question(SearchedDirectory {
            names: &names(),
            path: &path,
            relative: path.strip_prefix("/z").unwrap(),
            others: &others,
        })
    }

    #[test]
    fn name_is_protected_by_every_path_of_its_directory() {
        let write = Some(Protection::Write);
        for (directory, others, name, wanted) in [
            ("", vec![], "a", None),
            ("", vec![], ".env", Some(Protection::All)),
            ("a/b", vec![], ".npmrc", write),
            (".git", vec![], "hooks", write),
            (".git/x", vec![], "hooks", None),
            ("store", vec![], "hooks", None),
            ("store", vec![".git"], "hooks", write),
            ("store", vec!["x", ".git"], "config", write),
        ] {
            let found = ask(directory, &others, |at| at.protection(OsStr::new(name)));
            assert_eq!(found, wanted, "{name} in {directory} {others:?}");
        }
    }

    #[test]
    fn links_and_files_lead_to_what_is_protected() {
        for (directory, others, name, wanted) in [
            ("", vec![], "a", vec![]),
            ("", vec![], ".git", vec![".git"]),
            ("a", vec![], ".git", vec!["a/.git"]),
            ("a", vec![""], ".git", vec!["a/.git", ".git"]),
        ] {
            let found = ask(directory, &others, |at| at.led_to_by(OsStr::new(name)));
            let wanted: Vec<PathBuf> = wanted.into_iter().map(PathBuf::from).collect();
            assert_eq!(found, wanted, "{name} in {directory} {others:?}");
        }
        for (directory, others, name, wanted) in [
            ("", vec![], "a", None),
            ("a", vec![], ".git", Some(("gitdir:", ".git"))),
            ("a", vec![], ".GIT", Some(("gitdir:", ".git"))),
            ("", vec![], "x.git", None),
            (".git", vec![], "commondir", Some(("", ".git"))),
            ("store", vec![], "commondir", None),
            ("store", vec![".git"], "commondir", Some(("", ".git"))),
            ("a/.jj", vec![], "repo", Some(("", ".jj/repo"))),
        ] {
            let found = ask(directory, &others, |at| at.redirections(OsStr::new(name)));
            let found: Vec<_> = found.iter().map(|to| (to.before, to.counts_as)).collect();
            let wanted: Vec<_> = wanted.into_iter().collect();
            assert_eq!(found, wanted, "{name} in {directory} {others:?}");
        }
    }

    #[test]
    fn a_repository_is_found_by_its_shape() {
        let whole = ["HEAD", "objects", "refs", "x"];
        let by_shape = |counts_as| Some(ByShape { counts_as });
        for (directory, others, entries, wanted) in [
            ("store", vec![], &whole[..], by_shape(Some(".git"))),
            ("store", vec![".git"], &whole[..], by_shape(None)),
            ("a/.git", vec![], &whole[..], by_shape(None)),
            ("store", vec![], &whole[1..], None),
            (
                "store",
                vec![],
                &["HEAD", "commondir"][..],
                by_shape(Some(".git")),
            ),
        ] {
            let entries = entries.iter().map(|name| name.as_bytes());
            let found = ask(directory, &others, |at| at.repository(entries));
            assert_eq!(found, wanted, "{directory} {others:?}");
        }
        assert!(ask(".git", &[], |at| at.is_nameless(OsStr::new("objects"))));
        assert!(!ask("a", &[], |at| at.is_nameless(OsStr::new("objects"))));
        assert!(!ask(".git", &[], |at| at.is_nameless(OsStr::new("refs"))));
    }

    #[test]
    fn data_of_git_is_no_place_for_programs_and_the_rest_is() {
        for path in [
            "index",
            "refs/heads/x",
            "logs/HEAD",
            "lfs/hooks",
            "modules/x/objects/a",
        ] {
            assert!(is_git_data(Path::new(path)), "{path}");
        }
        for path in [
            "crypt/transcrypt",
            "tool",
            "info/x",
            "my-refs/x",
            "git-crypt/keys",
        ] {
            assert!(!is_git_data(Path::new(path)), "{path}");
        }
    }
}
