//! The files of run logs: one directory for each run; the oldest are removed.

use crate::state_directory;
use orchestrator_text::time;
use serde_json::Value;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum bytes of a log, without its last line.
pub const BYTES_MAX: u64 = 8 << 20;
/// Maximum number of runs that are kept.
const RUNS_MAX: usize = 200;
/// The log's file name in the directory of a run.
const NAME: &str = "runlog.jsonl";

/// The directory of all run logs.
pub fn directory() -> PathBuf {
    state_directory::directory().join("runs")
}

/// Creates the log of this run, and removes the oldest if there are too many.
///
/// # Errors
/// Errors of the file system; also if others have access to the directory.
#[expect(
    clippy::disallowed_methods,
    reason = "our own records, in neither root"
)]
pub fn create() -> io::Result<File> {
    let runs = directory();
    let state = state_directory::directory();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&state)?;
    state_directory::make_private(&state)?;
    match DirBuilder::new().mode(0o700).create(&runs) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => state_directory::make_private(&runs)?,
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let id = format!(
        "{}-{:06}-{}",
        time::compact(now.as_secs()),
        now.subsec_micros(),
        std::process::id()
    );
    let run = runs.join(id);
    let file = match make_room(&run) {
        Some(file) => file,
        None => {
            DirBuilder::new().mode(0o700).create(&run)?;
            OpenOptions::new()
                .append(true)
                .create_new(true)
                .mode(0o600)
                .open(run.join(NAME))?
        }
    };
    // Held until this process ends, however it ends: a run in progress is not removed.
    file.try_lock_shared()?;
    Ok(file)
}

/// If the maximum number of runs is reached, reuses directory and file of the oldest run for `run`, and removes further ones.
/// Reusing a file costs a tenth of removing one and creating another. It has to happen now: see `confine`. Errors are ignored: no
/// old run is worth the log of this one.
#[expect(
    clippy::disallowed_methods,
    reason = "our own records, in neither root"
)]
fn make_room(run: &Path) -> Option<File> {
    let runs = ids().unwrap_or_default();
    let mut surplus = (runs.len() + 1).saturating_sub(RUNS_MAX);
    let mut reused = None;
    for id in runs {
        if surplus == 0 {
            break;
        }
        let old = directory().join(id);
        let Some(file) = old_log(&old.join(NAME)) else {
            continue;
        };
        let gone = if reused.is_none() {
            reused = reuse(&old, file, run).ok();
            reused.is_some()
        } else {
            std::fs::remove_file(old.join(NAME))
                .and_then(|()| std::fs::remove_dir(&old))
                .is_ok()
        };
        surplus -= usize::from(gone);
    }
    reused
}

/// The log of a run that has ended. A link or anything else in place of a file is not ours, and opening a FIFO would wait for its
/// reader.
#[expect(
    clippy::disallowed_methods,
    reason = "our own records, in neither root"
)]
fn old_log(path: &Path) -> Option<File> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = OpenOptions::new()
        .append(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    (is_file && file.try_lock().is_ok()).then_some(file)
}

/// Turns the run `old` into the run `run` with an empty log, or leaves it unchanged.
#[expect(
    clippy::disallowed_methods,
    reason = "our own records, in neither root"
)]
fn reuse(old: &Path, log: File, run: &Path) -> io::Result<File> {
    std::fs::rename(old, run)?;
    match log.set_len(0) {
        Ok(()) => Ok(log),
        Err(error) => std::fs::rename(run, old).and(Err(error)),
    }
}

/// The existing runs, oldest first.
#[expect(
    clippy::disallowed_methods,
    reason = "our own records, in neither root"
)]
pub fn ids() -> io::Result<Vec<String>> {
    match state_directory::make_private(&directory()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        checked => checked?,
    }
    let entries = std::fs::read_dir(directory())?;
    let mut ids: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|id| is_id(id))
        .collect();
    ids.sort();
    Ok(ids)
}

/// Whether a text is the ID of a run, and so contains no path.
fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Every complete line of a run, as JSON; `None` if there is no such run.
pub fn lines(id: &str) -> io::Result<Option<Vec<Value>>> {
    let text = match open(id)? {
        Some(mut file) => {
            let mut text = Vec::new();
            Read::by_ref(&mut file)
                .take(2 * BYTES_MAX)
                .read_to_end(&mut text)?;
            text
        }
        None => return Ok(None),
    };
    // An invalid line was cut off when its writer was killed.
    Ok(Some(
        text.split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect(),
    ))
}

