//! `lazaret audit export --otlp`: sends the records to a collector in batches, one after the other, each until it is acknowledged.
//!
//! Only then the cursor moves. So whatever happens to this process, the collector or the network, no record is left out; one may come
//! twice, and has an ID by which the collector drops it. What the collector answers decides when the next batch is sent, and nothing else.

use super::export_line::{ExportFormat, event, refuse, signed_now};
use super::reading::{INTERVAL, unreadable};
use broker_protocol::chain::Head;
use broker_protocol::{Digest, Failed};
use nix::libc::{SIGHUP, SIGINT, SIGTERM};
use nix::unistd::{Uid, gethostname};
use orchestrator_confine::ConfinementProof;
use orchestrator_launch::exit;
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_records::audit_chain::{AuditChain, Checked, Flaw};
use orchestrator_records::export_cursor::ExportCursor;
use orchestrator_records::otlp::{ChainPlace, envelope, log_record};
use orchestrator_signature::AuditKey;
use orchestrator_telemetry::{CollectorFault, LogCollector, NotAcknowledged};
use orchestrator_text::known::redactor;
use orchestrator_text::random;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{sleep, timeout};

/// Maximum log records of a batch.
const RECORDS_MAX: u64 = 512;
/// With these bytes no further record enters a batch. A record may have several times its own 64 KiB as OCSF in JSON.
const BYTES_FULL: usize = 1 << 20;
/// How often a batch is sent without --follow.
const ATTEMPTS: u32 = 5;
/// The wait after the first attempt; it doubles with each.
const WAIT: Duration = Duration::from_secs(1);
/// The longest wait that we choose.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a signal waits for the answer to a batch that is on its way.
const LAST: Duration = Duration::from_secs(3);

/// An export to a collector.
pub(super) struct OtlpExport {
    pub after: Option<Digest>,
    pub format: ExportFormat,
    pub follow: bool,
    /// The text around the log records of a request.
    pub envelope: (String, String),
    pub key: Option<AuditKey>,
    pub collector: LogCollector,
    pub cursor: Option<ExportCursor>,
}

/// Log records that are sent together.
struct LogBatch {
    body: String,
    count: u64,
    /// The record before the first one.
    before: Head,
    last: Head,
}

/// The end of sending a batch.
enum BatchEnd {
    Acknowledged,
    /// Acknowledged, and a signal has come meanwhile.
    AcknowledgedLast,
    /// The collector has not acknowledged it: the export ends with this code.
    Left(u8),
}

impl LogBatch {
    fn after(before: Head) -> Self {
        Self {
            body: String::new(),
            count: 0,
            before,
            last: before,
        }
    }

    fn push(&mut self, log: &Value) {
        if self.count > 0 {
            self.body.push(',');
        }
        self.body.push_str(&without_secrets(log));
        self.count += 1;
    }

    fn is_full(&self) -> bool {
        self.count >= RECORDS_MAX || self.body.len() >= BYTES_FULL
    }
}

/// As printed lines have it: known secrets are not in what leaves.
fn without_secrets(log: &Value) -> String {
    let text = log.to_string();
    let has_secret = matches!(redactor().bytes(text.as_bytes()), Cow::Owned(_));
    match has_secret {
        true => redactor().value(log).to_string(),
        false => text,
    }
}

/// The text around the log records of this user on this machine: each pair of them has a chain of its own.
pub(super) fn from_here() -> (String, String) {
    let name = std::env::var("OTEL_SERVICE_NAME").ok();
    let name = name.filter(|name| !name.is_empty());
    let host = gethostname().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        ("service.name", name.unwrap_or_else(|| "lazaret".to_owned())),
        ("service.version", version.to_owned()),
        ("host.name", host),
        ("user.id", Uid::effective().to_string()),
    ];
    envelope(&resource, version)
}

