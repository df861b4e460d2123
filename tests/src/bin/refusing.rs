//! `refusing PRIVILEGE CMD…` executes a command on a simulated machine that grants namespaces and denies one operation in them,
//! like Ubuntu's AppArmor rule after `clone` has succeeded, and the filters of some containers. Each step is denied alone, so that
//! none hides behind another. A filter cannot see which file is written: for `uid-map`, `/proc` is read-only instead.

use lazaret_tests::filter;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const USAGE: &str = "refusing PRIVILEGE CMD…";
const UID_MAP: &str = "uid-map";

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let privilege = words.next().unwrap_or_default();
    if privilege == UID_MAP {
        let error = match (read_only_proc(), words.next()) {
            (Ok(()), Some(program)) => Command::new(program).args(words).exec(),
            (Err(error), _) => error,
            (_, None) => std::io::Error::other("no command"),
        };
        eprintln!("refusing: {error}; usage: {USAGE}");
        return ExitCode::from(125);
    }
    match privilege.to_str().and_then(filter::refusing) {
        Some(machine) => filter::become_on(&machine, USAGE, words),
        None => {
            let known = filter::PRIVILEGES.join(", ");
            eprintln!("usage: {USAGE}, where the privilege is one of {UID_MAP}, {known}");
            ExitCode::from(2)
        }
    }
}

/// Enters namespaces as the same user in which nothing in `/proc` can be written.
fn read_only_proc() -> std::io::Result<()> {
    let (uid, gid) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some("/proc"), "/proc", None::<&str>, bind, None::<&str>)?;
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    let kept = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(mount(
        None::<&str>,
        "/proc",
        None::<&str>,
        read_only | kept,
        None::<&str>,
    )?)
}
