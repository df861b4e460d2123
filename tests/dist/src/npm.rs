//! The packages for npm: the programs in a package for each processor, of which npm installs the one that fits, and the client.

use crate::files;
use crate::release::{Arch, Release};
use crate::tool::{self, DistError};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const CLIENT: &str = "orchestrator/clients/typescript";
/// On `PATH` after an installation. Not JavaScript: Node alone would take longer to start than a call.
const LAUNCHER: &str = include_str!("../files/launcher.sh");

/// A processor's package: no JavaScript, only the programs.
pub fn make_programs(release: &Release, arch: Arch) -> Result<(), DistError> {
    let root = release.scratch("npm", arch)?;
    for folder in ["bin", "libexec"] {
        files::copy_directory(&release.tree(arch).join(folder), &root.join(folder))?;
    }
    copy_licences(release, &root)?;
    let package = json!({
        "name": programs_of(arch),
        "version": release.version,
        "description": format!("The programs of lazaret-sandbox for Linux on {}", arch.name()),
        "license": "MIT OR Apache-2.0",
        "os": ["linux"],
        "cpu": [arch.node()],
        "libc": ["glibc"],
        "preferUnplugged": true,
    });
    write_json(&root.join("package.json"), &package)?;
    pack(release, &root, &programs_of(arch))
}

/// The client, which asks for the programs as optional dependencies.
pub fn make_client(release: &Release) -> Result<(), DistError> {
    let client = release.root.join(CLIENT);
    let root = release.out.join("scratch/npm/client");
    files::remove_directory(&root)?;
    files::copy_directory(&client.join("src"), &root.join("src"))?;
    files::copy(&client.join("README.md"), &root.join("README.md"), 0o644)?;
    copy_licences(release, &root)?;
    for name in crate::programs::COMMANDS {
        files::write(&root.join("bin").join(name), LAUNCHER, 0o755)?;
    }
    let file = client.join("package.json");
    let text = fs::read_to_string(&file).map_err(DistError::file(&file))?;
    let described = || DistError::wrong(format!("{} does not describe the client", file.display()));
    let mut package: Map<String, Value> = serde_json::from_str(&text).map_err(|_| described())?;
    if package["version"] != release.version {
        let message = format!("{} has another version than the programs", file.display());
        return Err(DistError::wrong(message));
    }
    let commands =
        crate::programs::COMMANDS.map(|name| (name.to_owned(), json!(format!("bin/{name}"))));
    package.insert("bin".into(), Value::Object(commands.into_iter().collect()));
    let programs =
        [Arch::X86_64, Arch::Aarch64].map(|arch| (programs_of(arch), json!(release.version)));
    package.insert(
        "optionalDependencies".into(),
        Value::Object(programs.into_iter().collect()),
    );
    write_json(&root.join("package.json"), &Value::Object(package))?;
    pack(release, &root, "lazaret-sandbox")
}

fn programs_of(arch: Arch) -> String {
    format!("lazaret-sandbox-linux-{}", arch.node())
}

fn copy_licences(release: &Release, root: &Path) -> Result<(), DistError> {
    ["LICENSE-APACHE", "LICENSE-MIT"]
        .iter()
        .try_for_each(|name| files::copy(&release.root.join(name), &root.join(name), 0o644))
}

fn write_json(path: &Path, value: &Value) -> Result<(), DistError> {
    files::write(path, format!("{value:#}\n"), 0o644)
}

fn pack(release: &Release, root: &Path, name: &str) -> Result<(), DistError> {
    let mut command = Command::new("npm");
    command
        .current_dir(root)
        .args(["pack", "--silent", "--ignore-scripts", "--pack-destination"])
        .stdout(Stdio::null());
    tool::run(command.arg(&release.out))?;
    release.report(&release.out.join(format!("{name}-{}.tgz", release.version)))
}
