//! Cargo without a compiler, for tests of what it fetches and sends.

use crate::World;
use crate::process::{LIMIT, run, run_with_input};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Cargo alone, where every user can run it. It needs no compiler to resolve and vendor.
pub fn copy(world: &World) -> PathBuf {
    let mut rustc = Command::new("rustc");
    let sysroot = run(rustc.args(["--print", "sysroot"]), LIMIT).success();
    let copy = world.outside.join("cargo");
    let bytes = fs::read(Path::new(sysroot.trim()).join("bin/cargo")).expect("cargo is there");
    // Not written by this process: what another test starts at this moment would have it open for writing.
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(&copy);
    run_with_input(&mut install, &bytes, LIMIT).success();
    copy
}
