//! `lazaret audit export`: prints the records for a log collector or sends them to one, with signed heads if asked.

use super::export_line::{ExportFormat, event, refuse, signed_now};
use super::key;
use super::otlp::{OtlpExport, from_here};
use super::reading::{INTERVAL, absence, directory, open, unreadable};
use broker_protocol::chain::Head;
use broker_protocol::{Digest, Failed};
use clap::Args;
use orchestrator_confine::Needs;
use orchestrator_launch::exit;
use orchestrator_launch::launch::{FrontEnd, Launch};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::stdio::print;
use orchestrator_records::audit_chain::AuditChain;
use orchestrator_records::export_cursor::ExportCursor;
use orchestrator_signature::AuditKey;
use orchestrator_telemetry::LogCollector;
use serde_json::Value;
use std::path::PathBuf;

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
    /// Send the lines to the OpenTelemetry collector at URL, such as http://127.0.0.1:4318, and print how far it has acknowledged them
    ///
    /// By OTLP, JSON over HTTP, to URL/v1/logs, with the headers of OTEL_EXPORTER_OTLP_LOGS_HEADERS or OTEL_EXPORTER_OTLP_HEADERS.
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Begin after the record whose hash is in FILE, and write there how far the collector has acknowledged them
    ///
    /// FILE is made if it is not there. Keep it where no command can write.
    #[arg(long, value_name = "FILE", requires = "otlp")]
    cursor: Option<PathBuf>,
}

impl FrontEnd for ExportAudit {
    const ROW: CommandRow = CommandRow {
        name: "audit export",
        sessions: SessionCount::None,
        access: CommandAccess::Confined {
            network: NetworkUse::IfNeeded,
            writes: Writes::Nothing,
        },
        log: false,
        usage: exit::USAGE,
        exit: "0, with --otlp also when a signal ends --follow; 1 if the audit is not as it was written, or is not there, or the collector does \
               not take it; 2 wrong arguments; 125 it cannot be read",
    };

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let Some(audit) = open()? else {
            print::problem(&absence());
            return Ok(exit::FAILED);
        };
        let key = self.sign.then(key::own).transpose()?;
        let needs = Needs {
            read: vec![directory()],
            web: self.otlp.is_some(),
            ..Needs::default()
        };
        let Some(address) = &self.otlp else {
            launch.confine::<Self>(needs);
            return self.print_all(&audit, key.as_ref());
        };
        let collector = LogCollector::of_settings(address)?;
        let cursor = self.open_cursor()?;
        let confined = launch.confine::<Self>(needs);
        let export = OtlpExport {
            after: cursor.as_ref().map_or(self.after, ExportCursor::after),
            format: self.format,
            follow: self.follow,
            envelope: from_here(),
            key,
            collector,
            cursor,
        };
        let work = export.run(&audit, confined.proof());
        confined.run(|_| "the export has ended", work)
    }
}

impl ExportAudit {
    fn open_cursor(&self) -> Result<Option<ExportCursor>, Failed> {
        let Some(path) = &self.cursor else {
            return Ok(None);
        };
        let opened = ExportCursor::open(path, self.after);
        let failed = |error| Failed::invalid(format!("--cursor {}: {error}", path.display()));
        opened.map(Some).map_err(failed)
    }

    fn print_all(&self, audit: &AuditChain, key: Option<&AuditKey>) -> Result<u8, Failed> {
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
            shown = self.print_head(key, &rest.last());
        }
        while self.follow && flaw.is_none() && shown.is_ok() {
            std::thread::sleep(INTERVAL);
            let before = rest.last().seq;
            let each = |line: &[u8], record: &Value, hash| print(&mut shown, line, record, hash);
            flaw = rest.more(each).map_err(unreadable)?;
            if shown.is_ok() && rest.last().seq > before {
                shown = self.print_head(key, &rest.last());
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
        let line = signed_now(head, key);
        self.print(&line.to_string(), &line)
    }

    fn print(&self, line: &str, record: &Value) -> Result<(), Failed> {
        match self.format {
            ExportFormat::Jsonl => print::result(format!("{line}\n").as_bytes()),
            ExportFormat::Ocsf => print::json(&event(line, record)),
        }
    }
}
