//! The repository of a project if it lies elsewhere: that of a linked worktree, of a submodule, or one that the policy names.
//!
//! Such a project contains a file `.git` that names a directory, and anyone who created the project may have written it. So the file alone
//! opens nothing. It is verified from the other side, where only the user writes: the directory names this very file (a worktree's
//! `gitdir`) or this very project (`core.worktree` of a submodule), and has the structure of a repository of the user's.

use crate::links;
use executor_spec::linked_repository::{LinkedRepository, NotLinked};
use nix::unistd::Uid;
use policies::{GIT_CONFIG_MAX, git_config_worktree};
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the `.git` of a project leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepositoryLink {
    Inside,
    /// To a repository that is opened.
    Verified(LinkedRepository),
    /// To this directory, which stays closed.
    Refused(PathBuf, NotLinked),
}

/// Resolves the `.git` of `project`, if it is a file; `zones` are the roots of the session, and
/// `named` the policy's directories. `closed` returns why no session opens a path.
pub fn find(
    project: &Path,
    zones: [&Path; 2],
    named: &[PathBuf],
    closed: impl Fn(&Path) -> Option<String>,
) -> RepositoryLink {
    let file = project.join(".git");
    let Some(target) = target_of(&file) else {
        return RepositoryLink::Inside;
    };
    let Ok(own) = fs::canonicalize(project.join(&target)) else {
        return RepositoryLink::Inside;
    };
    if zones.iter().any(|zone| own.starts_with(zone)) {
        return RepositoryLink::Inside;
    }
    let is_named = named
        .iter()
        .any(|path| fs::canonicalize(path).is_ok_and(|path| path == own));
    let common = match common_of_worktree(&own, &file) {
        Some(common) => common,
        None if is_named || leads_to(&own, project) => own.clone(),
        None => return RepositoryLink::Refused(own, NotLinked::NoWayBack),
    };
    let found = LinkedRepository { common, own };
    match check(&found, &file, zones, closed) {
        Ok(()) => RepositoryLink::Verified(found),
        Err(why) => RepositoryLink::Refused(found.common, why),
    }
}

fn check(
    found: &LinkedRepository,
    file: &Path,
    zones: [&Path; 2],
    closed: impl Fn(&Path) -> Option<String>,
) -> Result<(), NotLinked> {
    let LinkedRepository { common, own } = found;
    let directories = [
        common.clone(),
        common.join("objects"),
        common.join("refs"),
        own.clone(),
    ];
    let present: Option<Vec<Metadata>> = directories.iter().map(|path| directory(path)).collect();
    let (Some(mut present), Some(head)) = (present, text_file(&common.join("HEAD"))) else {
        return Err(NotLinked::NoRepository);
    };
    present.push(head);
    present.extend(fs::symlink_metadata(file));
    let user = Uid::effective().as_raw();
    if present.iter().any(|metadata| metadata.uid() != user) {
        return Err(NotLinked::OtherUser);
    }
    if zones.iter().any(|zone| zone.starts_with(common)) {
        return Err(NotLinked::HoldsRoot);
    }
    closed(common).map_or(Ok(()), |why| Err(NotLinked::Closed(why)))
}

/// The common directory of a worktree whose own part is `own`, if that names `file` as the worktree's `.git`.
/// Both name and object must match: another name of the same file is no worktree.
fn common_of_worktree(own: &Path, file: &Path) -> Option<PathBuf> {
    let common = own
        .parent()
        .filter(|parent| parent.ends_with("worktrees"))?
        .parent()?;
    text_file(&own.join("gitdir"))?;
    text_file(&own.join("commondir"))?;
    let back = own.join(links::target_in(&own.join("gitdir"), b"")?);
    let (project, named) = (
        file.parent()?,
        back.parent().filter(|_| back.ends_with(".git"))?,
    );
    let same_name = fs::canonicalize(named).ok()? == project;
    let same_object = id(&text_file(&back)?) == id(&text_file(file)?);
    let said = fs::canonicalize(own.join(links::target_in(&own.join("commondir"), b"")?)).ok()?;
    (same_name && same_object && said == common).then_some(said)
}

