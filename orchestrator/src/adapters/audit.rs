//! The audit, read: every record in order, and whether the chain is whole. Nothing in it is believed.

use broker_protocol::Digest;
use broker_protocol::chain::{self, Head};
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The audit in a directory.
pub struct Audit {
    directory: PathBuf,
}

/// What a look at the whole chain found.
#[derive(Debug, PartialEq, Eq)]
pub struct Verified {
    /// Files there are.
    pub files: usize,
    /// Where the records end that follow each other from the first.
    pub last: Head,
    /// Where they ended before the last of them.
    before: Head,
    /// The record that has the hash that was asked for.
    pub kept: Option<u64>,
    /// The first place that is not as it was written.
    pub bad: Option<Bad>,
}

/// A place that is not as it was written.
#[derive(Debug, PartialEq, Eq)]
pub struct Bad {
    /// The file.
    pub file: String,
    /// The line, counted from 1; 0 for the file as a whole.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
}

/// What stood on the disk at one moment.
struct Stand {
    head: Option<Head>,
    /// Each file's number and size.
    files: Vec<(u64, u64)>,
}

impl Audit {
    /// The one in `directory`, if there is one.
    pub fn open(directory: PathBuf) -> io::Result<Option<Self>> {
        let audit = Self { directory };
        Ok((!audit.files()?.is_empty() || audit.head()?.is_some()).then_some(audit))
    }

    /// Looks at the whole chain; `kept` is a hash that some record must have.
    pub fn verify(&self, kept: Option<Digest>) -> io::Result<Verified> {
        let stand = self.stand()?;
        let (files, start) = (stand.files.len(), Head::EMPTY);
        let mut verified = Verified { files, last: start, before: start, kept: None, bad: None };
        for (index, (number, size)) in stand.files.iter().enumerate() {
            let expected = index as u64 + 1;
            if *number != expected {
                return Ok(verified.but(chain::file_name(expected), 0, "it is not there".into()));
            }
            let bad = self.follow(*number, *size, kept, &mut verified)?;
            if bad.is_some() {
                return Ok(Verified { bad, ..verified });
            }
        }
        let bad = ends(&stand, &verified).or_else(|| unknown(kept, &verified));
        Ok(Verified { bad, ..verified })
    }

    /// Head and files as they are between two records.
    fn stand(&self) -> io::Result<Stand> {
        let Some(mut file) = self.head()? else { return Ok(Stand { head: None, files: self.files()? }) };
        file.lock_shared()?;
        let mut text = Vec::new();
        file.by_ref().take(Head::BYTES as u64 + 1).read_to_end(&mut text)?;
        Ok(Stand { head: Head::decode(&text), files: self.files()? })
    }

    /// Goes through the first `size` bytes of a file.
    fn follow(
        &self,
        number: u64,
        size: u64,
        kept: Option<Digest>,
        verified: &mut Verified,
    ) -> io::Result<Option<Bad>> {
        let mut lines = BufReader::new(self.file(number)?.take(size));
        let bad = |line, why: &str| Ok(Some(Bad { file: chain::file_name(number), line, why: why.into() }));
        let mut line = Vec::new();
        let mut bytes = 0;
        for place in 1.. {
            line.clear();
            if lines.by_ref().take(chain::RECORD_MAX as u64).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let Some(record) = line.strip_suffix(b"\n") else { return bad(place, "it does not end") };
            let hash = match chain::check(verified.last.hash, record) {
                Ok(hash) => hash,
                Err(error) => return bad(place, &error.to_string()),
            };
            let Ok(value) = serde_json::from_slice::<Value>(record) else {
                return bad(place, "it is not JSON");
            };
            if value["seq"] != verified.last.seq + 1 {
                return bad(place, &format!("its number is not {}", verified.last.seq + 1));
            }
            if value["kind"] == "break" {
                return bad(place, &format!("here the executor found the chain broken: {}", value["found"]));
            }
            bytes += line.len() as u64;
            let last = Head { seq: verified.last.seq + 1, file: number, bytes, hash };
            verified.before = std::mem::replace(&mut verified.last, last);
            if kept == Some(hash) {
                verified.kept = Some(last.seq);
            }
        }
        Ok(None)
    }

    /// Every record from the file `from` on, as it stands, to `each`.
    pub fn records(&self, mut each: impl FnMut(&[u8])) -> io::Result<Place> {
        let mut place = Place { file: 0, offset: 0 };
        for (number, _) in self.files()? {
            place = Place { file: number, offset: 0 };
            self.more(&mut place, &mut each)?;
        }
        Ok(place)
    }

    /// The records after `place`, which moves on.
    pub fn more(&self, place: &mut Place, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        if place.file == 0 {
            return Ok(());
        }
        let mut file = self.file(place.file)?;
        file.seek(SeekFrom::Start(place.offset))?;
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = lines.by_ref().take(chain::RECORD_MAX as u64).read_until(b'\n', &mut line)?;
            let Some(record) = line.strip_suffix(b"\n") else { return Ok(()) };
            each(record);
            place.offset += length as u64;
        }
    }

    /// The first of the files after `place`.
    pub fn next_file(&self, place: &Place) -> io::Result<Option<Place>> {
        let next = self.files()?.into_iter().find(|(number, _)| *number > place.file);
        Ok(next.map(|(file, _)| Place { file, offset: 0 }))
    }

    #[expect(clippy::disallowed_methods, reason = "our user's own records, in neither root")]
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

/// How far the audit has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    file: u64,
    offset: u64,
}

impl Verified {
    fn but(self, file: String, line: u64, why: String) -> Self {
        Self { bad: Some(Bad { file, line, why }), ..self }
    }
}

/// What is wrong with where the chain ends.
fn ends(stand: &Stand, verified: &Verified) -> Option<Bad> {
    let bad = |why: String| Some(Bad { file: chain::HEAD.into(), line: 0, why });
    let Some(head) = stand.head else { return bad("it is not there, or cannot be read".into()) };
    // One record more: its broker was killed before it wrote the head.
    if head == verified.last || head == verified.before {
        return None;
    }
    bad(format!(
        "it speaks of another end of the chain: of record {}, and the last is {}",
        head.seq, verified.last.seq
    ))
}

fn unknown(kept: Option<Digest>, verified: &Verified) -> Option<Bad> {
    let why = "no record has the hash that was kept: the audit was replaced, or cut before that record";
    (kept.is_some() && verified.kept.is_none()).then(|| Bad {
        file: chain::HEAD.into(),
        line: 0,
        why: why.into(),
    })
}

#[expect(clippy::disallowed_methods, reason = "our user's own records, in neither root")]
fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}
