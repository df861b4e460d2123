//! When a file was made, to put what the user had before what a command made.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::SystemTime;

/// When a file was made; one of which nobody knows comes last. No command sets a birth time.
pub fn born(path: &Path) -> (bool, SystemTime) {
    let born = fs::symlink_metadata(path)
        .and_then(|metadata| metadata.created())
        .ok();
    (born.is_none(), born.unwrap_or(SystemTime::UNIX_EPOCH))
}

/// When a file was created, if the file system reports it.
pub fn born_object(object: impl AsFd) -> Option<SystemTime> {
    File::from(object.as_fd().try_clone_to_owned().ok()?)
        .metadata()
        .ok()?
        .created()
        .ok()
}
