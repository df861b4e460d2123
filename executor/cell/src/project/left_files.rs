//! In the broker: files of the user's repositories by which programs outside act, fail, or show something else, where a call has
//! left or changed them. What must not stay is removed; all is named.
//!
//! *Does not*: look at repositories that came after the session opened, or at more than [`REPOSITORIES_MAX`]. A file that a command
//! writes is acted on until its call has ended.

use super::created_record::{inspect, state};
use broker_protocol::{AttemptKind, Barrier, Denial, Layer, Remedy};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most repositories that are looked at.
const REPOSITORIES_MAX: usize = 64;
/// Bytes that are read of a file.
const TEXT_MAX: u64 = 128;

/// What is done about a file that a call has left.
#[derive(Clone, Copy)]
enum Left {
    /// Git's prompt for shells (`__git_ps1`) has the shell expand what it reads there: it stays if it is a number.
    Counter,
    /// Git takes in the stash that it names when a commit ends a merge: it stays where one is under way. Looked at when no command
    /// runs any more.
    Autostash,
    /// Git shows another history, or other objects, by it.
    History,
    /// Git or Mercurial ends at it. Looked at when no command runs any more.
    Lock,
    /// `hg recover` writes the files that it names. Looked at when no command runs any more.
    Journal,
}

/// Files of a repository, below its directory. Locks are found by how their names end.
const GIT: [(&str, Left); 10] = [
    ("rebase-merge/msgnum", Left::Counter),
    ("rebase-merge/end", Left::Counter),
    ("rebase-apply/next", Left::Counter),
    ("rebase-apply/last", Left::Counter),
    ("MERGE_AUTOSTASH", Left::Autostash),
    ("objects/info/commit-graph", Left::History),
    ("objects/info/commit-graphs/commit-graph-chain", Left::History),
    ("objects/info/alternates", Left::History),
    ("info/grafts", Left::History),
    ("shallow", Left::History),
];
const MERCURIAL: [(&str, Left); 2] =
    [("store/journal", Left::Journal), ("store/journal.backupfiles", Left::Journal)];

/// The repositories of a session, and what of these files was there at the last look.
#[derive(Debug, Default)]
pub struct LeftFiles {
    repositories: Vec<PathBuf>,
    seen: BTreeMap<PathBuf, [i64; 7]>,
}

impl LeftFiles {
    /// Those of these repositories, and of Mercurial's in the project. What is there now is the user's, but for numbers that are none.
    pub fn new<'r>(repositories: impl IntoIterator<Item = &'r PathBuf>, project: &Path) -> Self {
        let mercurial = project.join(".hg");
        let repositories = repositories.into_iter().take(REPOSITORIES_MAX).cloned();
        let mut new = Self { repositories: repositories.chain([mercurial]).collect(), seen: BTreeMap::new() };
        new.seen = new
            .present()
            .filter(|(.., left)| !matches!(left, Left::Counter))
            .map(|(path, state, _)| (path, state))
            .collect();
        new
    }

    /// What calls have left or changed since the last look; `alone`: no command runs any more.
    pub fn update(&mut self, alone: bool) -> Vec<Denial> {
        let present: Vec<_> = self.present().collect();
        let mut seen = BTreeMap::new();
        let mut denials = Vec::new();
        for (path, state, left) in present {
            let waits = !alone && matches!(left, Left::Autostash | Left::Lock | Left::Journal);
            let before = self.seen.get(&path);
            match before {
                Some(before) if waits => drop(seen.insert(path, *before)),
                None if waits => {}
                Some(before) if *before == state => drop(seen.insert(path, state)),
                Some(_) | None => {
                    denials.extend(left_in(&path, left));
                    seen.insert(path, state);
                }
            }
        }
        self.seen = seen;
        denials
    }

    fn present(&self) -> impl Iterator<Item = (PathBuf, [i64; 7], Left)> + '_ {
        let paths = self.repositories.iter().flat_map(|repository| {
            let files: &[_] = if repository.ends_with(".hg") { &MERCURIAL } else { &GIT };
            let files = files.iter().map(|(name, left)| (repository.join(name), *left));
            files.chain(locks(repository).map(|path| (path, Left::Lock)))
        });
        paths.filter_map(|(path, left)| {
            let state = inspect(&path).ok().map(|(_, metadata)| state(&metadata))?;
            Some((path, state, left))
        })
    }
}

