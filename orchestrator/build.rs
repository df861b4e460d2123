//! Has the linker pack the addresses that are put right whenever `lazaret` starts: forty thousand, a megabyte of the file. A C library
//! that reads them so (glibc 2.36) has a version of that name; with an older one here the program would not start.

use std::{env, fs};

const VERSION: &[u8] = b"GLIBC_ABI_DT_RELR";

#[allow(clippy::disallowed_methods, reason = "this builds the program and is no part of it")]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_for_here = env::var("HOST") == env::var("TARGET");
    let target = |part: &str| env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    let (machine, library) = (target("ARCH"), "libc.so.6");
    let places =
        [format!("/lib/{machine}-linux-gnu"), "/lib64".into(), "/usr/lib64".into(), "/usr/lib".into()];
    let found = places.iter().find_map(|place| fs::read(format!("{place}/{library}")).ok());
    let reads = found.is_some_and(|library| library.windows(VERSION.len()).any(|bytes| bytes == VERSION));
    if is_for_here && target("ENV") == "gnu" && reads {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
