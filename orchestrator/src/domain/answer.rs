//! A call's outcome becomes what the model reads, what went wrong, and what is known about it.
//!
//! Nothing is decided on a message here, only on the [`ErrorKind`].

use super::clean::Cleaner;
use super::difference::Difference;
use super::file_answer::Place;
use super::image::Image;
use super::numbered::Form;
use super::profile::{Ends, Profile, note};
use super::test_report::Counts;
use super::text::{continued, unfinished};
use super::violation::SecurityEvent;
use broker_protocol::{
    CallId, Captured, Command, Ended, ErrorKind, Failed, FileAnswer, LayerSet, Outcome, Ran, Request, Roots,
    Spill, Usage, Zone, ZonePath,
};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;

/// What of a request is needed to speak about its answer.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The tool's canonical name.
    pub tool: Cow<'static, str>,
    /// The file or directory it is about, or that a command is to start in.
    pub path: Option<ZonePath>,
    /// The program of a command without a shell.
    pub program: Option<String>,
    /// The idle limit of a command, in seconds.
    pub idle_s: Option<u32>,
    /// How the lines of a file are shown.
    pub form: Form,
}

impl Asked {
    /// Takes it from `request`.
    pub fn of(request: &Request) -> Self {
        let (path, program, idle_s) = match request {
            Request::Bash(bash) => (bash.directory.as_ref(), program(&bash.command), bash.idle_timeout_s),
            Request::FileRead(read) => (Some(&read.path), None, None),
            Request::FileWrite(write) => (Some(&write.path), None, None),
            Request::FileEdit(edit) => (Some(&edit.path), None, None),
            Request::FileList(list) => (Some(&list.path), None, None),
            Request::Glob(glob) => (Some(&glob.path), None, None),
            Request::Grep(grep) => (Some(&grep.path), None, None),
            Request::Undo(undo) => (Some(&undo.path), None, None),
            Request::BackgroundList
            | Request::BackgroundLog(_)
            | Request::BackgroundKill(_)
            | Request::History(_) => (None, None, None),
            Request::FileBytes(bytes) => (Some(&bytes.path), None, None),
            Request::State(_) | Request::Effect(_) => (None, None, None),
        };
        Self { tool: request.tool().to_owned().into(), path: path.cloned(), program, idle_s, form: Form::Raw }
    }

    /// For a call that never became a request.
    pub fn only(tool: impl Into<Cow<'static, str>>) -> Self {
        Self { tool: tool.into(), path: None, program: None, idle_s: None, form: Form::Raw }
    }
}

fn program(command: &Command) -> Option<String> {
    match command {
        Command::Shell(_) => None,
        Command::Arguments(arguments) => {
            arguments.first().map(|program| String::from_utf8_lossy(program).into_owned())
        }
    }
}

/// How a call ended, as the executor said it.
#[derive(Debug)]
pub struct Finished {
    /// The outcome.
    pub outcome: Outcome,
    /// A file tool's answer.
    pub answer: Option<FileAnswer>,
    /// What it used.
    pub usage: Usage,
    /// The layers that were in force around it.
    pub layers: LayerSet,
}

/// The answer of one call.
#[derive(Debug)]
pub struct Answer {
    /// What the tool found or a command printed: bytes, because that may be any.
    pub text: Vec<u8>,
    /// What went wrong, if anything did.
    pub error: Option<Failed>,
    /// How a command ended.
    pub ended: Option<Ended>,
    /// An image for the model.
    pub image: Option<Image>,
    /// What is known about the call.
    pub about: About,
    /// What of it, or of the calls in it, tried to leave what it may touch.
    pub security: Vec<SecurityEvent>,
    /// Bytes of the note at the end of the text that says where we have cut it.
    pub noted: usize,
}

/// What is known about a call besides its text.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct About {
    /// The tool's canonical name.
    pub tool: Cow<'static, str>,
    /// The call's number in the broker's audit, if it came that far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The exit code of a command that exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// What it used.
    pub usage: Used,
    /// Names of the layers that were in force.
    pub layers: Vec<&'static str>,
    /// What was left out of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<Cut>,
    /// Where all of a text stands that we were brought from elsewhere.
    #[serde(rename = "spill", skip_serializing_if = "Option::is_none")]
    pub kept: Option<Spilled>,
    /// Characters and sequences that were taken out of the text, because they are not seen.
    #[serde(skip_serializing_if = "is_zero")]
    pub stripped: u64,
    /// What only this tool knows.
    #[serde(flatten)]
    pub details: Details,
}

