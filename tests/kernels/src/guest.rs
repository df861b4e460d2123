//! The root of an emulated machine: Debian's packages, our programs, the corpus with its compiled probes, as an initramfs.

use crate::debian::{Archive, make_folder, succeed};
use crate::emulator;
use crate::rows::{PROBES, Processor};
use lazaret_tests::{corpus, programs};
use std::path::{Path, PathBuf};
use std::process::Command;

const AARCH64: &str = "aarch64-unknown-linux-gnu";
/// Where Debian's compiler for browsers has its standard libraries.
const DEBIAN_RUST: &str = "/usr/lib/rustlib";

pub struct Guest<'a> {
    pub out: &'a Path,
    pub processor: Processor,
    pub programs: PathBuf,
    pub omitted: Option<&'static str>,
}

impl Guest<'_> {
    /// Makes the root anew; the file of the initramfs.
    pub fn make(&self, archive: &Archive) -> Result<PathBuf, String> {
        make_folder(self.out)?;
        let out = self.out.canonicalize().map_err(|error| error.to_string())?;
        let name = self.processor.name();
        let file = out.join(format!("{name}.cpio"));
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let is_own = name == std::env::consts::ARCH;
        let others = match self.omitted {
            Some(_) => programs::folder(),
            None => self.programs.as_path(),
        };
        let mut script = Command::new("bash");
        script
            .arg(sources.join("root.sh"))
            .args(archive.system(self.processor)?)
            .env("ROOT", out.join("root").join(name))
            .env("FILE", &file)
            .env("SOURCES", &sources)
            .env("PROGRAMS", absolute(&self.programs)?)
            .env("OTHERS", absolute(others)?)
            .env("CORPUS", corpus::folder())
            .env("PROBES", PROBES.join(","))
            .env("COMPILER", emulator::compiler(self.processor))
            // Those of the other processor come from releases, which are stripped.
            .env("STRIP", if is_own { "strip" } else { "" })
            .env("OMITTED", self.omitted.unwrap_or_default());
        succeed(&mut script)?;
        Ok(file)
    }
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize()
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Builds the programs for aarch64 as `.ci/run` checks them; their folder.
pub fn build_aarch64() -> Result<PathBuf, String> {
    let target = programs::workspace().join("target/aarch64");
    let mut cargo = programs::cargo();
    cargo.current_dir(programs::workspace());
    cargo.args(["build", "--quiet", "--locked", "--target", AARCH64]);
    cargo.arg("--target-dir").arg(&target);
    for package in [
        "executor",
        "executor-attack",
        "executor-trace",
        "executor-worker",
        "orchestrator",
        "orchestrator-gateway",
        "orchestrator-run",
    ] {
        cargo.args(["--package", package]);
    }
    let compiler = emulator::compiler(Processor::Aarch64);
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", compiler);
    if Path::new(DEBIAN_RUST).join(AARCH64).is_dir() {
        cargo.env("RUSTC", "/usr/bin/rustc");
    }
    succeed(&mut cargo).map_err(|error| {
        format!("{error}; Debian's package libstd-rust-web-dev:arm64 has the standard library")
    })?;
    Ok(target.join(AARCH64).join("debug"))
}
