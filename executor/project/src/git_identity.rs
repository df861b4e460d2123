//! Gives git in cells what it needs of the account's settings: the name and the email of commits, and which filters files go through.
//! Maintenance that a command starts by itself is set to end with the command: in the background it would be killed with its cell.
//!
//! Most repositories have none of their own, and without them `git commit` fails. The rest of the account's settings stays where it is:
//! it may hold tokens and names of programs. Where those settings include others for some repositories only, cells get files of their own
//! under the same conditions, so that git decides for each repository as it does outside. Where a file does not say plainly who commits,
//! cells get no name: a commit under the wrong name would be worse than none.
//!
//! A filter that git does not know it leaves out without a word, and commits what should have been filtered: the content of large files,
//! or of files that are to be encrypted. So git-lfs is set up as `git lfs install` does it, and git stops at any other filter of the account.

use crate::git_settings::text;
use executor_spec::sandbox::{HomeFiles, Rooted};
use policies::{
    IdentitySetting, git_commit_settings, git_filter_drivers, git_identity, git_includes,
};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Below a home. The account's `.gitconfig` comes after it, where a policy shows that.
const FILE: &str = ".config/git/config";
/// The first is for git before 2.47. Whatever else sets them is stronger.
const MAINTENANCE: &str = "[gc]\n\tautoDetach = false\n[maintenance]\n\tautoDetach = false\n";
/// As `git lfs install` writes them.
const LFS: &str = "\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\tprocess = git-lfs filter-process\n";
/// The depth to which git itself follows includes (`MAX_INCLUDE_DEPTH`, `config.c`).
const DEPTH_MAX: usize = 10;
/// Maximum number of files that are read.
const READ_MAX: usize = 256;

/// Gives git in cells the identity that these settings of an account with this home have, and their filters, unless the policy shows
/// the file itspec. Records which settings have no effect in cells.
pub fn give_git_settings(new: &mut HomeFiles, spec: &Rooted, home: &Path, settings: &[PathBuf]) {
    let all = with_includes(home, settings);
    let unseen = all.iter().filter(|(file, _)| !spec.shows(file));
    new.without_effect = unseen
        .flat_map(|(_, text)| git_commit_settings(text))
        .collect();
    let place = spec.scratch.home.join(FILE);
    if spec.shows(&place) {
        return;
    }
    let Identity { own, included } = Identity::of(home, settings).unwrap_or_default();
    let filters = filters(all.iter().map(|(_, text)| text.as_slice()));
    let content = MAINTENANCE.to_owned() + &own + &filters;
    new.files.push((FILE.into(), content.into_bytes()));
    let included = included.into_iter().enumerate();
    new.files.extend(included.map(|(at, text)| {
        let file = Path::new(FILE).with_file_name(included_name(at));
        (file, text.into_bytes())
    }));
}

/// These files that exist, with all that they include.
fn with_includes(home: &Path, settings: &[PathBuf]) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    let mut next: Vec<PathBuf> = settings.to_vec();
    while let Some(file) = next.pop() {
        if all.len() >= READ_MAX || all.iter().any(|(known, _)| *known == file) {
            continue;
        }
        let Ok(Some(text)) = text(&file) else {
            continue;
        };
        let included = git_includes(&text);
        next.extend(
            included
                .iter()
                .filter_map(|path| resolved(home, &file, path)),
        );
        all.push((file, text));
    }
    all
}

/// The file that an include names; `None` for another user's home.
fn resolved(home: &Path, file: &Path, path: &str) -> Option<PathBuf> {
    match path.strip_prefix('~') {
        Some("") => Some(home.to_owned()),
        Some(below) => below.strip_prefix('/').map(|below| home.join(below)),
        None => Some(file.parent()?.join(path)),
    }
}

