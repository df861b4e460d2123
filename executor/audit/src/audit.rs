//! The audit: what this user's brokers did, in one chain for all of them, written before anyone gets an answer.
//!
//! A record is appended under the lock on the file `head`: it must follow the record that the head names, and then the head
//! names it. Whoever waits for a call does not wait for the head: the lock is kept until it is written. While another broker holds the
//! lock, a session does what needs no record, and tries again ([`AuditWriter::try_lock`]). If the two disagree, as
//! a power cut or manual editing can cause, the chain continues in a new file that begins with a record of that, and `lazaret
//! audit verify` reports the place from then on. If a record cannot be written, that is an error, and its call has no result:
//! without an audit nothing runs.
//!
//! *On disk*: a record is in the kernel's page cache before its call has a result, so no death of
//! our processes loses it. Against a power cut, `fdatasync`: at once for a refusal and a fault, and
//! at the end of a session; otherwise one second after the first record that is not on disk yet.

use crate::record::{AuditEntry, Record, SessionFacts, is_recorded_at_start, redacted};
use broker_protocol::chain::Head;
use broker_protocol::{CallId, ErrorKind, Extent, Failed, Outcome, Request, Usage, chain};
use executor_sys::process::euid;
use executor_sys::random;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fchmod};
use nix::sys::statvfs::fstatvfs;
use policies::directories::Advice;
use policies::secret::Secret;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// File size after which the chain continues in a new file.
pub(crate) const FILE_MAX: u64 = 16 << 20;
/// Bytes that should be free where the records are: those of some ten thousand calls, and time to make room.
const ROOM_MIN: u64 = 64 << 20;
/// Maximum time until a record is on disk.
const SYNC: Duration = Duration::from_secs(1);
/// How long another broker may hold the lock, for which it needs only microseconds.
const LOCK: Duration = Duration::from_secs(2);
/// Pause between two attempts to take a lock that is held. The broker's loop rounds it up to a millisecond.
const PAUSE: Duration = Duration::from_micros(50);

/// The audit cannot be written.
#[derive(Debug, Error)]
#[error(
    "the audit cannot be written, and nothing runs without it: {step} in {}: {source}{}",
    .directory.display(),
    .advice.as_ref().map_or_else(String::new, |advice| format!("; {advice}"))
)]
pub struct AuditError {
    step: &'static str,
    directory: PathBuf,
    source: io::Error,
    advice: Option<Advice>,
}

impl AuditError {
    /// The same with what helps.
    pub fn advised(self, advice: Option<Advice>) -> Self {
        Self { advice, ..self }
    }
}

impl From<AuditError> for Failed {
    fn from(error: AuditError) -> Self {
        Failed {
            kind: ErrorKind::Internal,
            message: error.to_string(),
        }
    }
}

/// A writer of the audit, for one connection.
#[derive(Debug)]
pub struct AuditWriter {
    path: PathBuf,
    directory: OwnedFd,
    head: File,
    /// The file that last contained the end of the chain, and its number.
    file: Option<(u64, File)>,
    /// The session to which records belong.
    session: Option<(String, SessionFacts)>,
    /// The calls that have not ended.
    entries: BTreeMap<CallId, AuditEntry>,
    secrets: Vec<Secret>,
    /// When records must be flushed to disk.
    due: Option<Instant>,
    /// The head that is still to be written, under the lock that is held until then.
    pending_head: Option<Head>,
    /// For what this broker holds the lock on the head, if it does.
    hold: Option<Hold>,
    /// When the lock is tried for again, while another broker holds it.
    tries: Option<HeadTries>,
    /// The head as this broker wrote it last, and its text: mostly it is still there and need not be parsed.
    written: Option<(String, Head)>,
    calls: u64,
    is_broken: bool,
    /// Whether it was said that there is little room.
    said_short: bool,
    /// How long ago records say that they were written.
    #[cfg(test)]
    set_back: Duration,
}

