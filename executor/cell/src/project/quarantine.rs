//! In the broker: takes what a cell's first process has taken away into `.lazaret/quarantine` of the central root, which no cell
//! writes, and says so.
//!
//! The cell is believed no more than that it names what has a name of [`stale_temporaries`]: nothing else is moved, no link is
//! followed, and nothing outside the zones is touched. What cannot be moved (another file system, a central root that is only read)
//! keeps that name where it is, and is named all the same.

use broker_protocol::{AttemptKind, CallId, Denial, Remedy, Zone};
use executor_layers::spec::SandboxSpec;
use executor_layers::stale_temporaries::{PREFIX, has_such_a_name};
use executor_layers::undo_directory;
use executor_supervisor::{Misplaced, TakenAway, protected_at};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, RenameFlags, ResolveFlag, open, openat2, renameat2};
use nix::sys::stat::{Mode, mkdirat};
use policies::Access;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Its name in `.lazaret` of a central root.
const NAME: &str = "quarantine";
/// Characters of a file's own name in that of what is kept.
const OWN_NAME_MAX: usize = 64;
const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// Something that a command had made and that was taken away when it had ended.
#[derive(Debug)]
pub struct Quarantined {
    /// For the result of the call.
    pub denial: Denial,
    /// Where the command had made it.
    pub path: String,
    /// Where it is now, if anything is left of it.
    pub kept_as: Option<String>,
}

impl Quarantined {
    /// Takes it into quarantine for a call, or as far as that goes.
    pub fn take(taken: &TakenAway, call: Option<CallId>, spec: &SandboxSpec) -> Self {
        let path = taken.path.clone();
        let kept_as = taken
            .aside
            .as_deref()
            .map(|aside| into_quarantine(aside, &path, call, spec).unwrap_or_else(|_| aside.to_owned()));
        let why = match taken.why {
            Misplaced::Protected => "Programs outside act on what has this name",
            Misplaced::Link => "Programs outside would follow this link",
            Misplaced::Repository => {
                "With it this directory would be a repository to the user's git, whose settings are protected nowhere"
            }
            Misplaced::InTheWay => "Programs outside would wait for it, or fail at it",
        };
        let (left, remedy) = match &kept_as {
            None => ("it is removed".to_owned(), Remedy::Nothing),
            Some(kept) if *kept == path => (
                "it could NOT be taken away".to_owned(),
                Remedy::Advice(format!("its removal: {}", path.display())),
            ),
            Some(kept) => (
                format!("it is kept as {}", kept.display()),
                Remedy::Advice("a look at it outside the sandbox".into()),
            ),
        };
        let why = format!("{why}, so it was looked at again when the command had ended; {left}.");
        let mut denial = protected_at(AttemptKind::Write, &path, spec);
        (denial.why, denial.remedy) = (why, remedy);
        let text = |path: &Path| path.to_string_lossy().into_owned();
        Self { denial, path: text(&path), kept_as: kept_as.as_deref().map(text) }
    }
}

/// Moves what lies at `aside` into the quarantine; where it is then.
fn into_quarantine(aside: &Path, path: &Path, call: Option<CallId>, spec: &SandboxSpec) -> Result<PathBuf> {
    let (parent, name) = aside.parent().zip(aside.file_name()).ok_or(Errno::EINVAL)?;
    if !has_such_a_name(name) || spec.policy.central != Access::Write {
        return Err(Errno::EACCES);
    }
    let roots = [Zone::Project, Zone::Central].map(|zone| spec.zone(zone).0);
    let below = roots.into_iter().filter_map(|root| Some((root, parent.strip_prefix(root).ok()?)));
    // A central root may lie in a project, and the other way round.
    let (root, below) = below.min_by_key(|(_, below)| below.as_os_str().len()).ok_or(Errno::EXDEV)?;
    let from = open_below(open(root, DIRECTORY, Mode::empty())?, below)?;
    let (to, directory) = directory(&spec.central)?;
    let own = path.file_name().unwrap_or_default().to_string_lossy();
    let own: String = own.chars().take(OWN_NAME_MAX).collect();
    let random = name.to_string_lossy();
    let call = call.map_or("background".to_owned(), |call| call.to_string());
    let kept = format!("{call}-{}-{own}", random.trim_start_matches(PREFIX));
    renameat2(&from, name, &to, kept.as_str(), RenameFlags::RENAME_NOREPLACE)?;
    Ok(directory.join(kept))
}

/// The quarantine of a central root, which is made where it is missing, and its path.
fn directory(central: &Path) -> Result<(OwnedFd, PathBuf)> {
    let ours = undo_directory::open(central).ok_or(Errno::ENOENT)?;
    match mkdirat(&ours, NAME, Mode::S_IRWXU) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(errno),
    }
    Ok((open_below(&ours, Path::new(NAME))?, central.join(undo_directory::NAME).join(NAME)))
}

fn open_below(root: impl AsFd, path: &Path) -> Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let links = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    openat2(root, path, OpenHow::new().flags(DIRECTORY).resolve(links))
}
