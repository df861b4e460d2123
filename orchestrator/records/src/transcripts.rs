//! The files of transcripts: `chats/ID.jsonl` in the state directory, for the user alone; the oldest are removed.

use crate::kept;
use broker_protocol::Failed;
use orchestrator_launch::state_directory;
use orchestrator_text::time;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of transcripts that are kept.
const KEPT: usize = 200;
/// Maximum bytes of a transcript to read: more than its writer writes.
pub const READ_MAX: u64 = 128 << 20;
/// Maximum bytes of the line with which a transcript begins.
const START_MAX: u64 = 64 << 10;

/// A transcript that is being written.
pub struct OpenTranscript {
    pub id: String,
    /// The file, to append to.
    pub file: File,
    /// What it already contains.
    pub text: String,
    /// Its current length in bytes.
    pub bytes: u64,
}

/// The directory of all transcripts.
pub fn directory() -> PathBuf {
    state_directory::directory().join("chats")
}

/// The directory, made ready for transcripts that begin after the confinement.
///
/// # Errors
/// It cannot be made, or belongs to another user.
pub fn prepare() -> Result<PathBuf, Failed> {
    let directory = directory();
    let made = kept::prepare(&directory);
    made.map_err(|error| {
        Failed::internal(format!(
            "no transcripts in {}: {error}",
            directory.display()
        ))
    })?;
    Ok(directory)
}

/// A new unique ID of a conversation.
pub fn new_id() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!(
        "{}-{:06}-{}",
        time::compact(now.as_secs()),
        now.subsec_micros(),
        std::process::id()
    )
}

#[expect(
    clippy::disallowed_methods,
    reason = "our own records, in neither root"
)]
pub fn begin() -> io::Result<OpenTranscript> {
    kept::prepare(&directory())?;
    make_room();
    let id = new_id();
    let file = OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(path(&id))?;
    Ok(OpenTranscript {
        id,
        file,
        text: String::new(),
        bytes: 0,
    })
}

/// Opens the transcript `id`, or the latest one if `id` is `last`.
pub fn resume(id: &str) -> Result<OpenTranscript, Failed> {
    let id = resolve(id)?;
    let (text, bytes) = read(&id)?;
    let file = open(&id, OpenedFor::Appending)
        .map_err(|error| Failed::internal(format!("cannot go on with {id}: {error}")))?;
    Ok(OpenTranscript {
        id,
        file,
        text,
        bytes,
    })
}

/// Reads the transcript `id`, or the latest one if `id` is `last`.
pub fn recorded(id: &str) -> Result<String, Failed> {
    read(&resolve(id)?).map(|(text, _)| text)
}

fn resolve(id: &str) -> Result<String, Failed> {
    if id == "last" {
        let last = ids().unwrap_or_default().pop();
        return last.ok_or_else(|| Failed::invalid("there is no conversation yet".to_owned()));
    }
    if let Some(named) = of_conversation(id) {
        Ok(named)
    } else if is_id(id) {
        Ok(id.to_owned())
    } else {
        Err(Failed::invalid(format!(
            "{id:?} is no id of a conversation"
        )))
    }
}

/// The latest transcript of the conversation that `serve` calls `id`.
fn of_conversation(id: &str) -> Option<String> {
    let begins_it = |transcript: &String| {
        let Ok(file) = open(transcript, OpenedFor::Reading) else {
            return false;
        };
        let mut line = String::new();
        let read = BufReader::new(file.take(START_MAX)).read_line(&mut line);
        // Its first line has the settings, for `serve` with the conversation.
        let start = serde_json::from_str::<Value>(&line).unwrap_or_default();
        read.is_ok() && start["payload"]["conversation"] == id
    };
    ids().ok()?.into_iter().rev().find(begins_it)
}

fn read(id: &str) -> Result<(String, u64), Failed> {
    let file = open(id, OpenedFor::Reading).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failed::invalid(format!("there is no conversation {id}")),
        _ => Failed::internal(format!("cannot read {id}: {error}")),
    })?;
    let mut text = Vec::new();
    let read = file.take(READ_MAX).read_to_end(&mut text);
    read.map_err(|error| Failed::internal(format!("cannot read {id}: {error}")))?;
    let bytes = text.len() as u64;
    Ok((String::from_utf8_lossy(&text).into_owned(), bytes))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenedFor {
    Reading,
    Appending,
}

#[expect(
    clippy::disallowed_methods,
    reason = "our own records, in neither root"
)]
fn open(id: &str, what: OpenedFor) -> io::Result<File> {
    let append = what == OpenedFor::Appending;
    state_directory::make_private(&directory())?;
    // Opening a FIFO would wait for its writer, and a link leads to somebody else's file.
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(!append)
        .append(append)
        .custom_flags(flags)
        .open(path(id))?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// The existing conversations, oldest first.
#[expect(
    clippy::disallowed_methods,
    reason = "our own records, in neither root"
)]
pub fn ids() -> io::Result<Vec<String>> {
    let entries = std::fs::read_dir(directory())?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut ids: Vec<String> = names
        .filter_map(|name| Some(name.strip_suffix(".jsonl")?.to_owned()))
        .filter(|id| is_id(id))
        .collect();
    ids.sort();
    Ok(ids)
}

/// Removes the oldest transcripts. A failure is ignored: it must not prevent a new one.
#[expect(
    clippy::disallowed_methods,
    reason = "our own records, in neither root"
)]
fn make_room() {
    let ids = ids().unwrap_or_default();
    let surplus = (ids.len() + 1).saturating_sub(KEPT);
    for id in &ids[..surplus] {
        let _ = std::fs::remove_file(path(id));
    }
}

fn path(id: &str) -> PathBuf {
    directory().join(format!("{id}.jsonl"))
}

/// Whether a text is the ID of a conversation, and so contains no path.
fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_leads_elsewhere() {
        for id in ["", ".", "..", "../x", "a/b", "a.b", "a\0", &"a".repeat(65)] {
            assert!(resolve(id).is_err(), "{id:?}");
        }
        assert!(is_id(&new_id()));
    }
}