/// For what the lock on the head is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Until the head names the record that was appended.
    Record,
    Step,
}

/// When the lock is tried for again, and until when.
#[derive(Clone, Copy, Debug)]
struct HeadTries {
    next: Instant,
    until: Instant,
}

/// There is little room for records, and nothing runs without them.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "only {} MiB are free on the file system of the audit: when none is, the session ends, because nothing runs without it", 
    .bytes >> 20
)]
pub struct ShortOfRoom {
    pub directory: PathBuf,
    pub bytes: u64,
}

/// A record was appended, and the lock on the chain is still held: [`AuditWriter::write_head`] takes this, and must follow within a moment, because
/// other brokers wait.
#[must_use = "other brokers wait until the head is written"]
#[derive(Debug)]
pub struct PendingHead(());

impl AuditWriter {
    /// Opens the audit in `directory`, which is created if it is missing, and removes everybody else's access to it.
    pub fn open(directory: &Path, secrets: Vec<Secret>) -> Result<Self, AuditError> {
        let at = |step| {
            move |source: io::Error| AuditError {
                step,
                directory: directory.to_owned(),
                source,
                advice: None,
            }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(at("make the directory"))?;
        let folder = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(directory)
            .map_err(at("open the directory"))?;
        let metadata = folder.metadata().map_err(at("read the directory"))?;
        if metadata.uid() != euid() {
            return Err(at("use the directory")(io::Error::other(
                "it belongs to somebody else",
            )));
        }
        if metadata.mode() & 0o077 != 0 {
            fchmod(&folder, Mode::S_IRWXU)
                .map_err(|errno| at("close the directory")(errno.into()))?;
        }
        let directory_fd = OwnedFd::from(folder);
        let head = open_in(&directory_fd, chain::HEAD, WRITE).map_err(at("open the head"))?;
        Ok(Self {
            path: directory.to_owned(),
            directory: directory_fd,
            head,
            file: None,
            session: None,
            entries: BTreeMap::new(),
            secrets,
            due: None,
            pending_head: None,
            hold: None,
            tries: None,
            written: None,
            calls: 0,
            is_broken: false,
            said_short: false,
            #[cfg(test)]
            set_back: Duration::ZERO,
        })
    }

    /// Begins a session, to which all further records belong; returns its ID, 32 hexadecimal digits.
    pub fn begin_session(&mut self, facts: SessionFacts) -> Result<String, AuditError> {
        let bytes = random::bytes().map_err(|source| self.error("make a session id", source))?;
        let id = format!("{:032x}", u128::from_le_bytes(bytes));
        self.session = Some((id.clone(), facts));
        Ok(id)
    }

    /// Whether there is little room for more records.
    pub fn short_of_room(&self) -> Option<ShortOfRoom> {
        // Where the file system does not say it, the write that fails does.
        let stat = fstatvfs(&self.directory).ok()?;
        let bytes = stat.blocks_available() as u64 * stat.fragment_size() as u64;
        (bytes < ROOM_MIN).then(|| ShortOfRoom {
            directory: self.path.clone(),
            bytes,
        })
    }

    /// The same, told once in a session.
    pub fn newly_short_of_room(&mut self) -> Option<ShortOfRoom> {
        let short = (!self.said_short).then(|| self.short_of_room()).flatten();
        self.said_short |= short.is_some();
        short
    }

    /// Returns `text` without known secrets.
    pub fn redacted(&self, text: &str) -> String {
        redacted(text.to_owned(), &self.secrets)
    }

    /// Begins the entry of a call, which gets one record at its end. `rule` is the rule that asks about it, if any.
    pub fn open_entry(&mut self, call: CallId, request: &Request, rule: Option<String>) {
        let question = rule.map(|rule| (rule, None));
        self.entries
            .insert(call, AuditEntry::new(request, question, &self.secrets));
    }

    /// Begins the entry of a call that may run, with its approval if it needed one. If it runs a command or
    /// changes something, that is recorded now: it is not undone if this broker dies before its end.
    pub fn open_entry_and_start(
        &mut self,
        call: CallId,
        request: &Request,
        approval: Option<(String, Extent)>,
    ) -> Result<PendingHead, AuditError> {
        let question = approval.map(|(rule, extent)| (rule, Some(extent.name())));
        let entry = AuditEntry::new(request, question, &self.secrets);
        let pending = match is_recorded_at_start(request) {
            true => self.append_ahead(&Record::started(call, &entry))?,
            false => PendingHead(()),
        };
        self.entries.insert(call, entry);
        Ok(pending)
    }

    /// Records the end of a call.
    pub fn ended(
        &mut self,
        call: CallId,
        outcome: &Outcome,
        usage: &Usage,
    ) -> Result<PendingHead, AuditError> {
        let Some((entry, facts)) = self
            .entries
            .remove(&call)
            .zip(self.session.as_ref().map(|of| of.1))
        else {
            return Err(self.error("record", io::Error::other("the call has no entry")));
        };
        self.calls += 1;
        let pending = self.append_ahead(&Record::ended(
            call,
            &entry,
            facts,
            (outcome, usage),
            &self.secrets,
        ))?;
        // A refusal is on the disk before the client gets its answer.
        if let Outcome::Refused(_) = outcome {
            self.sync()?;
        }
        Ok(pending)
    }

    /// Records that the session is over.
    pub fn close(&mut self) -> Result<(), AuditError> {
        let calls = self.calls;
        self.append(&Record::closed(calls))?;
        self.sync()
    }

    /// Appends another record, on disk at once.
    pub fn note(&mut self, record: &Record) -> Result<(), AuditError> {
        self.append(record)?;
        self.sync()
    }

    /// When [`tick`](Self::tick) must be called, or [`try_lock`](Self::try_lock) again.
    pub fn deadline(&self) -> Option<Instant> {
        let tries = self.tries.map(|tries| tries.next);
        self.due.into_iter().chain(tries).min()
    }

    /// Takes the lock on the head, if no other broker holds it: what is appended until [`unlock`](Self::unlock) waits for nobody.
    /// Whether the lock is held.
    ///
    /// # Errors
    /// Another broker has held it for too long.
    pub fn try_lock(&mut self) -> Result<bool, AuditError> {
        // Not its own lock is waited for, and a head that is still to be written comes first.
        self.write_pending_head()?;
        if self.hold.is_some() {
            return Ok(true);
        }
        match self.head.try_lock() {
            Ok(()) => (self.hold, self.tries) = (Some(Hold::Step), None),
            Err(TryLockError::WouldBlock) => {
                let now = Instant::now();
                let until = self.tries.map_or(now + LOCK, |tries| tries.until);
                if until <= now {
                    return Err(self.lock_failed(io::ErrorKind::TimedOut.into()));
                }
                let next = now + PAUSE;
                self.tries = Some(HeadTries { next, until });
            }
            Err(TryLockError::Error(error)) => return Err(self.lock_failed(error)),
        }
        Ok(self.hold.is_some())
    }

    /// Whether another broker held the lock when it was tried for last.
    pub fn awaits_lock(&self) -> bool {
        self.tries.is_some()
    }

    /// Lets other brokers append, once the head names the last record.
    ///
    /// # Errors
    /// The head cannot be written.
    pub fn unlock(&mut self) -> Result<(), AuditError> {
        let written = self.write_pending_head();
        if self.hold.take().is_some() {
            let _ = self.head.unlock();
        }
        written
    }

    /// Nothing is recorded any more: the lock cannot be had.
    fn lock_failed(&mut self, source: io::Error) -> AuditError {
        self.is_broken = true;
        self.error("lock the head", source)
    }

    /// Flushes what has waited long enough to disk.
    pub fn tick(&mut self, now: Instant) -> Result<(), AuditError> {
        if self.due.is_some_and(|due| due <= now) {
            self.sync()
        } else {
            Ok(())
        }
    }

    /// Appends a record to the chain.
    pub fn append(&mut self, record: &Record) -> Result<(), AuditError> {
        let pending = self.append_ahead(record)?;
        self.write_head(pending)
    }

    /// Appends a record, and keeps the lock until the head is written: other brokers wait for it.
    fn append_ahead(&mut self, record: &Record) -> Result<PendingHead, AuditError> {
        if self.is_broken {
            return Err(self.error("append", io::Error::other("it failed before")));
        }
        self.write_pending_head()?;
        let appended = self.append_locked(record);
        self.is_broken = appended.is_err();
        self.due = self.due.or(Some(Instant::now() + SYNC));
        appended.map_err(|(step, source)| self.error(step, source))?;
        Ok(PendingHead(()))
    }

    fn append_locked(&mut self, record: &Record) -> Result<(), (&'static str, io::Error)> {
        if self.hold.is_none() {
            self.lock().map_err(|error| ("lock the head", error))?;
            self.hold = Some(Hold::Record);
        }
        let followed = self.follow(record);
        if followed.is_err() {
            // Closing the file would release it too.
            self.hold = None;
            let _ = self.head.unlock();
        }
        self.pending_head = Some(followed?);
        Ok(())
    }

    /// Writes the head after the last record, if another record has not done so already, and releases the lock that was taken for it.
    /// Should this broker die before that, the next one takes the record up.
    pub fn write_head(&mut self, pending: PendingHead) -> Result<(), AuditError> {
        let PendingHead(()) = pending;
        self.write_pending_head()
    }

    fn write_pending_head(&mut self) -> Result<(), AuditError> {
        let Some(head) = self.pending_head.take() else {
            return Ok(());
        };
        let written = self.write_to_file(head);
        if self.hold == Some(Hold::Record) {
            self.hold = None;
            let _ = self.head.unlock();
        }
        self.is_broken |= written.is_err();
        written.map_err(|(step, source)| self.error(step, source))
    }

    fn write_to_file(&mut self, head: Head) -> Result<(), (&'static str, io::Error)> {
        let text = head.encode();
        self.head
            .write_all_at(text.as_bytes(), 0)
            .map_err(|error| ("write the head", error))?;
        self.written = Some((text, head));
        Ok(())
    }

    /// Waits for the lock on the head, where no call exists that would have to wait.
    fn lock(&self) -> io::Result<()> {
        let until = Instant::now() + LOCK;
        loop {
            match self.head.try_lock() {
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(PAUSE)
                }
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
                Err(TryLockError::Error(error)) => return Err(error),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Writes a record at the end of the chain; returns the head that names it.
    fn follow(&mut self, record: &Record) -> Result<Head, (&'static str, io::Error)> {
        let (mut head, found) = self.end().map_err(|error| ("read the chain", error))?;
        if let Some(found) = found {
            head = Head {
                file: self
                    .last_file()
                    .map_err(|error| ("list", error))?
                    .max(head.file)
                    + 1,
                bytes: 0,
                ..head
            };
            head = self.write(head, &Record::chain_break(found))?;
            self.write_to_file(head)?;
        } else if head.bytes >= FILE_MAX {
            head = Head {
                file: head.file + 1,
                bytes: 0,
                ..head
            };
        }
        self.write(head, record)
    }

    /// The end of the chain, and what is wrong there, if anything.
    fn end(&mut self) -> io::Result<(Head, Option<&'static str>)> {
        let mut text = [0; Head::BYTES + 1];
        let length = read_at(&self.head, &mut text, 0)?;
        let written = self
            .written
            .as_ref()
            .filter(|(ours, _)| ours.as_bytes() == &text[..length]);
        let head = match written
            .map(|(_, head)| *head)
            .or_else(|| Head::decode(&text[..length]))
        {
            Some(head) => head,
            None if length == 0 && self.last_file()? == 0 => Head::EMPTY,
            None => return Ok((Head::EMPTY, Some("the head cannot be read"))),
        };
        let file = self.file(head.file)?;
        let metadata = file.metadata()?;
        if metadata.nlink() == 0 {
            return Err(io::Error::other("its file was removed while it was in use"));
        }
        let over = metadata.len().checked_sub(head.bytes);
        match over {
            None => Ok((head, Some("records that the head counts are not there"))),
            Some(0) => Ok((head, None)),
            // A broker was killed after writing its record and before writing the head.
            Some(over) => Ok(match adopt(file, head, over)? {
                Some(head) => (head, None),
                None => (head, Some("there is something after the last record")),
            }),
        }
    }

    /// Writes a record after `head`; returns the new head. An incomplete write is rolled back.
    fn write(&mut self, head: Head, record: &Record) -> Result<Head, (&'static str, io::Error)> {
        let seq = head.seq + 1;
        let session = self.session.as_ref().map(|(id, _)| id.as_str());
        let now = SystemTime::now();
        #[cfg(test)]
        let now = now - self.set_back;
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut line = record.object(seq, since, session).into_bytes();
        let hash = chain::seal(head.hash, &mut line);
        if line.len() > chain::RECORD_MAX {
            return Err(("write a record", io::ErrorKind::FileTooLarge.into()));
        }
        let next = Head {
            seq,
            bytes: head.bytes + line.len() as u64,
            hash,
            ..head
        };
        let file = self
            .file(head.file)
            .map_err(|error| ("open the file", error))?;
        if let Err(error) = file.write_all_at(&line, head.bytes) {
            // If this fails too, the next broker finds what is left of it.
            let _ = file.set_len(head.bytes);
            return Err(("write a record", error));
        }
        Ok(next)
    }

    /// The file with this number.
    fn file(&mut self, number: u64) -> io::Result<&File> {
        if self.file.as_ref().is_none_or(|(ours, _)| *ours != number) {
            if let Some((_, before)) = &self.file {
                before.sync_data()?;
            }
            let file = open_in(&self.directory, &chain::file_name(number), WRITE)?;
            self.file = Some((number, file));
        }
        // It was stored there just now.
        self.file
            .as_ref()
            .map(|(_, file)| file)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The highest number of a file; 0 where there is none.
    fn last_file(&self) -> io::Result<u64> {
        Ok(self.numbers()?.last().copied().unwrap_or(0))
    }

    /// The numbers of all files, in order.
    pub(crate) fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            numbers.extend(entry?.file_name().to_str().and_then(chain::file_number));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// The file with this number, which must be there.
    pub(crate) fn existing(&self, number: u64) -> io::Result<File> {
        open_in(&self.directory, &chain::file_name(number), OFlag::O_RDONLY)
    }

    /// Whether the last record lies in a file after this one.
    pub(crate) fn is_before_end(&self, number: u64) -> bool {
        self.file.as_ref().is_some_and(|(last, _)| number < *last)
    }

    #[cfg(test)]
    pub(crate) fn set_back(&mut self, age: Duration) {
        self.set_back = age;
    }

    /// Lets the chain continue in the file with this number.
    #[cfg(test)]
    pub(crate) fn go_on_in(&mut self, number: u64) -> io::Result<()> {
        let (head, _) = self.end()?;
        let next = Head {
            file: number,
            bytes: 0,
            ..head
        };
        self.write_to_file(next).map_err(|(_, source)| source)
    }

    fn sync(&mut self) -> Result<(), AuditError> {
        self.write_pending_head()?;
        self.due = None;
        let file = self.file.as_ref().map(|(_, file)| file);
        let synced = file
            .into_iter()
            .chain([&self.head])
            .try_for_each(File::sync_data);
        synced.map_err(|source| self.error("bring records to disk", source))
    }

    pub(crate) fn error(&self, step: &'static str, source: io::Error) -> AuditError {
        AuditError {
            step,
            directory: self.path.clone(),
            source,
            advice: None,
        }
    }
}

/// The head moved on over one complete record that follows it.
fn adopt(file: &File, head: Head, over: u64) -> io::Result<Option<Head>> {
    let over = match usize::try_from(over) {
        Ok(over) if over <= chain::RECORD_MAX => over,
        _ => return Ok(None),
    };
    let mut line = vec![0; over];
    file.read_exact_at(&mut line, head.bytes)?;
    let Some(record) = line
        .strip_suffix(b"\n")
        .filter(|record| !record.contains(&b'\n'))
    else {
        return Ok(None);
    };
    let next = |hash| Head {
        seq: head.seq + 1,
        bytes: head.bytes + over as u64,
        hash,
        ..head
    };
    Ok(chain::check(head.hash, record).ok().map(next))
}

/// To write a file of the audit, which is created if it is missing.
const WRITE: OFlag = OFlag::O_RDWR.union(OFlag::O_CREAT);

/// Opens a file of the audit, which must be a regular file of ours.
fn open_in(directory: &OwnedFd, name: &str, how: OFlag) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let file = File::from(openat(
        directory.as_fd(),
        name,
        how | flags,
        Mode::S_IRUSR | Mode::S_IWUSR,
    )?);
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != euid() {
        return Err(io::Error::other(format!("{name} is no file of yours")));
    }
    if metadata.mode() & 0o077 != 0 {
        fchmod(&file, Mode::S_IRUSR | Mode::S_IWUSR)?;
    }
    Ok(file)
}

/// Reads until the end of the file or until `buffer` is full.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// An audit in a folder of its own.
    fn audit() -> (tempfile::TempDir, PathBuf, AuditWriter) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/audit");
        let audit = AuditWriter::open(&path, vec![]).unwrap();
        (folder, path, audit)
    }

    fn fault() -> Record {
        Record::fault(ErrorKind::Protocol)
    }

    fn append(audit: &mut AuditWriter, times: usize) {
        (0..times).for_each(|_| audit.append(&fault()).unwrap());
    }

    /// Records of a file that follow `hash`, and the last hash.
    fn follow(text: &[u8], mut hash: broker_protocol::Digest) -> (usize, broker_protocol::Digest) {
        let lines = text
            .strip_suffix(b"\n")
            .unwrap()
            .split(|byte| *byte == b'\n');
        let count = lines
            .map(|line| hash = chain::check(hash, line).unwrap())
            .count();
        (count, hash)
    }

    fn text(path: &Path, number: u64) -> Vec<u8> {
        fs::read(path.join(chain::file_name(number))).unwrap()
    }

    fn head(path: &Path) -> Head {
        Head::decode(&fs::read(path.join(chain::HEAD)).unwrap()).unwrap()
    }

    #[test]
    fn audit_directory_is_closed_to_others_even_if_it_was_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        DirBuilder::new().mode(0o777).create(&path).unwrap();
        fs::write(path.join(chain::HEAD), "").unwrap();
        fs::set_permissions(
            path.join(chain::HEAD),
            std::os::unix::fs::PermissionsExt::from_mode(0o666),
        )
        .unwrap();
        let mut audit = AuditWriter::open(&path, vec![]).unwrap();
        append(&mut audit, 1);
        for (name, mode) in [
            ("", 0o700),
            (chain::HEAD, 0o600),
            (&*chain::file_name(1), 0o600),
        ] {
            assert_eq!(
                fs::metadata(path.join(name)).unwrap().mode() & 0o777,
                mode,
                "{name}"
            );
        }
        std::os::unix::fs::symlink(&path, folder.path().join("link")).unwrap();
        assert!(AuditWriter::open(&folder.path().join("link"), vec![]).is_err());
    }

