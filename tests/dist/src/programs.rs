//! The programs: built with zig as the linker, so that they run with older C libraries than this machine's, and checked for that.

use crate::files;
use crate::release::{Arch, Release};
use crate::tool::{self, DistError};
use std::path::Path;
use std::process::Command;

/// Programs that a user starts.
pub const COMMANDS: [&str; 2] = ["lazaret", "lazaret-bash"];
/// Programs that only the others start.
pub const INTERNAL: [&str; 5] = [
    "lazaret-attack",
    "lazaret-executor",
    "lazaret-gateway",
    "lazaret-trace",
    "lazaret-worker",
];
const PACKAGES: [&str; 7] = [
    "executor",
    "executor-attack",
    "executor-trace",
    "executor-worker",
    "orchestrator",
    "orchestrator-gateway",
    "orchestrator-run",
];
/// The oldest C library that they run with: that of RHEL 8.
const GLIBC: (u32, u32) = (2, 28);
/// Where Debian's compiler for browsers has its standard libraries.
const DEBIAN_RUST: &str = "/usr/lib/rustlib";

/// Puts a processor's programs, stripped, in the directory for them.
pub fn make(release: &Release, arch: Arch) -> Result<(), DistError> {
    let to = release.programs(arch);
    files::remove_directory(&to)?;
    let given = release.from(arch);
    let built = match given {
        Some(from) => from.to_owned(),
        None => build(release, arch)?,
    };
    for name in COMMANDS.iter().chain(&INTERNAL) {
        let program = to.join(name);
        files::copy(&built.join(name), &program, 0o755)?;
        check_processor(&program, arch)?;
        match given {
            Some(_) => tool::run(Command::new(arch.strip()).arg(&program))?,
            None => check(&program)?,
        }
        release.report(&program)?;
    }
    Ok(())
}

fn build(release: &Release, arch: Arch) -> Result<std::path::PathBuf, DistError> {
    let target = arch.target();
    let mut command = Command::new("cargo-zigbuild");
    command
        .current_dir(&release.root)
        .args(["zigbuild", "--release", "--locked", "--target"])
        .arg(format!("{target}.{}.{}", GLIBC.0, GLIBC.1))
        .args(PACKAGES.iter().flat_map(|package| ["--package", package]))
        .env("LAZARET_PORTABLE", "1")
        .env("LAZARET_COMMIT", &release.commit);
    if !rustc_has(&target)? && Path::new(DEBIAN_RUST).join(&target).is_dir() {
        command.env("RUSTC", "/usr/bin/rustc");
    }
    tool::run(&mut command)?;
    let folder = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    Ok(release.root.join(folder).join(target).join("release"))
}

/// Whether the compiler in `PATH` has the standard library of this target.
fn rustc_has(target: &str) -> Result<bool, DistError> {
    let words = ["--print", "target-libdir", "--target", target];
    let folder = tool::text(Command::new("rustc").args(words))?;
    Ok(Path::new(&folder).is_dir())
}

/// Refuses a program for another processor: packages name one, and programs that were built otherwise may be anything.
fn check_processor(program: &Path, arch: Arch) -> Result<(), DistError> {
    /// Bytes before the number: as many for all little-endian processors of 64 bits.
    const HEAD: usize = 18;
    let bytes = std::fs::read(program).map_err(DistError::file(program))?;
    let number = bytes.get(HEAD..HEAD + 2);
    if bytes.starts_with(b"\x7fELF") && number == Some(&arch.elf().to_le_bytes()) {
        return Ok(());
    }
    let message = format!("{} is no program for {}", program.display(), arch.name());
    Err(DistError::wrong(message))
}

/// Refuses a program that wants a newer C library.
pub fn check(program: &Path) -> Result<(), DistError> {
    let words = ["--version-info", "--wide"];
    let versions = tool::text(Command::new("readelf").args(words).arg(program))?;
    match newest(&versions) {
        Some(newest) if newest <= GLIBC => Ok(()),
        newest => Err(DistError::wrong(format!(
            "{} wants glibc {newest:?}, and not {GLIBC:?} at most",
            program.display()
        ))),
    }
}

/// The newest version of glibc that is named in what `readelf` prints.
fn newest(versions: &str) -> Option<(u32, u32)> {
    let version = |word: &str| {
        let (major, rest) = word.strip_prefix("GLIBC_")?.split_once('.')?;
        let minor = rest.split('.').next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    versions.split_whitespace().filter_map(version).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_counts() {
        let line =
            |version: &str| format!("  0x0090:   Name: {version}  Flags: none  Version: 5\n");
        let lines = |versions: &[&str]| versions.iter().map(|one| line(one)).collect::<String>();
        assert_eq!(
            newest(&lines(&["GLIBC_2.2.5", "GLIBC_2.28", "GLIBC_2.9"])),
            Some((2, 28))
        );
        assert_eq!(newest(&lines(&["GLIBC_2.34", "GLIBC_2.4"])), Some((2, 34)));
        assert_eq!(newest("GCC_3.0"), None);
    }

    #[test]
    fn program_for_another_processor_is_refused() {
        let own = std::env::current_exe().unwrap();
        for arch in [Arch::X86_64, Arch::Aarch64] {
            let is_own = arch == Arch::of_host().unwrap();
            assert_eq!(check_processor(&own, arch).is_ok(), is_own, "{arch:?}");
        }
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
        assert!(check_processor(&text, Arch::of_host().unwrap()).is_err());
    }

    #[test]
    fn a_program_for_this_machine_alone_is_refused() {
        // Cargo builds tests for the C library of this machine, which is newer than that on every machine with a compiler new enough.
        assert!(check(&std::env::current_exe().unwrap()).is_err());
    }
}