impl OtlpExport {
    /// Sends what is there, and with `follow` what comes. Returns the exit code.
    pub(super) async fn run(
        mut self,
        audit: &AuditChain,
        proof: ConfinementProof,
    ) -> Result<u8, Failed> {
        let ends: &[i32] = match self.follow {
            true => &[SIGHUP, SIGINT, SIGTERM],
            false => &[],
        };
        let mut signals = Signals::listen(ends, proof)?;
        let verified = audit.verify(self.after).map_err(unreadable)?;
        let start = match self.after {
            Some(_) => verified.known,
            None => Some(verified.start),
        };
        let mut verified_flaw = verified.flaw;
        // The hash that is given has to be there, or the collector would miss records without a word.
        let Some(start) = start else {
            return Ok(verified_flaw.as_ref().map_or(exit::FAILED, refuse));
        };
        let (mut rest, mut signed) = (audit.after(start), start);
        loop {
            let (mut batch, found) = self.read(&mut rest)?;
            let is_end = !batch.is_full();
            let flaw = match is_end {
                true => found.or_else(|| verified_flaw.take()),
                false => found,
            };
            if is_end && flaw.is_none() && batch.last.seq > signed.seq {
                self.sign(&mut batch);
                signed = batch.last;
            }
            if batch.count > 0 {
                match self.deliver(&batch, &mut signals).await? {
                    BatchEnd::Acknowledged => {}
                    BatchEnd::AcknowledgedLast => return Ok(exit::OK),
                    BatchEnd::Left(code) => return Ok(code),
                }
            }
            if let Some(flaw) = flaw {
                return Ok(refuse(&flaw));
            }
            if is_end && !self.follow {
                return Ok(exit::OK);
            }
            if is_end && is_ended(&mut signals, INTERVAL).await {
                return Ok(exit::OK);
            }
        }
    }