/// Whether the settings in `own` name `project` as its worktree.
fn leads_to(own: &Path, project: &Path) -> bool {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let config = File::options()
        .read(true)
        .custom_flags(flags)
        .open(own.join("config"));
    let Ok(config) = config else { return false };
    if !config.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return false;
    }
    let mut text = Vec::new();
    if config
        .take(GIT_CONFIG_MAX as u64 + 1)
        .read_to_end(&mut text)
        .is_err()
    {
        return false;
    }
    let worktree = git_config_worktree(&text).map(|worktree| own.join(worktree));
    worktree
        .and_then(|worktree| fs::canonicalize(worktree).ok())
        .is_some_and(|worktree| worktree == project)
}

/// Where a `.git` leads that is no directory: as a file, or as a link.
fn target_of(git: &Path) -> Option<PathBuf> {
    let metadata = fs::symlink_metadata(git).ok()?;
    if metadata.is_symlink() {
        fs::read_link(git).ok()
    } else {
        text_file(git).and_then(|_| links::target_in(git, b"gitdir:"))
    }
}

/// Metadata of a regular file that is not a link.
fn text_file(path: &Path) -> Option<Metadata> {
    fs::symlink_metadata(path).ok().filter(Metadata::is_file)
}

/// Metadata of a directory that is not a link.
fn directory(path: &Path) -> Option<Metadata> {
    fs::symlink_metadata(path).ok().filter(Metadata::is_dir)
}

fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Host(tempfile::TempDir);

    impl Host {
        /// A repository `main` with a worktree `wt` and a submodule `main/sub`.
        fn new() -> Self {
            let host = Self(tempfile::tempdir().unwrap());
            for git in ["main/.git", "main/.git/modules/sub"] {
                for part in ["objects", "refs", "hooks"] {
                    fs::create_dir_all(host.at(git).join(part)).unwrap();
                }
                host.put(&format!("{git}/HEAD"), "ref: refs/heads/main\n");
            }
            host.put("main/.git/config", "[core]\n\tbare = false\n");
            host.put(
                "main/.git/modules/sub/config",
                "[core]\n\tworktree = ../../../sub\n",
            );
            host.put("main/sub/.git", "gitdir: ../.git/modules/sub\n");
            host.worktree("wt");
            host
        }

        fn worktree(&self, name: &str) {
            let own = format!("main/.git/worktrees/{name}");
            self.put(&format!("{own}/HEAD"), "ref: refs/heads/x\n");
            self.put(&format!("{own}/commondir"), "../..\n");
            self.put(
                &format!("{own}/gitdir"),
                &format!("{}/.git\n", self.at(name).display()),
            );
            self.put(
                &format!("{name}/.git"),
                &format!("gitdir: {}\n", self.at(&own).display()),
            );
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(path)
        }

        fn put(&self, path: &str, text: &str) {
            fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
            fs::write(self.at(path), text).unwrap();
        }

        fn find(&self, project: &str, named: &[&str]) -> RepositoryLink {
            let named: Vec<PathBuf> = named.iter().map(|path| self.at(path)).collect();
            let (project, central) = (self.at(project), self.at("central"));
            find(&project, [&project, &central], &named, |_| None)
        }

        fn linked(&self, common: &str, own: &str) -> RepositoryLink {
            RepositoryLink::Verified(LinkedRepository {
                common: self.at(common),
                own: self.at(own),
            })
        }

        fn refused(&self, path: &str, why: NotLinked) -> RepositoryLink {
            RepositoryLink::Refused(self.at(path), why)
        }
    }

    const GIT: &str = "main/.git";

    #[test]
    fn a_link_is_verified_as_a_file_is() {
        let host = Host::new();
        fs::create_dir_all(host.at("plain")).unwrap();
        let link = |target: &str| {
            let _ = fs::remove_file(host.at("plain/.git"));
            std::os::unix::fs::symlink(target, host.at("plain/.git")).unwrap();
        };
        link("../main/.git");
        assert_eq!(
            host.find("plain", &[]),
            host.refused(GIT, NotLinked::NoWayBack)
        );
        assert_eq!(host.find("plain", &[GIT]), host.linked(GIT, GIT));
        host.put("main/.git/config", "[core]\n\tworktree = ../../plain\n");
        assert_eq!(host.find("plain", &[]), host.linked(GIT, GIT));
        // The entry of a worktree names the file of that worktree, and no link.
        link("../main/.git/worktrees/wt");
        assert_eq!(
            host.find("plain", &[]),
            host.refused("main/.git/worktrees/wt", NotLinked::NoWayBack)
        );
        for inside in ["store", "../none"] {
            link(inside);
            assert_eq!(host.find("plain", &[]), RepositoryLink::Inside, "{inside}");
        }
    }

    #[test]
    fn logs_are_made_once_and_replace_nothing() {
        let host = Host::new();
        let linked = LinkedRepository {
            common: host.at(GIT),
            own: host.at(GIT),
        };
        linked.make_logs().unwrap();
        host.put("main/.git/logs/HEAD", "x");
        linked.make_logs().unwrap();
        assert_eq!(fs::read(host.at("main/.git/logs/HEAD")).unwrap(), b"x");
    }

    #[test]
    fn a_worktree_and_a_submodule_are_found() {
        let host = Host::new();
        assert_eq!(
            host.find("wt", &[]),
            host.linked(GIT, "main/.git/worktrees/wt")
        );
        assert_eq!(
            host.find("main/sub", &[]),
            host.linked("main/.git/modules/sub", "main/.git/modules/sub")
        );
        assert_eq!(
            host.find("main", &[]),
            RepositoryLink::Inside,
            "its own directory"
        );
        fs::create_dir_all(host.at("plain")).unwrap();
        assert_eq!(host.find("plain", &[]), RepositoryLink::Inside);
        host.put("plain/.git", "gitdir: /nonexistent/x\n");
        assert_eq!(host.find("plain", &[]), RepositoryLink::Inside);
        // As newer versions of git write these files.
        host.put("wt/.git", "gitdir: ../main/.git/worktrees/wt\n");
        host.put("main/.git/worktrees/wt/gitdir", "../../../../wt/.git\n");
        assert_eq!(
            host.find("wt", &[]),
            host.linked(GIT, "main/.git/worktrees/wt")
        );
    }

    /// A file `.git`, which anybody may have written, opens nothing by itself.
    #[test]
    fn a_repository_that_does_not_lead_back_stays_closed() {
        for target in [
            "main/.git",
            "main/.git/worktrees/wt",
            "main/.git/modules/sub",
            "main/.git/objects",
            "main",
        ] {
            let host = Host::new();
            host.put(
                "evil/.git",
                &format!("gitdir: {}\n", host.at(target).display()),
            );
            assert_eq!(
                host.find("evil", &[]),
                host.refused(target, NotLinked::NoWayBack),
                "{target}"
            );
        }
        let host = Host::new();
        fs::create_dir_all(host.at("evil")).unwrap();
        fs::hard_link(host.at("wt/.git"), host.at("evil/.git")).unwrap();
        let wt = "main/.git/worktrees/wt";
        assert_eq!(
            host.find("evil", &[]),
            host.refused(wt, NotLinked::NoWayBack),
            "another name of the file"
        );
        fs::rename(host.at("wt/.git"), host.at("evil/git")).unwrap();
        host.put("wt/.git", "gitdir: ../main/.git/worktrees/wt\n");
        assert_eq!(
            host.find("wt", &[]),
            host.linked(GIT, wt),
            "the file may be written again"
        );
        host.put("main/.git/worktrees/wt/commondir", "../../../../evil\n");
        assert_eq!(host.find("wt", &[]), host.refused(wt, NotLinked::NoWayBack));
        let host = Host::new();
        fs::remove_file(host.at("main/.git/worktrees/wt/gitdir")).unwrap();
        std::os::unix::fs::symlink(
            host.at("wt/gitdir"),
            host.at("main/.git/worktrees/wt/gitdir"),
        )
        .unwrap();
        host.put("wt/gitdir", &format!("{}\n", host.at("wt/.git").display()));
        assert_eq!(
            host.find("wt", &[]),
            host.refused(wt, NotLinked::NoWayBack),
            "the project says it itself"
        );
    }

    #[test]
    fn invalid_or_closed_linked_repository_stays_closed() {
        let host = Host::new();
        let (project, central) = (host.at("wt"), host.at("central"));
        let link = find(&project, [&project, &central], &[], |path| {
            Some(path.display().to_string())
        });
        assert_eq!(
            link,
            host.refused(GIT, NotLinked::Closed(host.at(GIT).display().to_string()))
        );
        let link = find(
            &project,
            [&project, &host.at("main/.git/central")],
            &[],
            |_| None,
        );
        assert_eq!(link, host.refused(GIT, NotLinked::HoldsRoot));
        fs::remove_dir(host.at("main/.git/refs")).unwrap();
        assert_eq!(
            host.find("wt", &[]),
            host.refused(GIT, NotLinked::NoRepository)
        );
        std::os::unix::fs::symlink("/tmp", host.at("main/.git/refs")).unwrap();
        assert_eq!(
            host.find("wt", &[]),
            host.refused(GIT, NotLinked::NoRepository)
        );
    }

    #[test]
    fn a_separate_directory_is_opened_where_the_policy_names_it() {
        let host = Host::new();
        fs::rename(host.at(GIT), host.at("store.git")).unwrap();
        host.put(
            GIT,
            &format!("gitdir: {}\n", host.at("store.git").display()),
        );
        assert_eq!(
            host.find("main", &[]),
            host.refused("store.git", NotLinked::NoWayBack)
        );
        assert_eq!(
            host.find("main", &["other.git"]),
            host.refused("store.git", NotLinked::NoWayBack)
        );
        assert_eq!(
            host.find("main", &["store.git"]),
            host.linked("store.git", "store.git")
        );
    }

    #[test]
    fn only_the_own_and_shared_parts_of_a_worktrees_repository_are_open() {
        let repository = LinkedRepository {
            common: "/r/.git".into(),
            own: "/r/.git/worktrees/a".into(),
        };
        let open = |path: &str| repository.is_open(Path::new(path));
        for path in [
            "objects/ab/cd",
            "objects/pack/x",
            "refs/heads/x",
            "refs/heads/x.lock",
            "logs/HEAD",
            "packed-refs",
            "packed-refs.lock",
            "worktrees/a/index.lock",
            "worktrees/a/HEAD",
            "worktrees/a/rebase-merge/done",
        ] {
            assert_eq!(open(&format!("/r/.git/{path}")), Some(true), "{path}");
        }
        for path in [
            "",
            "/",
            "/config",
            "/config.lock",
            "/config.worktree",
            "/hooks",
            "/hooks/x",
            "/HEAD",
            "/index",
            "/info/exclude",
            "/worktrees",
            "/worktrees/a",
            "/worktrees/a/gitdir",
            "/worktrees/ab/HEAD",
            "/worktrees/b/HEAD",
            "/modules/x",
            "/objects",
            "/refs",
            "/packed-refs/x",
            "/Objects/x",
            "/new",
            "/COMMIT_EDITMSG",
        ] {
            assert_eq!(open(&format!("/r/.git{path}")), Some(false), "{path}");
        }
        assert_eq!(
            (open("/r"), open("/r/.gitx/objects/a"), open("/wt/config")),
            (None, None, None)
        );
        let submodule = LinkedRepository {
            common: "/r/m".into(),
            own: "/r/m".into(),
        };
        let open = |path: &str| submodule.is_open(Path::new(path));
        assert_eq!(
            [open("/r/m/HEAD"), open("/r/m/index"), open("/r/m/new")],
            [Some(true); 3]
        );
        assert_eq!(
            [
                open("/r/m"),
                open("/r/m/worktrees/x"),
                open("/r/m/Worktrees")
            ],
            [Some(false); 3]
        );
    }
}
