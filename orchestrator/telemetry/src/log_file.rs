//! The file of the operational log, or standard error. Both files of a log are opened before the program confines itself, and
//! written only through their descriptors: afterwards it can open, rename and remove none.
//!
//! A full file is copied over `FILE.1` and emptied. A line is one write; a partial line is truncated again and counted in the next
//! line that is written. If standard error is not read, lines are dropped and nothing blocks.

use crate::error::TelemetryError;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use orchestrator_records::kept::{self, OwnError};
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Maximum bytes of each of the two files.
const BYTES_MAX: u64 = 8 << 20;
/// Means standard error instead of a file.
const STANDARD_ERROR: &str = "-";
/// Size of the copy buffer, in bytes.
const PIECE: usize = 64 << 10;

pub(crate) struct LogFile {
    state: Mutex<LogState>,
    complain: fn(&str),
}

struct LogState {
    sink: Sink,
    /// Lines dropped since the last one that was written.
    dropped: u64,
    has_complained: bool,
}

enum Sink {
    StandardError,
    Files(LogFiles),
}

struct LogFiles {
    current: File,
    previous: File,
    bytes: u64,
    bytes_max: u64,
}

impl LogFile {
    /// Opens a log. A later error that prevents writing is reported to `complain`, once.
    pub(crate) fn open(path: &Path, complain: fn(&str)) -> Result<Self, TelemetryError> {
        let sink = match path.as_os_str() == STANDARD_ERROR {
            true => Sink::StandardError,
            false => Sink::Files(LogFiles::open(path, BYTES_MAX)?),
        };
        Ok(Self {
            state: Mutex::new(LogState {
                sink,
                dropped: 0,
                has_complained: false,
            }),
            complain,
        })
    }

    /// Writes a line, which ends with a line break.
    pub(crate) fn write(&self, line: &[u8]) {
        // A thread that panicked here has left complete lines.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = state.dropped;
        let written = match line.strip_suffix(b"}\n").filter(|_| dropped > 0) {
            Some(start) => state
                .sink
                .write(&[start, format!(",\"dropped\":{dropped}}}\n").as_bytes()].concat()),
            None => state.sink.write(line),
        };
        match written {
            Ok(()) => state.dropped = 0,
            Err(error) => {
                state.dropped += 1;
                let is_slow = error.kind() == io::ErrorKind::WouldBlock;
                if !is_slow && !std::mem::replace(&mut state.has_complained, true) {
                    (self.complain)(&format!("lines of the server's log are lost: {error}"));
                }
            }
        }
    }
}

impl Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Sink::Files(files) => files.write(line),
            Sink::StandardError => {
                let stderr = io::stderr();
                let mut waiting = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
                poll(&mut waiting, PollTimeout::ZERO)?;
                let is_ready = waiting[0]
                    .revents()
                    .is_some_and(|events| events.contains(PollFlags::POLLOUT));
                if !is_ready {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                stderr.lock().write_all(line)
            }
        }
    }
}

impl LogFiles {
    fn open(path: &Path, bytes_max: u64) -> Result<Self, TelemetryError> {
        let current = open_own(path)?;
        match current.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(TelemetryError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(path, error)),
        }
        let mut previous = OsString::from(path);
        previous.push(".1");
        let previous = open_own(&PathBuf::from(previous))?;
        let bytes = current
            .metadata()
            .map_err(|error| failed(path, error))?
            .len();
        Ok(Self {
            current,
            previous,
            bytes,
            bytes_max,
        })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes + line.len() as u64 > self.bytes_max {
            self.rotate()?;
        }
        match self.current.write_all(line) {
            Ok(()) => {
                self.bytes += line.len() as u64;
                Ok(())
            }
            // A partial line would spoil the next one.
            Err(error) => self.current.set_len(self.bytes).and(Err(error)),
        }
    }

    /// Makes room. If the old lines cannot be copied, they are lost, and not the new ones.
    fn rotate(&mut self) -> io::Result<()> {
        let copied = self.copy();
        self.current.set_len(0)?;
        self.bytes = 0;
        copied
    }

    fn copy(&self) -> io::Result<()> {
        self.previous.set_len(0)?;
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        loop {
            let count = self.current.read_at(&mut piece, at)?;
            if count == 0 {
                return Ok(());
            }
            // Opened for appending, so this writes at the end.
            (&self.previous).write_all(&piece[..count])?;
            at += count as u64;
        }
    }
}

