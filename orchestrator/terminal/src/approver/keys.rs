//! `lazaret approve` on a terminal: a call fills the screen, and a key answers it.
//!
//! A key pressed before a screen appeared was meant for another screen, so no answer counts until the screen has been visible for a
//! moment. Every printed row is counted with the maximum width of its characters, so that no part of a call is ever pushed off the
//! screen by the rows below it.

use crate::approver::page::{self, PageView};
use crate::approver::queue::{ApprovalQueue, QueueEvent};
use crate::approver::screen::PendingScreen;
use broker_protocol::{Extent, Failed};
use nix::libc::{SIGCONT, SIGWINCH};
use orchestrator_confine::ConfinementProof;
use orchestrator_engine::ApprovalAnswer;
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_launch::stdio::streams::InputStream;
use orchestrator_launch::stdio::terminal::{Raw, size};
use orchestrator_text::escape;
use std::time::{Duration, Instant};

/// How long a screen must be visible before an answer counts.
const MOMENT: Duration = Duration::from_millis(400);
/// Rows that do not belong to the call: an empty one, the seconds left with the last message, the keys.
const FOOT: usize = 3;
/// The smallest window, in rows and columns, in which calls can be allowed: the keys must be visible.
const SMALLEST: (usize, usize) = (8, 40);

/// Shows calls one after the other until the user leaves.
pub async fn serve(queue: ApprovalQueue, proof: ConfinementProof) -> Result<(), Failed> {
    let terminal =
        |error: std::io::Error| Failed::internal(format!("cannot use the terminal: {error}"));
    let input = InputStream::stdin().map_err(terminal)?;
    let raw = Raw::enter().map_err(terminal)?;
    let dialog = Dialog {
        screen: PendingScreen::default(),
        window: Window::now(),
        since: Instant::now(),
        message: String::new(),
    };
    let signals = Signals::listen(&[SIGWINCH, SIGCONT], proof)?;
    let served = dialog.serve(queue, &input, &raw, signals).await;
    print::result(b"\x1b[2J\x1b[H")?;
    served
}

struct Dialog {
    screen: PendingScreen,
    /// The window for which the screen was drawn.
    window: Window,
    /// When the screen was drawn.
    since: Instant,
    /// A message about the last event.
    message: String,
}

impl Dialog {
    async fn serve(
        mut self,
        mut queue: ApprovalQueue,
        input: &InputStream,
        raw: &Raw,
        mut signals: Signals,
    ) -> Result<(), Failed> {
        let mut keys = [0; 64];
        self.show()?;
        loop {
            let is_changed = tokio::select! {
                event = queue.next() => self.update(event),
                number = signals.next() => {
                    // If the terminal cannot be reset it is gone, and its input ends.
                    let _ = (number == SIGCONT).then(|| raw.reenter());
                    true
                }
                read = input.read(&mut keys) => {
                    let Ok(count @ 1..) = read else { return Ok(()) };
                    // Several keys at once were not pressed with a look at the screen between them.
                    if matches!(keys[0], b'q' | 3 | 4) {
                        return Ok(());
                    }
                    count == 1 && self.press(keys[0], &queue)
                }
            };
            if is_changed {
                self.show()?;
            }
        }
    }

    /// Applies an event; returns whether the screen has to be redrawn.
    fn update(&mut self, event: QueueEvent) -> bool {
        let mut message = match &event {
            QueueEvent::SessionOpened(_, opened) => {
                Some(format!("a session in {}", opened.project))
            }
            _ => None,
        };
        let (is_another, ended) = self.screen.update(event);
        message = ended.or(message);
        let is_changed = is_another || message.is_some();
        self.message = message.unwrap_or_else(|| std::mem::take(&mut self.message));
        is_changed
    }

    /// Carries out a key; returns whether the screen has to be redrawn.
    fn press(&mut self, key: u8, queue: &ApprovalQueue) -> bool {
        let rows = self.window.rows_of_call();
        let view = &mut self.screen.view;
        match key {
            b' ' => view.forward(rows),
            b'b' => view.back(rows),
            b'e' => view.end(),
            b'y' | b'o' => return self.answer(ApprovalAnswer::Yes(Extent::Once), queue),
            b's' => return self.answer(ApprovalAnswer::Yes(Extent::Session), queue),
            b'n' => return self.answer(ApprovalAnswer::No, queue),
            _ => return false,
        }
        true
    }

