//! Renders the outcome of a command as text and data.

use crate::metadata::{Details, LeftProcesses, Metadata, SavedOutput, StderrText, Truncation};
use crate::profile::{Ends, ModelProfile};
use crate::subject::Subject;
use broker_protocol::{Captured, Ended, Failed, Ran, Roots, Zone, ZonePath};
use orchestrator_text::redact::{RedactedPiece, Redactor};
use orchestrator_text::utf8::{continued, unfinished};

/// The text of a command's result, its error and its metadata.
pub(crate) fn ran(
    subject: &Subject,
    ran: Ran,
    roots: &Roots,
    profile: &ModelProfile,
    redactor: &Redactor,
) -> (Vec<u8>, Option<Failed>, Metadata) {
    let mut redacted = false;
    let mut output = |captured, spill: Option<&SavedOutput>| {
        let (text, truncated, found) = output(captured, spill, profile, redactor);
        redacted |= found;
        (text, truncated)
    };
    let error = ran.ended.error().map(|kind| Failed {
        kind,
        message: end_message(subject, &ran, roots),
    });
    let stderr = ran.stderr.map(|stderr| {
        let spill = stderr
            .spill
            .as_ref()
            .map(|spill| SavedOutput::of(spill, roots));
        let (text, truncated) = output(stderr.output, spill.as_ref());
        StderrText {
            text,
            truncated,
            spill,
        }
    });
    let left_running = LeftProcesses::of(&ran.leftover, redactor);
    let spill = ran
        .spill
        .as_ref()
        .map(|spill| SavedOutput::of(spill, roots));
    let (text, truncated) = output(ran.output, spill.as_ref());
    let details = Details::Command {
        timeout: ran.timeout_s,
        spill,
        profile: ran.profile,
    };
    let mut metadata = Metadata {
        truncated,
        stderr,
        redacted,
        left_running,
        ..Metadata::of(subject.tool.clone(), details)
    };
    match ran.ended {
        Ended::Exited(code) => metadata.exit_code = Some(code),
        Ended::Signalled(signal) => metadata.signal = Some(signal),
        Ended::TimedOut | Ended::Idle | Ended::Cancelled | Ended::Limited(_) => {}
        Ended::NotStarted(_) | Ended::NoDirectory(_) => {}
    }
    (text, error, metadata)
}

/// The error message of a command that did not simply succeed.
fn end_message(subject: &Subject, ran: &Ran, roots: &Roots) -> String {
    let message = end(subject, ran, roots);
    match &ran.profile {
        Some(profile) => {
            format!("{message}: a program is not in this cell; try `--profile {profile}`")
        }
        None => message,
    }
}

fn end(subject: &Subject, ran: &Ran, roots: &Roots) -> String {
    let seconds =
        |limit: Option<u32>| limit.map_or(String::new(), |limit| format!(" of {limit} s"));
    match ran.ended {
        Ended::Exited(code) => format!("the command exited with code {code}"),
        Ended::Signalled(signal) => format!("signal {signal} ended the command"),
        Ended::TimedOut => {
            format!(
                "the command ran into its time limit{} and was killed",
                seconds(ran.timeout_s)
            )
        }
        Ended::Idle => {
            format!(
                "the command printed nothing for its idle time{} and was killed",
                seconds(subject.idle_s)
            )
        }
        Ended::Cancelled => "the call was cancelled".to_owned(),
        Ended::Limited(limit) => {
            format!(
                "the command ran into the policy's limit `{}` and was killed",
                limit.name()
            )
        }
        Ended::NotStarted(errno) => {
            let program = subject.program.as_deref().unwrap_or("bash");
            format!(
                "{program:?} cannot be started: {}",
                std::io::Error::from_raw_os_error(errno)
            )
        }
        Ended::NoDirectory(errno) => {
            let directory = subject
                .path
                .clone()
                .unwrap_or_else(|| ZonePath::root(Zone::Project));
            let why = std::io::Error::from_raw_os_error(errno);
            format!(
                "the directory {} cannot be entered: {why}",
                roots.absolute(&directory)
            )
        }
    }
}

