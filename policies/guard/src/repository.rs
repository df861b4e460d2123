//! Repositories by their shape: which members make a directory a repository, which of them are settings, and what must stay valid.
//!
//! The host's git takes any directory with the right members for a repository, and obeys its settings and hooks, whatever it is
//! called. Other programs look for a directory of one name, so that the protected names hold them. Names are compared without
//! case, as some file systems do. Pure: callers list the directory and pass in which members exist.
//!
//! Not in the table: Subversion and Fossil. A working copy of Subversion has no settings, and its repositories are found by
//! their address only. Fossil's checkout is a database that Fossil itself writes with every command.

use crate::fold::fold;
use std::borrow::Cow;

/// A repository as a program of version control recognises it.
#[derive(Debug, PartialEq, Eq)]
pub struct Repository {
    /// Its command as the user types it, such as `git`.
    pub program: &'static str,
    /// The name of the directory where it is a project's own; the protected names stand below it.
    pub name: &'static str,
    /// The suffix in the names of other such directories, if there are such.
    pub(crate) suffix: Option<&'static str>,
    /// Members that make the shape; all of one list are enough. A directory of [`name`](Self::name) is one without any.
    pub(crate) shapes: &'static [&'static [Member]],
    /// Whether a directory of any name is a repository by its shape alone.
    pub(crate) anywhere: bool,
    /// Paths of members that are settings, or run.
    pub settings: &'static [&'static str],
    /// The document that says so.
    pub source: &'static str,
}

/// An entry of a directory that belongs to a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// As the program writes it.
    pub name: &'static str,
    /// The kind of object that the program makes.
    pub kind: MemberKind,
}

/// The kind of a member of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// A file whose content must stay valid, or the program looks for a repository further up: see [`GitHead`](crate::GitHead).
    Head,
    File,
    /// A directory, of which only the presence counts.
    Directory,
}

const fn head(name: &'static str) -> Member {
    Member {
        name,
        kind: MemberKind::Head,
    }
}

const fn file(name: &'static str) -> Member {
    Member {
        name,
        kind: MemberKind::File,
    }
}

const fn directory(name: &'static str) -> Member {
    Member {
        name,
        kind: MemberKind::Directory,
    }
}

/// Each program with what it takes for a repository.
pub static REPOSITORIES: [Repository; 4] = [
    Repository {
        program: "git",
        name: ".git",
        suffix: Some(".git"),
        shapes: &[
            &[head("HEAD"), directory("objects"), directory("refs")],
            &[head("HEAD"), file("commondir")],
        ],
        anywhere: true,
        settings: &[
            "config",
            "config.worktree",
            "hooks",
            "commondir",
            "info/attributes",
            "worktrees",
            "modules",
        ],
        source: "Git, gitrepository-layout(5); setup.c, is_git_directory",
    },
    Repository {
        program: "hg",
        name: ".hg",
        suffix: None,
        shapes: &[
            &[file("requires")],
            &[directory("store")],
            &[file("00changelog.i")],
        ],
        anywhere: false,
        settings: &["hgrc", "hgrc-not-shared", "sharedpath"],
        source: "Mercurial, hgrc(5); help internals.requirements",
    },
    Repository {
        program: "sl",
        name: ".sl",
        suffix: None,
        shapes: &[
            &[file("requires")],
            &[directory("store")],
            &[file("00changelog.i")],
        ],
        anywhere: false,
        settings: &["config", "sharedpath"],
        source: "Sapling, tests/test-identity.t",
    },
    Repository {
        program: "jj",
        name: ".jj",
        suffix: None,
        shapes: &[&[directory("repo"), directory("working_copy")]],
        anywhere: false,
        settings: &[
            "repo/config.toml",
            "workspace-config.toml",
            "repo/config-id",
            "workspace-config-id",
        ],
        source: "Jujutsu, design/secure-config",
    },
];

