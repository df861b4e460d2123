//! `lazaret approve` on a terminal: a call fills the screen, a key answers it.
//!
//! A key that was pressed before a call was on the screen was meant for something else: keys are not listened to until
//! the call has been there for a moment.

use super::desk::{Desk, News, Waiting};
use super::page::{self, View};
use crate::adapters::cli::say;
use crate::adapters::cli::streams::Input;
use crate::adapters::cli::terminal::{Raw, size};
use crate::domain::visible;
use crate::ports::Approval;
use broker_protocol::{Extent, Failed};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a call is on the screen before a key counts.
const MOMENT: Duration = Duration::from_millis(400);
/// Lines that are not the call's: what can be pressed, and what was said last.
const FOOT: usize = 3;

/// Shows calls one after the other until the user leaves.
pub async fn serve(desk: Desk) -> Result<(), Failed> {
    let terminal = |error: std::io::Error| say::internal(format!("cannot use the terminal: {error}"));
    let input = Input::stdin().map_err(terminal)?;
    let _raw = Raw::enter().map_err(terminal)?;
    let screen = Screen {
        waiting: VecDeque::new(),
        view: View::default(),
        since: Instant::now(),
        said: String::new(),
    };
    let served = screen.serve(desk, &input).await;
    say::result(b"\x1b[2J\x1b[H")?;
    served
}

struct Screen {
    waiting: VecDeque<Waiting>,
    view: View,
    /// When the call on the screen came there.
    since: Instant,
    /// What happened last.
    said: String,
}

impl Screen {
    async fn serve(mut self, mut desk: Desk, input: &Input) -> Result<(), Failed> {
        let mut keys = [0; 64];
        self.show()?;
        loop {
            tokio::select! {
                news = desk.next() => {
                    self.note(news);
                    self.show()?;
                }
                read = input.read(&mut keys) => {
                    let Ok(count @ 1..) = read else { return Ok(()) };
                    // Several at once were not pressed one after the other with a look between them.
                    if matches!(keys[0], b'q' | 3 | 4) {
                        return Ok(());
                    }
                    if count == 1 && self.since.elapsed() >= MOMENT {
                        self.press(keys[0], &desk);
                    }
                    self.show()?;
                }
            }
        }
    }

    fn note(&mut self, news: News) {
        let before = self.waiting.front().map(|first| first.key.clone());
        match news {
            News::Asked(asked) => self.waiting.push_back(*asked),
            News::Ended(key, _) => self.waiting.retain(|waiting| waiting.key != key),
            News::Over(session, error) => {
                self.waiting.retain(|waiting| waiting.key.0 != session);
                self.said = super::over(&session, &error);
            }
            News::NotTaken(_, not) => self.said = format!("the answer was not taken: {}", not.fault),
            News::Session(_, opened) => self.said = format!("a session in {}", opened.project),
            News::Grants(..) => {}
        }
        if self.waiting.front().map(|first| &first.key) != before.as_ref() {
            (self.view, self.since) = (View::default(), Instant::now());
        }
    }

    fn press(&mut self, key: u8, desk: &Desk) {
        let rows = rows();
        let Some(first) = self.waiting.front() else { return };
        let approval = match key {
            b'y' => Approval::Yes(Extent::Once),
            b's' => Approval::Yes(Extent::Session),
            b'n' => Approval::No,
            b' ' => return self.view.forward(rows),
            b'b' => return self.view.back(rows),
            b'e' => return self.view.end(),
            _ => return,
        };
        if approval != Approval::No && !self.view.has_seen_end() {
            self.said = "there is more of it: look at its end first".into();
            return;
        }
        self.said = format!(
            "call {}: {}",
            first.key.1,
            if approval == Approval::No { "not allowed" } else { "allowed" }
        );
        desk.answer(first, approval);
    }

    fn show(&mut self) -> Result<(), Failed> {
        let (_, columns) = size();
        let rows = rows();
        let mut page = String::from("\x1b[2J\x1b[H");
        let prompt = match self.waiting.front() {
            None => "nothing waits    q leave".to_owned(),
            Some(first) => {
                let lines = page::lines(first, columns.into());
                for line in self.view.shown(&lines, rows) {
                    page.push_str(line);
                    page.push_str("\r\n");
                }
                let keys = match self.view.has_seen_end() {
                    true => "y once  s session  n no",
                    false => "n no   (y and s after its end)",
                };
                let more = self.waiting.len() - 1;
                format!(
                    "[{}] {keys}  space/b/e page  q leave; {more} more wait",
                    self.view.place(&lines, rows)
                )
            }
        };
        page.push_str(&format!("\r\n{}\r\n{prompt} ", visible::line(&self.said)));
        say::result(page.as_bytes())
    }
}

/// Lines of the screen that a call has.
fn rows() -> usize {
    usize::from(size().0).saturating_sub(FOOT).max(1)
}