    #[test]
    fn many_brokers_make_one_chain() {
        let (_folder, path, mut first) = audit();
        let mut second = AuditWriter::open(&path, vec![]).unwrap();
        for _ in 0..10 {
            append(&mut first, 1);
            append(&mut second, 2);
        }
        let (count, hash) = follow(&text(&path, 1), chain::START);
        assert_eq!((count, head(&path).seq, head(&path).hash), (30, 30, hash));
    }

    #[test]
    fn a_record_is_there_before_its_head_and_nobody_comes_between() {
        let (_folder, path, mut first) = audit();
        append(&mut first, 1);
        let pending = first.append_ahead(&fault()).unwrap();
        assert_eq!(
            (follow(&text(&path, 1), chain::START).0, head(&path).seq),
            (2, 1)
        );
        let mut second = AuditWriter::open(&path, vec![]).unwrap();
        assert_eq!(
            second.head.try_lock().unwrap_err().to_string(),
            TryLockError::WouldBlock.to_string()
        );
        first.write_head(pending).unwrap();
        append(&mut second, 1);
        let _never = second.append_ahead(&fault()).unwrap();
        // As if its broker had been killed.
        drop(second);
        let _overtaken = first.append_ahead(&fault()).unwrap();
        append(&mut first, 1);
        let (count, hash) = follow(&text(&path, 1), chain::START);
        assert_eq!((count, head(&path).seq, head(&path).hash), (6, 6, hash));
    }

