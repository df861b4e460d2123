//! Cargo without a compiler, for tests of what it fetches and sends.

use crate::World;
use crate::process::{LIMIT, run_with_input};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Cargo alone, where every user can run it; `None` where this process has none. It needs no compiler to resolve and vendor.
pub fn copy(world: &World) -> Option<PathBuf> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = String::from_utf8(sysroot.ok()?.stdout).ok()?;
    let copy = world.outside.join("cargo");
    let bytes = fs::read(Path::new(sysroot.trim()).join("bin/cargo")).ok()?;
    // Not written by this process: what another test starts at this moment would have it open for writing.
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(&copy);
    run_with_input(&mut install, &bytes, LIMIT).success();
    Some(copy)
}