fn open_own(path: &Path) -> Result<File, TelemetryError> {
    kept::open_own(path).map_err(|error| match error {
        OwnError::NotOurs => TelemetryError::NotOurs(path.to_owned()),
        OwnError::System(error) => failed(path, error),
    })
}

fn failed(path: &Path, error: io::Error) -> TelemetryError {
    TelemetryError::Open {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test may open what it likes.
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_full_file_goes_to_the_one_before_and_no_line_is_split() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut files = LogFiles::open(&path, 30).unwrap();
        let read =
            || [&path, &folder.path().join("log.1")].map(|path| fs::read_to_string(path).unwrap());
        for line in ["first 789\n", "second 89\n", "third 789\n"] {
            files.write(line.as_bytes()).unwrap();
        }
        assert_eq!(
            read(),
            ["first 789\nsecond 89\nthird 789\n", ""],
            "at the bound"
        );
        files.write(b"4\n").unwrap();
        assert_eq!(read(), ["4\n", "first 789\nsecond 89\nthird 789\n"]);
        (0..14).for_each(|_| files.write(b"5\n").unwrap());
        files.write(b"6\n").unwrap();
        assert_eq!(
            read(),
            ["6\n".to_owned(), format!("4\n{}", "5\n".repeat(14))],
            "the oldest is gone"
        );
        drop(files);
        let files = LogFiles::open(&path, 30).unwrap();
        assert_eq!(files.bytes, 2, "what is there counts");
    }

    #[test]
    fn both_files_are_this_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "before\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let _open = LogFiles::open(&path, 100).unwrap();
        assert_eq!(
            (mode(&path), mode(&folder.path().join("log.1"))),
            (0o600, 0o600)
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "before\n");
        assert!(matches!(
            LogFiles::open(&path, 100),
            Err(TelemetryError::InUse(_))
        ));
    }

    #[test]
    fn links_second_names_and_what_is_no_file_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("victim"), "content").unwrap();
        let refused = |name: &str| LogFiles::open(&at(name), 100).err().unwrap();
        std::os::unix::fs::symlink(at("victim"), at("link")).unwrap();
        assert!(matches!(refused("link"), TelemetryError::Open { .. }));
        fs::hard_link(at("victim"), at("second")).unwrap();
        assert!(matches!(refused("second"), TelemetryError::NotOurs(_)));
        std::os::unix::fs::symlink(at("victim"), at("rotated.1")).unwrap();
        assert!(matches!(refused("rotated"), TelemetryError::Open { .. }));
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(refused("pipe"), TelemetryError::NotOurs(_)));
        fs::create_dir(at("folder")).unwrap();
        assert!(matches!(refused("folder"), TelemetryError::Open { .. }));
        assert_eq!(fs::read_to_string(at("victim")).unwrap(), "content");
        LogFiles::open(&at("plain"), 100).unwrap();
    }

    #[test]
    fn a_line_that_was_lost_is_counted_and_complained_of_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = LogFile::open(&path, |problem| {
            let lost = "lines of the server's log are lost";
            assert!(problem.starts_with(lost), "{problem}");
        })
        .unwrap();
        // First like a full disk, then with space again.
        let full = OpenOptions::new()
            .read(true)
            .append(true)
            .open("/dev/full")
            .unwrap();
        let swap = |file: File| match &mut log.state.lock().unwrap().sink {
            Sink::Files(files) => std::mem::replace(&mut files.current, file),
            Sink::StandardError => panic!("a file"),
        };
        let current = swap(full);
        log.write(b"{\"a\":1}\n");
        log.write(b"{\"a\":2}\n");
        drop(swap(current));
        assert!(log.state.lock().unwrap().has_complained);
        log.write(b"{\"a\":3}\n");
        log.write(b"{\"a\":4}\n");
        assert_eq!(
            fs::read_to_string(path).unwrap(),
            "{\"a\":3,\"dropped\":2}\n{\"a\":4}\n"
        );
    }
}
