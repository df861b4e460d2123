//! A run as text: the model's text on standard output, its tools on standard error.

use orchestrator_agent::event::{
    ChatEvent, ChatEventBody, ChatToolResult, Confirm, Output as Printed,
};
use orchestrator_engine::hooks::{HookOutcome, HookRan};
use orchestrator_launch::stdio::print::{Colour, paint, shown};
use orchestrator_launch::stdio::streams::OutputStream;
use orchestrator_launch::stdio::terminal;
use orchestrator_text::escape;
use orchestrator_text::input_lines::input_lines;
use serde_json::Value;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// Lines of a command's output to show while it runs.
const LINES: usize = 8;
/// Columns for a tool's name: that of an unknown one is the model's text.
const TOOL_NAME: usize = 80;
/// Maximum lines of a diff to show.
const DIFF_LINES: usize = 40;
/// Maximum characters of an input to show.
const INPUT: usize = 200;

/// The two streams of a terminal, or of a pipe.
pub struct Screen {
    out: OutputStream,
    err: OutputStream,
    /// Whether a person reads standard error.
    tools: bool,
    colours: bool,
    /// Whether the text on standard output ends within a line.
    within_line: bool,
    /// How many lines of output were shown for the call in progress.
    lines: usize,
    asked: Option<ScreenQuestion>,
}

/// Rows of the screen besides those of a question: its head, and the line for the answer.
const HEAD: usize = 4;
/// How long a question must stand before a yes counts: what is typed earlier was meant for something else.
const ARMED: Duration = Duration::from_millis(400);
/// Minimum rows of a page.
const PAGE_MIN: usize = 5;

/// A call that needs a person's approval. Each row begins with a bar, so that none can imitate our own question.
struct ScreenQuestion {
    rows: Vec<String>,
    shown: usize,
    /// Whether the rows are complete.
    is_whole: bool,
    answers: String,
    /// When the last row was shown.
    complete: Option<Instant>,
}

impl ScreenQuestion {
    fn new(confirm: &Confirm, columns: usize) -> Self {
        let lines = match &confirm.input {
            Some(input) => input_lines(input),
            None => {
                vec![
                    "its input has more than 64 KiB and is not shown here: it can only be denied"
                        .into(),
                ]
            }
        };
        let wrap = |line: &String| escape::wrapped(line, columns.saturating_sub(3));
        let rows = lines
            .iter()
            .flat_map(wrap)
            .map(|row| format!("│ {row}\n"))
            .collect();
        let session = for_session(confirm);
        let minutes = match confirm.asked.wants {
            Some(_) => ", m 30 for 30 minutes",
            None => "",
        };
        let again = if confirm.asked.not_taken.is_some() {
            "the answer was rejected; "
        } else {
            ""
        };
        let answers = format!(
            "[{again}y once{session}{minutes}, n no, q no and stop; {} s] ",
            confirm.asked.expires_s
        );
        Self {
            rows,
            shown: 0,
            is_whole: confirm.input.is_some(),
            answers,
            complete: None,
        }
    }

    fn has_shown_all(&self) -> bool {
        self.is_whole && self.shown == self.rows.len()
    }

    fn is_armed(&self) -> bool {
        self.complete.is_some_and(|since| since.elapsed() >= ARMED)
    }

    /// The next rows for a screen with `height` rows, and the possible answers.
    fn page(&mut self, height: usize) -> String {
        let end = (self.shown + height.saturating_sub(HEAD).max(PAGE_MIN)).min(self.rows.len());
        let mut page = self.rows[self.shown..end].concat();
        self.shown = end;
        if self.has_shown_all() {
            self.complete = Some(Instant::now());
        }
        page.push_str(&match (self.rows.len() - end, self.is_whole) {
            (0, true) => self.answers.clone(),
            (0, false) => "[n no, q no and stop] ".to_owned(),
            (left, _) => format!("[{left} more lines: Enter shows them, n no, q no and stop] "),
        });
        page
    }
}

impl Screen {
    /// Our standard streams. Needs the runtime.
    pub fn new() -> io::Result<Self> {
        let tools = io::stderr().is_terminal();
        Ok(Self {
            out: OutputStream::stdout()?,
            err: OutputStream::stderr()?,
            tools,
            colours: tools,
            within_line: false,
            lines: 0,
            asked: None,
        })
    }

