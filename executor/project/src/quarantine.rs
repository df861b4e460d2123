//! In the broker: takes away what a call has misplaced (`executor_supervisor`'s `second_look.rs`), into a directory of the central root.
//!
//! Only the object that the call's supervisor names is taken, and only where that still lies; and nothing that was protected when the session
//! opened. What cannot be taken is reported, and stays. Nothing is taken without a result that names it.
//!
//! A command may close directories to keep it from being taken: they are opened for that, and closed again.
//!
//! *Does not*: cross file systems.

use crate::finding::of_repository;
use crate::tree::SessionTree;
use broker_protocol::paste::shell_word;
use broker_protocol::{Finding, FindingKind};
use executor_spec::created::{CreatedFiles, RenameLock};
use executor_spec::known_directories::Identity;
use executor_spec::refusals::Refusal;
use executor_spec::sandbox::SandboxSpec;
use executor_spec::undo_directory;
use executor_sys::errno::errno;
use executor_sys::file::open_without_links;
use executor_sys::opened_way::OpenedWay;
use executor_sys::random;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, RenameFlags, ResolveFlag, openat, openat2, renameat2};
use nix::sys::stat::{Mode, fchmod, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use policies_guard::{Change, Rule, Verdict, judge};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// In the undo directory, whose name is protected: no call reaches what was taken away, or can keep anything from being taken.
const NAME: &str = undo_directory::QUARANTINE;
/// Maximum number of objects in it.
const TAKEN_MAX: usize = 256;
/// Maximum number of objects that could not be taken yet and are tried again.
const WAITING_MAX: usize = TAKEN_MAX;
const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);
/// Objects that calls have misplaced and nobody has taken away yet.
#[derive(Debug, Default)]
pub(crate) struct Misplaced(Vec<MisplacedObject>);

#[derive(Debug, PartialEq, Eq)]
struct MisplacedObject {
    identity: Identity,
    path: PathBuf,
    /// Whether it was reported that it could not be taken.
    is_said: bool,
}

impl Misplaced {
    /// Adds what is misplaced among the refusals of a call.
    pub(crate) fn add(&mut self, refusals: &[Refusal]) {
        let objects = refusals.iter().filter_map(Refusal::misplaced);
        self.0
            .extend(objects.map(|(identity, path)| MisplacedObject {
                identity: *identity,
                path: path.to_owned(),
                is_said: false,
            }));
        // The oldest goes, and what nobody was told of stays.
        while self.0.len() > WAITING_MAX
            && let Some(oldest) = self.0.iter().position(|object| object.is_said)
        {
            self.0.remove(oldest);
        }
    }

    /// Whether there is nothing to be taken away.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes all of it away, under the lock on names. The roots must be open to their owner: nothing is found below one that cannot be
    /// entered. What cannot be taken now, as another command closes directories meanwhile, is tried again after the next call.
    pub(crate) fn take(&mut self, spec: &SandboxSpec, lock: Option<&RenameLock>) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.0.retain_mut(|object| {
            let taken = take(&object.identity, &object.path, lock, spec);
            let stays = taken.as_ref().is_err_and(NotTaken::may_be_taken_later);
            if !stays || !object.is_said {
                let is_news = !object.is_said || taken.is_ok();
                findings.extend(is_news.then(|| describe_taking(&object.path, taken, spec)));
            }
            object.is_said = true;
            stays
        });
        findings
    }
}

/// Why an object was not taken away.
#[derive(Debug, PartialEq, Eq)]
enum NotTaken {
    /// It is gone, or another object lies there.
    Gone,
    /// A rule of ours: calls cannot have made it there, or something there was protected when the session opened.
    Refused(Rule),
    /// The kernel's error, or a bound of ours; it may be taken after a later call.
    Failed(Errno),
}

impl From<Errno> for NotTaken {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ENOENT => NotTaken::Gone,
            errno => NotTaken::Failed(errno),
        }
    }
}

impl NotTaken {
    /// Whether it may be taken after a later call.
    fn may_be_taken_later(&self) -> bool {
        match self {
            NotTaken::Gone | NotTaken::Refused(_) => false,
            NotTaken::Failed(_) => true,
        }
    }
}

fn describe_taking(path: &Path, taken: Result<PathBuf, NotTaken>, spec: &SandboxSpec) -> Finding {
    let why = "The call made it here, where your programs act on it by themselves and no call may make anything.";
    match taken {
        Ok(place) => {
            let holder = spec.central.join(place.parent().unwrap_or(&place));
            let advice = format!(
                "nobody may enter its directory in the quarantine; to look at it or move it back, outside the sandbox: chmod 700 {}",
                shell_word(&holder.to_string_lossy())
            );
            of_repository(FindingKind::Quarantined, path, why)
                .with_state(format!("in quarantine: central:{}", place.display()))
                .with_advice(advice)
        }
        Err(NotTaken::Gone) => of_repository(FindingKind::NotTaken, path, why)
            .with_state("no longer there; nothing was taken away")
            .with_advice("see where it has gone"),
        Err(NotTaken::Refused(_)) => still_there(path, why, "something protected lies there"),
        Err(NotTaken::Failed(errno)) => still_there(path, why, errno.desc()),
    }
}

fn still_there(path: &Path, why: &str, reason: &str) -> Finding {
    of_repository(FindingKind::NotTaken, path, why)
        .with_state(format!(
            "could NOT be taken away and may still be there: {reason}"
        ))
        .with_advice("remove it if you do not trust it")
}

