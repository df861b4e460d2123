//! Follows a run: sends its events to the front end, and takes answers and signals from the user.

use crate::chat_screen::{Screen, no_answer};
use broker_protocol::Failed;
use orchestrator_agent::control::RunControl;
use orchestrator_agent::event::{ChatEvent, ChatEventBody, Confirm};
use orchestrator_launch::stdio::line_reader::{NextLine, StdinLines};
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_launch::stdio::streams::OutputStream;
use orchestrator_launch::stdio::terminal;
use orchestrator_text::coverage::answered_elsewhere;
use orchestrator_wire::approval::{Answer, Minutes};
use std::collections::VecDeque;
use std::io;
use tokio::sync::mpsc;

/// The front end for events.
pub enum Front {
    /// A person, or a pipe that expects text.
    Text(Screen),
    /// A program, which gets a line of JSON for each event.
    Json(OutputStream),
}

/// Who answers approval questions.
pub enum Answers<'a> {
    /// A person at a terminal.
    Person(&'a mut StdinLines),
    /// Nobody: the answer to each question is no.
    Nobody,
}

impl Front {
    async fn show(&mut self, event: &ChatEvent) -> io::Result<()> {
        match self {
            Front::Text(screen) => screen.show(event).await,
            Front::Json(out) => {
                out.write_all(format!("{}\n", event.to_json()).as_bytes())
                    .await
            }
        }
    }

    /// Asks a person. Discards earlier input, which cannot be an answer.
    async fn question(&mut self, confirm: &Confirm, answers: &mut Answers<'_>) -> io::Result<()> {
        if let Answers::Person(lines) = answers {
            terminal::discard_input();
            lines.discard();
        }
        match self {
            Front::Text(screen) => screen.question(confirm).await,
            Front::Json(_) => Ok(()),
        }
    }

    fn has_shown_all(&self) -> bool {
        match self {
            Front::Text(screen) => screen.has_shown_all(),
            Front::Json(_) => true,
        }
    }

    fn is_armed(&self) -> bool {
        match self {
            Front::Text(screen) => screen.is_armed(),
            Front::Json(_) => true,
        }
    }

    /// Shows more of the question. Discards earlier input, which cannot be an answer to that.
    async fn more(&mut self, answers: &mut Answers<'_>) -> io::Result<()> {
        if let Answers::Person(lines) = answers {
            terminal::discard_input();
            lines.discard();
        }
        match self {
            Front::Text(screen) => screen.more().await,
            Front::Json(_) => Ok(()),
        }
    }

    async fn problem(&mut self, message: &str) -> io::Result<()> {
        match self {
            Front::Text(screen) => screen.problem(message).await,
            Front::Json(_) => {
                print::problem(message);
                Ok(())
            }
        }
    }
}

/// Shows all events and has questions answered. If the output closes, the run is cancelled.
pub async fn follow(
    mut events: mpsc::Receiver<ChatEvent>,
    control: &RunControl,
    front: &mut Front,
    mut answers: Answers<'_>,
) -> Result<(), Failed> {
    let mut asked: VecDeque<Confirm> = VecDeque::new();
    loop {
        let step = tokio::select! {
            event = events.recv() => match event {
                Some(event) => take(&event, control, front, &mut answers, &mut asked).await,
                None => return Ok(()),
            },
            line = next_line(&mut answers), if !asked.is_empty() => {
                answer(line, control, front, &mut answers, &mut asked).await
            }
        };
        if let Err(error) = step {
            control.cancel();
            // Nobody reads the remaining events, but the run waits until they are received.
            while events.recv().await.is_some() {}
            return match error.kind() {
                io::ErrorKind::BrokenPipe => Ok(()),
                _ => Err(Failed::internal(format!(
                    "cannot write the output: {error}"
                ))),
            };
        }
    }
}

