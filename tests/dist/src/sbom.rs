//! What the programs are built from, as CycloneDX: a list for each program.

use crate::files;
use crate::release::{Arch, Release};
use crate::tool::{self, DistError};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The programs' crates, by their directories.
const MANIFESTS: [&str; 7] = [
    "executor",
    "executor/attack",
    "executor/trace",
    "executor/worker",
    "orchestrator",
    "orchestrator/gateway",
    "orchestrator/run",
];

pub fn make(release: &Release, arch: Arch) -> Result<(), DistError> {
    // The tool writes beside each manifest of the workspace: a copy of the sources is made for it.
    let sources = release.scratch("sbom", arch)?;
    let archive = sources.with_extension("tar");
    let mut command = Command::new("git");
    command
        .current_dir(&release.root)
        .args(["archive", "--format=tar", "HEAD", "--output"]);
    tool::run(command.arg(&archive))?;
    let mut command = Command::new("tar");
    tool::run(command.arg("-xf").arg(&archive).arg("-C").arg(&sources))?;
    let mut command = Command::new("cargo-cyclonedx");
    command
        .current_dir(&sources)
        .args([
            "cyclonedx",
            "--format",
            "json",
            "--spec-version",
            "1.5",
            "--describe",
            "binaries",
            "--target",
        ])
        .arg(arch.target())
        .env("SOURCE_DATE_EPOCH", &release.time);
    tool::run(&mut command)?;
    let directory = release.out.join(format!("sbom-{}", arch.name()));
    files::remove_directory(&directory)?;
    for manifest in MANIFESTS {
        for list in files::entries(&sources.join(manifest))? {
            if files::name(&list).ends_with(".cdx.json") {
                let text = fs::read_to_string(&list).map_err(DistError::file(&list))?;
                // Crates of ours are named by their directories, which are those of this build.
                let text = text.replace(&sources.display().to_string(), "");
                files::write(&directory.join(files::name(&list)), text, 0o644)?;
            }
        }
    }
    pack(release, arch, &directory)
}

fn pack(release: &Release, arch: Arch, directory: &PathBuf) -> Result<(), DistError> {
    if files::entries(directory)?.is_empty() {
        return Err(DistError::wrong("no list was made"));
    }
    let name = format!("lazaret-{}-{}.cdx.tar.gz", release.version, arch.name());
    let package = release.out.join(name);
    let mut command = crate::tarball::archive(release, directory, &package);
    tool::run(command.args(["--use-compress-program", &release.gzip(), "."]))?;
    fs::remove_dir_all(directory).map_err(DistError::file(directory))?;
    release.report(&package)
}