/// The filters in these texts: git-lfs as it is, and all others without a command, but required.
fn filters<'a>(texts: impl Iterator<Item = &'a [u8]>) -> String {
    let drivers: BTreeSet<String> = texts.flat_map(git_filter_drivers).collect();
    let lines = drivers.iter().map(|name| {
        let commands = if name == "lfs" { LFS } else { "" };
        format!("[filter \"{name}\"]\n{commands}\trequired = true\n")
    });
    lines.collect()
}

fn included_name(at: usize) -> String {
    format!("identity-{at}")
}

/// The author whose commits git makes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Identity {
    /// The settings of the file itself.
    own: String,
    /// What they include under conditions, by the number in the file's name.
    included: Vec<String>,
}

/// The part of an account's settings that cells need.
struct Reading<'a> {
    home: &'a Path,
    read: usize,
    included: Vec<String>,
}

impl Identity {
    /// From the settings in these files, of which later ones are stronger; `None` if they do not say it plainly.
    fn of(home: &Path, files: &[PathBuf]) -> Option<Self> {
        let (read, included) = (0, Vec::new());
        let mut reading = Reading {
            home,
            read,
            included,
        };
        let own = files
            .iter()
            .map(|file| reading.rendered(file, 0))
            .collect::<Option<String>>()?;
        Some(Self {
            own,
            included: reading.included,
        })
    }
}

impl Reading<'_> {
    /// A file as cells get it; empty if it says nothing.
    fn rendered(&mut self, file: &Path, depth: usize) -> Option<String> {
        self.read += 1;
        if depth > DEPTH_MAX || self.read > READ_MAX {
            return None;
        }
        let Some(text) = text(file).ok()? else {
            return Some(String::new());
        };
        let mut rendered = String::new();
        for setting in git_identity(&text)? {
            let lines = match setting {
                IdentitySetting::Name(name) => format!("[user]\n\tname = \"{name}\"\n"),
                IdentitySetting::Email(email) => format!("[user]\n\temail = \"{email}\"\n"),
                IdentitySetting::Include { condition, path } => {
                    let below = self.rendered(&resolved(self.home, file, &path)?, depth + 1)?;
                    match condition {
                        None => below,
                        Some(_) if below.is_empty() => below,
                        Some(condition) => self.under(&condition, file, below)?,
                    }
                }
            };
            rendered.push_str(&lines);
        }
        Some(rendered)
    }

    /// The include of `below` under a condition that `file` states.
    fn under(&mut self, condition: &str, file: &Path, below: String) -> Option<String> {
        let condition = condition_of(condition, self.home, file)?;
        self.included.push(below);
        let name = included_name(self.included.len() - 1);
        Some(format!("[includeIf \"{condition}\"]\n\tpath = {name}\n"))
    }
}

/// A condition as git in a cell has to read it: its home is another one, and so is the directory of its settings. `None` for one that may
/// hold a token, or that git does not read.
fn condition_of(condition: &str, home: &Path, file: &Path) -> Option<String> {
    let (kind, value) = condition.split_once(':')?;
    let path = match kind {
        "gitdir" | "gitdir/i" => match (value.strip_prefix("~/"), value.strip_prefix("./")) {
            (Some(below), _) => plain_path(home)? + below,
            (_, Some(below)) => plain_path(file.parent()?)? + below,
            (None, None) if value.starts_with('~') => return None,
            (None, None) => value.to_owned(),
        },
        "onbranch" => value.to_owned(),
        "hasconfig" if !(value.contains("://") && value.contains('@')) => value.to_owned(),
        _ => return None,
    };
    Some(format!("{kind}:{path}"))
}

