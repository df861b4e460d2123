//! In the broker: takes away what a call has misplaced (`executor_supervisor`'s `new_names.rs`), into a directory of the central root.
//!
//! Only the object that the call's supervisor names is taken, and only where that still lies; and nothing that was protected when the session
//! opened. What cannot be taken is reported, and stays. Nothing is taken without a result that names it.
//!
//! *Does not*: cross file systems, change modes to reach something, or wait for the lock on names longer than 50 ms.

use super::left_files::of_repository;
use broker_protocol::paste::shell_word;
use broker_protocol::{Denial, Finding, FindingKind, Zone};
use executor_layers::leased_mounts::open_without_links;
use executor_layers::spec::SandboxSpec;
use executor_layers::undo_directory;
use executor_supervisor::{CreatedFiles, Refusal, RenameLock, born, describe, found};
use executor_sys::random;
use nix::Result;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, RenameFlags, ResolveFlag, openat, openat2, renameat2};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use policies::Access;
use std::cell::OnceCell;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// In the undo directory, whose name is protected: no call reaches what was taken away, or can keep anything from being taken.
const NAME: &str = "quarantine";
/// Maximum number of objects in it.
const TAKEN_MAX: usize = 256;
const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);
/// How often the lock is tried for, each time after a millisecond.
const LOCK_TRIES: usize = 50;

/// Describes the refusals of a call for its result, and takes away what the call has misplaced: returns what was refused, and what was
/// found.
pub fn conclude(refusals: &[Refusal], spec: &SandboxSpec) -> (Vec<Denial>, Vec<Finding>) {
    let is_misplaced = refusals.iter().any(|refusal| refusal.misplaced().is_some());
    let memory = spec.created.as_ref().filter(|_| is_misplaced);
    let names = memory
        .and_then(|memory| memory.try_clone().ok())
        .map(CreatedFiles::of);
    let lock = OnceCell::new();
    let lock = || {
        lock.get_or_init(|| names.as_ref().and_then(lock_of))
            .is_some()
    };
    let findings = refusals
        .iter()
        .filter_map(|refusal| match refusal.misplaced() {
            Some((identity, path)) => Some(describe_taking(
                path,
                take(identity, path, &lock, spec),
                spec,
            )),
            None => found(refusal),
        });
    let findings = findings.collect();
    (
        refusals
            .iter()
            .filter_map(|refusal| describe(refusal, spec))
            .collect(),
        findings,
    )
}

fn describe_taking(path: &Path, taken: Result<PathBuf>, spec: &SandboxSpec) -> Finding {
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
        Err(Errno::ENOENT | Errno::ESTALE) => of_repository(FindingKind::NotTaken, path, why)
            .with_state("no longer there; nothing was taken away")
            .with_advice("see where it has gone"),
        Err(errno) => of_repository(FindingKind::NotTaken, path, why)
            .with_state(format!(
                "could NOT be taken away and may still be there: {}",
                errno.desc()
            ))
            .with_advice("remove it if you do not trust it"),
    }
}

/// Moves the object into quarantine; returns its path there, relative to the central root.
fn take(
    identity: &[u8],
    path: &Path,
    lock: &dyn Fn() -> bool,
    spec: &SandboxSpec,
) -> Result<PathBuf> {
    // The path comes from a cell's first process.
    if !is_in_reach(path, spec) || holds_protected(path, spec) {
        return Err(Errno::EPERM);
    }
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::EINVAL)?;
    let parent = open_without_links(parent)?;
    let quarantine = open_quarantine(spec)?;
    if !lock() {
        return Err(Errno::ENOLCK);
    }
    check(&parent, name, identity, spec)?;
    let number = random::bytes().map_err(|_| Errno::EIO)?;
    let holder = format!("{:016x}", u64::from_le_bytes(number));
    mkdirat(&quarantine, holder.as_str(), Mode::S_IRWXU)?;
    let moved = move_into(&quarantine, &holder, (&parent, name), identity, spec);
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
    identity: &[u8],
    spec: &SandboxSpec,
) -> Result<()> {
    let holder = openat(quarantine, holder, DIRECTORY, Mode::empty())?;
    let flags = RenameFlags::RENAME_NOREPLACE;
    renameat2(parent, name, &holder, name, flags)?;
    // The user's programs do not know the lock: what is somebody else's goes back. Where it cannot, the result says where it lies.
    if let Err(errno) = check(&holder, name, identity, spec)
        && renameat2(&holder, name, parent, name, flags).is_ok()
    {
        return Err(errno);
    }
    fchmod(&holder, Mode::empty())
}

