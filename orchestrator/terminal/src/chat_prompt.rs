//! The prompt of a chat: a line editor if the terminal supports one, otherwise the terminal's own lines.
//!
//! The terminal is in raw mode only while a person types. While a model works, keys produce signals and lines are answers, as
//! without an editor. Nothing blocks: other events are handled between two keys, and a signal ends the wait.

use crate::chat_command::{complete, next_text};
use crate::chat_screen::Screen;
use crate::line_editor::editor::{EditStep, LineEditor};
use crate::line_editor::history::LineHistory;
use crate::line_editor::keys::{KeyDecoder, KeyPress};
use crate::line_editor::layout::{Drawing, Prefix};
use broker_protocol::Failed;
use nix::libc::{SIGCONT, SIGWINCH};
use orchestrator_confine::ConfinementProof;
use orchestrator_launch::stdio::job::Job;
use orchestrator_launch::stdio::line_reader::StdinLines;
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_launch::stdio::streams::unusable;
use orchestrator_launch::stdio::terminal::{self, Raw};
use orchestrator_records::chat_history::ChatHistory;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

pub use crate::line_editor::buffer::TEXT_MAX;

/// How long the rest of a key sequence may take after its first byte.
const REST: Duration = Duration::from_millis(50);
/// Switches on bracketed paste: a terminal that supports it encloses a pasted text in two marks.
const PASTE_MARKS_ON: &str = "\x1b[?2004h";
const PASTE_MARKS_OFF: &str = "\x1b[?2004l";

/// What a line editor needs that cannot be opened after the confinement.
pub struct BeforeConfined {
    history: Option<(ChatHistory, Vec<String>)>,
    job: Job,
}

impl BeforeConfined {
    /// Opens the history of what is typed.
    pub fn with_history() -> Self {
        let opened = ChatHistory::open();
        let opened = opened.inspect_err(|error| {
            print::problem(&format!("no history of what you type: {error}"));
        });
        Self {
            history: opened.ok(),
            ..Self::without_history()
        }
    }

    /// For a chat that is not recorded: what is typed is not kept either.
    pub fn without_history() -> Self {
        Self {
            history: None,
            job: Job::of_this_process(),
        }
    }
}

/// A terminal at which a person types texts and answers.
pub struct Prompt {
    lines: StdinLines,
    editing: Option<Editing>,
}

struct Editing {
    raw: Raw,
    editor: LineEditor,
    decoder: KeyDecoder,
    /// Keys that were read after the end of a text: the beginning of the next one.
    waiting: VecDeque<KeyPress>,
    window: Signals,
    file: Option<ChatHistory>,
    job: Job,
}

impl Prompt {
    /// Reads input from `lines`. Needs the runtime.
    ///
    /// # Errors
    /// If signals cannot be watched.
    pub fn new(
        lines: StdinLines,
        before: Option<BeforeConfined>,
        proof: ConfinementProof,
    ) -> Result<Self, Failed> {
        // A terminal that cannot move its cursor, or cannot be set to raw mode, edits lines itself.
        let can_draw = terminal::term() != "dumb";
        let raw = before
            .filter(|_| can_draw)
            .and_then(|before| Some((before, Raw::enter().ok()?)));
        let Some((before, raw)) = raw else {
            return Ok(Self {
                lines,
                editing: None,
            });
        };
        raw.give_back().map_err(unusable)?;
        let (file, texts) = before.history.unzip();
        let editor = LineEditor::new(LineHistory::of(texts.unwrap_or_default()), complete);
        let window = Signals::listen(&[SIGWINCH, SIGCONT], proof)?;
        let (decoder, waiting) = (KeyDecoder::default(), VecDeque::new());
        let editing = Some(Editing {
            raw,
            editor,
            decoder,
            waiting,
            window,
            file,
            job: before.job,
        });
        Ok(Self { lines, editing })
    }

    /// The lines for answers to questions meanwhile.
    pub fn lines(&mut self) -> &mut StdinLines {
        &mut self.lines
    }

    /// The person's next text; `None` at the end and at a signal.
    ///
    /// # Errors
    /// If the terminal fails, or too much is typed in its own lines.
    pub async fn next_text(
        &mut self,
        screen: &mut Screen,
        signals: &mut Signals,
    ) -> Result<Option<String>, Failed> {
        let Some(editing) = &mut self.editing else {
            return next_text(screen, &mut self.lines, signals).await;
        };
        editing.raw.reenter().map_err(unusable)?;
        let text = editing.text(screen, &mut self.lines, signals).await;
        editing.raw.give_back().map_err(unusable)?;
        let Some(text) = text.map_err(unusable)? else {
            return Ok(None);
        };
        editing.remember(&text);
        Ok(Some(text.trim().to_owned()))
    }
}

/// An event at the terminal.
enum PromptEvent {
    Keys(Vec<KeyPress>),
    /// Its size has changed, or another program has used it.
    Redraw,
    End,
}

