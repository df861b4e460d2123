//! Reads the audit: every record in order, and whether the chain is intact. Its content is not trusted.

use broker_protocol::Digest;
use broker_protocol::chain::{self, Head};
use serde_json::Value;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The audit in a directory.
pub struct AuditChain {
    directory: PathBuf,
}

/// The result of verifying the whole chain.
#[derive(Debug, PartialEq, Eq)]
pub struct Verified {
    pub files: usize,
    /// The last record of the files that were removed, as a record names it; `Head::EMPTY` if none was.
    pub start: Head,
    /// The end of the unbroken sequence of records from there.
    pub last: Head,
    /// The end before the last of these records.
    before: Head,
    /// The record with the hash that was searched for.
    pub known: Option<Head>,
    /// The first place that was altered.
    pub flaw: Option<Flaw>,
}

/// A place that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The file's name in the audit's directory.
    pub file: String,
    /// The line, counted from 1; 0 for the file as a whole.
    pub line: u64,
    /// The defect that was found there.
    pub why: String,
}

impl fmt::Display for Flaw {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, why } = self;
        match line {
            0 => write!(formatter, "{file}: {why}"),
            _ => write!(formatter, "{file}, line {line}: {why}"),
        }
    }
}

/// The state of the files at one moment.
struct Snapshot {
    head: Option<Head>,
    /// Each file's number and size.
    files: Vec<(u64, u64)>,
}

impl AuditChain {
    /// Opens the audit in `directory`; `None` if there is none.
    pub fn open(directory: PathBuf) -> io::Result<Option<Self>> {
        let audit = Self { directory };
        Ok((!audit.files()?.is_empty() || audit.head()?.is_some()).then_some(audit))
    }

    /// Verifies the whole chain; one record must have `known_hash`, if given.
    pub fn verify(&self, known_hash: Option<Digest>) -> io::Result<Verified> {
        self.verify_each(known_hash, |_, _, _| {})
    }

    /// The same, and calls `each` with the records that are whole: line, content and hash.
    pub fn verify_each(
        &self,
        known_hash: Option<Digest>,
        mut each: impl FnMut(&[u8], &Value, Digest),
    ) -> io::Result<Verified> {
        let snapshot = self.snapshot()?;
        let start = self.start(&snapshot)?;
        let mut verified = Verified {
            files: snapshot.files.len(),
            start,
            last: start,
            before: start,
            known: (start.seq > 0 && known_hash == Some(start.hash)).then_some(start),
            flaw: None,
        };
        let first = if start.seq > 0 { start.file + 1 } else { 1 };
        for ((number, size), expected) in snapshot.files.iter().zip(first..) {
            if *number != expected {
                return Ok(verified.with_flaw(
                    chain::file_name(expected),
                    0,
                    "it is not there".into(),
                ));
            }
            let flaw = self.check_file(*number, *size, known_hash, &mut verified, &mut each)?;
            if flaw.is_some() {
                return Ok(Verified { flaw, ..verified });
            }
        }
        let flaw = check_end(&snapshot, &verified).or_else(|| check_known(known_hash, &verified));
        Ok(Verified { flaw, ..verified })
    }

    /// Whether the record with this hash is the last of those that were removed.
    pub fn begins_after(&self, hash: Digest) -> io::Result<bool> {
        let start = self.start(&self.snapshot()?)?;
        Ok(start.seq > 0 && start.hash == hash)
    }

    /// Where the first record that is left begins. If files before it were removed, a record names the end of the last one; it is
    /// believed because it comes later in the chain that begins there.
    fn start(&self, snapshot: &Snapshot) -> io::Result<Head> {
        let first = snapshot.files.first().map_or(1, |(number, _)| *number);
        let mut start = Head::EMPTY;
        if first == 1 {
            return Ok(start);
        }
        self.records(|record| start = pruned(record, first - 1).unwrap_or(start))?;
        Ok(start)
    }

    /// Head and files in a state between two records.
    fn snapshot(&self) -> io::Result<Snapshot> {
        let Some(mut file) = self.head()? else {
            return Ok(Snapshot {
                head: None,
                files: self.files()?,
            });
        };
        file.lock_shared()?;
        let mut text = Vec::new();
        file.by_ref()
            .take(Head::BYTES as u64 + 1)
            .read_to_end(&mut text)?;
        Ok(Snapshot {
            head: Head::decode(&text),
            files: self.files()?,
        })
    }