/// The locks in a repository's own directory.
fn locks(repository: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(repository).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "lock"))
}

/// Does about a file what is to be done, and names it.
fn left_in(path: &Path, left: Left) -> Option<Denial> {
    let removed = |why: &str| {
        let done = remove(path).map(|()| "it is removed").unwrap_or("it could NOT be removed");
        of_repository(path, &format!("{why}, so {done}."), Remedy::Nothing)
    };
    match left {
        Left::Counter if is_number(path) => None,
        Left::Counter => Some(removed(
            "A command has put here what is no number, and git's prompt for shells would run it",
        )),
        Left::Autostash if path.with_file_name("MERGE_HEAD").exists() => {
            let why = "Your next `git commit` here also applies the stash that it names, with files that commands may not make.";
            Some(of_repository(
                path,
                why,
                Remedy::Advice("a look at `git show --stat -m` of what it names".into()),
            ))
        }
        Left::Autostash => {
            let stash = text(path).filter(|text| text.iter().all(u8::is_ascii_hexdigit)).unwrap_or_default();
            let why = format!(
                "A command has left it with no merge under way, and your next `git commit` would apply the stash that it names ({})",
                String::from_utf8_lossy(&stash)
            );
            Some(removed(&why))
        }
        Left::History => {
            let why = "A command has written it, as `git gc` and `git fetch` do. By it your git can show another history or other \
                       objects than are there in truth.";
            let advice =
                "`git -c core.commitGraph=false log` for a commit graph; its removal if nothing needs it";
            Some(of_repository(path, why, Remedy::Advice(advice.into())))
        }
        Left::Lock => {
            let why = "A command has left it, and your next `git add` or `git commit` ends at it; or a git of yours is at work.";
            Some(of_repository(
                path,
                why,
                Remedy::Advice("its removal, if no git of yours is at work".into()),
            ))
        }
        Left::Journal => {
            let why = "A command has left it, and your `hg recover` would write the files that it names";
            Some(of_repository(
                path,
                &format!("{why}; {}.", set_aside(path)),
                Remedy::Advice("`hg verify`".into()),
            ))
        }
    }
}

/// Renames a file within its directory, where a new one takes the place of what was kept before. What was done.
pub fn set_aside(path: &Path) -> String {
    let aside = || -> Result<PathBuf> {
        let (directory, mut name) = parent(path)?;
        let from = name.clone();
        name.push(".refused");
        renameat(&directory, from.as_os_str(), &directory, name.as_os_str())?;
        Ok(path.with_file_name(name))
    };
    match aside() {
        Ok(aside) => format!("it is kept as {}", aside.display()),
        Err(_) if remove(path).is_ok() => "it is removed".to_owned(),
        Err(_) => "it could NOT be taken away".to_owned(),
    }
}

fn remove(path: &Path) -> Result<()> {
    let (directory, name) = parent(path)?;
    unlinkat(&directory, name.as_os_str(), UnlinkatFlags::NoRemoveDir)
}

/// The directory of a file, reached by no link: commands write it.
fn parent(path: &Path) -> Result<(OwnedFd, OsString)> {
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::EINVAL)?;
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC);
    Ok((openat2(AT_FDCWD, parent, how.resolve(ResolveFlag::RESOLVE_NO_SYMLINKS))?, name.to_owned()))
}

fn is_number(path: &Path) -> bool {
    text(path).is_some_and(|text| text.iter().all(u8::is_ascii_digit))
}

/// What a short file holds, without the line end.
fn text(path: &Path) -> Option<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        let (directory, name) = parent(path)?;
        let flags =
            OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let file = openat(&directory, name.as_os_str(), flags, Mode::empty())?;
        if fstat(&file)?.st_size as u64 > TEXT_MAX {
            return Err(Errno::EFBIG.into());
        }
        let mut text = Vec::new();
        File::from(file).take(TEXT_MAX).read_to_end(&mut text)?;
        Ok(text)
    };
    let text = read().ok()?;
    Some(text.strip_suffix(b"\n").unwrap_or(&text).to_vec())
}

/// What a command has left in a repository.
pub fn of_repository(path: &Path, why: &str, remedy: Remedy) -> Denial {
    let barrier = Barrier::Layer(Layer::ProtectedNames, None);
    Denial::new(
        AttemptKind::Write,
        String::from_utf8_lossy(path.as_os_str().as_bytes()),
        barrier,
        why,
        remedy,
    )
}
