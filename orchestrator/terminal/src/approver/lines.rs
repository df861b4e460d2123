//! `lazaret approve` without a terminal: each call is printed as text, each answer is a word on a line.

use crate::approver::page;
use crate::approver::queue::ApprovalQueue;
use crate::approver::screen::PendingScreen;
use broker_protocol::{Extent, Failed};
use orchestrator_engine::ApprovalAnswer;
use orchestrator_launch::stdio::line_reader::{NextLine, StdinLines};
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::streams::InputStream;
use orchestrator_text::escape;

const ROWS: usize = 200;
const COLUMNS: usize = 200;

/// Shows calls one after the other until the input ends.
pub async fn serve(mut queue: ApprovalQueue) -> Result<(), Failed> {
    let input = InputStream::stdin().map_err(|error| Failed::internal(error.to_string()))?;
    let mut lines = StdinLines::new(input);
    let mut screen = PendingScreen::default();
    loop {
        tokio::select! {
            event = queue.next() => {
                let (is_another, message) = screen.update(event);
                message.iter().for_each(|message| print::problem(message));
                if is_another {
                    show(&mut screen)?;
                }
            }
            next = lines.next() => {
                let NextLine::Line(line) = next else { return Ok(()) };
                follow(&line, &mut screen, &queue)?;
            }
        }
    }
}

fn follow(line: &[u8], screen: &mut PendingScreen, queue: &ApprovalQueue) -> Result<(), Failed> {
    let (Some(first), Some(name)) = (screen.first(), screen.name()) else {
        return Ok(());
    };
    match word(line, &name) {
        AnswerWord::Answer(ApprovalAnswer::Yes(_)) if !screen.view.has_seen_end() => {
            print::result(b"there is more of it: `more`, or `end`\n")
        }
        AnswerWord::Answer(approval) => {
            queue.answer(first, approval);
            Ok(())
        }
        AnswerWord::More => {
            screen.view.forward(ROWS);
            show(screen)
        }
        AnswerWord::End => {
            screen.view.end();
            show(screen)
        }
        AnswerWord::Unknown => {
            let name = escape::line(&name);
            print::result(format!("answer `once {name}`, `session {name}` or `no`\n").as_bytes())
        }
    }
}

fn show(screen: &mut PendingScreen) -> Result<(), Failed> {
    let (Some(first), Some(name)) = (screen.first(), screen.name()) else {
        return Ok(());
    };
    let (lines, left) = (page::lines(first, COLUMNS), page::seconds_left(first));
    let view = &mut screen.view;
    let shown = view.page(&lines, ROWS).join("\n");
    let name = escape::line(&name);
    let ask = match view.has_seen_end() {
        true => format!("once {name}, session {name} or no?"),
        false => "more, end or no?".to_owned(),
    };
    let position = view.position(&lines, ROWS);
    print::result(format!("{shown}\n[{position}, {left} s left] {ask}\n").as_bytes())
}

#[derive(Debug, PartialEq, Eq)]
enum AnswerWord {
    Answer(ApprovalAnswer),
    More,
    End,
    Unknown,
}

/// Parses a line about the call named `name`. A yes names its call, so that a late one applies to no other.
fn word(line: &[u8], name: &str) -> AnswerWord {
    let line = line.trim_ascii();
    let (word, of) = line.split_at(
        line.iter()
            .position(u8::is_ascii_whitespace)
            .unwrap_or(line.len()),
    );
    match (word, of.trim_ascii()) {
        (b"once" | b"o" | b"yes" | b"y", of) if of == name.as_bytes() => {
            AnswerWord::Answer(ApprovalAnswer::Yes(Extent::Once))
        }
        (b"session" | b"s", of) if of == name.as_bytes() => {
            AnswerWord::Answer(ApprovalAnswer::Yes(Extent::Session))
        }
        (b"no" | b"n", of) if of.is_empty() || of == name.as_bytes() => {
            AnswerWord::Answer(ApprovalAnswer::No)
        }
        (b"more" | b"m", b"") => AnswerWord::More,
        (b"end" | b"e", b"") => AnswerWord::End,
        _ => AnswerWord::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yes_names_its_call() {
        let once = AnswerWord::Answer(ApprovalAnswer::Yes(Extent::Once));
        for (line, name, want) in [
            ("once 7", "7", once),
            (
                " y 7 \r",
                "7",
                AnswerWord::Answer(ApprovalAnswer::Yes(Extent::Once)),
            ),
            (
                "session 7 81-a",
                "7 81-a",
                AnswerWord::Answer(ApprovalAnswer::Yes(Extent::Session)),
            ),
            ("once", "7", AnswerWord::Unknown),
            ("once 7", "8", AnswerWord::Unknown),
            ("once 7", "7 81-a", AnswerWord::Unknown),
            ("once 7 81-b", "7 81-a", AnswerWord::Unknown),
            ("no", "7", AnswerWord::Answer(ApprovalAnswer::No)),
            ("no 8", "7", AnswerWord::Unknown),
            ("more", "7", AnswerWord::More),
        ] {
            assert_eq!(word(line.as_bytes(), name), want, "{line} of {name}");
        }
    }
}
