//! The second look: names that a call has made, judged once more when all of the call is dead.
//!
//! The rules refuse names on which the host acts when they are made, so this finds something only where a rule was evaded. Noted are
//! names that a rule refused and that were made nevertheless, and new files that a rule protects by their last name in another place:
//! a directory may have been moved there. A note is a path with an object's identity. It counts only while that object lies where this
//! call has put it: what somebody else has made, or moved there, is theirs.
//!
//! *Does not*: note what a call only opens, removes or writes; what existed before, under a name that no rule refused; directories that
//! no rule refused; files that no rule refused and whose last name only a pattern matches (`*.json`), as there are thousands; names in
//! leased paths and scratch space; objects whose file system reports no birth times.

use crate::areas::Area;
use crate::object::{Handle, kind_of};
use crate::rules::AccessRules;
use broker_protocol::AttemptKind::Write;
use executor_spec::created::identity_of;
use executor_spec::known_directories::Identity;
use executor_spec::refusals::{Cause, MISPLACED_MAX, Refusal, TARGET_MAX};
use executor_sys::file::open_without_links;
use executor_sys::opened_way::OpenedWay;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{OFlag, RenameFlags, openat, readlinkat};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::stat::{Mode, fstat};
use nix::sys::time::TimeValLike;
use policies::Access;
use policies_guard::{Change, DirectoryName, Moment, New, ObjectKind, Verdict};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum number of notes per call.
const NOTES_MAX: usize = 256;

/// How long all of them are looked at, in processor time: a command that keeps the processors busy does not shorten it. Meanwhile other
/// cells wait for the lock on names, and a path can be made to cost milliseconds.
const PROCESSOR_TIME: Duration = Duration::from_millis(50);
/// Maximum time by the clock, for disks that do not answer.
const TIME: Duration = Duration::from_secs(1);

/// The names noted of one call.
#[derive(Default)]
pub(crate) struct NewNames {
    notes: Vec<NewName>,
    /// Whether there were more than could be noted.
    is_full: bool,
    /// Whether a directory was moved: what lies below it may be misplaced now.
    moves_directories: bool,
}

pub(crate) struct NewName {
    path: PathBuf,
    kind: ObjectKind,
    object: Identity,
    /// Where it was moved from, if it was.
    from: Option<PathBuf>,
    /// The rules' verdict when it came about: a name that they refuse can come about nevertheless.
    verdict: Verdict,
}

/// The state of a noted object after the call.
enum NotedState {
    /// It is gone, or lies elsewhere, or may lie where it is.
    Harmless,
    /// No call may make it where it is.
    Misplaced,
    /// A command has closed what would be looked at, and the rules refused it when it came about: that verdict stands.
    StandsAsRefused,
    /// It may still be there, but could not be examined.
    Unknown,
}

impl NewNames {
    /// Adds a note, in place of one for the same path.
    pub(crate) fn add(&mut self, new: NewName) {
        self.notes.retain(|note| note.path != new.path);
        if self.notes.len() >= NOTES_MAX && !self.is_full {
            self.notes
                .retain(|note| matches!(note.find(), Ok(Some(_)) | Err(_)));
            // Otherwise all would be looked for again and again.
            self.is_full = self.notes.len() > NOTES_MAX / 4 * 3;
        }
        if !self.is_full {
            self.notes.push(new);
        } else if new.was_refused()
            // What a rule allowed makes room for what none did.
            && let Some(allowed) = self.notes.iter_mut().find(|note| !note.was_refused())
        {
            *allowed = new;
        }
    }

    pub(crate) fn note_moved_directory(&mut self) {
        self.moves_directories = true;
    }

    /// Follows the notes when this call moves what they are about, or a directory above it.
    pub(crate) fn follow(&mut self, from: &Path, to: &Path, flags: RenameFlags) {
        for note in &mut self.notes {
            let moved = |from, to: &Path| {
                let below = note.path.strip_prefix(from).ok()?;
                Some(if below.as_os_str().is_empty() {
                    to.to_owned()
                } else {
                    to.join(below)
                })
            };
            let back = || moved(to, from).filter(|_| flags.contains(RenameFlags::RENAME_EXCHANGE));
            if let Some(path) = moved(from, to).or_else(back) {
                note.path = path;
            }
        }
    }