/// The lock on names, if no cell holds it for long.
pub(super) fn lock_of(names: &CreatedFiles) -> Option<RenameLock<'_>> {
    (0..LOCK_TRIES).find_map(|_| {
        let lock = names.try_lock_renames().ok();
        if lock.is_none() {
            sleep(Duration::from_millis(1));
        }
        lock
    })
}

/// Whether something protected lies there or below.
fn holds_protected(path: &Path, spec: &SandboxSpec) -> bool {
    spec.objects.has_place_below(path) || spec.pins.iter().any(|pin| pin.path.starts_with(path))
}

/// Whether calls may change names there, and Lazaret keeps nothing there.
fn is_in_reach(path: &Path, spec: &SandboxSpec) -> bool {
    let zones = [Zone::Project, Zone::Central].into_iter();
    let zones = zones
        .filter(|zone| spec.command_access(*zone) == Access::Write)
        .map(|zone| spec.zone(zone).0);
    let linked = spec
        .linked
        .iter()
        .filter(|_| spec.policy.project == Access::Write);
    let roots = zones.chain(linked.map(|linked| linked.common.as_path()));
    lies_below(path, roots, &spec.central.join(undo_directory::NAME))
}

/// Whether a path lies below one of `roots` and not in `own`, with no `..` on the way; links are not followed.
fn lies_below<'a>(path: &Path, mut roots: impl Iterator<Item = &'a Path>, own: &Path) -> bool {
    let is_plain = path
        .components()
        .skip(1)
        .all(|name| matches!(name, Component::Normal(_)));
    is_plain && roots.any(|root| path != root && path.starts_with(root)) && !path.starts_with(own)
}

/// Checks that a name leads to this object, and that it was not protected when the session opened.
fn check(parent: &OwnedFd, name: &OsStr, identity: &[u8], spec: &SandboxSpec) -> Result<()> {
    let object = openat(
        parent,
        name,
        OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    if CreatedFiles::identity(&object).as_deref() != Some(identity) {
        return Err(Errno::ESTALE);
    }
    let stat = fstat(&object)?;
    match spec
        .objects
        .protection((stat.st_dev, stat.st_ino), || born(&object))
    {
        Some(_) => Err(Errno::EPERM),
        None => Ok(()),
    }
}

/// Opens the directory, which is created if necessary, if there is room.
fn open_quarantine(spec: &SandboxSpec) -> Result<OwnedFd> {
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

    /// What a first process that was taken over might report.
    #[test]
    fn nothing_outside_the_roots_is_in_reach() {
        let in_reach = |path: &str| {
            let roots = ["/h/p", "/h/c"].map(Path::new).into_iter();
            lies_below(Path::new(path), roots, Path::new("/h/c/.lazaret"))
        };
        assert!(in_reach("/h/p/a") && in_reach("/h/c/x/y"));
        for path in [
            "/h/p",
            "/h/p/",
            "/h/pp/a",
            "/h/p/../secret",
            "/h/p/a/../../secret",
            "/h/p/..",
            "/h/c/o/../.lazaret/project",
            "/h/c/.lazaret",
            "/h/c/.lazaret/quarantine/x",
            "h/p/a",
            "a/h/p/x",
            "",
        ] {
            assert!(!in_reach(path), "{path}");
        }
    }
}
