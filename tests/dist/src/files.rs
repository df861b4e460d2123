//! Files as packages need them: with a mode that does not depend on the umask, in an order that does not depend on the disk.

use crate::tool::DistError;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Makes it with all above it, readable by all.
pub fn make_directory(path: &Path) -> Result<(), DistError> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_directory(parent)?;
    }
    fs::create_dir(path)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755)))
        .map_err(DistError::file(path))
}

/// Removes it with all in it, if it is there.
pub fn remove_directory(path: &Path) -> Result<(), DistError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(DistError::file(path)(error)),
        _ => Ok(()),
    }
}

/// Removes a file or a link, if it is there.
pub fn remove_file(path: &Path) -> Result<(), DistError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(DistError::file(path)(error)),
        _ => Ok(()),
    }
}

/// Writes a file, and the directories above it.
pub fn write(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> Result<(), DistError> {
    make_directory(path.parent().unwrap_or(Path::new("/")))?;
    fs::write(path, content)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)))
        .map_err(DistError::file(path))
}

/// Copies a file, and makes the directories above the copy.
pub fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), DistError> {
    let content = fs::read(from).map_err(DistError::file(from))?;
    write(to, content, mode)
}

/// Copies a directory with all in it; programs stay programs.
pub fn copy_directory(from: &Path, to: &Path) -> Result<(), DistError> {
    make_directory(to)?;
    for path in entries(from)? {
        let copied = to.join(name(&path));
        if path.is_dir() {
            copy_directory(&path, &copied)?;
        } else {
            copy(
                &path,
                &copied,
                if is_program(&path)? { 0o755 } else { 0o644 },
            )?;
        }
    }
    Ok(())
}

fn is_program(path: &Path) -> Result<bool, DistError> {
    let metadata = fs::metadata(path).map_err(DistError::file(path))?;
    Ok(metadata.permissions().mode() & 0o100 != 0)
}

/// The entries of a directory, sorted.
pub fn entries(directory: &Path) -> Result<Vec<PathBuf>, DistError> {
    let error = || DistError::file(directory);
    let listed = fs::read_dir(directory).map_err(error())?;
    let mut paths = listed
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(error())?;
    paths.sort();
    Ok(paths)
}

/// Every file below a directory, by its path from there, sorted.
pub fn below(directory: &Path) -> Result<Vec<PathBuf>, DistError> {
    let mut found = Vec::new();
    for path in entries(directory)? {
        let name = PathBuf::from(name(&path));
        if path.is_dir() {
            found.extend(below(&path)?.into_iter().map(|path| name.join(path)));
        } else {
            found.push(name);
        }
    }
    Ok(found)
}

/// The last component of a path.
pub fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
