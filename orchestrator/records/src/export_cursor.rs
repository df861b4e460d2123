//! How far a collector has acknowledged an export: a file with the hash of the last record. One write replaces it, so it names a record
//! whenever the process ends; two exports never move the same one.

use crate::kept::{self, OwnError};
use broker_protocol::Digest;
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use thiserror::Error;

/// Maximum bytes of the file: a hash and a line end.
const BYTES: u64 = 65;

/// Why a cursor cannot be used.
#[derive(Debug, Error)]
pub enum CursorError {
    #[error(transparent)]
    File(#[from] OwnError),
    #[error("another export moves it")]
    InUse,
    #[error(
        "it contains no hash of a record; remove it to export everything again, or give --after"
    )]
    Content,
}

/// The file, open and locked, so that it can be moved after the confinement.
#[derive(Debug)]
pub struct ExportCursor {
    file: File,
    after: Option<Digest>,
}

impl ExportCursor {
    /// Opens the cursor at `path`; makes it if it is not there. Where `after` is given, it counts in place of what the file has.
    ///
    /// # Errors
    /// [`CursorError`].
    pub fn open(path: &Path, after: Option<Digest>) -> Result<Self, CursorError> {
        let file = kept::open_own_in_place(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(CursorError::InUse),
            Err(TryLockError::Error(error)) => return Err(OwnError::from(error).into()),
        }
        let after = match after {
            Some(after) => Some(after),
            None => read(&file)?,
        };
        Ok(Self { file, after })
    }

    /// The hash of the record after which an export begins.
    pub fn after(&self) -> Option<Digest> {
        self.after
    }

    /// The collector has all records up to this one.
    ///
    /// # Errors
    /// Those of the file system. Then the records are exported again.
    pub fn acknowledge(&mut self, hash: Digest) -> io::Result<()> {
        self.file.write_all_at(format!("{hash}\n").as_bytes(), 0)?;
        self.file.sync_data()?;
        self.after = Some(hash);
        Ok(())
    }
}

fn read(file: &File) -> Result<Option<Digest>, CursorError> {
    let mut text = String::new();
    let got = file.take(BYTES + 1).read_to_string(&mut text);
    got.map_err(|_| CursorError::Content)?;
    if text.is_empty() {
        return Ok(None);
    }
    let hash = text.strip_suffix('\n').and_then(|hash| hash.parse().ok());
    hash.map(Some).ok_or(CursorError::Content)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files of a test")]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_cursor_is_moved_by_one_export_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cursor");
        let hashes = [Digest([1; 32]), Digest([2; 32])];
        let mut cursor = ExportCursor::open(&path, None).unwrap();
        assert_eq!(cursor.after(), None);
        for hash in hashes {
            cursor.acknowledge(hash).unwrap();
        }
        assert!(matches!(
            ExportCursor::open(&path, None),
            Err(CursorError::InUse)
        ));
        drop(cursor);
        let again = ExportCursor::open(&path, None).unwrap();
        assert_eq!(again.after(), Some(hashes[1]));
        drop(again);
        let given = ExportCursor::open(&path, Some(hashes[0])).unwrap();
        assert_eq!(given.after(), Some(hashes[0]));
    }

    #[test]
    fn a_file_that_is_no_cursor_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cursor");
        let hash = Digest([1; 32]);
        for wrong in [
            "x\n".to_owned(),
            hash.to_string(),
            format!("{hash}\n\n"),
            "\n".to_owned(),
        ] {
            fs::write(&path, &wrong).unwrap();
            assert!(
                matches!(ExportCursor::open(&path, None), Err(CursorError::Content)),
                "{wrong:?}"
            );
        }
        fs::write(&path, format!("{hash}\n")).unwrap();
        assert!(
            ExportCursor::open(&path, None).is_ok(),
            "control: with its line end"
        );
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        fs::hard_link(&path, folder.path().join("second")).unwrap();
        for path in [&link, &path] {
            assert!(matches!(
                ExportCursor::open(path, None),
                Err(CursorError::File(_))
            ));
        }
    }
}
