//! How the linker makes a program that starts as fast as it can, where the machine that builds is the one that runs. A portable program
//! (`LAZARET_PORTABLE`, set by `lazaret-dist`) runs on others, whose C library may be older, and is linked by defaults alone.
//!
//! Also of `orchestrator` and `orchestrator/run`. What cannot be had is left as it is by default: the program is the same, and starts a little later.

#![allow(
    clippy::disallowed_methods,
    reason = "this builds the program and is no part of it"
)]

use std::path::Path;
use std::process::Command;
use std::{env, fs, io};

const PORTABLE: &str = "LAZARET_PORTABLE";
const RELATIVE: &[u8] = b"GLIBC_ABI_DT_RELR";

fn main() -> io::Result<()> {
    // This file, from the folder of the package that is built.
    let here = ["../executor/build.rs", "../../executor/build.rs"];
    for path in here.iter().filter(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rerun-if-env-changed={PORTABLE}");
    let target = |part: &str| env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    let runs_elsewhere = env::var_os(PORTABLE).is_some() || env::var("HOST") != env::var("TARGET");
    if runs_elsewhere || target("ENV") != "gnu" {
        return Ok(());
    }
    if reads_packed_addresses(&target("ARCH")) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    link_unwinder()
}

/// Whether addresses that are put right at every start may be packed: forty thousand in `lazaret`, a megabyte of the file. A C library
/// that reads them so (glibc 2.36) has a version of that name; with an older one here the program would not start.
fn reads_packed_addresses(machine: &str) -> bool {
    let places = [
        format!("/lib/{machine}-linux-gnu"),
        "/lib64".into(),
        "/usr/lib64".into(),
        "/usr/lib".into(),
    ];
    let library = places
        .iter()
        .find_map(|place| fs::read(format!("{place}/libc.so.6")).ok());
    library.is_some_and(|library| {
        library
            .windows(RELATIVE.len())
            .any(|bytes| bytes == RELATIVE)
    })
}

/// Links what unwinds the stack into the program: one library less to find and map at each start. The standard library asks for it as
/// `libgcc_s`; a file of that name, for the linker alone, names the archive with the same functions.
fn link_unwinder() -> io::Result<()> {
    let Ok(found) = Command::new("cc")
        .arg("-print-file-name=libgcc_eh.a")
        .output()
    else {
        return Ok(());
    };
    let archive = String::from_utf8_lossy(&found.stdout);
    let archive = Path::new(archive.trim_end());
    if archive.is_absolute() && archive.is_file() {
        let folder = env::var("OUT_DIR").map_err(io::Error::other)?;
        fs::write(
            format!("{folder}/libgcc_s.so"),
            format!("INPUT({})\n", archive.display()),
        )?;
        println!("cargo::rustc-link-search=native={folder}");
    }
    Ok(())
}
