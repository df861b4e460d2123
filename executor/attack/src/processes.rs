//! Attacks on a process of the same user outside. In a cell its number may refer to another
//! process, or none: only its secret, or its death, counts.

use crate::sys;
use crate::targets::{Targets, nothing_got};
use nix::sys::signal::{Signal, kill as signal};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

pub(crate) fn read_environment(targets: &Targets) -> io::Result<()> {
    targets.expect_secret(&fs::read(format!("/proc/{}/environ", targets.bystander))?)
}

pub(crate) fn read_memory(targets: &Targets) -> io::Result<()> {
    let memory = File::open(format!("/proc/{}/mem", targets.bystander))?;
    let mut got = vec![0; targets.secret.len()];
    memory.read_exact_at(&mut got, targets.address)?;
    targets.expect_secret(&got)
}

pub(crate) fn trace(targets: &Targets) -> io::Result<()> {
    let word = sys::peek(targets.bystander, targets.address)?.to_ne_bytes();
    if targets.secret.as_bytes().starts_with(&word) {
        Ok(())
    } else {
        Err(nothing_got())
    }
}

/// The bystander's death is the evidence.
pub(crate) fn kill(targets: &Targets) -> io::Result<()> {
    if targets.bystander == std::process::id() as i32
        || targets.bystander == nix::unistd::getppid().as_raw()
    {
        return Err(nothing_got());
    }
    Ok(signal(Pid::from_raw(targets.bystander), Signal::SIGKILL)?)
}
