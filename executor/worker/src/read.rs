//! Reads a regular file, whole or by lines. A small file costs one open, one `stat`, one read.

use crate::beneath::regular;
use crate::bounds::{CHUNK, COUNTED, SKIPPED};
use crate::content::{digest, read_up_to};
use crate::error::{ReadError, SystemError, WorkError};
use crate::root::READING;
use crate::seen::KnownFile;
use crate::worker::FileCall;
use crate::zone_names::Intent;
use broker_protocol::{FileBytes, FileRead, Truncated, limit};
use executor_spec::worker::WorkerPurpose;
use memchr::memchr_iter;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Take};

impl FileCall<'_> {
    /// Answers `file_read`.
    pub(crate) fn read(&self, request: &FileRead) -> Result<broker_protocol::Read, WorkError> {
        let found = self.open(&request.path, READING, Intent::Read)?;
        let stat = regular(&request.path, &found.file)?;
        let size = stat.st_size as u64;
        let mut file = File::from(found.file);
        let failed = |error| SystemError::new("read", &request.path, error);
        let read = match (request.offset.unwrap_or(1), request.limit) {
            (1, None) => read_from_start(&file, size).map_err(failed)?,
            (first, limit) => lines(&file, size, first, limit, request)?,
        };
        let known = match read.sha256 {
            Some(digest) => Some(KnownFile::Whole(digest)),
            None => KnownFile::part(&mut file, &stat).map_err(failed)?,
        };
        if let Some(known) = known.filter(|_| self.context().purpose != WorkerPurpose::Preview) {
            self.seen().note(found.location, known);
        }
        Ok(read)
    }

    /// Answers a request for bytes.
    pub(crate) fn bytes(&self, request: &FileBytes) -> Result<broker_protocol::Bytes, WorkError> {
        let failed = |error| SystemError::new("read", &request.path, error);
        let found = self.open(&request.path, READING, Intent::Read)?;
        let size = regular(&request.path, &found.file)?.st_size as u64;
        let mut file = File::from(found.file);
        file.seek(SeekFrom::Start(request.offset)).map_err(failed)?;
        let most = request.limit as usize;
        let left = size.saturating_sub(request.offset);
        let mut content = read_up_to(file, left.min(most as u64), most).map_err(failed)?;
        content.truncate(most);
        Ok(broker_protocol::Bytes { content, size })
    }
}

/// Reads a file from its first byte, up to [`limit::READ`].
fn read_from_start(file: &File, size: u64) -> io::Result<broker_protocol::Read> {
    let mut content = read_up_to(file, size, limit::READ)?;
    let size = size.max(content.len() as u64);
    let cut = content.len() > limit::READ;
    content.truncate(limit::READ);
    let mut rest = file;
    let behind = if cut {
        rest.seek(SeekFrom::Start(limit::READ as u64))?;
        count(&mut BufReader::with_capacity(CHUNK, rest.take(0)))?
    } else {
        Some(Skipped::default())
    };
    Ok(answer(ReadPart { content, cut }, 1, size, behind))
}

/// Reads lines from `first` on, at most `most` of them and at most [`limit::READ`] bytes.
fn lines(
    file: &File,
    size: u64,
    first: u64,
    most: Option<u64>,
    request: &FileRead,
) -> Result<broker_protocol::Read, WorkError> {
    let failed = |error| SystemError::new("read", &request.path, error);
    let mut source = BufReader::with_capacity(CHUNK, file.take(SKIPPED));
    let skipped = skip(&mut source, first - 1).map_err(failed)?;
    if first > 1 && source.fill_buf().map_err(failed)?.is_empty() {
        return Err(nothing_there(&source, skipped, first, request).into());
    }
    source.get_mut().set_limit((limit::READ + CHUNK) as u64);
    let part = take(&mut source, most.unwrap_or(u64::MAX)).map_err(failed)?;
    let behind = count(&mut source).map_err(failed)?;
    let size = size.max(part.content.len() as u64);
    Ok(answer(part, first, size, behind))
}

/// Bytes of a file for an answer.
struct ReadPart {
    content: Vec<u8>,
    /// Whether the limit on bytes left out some that were requested.
    cut: bool,
}

