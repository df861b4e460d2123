//! The secrets of the environment in a file of memory, from a process that starts without them to those that need them.

use nix::unistd;
use orchestrator_confine::Files;
use orchestrator_text::secret_environment;
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Its name, as the kernel shows it: `/memfd:NAME (deleted)`.
const NAME: &str = "lazaret-secrets";

/// A file with these variables, which every program inherits that is started while it is open.
///
/// # Errors
/// If it cannot be made.
pub(crate) fn create(hidden: &[(OsString, OsString)]) -> io::Result<File> {
    let mut file = File::from(memfd_create(NAME, MemfdFlags::empty())?);
    file.write_all(&secret_environment::packed(hidden))?;
    Ok(file)
}

/// The file that this process was started with.
#[expect(
    clippy::disallowed_methods,
    reason = "descriptors of this process, before it hears anybody"
)]
pub(crate) fn inherited(_: &Files) -> io::Result<Option<File>> {
    let wanted = format!("/memfd:{NAME} (deleted)");
    for entry in fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        if fs::read_link(&path).is_ok_and(|target| target == Path::new(&wanted)) {
            // Opened again, because nobody owns what was inherited, and no program that is started from now on gets it unasked.
            let file = File::open(&path)?;
            let number = path
                .file_name()
                .and_then(|name| name.to_str()?.parse::<i32>().ok());
            number.map(unistd::close).transpose()?;
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// A descriptor of the file, which a program that is started while it exists inherits.
pub(crate) fn inheritable() -> io::Result<Option<OwnedFd>> {
    let duplicate = secret_environment::with_file(|file| unistd::dup(file));
    Ok(duplicate.transpose()?)
}

/// The secrets of the environment that this process, which hears nobody, was started without.
///
/// # Errors
/// If there is no such file.
pub(crate) fn read(files: &Files) -> io::Result<Vec<(OsString, OsString)>> {
    let file = inherited(files)?.ok_or(io::ErrorKind::NotFound)?;
    secret_environment::install(file)?;
    let all = secret_environment::all();
    secret_environment::close();
    all
}