    #[test]
    fn a_record_without_its_head_is_taken_up() {
        let (_folder, path, mut audit) = audit();
        append(&mut audit, 1);
        let before = fs::read(path.join(chain::HEAD)).unwrap();
        append(&mut audit, 1);
        fs::write(path.join(chain::HEAD), before).unwrap();
        append(&mut audit, 1);
        assert_eq!(follow(&text(&path, 1), chain::START).0, 3);
        assert_eq!(head(&path).seq, 3);
    }

    #[test]
    fn head_mismatch_starts_a_new_file() {
        let spoil: [fn(&Path); 6] = [
            |path| {
                fs::OpenOptions::new()
                    .write(true)
                    .open(path)
                    .unwrap()
                    .set_len(100)
                    .unwrap()
            },
            |path| fs::remove_file(path).unwrap(),
            |path| fs::write(path, [fs::read(path).unwrap(), b"x".to_vec()].concat()).unwrap(),
            |path| fs::write(path, [fs::read(path).unwrap(), b"x\n".to_vec()].concat()).unwrap(),
            |path| fs::remove_file(path.with_file_name(chain::HEAD)).unwrap(),
            |path| fs::write(path.with_file_name(chain::HEAD), "x").unwrap(),
        ];
        for (number, spoil) in spoil.into_iter().enumerate() {
            let (_folder, path, mut first) = audit();
            append(&mut first, 2);
            drop(first);
            spoil(&path.join(chain::file_name(1)));
            append(&mut AuditWriter::open(&path, vec![]).unwrap(), 1);
            let second = String::from_utf8(text(&path, 2)).unwrap();
            assert!(
                second.contains("\"kind\":\"break\""),
                "case {number}: {second}"
            );
            assert_eq!(second.lines().count(), 2, "case {number}");
            assert_eq!(head(&path).file, 2, "case {number}");
        }
    }