impl Repository {
    /// The repository that a directory's entry `name` is by its name: some program takes the directory, with all below it, for a work
    /// tree. Where a file system takes another name for `.git`, that too.
    pub fn by_name(name: &[u8]) -> Option<&'static Repository> {
        let [git, ..] = &REPOSITORIES;
        let folded = fold(name);
        let named = REPOSITORIES
            .iter()
            .find(|kind| folded.eq_ignore_ascii_case(kind.name.as_bytes()));
        named.or_else(|| may_be_dot_git(name).then_some(git))
    }

    /// The member that a directory's entry `name` is of a repository that is one by its shape alone, and that repository.
    pub fn member(name: &[u8]) -> Option<(&'static Repository, Member)> {
        let name = fold(name);
        let anywhere = REPOSITORIES.iter().filter(|kind| kind.anywhere);
        let mut members =
            anywhere.flat_map(|kind| kind.members().map(move |member| (kind, member)));
        members.find(|(_, member)| name.eq_ignore_ascii_case(member.name.as_bytes()))
    }

    /// The repository that a directory of any name with these entries is by its shape.
    pub(crate) fn of_entries<'n>(
        names: impl Iterator<Item = &'n [u8]>,
    ) -> Option<&'static Repository> {
        let members: Vec<_> = names.filter_map(Self::member).collect();
        let is_complete = |(kind, member): &&(&'static Repository, Member)| {
            kind.is_completed_by(*member, |other| members.contains(&(*kind, other)))
        };
        members.iter().find(is_complete).map(|(kind, _)| *kind)
    }

    /// Whether a directory gets one of the shapes with `new`, where `has` says of other members whether they are there. In
    /// whatever order members come, the last one completes the shape.
    pub(crate) fn is_completed_by(&self, new: Member, mut has: impl FnMut(Member) -> bool) -> bool {
        self.shapes.iter().any(|shape| {
            shape.contains(&new) && shape.iter().all(|member| *member == new || has(*member))
        })
    }

    /// Whether a directory's entry `name` is, or leads to, settings of a repository that is one by its shape alone, or is on its way
    /// to be them.
    pub(crate) fn may_be_setting(name: &[u8]) -> bool {
        let name = fold(name);
        let name = name.strip_suffix(b".lock").unwrap_or(&name);
        let anywhere = REPOSITORIES.iter().filter(|kind| kind.anywhere);
        let mut first = anywhere
            .flat_map(|kind| kind.settings)
            .filter_map(|path| path.split('/').next());
        first.any(|setting| name.eq_ignore_ascii_case(setting.as_bytes()))
    }

    /// Whether a directory of any name, in which `has` says what is there, is a repository by its shape.
    pub fn has_shape(has: impl Fn(Member) -> bool) -> bool {
        let anywhere = REPOSITORIES.iter().filter(|kind| kind.anywhere);
        anywhere
            .flat_map(|kind| kind.shapes)
            .any(|shape| shape.iter().all(|member| has(*member)))
    }

    /// The directories that make one a repository to git, beside its `HEAD`.
    pub fn directories_of_git() -> impl Iterator<Item = &'static str> {
        let [git, ..] = &REPOSITORIES;
        let directories = git
            .members()
            .filter(|part| part.kind == MemberKind::Directory);
        directories.map(|part| part.name)
    }

    fn members(&self) -> impl Iterator<Item = Member> {
        self.shapes.iter().copied().flatten().copied()
    }

    fn has_name(&self, name: &[u8]) -> bool {
        let name = fold(name);
        let ends = |suffix: &str| {
            let start = name.len().checked_sub(suffix.len());
            start.is_some_and(|start| name[start..].eq_ignore_ascii_case(suffix.as_bytes()))
        };
        name.eq_ignore_ascii_case(self.name.as_bytes()) || self.suffix.is_some_and(ends)
    }
}

/// Whether git keeps a repository by this name of a directory.
pub(crate) fn is_git_name(name: &[u8]) -> bool {
    let [git, ..] = &REPOSITORIES;
    git.has_name(name)
}

