//! Tries each package as its users do, in a root of its own that is thrown away: installs it, uses it, upgrades it under an open session,
//! removes it, and sees that nothing is left. The steps are the scripts in `checks`.

use crate::files;
use crate::release::{Arch, Package, Release};
use crate::tool::{self, DistError};
use clap::Args;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

const ROOT: &str = include_str!("../checks/root.sh");
const JOURNEY: &str = include_str!("../checks/journey.sh");

#[derive(Args)]
pub struct Check {
    /// The packages to try; all if absent
    #[arg(long, value_enum)]
    only: Vec<Package>,
    /// Only in copies of this machine's own root, not in those of older and newer releases (debootstrap makes these once)
    #[arg(long)]
    here: bool,
}

impl Package {
    /// How it is installed, upgraded and removed.
    fn script(self) -> &'static str {
        match self {
            Self::Tarball => include_str!("../checks/tarball.sh"),
            Self::Deb => include_str!("../checks/deb.sh"),
            Self::Rpm => include_str!("../checks/rpm.sh"),
            Self::Wheel => include_str!("../checks/wheel.sh"),
            Self::Npm => include_str!("../checks/npm.sh"),
            Self::Image => include_str!("../checks/image.sh"),
        }
    }

    /// Where it is tried: with the oldest C library, and with a parser that knows AppArmor's rule.
    fn roots(self, here: bool) -> &'static [Root] {
        match self {
            Self::Image => &[Root::OfImage],
            _ if here => &[Root::Machine],
            Self::Tarball => &[Root::Bullseye],
            Self::Deb => &[Root::Bullseye, Root::Trixie],
            Self::Rpm | Self::Wheel | Self::Npm => &[Root::Machine],
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Root {
    /// This machine's own, with an empty home.
    Machine,
    Bullseye,
    Trixie,
    OfImage,
}

impl Check {
    pub fn execute(&self, release: &Release) -> Result<(), DistError> {
        let packages = match self.only.as_slice() {
            [] => &Package::ALL[..],
            only => only,
        };
        for package in packages {
            for root in package.roots(self.here) {
                let started = Instant::now();
                println!("{package:?} in {root:?}");
                try_package(release, *package, *root)?;
                println!("  {:.1} s", started.elapsed().as_secs_f32());
            }
        }
        Ok(())
    }
}

fn try_package(release: &Release, package: Package, root: Root) -> Result<(), DistError> {
    let scripts = release.out.join("checks");
    files::write(&scripts.join("root.sh"), ROOT, 0o755)?;
    files::write(&scripts.join("journey.sh"), JOURNEY, 0o644)?;
    files::write(&scripts.join("check.sh"), package.script(), 0o644)?;
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "--pid",
            "--fork",
            "--net",
            "--ipc",
            "--uts",
            "--kill-child",
        ])
        .arg("sh")
        .arg(scripts.join("root.sh"))
        .arg(root.directory(release)?)
        .arg(&release.out)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("VERSION", release.version)
        .env("ARCH", Arch::of_host()?.name())
        .env("DEBIAN_ARCH", Arch::of_host()?.debian())
        .env("NODE_ARCH", Arch::of_host()?.node());
    tool::run(&mut command)
}

impl Root {
    /// Its files, which stay as they are: what happens in it goes into a layer above them.
    fn directory(self, release: &Release) -> Result<PathBuf, DistError> {
        match self {
            Self::Machine => Ok("/".into()),
            Self::Bullseye => bootstrap(release, "bullseye", &[]),
            Self::Trixie => bootstrap(release, "trixie", &["apparmor", "git"]),
            Self::OfImage => unpack_image(release),
        }
    }
}

/// A minimal system of another release of Debian, from where this machine has its packages.
fn bootstrap(release: &Release, suite: &str, packages: &[&str]) -> Result<PathBuf, DistError> {
    let root = release.out.join("roots").join(suite);
    if root.join("etc/debian_version").exists() {
        return Ok(root);
    }
    files::remove_directory(&root)?;
    let words = [
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        "Label: Debian",
    ];
    let sources = tool::text(Command::new("apt-get").args(words))?;
    let source = sources.lines().next().unwrap_or_default();
    let mut command = Command::new("debootstrap");
    command.arg("--variant=minbase");
    if !packages.is_empty() {
        command.arg(format!("--include={}", packages.join(",")));
    }
    // Its many lines matter only where it fails, and then it leaves them in a file of the root.
    command.arg(suite).arg(&root).arg(source);
    tool::run(command.stdout(std::process::Stdio::null()))?;
    Ok(root)
}

/// The image's layers, one over the other, as a container engine has them.
pub fn unpack_image(release: &Release) -> Result<PathBuf, DistError> {
    let arch = Arch::of_host()?;
    let image = release.scratch("image-check", arch)?;
    let mut command = Command::new("tar");
    command
        .arg("-xf")
        .arg(release.package(Package::Image, arch))
        .arg("-C")
        .arg(&image);
    tool::run(&mut command)?;
    let read = |path: &str| {
        let path = image.join(path);
        let text = std::fs::read_to_string(&path).map_err(DistError::file(&path))?;
        serde_json::from_str::<serde_json::Value>(&text)
            .map_err(|error| DistError::wrong(format!("{}: {error}", path.display())))
    };
    let blob = |digest: &serde_json::Value| {
        let digest = digest.as_str().unwrap_or_default();
        format!("blobs/{}", digest.replace(':', "/"))
    };
    let index = read("index.json")?;
    let manifest = read(&blob(&index["manifests"][0]["digest"]))?;
    let root = image.join("root");
    files::make_directory(&root)?;
    for layer in manifest["layers"].as_array().into_iter().flatten() {
        let mut command = Command::new("tar");
        command.args(["--extract", "--gzip", "--numeric-owner", "--same-owner"]);
        command
            .arg("--file")
            .arg(image.join(blob(&layer["digest"])));
        tool::run(command.arg("--directory").arg(&root))?;
    }
    Ok(root)
}
