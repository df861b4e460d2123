//! The release that is made: its version, commit and time, and the names that each kind of package has for a processor.

use crate::files;
use crate::tool::{self, DistError};
use clap::ValueEnum;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A processor that packages are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arch {
    #[value(name = "x86_64")]
    X86_64,
    #[value(name = "aarch64")]
    Aarch64,
}

impl Arch {
    /// The processor of this machine.
    pub fn of_host() -> Result<Self, DistError> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::X86_64),
            "aarch64" => Ok(Self::Aarch64),
            other => Err(DistError::wrong(format!(
                "no packages are made for {other}"
            ))),
        }
    }

    /// The kernel's and the compiler's name, also that of RPM and of wheels.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The name in Debian and in OCI images.
    pub fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The name that Node has for it.
    pub fn node(self) -> &'static str {
        match self {
            Self::X86_64 => "x64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The number of an ELF file for it (`e_machine`).
    pub fn elf(self) -> u16 {
        match self {
            Self::X86_64 => 62,
            Self::Aarch64 => 183,
        }
    }

    /// `strip` for it: Debian's own knows this machine's processor alone.
    pub fn strip(self) -> &'static str {
        match self {
            own if own.name() == std::env::consts::ARCH => "strip",
            Self::X86_64 => "x86_64-linux-gnu-strip",
            Self::Aarch64 => "aarch64-linux-gnu-strip",
        }
    }

    pub fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.name())
    }
}

/// A kind of package that users install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Package {
    Tarball,
    Deb,
    Rpm,
    Wheel,
    Npm,
    Image,
}

impl Package {
    pub const ALL: [Self; 6] = [
        Self::Tarball,
        Self::Deb,
        Self::Rpm,
        Self::Wheel,
        Self::Npm,
        Self::Image,
    ];
}

#[derive(Debug)]
pub struct Release {
    /// The checkout that it is made of.
    pub root: PathBuf,
    pub out: PathBuf,
    /// Directories with programs that were built otherwise, by their processors.
    pub from: Vec<(Arch, PathBuf)>,
    pub version: &'static str,
    /// The commit, with `-dirty` if the checkout differs from it.
    pub commit: String,
    /// Seconds since 1970 of the commit: the time of every file in every package.
    pub time: String,
}

impl Release {
    /// The release that the checkout around this crate is.
    pub fn of_checkout(out: &Path, from: Vec<(Arch, PathBuf)>) -> Result<Self, DistError> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .canonicalize()
            .map_err(DistError::file(Path::new(env!("CARGO_MANIFEST_DIR"))))?;
        let git = |words: &[&str]| tool::text(Command::new("git").current_dir(&root).args(words));
        let mut commit = git(&["rev-parse", "--short=12", "HEAD"])?;
        if !git(&["status", "--porcelain"])?.is_empty() {
            commit += "-dirty";
        }
        let time = git(&["log", "-1", "--format=%ct"])?;
        // Below the checkout wherever this is started, as cargo's own target folder is.
        let out = root.join(out);
        files::make_directory(&out)?;
        Ok(Self {
            out,
            from: from
                .into_iter()
                .map(|(arch, folder)| (arch, root.join(folder)))
                .collect(),
            version: env!("CARGO_PKG_VERSION"),
            commit,
            time,
            root,
        })
    }

    /// Where programs of a processor are that were built otherwise.
    pub fn from(&self, arch: Arch) -> Option<&Path> {
        let mut given = self.from.iter();
        given
            .find(|(of, _)| *of == arch)
            .map(|(_, folder)| folder.as_path())
    }

    /// The file of a package; of npm's two, that with the programs.
    pub fn package(&self, package: Package, arch: Arch) -> PathBuf {
        let (version, name) = (self.version, arch.name());
        self.out.join(match package {
            Package::Tarball => format!("lazaret-{version}-{name}-linux.tar.gz"),
            Package::Deb => format!("lazaret_{version}_{}.deb", arch.debian()),
            Package::Rpm => format!("lazaret-{version}-1.{name}.rpm"),
            Package::Wheel => {
                format!("lazaret_sandbox-{version}-py3-none-manylinux_2_28_{name}.whl")
            }
            Package::Npm => format!("lazaret-sandbox-linux-{}-{version}.tgz", arch.node()),
            Package::Image => format!("lazaret-{version}-{name}.oci.tar"),
        })
    }

    /// The directory of a processor's programs.
    pub fn programs(&self, arch: Arch) -> PathBuf {
        self.out.join("programs").join(arch.name())
    }

    /// The directory with all that a package installs below its prefix.
    pub fn tree(&self, arch: Arch) -> PathBuf {
        self.out.join("tree").join(arch.name())
    }

    /// How hard to compress, of 9: not at all hard where the packages are only tried.
    pub fn level(&self) -> u8 {
        if self.from.is_empty() { 9 } else { 1 }
    }

    /// `gzip`, which writes nothing of a name or a time.
    pub fn gzip(&self) -> String {
        format!("gzip -{}n", self.level())
    }

    /// An empty directory to put a package together in.
    pub fn scratch(&self, name: &str, arch: Arch) -> Result<PathBuf, DistError> {
        let scratch = self.out.join("scratch").join(name).join(arch.name());
        files::remove_directory(&scratch)?;
        files::make_directory(&scratch)?;
        Ok(scratch)
    }

    /// Prints a package that was made, with its size.
    pub fn report(&self, package: &Path) -> Result<(), DistError> {
        let bytes = fs::metadata(package)
            .map_err(DistError::file(package))?
            .len();
        let shown = package.strip_prefix(&self.root).unwrap_or(package);
        println!("{:>9.2} MB  {}", bytes as f64 / 1e6, shown.display());
        Ok(())
    }

    /// Writes `SHA256SUMS` of the packages, as `sha256sum --check` reads it.
    pub fn write_digests(&self) -> Result<(), DistError> {
        let mut lines = Vec::new();
        for path in files::entries(&self.out)? {
            let name = files::name(&path);
            if path.is_file() && name != "SHA256SUMS" {
                let bytes = fs::read(&path).map_err(DistError::file(&path))?;
                lines.push(format!("{}  {name}\n", sha256(&bytes)));
            }
        }
        files::write(&self.out.join("SHA256SUMS"), lines.concat(), 0o644)
    }
}

/// The digest as `sha256sum` prints it.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