    #[test]
    fn full_audit_file_is_followed_by_a_new_one() {
        let (_folder, path, mut first) = audit();
        append(&mut first, 1);
        let full = Head {
            bytes: FILE_MAX,
            ..head(&path)
        };
        fs::write(path.join(chain::HEAD), full.encode()).unwrap();
        fs::OpenOptions::new()
            .write(true)
            .open(path.join(chain::file_name(1)))
            .unwrap()
            .set_len(FILE_MAX)
            .unwrap();
        let mut other = AuditWriter::open(&path, vec![]).unwrap();
        append(&mut first, 1);
        append(&mut other, 1);
        append(&mut first, 1);
        let (count, hash) = follow(&text(&path, 2), full.hash);
        assert_eq!(
            (count, head(&path)),
            (
                3,
                Head {
                    seq: 4,
                    file: 2,
                    bytes: text(&path, 2).len() as u64,
                    hash
                }
            )
        );
    }

    #[test]
    fn removed_audit_directory_ends_the_session() {
        let (_folder, path, mut audit) = audit();
        append(&mut audit, 1);
        fs::remove_dir_all(&path).unwrap();
        assert!(audit.append(&fault()).is_err());
        // Not even if somebody restores the directory: the session does not forget the missing record.
        fs::create_dir(&path).unwrap();
        assert!(audit.append(&fault()).is_err());
    }

