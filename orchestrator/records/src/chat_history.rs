//! What a person has typed in chats: `chat_history` in the state directory, one JSON string per line, for the user alone.
//!
//! The file is opened before we confine ourselves, and later used only through its descriptor. Several chats append to the same
//! file. It is shortened in place: a replacement under its name would leave the other chats with the old file.

use crate::kept::{self, OwnError};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use orchestrator_launch::state_directory;
use orchestrator_text::known::redactor;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

/// Maximum bytes of the file. A longer one is not read.
pub const BYTES_MAX: u64 = 1 << 20;

/// How often to retry a lock that another chat holds, and the pause between attempts.
const TRIES: u32 = 20;
const MOMENT: Duration = Duration::from_millis(5);

/// The file, open for the duration of a chat.
#[derive(Debug)]
pub struct ChatHistory {
    file: File,
}

impl ChatHistory {
    /// Opens the file, shortens it to its newer half if it is more than half full, and reads it, oldest entry first.
    ///
    /// # Errors
    /// [`OwnError`].
    pub fn open() -> Result<(Self, Vec<String>), OwnError> {
        let directory = state_directory::directory();
        kept::prepare(&directory)?;
        Self::at(&directory.join("chat_history"))
    }

    fn at(path: &Path) -> Result<(Self, Vec<String>), OwnError> {
        let mut file = locked(kept::open_own(path)?)?;
        let mut bytes = Vec::new();
        Read::by_ref(&mut *file)
            .take(BYTES_MAX + 1)
            .read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        if bytes.len() as u64 > BYTES_MAX / 2 {
            let newest = if bytes.len() as u64 > BYTES_MAX {
                ""
            } else {
                newest_half(&text)
            };
            file.set_len(0)?;
            file.write_all(newest.as_bytes())?;
        } else if !text.is_empty() && !text.ends_with('\n') {
            // A writer died within a line: the next line must not continue it.
            file.write_all(b"\n")?;
        }
        // Lines that somebody else wrote may be invalid.
        let texts = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        Ok((
            Self {
                file: unlocked(file)?,
            },
            texts,
        ))
    }

    /// Appends a text without known secrets. If the file is full, the text is dropped.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn append(&mut self, text: &str) -> io::Result<()> {
        let mut line = serde_json::to_vec(&redactor().text(text))?;
        line.push(b'\n');
        let mut file = locked(self.file.try_clone()?)?;
        if file.metadata()?.len() + line.len() as u64 <= BYTES_MAX {
            file.write_all(&line)?;
        }
        unlocked(file).map(drop)
    }
}

/// Another chat holds the lock only for one read or write. A chat that is stopped meanwhile is not waited for.
fn locked(mut file: File) -> io::Result<Flock<File>> {
    for _ in 0..TRIES {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => return Ok(locked),
            Err((waiting, Errno::EWOULDBLOCK)) => file = waiting,
            Err((_, error)) => return Err(error.into()),
        }
        std::thread::sleep(MOMENT);
    }
    Err(Errno::EWOULDBLOCK.into())
}

fn unlocked(file: Flock<File>) -> io::Result<File> {
    file.unlock().map_err(|(_, error)| error.into())
}

/// The complete lines in the second half of `text`.
fn newest_half(text: &str) -> &str {
    let middle = (text.len() / 2..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or_default();
    let behind = text[middle..]
        .find('\n')
        .map_or(text.len(), |at| middle + at + 1);
    &text[behind..]
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::PathBuf;

    /// A path for a file, in a directory that is removed with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            // Without this, secrets are unknown and everything is withheld.
            orchestrator_text::known::learn(&[("API_TOKEN".into(), "hunter2-hunter2".into())])
                .unwrap();
            let folder =
                std::env::temp_dir().join(format!("lazaret-history-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn path(&self) -> PathBuf {
            self.0.join("chat_history")
        }

        fn texts(&self) -> Vec<String> {
            ChatHistory::at(&self.path()).unwrap().1
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn typed_lines_are_kept_for_the_next_chat_without_secrets() {
        let scratch = Scratch::new("kept");
        let (mut one, texts) = ChatHistory::at(&scratch.path()).unwrap();
        assert_eq!(texts, [""; 0]);
        let (mut other, _) = ChatHistory::at(&scratch.path()).unwrap();
        one.append("two\nlines").unwrap();
        other.append("use hunter2-hunter2").unwrap();
        one.append("日本").unwrap();
        assert_eq!(
            scratch.texts(),
            ["two\nlines", "use [redacted:API_TOKEN]", "日本"]
        );
        assert_eq!(fs::metadata(scratch.path()).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_file_is_bounded_and_the_newest_stay() {
        let scratch = Scratch::new("bounded");
        let (mut history, _) = ChatHistory::at(&scratch.path()).unwrap();
        let line = |number: u64| format!("{number:013}");
        // 16 bytes each, including quotes and line break.
        let fit = BYTES_MAX / 16;
        for number in 0..fit + 5 {
            history.append(&line(number)).unwrap();
        }
        assert_eq!(fs::metadata(scratch.path()).unwrap().len(), BYTES_MAX);
        let last = Some(line(fit - 1));
        assert_eq!(scratch.texts().pop(), last);
        let len = fs::metadata(scratch.path()).unwrap().len();
        assert!((BYTES_MAX / 2 - 16..=BYTES_MAX / 2).contains(&len), "{len}");
        assert_eq!(scratch.texts().pop(), last, "the newest half is there");
        history.append("more").unwrap();
        assert_eq!(
            scratch.texts().pop(),
            Some("more".to_owned()),
            "and who has it open goes on"
        );
        fs::write(scratch.path(), vec![b'x'; BYTES_MAX as usize + 1]).unwrap();
        assert_eq!(scratch.texts(), [""; 0]);
        assert_eq!(fs::metadata(scratch.path()).unwrap().len(), 0);
    }

    #[test]
    fn foreign_history_file_is_refused_and_invalid_lines_are_skipped() {
        let scratch = Scratch::new("strange");
        fs::write(scratch.path(), "\"one\"\nnonsense\n{}\n\"two\"\n\"cut").unwrap();
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o644)).unwrap();
        assert_eq!(scratch.texts(), ["one", "two"]);
        ChatHistory::at(&scratch.path())
            .unwrap()
            .0
            .append("three")
            .unwrap();
        assert_eq!(scratch.texts(), ["one", "two", "three"]);
        assert_eq!(fs::metadata(scratch.path()).unwrap().mode() & 0o777, 0o600);
        fs::remove_file(scratch.path()).unwrap();
        fs::write(scratch.0.join("other"), "").unwrap();
        std::os::unix::fs::symlink(scratch.0.join("other"), scratch.path()).unwrap();
        assert!(ChatHistory::at(&scratch.path()).is_err());
        fs::remove_file(scratch.path()).unwrap();
        nix::unistd::mkfifo(&scratch.path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(ChatHistory::at(&scratch.path()).is_err());
    }
}
