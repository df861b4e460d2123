//! The package for Fedora, RHEL and openSUSE.

use crate::deb::{INSTALLED, REMOVED, put_together};
use crate::files;
use crate::release::{Arch, Package, Release};
use crate::tool::{self, DistError};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Directories of ours: the others belong to packages of the system.
const DIRECTORIES: [&str; 4] = [
    "/etc/lazaret",
    "/usr/libexec/lazaret",
    "/usr/share/doc/lazaret",
    "/usr/share/lazaret",
];

pub fn make(release: &Release, arch: Arch) -> Result<(), DistError> {
    let scratch = release.scratch("rpm", arch)?;
    let root = scratch.join("root");
    put_together(release, arch, &root)?;
    let spec = scratch.join("lazaret.spec");
    files::write(&spec, specification(release, &root)?, 0o644)?;
    let mut command = Command::new("rpmbuild");
    command
        .args(["-bb", "--quiet", "--target"])
        .arg(format!("{}-linux", arch.name()))
        .arg("--define")
        .arg(format!("_topdir {}", scratch.join("build").display()))
        .arg("--define")
        .arg(format!("_rpmdir {}", scratch.display()))
        .env("SOURCE_DATE_EPOCH", &release.time)
        .stdout(std::process::Stdio::null());
    tool::run(command.arg(&spec))?;
    let package = release.package(Package::Rpm, arch);
    let made = scratch.join(arch.name()).join(files::name(&package));
    files::copy(&made, &package, 0o644)?;
    release.report(&package)
}

fn specification(release: &Release, root: &Path) -> Result<String, DistError> {
    let mut listed: Vec<String> = DIRECTORIES
        .iter()
        .map(|path| format!("%dir {path}"))
        .collect();
    for path in files::below(root)? {
        let kind = if path.starts_with("etc") {
            "%config(noreplace) "
        } else {
            ""
        };
        listed.push(format!("{kind}/{}", path.display()));
    }
    let root = fs::canonicalize(root).map_err(DistError::file(root))?;
    Ok(format!(
        "Name: lazaret\n\
         Version: {version}\n\
         Release: 1\n\
         Summary: Runs the tool calls of AI agents in cells that the kernel isolates\n\
         License: MIT OR Apache-2.0\n\
         URL: {homepage}\n\
         Requires: glibc >= 2.28\n\
         Recommends: git\n\
         AutoReqProv: no\n\
         # The programs are as they were tested: nothing strips, compresses or changes them here.\n\
         %global debug_package %{{nil}}\n\
         %global __os_install_post %{{nil}}\n\
         %global _build_id_links none\n\
         %global _buildhost localhost\n\
         %global use_source_date_epoch_as_buildtime 1\n\
         %global clamp_mtime_to_source_date_epoch 1\n\
         %global _binary_payload w{level}.xzdio\n\
         %description\n\
         A command that a model asks for sees the project and read-only system programs.\n\
         It sees no home directory, no other processes, and reaches no network except\n\
         hosts that are allowed by name. Nothing needs root, a daemon or setuid.\n\
         %install\n\
         mkdir -p %{{buildroot}}\n\
         cp -a {root}/. %{{buildroot}}/\n\
         %post\n{INSTALLED}\
         %preun\n{REMOVED}\
         %files\n\
         %defattr(-,root,root,0755)\n\
         {files}\n",
        version = release.version,
        level = release.level(),
        homepage = env!("CARGO_PKG_REPOSITORY"),
        root = root.display(),
        files = listed.join("\n"),
    ))
}
