//! The package for Debian and Ubuntu.

use crate::files;
use crate::release::{Arch, Package, Release};
use crate::tool::{self, DistError};
use std::fs;
use std::path::Path;
use std::process::Command;

pub const POLICY: &str = include_str!("../files/policy.toml");
/// Installed where no parser reads it; a script puts it in force on machines whose parser knows its rule.
pub const APPARMOR: &str = include_str!("../files/apparmor");
pub const INSTALLED: &str = include_str!("../files/installed.sh");
pub const REMOVED: &str = include_str!("../files/removed.sh");
const COPYRIGHT: &str = include_str!("../files/copyright");
/// A newer parser may come later: then the profile is put in force by the script again.
const TRIGGERS: &str = "interest-noawait /usr/sbin/apparmor_parser\n";

pub fn make(release: &Release, arch: Arch) -> Result<(), DistError> {
    let root = release.scratch("deb", arch)?;
    put_together(release, arch, &root)?;
    let documents = root.join("usr/share/doc/lazaret");
    files::write(&documents.join("copyright"), COPYRIGHT, 0o644)?;
    // Where Debian's zsh looks.
    let zsh = root.join("usr/share/zsh");
    let (upstream, vendor) = (zsh.join("site-functions"), zsh.join("vendor-completions"));
    fs::rename(&upstream, &vendor).map_err(DistError::file(&upstream))?;

    let control = root.join("DEBIAN");
    let digests = digests(&root)?;
    files::write(
        &control.join("control"),
        fields(release, arch, &root)?,
        0o644,
    )?;
    files::write(
        &control.join("conffiles"),
        "/etc/lazaret/policy.toml\n",
        0o644,
    )?;
    files::write(&control.join("triggers"), TRIGGERS, 0o644)?;
    files::write(&control.join("md5sums"), digests, 0o644)?;
    files::write(&control.join("postinst"), script(INSTALLED), 0o755)?;
    files::write(&control.join("prerm"), script(REMOVED), 0o755)?;

    let package = release.package(Package::Deb, arch);
    let mut command = Command::new("dpkg-deb");
    command
        .args(["--build", "--root-owner-group", "-Zxz"])
        .arg(format!("-z{}", release.level()))
        .env("SOURCE_DATE_EPOCH", &release.time)
        .stdout(std::process::Stdio::null());
    tool::run(command.arg(&root).arg(&package))?;
    release.report(&package)
}

/// What a package of a system installs: the tree below `/usr`, and the administrator's settings.
pub fn put_together(release: &Release, arch: Arch, root: &Path) -> Result<(), DistError> {
    files::copy_directory(&release.tree(arch), &root.join("usr"))?;
    let profile = root.join("usr/share/lazaret/apparmor");
    files::write(&profile, APPARMOR, 0o644)?;
    files::write(&root.join("etc/lazaret/policy.toml"), POLICY, 0o644)
}

fn script(body: &str) -> String {
    format!("#!/bin/sh\nset -e\n{body}")
}

fn fields(release: &Release, arch: Arch, root: &Path) -> Result<String, DistError> {
    let mut bytes = 0;
    for path in files::below(root)? {
        let path = root.join(path);
        bytes += fs::metadata(&path).map_err(DistError::file(&path))?.len();
    }
    Ok(format!(
        "Package: lazaret\n\
         Version: {version}\n\
         Architecture: {arch}\n\
         Maintainer: The Lazaret developers <lazaret@example.org>\n\
         Installed-Size: {size}\n\
         Depends: libc6 (>= 2.28)\n\
         Recommends: git\n\
         Section: utils\n\
         Priority: optional\n\
         Homepage: {homepage}\n\
         Description: runs the tool calls of AI agents in cells that the kernel isolates\n \
         A command that a model asks for sees the project and read-only system programs.\n \
         It sees no home directory, no other processes, and reaches no network except\n \
         hosts that are allowed by name. Nothing needs root, a daemon or setuid.\n",
        version = release.version,
        arch = arch.debian(),
        size = bytes.div_ceil(1024),
        homepage = env!("CARGO_PKG_REPOSITORY"),
    ))
}

/// Digests of the installed files, by which `dpkg --verify` finds changed ones.
fn digests(root: &Path) -> Result<String, DistError> {
    let mut command = Command::new("md5sum");
    command.current_dir(root);
    for path in files::below(root)? {
        if !path.starts_with("etc") {
            command.arg(path);
        }
    }
    Ok(tool::text(&mut command)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn the_profile_names_the_executor_alone() {
        let executor = format!("/usr/{}/lazaret-executor", tree::LIBEXEC);
        let profiles: Vec<&str> = APPARMOR
            .lines()
            .filter(|line| line.starts_with("profile "))
            .collect();
        assert_eq!(
            profiles,
            [format!(
                "profile lazaret-executor {executor} flags=(unconfined) {{"
            )]
        );
    }
}
