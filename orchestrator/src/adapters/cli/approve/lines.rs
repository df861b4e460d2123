//! `lazaret approve` without a terminal: each call as text, each answer as a word on a line.

use super::desk::{Desk, News, Waiting};
use super::page::{self, View};
use crate::adapters::cli::say;
use crate::adapters::cli::session::reader::{Lines, Next};
use crate::adapters::cli::streams::Input;
use crate::ports::Approval;
use broker_protocol::{Extent, Failed};
use std::collections::VecDeque;

/// Lines shown at once.
const ROWS: usize = 200;
/// Characters of a line.
const COLUMNS: usize = 200;

/// Shows calls one after the other until the input ends.
pub async fn serve(mut desk: Desk) -> Result<(), Failed> {
    let input = Input::stdin().map_err(|error| say::internal(error.to_string()))?;
    let mut lines = Lines::new(input);
    let (mut waiting, mut view) = (VecDeque::<Waiting>::new(), View::default());
    loop {
        tokio::select! {
            news = desk.next() => {
                let before = waiting.front().map(|first| first.key.clone());
                note(news, &mut waiting);
                if waiting.front().map(|first| &first.key) != before.as_ref() {
                    view = View::default();
                    show(&waiting, &mut view)?;
                }
            }
            next = lines.next() => {
                let Next::Line(line) = next else { return Ok(()) };
                let Some(first) = waiting.front() else { continue };
                match word(&line) {
                    Word::Answer(Approval::Yes(_)) if !view.has_seen_end() => {
                        say::result(b"there is more of it: `more`, or `end`\n")?;
                    }
                    Word::Answer(approval) => desk.answer(first, approval),
                    Word::More => {
                        view.forward(ROWS);
                        show(&waiting, &mut view)?;
                    }
                    Word::End => {
                        view.end();
                        show(&waiting, &mut view)?;
                    }
                    Word::Unknown => say::result(b"answer `once`, `session` or `no`\n")?,
                }
            }
        }
    }
}

fn note(news: News, waiting: &mut VecDeque<Waiting>) {
    match news {
        News::Asked(asked) => waiting.push_back(*asked),
        News::Ended(key, _) => waiting.retain(|waiting| waiting.key != key),
        News::Over(session, error) => {
            waiting.retain(|waiting| waiting.key.0 != session);
            say::problem(&super::over(&session, &error));
        }
        News::NotTaken(_, not) => say::problem(&format!("the answer was not taken: {}", not.fault)),
        News::Session(..) | News::Grants(..) => {}
    }
}

fn show(waiting: &VecDeque<Waiting>, view: &mut View) -> Result<(), Failed> {
    let Some(first) = waiting.front() else { return Ok(()) };
    let lines = page::lines(first, COLUMNS);
    let shown = view.shown(&lines, ROWS).join("\n");
    let ask = if view.has_seen_end() { "once, session or no?" } else { "more, end or no?" };
    say::result(format!("{shown}\n[{}] {ask}\n", view.place(&lines, ROWS)).as_bytes())
}

enum Word {
    Answer(Approval),
    More,
    End,
    Unknown,
}

fn word(line: &[u8]) -> Word {
    match line.trim_ascii() {
        b"once" | b"yes" | b"y" => Word::Answer(Approval::Yes(Extent::Once)),
        b"session" | b"s" => Word::Answer(Approval::Yes(Extent::Session)),
        b"no" | b"n" => Word::Answer(Approval::No),
        b"more" | b"m" => Word::More,
        b"end" | b"e" => Word::End,
        _ => Word::Unknown,
    }
}