/// The answer with a part; `behind` is what follows it in the file, if that was counted.
fn answer(
    ReadPart { content, cut }: ReadPart,
    first_line: u64,
    size: u64,
    behind: Option<Skipped>,
) -> broker_protocol::Read {
    let shown = content.len() as u64;
    let whole = !cut && first_line == 1 && shown == size;
    let total_lines = behind.map(|behind| {
        let ends = first_line - 1 + memchr_iter(b'\n', &content).count() as u64 + behind.ends;
        let last = if behind.is_empty() {
            content.last() != Some(&b'\n') && shown > 0
        } else {
            behind.within
        };
        ends + u64::from(last)
    });
    broker_protocol::Read {
        first_line,
        lines: count_lines(&content),
        size,
        truncated: cut.then_some(Truncated {
            total: Some(size),
            shown,
        }),
        sha256: whole.then(|| digest(&content)),
        total_lines,
        content,
    }
}

fn nothing_there(
    source: &BufReader<Take<&File>>,
    skipped: Skipped,
    first: u64,
    request: &FileRead,
) -> ReadError {
    let path = request.path.to_string();
    match source.get_ref().limit() {
        0 => ReadError::TooFar { path, first },
        _ => ReadError::PastEnd {
            path,
            first,
            lines: skipped.ends + u64::from(skipped.within),
        },
    }
}

/// The part of a file before or after the requested lines.
#[derive(Default)]
struct Skipped {
    /// Line ends that were skipped.
    ends: u64,
    /// Whether the last skipped byte was not a line end.
    within: bool,
}

impl Skipped {
    fn is_empty(&self) -> bool {
        self.ends == 0 && !self.within
    }
}

/// Counts what follows up to the end of the file; `None` if that is more than [`COUNTED`] bytes.
fn count(source: &mut BufReader<Take<&File>>) -> io::Result<Option<Skipped>> {
    source.get_mut().set_limit(COUNTED);
    let behind = skip(source, u64::MAX)?;
    Ok((source.get_ref().limit() > 0).then_some(behind))
}

/// Skips `lines` lines, or as many as there are.
fn skip(source: &mut impl BufRead, lines: u64) -> io::Result<Skipped> {
    let mut skipped = Skipped::default();
    while skipped.ends < lines {
        let buffer = source.fill_buf()?;
        let Some(last) = buffer.last() else { break };
        skipped.within = *last != b'\n';
        let used = match nth_line_end(buffer, lines - skipped.ends) {
            Ok(end) => {
                skipped.ends = lines;
                end
            }
            Err(ends) => {
                skipped.ends += ends;
                buffer.len()
            }
        };
        source.consume(used);
    }
    Ok(skipped)
}

/// Reads up to `most` lines and up to [`limit::READ`] bytes.
fn take(source: &mut impl BufRead, most: u64) -> io::Result<ReadPart> {
    let mut content = Vec::new();
    let mut ends = 0;
    while ends < most {
        let buffer = source.fill_buf()?;
        let room = limit::READ - content.len();
        if buffer.is_empty() || room == 0 {
            let cut = !buffer.is_empty();
            return Ok(ReadPart { content, cut });
        }
        let piece = &buffer[..buffer.len().min(room)];
        let used = match nth_line_end(piece, most - ends) {
            Ok(end) => {
                ends = most;
                end
            }
            Err(seen) => {
                ends += seen;
                piece.len()
            }
        };
        content.extend_from_slice(&piece[..used]);
        source.consume(used);
    }
    Ok(ReadPart {
        content,
        cut: false,
    })
}

/// The offset after the `nth` line end of `bytes`, counted from 1; or the number of line ends, if fewer.
fn nth_line_end(bytes: &[u8], nth: u64) -> Result<usize, u64> {
    let mut seen = 0;
    for at in memchr_iter(b'\n', bytes) {
        seen += 1;
        if seen == nth {
            return Ok(at + 1);
        }
    }
    Err(seen)
}

fn count_lines(content: &[u8]) -> u64 {
    let ends = memchr_iter(b'\n', content).count() as u64;
    ends + u64::from(content.last().is_some_and(|last| *last != b'\n'))
}