    /// Judges what was noted, with the cell dead, by the rules for making it where it is now.
    pub(crate) fn examine(&mut self, rules: &AccessRules) -> Vec<Refusal> {
        let mut notes = std::mem::take(&mut self.notes);
        // Without one of these, what was not noted is where it may be.
        let mut are_missing =
            self.is_full && (self.moves_directories || notes.iter().any(NewName::was_refused));
        if notes.is_empty() && !are_missing || !rules.takes_misplaced {
            return Vec::new();
        }
        // A directory goes with what is in it, and the host acts most on what lies at the top, which also costs least.
        notes.sort_by_key(|note| (!note.was_refused(), note.path.as_os_str().len()));
        let bound = ExaminationBound::begin();
        let lock = rules.lock_renames();
        let (mut misplaced, mut left, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        let mut taken: Vec<&Path> = Vec::new();
        for note in &notes {
            if bound.is_over() {
                are_missing = true;
                break;
            }
            if taken.iter().any(|above| note.path.starts_with(above)) {
                continue;
            }
            match lock
                .as_ref()
                .map_or(NotedState::Unknown, |_| note.state(rules))
            {
                NotedState::Harmless => {}
                NotedState::Misplaced | NotedState::StandsAsRefused
                    if misplaced.len() < MISPLACED_MAX =>
                {
                    misplaced.push(Refusal {
                        object: Some(note.object),
                        ..refusal(Cause::Misplaced, path(note).to_vec())
                    });
                    taken.push(&note.path);
                }
                NotedState::Misplaced | NotedState::StandsAsRefused => left.push(note),
                NotedState::Unknown if note.was_refused() => unknown.push(note),
                NotedState::Unknown => are_missing = true,
            }
        }
        for (cause, notes) in [(Cause::LeftThere, left), (Cause::Unknown, unknown)] {
            let count = notes.len().try_into().unwrap_or(u32::MAX);
            let first = notes
                .first()
                .map(|first| path(first)[..path(first).len().min(TARGET_MAX)].to_vec());
            misplaced.extend(first.map(|first| Refusal {
                count,
                ..refusal(cause, first)
            }));
        }
        misplaced.extend(are_missing.then(|| refusal(Cause::Unchecked, b"new names".to_vec())));
        misplaced
    }
}

/// How long names are looked at.
struct ExaminationBound {
    began: Instant,
    processor: Duration,
}

impl ExaminationBound {
    fn begin() -> Self {
        Self {
            began: Instant::now(),
            processor: processor_time(),
        }
    }

    fn is_over(&self) -> bool {
        let processor = processor_time().saturating_sub(self.processor);
        processor > PROCESSOR_TIME || self.began.elapsed() > TIME
    }
}

/// The processor time of this process; if it cannot be had, only the clock counts.
fn processor_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return Duration::ZERO;
    };
    let micros = [usage.user_time(), usage.system_time()].map(|time| time.num_microseconds());
    Duration::from_micros(micros.iter().sum::<i64>().unsigned_abs())
}

fn refusal(cause: Cause, target: Vec<u8>) -> Refusal {
    Refusal {
        kind: Write,
        cause,
        object: None,
        target,
        count: 1,
    }
}

fn path(note: &NewName) -> &[u8] {
    note.path.as_os_str().as_bytes()
}

impl NewName {
    /// A note about an object of this kind that now has the name `path`, and had `from` before, if any; `verdict` is what the
    /// rules said about that.
    pub(crate) fn new(
        path: &Path,
        kind: ObjectKind,
        object: Identity,
        from: Option<&Path>,
        verdict: Verdict,
    ) -> Self {
        let from = from.map(Path::to_owned);
        Self {
            path: path.to_owned(),
            kind,
            object,
            from,
            verdict,
        }
    }

    fn was_refused(&self) -> bool {
        !self.verdict.is_allowed()
    }

