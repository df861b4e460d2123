//! A tarball of the tree: works where it is unpacked.

use crate::release::{Arch, Package, Release};
use crate::tool::{self, DistError};
use std::path::Path;
use std::process::Command;

pub fn make(release: &Release, arch: Arch) -> Result<(), DistError> {
    let name = format!("lazaret-{}-{}-linux", release.version, arch.name());
    let package = release.package(Package::Tarball, arch);
    let mut command = archive(release, &release.tree(arch), &package);
    command
        .args(["--use-compress-program", &release.gzip()])
        .arg(format!("--transform=flags=r;s,^\\.,{name},"));
    tool::run(command.arg("."))?;
    release.report(&package)
}

/// `tar`, which makes the same archive of the same files in any order, at any time and of any user.
pub fn archive(release: &Release, directory: &Path, to: &Path) -> Command {
    let mut command = Command::new("tar");
    command
        .arg("--create")
        .arg("--file")
        .arg(to)
        .arg("--directory")
        .arg(directory)
        .args(["--sort=name", "--format=gnu", "--owner=0", "--group=0"])
        .arg("--numeric-owner")
        .arg(format!("--mtime=@{}", release.time));
    command
}