    fn answer(&mut self, approval: ApprovalAnswer, queue: &ApprovalQueue) -> bool {
        let Some(first) = self.screen.first() else {
            return false;
        };
        if self.since.elapsed() < MOMENT {
            return false;
        }
        let refusal = match approval {
            ApprovalAnswer::No => None,
            ApprovalAnswer::Yes(_) => refusal(self.window, Window::now(), &self.screen.view),
        };
        self.message = match refusal {
            Some(refusal) => refusal.to_owned(),
            None => {
                queue.answer(first, approval);
                let answer = if approval == ApprovalAnswer::No {
                    "not allowed"
                } else {
                    "allowed"
                };
                format!("call {}: {answer}", first.key.1)
            }
        };
        true
    }

    fn show(&mut self) -> Result<(), Failed> {
        let window = Window::now();
        if window != self.window {
            // The pages differ now, so the user has not seen what they contain.
            (self.window, self.screen.view) = (window, PageView::default());
        }
        print::result(draw(&mut self.screen, &self.message, window).as_bytes())?;
        self.since = Instant::now();
        Ok(())
    }
}

/// Why a call cannot be allowed on this screen.
fn refusal(drawn: Window, now: Window, view: &PageView) -> Option<&'static str> {
    if drawn != now {
        return Some("the window has changed: look again");
    }
    if now.rows < SMALLEST.0 || now.columns < SMALLEST.1 {
        return Some("this window is too small to allow a call");
    }
    (!view.has_seen_end()).then_some("there is more of it: read it to its end first")
}

/// Size of the terminal in rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    rows: usize,
    columns: usize,
}

impl Window {
    fn now() -> Self {
        let (rows, columns) = size();
        Self {
            rows: rows.into(),
            columns: columns.into(),
        }
    }

    /// Rows available for a call.
    fn rows_of_call(self) -> usize {
        self.rows.saturating_sub(FOOT).max(1)
    }

    /// Usable columns of a row. The last one stays free: some terminals begin a new row as soon as a row is full.
    fn room(self) -> usize {
        self.columns.saturating_sub(1)
    }
}