/// [`Usage`] in JSON.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)] // Those of `Usage`.
pub struct Used {
    pub wall_us: u64,
    pub user_us: u64,
    pub system_us: u64,
    pub peak_kib: u64,
    pub stdin_bytes: u64,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
}

impl Used {
    /// Adds what another call used at the same time: its share of the clock is not added, and memory has one peak.
    pub fn add(&mut self, other: &Used) {
        self.user_us += other.user_us;
        self.system_us += other.system_us;
        self.peak_kib = self.peak_kib.max(other.peak_kib);
        self.stdin_bytes += other.stdin_bytes;
        self.stdout_bytes += other.stdout_bytes;
        self.stderr_bytes += other.stderr_bytes;
    }
}

/// What was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// How much there is; absent where it was not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// How much of it is in the text.
    pub shown: u64,
    /// Which part: `head`, `tail`, or `both` ends.
    pub strategy: &'static str,
    /// Where all of it stands, absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
}

/// Whether there is nothing to count.
pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What only one tool knows of its call.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
#[allow(missing_docs)] // Field names are those of the protocol.
pub enum Details {
    /// Nothing: the call failed.
    #[default]
    #[serde(serialize_with = "nothing")]
    None,
    Command {
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        spill: Option<Spilled>,
    },
    Read {
        path: String,
        first_line: u64,
        lines: u64,
        size: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        sha256: Option<String>,
        /// Lines of the whole file; absent where they were not counted.
        #[serde(skip_serializing_if = "Option::is_none")]
        total_lines: Option<u64>,
        /// The offset to go on with, where the file does.
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<u64>,
        /// Lines of which only the beginning is shown.
        #[serde(skip_serializing_if = "is_zero")]
        cut_lines: u64,
    },
    Written {
        path: String,
        bytes: u64,
        created: bool,
        sha256: String,
        /// Number of the change; absent where it cannot be undone.
        #[serde(skip_serializing_if = "Option::is_none")]
        change: Option<u64>,
        /// None of a file that is new.
        #[serde(flatten)]
        difference: Difference,
    },
    Edited {
        path: String,
        replaced: Vec<u32>,
        bytes: u64,
        sha256: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        change: Option<u64>,
        #[serde(flatten)]
        difference: Difference,
    },
    Searched {
        provider: &'static str,
        result_count: u64,
    },
    Fetched {
        url: String,
        media_type: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// How many elements were chosen.
        #[serde(skip_serializing_if = "Option::is_none")]
        elements: Option<u64>,
        bytes: u64,
        timeout: u32,
    },
    Found {
        path: String,
        count: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        binary: Option<u64>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        in_part: Vec<PartFile>,
    },
    Started {
        background: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        log: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u32>,
    },
    Background {
        processes: Vec<Process>,
    },
    Logged {
        /// Number of the first byte of the text.
        offset: u64,
        /// The offset to go on with.
        next: u64,
        total: u64,
        alive: bool,
    },
    Changes {
        changes: Vec<Changed>,
    },
    Undone {
        path: String,
        bytes: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        sha256: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        change: Option<u64>,
    },
    Image {
        path: String,
        media_type: &'static str,
        size: u64,
    },
    Viewed {
        url: String,
        media_type: &'static str,
        size: u64,
        timeout: u32,
    },
    Kept {
        count: u64,
    },
    Tests {
        framework: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        tests: Option<Counts>,
        partial: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        spill: Option<Spilled>,
    },
    Batch {
        invocations: Vec<Value>,
        failed: u64,
    },
    Finished {
        finished: Value,
    },
    Other {
        structured: Value,
    },
}

/// A file of which not all was searched.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // Field names are those of the protocol.
pub struct PartFile {
    pub path: String,
    pub why: &'static str,
}

/// A background process.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)] // Field names are those of the protocol.
pub struct Process {
    pub id: u64,
    pub command: String,
    pub started_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// `alive`, or how it ended.
    pub state: String,
    /// The exit code, if it exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub usage: Used,
}

/// A change of a file tool.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)] // Field names are those of the protocol.
pub struct Changed {
    pub number: u64,
    pub session: String,
    pub call: u64,
    pub time_ms: u64,
    pub path: String,
    /// Digest; `null` where there was no file.
    pub before: Option<String>,
    pub after: Option<String>,
}

