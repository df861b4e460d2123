//! `lazaret audit export`: prints the records for a log collector, with signed heads if asked.

use crate::audit::key;
use crate::audit::reading::{INTERVAL, unreadable};
use broker_protocol::chain::Head;
use broker_protocol::{Digest, Failed};
use clap::{Args, ValueEnum};
use orchestrator_launch::exit;
use orchestrator_launch::stdio::print;
use orchestrator_records::audit_chain::{self, Flaw};
use orchestrator_records::{ocsf, signed_head};
use orchestrator_signature::AuditKey;
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Args)]
pub(crate) struct ExportAudit {
    /// The form of a line
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    format: ExportFormat,
    /// Begin after the record with this hash: the last that was taken (`hash`, in OCSF `metadata.uid`)
    #[arg(long, value_name = "HASH")]
    after: Option<Digest>,
    /// Go on with those that come
    #[arg(short, long)]
    follow: bool,
    /// After the last record, and with --follow after each batch, print a line that signs all records up to there
    ///
    /// By a key of yours on this machine, which is made at the first time. `verify-export` checks it.
    #[arg(long)]
    sign: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ExportFormat {
    /// The records as they are
    Jsonl,
    /// Open Cybersecurity Schema Framework 1.6.0, with the record in `raw_data`
    Ocsf,
}

impl ExportAudit {
    pub(crate) fn run(&self, audit: &audit_chain::AuditChain) -> Result<u8, Failed> {
        let key = self.sign.then(key::own).transpose()?;
        // The hash that is given has to be there, or the collector would miss records without a word.
        let mut wanted = match self.after {
            Some(hash) => audit.begins_after(hash).map_err(unreadable)?,
            None => true,
        };
        let mut print = |shown: &mut Result<(), Failed>, line: &[u8], record: &Value, hash| {
            if !wanted {
                wanted = self.after == Some(hash);
            } else if shown.is_ok() {
                *shown = self.print(&String::from_utf8_lossy(line), record);
            }
        };
        let mut shown = Ok(());
        let each = |line: &[u8], record: &Value, hash| print(&mut shown, line, record, hash);
        let verified = audit.verify_each(self.after, each).map_err(unreadable)?;
        let mut flaw = verified.flaw;
        let mut rest = audit.after(verified.last);
        if shown.is_ok() && flaw.is_none() {
            shown = self.print_head(key.as_ref(), &rest.last());
        }
        while self.follow && flaw.is_none() && shown.is_ok() {
            std::thread::sleep(INTERVAL);
            let before = rest.last().seq;
            let each = |line: &[u8], record: &Value, hash| print(&mut shown, line, record, hash);
            flaw = rest.more(each).map_err(unreadable)?;
            if shown.is_ok() && rest.last().seq > before {
                shown = self.print_head(key.as_ref(), &rest.last());
            }
        }
        shown?;
        Ok(flaw.as_ref().map_or(exit::OK, refuse))
    }

    /// The records that were printed, signed.
    fn print_head(&self, key: Option<&AuditKey>, head: &Head) -> Result<(), Failed> {
        let Some(key) = key else {
            return Ok(());
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs());
        let line = signed_head::signed_line(head, now, key);
        self.print(&line.to_string(), &line)
    }

    fn print(&self, line: &str, record: &Value) -> Result<(), Failed> {
        match self.format {
            ExportFormat::Jsonl => print::result(format!("{line}\n").as_bytes()),
            ExportFormat::Ocsf => {
                print::json(&ocsf::event(line, record, env!("CARGO_PKG_VERSION")))
            }
        }
    }
}

fn refuse(flaw: &Flaw) -> u8 {
    print::problem(&format!(
        "the audit is not as it was written: {flaw}; what was printed is whole"
    ));
    exit::FAILED
}