    pub async fn show(&mut self, event: &ChatEvent) -> io::Result<()> {
        let inner = if event.parent.is_some() { "  " } else { "" };
        match &event.body {
            ChatEventBody::TextDelta { content, .. } => self.text(content).await,
            ChatEventBody::ToolStart {
                tool_name, input, ..
            } => {
                self.lines = 0;
                self.tool_line(&started(inner, tool_name, input, self.colours))
                    .await
            }
            ChatEventBody::ToolDelta {
                output: Printed::Text { chunk },
                ..
            } => self.output(chunk).await,
            ChatEventBody::ToolResult(result) => self.result(inner, result).await,
            ChatEventBody::Security { event, .. } => {
                self.problem(&format!("violation: {}", event.message)).await
            }
            ChatEventBody::Retry {
                message, delay_ms, ..
            } => {
                self.tool_line(&format!(
                    "  {message}; again in {} s",
                    delay_ms.div_ceil(1000)
                ))
                .await
            }
            ChatEventBody::Hook(ran) => self.hook(inner, ran).await,
            ChatEventBody::Notice { message, .. } => self.tool_line(&format!("  {message}")).await,
            ChatEventBody::Session { replaced: true, .. } => {
                self.tool_line("  a new session is open").await
            }
            ChatEventBody::Error(error) => {
                let text = format!("{}: {}", error.code.name(), error.message);
                self.problem(&text).await
            }
            ChatEventBody::StreamEnd { .. } => self.end_line().await,
            ChatEventBody::StreamStart { .. }
            | ChatEventBody::Session { .. }
            | ChatEventBody::ThinkingDelta { .. }
            | ChatEventBody::ToolInputDelta { .. }
            | ChatEventBody::ToolConfirm(_)
            | ChatEventBody::ToolDelta { .. }
            // The result says what was refused.
            | ChatEventBody::Connection { .. }
            | ChatEventBody::TurnEnd { .. } => Ok(()),
        }
    }

    /// Asks whether a call may run; the caller reads the answer. What does not fit on the screen follows with [`Self::more`].
    pub async fn question(&mut self, confirm: &Confirm) -> io::Result<()> {
        self.end_line().await?;
        self.asked = Some(ScreenQuestion::new(confirm, terminal::size().1.into()));
        let head = format!(
            "\n{}{} wants to run ({} risk, by {}): {}\n",
            paint("? ", Colour::Red, self.colours),
            escape::fitted(&confirm.tool_name, TOOL_NAME),
            confirm.asked.risk,
            escape::one_line(&confirm.asked.rule),
            escape::row(&confirm.asked.why),
        );
        self.err.write_all(head.as_bytes()).await?;
        self.more().await
    }

    /// Shows the next part of the question, and the possible answers.
    pub async fn more(&mut self) -> io::Result<()> {
        let Some(question) = &mut self.asked else {
            return Ok(());
        };
        let page = question.page(terminal::size().0.into());
        self.err.write_all(page.as_bytes()).await
    }

    /// Whether the whole question has been shown: nobody can approve what they have not seen.
    pub(crate) fn has_shown_all(&self) -> bool {
        self.asked
            .as_ref()
            .is_none_or(ScreenQuestion::has_shown_all)
    }

    /// Whether the whole question has been on the screen for so long that what is typed can be an answer to it.
    pub(crate) fn is_armed(&self) -> bool {
        self.asked.as_ref().is_none_or(ScreenQuestion::is_armed)
    }

    /// Prompts a person for the next text, or for its next line.
    pub async fn prompt(&mut self, goes_on: bool) -> io::Result<()> {
        self.end_line().await?;
        let prompt = if goes_on { "… " } else { "> " };
        self.err
            .write_all(self.prompt_colour(prompt).as_bytes())
            .await
    }

    /// Begins a line in the line editor.
    pub(crate) async fn begin_input(&mut self, marks: &str) -> io::Result<()> {
        self.end_line().await?;
        self.draw_input(marks).await
    }

    /// Draws the edited text: rows without terminal sequences except those that draw them.
    pub(crate) async fn draw_input(&self, rows: &str) -> io::Result<()> {
        self.err.write_all(rows.as_bytes()).await
    }

    /// A prompt in its colour.
    pub(crate) fn prompt_colour(&self, prompt: &str) -> String {
        paint(prompt, Colour::Green, self.colours)
    }

    /// Answers a person's command on standard error: in our own lines, with foreign text made safe to show.
    pub async fn answer(&mut self, text: &str) -> io::Result<()> {
        self.end_line().await?;
        self.err
            .write_all(format!("{}\n", text.trim_end()).as_bytes())
            .await
    }