    /// The next records, up to a full batch; and the first flaw, if it comes before that.
    fn read(&self, rest: &mut Checked<'_>) -> Result<(LogBatch, Option<Flaw>), Failed> {
        let observed = now();
        let mut batch = LogBatch::after(rest.last());
        let mut previous = batch.last.hash;
        let flaw = rest.more_until(|line, record, hash| {
            let line = String::from_utf8_lossy(line);
            batch.push(&self.log(&line, record, ChainPlace::After(previous), observed));
            previous = hash;
            match batch.is_full() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let flaw = flaw.map_err(unreadable)?;
        batch.last = rest.last();
        Ok((batch, flaw))
    }

    fn log(&self, line: &str, record: &Value, place: ChainPlace, observed: u64) -> Value {
        let event = event(line, record);
        match self.format {
            ExportFormat::Jsonl => log_record(line, &event, place, observed),
            ExportFormat::Ocsf => log_record(&event.to_string(), &event, place, observed),
        }
    }

    /// Adds a line that signs all records up to the last of the batch.
    fn sign(&self, batch: &mut LogBatch) {
        if let Some(key) = &self.key {
            let line = signed_now(&batch.last, key);
            batch.push(&self.log(&line.to_string(), &line, ChainPlace::Head, now()));
        }
    }

    /// Sends a batch until the collector has answered for it, and moves the cursor.
    async fn deliver(
        &mut self,
        batch: &LogBatch,
        signals: &mut Signals,
    ) -> Result<BatchEnd, Failed> {
        let mut attempt = 1;
        loop {
            let (sent, signal) = self.send(batch, signals).await;
            let (after, why) = match sent {
                Ok(message) => {
                    self.acknowledge(batch, attempt, message)?;
                    return Ok(match signal {
                        true => BatchEnd::AcknowledgedLast,
                        false => BatchEnd::Acknowledged,
                    });
                }
                Err(NotAcknowledged::Refused(why)) => return Ok(refused(batch, &why)),
                Err(NotAcknowledged::Later { after, why }) => (after, why),
            };
            if !self.follow && attempt == ATTEMPTS {
                return Ok(refused(batch, &why));
            }
            if attempt == 1 {
                print::problem(&format!(
                    "the collector takes no records now, and is asked again: {why}"
                ));
            }
            let wait = after.unwrap_or_else(|| wait_after(attempt));
            if signal || is_ended(signals, wait).await {
                print::note(&format!(
                    "the records after {} are not exported yet",
                    batch.before.seq
                ));
                return Ok(BatchEnd::Left(exit::OK));
            }
            attempt = attempt.saturating_add(1);
        }
    }

    /// Sends a batch once; also says whether a signal has come.
    async fn send(
        &self,
        batch: &LogBatch,
        signals: &mut Signals,
    ) -> (Result<Option<String>, NotAcknowledged>, bool) {
        let (before, after) = &self.envelope;
        let body = [before, batch.body.as_str(), after].concat();
        let mut sending = pin!(self.collector.send(body.into_bytes()));
        tokio::select! {
            sent = &mut sending => return (sent, false),
            _ = signals.next() => {}
        }
        let silent = |_| {
            let (after, why) = (None, CollectorFault::Silent);
            Err(NotAcknowledged::Later { after, why })
        };
        (timeout(LAST, sending).await.unwrap_or_else(silent), true)
    }

    fn acknowledge(
        &mut self,
        batch: &LogBatch,
        attempt: u32,
        message: Option<String>,
    ) -> Result<(), Failed> {
        let Head { seq, hash, .. } = batch.last;
        if let Some(cursor) = &mut self.cursor {
            let moved = cursor.acknowledge(hash);
            moved.map_err(|error| {
                Failed::internal(format!("--cursor cannot be written: {error}"))
            })?;
        }
        if attempt > 1 {
            print::note("the collector takes records again");
        }
        if let Some(message) = message {
            print::problem(&format!("the collector says: {message}"));
        }
        print::json(&json!({ "acknowledged": seq, "hash": hash.to_string() }))
    }
}

/// Waits; whether a signal has come before that.
async fn is_ended(signals: &mut Signals, wait: Duration) -> bool {
    tokio::select! {
        () = sleep(wait) => false,
        _ = signals.next() => true,
    }
}

/// A collector that has refused a batch would refuse it again: a person decides.
fn refused(batch: &LogBatch, why: &CollectorFault) -> BatchEnd {
    let (before, last) = (batch.before.seq, batch.last);
    let advice = match why {
        CollectorFault::Partial { .. } | CollectorFault::Status(_) => format!(
            "; once the collector takes them, the same command sends them again; to leave them out: --after {}",
            last.hash
        ),
        CollectorFault::Http(_)
        | CollectorFault::Silent
        | CollectorFault::Redirect(_)
        | CollectorFault::Long
        | CollectorFault::Form => String::new(),
    };
    print::problem(&format!(
        "the collector has not acknowledged records {} to {}: {why}{advice}",
        before + 1,
        last.seq
    ));
    BatchEnd::Left(exit::FAILED)
}

/// The wait after an attempt: twice that before it, and up to a quarter more, so that many machines do not come back at once.
fn wait_after(attempt: u32) -> Duration {
    let wait = WAIT
        .saturating_mul(1 << (attempt - 1).min(16))
        .min(WAIT_MAX);
    let [part] = random::bytes::<1>().unwrap_or_default();
    wait + wait * u32::from(part) / 1024
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound() {
        for (attempt, wait) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (u32::MAX, 60)] {
            let wait = Duration::from_secs(wait);
            let chosen = wait_after(attempt);
            assert!(
                (wait..wait + wait / 4).contains(&chosen),
                "{attempt}: {chosen:?}"
            );
        }
    }

    #[test]
    fn a_batch_has_a_bound_of_records_and_of_bytes() {
        let mut batch = LogBatch::after(Head::EMPTY);
        let log = json!({});
        (1..RECORDS_MAX).for_each(|_| batch.push(&log));
        assert!(!batch.is_full());
        batch.push(&log);
        assert!(batch.is_full());
        let mut batch = LogBatch::after(Head::EMPTY);
        batch.push(&"x".repeat(BYTES_FULL - 3).into());
        assert!(!batch.is_full());
        batch.push(&log);
        assert!(batch.is_full());
    }
}
