//! What became of a command, as text and data.

use crate::metadata::{Details, Metadata, SavedOutput, StderrText, Truncation};
use crate::profile::{Ends, Profile};
use crate::subject::Subject;
use broker_protocol::{Captured, Ended, Failed, Ran, Roots, Zone, ZonePath};
use orchestrator_text::utf8::{continued, unfinished};

/// The text of a command's result, its error and what is known about it.
pub fn ran(
    subject: &Subject,
    ran: Ran,
    roots: &Roots,
    profile: &Profile,
) -> (Vec<u8>, Option<Failed>, Metadata) {
    let error = ran.ended.error().map(|kind| Failed { kind, message: end_message(subject, &ran, roots) });
    let stderr = ran.stderr.map(|stderr| {
        let spill = stderr.spill.as_ref().map(|spill| SavedOutput::of(spill, roots));
        let (text, truncated) = output(stderr.output, spill.as_ref(), profile);
        StderrText { text, truncated, spill }
    });
    let spill = ran.spill.as_ref().map(|spill| SavedOutput::of(spill, roots));
    let (text, truncated) = output(ran.output, spill.as_ref(), profile);
    let details = Details::Command { timeout: ran.timeout_s, spill, profile: ran.profile };
    let mut metadata = Metadata { truncated, stderr, ..Metadata::of(subject.tool.clone(), details) };
    match ran.ended {
        Ended::Exited(code) => metadata.exit_code = Some(code),
        Ended::Signalled(signal) => metadata.signal = Some(signal),
        Ended::TimedOut | Ended::Idle | Ended::Cancelled | Ended::Limited(_) => {}
        Ended::NotStarted(_) | Ended::NoDirectory(_) => {}
    }
    (text, error, metadata)
}

/// The error of a command that did not simply succeed.
fn end_message(subject: &Subject, ran: &Ran, roots: &Roots) -> String {
    let message = end(subject, ran, roots);
    match &ran.profile {
        Some(profile) => format!("{message}: a program is not in this cell; try `--profile {profile}`"),
        None => message,
    }
}

fn end(subject: &Subject, ran: &Ran, roots: &Roots) -> String {
    let seconds = |limit: Option<u32>| limit.map_or(String::new(), |limit| format!(" of {limit} s"));
    match ran.ended {
        Ended::Exited(code) => format!("the command exited with code {code}"),
        Ended::Signalled(signal) => format!("signal {signal} ended the command"),
        Ended::TimedOut => {
            format!("the command ran into its time limit{} and was killed", seconds(ran.timeout_s))
        }
        Ended::Idle => {
            format!("the command printed nothing for its idle time{} and was killed", seconds(subject.idle_s))
        }
        Ended::Cancelled => "the call was cancelled".to_owned(),
        Ended::Limited(limit) => {
            format!("the command ran into the policy's limit `{}` and was killed", limit.name())
        }
        Ended::NotStarted(errno) => {
            let program = subject.program.as_deref().unwrap_or("bash");
            format!("{program:?} cannot be started: {}", std::io::Error::from_raw_os_error(errno))
        }
        Ended::NoDirectory(errno) => {
            let directory = subject.path.clone().unwrap_or_else(|| ZonePath::root(Zone::Project));
            let why = std::io::Error::from_raw_os_error(errno);
            format!("the directory {} cannot be entered: {why}", roots.absolute(&directory))
        }
    }
}

/// As much of the output as `profile` shows, with a note where something is left out. No character is cut in two there.
fn output(
    captured: Captured,
    spill: Option<&SavedOutput>,
    profile: &Profile,
) -> (Vec<u8>, Option<Truncation>) {
    let Captured { mut head, tail, omitted } = captured;
    let total = (head.len() + tail.len()) as u64 + omitted;
    let keep = profile.output.cut(usize::try_from(total).unwrap_or(usize::MAX));
    if omitted == 0 {
        head.extend_from_slice(&tail);
        let Some(keep) = keep else { return (head, None) };
        let (first, last) = match profile.ends {
            Ends::Both => (keep / 2, keep - keep / 2),
            Ends::Last => (0, keep),
        };
        return join(&head[..first], &head[head.len() - last..], total, spill);
    }
    match (profile.ends, keep) {
        (Ends::Last, Some(keep)) => join(b"", &tail[tail.len().saturating_sub(keep)..], total, spill),
        (Ends::Both, Some(keep)) => {
            let (first, last) = (head.len().min(keep / 2), tail.len().min(keep / 2));
            join(&head[..first], &tail[tail.len() - last..], total, spill)
        }
        (_, None) => join(&head, &tail, total, spill),
    }
}

/// Both ends, with the note between them.
fn join(head: &[u8], tail: &[u8], total: u64, spill: Option<&SavedOutput>) -> (Vec<u8>, Option<Truncation>) {
    let head = &head[..head.len() - unfinished(head)];
    let tail = &tail[continued(tail)..];
    let (shown, full) = ((head.len() + tail.len()) as u64, spill.map(|spill| spill.path.clone()));
    let strategy = if head.is_empty() { "tail" } else { "both" };
    let truncation = Truncation { total: Some(total), shown, strategy, full };
    let before = if head.is_empty() { "" } else { "\n" };
    let text = [head, before.as_bytes(), truncation.note().as_bytes(), b"\n", tail].concat();
    (text, Some(truncation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{COMPACT, WHOLE};

    #[test]
    fn an_output_that_is_whole_is_cut_to_the_profile_too_and_never_in_a_character() {
        let captured = |text: String| Captured { head: text.into_bytes(), tail: vec![], omitted: 0 };
        let (text, cut) = output(captured("é".repeat(5121)), None, &COMPACT);
        assert!(std::str::from_utf8(&text).is_ok());
        assert_eq!(cut.map(|cut| (cut.total, cut.shown)), Some((Some(10_242), 5120)));
        let odd = format!("x{}", "é".repeat(5120));
        let (text, cut) = output(captured(odd), None, &COMPACT);
        assert!(std::str::from_utf8(&text).is_ok());
        assert_eq!(cut.map(|cut| (cut.total, cut.shown)), Some((Some(10_241), 5120)));
        let (_, cut) = output(captured("x".repeat(300_000)), None, &WHOLE);
        assert_eq!(cut, None);
    }
}