impl Details {
    /// The name of this shape in records.
    pub fn type_name(&self) -> &'static str {
        match self {
            Details::None => "none",
            Details::Command { .. } => "command",
            Details::Read { .. } => "read",
            Details::Written { .. } => "written",
            Details::Edited { .. } => "edited",
            Details::Found { .. } => "found",
            Details::Searched { .. } => "searched",
            Details::Fetched { .. } => "fetched",
            Details::Started { .. } => "started",
            Details::Background { .. } => "background",
            Details::Logged { .. } => "logged",
            Details::Changes { .. } => "changes",
            Details::Undone { .. } => "undone",
            Details::Image { .. } => "image",
            Details::Viewed { .. } => "viewed",
            Details::Kept { .. } => "kept",
            Details::Tests { .. } => "tests",
            Details::Batch { .. } => "batch",
            Details::Finished { .. } => "finished",
            Details::Other { .. } => "other",
        }
    }
}

fn nothing<S: serde::Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap;
    serializer.serialize_map(Some(0))?.end()
}

/// Where the whole output of a command stands.
#[derive(Clone, Debug, Serialize)]
pub struct Spilled {
    /// Absolute, so that commands and file tools both find it.
    pub path: String,
    /// Bytes in it.
    pub bytes: u64,
    /// Whether that is all of the output.
    pub whole: bool,
}

impl Answer {
    /// The answer of a call that `error` kept from running, or cut off.
    pub fn failed(asked: &Asked, error: Failed) -> Self {
        Self { error: Some(error), ..Self::said(asked, Vec::new(), Details::None) }
    }

    /// The answer of a call that went well.
    pub fn said(asked: &Asked, text: impl Into<Vec<u8>>, details: Details) -> Self {
        let about = About { tool: asked.tool.clone(), details, ..About::default() };
        Self {
            text: text.into(),
            error: None,
            ended: None,
            image: None,
            about,
            security: Vec::new(),
            noted: 0,
        }
    }

    /// The answer of a call that ran, or was refused: as much of it as `profile` shows.
    pub fn of(asked: &Asked, finished: Finished, roots: &Roots, profile: &Profile) -> Self {
        let kind = finished.outcome.error();
        let mut answer = match finished.outcome {
            Outcome::Ran(ran) => Self::ran(asked, ran, roots, profile),
            Outcome::Answered => Self::answered(asked, finished.answer, roots, profile),
            Outcome::Granted => Self::said(asked, Vec::new(), Details::None),
            Outcome::Refused(refused) => Self::refused(asked, kind, refused.to_string()),
            Outcome::Failed(failed) => Self::failed(asked, failed),
            Outcome::Broken(broken) => Self::refused(asked, kind, broken.to_string()),
        };
        answer.about.usage = used(finished.usage);
        answer.about.layers = finished.layers.iter().map(|layer| layer.name()).collect();
        answer
    }

    fn refused(asked: &Asked, kind: Option<ErrorKind>, message: String) -> Self {
        Self::failed(asked, Failed { kind: kind.unwrap_or(ErrorKind::Internal), message })
    }

    /// The same as the answer of `tool`.
    pub fn called(mut self, tool: Cow<'static, str>) -> Self {
        self.about.tool = tool;
        self
    }

    /// The same with its number in the broker's audit.
    pub fn numbered(mut self, call: CallId) -> Self {
        self.about.call = Some(call);
        self
    }

    /// Takes out of text and message what is not seen.
    pub fn clean(&mut self) {
        let mut cleaner = if self.is_content() { Cleaner::of_file() } else { Cleaner::default() };
        if let Cow::Owned(clean) = cleaner.clean(&self.text) {
            self.text = clean;
        }
        if let Some(error) = &mut self.error {
            let message = Cleaner::default().clean(error.message.as_bytes()).into_owned();
            error.message = String::from_utf8_lossy(&message).into_owned();
        }
        self.about.stripped += cleaner.stripped();
    }

    /// Cuts the text at `most` bytes, with a note.
    pub fn shorten(&mut self, most: usize) {
        let length = self.text.len() - self.noted;
        if length > most {
            let before = self.about.truncated.as_ref().filter(|_| self.noted > 0);
            self.cut(most, before.map_or(Some(length as u64), |cut| cut.total));
        }
    }

