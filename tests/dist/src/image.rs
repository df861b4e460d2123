//! The OCI image: a small system of Debian's packages, the programs, a user. Nothing in it depends on who makes it, or when: two builds
//! from the same packages and programs have one digest.

use crate::files;
use crate::release::{Arch, Package, Release, sha256};
use crate::tarball;
use crate::tool::{self, DistError};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The system, without a package manager: what commands of agents need at least, with git and the libraries of both.
const PACKAGES: [&str; 17] = [
    "bash",
    "ca-certificates",
    "coreutils",
    "findutils",
    "git",
    "grep",
    "libacl1",
    "libattr1",
    "libc6",
    "libgcc-s1",
    "libgmp10",
    "libpcre2-8-0",
    "libselinux1",
    "libtinfo6",
    "sed",
    "tar",
    "zlib1g",
];
/// Not read by any program: documentation, translations, tables of character sets, libraries that nothing here is linked with, and
/// programs of git for mail, servers and HTTP, whose libraries are not here. Git's own second copy is a link.
const LEFT_OUT: [&str; 23] = [
    "./usr/share/doc",
    "./usr/share/man",
    "./usr/share/info",
    "./usr/share/locale",
    "./usr/share/lintian",
    "./usr/share/perl5",
    "./usr/share/git-core/contrib",
    "./usr/share/gitweb",
    "./usr/lib/*/gconv",
    "./usr/lib/*/libmvec.so.1",
    "./usr/lib/*/libnsl.so.1",
    "./usr/lib/git-core/git",
    "./usr/lib/git-core/git-daemon",
    "./usr/lib/git-core/git-http-backend",
    "./usr/lib/git-core/git-http-*",
    "./usr/lib/git-core/git-imap-send",
    "./usr/lib/git-core/git-remote-*",
    "./usr/lib/git-core/git-sh-i18n--envsubst",
    "./usr/lib/git-core/git-shell",
    "./usr/lib/git-core/scalar",
    "./usr/bin/git-shell",
    "./usr/bin/scalar",
    "./usr/share/bash-completion",
];
const ACCOUNTS: [(&str, &str); 3] = [
    (
        "etc/passwd",
        "root:x:0:0::/root:/bin/bash\nlazaret:x:1000:1000::/home/lazaret:/bin/bash\n",
    ),
    ("etc/group", "root:x:0:\nlazaret:x:1000:\n"),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\n",
    ),
];
const LINKS: [(&str, &str); 6] = [
    ("bin", "usr/bin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("sbin", "usr/sbin"),
    ("usr/bin/sh", "bash"),
    ("usr/lib/git-core/git", "../../bin/git"),
];
/// Directories that are empty, or that something is mounted on.
const EMPTY: [&str; 9] = [
    "dev",
    "etc",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr/lib64",
    "var",
];
/// Directories that belong to the user.
const HOMES: [&str; 2] = ["home/lazaret", "work"];

pub fn make(release: &Release, arch: Arch) -> Result<(), DistError> {
    let scratch = release.scratch("image", arch)?;
    let (system, home, image) = (
        scratch.join("system"),
        scratch.join("home"),
        scratch.join("oci"),
    );
    make_system(release, arch, &system)?;
    let programs = scratch.join("programs");
    for folder in ["bin", "libexec"] {
        let to = programs.join("usr").join(folder);
        files::copy_directory(&release.tree(arch).join(folder), &to)?;
    }
    let policy = programs.join("etc/lazaret/policy.toml");
    files::write(&policy, crate::deb::POLICY, 0o644)?;
    for directory in HOMES {
        files::make_directory(&home.join(directory))?;
    }

    let mut layers = Vec::new();
    for (directory, owner) in [(&system, 0), (&programs, 0), (&home, 1000)] {
        layers.push(Layer::make(release, directory, owner, &image)?);
    }
    write_index(release, arch, &layers, &image)?;
    let package = release.package(Package::Image, arch);
    tool::run(tarball::archive(release, &image, &package).arg("."))?;
    release.report(&package)
}

fn make_system(release: &Release, arch: Arch, system: &Path) -> Result<(), DistError> {
    for directory in EMPTY {
        files::make_directory(&system.join(directory))?;
    }
    for (name, to) in &LINKS[..4] {
        let link = system.join(name);
        symlink(to, &link).map_err(DistError::file(&link))?;
        files::make_directory(&system.join(to))?;
    }
    for package in download(release, arch)? {
        unpack(&package, system)?;
    }
    for (name, to) in &LINKS[4..] {
        let link = system.join(name);
        files::remove_file(&link)?;
        symlink(to, &link).map_err(DistError::file(&link))?;
    }
    for (file, text) in ACCOUNTS {
        files::write(&system.join(file), text, 0o644)?;
    }
    write_certificates(system)
}

/// The packages of the system, from the system's own sources.
fn download(release: &Release, arch: Arch) -> Result<Vec<PathBuf>, DistError> {
    let directory = release.out.join("debian").join(arch.debian());
    files::make_directory(&directory)?;
    let find = |package: &str| {
        let start = format!("{package}_");
        let listed = files::entries(&directory)?.into_iter();
        let mut found = listed.filter(|path| files::name(path).starts_with(&start));
        Ok::<_, DistError>(found.next())
    };
    let mut command = Command::new("apt-get");
    command.args(["download", "-q", "-o", "APT::Sandbox::User=root"]);
    command.current_dir(&directory).stdout(Stdio::null());
    let mut is_complete = true;
    for package in PACKAGES {
        if find(package)?.is_none() {
            is_complete = false;
            match package {
                // For all processors.
                "ca-certificates" => command.arg(package),
                _ => command.arg(format!("{package}:{}", arch.debian())),
            };
        }
    }
    if !is_complete {
        tool::run(&mut command)?;
    }
    let missing = |package| DistError::wrong(format!("no package {package} was downloaded"));
    PACKAGES
        .iter()
        .map(|package| find(package)?.ok_or_else(|| missing(package)))
        .collect()
}

fn unpack(package: &Path, system: &Path) -> Result<(), DistError> {
    let mut reader = Command::new("dpkg-deb");
    let mut reader = reader
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(DistError::file(package))?;
    let archive = reader.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let mut command = Command::new("tar");
    command
        .args([
            "--extract",
            "--keep-directory-symlink",
            "--no-same-owner",
            "--file=-",
        ])
        .arg("--directory")
        .arg(system)
        .args(LEFT_OUT.map(|path| format!("--exclude={path}")))
        .stdin(archive);
    tool::run(&mut command)?;
    let status = reader.wait().map_err(DistError::file(package))?;
    let broken = || DistError::wrong(format!("{} cannot be read", package.display()));
    status.success().then_some(()).ok_or_else(broken)
}

/// The list of authorities, which Debian's package makes where it is installed.
fn write_certificates(system: &Path) -> Result<(), DistError> {
    let mut bundle = Vec::new();
    for certificate in files::entries(&system.join("usr/share/ca-certificates/mozilla"))? {
        bundle.extend(fs::read(&certificate).map_err(DistError::file(&certificate))?);
    }
    files::write(
        &system.join("etc/ssl/certs/ca-certificates.crt"),
        bundle,
        0o644,
    )
}

struct Layer {
    /// Of the archive as it is unpacked.
    content: String,
    /// Of the compressed archive, by which it is stored.
    digest: String,
    size: usize,
}

impl Layer {
    fn make(
        release: &Release,
        directory: &Path,
        owner: u32,
        image: &Path,
    ) -> Result<Self, DistError> {
        let archive = directory.with_extension("tar");
        let mut command = tarball::archive(release, directory, &archive);
        command.args([format!("--owner={owner}"), format!("--group={owner}")]);
        tool::run(
            command.args(
                files::entries(directory)?
                    .iter()
                    .map(|path| files::name(path)),
            ),
        )?;
        let content = sha256(&fs::read(&archive).map_err(DistError::file(&archive))?);
        let level = format!("-{}n", release.level());
        tool::run(Command::new("gzip").args([&level, "--force"]).arg(&archive))?;
        let compressed = archive.with_extension("tar.gz");
        let bytes = fs::read(&compressed).map_err(DistError::file(&compressed))?;
        Ok(Self {
            content: format!("sha256:{content}"),
            size: bytes.len(),
            digest: add_blob(image, &bytes)?,
        })
    }
}

/// Stores a part of the image; returns its digest.
fn add_blob(image: &Path, bytes: &[u8]) -> Result<String, DistError> {
    let digest = sha256(bytes);
    files::write(&image.join("blobs/sha256").join(&digest), bytes, 0o644)?;
    Ok(format!("sha256:{digest}"))
}

fn write_index(
    release: &Release,
    arch: Arch,
    layers: &[Layer],
    image: &Path,
) -> Result<(), DistError> {
    const MEDIA: &str = "application/vnd.oci.image";
    let version = release.version;
    let labels = json!({
        "org.opencontainers.image.title": "lazaret",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.revision": release.commit,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
    });
    let config = json!({
        "architecture": arch.debian(),
        "os": "linux",
        "config": {
            "User": "1000:1000",
            "WorkingDir": "/work",
            "Env": ["PATH=/usr/bin", "HOME=/home/lazaret", "LANG=C.UTF-8"],
            "Entrypoint": ["lazaret"],
            "Cmd": ["doctor"],
            "Labels": labels,
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": layers.iter().map(|layer| &layer.content).collect::<Vec<_>>(),
        },
    });
    let blob = |kind: &str, value: &Value| {
        let bytes = value.to_string().into_bytes();
        let digest = add_blob(image, &bytes)?;
        Ok::<_, DistError>(json!({"mediaType": kind, "digest": digest, "size": bytes.len()}))
    };
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": format!("{MEDIA}.manifest.v1+json"),
        "config": blob(&format!("{MEDIA}.config.v1+json"), &config)?,
        "layers": layers.iter().map(|layer| json!({
            "mediaType": format!("{MEDIA}.layer.v1.tar+gzip"),
            "digest": layer.digest,
            "size": layer.size,
        })).collect::<Vec<_>>(),
    });
    let mut entry = blob(&format!("{MEDIA}.manifest.v1+json"), &manifest)?;
    println!(
        "            image {}",
        entry["digest"].as_str().unwrap_or_default()
    );
    entry["annotations"] =
        json!({"org.opencontainers.image.ref.name": format!("lazaret:{version}")});
    let index = json!({"schemaVersion": 2, "manifests": [entry]});
    files::write(&image.join("index.json"), index.to_string(), 0o644)?;
    let layout = json!({"imageLayoutVersion": "1.0.0"}).to_string();
    files::write(&image.join("oci-layout"), layout, 0o644)
}
