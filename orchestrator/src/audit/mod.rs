//! `lazaret audit`: verifies and prints the executor's audit. It opens no session.

mod reading;
mod export;
mod export_line;
mod otlp;
mod key;
mod verify_export;

use broker_protocol::{Digest, Failed};
use clap::{Args, Subcommand};
use export::ExportAudit;
use orchestrator_launch::exit;
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch};
use orchestrator_launch::row::CommandRow;
use orchestrator_launch::stdio::print;
use orchestrator_records::audit_chain::{self, Verified};
use orchestrator_text::time;
use reading::{INTERVAL, absence, open, unreadable};
use serde_json::{Value, json};
use std::collections::VecDeque;
use verify_export::VerifyExport;

const EXAMPLES: &str = "\
Examples:
  lazaret audit verify
  lazaret audit verify --head 2f1c…   a hash that you saved elsewhere
  lazaret audit show --session 4ad6 --json
  lazaret audit tail --follow
  lazaret audit export --format ocsf --after 2f1c… --follow   to a log collector, from where it was
  lazaret audit export --otlp https://otel.example --cursor ~/.config/audit-cursor --follow   the same by OTLP
  lazaret audit key > audit.pub; lazaret audit export --sign > export.jsonl
  lazaret audit verify-export export.jsonl --key audit.pub   on another machine";

/// Check and show what the executor wrote down
///
/// One record a request, each with the SHA-256 of the one before it, in $XDG_STATE_HOME/lazaret/audit (~/.local/state). An
/// edit, a gap, a change of order and a cut tail are found. A program with your rights outside a cell can write all of it
/// anew: save the hash that `verify` prints somewhere else, and give it with --head later.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Audit {
    #[command(subcommand)]
    action: AuditAction,
}

#[derive(Subcommand)]
enum AuditAction {
    /// Check the whole chain, and print the hash of its last record
    Verify {
        /// A hash printed earlier, which one of the records must have
        #[arg(long, value_name = "HASH")]
        head: Option<Digest>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the records
    Show(Show),
    /// Print the last records
    Tail {
        /// How many
        #[arg(short = 'n', long, default_value_t = 10, value_name = "COUNT")]
        lines: usize,
        /// Go on with those that come
        #[arg(short, long)]
        follow: bool,
        #[command(flatten)]
        show: Show,
    },
    /// Print every record for a log collector, one JSON object a line, as far as the chain is whole
    Export(ExportAudit),
    /// Print the public key by which `export --sign` signs, and make the key at the first time
    ///
    /// Keep it where the exports are verified: whoever can replace it there can make an export anew.
    Key,
    /// Check an export that was made with --sign, on any machine: nothing is missing, changed or added
    VerifyExport(VerifyExport),
}

/// Which records, and how.
#[derive(Args)]
struct Show {
    /// Of the sessions whose id begins with this
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Print the records as they are, one JSON object a line
    #[arg(long)]
    json: bool,
}

impl FrontEnd for Audit {
    const ROW: CommandRow = CommandRow::of_files("audit", "as its subcommands");
    const NESTED: &'static [CommandRow] = &[
        CommandRow::of_files(
            "audit verify",
            "0; 1 if the audit is not as it was written, or is not there; 2 wrong arguments; 125 it cannot be read",
        ),
        CommandRow::of_files("audit show", "0; 2 wrong arguments; 125 it cannot be read"),
        CommandRow::of_files("audit tail", "0; 2 wrong arguments; 125 it cannot be read"),
        ExportAudit::ROW,
        CommandRow::of_files(
            "audit key",
            "0; 2 wrong arguments; 125 there is none, and none can be made",
        ),
        CommandRow::of_files(
            "audit verify-export",
            "0; 1 if the export is not as it was made, or not all of it is signed; 2 wrong arguments, or a file cannot be read",
        ),
    ];

    fn errors(&self) -> ErrorForm {
        match &self.action {
            AuditAction::Verify { json, .. } => ErrorForm::object(*json),
            AuditAction::Show(show) | AuditAction::Tail { show, .. } => {
                ErrorForm::object(show.json)
            }
            AuditAction::VerifyExport(verify) => verify.errors(),
            // Their lines are records or a key only.
            AuditAction::Export(_) | AuditAction::Key => ErrorForm::Text,
        }
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        match self.action {
            AuditAction::Key => key::show(),
            AuditAction::VerifyExport(verify) => verify.run(launch.files()),
            AuditAction::Verify { head, json } => match open()? {
                Some(audit) => report(&audit.verify(head).map_err(unreadable)?, json),
                None => missing(json),
            },
            AuditAction::Export(export) => export.main(launch),
            AuditAction::Show(show) => open()?.map_or(Ok(exit::OK), |audit| show.all(&audit)),
            AuditAction::Tail {
                lines,
                follow,
                show,
            } => open()?.map_or(Ok(exit::OK), |audit| show.last(&audit, lines, follow)),
        }
    }
}