    /// Reports a problem on standard error, whoever reads it.
    pub async fn problem(&mut self, message: &str) -> io::Result<()> {
        self.end_line().await?;
        let prefix = paint("lazaret:", Colour::Red, self.colours);
        // Messages quote model servers, and each has to stay on one line of ours.
        self.err
            .write_all(format!("{prefix} {}\n", escape::one_line(message)).as_bytes())
            .await
    }

    async fn text(&mut self, text: &str) -> io::Result<()> {
        self.within_line = !text.ends_with('\n');
        self.out.write_all(text.as_bytes()).await
    }

    async fn end_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.within_line) {
            self.out.write_all(b"\n").await?;
        }
        Ok(())
    }

    async fn tool_line(&mut self, line: &str) -> io::Result<()> {
        if !self.tools {
            return Ok(());
        }
        self.end_line().await?;
        self.err.write_all(format!("{line}\n").as_bytes()).await
    }

    async fn hook(&mut self, inner: &str, ran: &HookRan) -> io::Result<()> {
        let did = match ran.outcome {
            HookOutcome::Allowed => return Ok(()),
            HookOutcome::Blocked => "has blocked this",
            HookOutcome::Rewrote => "has changed the input",
            HookOutcome::Asked => "tells the model",
            HookOutcome::Failed => return self.problem(&failed(ran)).await,
        };
        let texts = [&ran.message, &ran.ask_agent]
            .into_iter()
            .flatten()
            .map(|text| shown(text));
        let why = texts.collect::<Vec<_>>().join(" ");
        self.tool_line(&format!("{inner}  hook {} {did}: {why}", ran.hook))
            .await
    }

    async fn output(&mut self, chunk: &str) -> io::Result<()> {
        for line in chunk.lines() {
            self.lines += 1;
            if self.lines <= LINES {
                self.tool_line(&format!("  │ {}", shown(line))).await?;
            }
        }
        Ok(())
    }

    async fn result(&mut self, inner: &str, result: &ChatToolResult) -> io::Result<()> {
        if self.lines > LINES {
            self.tool_line(&format!("  │ … {} more lines", self.lines - LINES))
                .await?;
        }
        if let Some(diff) = result.metadata["diff"].as_str() {
            for line in diff.lines().take(DIFF_LINES) {
                let colour = match line.as_bytes().first() {
                    Some(b'+') => Some(Colour::Green),
                    Some(b'-') => Some(Colour::Red),
                    _ => None,
                };
                let line = shown(line);
                let line = colour.map_or(line.clone(), |colour| paint(&line, colour, self.colours));
                self.tool_line(&format!("  │ {line}")).await?;
            }
        }
        for finding in result.found.list() {
            self.problem(&format!("found: {finding}")).await?;
        }
        match &result.error {
            Some(error) => {
                let first = error.message.lines().next().unwrap_or_default();
                let code = paint(error.code.name(), Colour::Red, self.colours);
                self.tool_line(&format!("{inner}  └ {code}: {}", shown(first)))
                    .await
            }
            None => {
                let lines = result.result.lines().count();
                self.tool_line(&format!("{inner}  └ {lines} lines")).await
            }
        }
    }
}

/// What happened because a hook gave no answer; reported whoever reads it.
fn failed(ran: &HookRan) -> String {
    let why = ran.message.as_deref().unwrap_or("gave no answer");
    format!("the hook `{}` ({}) {why}", ran.hook, ran.event.name())
}

/// What a question says of a yes for the session; nothing if it does not offer that.
fn for_session(confirm: &Confirm) -> String {
    let covered = confirm
        .asked
        .for_session
        .as_ref()
        .map(|covered| format!(", s for {covered} in this session"));
    covered.unwrap_or_default()
}

/// What to reply to an answer that is none: the answers that this question has.
pub(crate) fn no_answer(confirm: &Confirm) -> String {
    let session = if for_session(confirm).is_empty() {
        ""
    } else {
        "s, "
    };
    let minutes = match confirm.asked.wants {
        Some(_) => "m with 1 to 1440 minutes, ",
        None => "",
    };
    format!("that is no answer to this question: type y, {session}{minutes}n or q")
}