    /// Leaves the first `most` bytes of the text, with a note that says how much there is, and where.
    fn cut(&mut self, most: usize, total: Option<u64>) {
        if self.text.len() > most {
            self.text.truncate(most);
            self.text.truncate(most - unfinished(&self.text));
        }
        let (shown, full) = (self.text.len() as u64, self.stands());
        let note = format!("\n{}", note(total, shown, "head", full.as_deref()));
        self.text.extend_from_slice(note.as_bytes());
        if self.noted > 0 {
            self.about.truncated = None;
        }
        // What somebody else has left out before is known already.
        self.about.truncated.get_or_insert(Cut { total, shown, strategy: "head", full });
        self.noted = note.len();
    }

    /// Where all of the text stands, if it does.
    fn stands(&self) -> Option<String> {
        let cut = self.about.truncated.as_ref().and_then(|cut| cut.full.as_ref());
        let read = match &self.about.details {
            Details::Read { path, .. } => Some(path),
            _ => None,
        };
        cut.or(read).or(self.about.kept.as_ref().map(|kept| &kept.path)).cloned()
    }

    /// Whether the text is a file's content.
    fn is_content(&self) -> bool {
        matches!(self.about.details, Details::Read { .. })
    }

    /// Text and error in one, for a model that is given only a text.
    pub fn wrapped(&self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        match &self.error {
            None => format!("<result>{text}</result>"),
            Some(error) if text.is_empty() => format!("<error>{}</error>", error.message),
            Some(error) => both(&error.message, &text),
        }
    }

    fn ran(asked: &Asked, ran: Ran, roots: &Roots, profile: &Profile) -> Self {
        let error = ran.ended.error().map(|kind| Failed { kind, message: end_message(asked, &ran, roots) });
        let spill = ran.spill.as_ref().map(|spill| spilled(spill, roots));
        let (text, truncated) = output(ran.output, spill.as_ref(), profile);
        let mut about = About { tool: asked.tool.clone(), truncated, ..About::default() };
        match ran.ended {
            Ended::Exited(code) => about.exit_code = Some(code),
            Ended::Signalled(signal) => about.signal = Some(signal),
            Ended::TimedOut | Ended::Idle | Ended::Cancelled | Ended::Limited(_) => {}
            Ended::NotStarted(_) | Ended::NoDirectory(_) => {}
        }
        about.details = Details::Command { timeout: ran.timeout_s, spill };
        Self { error, ended: Some(ran.ended), about, ..Self::said(asked, text, Details::None) }
    }

    fn answered(asked: &Asked, answer: Option<FileAnswer>, roots: &Roots, profile: &Profile) -> Self {
        let reply = match answer {
            Some(Ok(reply)) => reply,
            Some(Err(failed)) => return Self::failed(asked, failed),
            None => return Self::refused(asked, None, "the executor sent no answer".to_owned()),
        };
        let path = asked.path.clone().unwrap_or_else(|| ZonePath::root(Zone::Project));
        let place = Place { absolute: roots.absolute(&path), path, profile, form: asked.form };
        let (text, truncated, details) = place.tell(reply, roots);
        let mut answer = Self::said(asked, text, details);
        answer.about.truncated = truncated;
        answer
    }
}

/// An answer whose text came from elsewhere, all of it as it came, and what of it is shown.
#[derive(Debug)]
pub struct Told {
    /// The answer.
    pub answer: Answer,
    /// Most bytes that are shown.
    pub most: usize,
    /// Whether the text is all there is.
    pub whole: bool,
}

impl From<Answer> for Told {
    fn from(answer: Answer) -> Self {
        Self { answer, most: usize::MAX, whole: true }
    }
}

impl Told {
    /// Whether less is shown than has come.
    pub fn is_long(&self) -> bool {
        self.answer.text.len() > self.most
    }

    /// What is shown, with a note where something is left out. All that came stands in `spill`, if it is kept.
    pub fn show(self, spill: Option<&Spill>, roots: &Roots) -> Answer {
        let Self { mut answer, most, whole } = self;
        answer.about.kept = spill.map(|spill| spilled(spill, roots));
        let length = answer.text.len();
        if length > most || !whole {
            // What was not read was not counted.
            answer.cut(most, whole.then_some(length as u64));
        }
        answer
    }
}

impl About {
    /// What is known about any call that has ended.
    pub fn of(finished: Finished) -> Self {
        let layers = finished.layers.iter().map(|layer| layer.name()).collect();
        Self { usage: used(finished.usage), layers, ..Self::default() }
    }

