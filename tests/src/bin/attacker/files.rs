//! Attacks on files outside the zones.

use crate::outcome::{Outcome, denied};
use crate::sys;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub fn attack(words: &[&str]) -> Option<Outcome> {
    Some(match *words {
        ["read", path] => read(path),
        ["write", path, text] => write(path, text),
        ["truncate", path] => truncate(path),
        ["list", path] => list(path),
        ["unlink", path] => fs::remove_file(path).map(|()| "unlinked".into()),
        ["make-folder", path] => fs::create_dir(path).map(|()| "made".into()),
        ["rename", from, to] => fs::rename(from, to).map(|()| "renamed".into()),
        ["link", from, to] => fs::hard_link(from, to).map(|()| "linked".into()),
        ["link-and-read", target, link] => link_and_read(target, link),
        ["run", path] => run(path),
        ["chmod", path, mode] => chmod(path, mode),
        ["utime", path] => utime(path),
        ["chown", path] => chown(path),
        ["setxattr", path] => sys::set_xattr(path, "user.lazaret", b"x").map(|()| "set".into()),
        ["make-device", path] => sys::make_device(path).map(|()| "made".into()),
        ["open-by-handle", path] => sys::open_by_handle(path).and_then(contents),
        ["plant", path, text] => plant(Path::new(path), text),
        ["plant-and-move", from, to, below, text] => {
            plant_elsewhere(from, to, below, text, |from, to| fs::rename(from, to))
        }
        ["plant-and-link", from, to, below, text] => {
            plant_elsewhere(from, to, below, text, |from, to| {
                std::os::unix::fs::symlink(from, to)
            })
        }
        ["plant-settings", repository, text] => plant_settings(Path::new(repository), text),
        _ => return None,
    })
}

/// Writes a new file, with the folders that it is in.
fn plant(path: &Path, text: &str) -> Outcome {
    fs::create_dir_all(path.parent().ok_or_else(|| denied("no file"))?)?;
    fs::write(path, text)?;
    Ok("planted".into())
}

/// Writes a file below `from`, and makes that `to`.
fn plant_elsewhere(
    from: &str,
    to: &str,
    below: &str,
    text: &str,
    make: impl Fn(&str, &str) -> std::io::Result<()>,
) -> Outcome {
    plant(&Path::new(from).join(below), text)?;
    fs::create_dir_all(Path::new(to).parent().ok_or_else(|| denied("no file"))?)?;
    make(from, to)?;
    Ok("planted".into())
}

/// As git writes its settings: under another name first.
fn plant_settings(repository: &Path, text: &str) -> Outcome {
    let lock = repository.join(".git/config.lock");
    plant(&lock, &format!("[core]\n\tfsmonitor = {text}\n"))?;
    fs::rename(&lock, repository.join(".git/config"))?;
    Ok("planted".into())
}

fn read(path: &str) -> Outcome {
    contents(fs::File::open(path)?)
}

/// The first bytes, since nothing read is nothing got.
fn contents(mut file: fs::File) -> Outcome {
    let mut buffer = [0; 256];
    match file.read(&mut buffer)? {
        0 => Err(denied("the file is empty")),
        length => Ok(String::from_utf8_lossy(&buffer[..length]).into_owned()),
    }
}

fn write(path: &str, text: &str) -> Outcome {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)?
        .write_all(text.as_bytes())?;
    Ok("written".into())
}

fn truncate(path: &str) -> Outcome {
    sys::truncate(path)?;
    Ok("truncated".into())
}

fn list(path: &str) -> Outcome {
    let names: Vec<_> = fs::read_dir(path)?
        .flatten()
        .map(|entry| entry.file_name())
        // Settings of git that a session's own home begins with.
        .filter(|name| name != ".config")
        .collect();
    if names.is_empty() {
        Err(denied("the folder has nothing of the user's"))
    } else {
        Ok(format!("{names:?}"))
    }
}

fn link_and_read(target: &str, link: &str) -> Outcome {
    std::os::unix::fs::symlink(target, link)?;
    read(link)
}

fn run(path: &str) -> Outcome {
    let output = std::process::Command::new(path).output()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if text.is_empty() {
        Err(denied("it printed nothing"))
    } else {
        Ok(text)
    }
}

fn chmod(path: &str, mode: &str) -> Outcome {
    let mode = u32::from_str_radix(mode, 8).map_err(std::io::Error::other)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok("changed".into())
}

fn utime(path: &str) -> Outcome {
    sys::set_time(path, 86_400)?;
    Ok("changed".into())
}

/// Gives the file to its owner again: allowed to an owner, and a change of metadata all the same.
fn chown(path: &str) -> Outcome {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(path)?;
    std::os::unix::fs::chown(path, Some(metadata.uid()), Some(metadata.gid()))?;
    Ok("changed".into())
}
