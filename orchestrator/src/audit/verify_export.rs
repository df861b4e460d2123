//! `lazaret audit verify-export`: verifies what `export --sign` printed, wherever that is by now.

use broker_protocol::{Digest, ErrorKind, Failed};
use clap::Args;
use orchestrator_confine::Files;
use orchestrator_launch::exit;
use orchestrator_launch::launch::ErrorForm;
use orchestrator_launch::session_options::read_text_up_to;
use orchestrator_launch::stdio::print;
use orchestrator_records::signed_head::{ExportError, LINE_MAX, ReadExport, SignedHead};
use orchestrator_signature::{KEYS_FILE_MAX, trusted_keys};
use orchestrator_text::time;
use serde_json::json;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct VerifyExport {
    /// The export, in either form; - for standard input
    #[arg(value_name = "FILE")]
    export: PathBuf,
    /// The public keys that count, as `lazaret audit key` prints them, one a line
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The hash of the record before the first one, of an export that was resumed, or whose first records are gone
    #[arg(long, value_name = "HASH")]
    after: Option<Digest>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A line that is not as it was made.
struct WrongLine {
    line: u64,
    why: ExportError,
}

impl VerifyExport {
    pub(crate) fn errors(&self) -> ErrorForm {
        ErrorForm::object(self.json)
    }

    pub(crate) fn run(&self, files: &Files) -> Result<u8, Failed> {
        let keys = read_text_up_to(files, &self.key, KEYS_FILE_MAX)?;
        let keys = trusted_keys(&keys)
            .map_err(|error| Failed::invalid(format!("{}: {error}", self.key.display())))?;
        let mut read = ReadExport::new(&keys, self.after);
        let wrong = match lines(&self.export, &mut read) {
            Ok(wrong) => wrong,
            Err(error) => {
                let message = format!("cannot read {}: {error}", self.export.display());
                let kind = ErrorKind::InvalidInput;
                return Err(Failed { kind, message });
            }
        };
        self.report(&read, wrong.as_ref())
    }

    fn report(&self, read: &ReadExport, wrong: Option<&WrongLine>) -> Result<u8, Failed> {
        let (records, unsigned) = (read.records(), read.unsigned());
        let whole = wrong.is_none() && unsigned == 0 && read.signed().is_some();
        if self.json {
            let bad = wrong.map(|it| json!({ "line": it.line, "why": it.why.to_string() }));
            let signed = read
                .signed()
                .map(|it| json!({ "seq": it.seq, "ts": it.time, "key": it.by.to_string() }));
            print::json(
                &json!({ "whole": whole, "records": records, "signed": signed, "unsigned": unsigned, "bad": bad }),
            )?;
        } else if whole {
            print::result(ok(records, read.signed()).as_bytes())?;
        } else {
            print::problem(&problem(read, wrong));
        }
        Ok(if whole { exit::OK } else { exit::FAILED })
    }
}

fn ok(records: u64, signed: Option<SignedHead>) -> String {
    let signed = signed.map_or(String::new(), |SignedHead { seq, time, by }| {
        let at = time::utc(time);
        format!(", all up to record {seq} signed {at} by {by}")
    });
    format!("OK: {records} records{signed}\n")
}

fn problem(read: &ReadExport, wrong: Option<&WrongLine>) -> String {
    let (records, unsigned) = (read.records(), read.unsigned());
    if let Some(WrongLine { line, why }) = wrong {
        let vouched = records - unsigned;
        return format!(
            "the export is not as it was made: line {line}: {why}; {vouched} records before it are signed"
        );
    }
    if records == 0 && read.signed().is_none() {
        return "the export is empty".to_owned();
    }
    format!(
        "of {records} records, the last {unsigned} are not signed: the export was cut, or made without --sign"
    )
}

/// Reads lines until one is wrong.
fn lines(path: &Path, read: &mut ReadExport) -> io::Result<Option<WrongLine>> {
    if path == Path::new("-") {
        return lines_of(io::stdin().lock(), read);
    }
    #[expect(clippy::disallowed_methods, reason = "the user names this export")]
    let file = File::open(path)?;
    lines_of(BufReader::new(file), read)
}

fn lines_of(mut input: impl BufRead, read: &mut ReadExport) -> io::Result<Option<WrongLine>> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        // One byte more, and the line's end: what is longer is refused.
        let most = LINE_MAX as u64 + 2;
        if input.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        if let Err(why) = read.take(text) {
            return Ok(Some(WrongLine { line: number, why }));
        }
    }
    Ok(None)
}