    /// What is known about the last request of a call, with what is known about the call.
    pub fn with(self, call: About) -> Self {
        Self { usage: self.usage, layers: self.layers, ..call }
    }
}

/// `usage` in JSON.
pub(super) fn used(usage: Usage) -> Used {
    Used {
        wall_us: usage.wall_us,
        user_us: usage.user_us,
        system_us: usage.system_us,
        peak_kib: usage.peak_kib,
        stdin_bytes: usage.stdin_bytes,
        stdout_bytes: usage.stdout_bytes,
        stderr_bytes: usage.stderr_bytes,
    }
}

/// What is said of a command that did not simply succeed.
fn end_message(asked: &Asked, ran: &Ran, roots: &Roots) -> String {
    let seconds = |limit: Option<u32>| limit.map_or(String::new(), |limit| format!(" of {limit} s"));
    match ran.ended {
        Ended::Exited(code) => format!("the command exited with code {code}"),
        Ended::Signalled(signal) => format!("signal {signal} ended the command"),
        Ended::TimedOut => {
            format!("the command ran into its time limit{} and was killed", seconds(ran.timeout_s))
        }
        Ended::Idle => {
            format!("the command printed nothing for its idle time{} and was killed", seconds(asked.idle_s))
        }
        Ended::Cancelled => "the call was cancelled".to_owned(),
        Ended::Limited(limit) => {
            format!("the command ran into the policy's limit `{}` and was killed", limit.name())
        }
        Ended::NotStarted(errno) => {
            let program = asked.program.as_deref().unwrap_or("bash");
            format!("{program:?} cannot be started: {}", std::io::Error::from_raw_os_error(errno))
        }
        Ended::NoDirectory(errno) => {
            let directory = asked.path.clone().unwrap_or_else(|| ZonePath::root(Zone::Project));
            let why = std::io::Error::from_raw_os_error(errno);
            format!("the directory {} cannot be entered: {why}", roots.absolute(&directory))
        }
    }
}

/// What went wrong and what there is to show all the same, in one.
pub fn both(error: &str, text: &str) -> String {
    format!("<error>{error}</error>\n<result>{text}</result>")
}

fn spilled(spill: &Spill, roots: &Roots) -> Spilled {
    Spilled { path: roots.absolute(&spill.path), bytes: spill.bytes, whole: spill.whole }
}

/// As much of the output as `profile` shows, with a note where something is left out. No character is cut in two there.
fn output(captured: Captured, spill: Option<&Spilled>, profile: &Profile) -> (Vec<u8>, Option<Cut>) {
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
        return noted(&head[..first], &head[head.len() - last..], total, spill);
    }
    match (profile.ends, keep) {
        (Ends::Last, Some(keep)) => noted(b"", &tail[tail.len().saturating_sub(keep)..], total, spill),
        (Ends::Both, Some(keep)) => {
            let (first, last) = (head.len().min(keep / 2), tail.len().min(keep / 2));
            noted(&head[..first], &tail[tail.len() - last..], total, spill)
        }
        (_, None) => noted(&head, &tail, total, spill),
    }
}

fn noted(head: &[u8], tail: &[u8], total: u64, spill: Option<&Spilled>) -> (Vec<u8>, Option<Cut>) {
    let head = &head[..head.len() - unfinished(head)];
    let tail = &tail[continued(tail)..];
    let (shown, full) = ((head.len() + tail.len()) as u64, spill.map(|spill| spill.path.clone()));
    let strategy = if head.is_empty() { "tail" } else { "both" };
    let note = note(Some(total), shown, strategy, full.as_deref());
    let before = if head.is_empty() { "" } else { "\n" };
    let text = [head, before.as_bytes(), note.as_bytes(), b"\n", tail].concat();
    (text, Some(Cut { total: Some(total), shown, strategy, full }))
}

#[cfg(test)]
mod tests {
    use super::super::profile::{COMPACT, STANDARD};
    use super::*;
    use broker_protocol::{
        Digest, Edited, FileReply, Grepped, InPart, Layer, Listed, ListedEntry, ListedKind, Match, MatchLine,
        Read, Refused, Truncated, Unsearched, Walked, Written,
    };
    use serde_json::{Value, json};

    fn roots() -> Roots {
        Roots { project: "/p".into(), central: "/c".into() }
    }