/// The row of a run in a list: null what is not there, or not within 64 KiB of the beginning or the end.
#[derive(Debug, Default)]
pub struct RunOutline {
    /// Where its first session begins, or its first line if no session is within that.
    pub first: Value,
    /// The first line of a call.
    pub call: Value,
    /// The last line of a result.
    pub result: Value,
    pub last: Value,
}

/// The outline of a run; `None` if there is no such run.
pub fn outline(id: &str) -> io::Result<Option<RunOutline>> {
    const END: u64 = 64 * 1024;
    let Some(mut file) = open(id)? else {
        return Ok(None);
    };
    let length = file.metadata()?.len();
    let mut read = |from: u64| -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        Read::by_ref(&mut file).take(END).read_to_end(&mut text)?;
        Ok(text)
    };
    let (begin, end) = (read(0)?, read(length.saturating_sub(END))?);
    let end = end.strip_suffix(b"\n").unwrap_or(&end);
    // A line that a death has cut, or that is not all in this part, is null.
    let value = |line: &[u8]| serde_json::from_slice::<Value>(line).unwrap_or_default();
    let is = |line: &Value, kinds: &[&str]| kinds.iter().any(|kind| line["kind"] == *kind);
    let first: Vec<Value> = begin
        .split(|byte| *byte == b'\n')
        .map(value)
        .take_while(|line| !is(line, &["tool_call"]))
        .collect();
    let start = first.iter().find(|line| is(line, &["session_start"]));
    let mut from_begin = begin.split(|byte| *byte == b'\n').map(value);
    let mut from_end = end.rsplit(|byte| *byte == b'\n').map(value);
    Ok(Some(RunOutline {
        first: start.or(first.first()).cloned().unwrap_or_default(),
        call: from_begin
            .find(|line| is(line, &["tool_call"]))
            .unwrap_or_default(),
        last: from_end.next().unwrap_or_default(),
        result: from_end
            .find(|line| is(line, &["tool_result", "tool_error"]))
            .unwrap_or_default(),
    }))
}

#[expect(
    clippy::disallowed_methods,
    reason = "our own records, in neither root"
)]
fn open(id: &str) -> io::Result<Option<File>> {
    if !is_id(id) {
        return Ok(None);
    }
    // Opening a FIFO would wait for its writer, and a link leads to somebody else's file.
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    match OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(directory().join(id).join(NAME))
    {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(file) if !file.metadata()?.is_file() => Err(io::ErrorKind::InvalidData.into()),
        file => file.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    #[allow(clippy::disallowed_methods)] // A test may make what it likes.
    fn records_are_kept_in_directories_of_ours_that_are_closed_and_no_links() {
        let folder = std::env::temp_dir().join(format!("lazaret-runs-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (open, link, file) = (
            folder.join("open"),
            folder.join("link"),
            folder.join("file"),
        );
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(&open, &link).unwrap();
        std::fs::write(&file, "").unwrap();
        // The control: opened in the old way, a link and an open directory were accepted.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&link)
            .unwrap();
        assert!(
            state_directory::make_private(&link).is_err()
                && state_directory::make_private(&file).is_err()
                && state_directory::make_private(&folder.join("none")).is_err()
        );
        assert_eq!(open.metadata().unwrap().mode() & 0o777, 0o777);
        state_directory::make_private(&open).unwrap();
        assert_eq!(open.metadata().unwrap().mode() & 0o777, 0o700);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // A test may make what it likes.
    fn an_old_log_that_is_no_file_is_left_and_waited_for_by_nobody() {
        let folder = std::env::temp_dir().join(format!("lazaret-old-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let [fifo, read, link, file] =
            ["fifo", "read", "link", "file"].map(|name| folder.join(name));
        for path in [&fifo, &read] {
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
        let reader = OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(&read)
            .unwrap();
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let (opened, of) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            [fifo, read, link, file]
                .iter()
                .for_each(|path| opened.send(old_log(path).is_some()).unwrap());
        });
        let next = || {
            of.recv_timeout(std::time::Duration::from_secs(60))
                .expect("an open that waits")
        };
        assert_eq!(
            [next(), next(), next(), next()],
            [false, false, false, true]
        );
        drop(reader);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn no_id_leads_elsewhere() {
        for id in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "a.b",
            "a\0",
            "é",
            &"a".repeat(65),
        ] {
            assert!(!is_id(id), "{id}");
            assert!(open(id).unwrap().is_none());
        }
        assert!(is_id("20261120-100234-000001-99"));
    }
}