fn draw(screen: &mut PendingScreen, message: &str, window: Window) -> String {
    let (rows, room) = (window.rows_of_call(), window.room());
    let mut page = String::from("\x1b[2J\x1b[H");
    let (left, prompt) = match screen.first() {
        None => (String::new(), "nothing waits    q leave".to_owned()),
        Some(first) => {
            let (lines, more) = (page::lines(first, room), screen.more());
            let left = format!("{} s left  ", page::seconds_left(first));
            let view = &mut screen.view;
            for line in view.page(&lines, rows) {
                page.push_str(line);
                page.push_str("\r\n");
            }
            let keys = match view.has_seen_end() {
                true => "y once  s session  n no",
                false => "n no   (y and s after its end)",
            };
            let position = view.position(&lines, rows);
            (
                left,
                format!("[{position}] {keys}  space/b/e page  q leave; {more} more wait"),
            )
        }
    };
    let message = escape::fitted(&format!("{left}{message}"), room);
    let prompt = escape::fitted(&prompt, room.saturating_sub(1));
    page.push_str(&format!("\r\n{message}\r\n{prompt} "));
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approver::queue::PendingCall;
    use broker_protocol::{Bash, Challenge, Channel, Command, Digest, Nonce, Request, Risk, Stdin};
    use orchestrator_results::proposal::Proposal;

    fn pending(command: &str) -> QueueEvent {
        let request = Request::Bash(Bash {
            command: Command::Shell(command.into()),
            directory: None,
            timeout_s: None,
            idle_timeout_s: None,
            stdin: Stdin::Null,
            live: false,
            background: false,
            split: false,
            attended: false,
        });
        let challenge = Challenge {
            digest: Digest([0; 32]),
            nonce: Nonce([0; 16]),
            rule: "r".into(),
            why: "w ".repeat(300),
            risk: Risk::High,
            expires_s: 60,
            channel: Channel::Separate,
            covers: broker_protocol::Coverage::Rule,
            programs: Vec::new(),
            wants: broker_protocol::Wants::default(),
        };
        let proposal = Proposal::new(&request, None);
        let (key, until) = (("s".to_owned(), 7), Instant::now());
        QueueEvent::Pending(Box::new(PendingCall {
            key,
            challenge,
            until,
            request,
            proposal,
        }))
    }

    /// The rows of a terminal that has printed `text`, with every character as wide as possible and a new row begun at once after a
    /// full one; and how often it scrolled.
    fn printed(text: &str, window: Window) -> (Vec<String>, usize) {
        let mut rows = vec![String::new()];
        let (mut column, mut moved) = (0, 0);
        for c in text.trim_start_matches("\x1b[2J\x1b[H").chars() {
            assert!(!c.is_control() || c == '\r' || c == '\n', "{c:?}");
            let width = if c.is_control() {
                0
            } else {
                orchestrator_text::characters::columns_max(c)
            };
            if c == '\r' {
                column = 0;
                continue;
            }
            if c == '\n' || column + width > window.columns {
                rows.push(String::new());
                column = if c == '\n' { column } else { 0 };
                moved += usize::from(rows.len() > window.rows);
            }
            if c != '\n' {
                column += width;
                rows.last_mut().unwrap().push(c);
            }
            if column == window.columns {
                rows.push(String::new());
                (column, moved) = (0, moved + usize::from(rows.len() > window.rows));
            }
        }
        (rows, moved)
    }

    #[test]
    fn nothing_that_a_client_says_moves_a_call_off_the_screen() {
        let wide = "日本語ไทย์์์์हिन्दी\u{301}\u{200d}\u{5d0}\t\u{1b}[2J".repeat(40);
        let project = format!(
            "a session in /{}bash (low risk), call 7: ls",
            " ".repeat(1800)
        );
        for (rows, columns) in [(8, 40), (24, 80), (24, 81), (50, 200), (10, 41)] {
            let window = Window { rows, columns };
            // The control: uncut, the message pushes the call off the screen.
            assert!(
                printed(&format!("{}{project}", "x\r\n".repeat(rows - 1)), window).1 > 0
                    || columns * rows > 2000
            );
            for command in ["ls", &wide, &"x\n".repeat(100), &"y".repeat(5000)] {
                for message in [&project, &wide, ""] {
                    let mut screen = PendingScreen::default();
                    screen.update(pending(command));
                    let (seen, moved) = printed(&draw(&mut screen, message, window), window);
                    assert_eq!(moved, 0, "{rows} x {columns}, {command:?}: {seen:#?}");
                    assert!(seen[0].starts_with("bash (high risk), call 7"), "{seen:#?}");
                    assert!(seen.len() <= rows);
                }
            }
        }
    }

    /// A command of 30 numbered lines, about which there is `wide` to say; `left` seconds are left.
    fn pending_for(left: u64, wide: usize) -> QueueEvent {
        let lines: Vec<String> = (0..30)
            .map(|number| format!("echo line-{number:02}"))
            .collect();
        let QueueEvent::Pending(mut pending) = pending(&lines.join("\n")) else {
            panic!("nothing waits")
        };
        pending.challenge.why = "w".repeat(wide);
        // The half second is for a slow machine: only whole ones are shown.
        pending.until = Instant::now() + Duration::from_secs(left) + Duration::from_millis(500);
        QueueEvent::Pending(pending)
    }

    #[test]
    fn every_line_is_on_a_page_while_the_seconds_run() {
        let window = Window {
            rows: 12,
            columns: 50,
        };
        for wide in 0..150 {
            let mut screen = PendingScreen::default();
            let mut shown = String::new();
            for left in [100, 99, 10, 9, 0] {
                let view = std::mem::take(&mut screen.view);
                screen = PendingScreen::default();
                screen.update(pending_for(left, wide));
                screen.view = view;
                let page = draw(&mut screen, "", window);
                assert!(page.contains(&format!("{left} s left")), "{page}");
                shown.push_str(&page);
                screen.view.forward(window.rows_of_call());
            }
            assert!(screen.view.has_seen_end());
            let missing: Vec<_> = (0..30)
                .map(|number| format!("line-{number:02}"))
                .filter(|line| !shown.contains(line))
                .collect();
            assert_eq!(missing, [""; 0], "{wide}");
        }
    }

    #[test]
    fn a_call_is_allowed_only_from_a_screen_that_showed_all_of_it() {
        let window = Window {
            rows: 24,
            columns: 80,
        };
        let mut screen = PendingScreen::default();
        screen.update(pending(&"x\n".repeat(100)));
        draw(&mut screen, "", window);
        assert_eq!(
            refusal(window, window, &screen.view),
            Some("there is more of it: read it to its end first")
        );
        screen.view.end();
        draw(&mut screen, "", window);
        assert_eq!(refusal(window, window, &screen.view), None);
        let other = Window {
            columns: 79,
            ..window
        };
        assert_eq!(
            refusal(window, other, &screen.view),
            Some("the window has changed: look again")
        );
        for small in [
            Window { rows: 7, ..window },
            Window {
                columns: 39,
                ..window
            },
        ] {
            assert!(refusal(small, small, &screen.view).is_some());
        }
    }
}
