//! The result of one call: the text for the model, the error, and the metadata.
//!
//! Decisions depend on the [`ErrorKind`](broker_protocol::ErrorKind), never on a message.

use crate::denials;
use crate::findings;
use crate::image::Image;
use crate::metadata::{Details, Metadata, SavedOutput, Truncation};
use crate::subject::Subject;
use crate::violation::SecurityEvent;
use broker_protocol::{CallId, Ended, Failed, Findings, Roots, Spill};
use orchestrator_text::truncate::note;
use orchestrator_text::utf8::unfinished;
use std::borrow::Cow;

/// The result of one call.
#[derive(Clone, Debug)]
pub struct ToolResult {
    /// The tool's output or a command's: bytes, because it may not be text.
    pub text: Vec<u8>,
    /// What went wrong, if anything did.
    pub error: Option<Failed>,
    /// How a command ended.
    pub ended: Option<Ended>,
    /// An image for the model.
    pub image: Option<Image>,
    /// For records, and for programs.
    pub metadata: Metadata,
    /// Attempts of the call, or of the calls in it, to get outside its permissions.
    pub security: Vec<SecurityEvent>,
    /// Bytes at the beginning of the text that report what was found; they are not cut.
    pub found_bytes: usize,
    /// Bytes of the note at the end of the text that reports where [`ToolResult::shorten`] or [`ForeignText::cut`] has cut it.
    pub note_bytes: usize,
}

impl ToolResult {
    /// A call that succeeded.
    pub fn success(
        tool: impl Into<Cow<'static, str>>,
        text: impl Into<Vec<u8>>,
        details: Details,
    ) -> Self {
        Self::new(text.into(), None, Metadata::of(tool.into(), details))
    }

    /// A call that `error` prevented or ended.
    pub fn failed(tool: impl Into<Cow<'static, str>>, error: Failed) -> Self {
        Self::new(
            Vec::new(),
            Some(error),
            Metadata::of(tool.into(), Details::None),
        )
    }

    /// A result with everything that may be known at first.
    pub fn new(text: Vec<u8>, error: Option<Failed>, metadata: Metadata) -> Self {
        Self {
            text,
            error,
            ended: None,
            image: None,
            metadata,
            security: Vec::new(),
            found_bytes: 0,
            note_bytes: 0,
        }
    }

    /// Sets the call ID in the broker's audit.
    pub fn numbered(mut self, call: CallId) -> Self {
        self.metadata.call = Some(call);
        self
    }

    /// Whether the text is a file's content.
    pub fn is_content(&self) -> bool {
        matches!(self.metadata.details, Details::Read { .. })
    }

    /// Text and error in one, for a model that receives only a text.
    pub fn wrapped(&self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        match &self.error {
            None => format!("<result>{text}</result>"),
            Some(error) if text.is_empty() => format!("<error>{}</error>", error.message),
            Some(error) => error_and_result(&error.message, &text),
        }
    }

    /// Adds a line to the text.
    pub fn push_line(&mut self, line: &str) {
        if self.text.last().is_some_and(|last| *last != b'\n') {
            self.text.push(b'\n');
        }
        self.text.extend_from_slice(line.as_bytes());
        self.note_bytes = 0;
    }

    /// Reports denials in the error, if the call failed. Programs often try what they can do without, and a call that succeeded
    /// could; its metadata has them.
    pub fn tell_denials(&mut self) {
        if let Some(error) = &mut self.error
            && let Some(line) = denials::line(&self.metadata.denied)
        {
            error.message = format!("{} {line}", error.message);
        }
    }

    /// Adds what was found in the project, for the reader of the metadata. Its texts are escaped.
    pub fn add_found(&mut self, found: Findings) {
        self.metadata.found.append(found);
    }

    /// Reports what was found to the reader of the text, before everything else: nothing that is cut or listed later takes its place.
    pub fn tell_found(&mut self) {
        let Some(lines) = findings::lines(&self.metadata.found) else {
            return;
        };
        match (&mut self.error, &mut self.metadata.stderr) {
            (Some(error), _) => error.message = format!("{lines}\n{}", error.message),
            (None, Some(stderr)) => stderr
                .text
                .splice(..0, format!("{lines}\n").into_bytes())
                .for_each(drop),
            (None, None) => {
                self.found_bytes = lines.len() + 1;
                self.text
                    .splice(..0, format!("{lines}\n").into_bytes())
                    .for_each(drop);
            }
        }
    }

    /// Cuts the text at `max` bytes, with a note.
    pub fn shorten(&mut self, max: usize) {
        let max = max + self.found_bytes;
        let length = self.text.len() - self.note_bytes;
        if length > max {
            let before = self
                .metadata
                .truncated
                .as_ref()
                .filter(|_| self.note_bytes > 0);
            self.cut(max, before.map_or(Some(length as u64), |cut| cut.total));
        }
    }

    /// Keeps the first `max` bytes of the text, with a note that gives the total and where to find it.
    fn cut(&mut self, max: usize, total: Option<u64>) {
        if self.text.len() > max {
            self.text.truncate(max);
            self.text.truncate(max - unfinished(&self.text));
        }
        let (shown, full) = (self.text.len() as u64, self.full_path());
        let note = format!("\n{}", note(total, shown, "head", full.as_deref()));
        self.text.extend_from_slice(note.as_bytes());
        if self.note_bytes > 0 {
            self.metadata.truncated = None;
        }
        // If something was left out before, that record stays.
        self.metadata.truncated.get_or_insert(Truncation {
            total,
            shown,
            strategy: "head",
            full,
        });
        self.note_bytes = note.len();
    }

    /// The file that has the whole text, if there is one.
    fn full_path(&self) -> Option<String> {
        let cut = self
            .metadata
            .truncated
            .as_ref()
            .and_then(|cut| cut.full.as_ref());
        let read = match &self.metadata.details {
            Details::Read { path, .. } => Some(path),
            _ => None,
        };
        cut.or(read)
            .or(self.metadata.saved.as_ref().map(|saved| &saved.path))
            .cloned()
    }
}

/// Joins the error with whatever result there is.
pub fn error_and_result(error: &str, text: &str) -> String {
    format!("<error>{error}</error>\n<result>{text}</result>")
}

/// A result whose text is foreign: from the web, or from a registered tool. It is not cut yet.
#[derive(Debug)]
pub struct ForeignText {
    /// With all of the text.
    pub result: ToolResult,
    /// Most bytes that are shown.
    pub max: usize,
    /// Whether the text is complete.
    pub complete: bool,
}

impl From<ToolResult> for ForeignText {
    fn from(result: ToolResult) -> Self {
        Self {
            result,
            max: usize::MAX,
            complete: true,
        }
    }
}

impl ForeignText {
    /// An error in place of a text.
    pub fn failed(subject: &Subject, error: Failed) -> Self {
        ToolResult::failed(subject.tool.clone(), error).into()
    }

    /// Whether it has to be cut.
    pub fn is_long(&self) -> bool {
        self.result.text.len() > self.max
    }

    /// The text to show, with a note if something is left out. `spill` holds the whole text, if it was saved.
    pub fn cut(self, spill: Option<&Spill>, roots: &Roots) -> ToolResult {
        let Self {
            mut result,
            max,
            complete,
        } = self;
        result.metadata.saved = spill.map(|spill| SavedOutput::of(spill, roots));
        let length = result.text.len();
        if length > max || !complete {
            // The part that was not read was not counted.
            result.cut(max, complete.then_some(length as u64));
        }
        result
    }
}