fn missing(json: bool) -> Result<u8, Failed> {
    let why = absence();
    if json {
        print::json(
            &json!({ "whole": false, "records": 0, "bad": { "file": null, "line": 0, "why": why } }),
        )?;
    } else {
        print::problem(&why);
    }
    Ok(exit::FAILED)
}

fn report(verified: &Verified, json: bool) -> Result<u8, Failed> {
    let Verified {
        files,
        start,
        last,
        known,
        flaw,
        ..
    } = verified;
    let (records, head, removed) = (last.seq - start.seq, last.hash, start.seq);
    if json {
        let bad = flaw
            .as_ref()
            .map(|flaw| json!({ "file": flaw.file, "line": flaw.line, "why": flaw.why }));
        let (head, whole) = (head.to_string(), flaw.is_none());
        print::json(
            &json!({ "whole": whole, "records": records, "files": files, "head": head, "kept": known.map(|known| known.seq), "removed": removed, "bad": bad }),
        )?;
    } else if let Some(flaw) = flaw {
        print::problem(&format!(
            "the audit is not as it was written: {flaw}; {records} records before it are whole"
        ));
    } else {
        let known = known.map_or(String::new(), |known| {
            format!("\nthe given hash belongs to record {}", known.seq)
        });
        let removed = match removed {
            0 => String::new(),
            _ => format!(
                "\nrecords 1 to {removed} were removed on purpose, as a later record states"
            ),
        };
        print::result(
            format!("OK: {records} records, files: {files}, head: {head}{known}{removed}\n")
                .as_bytes(),
        )?;
    }
    Ok(if flaw.is_some() {
        exit::FAILED
    } else {
        exit::OK
    })
}

impl Show {
    fn all(&self, audit: &audit_chain::AuditChain) -> Result<u8, Failed> {
        let mut shown = Ok(());
        audit
            .records(|record| shown = shown.clone().and_then(|()| self.print(record)))
            .map_err(unreadable)?;
        shown.map(|()| exit::OK)
    }

    fn last(
        &self,
        audit: &audit_chain::AuditChain,
        count: usize,
        follow: bool,
    ) -> Result<u8, Failed> {
        let mut last = VecDeque::new();
        let collect = |record: &[u8]| {
            if self.wants(record) {
                last.push_back(record.to_vec());
                if last.len() > count {
                    last.pop_front();
                }
            }
        };
        let mut position = audit.records(collect).map_err(unreadable)?;
        last.iter().try_for_each(|record| self.print(record))?;
        if !follow {
            return Ok(exit::OK);
        }
        loop {
            std::thread::sleep(INTERVAL);
            let mut shown = Ok(());
            let each = |record: &[u8]| shown = shown.clone().and_then(|()| self.print(record));
            audit.more(&mut position, each).map_err(unreadable)?;
            shown?;
            if let Some(next) = audit.next_file(&position).map_err(unreadable)? {
                position = next;
            }
        }
    }

    fn wants(&self, record: &[u8]) -> bool {
        let Some(session) = &self.session else {
            return true;
        };
        let value: Value = serde_json::from_slice(record).unwrap_or_default();
        value["session"]
            .as_str()
            .is_some_and(|id| id.starts_with(session.as_str()))
    }

    fn print(&self, record: &[u8]) -> Result<(), Failed> {
        if !self.wants(record) {
            return Ok(());
        }
        let line = match serde_json::from_slice::<Value>(record) {
            Ok(value) if !self.json => row(&value),
            _ => String::from_utf8_lossy(record).into_owned(),
        };
        print::result(format!("{}\n", print::row(&line)).as_bytes())
    }
}

/// A record as one line for a person: time, session and what happened.
fn row(record: &Value) -> String {
    let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
    let at = time::utc(record["ts"].as_f64().unwrap_or_default() as u64);
    let session: String = text("session").chars().take(8).collect();
    let numbers = [
        "call", "exit", "signal", "calls", "tried", "failed", "bytes", "last",
    ];
    let words = [
        "tool", "path", "verdict", "rule", "grant", "end", "limit", "error", "tier", "project",
        "found",
    ];
    let mut row = format!("{:>6} {at} {session:<8} {:<8}", record["seq"], text("kind"));
    for name in numbers.into_iter().filter(|name| record[name].is_number()) {
        row.push_str(&format!(" {name}={}", record[name]));
    }
    for name in words.into_iter().filter(|name| record[name].is_string()) {
        row.push_str(&format!(" {name}={}", text(name)));
    }
    row
}