    /// The noted object with its directory, if it is still there.
    fn find(&self) -> Result<Option<(OwnedFd, OwnedFd)>> {
        let (parent, name) = self
            .path
            .parent()
            .zip(self.path.file_name())
            .ok_or(Errno::EINVAL)?;
        // Its directory could still be opened, and the broker not be told.
        if self.path.as_os_str().len() >= libc::PATH_MAX as usize {
            return Err(Errno::ENAMETOOLONG);
        }
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let open = || {
            let parent = open_without_links(parent)?;
            let object = openat(&parent, name, flags, Mode::empty())?;
            Ok((parent, object))
        };
        match open() {
            Ok((parent, object)) => Ok(identity_of(&object)
                .is_ok_and(|object| object == self.object)
                .then_some((parent, object))),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn state(&self, rules: &AccessRules) -> NotedState {
        let found = self.find();
        // The call may have closed a directory on the way.
        let way = matches!(found, Err(Errno::EACCES))
            .then(|| OpenedWay::open(rules.areas.root_of(&self.path)?, &self.path).ok())
            .flatten();
        let found = if way.is_some() { self.find() } else { found };
        let verdict = match found {
            Ok(Some((parent, object))) => self.judge(rules, &parent, &object),
            Ok(None) => return NotedState::Harmless,
            // Where it cannot be looked at, it is only known what its path allows.
            Err(errno) if !self.was_refused() && errno != Errno::ENAMETOOLONG => {
                Ok(rules.judge().may_have(&self.path, self.kind))
            }
            Err(_) => return NotedState::Unknown,
        };
        match verdict {
            Ok(Verdict::Allow) => NotedState::Harmless,
            Ok(Verdict::Refuse(_)) => NotedState::Misplaced,
            Err(Errno::EACCES) if self.was_refused() => NotedState::StandsAsRefused,
            Err(_) => NotedState::Unknown,
        }
    }

    /// May a call make this here?
    fn judge(&self, rules: &AccessRules, parent: &OwnedFd, object: &OwnedFd) -> Result<Verdict> {
        let kind = kind_of(&fstat(object)?);
        let target = match kind {
            ObjectKind::Link => readlinkat(object, "")?,
            ObjectKind::File | ObjectKind::Directory | ObjectKind::Other => OsString::new(),
        };
        let new = match (kind, &self.from) {
            (ObjectKind::Directory, None) => New::Directory,
            (ObjectKind::Directory, Some(from)) => New::Tree { from },
            (ObjectKind::Link, _) => New::Link {
                target: target.as_bytes(),
            },
            (ObjectKind::File | ObjectKind::Other, _) => New::Object(kind),
        };
        rules.verdict(Change::Create {
            name: DirectoryName {
                parent: Handle::new(parent),
                name: self.path.file_name().unwrap_or_default(),
                path: &self.path,
            },
            new,
            moment: Moment::Ended,
        })
    }
}

impl AccessRules {
    /// Whether a new name that the rules allow could be one that they refuse, if a directory above it got another name.
    pub(crate) fn may_be_misplaced_later(&self, real: &Path, kind: ObjectKind) -> bool {
        let name = real.file_name().map(OsStr::as_bytes).unwrap_or_default();
        kind != ObjectKind::Directory
            && self.names_at(real).is_last_of_a_rule(name)
            && matches!(
                self.areas.of(real),
                Some((Area::Project | Area::Central | Area::Repository, Access::Write))
            )
            && !self.judge().is_in_git(real)
            // What it lets be created there, it lets stay.
            && self.judge().protection(real).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies_guard::Rule;

    fn note(path: &str) -> NewName {
        NewName::new(
            Path::new(path),
            ObjectKind::File,
            Identity::default(),
            None,
            Verdict::Allow,
        )
    }

    fn paths(names: &NewNames) -> Vec<&str> {
        names
            .notes
            .iter()
            .map(|note| note.path.to_str().unwrap())
            .collect()
    }

    #[test]
    fn notes_follow_renames_of_the_call() {
        let mut names = NewNames::default();
        ["/z/a/x", "/z/ab/x", "/z/b/y"]
            .into_iter()
            .for_each(|path| names.add(note(path)));
        names.follow(Path::new("/z/a"), Path::new("/z/c"), RenameFlags::empty());
        assert_eq!(paths(&names), ["/z/c/x", "/z/ab/x", "/z/b/y"]);
        names.follow(
            Path::new("/z/c"),
            Path::new("/z/b"),
            RenameFlags::RENAME_EXCHANGE,
        );
        assert_eq!(paths(&names), ["/z/b/x", "/z/ab/x", "/z/c/y"]);
        names.follow(Path::new("/z/b/x"), Path::new("/z/n"), RenameFlags::empty());
        assert_eq!(paths(&names), ["/z/n", "/z/ab/x", "/z/c/y"]);
    }

    #[test]
    fn notes_are_limited_and_removed_names_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let mut names = NewNames::default();
        (0..10 * NOTES_MAX).for_each(|number| names.add(note(&format!("/none/{number}"))));
        assert!(!names.is_full && names.notes.len() <= NOTES_MAX);
        for number in 0..2 * NOTES_MAX {
            let path = folder.path().join(number.to_string());
            let object = identity_of(std::fs::File::create(&path).unwrap()).unwrap();
            names.add(NewName {
                object,
                ..note(path.to_str().unwrap())
            });
            assert!(names.notes.len() <= NOTES_MAX);
        }
        assert!(names.is_full);
        names.add(NewName {
            verdict: Verdict::Refuse(Rule::OtherStorage),
            ..note("/z/refused")
        });
        assert!(names.notes.len() <= NOTES_MAX && paths(&names).contains(&"/z/refused"));
    }
}