    /// Verifies the first `size` bytes of a file.
    fn check_file(
        &self,
        number: u64,
        size: u64,
        known_hash: Option<Digest>,
        verified: &mut Verified,
        each: &mut impl FnMut(&[u8], &Value, Digest),
    ) -> io::Result<Option<Flaw>> {
        let mut lines = BufReader::new(self.file(number)?.take(size));
        let flaw = |line, why: &str| {
            Ok(Some(Flaw {
                file: chain::file_name(number),
                line,
                why: why.into(),
            }))
        };
        let mut line = Vec::new();
        let mut bytes = 0;
        for line_number in 1.. {
            line.clear();
            if lines
                .by_ref()
                .take(chain::RECORD_MAX as u64)
                .read_until(b'\n', &mut line)?
                == 0
            {
                break;
            }
            let Some(record) = line.strip_suffix(b"\n") else {
                return flaw(line_number, "it does not end");
            };
            let (hash, value) = match check_record(&verified.last, record) {
                Ok(checked) => checked,
                Err(why) => return flaw(line_number, &why),
            };
            each(record, &value, hash);
            bytes += line.len() as u64;
            let last = Head {
                seq: verified.last.seq + 1,
                file: number,
                bytes,
                hash,
            };
            verified.before = std::mem::replace(&mut verified.last, last);
            if known_hash == Some(hash) {
                verified.known = Some(last);
            }
        }
        Ok(None)
    }

    /// Calls `each` with every record, unchanged.
    pub fn records(&self, mut each: impl FnMut(&[u8])) -> io::Result<Position> {
        let mut position = Position { file: 0, offset: 0 };
        for (number, _) in self.files()? {
            position = Position {
                file: number,
                offset: 0,
            };
            self.more(&mut position, &mut each)?;
        }
        Ok(position)
    }

    /// Calls `each` with the records after `position`, and advances it.
    pub fn more(&self, position: &mut Position, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        self.more_until(position, |record| {
            each(record);
            ControlFlow::Continue(())
        })
    }

    /// Calls `each` as `more` does, until it breaks: with that record it is done.
    fn more_until(
        &self,
        position: &mut Position,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> io::Result<()> {
        if position.file == 0 {
            return Ok(());
        }
        let mut file = self.file(position.file)?;
        file.seek(SeekFrom::Start(position.offset))?;
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = lines
                .by_ref()
                .take(chain::RECORD_MAX as u64)
                .read_until(b'\n', &mut line)?;
            let Some(record) = line.strip_suffix(b"\n") else {
                return Ok(());
            };
            let goes_on = each(record);
            position.offset += length as u64;
            if goes_on.is_break() {
                return Ok(());
            }
        }
    }

    /// The records that come after `last`, each checked against the one before it.
    pub fn after(&self, last: Head) -> Checked<'_> {
        // Of a file that was removed only the end is known: what follows begins the next one.
        let is_removed = last.seq > 0 && last.bytes == 0;
        let file = last.file + u64::from(is_removed);
        let offset = last.bytes;
        Checked {
            audit: self,
            position: Position { file, offset },
            last,
        }
    }

    /// The first file after `position`.
    pub fn next_file(&self, position: &Position) -> io::Result<Option<Position>> {
        let next = self
            .files()?
            .into_iter()
            .find(|(number, _)| *number > position.file);
        Ok(next.map(|(file, _)| Position { file, offset: 0 }))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "our user's own records, in neither root"
    )]
    fn files(&self) -> io::Result<Vec<(u64, u64)>> {
        let entries = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            if let Some(number) = entry.file_name().to_str().and_then(chain::file_number) {
                files.push((number, entry.metadata()?.len()));
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    fn head(&self) -> io::Result<Option<File>> {
        match open(&self.directory.join(chain::HEAD)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => file.map(Some),
        }
    }

    fn file(&self, number: u64) -> io::Result<File> {
        open(&self.directory.join(chain::file_name(number)))
    }
}

/// Reads the chain on from where it was, as far as it is whole.
pub struct Checked<'a> {
    audit: &'a AuditChain,
    position: Position,
    last: Head,
}

