//! The key by which this user signs heads of the audit on this machine: made at the first use, readable to the user alone, and in no
//! cell, as all of Lazaret's state.

use broker_protocol::Failed;
use orchestrator_launch::stdio::print;
use orchestrator_launch::{exit, state_directory};
use orchestrator_records::kept::{self, OwnError};
use orchestrator_signature::{AuditKey, AuditKeyError, SEED_BYTES};
use orchestrator_text::random;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// In the directory of Lazaret's state.
const FILE: &str = "audit-key";
/// Maximum bytes of the file.
const FILE_MAX: u64 = 1024;

/// Why there is no key.
#[derive(Debug, Error)]
#[error("the key of the audit, {}: {why}", .path.display())]
pub(crate) struct SigningKeyError {
    path: PathBuf,
    why: KeyFault,
}

#[derive(Debug, Error)]
enum KeyFault {
    #[error(transparent)]
    File(#[from] OwnError),
    #[error(transparent)]
    Content(#[from] AuditKeyError),
    #[error(transparent)]
    System(#[from] io::Error),
}

/// This user's key, which is made if there is none.
pub(crate) fn own() -> Result<AuditKey, Failed> {
    let directory = state_directory::directory();
    let path = directory.join(FILE);
    let key = of_file(&directory, &path).map_err(|why| SigningKeyError { path, why });
    key.map_err(|error| Failed::internal(error.to_string()))
}

pub(crate) fn show() -> Result<u8, Failed> {
    let line = format!("{} lazaret-audit\n", own()?.public().line());
    print::result(line.as_bytes())?;
    Ok(exit::OK)
}

fn of_file(directory: &Path, path: &Path) -> Result<AuditKey, KeyFault> {
    kept::prepare(directory)?;
    let mut file = kept::open_own(path)?;
    // Of two that begin at once, one makes it.
    file.lock()?;
    let mut text = String::new();
    (&file).take(FILE_MAX).read_to_string(&mut text)?;
    if !text.is_empty() {
        return Ok(AuditKey::of_text(&text)?);
    }
    let key = AuditKey::of_seed(random::bytes::<SEED_BYTES>()?)?;
    file.write_all(key.text().as_bytes())?;
    file.sync_all()?;
    Ok(key)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files of a test")]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_key_is_made_once_and_read_by_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("lazaret");
        let path = directory.join(FILE);
        let public = || of_file(&directory, &path).map(|key| key.public());
        let made = public().unwrap();
        assert_eq!(public().unwrap(), made);
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let text = fs::read_to_string(&path).unwrap();
        // Half of a key is none, and no other takes its place.
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert!(matches!(public(), Err(KeyFault::Content(_))));
        fs::rename(&path, directory.join("elsewhere")).unwrap();
        symlink("elsewhere", &path).unwrap();
        assert!(public().is_err());
        fs::remove_file(&path).unwrap();
        assert_ne!(public().unwrap(), made, "another one, and verifiers notice");
    }
}