/// An input on one line.
fn brief(input: &Value) -> String {
    let main = [
        "command", "path", "pattern", "query", "url", "question", "summary",
    ];
    let text = main
        .iter()
        .find_map(|name| input[*name].as_str())
        .map_or_else(|| input.to_string(), str::to_owned);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut brief: String = line.chars().take(INPUT).collect();
    if brief.len() < line.len() {
        brief.push('…');
    }
    brief
}

/// The row of a call that begins. The name is the model's, and begins no row of its own.
fn started(inner: &str, name: &str, input: &Value, colours: bool) -> String {
    let name = escape::fitted(name, TOOL_NAME);
    let name = paint(&name, Colour::Green, colours);
    format!("{inner}● {name} {}", brief(input))
}

#[cfg(test)]
mod tests {
    use super::*;
    use orchestrator_wire::approval::{ApprovalRequest, Wanted};
    use serde_json::json;

    fn confirm(input: Option<Value>) -> Confirm {
        Confirm {
            tool_id: "1".into(),
            tool_name: "bash".into(),
            input,
            diff: None,
            path: None,
            part: None,
            asked: ApprovalRequest {
                digest: String::new(),
                rule: "rule".into(),
                why: "why".into(),
                risk: "high",
                expires_s: 30,
                channel: "relay",
                session: "rule",
                for_session: Some("all commands that run only ls".into()),
                programs: Vec::new(),
                wants: None,
                not_taken: None,
            },
        }
    }

    fn question(input: Option<Value>) -> ScreenQuestion {
        ScreenQuestion::new(&confirm(input), 40)
    }

    #[test]
    fn yes_counts_only_when_the_question_has_stood() {
        let mut short = question(Some(json!({ "command": "ls" })));
        assert!(!short.is_armed());
        short.page(40);
        assert!(short.has_shown_all() && !short.is_armed());
        short.complete = Instant::now().checked_sub(ARMED);
        assert!(short.is_armed());
    }

    #[test]
    fn nothing_is_allowed_before_its_end_was_shown() {
        let mut long = question(Some(
            json!({ "command": format!("{}touch hidden", "\n".repeat(50)) }),
        ));
        let pages: Vec<_> = (0..3)
            .map(|_| (long.page(24), long.has_shown_all()))
            .collect();
        assert!(
            pages[0]
                .0
                .ends_with("[32 more lines: Enter shows them, n no, q no and stop] "),
            "{}",
            pages[0].0
        );
        assert_eq!(
            pages.iter().map(|(_, all)| *all).collect::<Vec<_>>(),
            [false, false, true]
        );
        assert!(
            pages[2].0.contains("touch hidden\n[y once"),
            "{}",
            pages[2].0
        );
        let mut huge = question(None);
        assert!(huge.page(24).ends_with("[n no, q no and stop] ") && !huge.has_shown_all());
    }

    #[test]
    fn a_wrong_answer_is_told_the_right_ones() {
        let lasting = confirm(Some(json!({})));
        assert!(no_answer(&lasting).ends_with("type y, s, n or q"));
        let mut once = lasting;
        once.asked.session = "once";
        once.asked.for_session = None;
        assert!(no_answer(&once).ends_with("type y, n or q"));
        let mut wanting = once;
        wanting.asked.wants = Some(Wanted {
            hosts: vec!["a.example:443".into()],
            read: Vec::new(),
            write: Vec::new(),
            connect: Vec::new(),
        });
        assert!(no_answer(&wanting).ends_with("type y, m with 1 to 1440 minutes, n or q"));
    }

    #[test]
    fn name_of_an_unknown_tool_is_one_short_row() {
        let forged = format!("bash\n? bash wants to run\n[y once] {}", "x".repeat(3000));
        let row = started("", &forged, &json!({}), false);
        assert!(row.starts_with("● bash\\n? bash"), "{row}");
        assert!(!row.contains('\n') && row.len() < 100, "{row}");
    }

    #[test]
    fn no_row_passes_for_a_question() {
        let forged = format!(
            "true #{}? bash wants to run: ls\n[y once] \u{1b}[2J",
            " ".repeat(33)
        );
        let page = question(Some(json!({ "command": forged, "cwd": "sub" }))).page(24);
        let (rows, _) = page.rsplit_once('\n').unwrap();
        assert!(
            rows.lines()
                .all(|row| row.starts_with("│ ") && row.chars().count() <= 40),
            "{page}"
        );
        assert!(
            rows.starts_with("│ cwd: sub\n") && !page.contains('\u{1b}'),
            "{page}"
        );
    }
}