impl Editing {
    async fn text(
        &mut self,
        screen: &mut Screen,
        lines: &mut StdinLines,
        signals: &mut Signals,
    ) -> io::Result<Option<String>> {
        screen.begin_input(PASTE_MARKS_ON).await?;
        let mut drawn = None;
        loop {
            while let Some(key) = self.waiting.pop_front() {
                match self.editor.press(key) {
                    EditStep::Draw => {}
                    EditStep::Done(text) => {
                        let rows = LineEditor::drawn_text(&text, size());
                        self.end_drawing(screen, drawn, rows).await?;
                        return Ok(Some(text));
                    }
                    EditStep::End => return self.end(screen, drawn).await,
                    EditStep::ClearScreen => {
                        screen.draw_input("\x1b[2J\x1b[H").await?;
                        drawn = None;
                    }
                    EditStep::Suspend if !self.job.can_suspend(true) => {}
                    EditStep::Suspend => {
                        self.end_drawing(screen, drawn.take(), self.editor.draw(size()))
                            .await?;
                        self.job.suspend(Some(&self.raw))?;
                        screen.draw_input(PASTE_MARKS_ON).await?;
                    }
                }
            }
            let next = self.editor.draw(size());
            screen
                .draw_input(&drawing(drawn.as_ref(), &next, |text| {
                    screen.prompt_colour(text)
                }))
                .await?;
            drawn = Some(next);
            let event = tokio::select! {
                event = event(&mut self.decoder, &mut self.window, lines) => event,
                _ = signals.next() => PromptEvent::End,
            };
            match event {
                PromptEvent::Keys(keys) => self.waiting.extend(keys),
                // A shell that stopped us has set its own terminal mode.
                PromptEvent::Redraw => self.raw.reenter()?,
                PromptEvent::End => return self.end(screen, drawn).await,
            }
        }
    }

    async fn end(
        &mut self,
        screen: &mut Screen,
        drawn: Option<Drawing>,
    ) -> io::Result<Option<String>> {
        let rows = LineEditor::drawn_text("", size());
        self.end_drawing(screen, drawn, rows).await.map(|()| None)
    }

    /// Leaves `last` on the screen, and puts the cursor below it.
    async fn end_drawing(
        &self,
        screen: &mut Screen,
        drawn: Option<Drawing>,
        mut last: Drawing,
    ) -> io::Result<()> {
        last.cursor = last
            .rows
            .last()
            .map_or((0, 0), |row| (last.rows.len() - 1, row.text.len()));
        let rows = drawing(drawn.as_ref(), &last, |text| screen.prompt_colour(text));
        screen
            .draw_input(&format!("{rows}{PASTE_MARKS_OFF}\r\n"))
            .await
    }

    /// Adds a text to the history and its file. After an error, the file is no longer written.
    fn remember(&mut self, text: &str) {
        if !self.editor.remember(text.trim_end()) {
            return;
        }
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.append(text.trim_end()) {
            print::problem(&format!("no more history of what you type: {error}"));
            self.file = None;
        }
    }
}

async fn event(
    decoder: &mut KeyDecoder,
    window: &mut Signals,
    lines: &mut StdinLines,
) -> PromptEvent {
    let rest = async {
        match decoder.is_within_key() {
            true => tokio::time::sleep(REST).await,
            false => std::future::pending().await,
        }
    };
    let bytes = tokio::select! {
        bytes = lines.bytes() => bytes,
        _ = window.next() => return PromptEvent::Redraw,
        () = rest => return PromptEvent::Keys(decoder.end_key().into_iter().collect()),
    };
    match bytes.is_empty() {
        true => PromptEvent::End,
        false => PromptEvent::Keys(decoder.push(&bytes, Instant::now())),
    }
}

fn size() -> (usize, usize) {
    let (rows, columns) = terminal::size();
    (rows.into(), columns.into())
}

/// The output that replaces the rows drawn last by `next`, clearing them from the first on. Nothing in a row moves the cursor.
fn drawing(last: Option<&Drawing>, next: &Drawing, prompt: impl Fn(&str) -> String) -> String {
    let begin = |prefix| match prefix {
        Prefix::First => prompt("> "),
        Prefix::Line => prompt("… "),
        Prefix::None => "  ".to_owned(),
    };
    let mut out = move_up(last.map_or(0, |last| last.cursor_row(size().1)));
    out.push_str("\r\x1b[J");
    for (number, row) in next.rows.iter().enumerate() {
        if number > 0 {
            out.push_str("\r\n");
        }
        out.push_str(&begin(row.prefix));
        out.push_str(&row.text);
    }
    let (prefix, before) = next.before_cursor();
    out.push_str(&move_up(next.rows.len().saturating_sub(next.cursor.0 + 1)));
    out.push('\r');
    out.push_str(&begin(prefix));
    out.push_str(before);
    out
}

/// Empty for zero rows: terminals take zero as one.
fn move_up(rows: usize) -> String {
    if rows == 0 {
        String::new()
    } else {
        format!("\x1b[{rows}A")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_drawing_is_overwritten() {
        let plain = |text: &str| text.to_owned();
        let of = |text: &str, cursor| Drawing::new(text, cursor, None, (24, 80));
        let first = of("one\ntwo", 3);
        assert_eq!(
            drawing(None, &first, plain),
            "\r\x1b[J> one\r\n… two\x1b[1A\r> one"
        );
        assert_eq!(drawing(Some(&first), &of("", 0), plain), "\r\x1b[J> \r> ");
        let last = of("one\ntwo", 7);
        assert!(drawing(Some(&last), &first, plain).starts_with("\x1b[1A\r\x1b[J> one"));
    }
}