/// Moves the object into quarantine; returns its path there, relative to the central root.
fn take(
    identity: &[u8],
    path: &Path,
    lock: Option<&RenameLock>,
    spec: &SandboxSpec,
) -> Result<PathBuf, NotTaken> {
    // The path comes from a cell's first process.
    judged(None, path, spec)?;
    let tree = SessionTree(spec);
    let root = tree.root_of(path).ok_or(Errno::EINVAL)?;
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::EINVAL)?;
    // What a command has closed, it may have closed for this.
    let _open = OpenedWay::open(root, path)?;
    let parent = open_without_links(parent)?;
    let quarantine = open_quarantine(spec)?;
    lock.ok_or(Errno::ENOLCK)?;
    let object = (path, identity);
    check(&parent, name, object, spec)?;
    let number = random::bytes().map_err(|_| Errno::EIO)?;
    let holder = format!("{:016x}", u64::from_le_bytes(number));
    mkdirat(&quarantine, holder.as_str(), Mode::S_IRWXU)?;
    let moved = move_into(&quarantine, &holder, (&parent, name), object, spec);
    if moved.is_err() {
        // If it cannot be removed, an empty directory stays.
        let _ = unlinkat(&quarantine, holder.as_str(), UnlinkatFlags::RemoveDir);
    }
    moved.map(|()| {
        [undo_directory::NAME, NAME, &holder]
            .iter()
            .collect::<PathBuf>()
            .join(name)
    })
}

/// Moves it into the directory `holder`, which nobody can enter afterwards: a shell's prompt there would run git in what may be a
/// repository.
fn move_into(
    quarantine: &OwnedFd,
    holder: &str,
    (parent, name): (&OwnedFd, &OsStr),
    object: (&Path, &[u8]),
    spec: &SandboxSpec,
) -> Result<(), NotTaken> {
    let holder = openat(quarantine, holder, DIRECTORY, Mode::empty())?;
    let flags = RenameFlags::RENAME_NOREPLACE;
    renameat2(parent, name, &holder, name, flags)?;
    // The user's programs do not know the lock: what is somebody else's goes back. Where it cannot, the result says where it lies.
    if let Err(not_ours) = check(&holder, name, object, spec)
        && renameat2(&holder, name, parent, name, flags).is_ok()
    {
        return Err(not_ours);
    }
    Ok(fchmod(&holder, Mode::empty())?)
}

/// Checks that a name leads to this object, which a call has put at a path, and that it may be taken away from there.
fn check(
    parent: &OwnedFd,
    name: &OsStr,
    (path, identity): (&Path, &[u8]),
    spec: &SandboxSpec,
) -> Result<(), NotTaken> {
    let object = openat(
        parent,
        name,
        OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    if CreatedFiles::identity(&object).as_deref() != Some(identity) {
        return Err(NotTaken::Gone);
    }
    judged(Some(object.as_fd()), path, spec)
}

/// Asks the judge. An error of the disk is none of its refusals.
fn judged(object: Option<BorrowedFd>, at: &Path, spec: &SandboxSpec) -> Result<(), NotTaken> {
    match judge(&SessionTree(spec), Change::TakeAway { object, at }) {
        Ok(Verdict::Allow) => Ok(()),
        Ok(Verdict::Refuse(rule)) => Err(NotTaken::Refused(rule)),
        Err(error) => Err(NotTaken::Failed(errno(error))),
    }
}

/// Opens the directory, which is created if necessary, if there is room.
fn open_quarantine(spec: &SandboxSpec) -> Result<OwnedFd, Errno> {
    undo_directory::make(&spec.central);
    let above = undo_directory::open(&spec.central).ok_or(Errno::ENOTDIR)?;
    match mkdirat(&above, NAME, Mode::S_IRWXU) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(errno),
    }
    let inside = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let directory = openat2(
        &above,
        NAME,
        OpenHow::new().flags(DIRECTORY).resolve(inside),
    )?;
    let entries = Dir::from_fd(directory.try_clone().map_err(|_| Errno::EMFILE)?)?
        .iter()
        .count();
    // `.` and `..` are entries too.
    if entries >= TAKEN_MAX + 2 {
        Err(Errno::EDQUOT)
    } else {
        Ok(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::AttemptKind;
    use executor_spec::refusals::Cause;

    #[test]
    fn waiting_objects_are_limited_and_new_ones_are_kept() {
        let refusals = |from: usize, count: usize| -> Vec<Refusal> {
            let target = |number: usize| format!("/p/{number}").into_bytes();
            let refusal = |number| Refusal {
                kind: AttemptKind::Write,
                cause: Cause::Misplaced,
                object: Some([0; 24]),
                target: target(number),
                count: 1,
            };
            (from..from + count).map(refusal).collect()
        };
        let mut misplaced = Misplaced::default();
        misplaced.add(&refusals(0, WAITING_MAX));
        misplaced
            .0
            .iter_mut()
            .for_each(|object| object.is_said = true);
        misplaced.add(&refusals(WAITING_MAX, 12));
        assert_eq!(misplaced.0.len(), WAITING_MAX);
        let new = misplaced.0.iter().filter(|object| !object.is_said);
        assert_eq!(new.count(), 12);
        assert_eq!(misplaced.0[0].path, Path::new("/p/12"));
    }

    #[test]
    fn only_a_rule_of_ours_is_final() {
        for errno in [Errno::EPERM, Errno::EACCES, Errno::EROFS, Errno::EDQUOT] {
            assert!(NotTaken::from(errno).may_be_taken_later(), "{errno}");
        }
        for end in [
            NotTaken::Refused(Rule::Object),
            NotTaken::from(Errno::ENOENT),
        ] {
            assert!(!end.may_be_taken_later(), "{end:?}");
        }
    }
}
