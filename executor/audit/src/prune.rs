//! Removes the oldest files of the chain, as policy or the user wants, so that what is left still proves itself.
//!
//! Before a file goes, the chain gets a record with its number and the number and hash of its last record. So the first record that
//! is left follows a hash which the chain itself names. Whoever could forge that could write the whole chain anew.

use crate::audit::{Audit, AuditError};
use crate::record::Record;
use broker_protocol::Digest;
use broker_protocol::chain;
use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

/// Maximum number of files that are removed at once: the end of a session waits for it.
pub const PRUNED_MAX: usize = 64;

impl Audit {
    /// Removes the files in which nothing was written for `age`, the oldest first; returns how many. The file in use stays, and so
    /// does a file whose end is not whole, with all after it.
    ///
    /// # Errors
    /// A record cannot be written, or a file not removed.
    pub fn prune(&mut self, age: Duration) -> Result<usize, AuditError> {
        let numbers = self.numbers();
        let numbers = numbers.map_err(|source| self.error("list", source))?;
        let mut removed = 0;
        for pair in numbers.windows(2).take(PRUNED_MAX) {
            let number = pair[0];
            let old = self.last_if_old(number, age);
            let Some((seq, hash)) = old.map_err(|source| self.error("read a file", source))? else {
                break;
            };
            self.note(&Record::pruned(number, seq, &hash))?;
            if !self.is_before_end(number) {
                break;
            }
            let name = chain::file_name(number);
            match unlinkat(self.directory().as_fd(), &*name, UnlinkatFlags::NoRemoveDir) {
                // Another broker was faster.
                Ok(()) | Err(Errno::ENOENT) => removed += 1,
                Err(errno) => return Err(self.error("remove a file", errno.into())),
            }
        }
        Ok(removed)
    }

    /// Number and hash of the last record of a file to which nothing was added for `age`.
    fn last_if_old(&self, number: u64, age: Duration) -> io::Result<Option<(u64, Digest)>> {
        let file = match self.existing(number) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let metadata = file.metadata()?;
        let since = SystemTime::now().duration_since(metadata.modified()?);
        if since.is_ok_and(|since| since >= age) {
            last_record(&file, metadata.len())
        } else {
            Ok(None)
        }
    }
}

/// Number and hash of the last record of a file of so many bytes, as they stand in it; `None` if it does not end with a whole one.
fn last_record(file: &File, bytes: u64) -> io::Result<Option<(u64, Digest)>> {
    let begin = bytes.saturating_sub(chain::RECORD_MAX as u64);
    let mut tail = vec![0; usize::try_from(bytes - begin).unwrap_or_default()];
    file.read_exact_at(&mut tail, begin)?;
    let Some(whole) = tail.strip_suffix(b"\n") else {
        return Ok(None);
    };
    let line = whole.rsplit(|byte| *byte == b'\n').next();
    Ok(line.and_then(|line| Some((chain::number(line)?, chain::hash(line)?))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::ErrorKind;
    use std::fs;
    use std::path::{Path, PathBuf};

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// An audit of three files, with two records in each, the first two of them written so long ago.
    fn audit(ages: [Duration; 2]) -> (tempfile::TempDir, PathBuf, Audit) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let mut audit = Audit::open(&path, vec![]).unwrap();
        for (index, age) in [Some(ages[0]), Some(ages[1]), None].into_iter().enumerate() {
            audit.append(&Record::fault(ErrorKind::Protocol)).unwrap();
            audit.append(&Record::fault(ErrorKind::Protocol)).unwrap();
            let number = index as u64 + 1;
            let Some(age) = age else { continue };
            let file = fs::OpenOptions::new()
                .write(true)
                .open(path.join(chain::file_name(number)))
                .unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
            audit.go_on_in(number + 1).unwrap();
        }
        (folder, path, audit)
    }

    fn files(path: &Path) -> Vec<u64> {
        let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
        let mut numbers: Vec<u64> = names
            .filter_map(|entry| chain::file_number(entry.file_name().to_str()?))
            .collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn old_files_go_and_the_chain_names_what_the_rest_follows() {
        let (_folder, path, mut audit) = audit([DAY * 3, DAY * 2]);
        let first = fs::read_to_string(path.join(chain::file_name(1))).unwrap();
        let last = first.lines().last().unwrap();
        assert_eq!(audit.prune(DAY * 3).unwrap(), 1);
        assert_eq!(files(&path), [2, 3]);
        let text = fs::read_to_string(path.join(chain::file_name(3))).unwrap();
        let record: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let hash = chain::hash(last.as_bytes()).unwrap().to_string();
        assert_eq!(record["kind"], "pruned");
        assert_eq!((&record["file"], &record["last"]), (&1.into(), &2.into()));
        assert_eq!(record["last_hash"], hash);
        assert_eq!(audit.prune(DAY * 3).unwrap(), 0);
        assert_eq!(audit.prune(DAY).unwrap(), 1);
        assert_eq!(audit.prune(Duration::ZERO).unwrap(), 0, "the file in use");
        assert_eq!(files(&path), [3]);
    }

    #[test]
    fn a_young_or_spoilt_file_keeps_all_after_it() {
        let (_folder, path, mut audit) = audit([DAY, DAY * 9]);
        assert_eq!(audit.prune(DAY * 2).unwrap(), 0);
        fs::write(path.join(chain::file_name(1)), "{\"seq\":1}\n").unwrap();
        assert_eq!(audit.prune(Duration::ZERO).unwrap(), 0);
        assert_eq!(files(&path), [1, 2, 3]);
    }
}
