//! Attacks on files outside the zones.

use crate::targets::Targets;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::geteuid;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

fn outside(targets: &Targets, name: &str) -> PathBuf {
    targets.outside.join(name)
}

/// A free name in the attacker's own directory.
fn own(targets: &Targets, name: &str) -> PathBuf {
    let path = targets
        .own
        .join(format!("{name}-{}-{}", geteuid(), std::process::id()));
    // An earlier attack may have left it; if it cannot be removed, the next error shows that.
    let _ = fs::remove_file(&path);
    path
}

pub(crate) fn read(targets: &Targets) -> io::Result<()> {
    targets.expect_secret(&fs::read(outside(targets, "secret"))?)
}

pub(crate) fn read_through_link(targets: &Targets) -> io::Result<()> {
    let link = own(targets, "link");
    symlink(outside(targets, "secret"), &link)?;
    let got = fs::read(&link);
    fs::remove_file(link)?;
    targets.expect_secret(&got?)
}

pub(crate) fn list(targets: &Targets) -> io::Result<()> {
    fs::read_dir(&targets.outside).map(drop)
}

pub(crate) fn write(targets: &Targets) -> io::Result<()> {
    OpenOptions::new()
        .append(true)
        .open(outside(targets, "written"))?
        .write_all(b"attacked")
}

pub(crate) fn create(targets: &Targets) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(outside(targets, "created"))
        .map(drop)
}

pub(crate) fn move_in(targets: &Targets) -> io::Result<()> {
    let moved = own(targets, "moved");
    fs::rename(outside(targets, "moved"), &moved)?;
    fs::remove_file(moved)
}

pub(crate) fn link_in(targets: &Targets) -> io::Result<()> {
    fs::hard_link(outside(targets, "linked"), own(targets, "linked"))
}

pub(crate) fn change_mode(targets: &Targets) -> io::Result<()> {
    fs::set_permissions(outside(targets, "mode"), Permissions::from_mode(0o666))
}

pub(crate) fn change_time(targets: &Targets) -> io::Result<()> {
    let (path, epoch) = (outside(targets, "time"), TimeSpec::new(0, 0));
    Ok(utimensat(
        AT_FDCWD,
        &path,
        &epoch,
        &epoch,
        UtimensatFlags::FollowSymlink,
    )?)
}

/// On a file of the attacker's own: it would wait for others to execute it.
pub(crate) fn set_user_id(targets: &Targets) -> io::Result<()> {
    let program = own(targets, "program");
    fs::write(&program, "")?;
    let set = fs::set_permissions(&program, Permissions::from_mode(0o4755));
    fs::remove_file(program)?;
    set
}
