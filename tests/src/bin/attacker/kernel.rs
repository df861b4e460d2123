//! Attacks on the kernel's surface: namespaces, mounts, foreign ABIs, and calls that a tool never needs.

use crate::outcome::{Outcome, denied, number};
use crate::sys;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::ffi::CString;
use std::fs::File;

pub fn attack(words: &[&str]) -> Option<Outcome> {
    Some(match *words {
        ["mount", folder] => mount_over(folder),
        ["namespaces", folder] => namespaces(folder),
        ["bind-over", from, to] => bind_over(from, to),
        ["unshare"] => unshare(CloneFlags::CLONE_NEWUSER)
            .map(|()| "a user namespace".into())
            .map_err(Into::into),
        ["unshare-directory"] => unshare(CloneFlags::CLONE_FS)
            .map(|()| "a working directory of its own".into())
            .map_err(Into::into),
        ["clone-user"] => sys::clone_into_user_namespace().map(|()| "a user namespace".into()),
        ["clone3-user"] => sys::clone3_into_user_namespace().map(|()| "a user namespace".into()),
        ["setns", path] => enter(path),
        ["chroot", path] => nix::unistd::chroot(path)
            .map(|()| "a root".into())
            .map_err(Into::into),
        ["io-uring"] => sys::io_uring().map(|()| "a ring".into()),
        ["userfaultfd"] => sys::userfaultfd().map(|()| "a descriptor".into()),
        ["bpf"] => sys::bpf_map().map(|()| "a map".into()),
        ["keyring"] => sys::add_key(c"lazaret", sys::PROCESS_KEYRING).map(|()| "a key".into()),
        ["keep-key", name] => keep_key(name),
        ["perf"] => sys::perf_event().map(|()| "a counter".into()),
        ["fanotify"] => sys::fanotify().map(|()| "a group".into()),
        ["x32"] => sys::x32_getpid().map(|pid| format!("process {pid}")),
        ["int80"] => sys::int80_getpid().map(|pid| format!("process {pid}")),
        ["push-key"] => push_key(),
        ["shared-memory", key] => number(key).and_then(sys::shared_memory),
        ["become-root"] => become_root(),
        ["hostname"] => same_hostname(),
        _ => return None,
    })
}

/// Adds a key that stays when this program has ended, as a user's token does.
fn keep_key(name: &str) -> Outcome {
    let name = CString::new(name).map_err(std::io::Error::from)?;
    sys::add_key(&name, sys::USER_KEYRING).map(|()| "a key".into())
}

/// Mounts a tmpfs, in a namespace of its own where it may not do so here.
fn mount_over(folder: &str) -> Outcome {
    let attempt = || {
        mount(
            Some("lazaret"),
            folder,
            Some("tmpfs"),
            MsFlags::empty(),
            None::<&str>,
        )
    };
    unshare(CloneFlags::CLONE_NEWNS)
        .or_else(|_| unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS))
        .and_then(|()| attempt())?;
    Ok("mounted".into())
}

/// What a cell needs of namespaces and a machine may refuse alone: Podman's profile lets everybody mount there, and denies a name of
/// the namespace's own.
fn namespaces(folder: &str) -> Outcome {
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWUTS)?;
    same_hostname()?;
    mount_over(folder)
}

/// Lays a file of its own over another: how a protected name is replaced.
fn bind_over(from: &str, to: &str) -> Outcome {
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    Ok("laid over".into())
}

fn enter(path: &str) -> Outcome {
    nix::sched::setns(File::open(path)?, CloneFlags::empty())?;
    Ok("entered".into())
}

/// Pushes a key into the input of a terminal of its own: harmless, and the call that counts.
fn push_key() -> Outcome {
    // The end of the terminal hangs up its session, which is this program.
    sys::ignore_hangup();
    let pair = nix::pty::openpty(None, None)?;
    nix::unistd::setsid().ok();
    sys::push_key(&pair.slave)?;
    Ok("pushed".into())
}

/// Only a set-user-id bit on this program's file makes that possible.
fn become_root() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Err(denied("the effective user is not root"));
    }
    Ok("root".into())
}

/// Sets the name the machine has already.
fn same_hostname() -> Outcome {
    let name = nix::unistd::gethostname()?;
    nix::unistd::sethostname(name)?;
    Ok("set".into())
}