/// Directories below `CARGO_HOME` in which Cargo keeps the bare repositories of git dependencies (`git/db/NAME-HASH`).
const CARGO_DATABASES: [&[u8]; 2] = [b"git", b"db"];
/// Hexadecimal digits of the hash in such a name.
const CARGO_HASH_LEN: usize = 16;

/// Whether the last of these names of a path is a repository to git by its name, or is one of Cargo's by its place. What settings
/// name is protected there.
fn is_git_place(names: &[impl AsRef<[u8]>]) -> bool {
    let Some((last, above)) = names.split_last() else {
        return false;
    };
    is_git_name(last.as_ref()) || ends_with(above, &CARGO_DATABASES) && is_cargo_name(last.as_ref())
}

fn is_cargo_name(name: &[u8]) -> bool {
    let name = fold(name);
    let dash = name.iter().rposition(|byte| *byte == b'-');
    dash.is_some_and(|dash| {
        let hash = &name[dash + 1..];
        hash.len() == CARGO_HASH_LEN && hash.iter().all(u8::is_ascii_hexdigit)
    })
}

fn ends_with(names: &[impl AsRef<[u8]>], end: &[&[u8]]) -> bool {
    let start = names.len().checked_sub(end.len());
    start.is_some_and(|start| {
        let pairs = names[start..].iter().zip(end);
        pairs
            .into_iter()
            .all(|(name, end)| fold(name.as_ref()).eq_ignore_ascii_case(end))
    })
}

/// Whether a directory below `relative` may be a repository by its place, and be none where `relative` has another name.
pub(crate) fn leads_to_git_place(relative: &[u8]) -> bool {
    let names: Vec<&[u8]> = relative.split(|byte| *byte == b'/').collect();
    (1..=CARGO_DATABASES.len()).any(|count| ends_with(&names, &CARGO_DATABASES[..count]))
}

/// Whether the directory `relative`, a path in a zone, may be a repository: what git runs by it is protected there. That is
/// one called `.git` or `NAME.git`, one of Cargo's, and below it a linked worktree's and a submodule's.
pub fn may_be_git_directory(relative: &[u8]) -> bool {
    /// Directories of a repository besides submodules: none is below them.
    const NO_MODULES: [&[u8]; 7] = [
        b"objects",
        b"refs",
        b"logs",
        b"hooks",
        b"info",
        b"branches",
        b"worktrees",
    ];
    let names: Vec<Cow<[u8]>> = relative.split(|byte| *byte == b'/').map(fold).collect();
    let is = |name: &[u8], other: &[u8]| name.eq_ignore_ascii_case(other);
    let Some(git) = (1..=names.len())
        .rev()
        .find(|end| is_git_place(&names[..*end]))
    else {
        return false;
    };
    let mut below = &names[git..];
    if let [worktrees, _, rest @ ..] = below
        && is(worktrees, b"worktrees")
    {
        below = rest;
    }
    match below {
        [] => true,
        [modules, path @ ..] => {
            let other = |name: &Cow<[u8]>| NO_MODULES.iter().any(|other| is(name, other));
            is(modules, b"modules") && !path.is_empty() && !path.iter().any(other)
        }
    }
}

/// Whether a file system may take this name for `.git`: without case, without what it ignores, and as FAT and NTFS cut and shorten it.
pub fn may_be_dot_git(name: &[u8]) -> bool {
    let name = fold(name);
    let stream = name
        .iter()
        .position(|byte| *byte == b':')
        .unwrap_or(name.len());
    let end = name[..stream]
        .iter()
        .rposition(|byte| !b". ".contains(byte))
        .map_or(0, |last| last + 1);
    [b".git", b"git~1".as_slice()]
        .iter()
        .any(|git| name[..end].eq_ignore_ascii_case(git))
}