    #[test]
    fn records_come_to_disk_within_a_second_and_once() {
        let (_folder, _path, mut audit) = audit();
        assert_eq!(audit.deadline(), None);
        append(&mut audit, 1);
        let due = audit.deadline().unwrap();
        assert!(due <= Instant::now() + SYNC);
        append(&mut audit, 5);
        assert_eq!(
            audit.deadline(),
            Some(due),
            "one more record does not put it off"
        );
        audit.tick(due - Duration::from_millis(1)).unwrap();
        assert_eq!(audit.deadline(), Some(due));
        audit.tick(due).unwrap();
        assert_eq!(audit.deadline(), None);
        audit.note(&fault()).unwrap();
        assert_eq!(audit.deadline(), None, "a fault is on disk at once");
        append(&mut audit, 1);
        audit.close().unwrap();
        assert_eq!(audit.deadline(), None, "so is the end");
    }

    #[test]
    fn a_lock_that_another_holds_is_tried_for_and_not_waited_for() {
        let (_folder, path, mut first) = audit();
        let mut second = AuditWriter::open(&path, vec![]).unwrap();
        assert!(first.try_lock().unwrap() && !first.awaits_lock());
        assert!(!second.try_lock().unwrap() && second.awaits_lock());
        assert!(second.deadline().unwrap() <= Instant::now() + PAUSE);
        // Held for a step: not given back after the first record.
        append(&mut first, 2);
        assert!(!second.try_lock().unwrap());
        first.unlock().unwrap();
        assert!(second.try_lock().unwrap() && !second.awaits_lock());
        assert_eq!(second.deadline(), None);
        append(&mut second, 1);
        second.unlock().unwrap();
        append(&mut first, 1);
        assert!(second.try_lock().unwrap(), "kept for one record alone");
        second.unlock().unwrap();
        let (count, hash) = follow(&text(&path, 1), chain::START);
        assert_eq!((count, head(&path).hash), (4, hash));
    }

    #[test]
    fn a_lock_that_is_tried_for_too_long_is_an_error() {
        let (_folder, path, mut audit) = audit();
        let holder = File::open(path.join(chain::HEAD)).unwrap();
        holder.lock_shared().unwrap();
        let begun = Instant::now();
        let error = loop {
            match audit.try_lock() {
                Ok(held) => assert!(!held && begun.elapsed() < 2 * LOCK),
                Err(error) => break error.to_string(),
            }
        };
        assert!(
            begun.elapsed() >= LOCK && error.contains("lock the head"),
            "{error}"
        );
        assert!(audit.append(&fault()).is_err(), "nothing is recorded later");
    }

    #[test]
    fn a_lock_that_is_never_given_back_is_an_error() {
        let (_folder, path, mut audit) = audit();
        let holder = File::open(path.join(chain::HEAD)).unwrap();
        holder.lock_shared().unwrap();
        let begun = Instant::now();
        let error = audit.append(&fault()).unwrap_err();
        assert!(
            begun.elapsed() >= LOCK && error.to_string().contains("lock the head"),
            "{error}"
        );
    }
}