    fn asked(path: Option<&str>) -> Asked {
        let path = path.map(|path| roots().parse(path).unwrap());
        Asked { tool: "t".into(), path, program: Some("prog".into()), idle_s: Some(3), form: Form::Raw }
    }

    fn answer(outcome: Outcome, file: Option<FileAnswer>, path: &str) -> Answer {
        let layers = LayerSet::default().with(Layer::Seccomp);
        let finished = Finished { outcome, answer: file, usage: Usage::default(), layers };
        Answer::of(&asked(Some(path)), finished, &roots(), &STANDARD)
    }

    fn ran(ended: Ended, head: &[u8], tail: &[u8], omitted: u64) -> Ran {
        let spill = (omitted > 0).then(|| Spill {
            path: ZonePath::new(Zone::Central, "outputs/1.log").unwrap(),
            bytes: 9,
            whole: true,
        });
        let output = Captured { head: head.to_vec(), tail: tail.to_vec(), omitted };
        Ran { ended, output, spill, timeout_s: Some(10) }
    }

    fn file(reply: FileReply, path: &str) -> (String, Value) {
        let answer = answer(Outcome::Answered, Some(Ok(reply)), path);
        assert!(answer.error.is_none());
        (String::from_utf8(answer.text).unwrap(), serde_json::to_value(answer.about).unwrap())
    }

    #[test]
    fn each_end_of_a_command_has_its_error() {
        let cases = [
            (Ended::Exited(42), "the command exited with code 42", ErrorKind::ExitNonzero),
            (Ended::Signalled(9), "signal 9 ended the command", ErrorKind::ExitNonzero),
            (
                Ended::TimedOut,
                "the command ran into its time limit of 10 s and was killed",
                ErrorKind::Timeout,
            ),
            (
                Ended::Idle,
                "the command printed nothing for its idle time of 3 s and was killed",
                ErrorKind::IdleTimeout,
            ),
            (Ended::Cancelled, "the call was cancelled", ErrorKind::Cancelled),
            (
                Ended::NotStarted(2),
                "\"prog\" cannot be started: No such file or directory (os error 2)",
                ErrorKind::NotFound,
            ),
            (
                Ended::NotStarted(13),
                "\"prog\" cannot be started: Permission denied (os error 13)",
                ErrorKind::Io,
            ),
            (
                Ended::NoDirectory(20),
                "the directory /p/d cannot be entered: Not a directory (os error 20)",
                ErrorKind::NotFound,
            ),
        ];
        for (ended, message, kind) in cases {
            let answer = answer(Outcome::Ran(ran(ended, b"", b"", 0)), None, "d");
            assert_eq!(answer.error, Some(Failed { kind, message: message.into() }));
            assert_eq!(answer.ended, Some(ended));
        }
        let fine = answer(Outcome::Ran(ran(Ended::Exited(0), b"hi\n", b"", 0)), None, "");
        assert!(fine.error.is_none());
        let about = serde_json::to_value(fine.about).unwrap();
        assert_eq!(about["exitCode"], 0);
        assert_eq!(about["layers"], json!(["seccomp"]));
        assert_eq!(about["usage"]["peakKib"], 0);
    }

    #[test]
    fn a_cut_output_has_both_ends_and_a_note_and_no_half_characters() {
        let done = ran(Ended::Exited(0), b"a\xc3\xa9\xe2\x82", b"\xac\xc3\xa9z", 100);
        let answer = answer(Outcome::Ran(done), None, "");
        let text = String::from_utf8(answer.text).unwrap();
        assert_eq!(text, "aé\n[truncated: total=109 shown=6 strategy=both full=/c/outputs/1.log]\néz");
        let about = serde_json::to_value(answer.about).unwrap();
        assert_eq!(
            about["truncated"],
            json!({"total": 109, "shown": 6, "strategy": "both", "full": "/c/outputs/1.log"})
        );
        assert_eq!(about["spill"], json!({"path": "/c/outputs/1.log", "bytes": 9, "whole": true}));
    }

    /// A command that printed `total` bytes in the session of a profile: the executor keeps as much as it shows.
    fn printed(profile: &Profile, total: usize) -> (String, Option<Cut>) {
        let most = profile.output.most;
        let bytes: Vec<u8> = (0..total).map(|at| b'a' + (at % 26) as u8).collect();
        let (head, tail, omitted) = match total <= most {
            true => (bytes, vec![], 0),
            false => (bytes[..most / 2].to_vec(), bytes[total - most / 2..].to_vec(), (total - most) as u64),
        };
        let ran =
            Ran { output: Captured { head, tail, omitted }, ..ran(Ended::Exited(0), b"", b"", omitted) };
        let finished = Finished {
            outcome: Outcome::Ran(ran),
            answer: None,
            usage: Usage::default(),
            layers: LayerSet::default(),
        };
        let answer = Answer::of(&asked(None), finished, &roots(), profile);
        (String::from_utf8(answer.text).unwrap(), answer.about.truncated)
    }