/// Whether a path has a name or place in which git keeps repositories: below it `HEAD` is an ordinary name.
pub fn is_in_git_directory(relative: &[u8]) -> bool {
    let names: Vec<&[u8]> = relative.split(|byte| *byte == b'/').collect();
    (1..=names.len()).any(|end| is_git_place(&names[..end]))
}

/// The path as which `relative` counts: `NAME.git` and Cargo's repositories are protected like `.git`. `None` where it is that
/// already. It has as many names.
pub fn as_git_directory(relative: &[u8]) -> Option<Vec<u8>> {
    // Most paths have none.
    let has = |part: &[u8]| {
        relative
            .windows(part.len())
            .any(|window| window.eq_ignore_ascii_case(part))
    };
    if relative.is_ascii() && !has(b".git") && !has(b"git/db/") {
        return None;
    }
    let names: Vec<&[u8]> = relative.split(|byte| *byte == b'/').collect();
    let is_other = |end: usize| {
        let name = names[end - 1];
        !(name.len() == b".git".len() && is_git_name(name)) && is_git_place(&names[..end])
    };
    let counts: Vec<&[u8]> = (1..=names.len())
        .map(|end| {
            if is_other(end) {
                b".git"
            } else {
                names[end - 1]
            }
        })
        .collect();
    (counts != names).then(|| counts.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders<T: Copy>(members: &[T]) -> Vec<Vec<T>> {
        if members.is_empty() {
            return vec![vec![]];
        }
        let begin = |first: usize| {
            let mut rest = members.to_vec();
            let first = rest.remove(first);
            orders(&rest)
                .into_iter()
                .map(move |order| [vec![first], order].concat())
        };
        (0..members.len()).flat_map(begin).collect()
    }

    /// The members that complete a shape when they come one after the other.
    fn completing(kind: &Repository, order: &[Member]) -> Vec<Member> {
        let new = |place: &usize| {
            kind.is_completed_by(order[*place], |member| order[..*place].contains(&member))
        };
        (0..order.len())
            .filter(new)
            .map(|place| order[place])
            .collect()
    }

    #[test]
    fn the_last_member_completes_a_shape_in_any_order() {
        for kind in &REPOSITORIES {
            for shape in kind.shapes {
                for order in orders(shape) {
                    assert_eq!(
                        completing(kind, &order),
                        [order[order.len() - 1]],
                        "{}: {order:?}",
                        kind.program
                    );
                    let control = completing(kind, &order[..order.len() - 1]);
                    assert!(
                        control.is_empty(),
                        "{}: {order:?} without its last",
                        kind.program
                    );
                }
            }
        }
    }

    /// With other names between them, and members of both shapes at once: whoever refuses what completes one never has one.
    #[test]
    fn no_order_of_all_members_passes_without_being_seen() {
        for order in orders(&["HEAD", "objects", "refs", "commondir", "config", "x"]) {
            let mut present: Vec<&str> = Vec::new();
            for new in order {
                let completes = |(kind, member): (&Repository, Member)| {
                    kind.is_completed_by(member, |other| present.contains(&other.name))
                };
                if !Repository::member(new.as_bytes()).is_some_and(completes) {
                    present.push(new);
                }
            }
            assert_eq!(
                Repository::of_entries(present.iter().map(|name| name.as_bytes())),
                None,
                "{present:?}"
            );
        }
        let whole = [b"refs".as_slice(), b"x", b"Head", b"objects"];
        let found = Repository::of_entries(whole.into_iter()).map(|kind| kind.program);
        assert_eq!(found, Some("git"), "the control");
    }

    #[test]
    fn settings_are_known_by_their_first_name() {
        for name in [
            "config",
            "CONFIG",
            "hooks",
            "info",
            "modules",
            "commondir",
            "config.lock",
            "config.worktree",
        ] {
            assert!(Repository::may_be_setting(name.as_bytes()), "{name}");
        }
        for name in [
            "",
            "HEAD",
            "objects",
            "refs",
            "logs",
            "index.lock",
            "conf",
            "hgrc",
            ".lock",
        ] {
            assert!(!Repository::may_be_setting(name.as_bytes()), "{name}");
        }
        let shape =
            |names: &'static [&str]| Repository::has_shape(|member| names.contains(&member.name));
        assert!(shape(&["HEAD", "objects", "refs"]) && shape(&["HEAD", "commondir"]));
        assert!(!shape(&["HEAD", "objects"]) && !shape(&["requires", "store"]));
    }

    #[test]
    fn members_are_known_without_case_where_the_shape_alone_counts() {
        for (name, member) in [
            ("HEAD", "HEAD"),
            ("head", "HEAD"),
            ("HE\u{200b}AD", "HEAD"),
            ("Refs", "refs"),
        ] {
            let found = Repository::member(name.as_bytes()).map(|(_, member)| member.name);
            assert_eq!(found, Some(member), "{name}");
        }
        // Mercurial finds `.hg` by its name.
        for name in [
            "",
            "README.md",
            "HEADS",
            "HEAD.lock",
            "config",
            "hooks",
            "\u{e9}",
            "requires",
        ] {
            assert_eq!(Repository::member(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn repository_paths_match_by_place() {
        for path in [
            ".git",
            "a/.GIT",
            "bare.git",
            ".git/worktrees/w",
            "a/x.git/modules/s",
            ".git/modules/a/b",
            ".git/worktrees/w/modules/s",
            ".git/x.git",
            "caches/cargo/git/db/dep-0123456789abcdef",
            ".cargo/GIT/Db/a-b-0123456789ABCDEF",
            "git/db/dep-0123456789abcdef/modules/s",
        ] {
            assert!(may_be_git_directory(path.as_bytes()), "{path}");
        }
        for path in [
            "",
            "a",
            "git",
            ".git/x",
            ".git/refs/heads",
            ".git/logs",
            ".git/worktrees",
            ".git/worktrees/w/x",
            ".git/modules",
            ".git/modules/s/refs",
            "x.git/y",
            ".gitx",
            "git/db",
            "git/db/dep",
            "git/db/dep-0123456789abcde",
            "git/db/dep-0123456789abcdeg",
            "git/db/0123456789abcdef",
            "git/db/x/dep-0123456789abcdef",
            "db/dep-0123456789abcdef",
            "git/checkouts/dep-0123456789abcdef",
            "git/db/dep-0123456789abcdef/refs",
        ] {
            assert!(!may_be_git_directory(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn every_name_of_a_repository_counts_as_the_first() {
        for (path, counts) in [
            ("bare.git/config", ".git/config"),
            ("a/B.GIT/x/c.git", "a/.git/x/.git"),
            ("x.git", ".git"),
            (
                "c/git/db/dep-0123456789abcdef/config",
                "c/git/db/.git/config",
            ),
        ] {
            assert_eq!(
                as_git_directory(path.as_bytes()).as_deref(),
                Some(counts.as_bytes()),
                "{path}"
            );
        }
        for path in [
            "",
            ".git/config",
            "a/.git",
            "git/config",
            "x.gitx",
            "git/db/x",
        ] {
            assert_eq!(as_git_directory(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn directories_above_cargos_repositories_are_known() {
        for path in ["git", "a/Git", "a/git/db", "git/DB"] {
            assert!(leads_to_git_place(path.as_bytes()), "{path}");
        }
        for path in [
            "",
            "a",
            "db",
            "git/x",
            ".git",
            "git/db/dep-0123456789abcdef",
        ] {
            assert!(!leads_to_git_place(path.as_bytes()), "{path}");
        }
        assert!(is_in_git_directory(b"git/db/dep-0123456789abcdef/x/y"));
        assert!(!is_in_git_directory(b"git/db/dep/x") && !is_in_git_directory(b"git/db"));
    }
}
