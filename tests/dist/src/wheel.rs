//! The wheel: the programs and the Python client in one. The programs are the real ones: no Python starts before them.

use crate::files;
use crate::programs::{COMMANDS, INTERNAL};
use crate::release::{Arch, Package, Release};
use crate::tool::{self, DistError};
use crate::tree::LIBEXEC;
use std::fs;
use std::path::Path;
use std::process::Command;
use toml::Table;

const CLIENT: &str = "orchestrator/clients/python";
const PACK: &str = include_str!("../files/pack_wheel.py");

pub fn make(release: &Release, arch: Arch) -> Result<(), DistError> {
    let root = release.scratch("wheel", arch)?;
    let client = release.root.join(CLIENT);
    for module in files::below(&client.join("src/lazaret_sandbox"))? {
        if module
            .components()
            .any(|part| part.as_os_str() == "__pycache__")
        {
            continue;
        }
        let from = client.join("src/lazaret_sandbox").join(&module);
        files::copy(&from, &root.join("lazaret_sandbox").join(&module), 0o644)?;
    }
    let stem = format!("lazaret_sandbox-{}", release.version);
    let (programs, data) = (release.programs(arch), root.join(format!("{stem}.data")));
    for name in COMMANDS {
        files::copy(
            &programs.join(name),
            &data.join("scripts").join(name),
            0o755,
        )?;
    }
    for name in INTERNAL {
        let to = data.join("data").join(LIBEXEC).join(name);
        files::copy(&programs.join(name), &to, 0o755)?;
    }
    let tag = format!("py3-none-manylinux_2_28_{}", arch.name());
    write_metadata(
        release,
        &client,
        &root.join(format!("{stem}.dist-info")),
        &tag,
    )?;
    let package = release.package(Package::Wheel, arch);
    let mut command = Command::new("python3");
    command.args(["-c", PACK]).arg(&root).arg(&package);
    command.arg(&stem).arg(&release.time);
    tool::run(command.arg(release.level().to_string()))?;
    release.report(&package)
}

fn write_metadata(
    release: &Release,
    client: &Path,
    info: &Path,
    tag: &str,
) -> Result<(), DistError> {
    let file = client.join("pyproject.toml");
    let text = fs::read_to_string(&file).map_err(DistError::file(&file))?;
    let described = || DistError::wrong(format!("{} does not describe the client", file.display()));
    let parsed: Table = text.parse().map_err(|_| described())?;
    let project = parsed["project"].as_table().ok_or_else(described)?;
    if project["version"].as_str() != Some(release.version) {
        let message = format!("{} has another version than the programs", file.display());
        return Err(DistError::wrong(message));
    }
    let readme = client.join("README.md");
    let readme = fs::read_to_string(&readme).map_err(DistError::file(&readme))?;
    let lines = metadata(project).ok_or_else(described)?;
    files::write(&info.join("METADATA"), format!("{lines}\n{readme}"), 0o644)?;
    let entries = entry_points(project).ok_or_else(described)?;
    files::write(&info.join("entry_points.txt"), entries, 0o644)?;
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: lazaret-dist {}\nRoot-Is-Purelib: false\nTag: {tag}\n",
        release.version
    );
    files::write(&info.join("WHEEL"), wheel, 0o644)?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let to = info.join("licenses").join(licence);
        files::copy(&release.root.join(licence), &to, 0o644)?;
    }
    Ok(())
}

/// The fields of `[project]`, as a wheel has them.
fn metadata(project: &Table) -> Option<String> {
    let mut lines = vec!["Metadata-Version: 2.4".to_owned()];
    let text = |name: &str| project[name].as_str();
    for (field, key) in [
        ("Name", "name"),
        ("Version", "version"),
        ("Summary", "description"),
        ("Requires-Python", "requires-python"),
    ] {
        lines.push(format!("{field}: {}", text(key)?));
    }
    lines.push(format!(
        "License-Expression: {}",
        project["license"]["text"].as_str()?
    ));
    lines.push("License-File: LICENSE-APACHE\nLicense-File: LICENSE-MIT".to_owned());
    for classifier in project["classifiers"].as_array()? {
        lines.push(format!("Classifier: {}", classifier.as_str()?));
    }
    for (extra, wanted) in project["optional-dependencies"].as_table()? {
        lines.push(format!("Provides-Extra: {extra}"));
        for requirement in wanted.as_array()? {
            let requirement = requirement.as_str()?;
            lines.push(format!("Requires-Dist: {requirement} ; extra == '{extra}'"));
        }
    }
    lines.push("Description-Content-Type: text/markdown\n".to_owned());
    Some(lines.join("\n"))
}

fn entry_points(project: &Table) -> Option<String> {
    let mut lines = String::new();
    for (group, names) in project["entry-points"].as_table()? {
        lines += &format!("[{group}]\n");
        for (name, object) in names.as_table()? {
            lines += &format!("{name} = {}\n", object.as_str()?);
        }
    }
    Some(lines)
}