/// How many bytes were printed.
fn size(captured: &Captured) -> u64 {
    (captured.head.len() + captured.tail.len()) as u64 + captured.omitted
}

/// Truncates the output to what `profile` shows.
fn cut(captured: Captured, profile: &ModelProfile) -> Captured {
    let total = size(&captured);
    let Some(keep) = profile
        .output
        .cut(usize::try_from(total).unwrap_or(usize::MAX))
    else {
        return captured;
    };
    let (first, last) = match profile.ends {
        Ends::Both => (keep / 2, keep - keep / 2),
        Ends::Last => (0, keep),
    };
    let Captured {
        mut head,
        mut tail,
        omitted,
    } = captured;
    if omitted == 0 {
        head.append(&mut tail);
        tail = head.split_off(head.len() - last);
    }
    head.truncate(first);
    tail.drain(..tail.len().saturating_sub(last));
    Captured {
        omitted: total - (head.len() + tail.len()) as u64,
        head,
        tail,
    }
}

/// The output as far as `profile` shows it, with a note if something is left out, and whether the cut split a secret.
fn output(
    captured: Captured,
    spill: Option<&SavedOutput>,
    profile: &ModelProfile,
    redactor: &Redactor,
) -> (Vec<u8>, Option<Truncation>, bool) {
    let total = size(&captured);
    let mut shown = cut(captured, profile);
    let redacted = redactor.redact(RedactedPiece::Ends(&mut shown));
    if shown.omitted == 0 {
        return (joined(shown), None, redacted);
    }
    let (text, truncation) = with_note(&shown, total, spill);
    (text, Some(truncation), redacted)
}

fn joined(Captured { mut head, tail, .. }: Captured) -> Vec<u8> {
    head.extend_from_slice(&tail);
    head
}

/// Beginning and end with a note between them. The cuts split no character.
fn with_note(shown: &Captured, total: u64, spill: Option<&SavedOutput>) -> (Vec<u8>, Truncation) {
    let head = &shown.head[..shown.head.len() - unfinished(&shown.head)];
    let tail = &shown.tail[continued(&shown.tail)..];
    let (shown, full) = (
        (head.len() + tail.len()) as u64,
        spill.map(|spill| spill.path.clone()),
    );
    let strategy = if head.is_empty() { "tail" } else { "both" };
    let truncation = Truncation {
        total: Some(total),
        shown,
        strategy,
        full,
    };
    let before = if head.is_empty() { "" } else { "\n" };
    let text = [
        head,
        before.as_bytes(),
        truncation.note().as_bytes(),
        b"\n",
        tail,
    ]
    .concat();
    (text, truncation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{COMPACT, WHOLE};

    fn rendered(text: String, profile: &ModelProfile) -> (Vec<u8>, Option<Truncation>) {
        let captured = Captured {
            head: text.into_bytes(),
            tail: vec![],
            omitted: 0,
        };
        let (text, truncation, _) =
            output(captured, None, profile, &Redactor::new(vec![]).unwrap());
        (text, truncation)
    }

    #[test]
    fn an_output_that_is_whole_is_cut_to_the_profile_too_and_never_in_a_character() {
        let (text, cut) = rendered("é".repeat(5121), &COMPACT);
        assert!(std::str::from_utf8(&text).is_ok());
        assert_eq!(
            cut.map(|cut| (cut.total, cut.shown)),
            Some((Some(10_242), 5120))
        );
        let (text, cut) = rendered(format!("x{}", "é".repeat(5120)), &COMPACT);
        assert!(std::str::from_utf8(&text).is_ok());
        assert_eq!(
            cut.map(|cut| (cut.total, cut.shown)),
            Some((Some(10_241), 5120))
        );
        let (_, cut) = rendered("x".repeat(300_000), &WHOLE);
        assert_eq!(cut, None);
    }
}
