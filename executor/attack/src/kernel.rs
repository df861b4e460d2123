//! Attacks on the kernel's interface, and by means of what a process inherits.

use crate::sys;
use crate::targets::{CANARY, Targets, nothing_got};
use caps::CapSet;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::setsid;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

pub(crate) fn unshare_user(_: &Targets) -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWUSER)?)
}

pub(crate) fn clone3_user(_: &Targets) -> io::Result<()> {
    sys::clone3_user_namespace()
}

/// In a new mount namespace if one can be created, and unmounted at once.
pub(crate) fn mount_tmpfs(targets: &Targets) -> io::Result<()> {
    let _ = unshare(CloneFlags::CLONE_NEWNS)
        .or_else(|_| unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS));
    mount(
        Some("tmpfs"),
        &targets.own,
        Some("tmpfs"),
        MsFlags::empty(),
        None::<&str>,
    )?;
    Ok(umount2(&targets.own, MntFlags::MNT_DETACH)?)
}

pub(crate) fn enter_namespace(_: &Targets) -> io::Result<()> {
    Ok(setns(
        File::open("/proc/self/ns/uts")?,
        CloneFlags::CLONE_NEWUTS,
    )?)
}

pub(crate) fn io_uring(_: &Targets) -> io::Result<()> {
    sys::io_uring()
}

pub(crate) fn bpf(_: &Targets) -> io::Result<()> {
    sys::bpf_map()
}

pub(crate) fn add_key(_: &Targets) -> io::Result<()> {
    sys::add_key()
}

pub(crate) fn userfaultfd(_: &Targets) -> io::Result<()> {
    sys::userfaultfd()
}

pub(crate) fn perf(_: &Targets) -> io::Result<()> {
    sys::perf_event()
}

pub(crate) fn x32(_: &Targets) -> io::Result<()> {
    sys::x32()
}

pub(crate) fn int80(_: &Targets) -> io::Result<()> {
    sys::int80()
}

/// Into a new terminal; if none can be created, the call itself is tried on what there is.
pub(crate) fn type_into_terminal(_: &Targets) -> io::Result<()> {
    match terminal() {
        Ok((master, slave)) => {
            // Kept until this process ends: otherwise the terminal hangs up, and kills us before we can report the result.
            std::mem::forget(master);
            sys::push_key(slave.as_fd())
        }
        Err(_) => sys::push_key(io::stdin().as_fd()),
    }
}

fn terminal() -> io::Result<(nix::pty::PtyMaster, OwnedFd)> {
    setsid()?;
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(ptsname_r(&master)?)?;
    Ok((master, slave.into()))
}

/// Any beyond standard input, output and error.
pub(crate) fn use_descriptor(_: &Targets) -> io::Result<()> {
    const FIRST: i32 = 3;
    const MANY: i32 = 1024;
    if (FIRST..MANY).any(sys::is_open) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EBADF))
    }
}

pub(crate) fn read_variable(_: &Targets) -> io::Result<()> {
    if std::env::var_os(CANARY).is_some() {
        Ok(())
    } else {
        Err(nothing_got())
    }
}

pub(crate) fn use_capability(_: &Targets) -> io::Result<()> {
    for set in [
        CapSet::Effective,
        CapSet::Permitted,
        CapSet::Inheritable,
        CapSet::Ambient,
    ] {
        if !caps::read(None, set).map_err(io::Error::other)?.is_empty() {
            return Ok(());
        }
    }
    Err(io::Error::from_raw_os_error(libc::EPERM))
}
