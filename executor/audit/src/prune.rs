//! Removes the oldest files of the chain, as policy or the user wants, so that what is left still proves itself.
//!
//! Before a file goes, the chain gets a record with its number and the number and hash of its last record. So the first record that
//! is left follows a hash which the chain itself names. Whoever could forge that could write the whole chain anew.
//!
//! Age is that of the last record by its own time, which its hash covers; and only a file goes that is whole, and that its neighbours
//! follow: a gap and an edit stay to be found.

use crate::audit::{AuditError, AuditWriter, FILE_MAX};
use crate::record::Record;
use broker_protocol::Digest;
use broker_protocol::chain;
use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of files that are removed at once: the end of a session waits for it.
pub(crate) const PRUNED_MAX: usize = 64;
/// Maximum bytes of a file: a record may begin just before the chain goes on elsewhere.
const TEXT_MAX: u64 = FILE_MAX + chain::RECORD_MAX as u64;

impl AuditWriter {
    /// Removes the files whose last record is older than `age`, the oldest first; returns how many. The file in use stays, and so does
    /// a file that is not as it was written, with all after it.
    ///
    /// # Errors
    /// A record cannot be written, or a file not removed.
    pub fn prune(&mut self, age: Duration) -> Result<usize, AuditError> {
        let numbers = self.numbers();
        let numbers = numbers.map_err(|source| self.error("list", source))?;
        let mut removed = 0;
        let mut before = None;
        for pair in numbers.windows(2).take(PRUNED_MAX) {
            let number = pair[0];
            let end = match pair[1] == number + 1 {
                true => self.end_if_old(&numbers, number, before, age),
                false => Ok(None),
            };
            let end = end.map_err(|source| self.error("read a file", source))?;
            let Some((seq, hash)) = end else {
                break;
            };
            before = Some(hash);
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

    /// Number and hash of the last record of a file that is old, whole and followed by the next; `before` is the hash before its first
    /// record, if that is known already. Mostly the file is too young, and no more is read than its end.
    fn end_if_old(
        &self,
        numbers: &[u64],
        number: u64,
        before: Option<Digest>,
        age: Duration,
    ) -> io::Result<Option<(u64, Digest)>> {
        match self.is_old(number, age)? {
            true => self.verified_end(numbers, number, before),
            false => Ok(None),
        }
    }

    /// Whether the last record of a file was written so long ago, as it says.
    fn is_old(&self, number: u64, age: Duration) -> io::Result<bool> {
        let Some(last) = self.last_line(number)? else {
            return Ok(false);
        };
        let written = chain::time(&last).map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        let since = written.and_then(|written| SystemTime::now().duration_since(written).ok());
        Ok(since.is_some_and(|since| since >= age))
    }

    /// The number and hash of a file's last record, however old the file is.
    fn verified_end(
        &self,
        numbers: &[u64],
        number: u64,
        before: Option<Digest>,
    ) -> io::Result<Option<(u64, Digest)>> {
        let before = match before {
            None if number == 1 => Some(chain::START),
            None => self.removed_end(numbers, number - 1)?,
            known => known,
        };
        let (Some(before), Some(text)) = (before, self.text(number)?) else {
            return Ok(None);
        };
        let mut lines = text.lines();
        let follow = |hash: Digest, line: &[u8]| chain::check(hash, line).ok();
        let end = lines.try_fold(before, |hash, line| follow(hash, line.as_bytes()));
        let last = text.lines().next_back();
        let seq = last.and_then(|line| chain::number(line.as_bytes()));
        let next = self.first_line(number + 1)?;
        let is_followed = |end: &Digest| next.is_none_or(|first| follow(*end, &first).is_some());
        Ok(seq.zip(end.filter(is_followed)))
    }

    /// The first record of a file; `None` if it has none.
    fn first_line(&self, number: u64) -> io::Result<Option<Vec<u8>>> {
        let mut head = Vec::new();
        let file = self.existing(number)?;
        file.take(chain::RECORD_MAX as u64).read_to_end(&mut head)?;
        let line = head.split(|byte| *byte == b'\n').next();
        Ok(line.filter(|line| !line.is_empty()).map(<[u8]>::to_vec))
    }

    /// The last record of a file; `None` if it does not end with one, or is not there.
    fn last_line(&self, number: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match self.existing(number) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let bytes = file.metadata()?.len();
        let begin = bytes.saturating_sub(chain::RECORD_MAX as u64);
        let mut tail = Vec::new();
        (&file).seek(SeekFrom::Start(begin))?;
        file.take(bytes - begin).read_to_end(&mut tail)?;
        let whole = tail.strip_suffix(b"\n");
        let line = whole.and_then(|whole| whole.rsplit(|byte| *byte == b'\n').next());
        Ok(line.map(<[u8]>::to_vec))
    }

    /// The hash of the last record of a file that was removed, as a record says.
    fn removed_end(&self, numbers: &[u64], file: u64) -> io::Result<Option<Digest>> {
        let mark = format!("\"kind\":\"pruned\",\"file\":{file},");
        for number in numbers.iter().rev() {
            let text = self.text(*number)?.unwrap_or_default();
            let record = text.lines().rfind(|line| line.contains(&mark));
            if let Some(record) = record {
                let hash = record.split("\"last_hash\":\"").nth(1);
                let hash = hash.and_then(|hash| hash.split('"').next());
                return Ok(hash.and_then(|hash| hash.parse().ok()));
            }
        }
        Ok(None)
    }

    /// The whole text of a file; `None` if it is not there, is too long, or does not end with a record.
    fn text(&self, number: u64) -> io::Result<Option<String>> {
        let mut text = Vec::new();
        match self.existing(number) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?.take(TEXT_MAX + 1).read_to_end(&mut text)?,
        };
        let text = String::from_utf8(text).ok();
        Ok(text.filter(|text| text.ends_with('\n') && text.len() as u64 <= TEXT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::ErrorKind;
    use std::fs;
    use std::path::{Path, PathBuf};

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// An audit of three files, with two records in each, the first two of them written so long ago, as their records say.
    fn audit(ages: [Duration; 2]) -> (tempfile::TempDir, PathBuf, AuditWriter) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let mut audit = AuditWriter::open(&path, vec![]).unwrap();
        let fault = || Record::fault(ErrorKind::Protocol);
        for (index, age) in [ages[0], ages[1], Duration::ZERO].into_iter().enumerate() {
            audit.set_back(age);
            audit.append(&fault()).unwrap();
            audit.append(&fault()).unwrap();
            if index < 2 {
                audit.go_on_in(index as u64 + 2).unwrap();
            }
        }
        audit.set_back(Duration::ZERO);
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
        let last: serde_json::Value = serde_json::from_str(last).unwrap();
        assert_eq!(record["kind"], "pruned");
        assert_eq!((&record["file"], &record["last"]), (&1.into(), &2.into()));
        assert_eq!(record["last_hash"], last["hash"]);
        assert_eq!(audit.prune(DAY * 3).unwrap(), 0);
        assert_eq!(audit.prune(DAY).unwrap(), 1);
        assert_eq!(audit.prune(Duration::ZERO).unwrap(), 0, "the file in use");
        assert_eq!(files(&path), [3]);
    }

    #[test]
    fn young_and_altered_audit_files_stay() {
        let (_folder, path, mut audit) = audit([DAY, DAY * 9]);
        assert_eq!(audit.prune(DAY * 2).unwrap(), 0, "the first is young");
        // The file's own time, which anybody sets, says nothing.
        let file = fs::OpenOptions::new()
            .write(true)
            .open(path.join(chain::file_name(1)))
            .unwrap();
        file.set_modified(SystemTime::now() - DAY * 500).unwrap();
        assert_eq!(audit.prune(DAY * 2).unwrap(), 0);
        let whole: Vec<String> = (1..=2)
            .map(|number| fs::read_to_string(path.join(chain::file_name(number))).unwrap())
            .collect();
        let first = path.join(chain::file_name(1));
        let second = path.join(chain::file_name(2));
        let edited = whole[0].replacen("protocol", "internal", 1);
        let cut = format!("{}\n", whole[0].lines().next().unwrap());
        for text in [&edited, &cut, &String::new()] {
            fs::write(&first, text).unwrap();
            assert_eq!(audit.prune(DAY / 2).unwrap(), 0, "{text}");
        }
        fs::remove_file(&first).unwrap();
        assert_eq!(
            audit.prune(DAY / 2).unwrap(),
            0,
            "no record says that it is gone"
        );
        fs::write(&first, &whole[0]).unwrap();
        fs::remove_file(&second).unwrap();
        assert_eq!(audit.prune(DAY / 2).unwrap(), 0, "one in the middle");
        fs::write(&second, &whole[1]).unwrap();
        assert_eq!(audit.prune(DAY / 2).unwrap(), 2);
        assert_eq!(files(&path), [3]);
    }
}
