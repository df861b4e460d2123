//! `lazaret gc`: removes the caches of projects that are gone, or that no session has used for long, and old files of the audit if asked;
//! and at the end of a session, once a day and within little work, the caches that no session has used.

use crate::sandbox::{SessionOpenError, read_policies};
use crate::user::User;
use broker_protocol::{Cleanup, frame};
use executor_project::removal::RemovalBudget;
use executor_project::unneeded_caches::{Unneeded, remove_unneeded};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum bytes of a request.
const REQUEST_MAX: u64 = 64 << 10;
/// Maximum number of entries that a run removes, with its time.
const ENTRIES_MAX: u64 = 20_000_000;
const TIME: Duration = Duration::from_secs(600);
/// The same at the end of a session.
const BESIDE_ENTRIES_MAX: u64 = 50_000;
const BESIDE_TIME: Duration = Duration::from_millis(500);
/// How often the end of a session looks, and after how many days without a session it removes caches.
const INTERVAL: Duration = DAY;
const UNUSED_DAYS: u32 = 90;
/// The end of the directory's path in which a user's central roots lie, and the file beside it whose time is that of the last look.
const PROJECTS: &str = "lazaret/projects";
const LOOKED: &str = "gc";

/// Answers the one request that comes over `socket`.
///
/// # Errors
/// It is none, or the client has left.
pub(crate) fn answer(socket: OwnedFd, user: &User) -> io::Result<()> {
    let mut socket = File::from(socket);
    let mut request = Vec::new();
    (&socket).take(REQUEST_MAX).read_to_end(&mut request)?;
    let request: Cleanup = frame::decode_whole(&request).map_err(io::Error::other)?;
    let budget = RemovalBudget {
        entries: ENTRIES_MAX,
        until: Instant::now() + TIME,
    };
    let which = Unneeded {
        days: request.days,
        deleted: true,
    };
    let mut report = remove_unneeded(Path::new(&request.projects), which, budget);
    if let Some(days) = request.audit_days {
        match prune_audit(days, user) {
            Ok(files) => report.audit_files = files as u64,
            Err(error) => report.fail(&user.audit(), error),
        }
    }
    socket.write_all(&frame::encode_whole(&report).map_err(io::Error::other)?)
}

/// Removes the files of the audit that are this old, or as old as a policy wants; returns how many.
fn prune_audit(days: u32, user: &User) -> Result<usize, SessionOpenError> {
    let kept = read_policies(user)?.audit_keep_days();
    let days = kept.map_or(days, |kept| kept.get().max(days));
    Ok(user.open_audit()?.prune(DAY * days)?)
}

/// Removes, once a day, caches that no session has used for long; `central` is the root of the session that has just ended.
pub(crate) fn by_age(central: &Path) {
    // One that was named need not lie among others.
    let Some(projects) = central.parent().filter(|path| path.ends_with(PROJECTS)) else {
        return;
    };
    if !is_due(&projects.with_file_name(LOOKED)) {
        return;
    }
    let budget = RemovalBudget {
        entries: BESIDE_ENTRIES_MAX,
        until: Instant::now() + BESIDE_TIME,
    };
    // Nobody is left who could be told.
    let which = Unneeded {
        days: UNUSED_DAYS,
        deleted: false,
    };
    remove_unneeded(projects, which, budget);
}

/// Whether the last look is long ago; the next one counts from now. The first session of a user only begins to count.
fn is_due(looked: &Path) -> bool {
    let last = fs::symlink_metadata(looked).and_then(|file| file.modified());
    let now = SystemTime::now();
    let is_due = match &last {
        Ok(last) => now
            .duration_since(*last)
            .is_ok_and(|since| since >= INTERVAL),
        Err(_) => false,
    };
    if !is_due && last.is_ok() {
        return false;
    }
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let opened = nix::fcntl::open(looked, flags | OFlag::O_CLOEXEC, mode);
    // Where it cannot be noted, each session would look.
    let noted = opened.is_ok_and(|file| File::from(file).set_modified(now).is_ok());
    is_due && noted
}