impl Checked<'_> {
    /// The last record that was passed.
    pub fn last(&self) -> Head {
        self.last
    }

    /// Calls `each` with the records that are there by now and were not passed before: line, content and hash. Returns the
    /// first flaw, which it does not pass.
    pub fn more(
        &mut self,
        mut each: impl FnMut(&[u8], &Value, Digest),
    ) -> io::Result<Option<Flaw>> {
        self.more_until(|line, record, hash| {
            each(line, record, hash);
            ControlFlow::Continue(())
        })
    }

    /// Calls `each` as `more` does, until it breaks: with that record it is done. So a caller that takes them in parts holds one part.
    pub fn more_until(
        &mut self,
        mut each: impl FnMut(&[u8], &Value, Digest) -> ControlFlow<()>,
    ) -> io::Result<Option<Flaw>> {
        loop {
            let (mut flaw, mut has_broken) = (None, false);
            let (last, file) = (&mut self.last, self.position.file);
            self.audit.more_until(&mut self.position, |record| {
                let (hash, value) = match check_record(last, record) {
                    Ok(checked) => checked,
                    Err(why) => {
                        flaw = Some(why);
                        return ControlFlow::Break(());
                    }
                };
                (last.seq, last.hash) = (last.seq + 1, hash);
                let goes_on = each(record, &value, hash);
                has_broken = goes_on.is_break();
                goes_on
            })?;
            if let Some(why) = flaw {
                let why = format!("record {}: {why}", self.last.seq + 1);
                let (file, line) = (chain::file_name(file), 0);
                return Ok(Some(Flaw { file, line, why }));
            }
            if has_broken {
                return Ok(None);
            }
            match self.audit.next_file(&self.position)? {
                Some(next) => self.position = next,
                None => return Ok(None),
            }
        }
    }
}

/// A reading position in the audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    file: u64,
    offset: u64,
}

impl Verified {
    fn with_flaw(self, file: String, line: u64, why: String) -> Self {
        Self {
            flaw: Some(Flaw { file, line, why }),
            ..self
        }
    }
}

/// The end of the file with this number, if `record` says that it was removed.
fn pruned(record: &[u8], file: u64) -> Option<Head> {
    let value: Value = serde_json::from_slice(record).ok()?;
    let is_it = value["kind"] == "pruned" && value["file"] == file;
    let hash = value["last_hash"].as_str()?.parse().ok()?;
    is_it.then_some(Head {
        seq: value["last"].as_u64()?,
        file,
        bytes: 0,
        hash,
    })
}

/// Checks that `record` follows `last`; returns its hash and its content, or what is wrong.
pub(crate) fn check_record(last: &Head, record: &[u8]) -> Result<(Digest, Value), String> {
    let hash = chain::check(last.hash, record).map_err(|error| error.to_string())?;
    let value: Value = serde_json::from_slice(record).map_err(|_| "it is not JSON")?;
    if value["seq"] != last.seq + 1 {
        return Err(format!("its number is not {}", last.seq + 1));
    }
    if value["kind"] == "break" {
        let found = &value["found"];
        return Err(format!("here the executor found the chain broken: {found}"));
    }
    Ok((hash, value))
}

/// The defect at the end of the chain.
fn check_end(snapshot: &Snapshot, verified: &Verified) -> Option<Flaw> {
    let flaw = |why: String| {
        Some(Flaw {
            file: chain::HEAD.into(),
            line: 0,
            why,
        })
    };
    let Some(head) = snapshot.head else {
        return flaw("it is not there, or cannot be read".into());
    };
    // There may be one more record than the head: its broker was killed before it wrote the head.
    if head == verified.last || head == verified.before {
        return None;
    }
    flaw(format!(
        "it names another end of the chain: record {}, and the last is {}",
        head.seq, verified.last.seq
    ))
}

fn check_known(known_hash: Option<Digest>, verified: &Verified) -> Option<Flaw> {
    let why =
        "no record has the hash that was given: the audit was replaced, or cut before that record";
    (known_hash.is_some() && verified.known.is_none()).then(|| Flaw {
        file: chain::HEAD.into(),
        line: 0,
        why: why.into(),
    })
}

fn open(path: &Path) -> io::Result<File> {
    // Opening a FIFO would otherwise wait for its writer.
    let file = File::options()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}
