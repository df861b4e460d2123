//! Packages of Debian's archive, by name: from wherever this machine gets its own, with an apt that has lists and a cache of its own.

use crate::rows::{DebianKernel, KERNELS, Processor};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The suite of the system in the machines: it runs programs of this one and older ones.
const SUITE: &str = "trixie";
/// Packages that commands of the machines use; apt finds what else these need.
const SYSTEM: [&str; 5] = ["bash", "busybox-static", "coreutils", "git", "python3"];
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

pub struct Archive {
    folder: PathBuf,
}

struct DebianPackage {
    name: String,
    version: String,
}

impl Archive {
    /// Lists of the suites, fetched once.
    pub fn new(out: &Path) -> Result<Self, String> {
        // apt reads a relative name of a folder as one below the root.
        let out = std::path::absolute(out).map_err(|error| error.to_string())?;
        let archive = Self {
            folder: out.join("apt"),
        };
        let sources = archive.folder.join("sources.list");
        if archive.folder.join("listed").exists() {
            return Ok(archive);
        }
        for folder in ["state/lists/partial", "cache/archives/partial", "packages"] {
            make_folder(&archive.folder.join(folder))?;
        }
        let own = text(Command::new("apt-get").args([
            "indextargets",
            "--format",
            "$(REPO_URI)",
            "Origin: Debian",
            "Component: main",
        ]))?;
        let address = own.lines().find(|line| !line.contains("security"));
        let address = address.ok_or("this machine's apt has no source of Debian's")?;
        let suites = KERNELS.iter().map(|kernel| kernel.suite).chain([SUITE]);
        let lines = suites.map(|suite| format!("deb [signed-by={KEYRING}] {address} {suite} main"));
        let mut lines: Vec<String> = lines.collect();
        lines.sort();
        lines.dedup();
        write(&sources, lines.join("\n") + "\n")?;
        // No package is installed: apt then names all that another one needs.
        write(&archive.folder.join("status"), "")?;
        succeed(
            archive
                .apt(Processor::X86_64, "apt-get")
                .args(["-q", "update"]),
        )?;
        write(&archive.folder.join("listed"), "")?;
        Ok(archive)
    }

    fn apt(&self, processor: Processor, program: &str) -> Command {
        let mut command = Command::new(program);
        let folder = self.folder.display();
        for option in [
            format!("Dir::State={folder}/state"),
            format!("Dir::State::status={folder}/status"),
            format!("Dir::Cache={folder}/cache"),
            format!("Dir::Etc::SourceList={folder}/sources.list"),
            "Dir::Etc::SourceParts=/dev/null".into(),
            format!("APT::Architecture={}", processor.debian()),
            "APT::Architectures=amd64,arm64".into(),
            "APT::Sandbox::User=root".into(),
            "Acquire::Languages=none".into(),
            "Debug::NoLocking=true".into(),
        ] {
            command.args(["-o", &option]);
        }
        command
    }

    /// All that these packages need, in a suite.
    fn closure(
        &self,
        processor: Processor,
        suite: &str,
        names: &[&str],
    ) -> Result<Vec<DebianPackage>, String> {
        let mut apt = self.apt(processor, "apt-get");
        apt.args([
            "-qq",
            "-y",
            "--no-install-recommends",
            "--print-uris",
            "-t",
            suite,
            "install",
        ]);
        let listed = text(apt.args(names))?;
        // Of each line the second word: NAME_VERSION_ARCHITECTURE.deb, where apt writes the `:` of a version as `%3a`.
        let files = listed.lines().filter_map(|line| line.split(' ').nth(1));
        let packages = files.filter_map(|file| {
            let mut parts = file.strip_suffix(".deb")?.split('_');
            Some(DebianPackage {
                name: parts.next()?.to_owned(),
                version: parts.next()?.replace("%3a", ":"),
            })
        });
        Ok(packages.collect())
    }

    /// Downloads packages, unless they are there; their files.
    fn download(
        &self,
        processor: Processor,
        packages: &[DebianPackage],
    ) -> Result<Vec<PathBuf>, String> {
        let folder = self.folder.join("packages").join(processor.debian());
        make_folder(&folder)?;
        let find = |package: &DebianPackage| {
            let version = package.version.replace(':', "%3a");
            let start = format!("{}_{version}_", package.name);
            let is_it = |path: &PathBuf| name_of(path).starts_with(&start);
            entries(&folder).into_iter().find(is_it)
        };
        let missing = packages.iter().filter(|package| find(package).is_none());
        let words: Vec<String> = missing
            .map(|DebianPackage { name, version }| format!("{name}={version}"))
            .collect();
        if !words.is_empty() {
            let mut apt = self.apt(processor, "apt-get");
            succeed(
                apt.current_dir(&folder)
                    .args(["-q", "download"])
                    .args(words),
            )?;
        }
        let files = packages.iter().map(|package| {
            find(package).ok_or_else(|| format!("no package {} was downloaded", package.name))
        });
        files.collect()
    }

    /// The file of a kernel. Its package is one of those that the suite's newest needs: since 7.0 not the one with the kernel's name.
    pub fn kernel(&self, kernel: &DebianKernel, processor: Processor) -> Result<PathBuf, String> {
        let image = format!("linux-image-cloud-{}", processor.debian());
        let mut needed = self.closure(processor, kernel.suite, &[&image])?;
        let of_release = |name: &str, start: &str| {
            let release = name.strip_prefix(start);
            release.is_some_and(|release| release.starts_with(|first: char| first.is_ascii_digit()))
        };
        let is_binary = |package: &DebianPackage| of_release(&package.name, "linux-binary-");
        if needed.iter().any(is_binary) {
            needed.retain(is_binary);
        } else {
            needed.retain(|package| of_release(&package.name, "linux-image-"));
        }
        let files = self.download(processor, &needed)?;
        let root =
            self.folder
                .join("kernels")
                .join(format!("{}-{}", kernel.name, processor.name()));
        make_folder(&root)?;
        for file in &files {
            unpack(file, &root)?;
        }
        let is_kernel = |path: &PathBuf| name_of(path).starts_with("vmlinu");
        // A release that the archive has replaced may stand there too.
        let mut folders = entries(&root.join("usr/lib/modules"));
        folders.push(root.join("boot"));
        let mut found: Vec<PathBuf> = folders
            .iter()
            .flat_map(|folder| entries(folder))
            .filter(is_kernel)
            .collect();
        found.sort();
        found.pop().ok_or_else(|| {
            let names: Vec<&str> = needed.iter().map(|package| package.name.as_str()).collect();
            format!("no kernel in {names:?} of {}", kernel.suite)
        })
    }

    /// The packages of the system in the machines.
    pub fn system(&self, processor: Processor) -> Result<Vec<PathBuf>, String> {
        let packages = self.closure(processor, SUITE, &SYSTEM)?;
        self.download(processor, &packages)
    }
}

/// Unpacks a kernel's package without its modules.
fn unpack(package: &Path, root: &Path) -> Result<(), String> {
    const UNPACK: &str = "set -o pipefail; dpkg-deb --fsys-tarfile \"$0\" | tar -x -C \"$1\" --exclude='*/modules/*/kernel'";
    succeed(
        Command::new("bash")
            .args(["-c", UNPACK])
            .arg(package)
            .arg(root),
    )
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    listed.map(|entry| entry.path()).collect()
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

pub fn make_folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn text(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().display().to_string();
    let output = command
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}

pub fn succeed(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    match command.stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program}: {status}")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}