/// A directory with a slash at its end, if no character of it means something in a pattern or a setting.
fn plain_path(directory: &Path) -> Option<String> {
    // Git takes links out of these, and compares.
    let real = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let text = real.to_str()?;
    let is_plain = !text.contains(['*', '?', '[', '\\', '"']) && !text.contains(char::is_control);
    is_plain.then(|| format!("{}/", text.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "/home/u";

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn put(&self, name: &str, text: &str) -> PathBuf {
            let file = self.0.path().join(name);
            fs::write(&file, text).unwrap();
            file
        }
    }

    fn folder() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn of(files: &[PathBuf]) -> Option<Identity> {
        Identity::of(Path::new(HOME), files)
    }

    #[test]
    fn a_filter_that_cells_do_not_have_stops_git() {
        let folder = folder();
        let file = folder.put(
            "c",
            "[filter \"lfs\"]\n\tclean = x\n[include]\n\tpath = more\n",
        );
        folder.put("more", "[filter \"crypt\"]\n\tclean = y\n");
        let lfs = format!("[filter \"lfs\"]\n{LFS}\trequired = true\n");
        let want = format!("[filter \"crypt\"]\n\trequired = true\n{lfs}");
        let all = with_includes(Path::new(HOME), &[file]);
        assert_eq!(filters(all.iter().map(|(_, text)| text.as_slice())), want);
        assert!(with_includes(Path::new(HOME), &["/none".into()]).is_empty());
    }

    #[test]
    fn later_files_are_stronger_and_an_unclear_one_ends_it() {
        let folder = folder();
        let files = [
            folder.put("a", "[user]\nname = A\nemail = a\n"),
            folder.put("b", "[user]\nemail = b\n"),
            "/none".into(),
        ];
        let want = "[user]\n\tname = \"A\"\n[user]\n\temail = \"a\"\n[user]\n\temail = \"b\"\n";
        assert_eq!(of(&files).unwrap().own, want);
        assert_eq!(
            of(&[folder.put("c", "[core]\nbare = false\n")]),
            Some(Identity::default())
        );
        assert_eq!(
            of(&[files[0].clone(), folder.put("d", "[user]\nname = \\\nx\n")]),
            None
        );
    }

    #[test]
    fn conditional_git_identity_applies_to_its_repositories_only() {
        let folder = folder();
        let at = folder
            .0
            .path()
            .canonicalize()
            .unwrap()
            .display()
            .to_string();
        folder.put("work", "[user]\nemail = w\n[core]\neditor = x\n");
        folder.put("nothing", "[core]\neditor = x\n");
        let file = folder.put(
            "c",
            "[user]\nemail = a\n[includeIf \"gitdir:~/work/\"]\npath = work\n[includeIf \"gitdir/i:./x/\"]\npath = work\n\
             [includeIf \"onbranch:m\"]\npath = nothing\n[include]\npath = work\n",
        );
        let found = of(&[file]).unwrap();
        let email = |email: &str| format!("[user]\n\temail = \"{email}\"\n");
        let own = email("a")
            + "[includeIf \"gitdir:/home/u/work/\"]\n\tpath = identity-0\n"
            + &format!("[includeIf \"gitdir/i:{at}/x/\"]\n\tpath = identity-1\n")
            + &email("w");
        assert_eq!(found.own, own);
        assert_eq!(found.included, [email("w"), email("w")]);
    }

    #[test]
    fn includes_have_an_end() {
        let folder = folder();
        let file = folder.put("c", "[user]\nname = A\n[include]\npath = c\n");
        assert_eq!(of(std::slice::from_ref(&file)), None);
        assert_eq!(with_includes(Path::new(HOME), &[file]).len(), 1);
    }

    #[test]
    fn conditions_that_git_would_read_otherwise_are_not_given() {
        let file = Path::new("/etc/gitconfig");
        let of = |condition: &str| condition_of(condition, Path::new(HOME), file);
        assert_eq!(of("gitdir:w/").unwrap(), "gitdir:w/");
        let remote = "hasconfig:remote.*.url:git@h.invalid:*/**";
        assert_eq!(of(remote).unwrap(), remote);
        for none in [
            "hasconfig:remote.*.url:https://t@h.invalid/**",
            "x:y",
            "gitdir",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(condition_of("gitdir:~/w", Path::new("/h/[u]"), file), None);
    }
}