    #[test]
    fn output_is_cut_one_byte_over_the_profiles_bound_and_the_note_names_the_file() {
        let (text, cut) = printed(&COMPACT, 10_240);
        assert_eq!((text.len(), cut), (10_240, None));
        let (text, cut) = printed(&COMPACT, 10_241);
        let note = "[truncated: total=10241 shown=5120 strategy=tail full=/c/outputs/1.log]\n";
        assert_eq!(text.strip_prefix(note).map(str::len), Some(5120));
        assert_eq!(cut.map(|cut| (cut.strategy, cut.full)), Some(("tail", Some("/c/outputs/1.log".into()))));
        let (text, cut) = printed(&STANDARD, 102_400);
        assert_eq!((text.len(), cut), (102_400, None));
        let (text, _) = printed(&STANDARD, 102_401);
        assert!(
            text.contains("\n[truncated: total=102401 shown=102400 strategy=both full=/c/outputs/1.log]\n")
        );
    }

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
        let (_, cut) = output(captured("x".repeat(300_000)), None, &super::super::profile::WHOLE);
        assert_eq!(cut, None);
    }

    /// The text and the note's numbers of a file tool's answer under the small profile.
    fn compact(reply: FileReply) -> (String, Option<(Option<u64>, u64)>) {
        let (outcome, answer) = (Outcome::Answered, Some(Ok(reply)));
        let finished = Finished { outcome, answer, usage: Usage::default(), layers: LayerSet::default() };
        let answer = Answer::of(&asked(Some("a")), finished, &roots(), &COMPACT);
        (String::from_utf8(answer.text).unwrap(), answer.about.truncated.map(|cut| (cut.total, cut.shown)))
    }

    #[test]
    fn files_lists_and_matches_are_cut_one_over_the_bound() {
        let read = |size: usize| {
            let content = vec![b'x'; size];
            compact(FileReply::Read(Read {
                content,
                first_line: 1,
                lines: 1,
                size: size as u64,
                truncated: None,
                sha256: None,
                total_lines: None,
            }))
        };
        assert_eq!((read(10_240).0.len(), read(10_240).1), (10_240, None));
        assert_eq!(read(10_241).1, Some((Some(10_241), 5120)));
        assert!(read(10_241).0.ends_with("x\n[truncated: total=10241 shown=5120 strategy=head full=/p/a]"));
        let listed = |count: usize| {
            let entry = |n: usize| ListedEntry { path: format!("f{n}"), kind: ListedKind::File, size: 0 };
            compact(FileReply::Listed(Listed { entries: (0..count).map(entry).collect(), truncated: None }))
        };
        assert_eq!((listed(1000).0.lines().count(), listed(1000).1), (1000, None));
        assert_eq!((listed(1001).0.lines().count(), listed(1001).1), (501, Some((Some(1001), 500))));
        let walked = |count: usize| {
            let paths = (0..count).map(|n| format!("f{n}")).collect();
            compact(FileReply::Walked(Walked { paths, truncated: None }))
        };
        assert_eq!((walked(100).1, walked(101).1), (None, Some((Some(101), 50))));
        let grepped = |count: u64| {
            let line = |number: u64| MatchLine { number, matched: true, text: "x".into() };
            let file = |at: u64| Match {
                path: format!("f{at}"),
                lines: vec![line(1), MatchLine { matched: false, ..line(2) }],
            };
            compact(FileReply::Grepped(Grepped {
                matches: (0..count).map(file).collect(),
                truncated: None,
                binary: 0,
                in_part: vec![],
                in_part_count: 0,
            }))
        };
        assert_eq!((grepped(100).1, grepped(101).1), (None, Some((Some(101), 50))));
        assert_eq!(grepped(101).0.lines().filter(|line| line.contains(":1:")).count(), 50);
    }

    #[test]
    fn a_cut_file_says_how_large_it_is() {
        let read = Read {
            content: b"ab\xc3".to_vec(),
            first_line: 1,
            lines: 1,
            size: 2_000_000,
            truncated: Some(Truncated { total: Some(2_000_000), shown: 3 }),
            sha256: None,
            total_lines: None,
        };
        let (text, about) = file(FileReply::Read(read), "a");
        assert_eq!(text, "ab\n[truncated: total=2000000 shown=2 strategy=head full=/p/a]");
        assert_eq!(about["path"], "/p/a");
        assert_eq!(about["size"], 2_000_000);
    }

    #[test]
    fn lists_are_plain_lines_and_no_name_makes_two() {
        let entry = |path: &str, kind| ListedEntry { path: path.into(), kind, size: 0 };
        let entries = vec![
            entry("a b", ListedKind::File),
            entry("d", ListedKind::Directory),
            entry("two\nlines", ListedKind::Link),
            entry("\u{202e}gpj.exe", ListedKind::File),
            entry("f", ListedKind::Other),
        ];
        let listed = Listed { entries, truncated: Some(Truncated { total: None, shown: 5 }) };
        let (text, about) = file(FileReply::Listed(listed), "");
        let want = "a b\nd/\n\"two\\nlines\"@\n\"\\u{202e}gpj.exe\"\nf|\n\
                    [truncated: total=unknown shown=5 strategy=head why=not-read-to-the-end]";
        assert_eq!(text, want);
        assert_eq!(about["count"], 5);
        assert_eq!(about["truncated"], json!({"shown": 5, "strategy": "head"}));
    }

    #[test]
    fn matches_stand_as_path_line_text_with_their_zone() {
        let line = |number, matched, text: &str| MatchLine { number, matched, text: text.into() };
        let lines = vec![line(1, false, "x"), line(2, true, "needle")];
        let in_part = |path: &str, why| InPart { path: path.into(), why };
        let grepped = Grepped {
            matches: vec![Match { path: "n/a".into(), lines }],
            truncated: None,
            binary: 2,
            in_part: vec![
                in_part("n/min.js", Unsearched::LongLine),
                in_part("n/x\ny", Unsearched::Unreadable),
            ],
            in_part_count: 5,
        };
        let (text, about) = file(FileReply::Grepped(grepped), "central:n");
        assert_eq!(
            text,
            "central:n/a-1-x\ncentral:n/a:2:needle\n[searched in part: central:n/min.js (a line is too long), \
             \"central:n/x\\ny\" (not all of it can be read) and 3 more]"
        );
        assert_eq!((&about["count"], &about["binary"]), (&json!(1), &json!(2)));
        assert_eq!(about["inPart"][0], json!({"path": "central:n/min.js", "why": "long_line"}));
        assert_eq!(about.get("truncated"), None);
        let (text, about) = file(FileReply::Walked(Walked { paths: vec![], truncated: None }), "");
        assert_eq!((text.as_str(), &about["count"]), ("no file matches", &json!(0)));
    }

    #[test]
    fn writes_and_edits_say_where() {
        let sha256 = Digest([0; 32]);
        let (text, about) = file(
            FileReply::Written(Written {
                bytes: 5,
                created: true,
                sha256,
                change: Some(3),
                hunks: Some(vec![]),
            }),
            "d/f",
        );
        assert_eq!((text.as_str(), &about["path"]), ("wrote 5 bytes to d/f", &json!("/p/d/f")));
        let (text, about) = file(
            FileReply::Edited(Edited { replaced: vec![1, 2], bytes: 5, sha256, change: None, hunks: None }),
            "f",
        );
        assert_eq!(
            (text.as_str(), &about["replaced"]),
            ("replaced 3 places in f (this cannot be undone)", &json!([1, 2]))
        );
    }

    #[test]
    fn refusals_and_failures_keep_their_kinds() {
        let refused = |violation| Outcome::Refused(Refused { rule: "r".into(), why: "w".into(), violation });
        let kind = |outcome, file| answer(outcome, file, "").error.unwrap().kind;
        assert_eq!(kind(refused(false), None), ErrorKind::DeniedPolicy);
        assert_eq!(kind(refused(true), None), ErrorKind::Violation);
        let failed = Failed { kind: ErrorKind::NotFound, message: "file not found".into() };
        assert_eq!(kind(Outcome::Answered, Some(Err(failed))), ErrorKind::NotFound);
        assert_eq!(kind(Outcome::Answered, None), ErrorKind::Internal);
    }
}