async fn take(
    event: &ChatEvent,
    control: &RunControl,
    front: &mut Front,
    answers: &mut Answers<'_>,
    asked: &mut VecDeque<Confirm>,
) -> io::Result<()> {
    front.show(event).await?;
    match &event.body {
        ChatEventBody::ToolConfirm(confirm) if confirm.asked.channel == "separate" => {
            let asked = &confirm.asked;
            let message = answered_elsewhere(asked.expires_s, &asked.why, &asked.rule, asked.risk);
            front.problem(&message).await
        }
        ChatEventBody::ToolConfirm(confirm) => match answers {
            Answers::Person(_) => {
                asked.push_back((**confirm).clone());
                if asked.len() == 1 {
                    front.question(confirm, answers).await
                } else {
                    Ok(())
                }
            }
            Answers::Nobody => {
                // A call that has ended by now needs no answer.
                let _ = control
                    .approve(&confirm.tool_id, confirm.part, Answer::No, None)
                    .await;
                let tool = &confirm.tool_name;
                let message =
                    format!("{tool} needs an approval, and nobody is here to give it: see --trust");
                front.problem(&message).await
            }
        },
        ChatEventBody::ToolResult(result) => {
            let was_first = asked
                .front()
                .is_some_and(|first| first.tool_id == result.tool_id);
            asked.retain(|other| other.tool_id != result.tool_id);
            match asked.front() {
                Some(next) if was_first => front.question(next, answers).await,
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

async fn next_line(answers: &mut Answers<'_>) -> NextLine {
    match answers {
        Answers::Person(lines) => lines.next().await,
        Answers::Nobody => std::future::pending().await,
    }
}

async fn answer(
    line: NextLine,
    control: &RunControl,
    front: &mut Front,
    answers: &mut Answers<'_>,
    asked: &mut VecDeque<Confirm>,
) -> io::Result<()> {
    let Some(confirm) = asked.front() else {
        return Ok(());
    };
    let word = match line {
        NextLine::Line(line) => String::from_utf8_lossy(&line).trim().to_lowercase(),
        NextLine::TooLong => String::new(),
        // The person is gone.
        NextLine::End => "q".to_owned(),
    };
    let answer = match parse(&word, confirm) {
        Some(no @ (Answer::No | Answer::NoAndStop)) => no,
        _ if !front.has_shown_all() => return front.more(answers).await,
        Some(Answer::Once | Answer::Session | Answer::Minutes(_)) if !front.is_armed() => {
            front
                .problem("that came too soon to be an answer to this question")
                .await?;
            return front.question(confirm, answers).await;
        }
        Some(yes) => yes,
        None => {
            front.problem(&no_answer(confirm)).await?;
            return front.question(confirm, answers).await;
        }
    };
    // A call that has ended by now needs no answer.
    let _ = control
        .approve(
            &confirm.tool_id,
            confirm.part,
            answer,
            Some(&confirm.asked.digest),
        )
        .await;
    asked.pop_front();
    match asked.front() {
        Some(next) => front.question(next, answers).await,
        None => Ok(()),
    }
}

/// The answer that a person typed, if the question has it.
fn parse(word: &str, confirm: &Confirm) -> Option<Answer> {
    match word {
        "n" | "no" => Some(Answer::No),
        "q" | "quit" => Some(Answer::NoAndStop),
        // The question of `lazaret run` takes the same words.
        "y" | "yes" | "o" | "once" => Some(Answer::Once),
        "s" | "session" => (confirm.asked.session != "once").then_some(Answer::Session),
        other => {
            let minutes = other.strip_prefix("m ")?.trim().parse::<u16>().ok()?;
            confirm.asked.wants.as_ref()?;
            Minutes::try_from(minutes).ok().map(Answer::Minutes)
        }
    }
}

/// Handles signals: the first Ctrl-C cancels the calls in progress, or the run if there are none; a second one, and every other
/// signal, cancels the run. Returns the number of the signal that ended the run, and only then.
pub async fn obey_signals(signals: &mut Signals, control: &RunControl) -> i32 {
    let mut interrupted = false;
    loop {
        let number = signals.next().await;
        if number == nix::libc::SIGINT
            && !std::mem::replace(&mut interrupted, true)
            && control.cancel_calls()
        {
            continue;
        }
        control.cancel();
        return number;
    }
}
