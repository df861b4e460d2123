//! A conversation: what the user says, what is answered, and what the user does to the chat in between.

use crate::chat::command::{self, Line};
use crate::chat::{Chat, Prepared, code, provider_failed, streams};
use broker_protocol::{Failed, Trust};
use nix::libc::{SIGHUP, SIGINT, SIGTERM};
use orchestrator_agent::agent::{Agent, Order};
use orchestrator_agent::control::Control;
use orchestrator_agent::conversation::Conversation;
use orchestrator_agent::event::EndReason;
use orchestrator_agent::hooks::SessionHooks;
use orchestrator_agent::publish::EVENTS;
use orchestrator_agent::run::End;
use orchestrator_agent::transcript::Transcript;
use orchestrator_lines::line_reader::{Lines, Next};
use orchestrator_lines::streams::{Input, Output};
use orchestrator_options::exit;
use orchestrator_records::runlog::RunLog;
use orchestrator_session::{Config, Session};
use orchestrator_terminal::chat_follow::{Answers, Front, follow, obey};
use orchestrator_terminal::chat_screen::Screen;
use orchestrator_terminal::print;
use orchestrator_terminal::signals::Signals;
use orchestrator_text::known::redactor;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::rc::Rc;
use tokio::sync::mpsc;

/// A conversation that goes on.
pub struct Talk {
    pub agent: Agent,
    pub transcript: Option<Rc<Transcript>>,
    pub conversation: Conversation,
    /// The conversation's name.
    pub id: String,
    /// How often the user has said something.
    said: u32,
    pub trust: Trust,
    /// The sessions that this chat has had, as far as a command of the user's asked.
    pub sessions: BTreeSet<String>,
    /// Changes that the user has undone, and those that undid them.
    pub undone: BTreeSet<u64>,
}

/// Talks until the user ends it, or once; the exit code.
pub async fn talk(
    chat: &Chat,
    config: Config,
    prepared: Prepared,
    hooks: Option<Rc<SessionHooks>>,
    log: &Rc<RunLog>,
) -> Result<u8, Failed> {
    let mut signals = Signals::listen(&[SIGINT, SIGTERM, SIGHUP])?;
    let Prepared { chosen, mut settings, transcript, conversation, id, mut first, trust, .. } = prepared;
    settings.model = tokio::select! {
        model = chosen.model() => match model {
            Ok(model) => model,
            Err(error) => return Ok(provider_failed(&error)),
        },
        number = signals.next() => return Ok(exit::SIGNAL + number as u8),
    };
    let session = Session::start(config);
    let agent =
        Agent::new(session, chosen.provider, settings, transcript.clone(), redactor()).with_hooks(hooks);
    tokio::task::spawn_local(log.clone().write_later());
    let (sessions, undone) = (BTreeSet::new(), BTreeSet::new());
    let mut talk = Talk { agent, transcript, conversation, id, said: 0, trust, sessions, undone };
    let mut front = match chat.json {
        true => Front::Json(Output::stdout().map_err(streams)?),
        false => Front::Text(Screen::new().map_err(streams)?),
    };
    // Answers are a person's, who sees the question.
    let mut lines = match io::stdin().is_terminal() && io::stderr().is_terminal() && !chat.json {
        true => Some(Lines::new(Input::stdin().map_err(streams)?)),
        false => None,
    };
    let interactive = chat.is_interactive();
    loop {
        let text = match first.take() {
            Some(text) => text,
            None => match talk.next(&mut front, lines.as_mut(), &mut signals).await? {
                Some(text) => text,
                None => return Ok(exit::OK),
            },
        };
        let answers = lines.as_mut().map_or(Answers::Nobody, Answers::Person);
        let (end, signal) = talk.run(text, &mut front, answers, &mut signals).await?;
        let is_last = !interactive
            || signal.is_some_and(|number| number != SIGINT)
            || end.reason == EndReason::Violations;
        if is_last {
            return Ok(code(&end, signal));
        }
    }
}

impl Talk {
    /// What the user says next; `None` where that is nothing. Commands to the chat are obeyed meanwhile.
    async fn next(
        &mut self,
        front: &mut Front,
        lines: Option<&mut Lines>,
        signals: &mut Signals,
    ) -> Result<Option<String>, Failed> {
        let Front::Text(screen) = front else { return Ok(None) };
        let Some(lines) = lines else { return Ok(None) };
        loop {
            let Some(text) = next_text(screen, lines, signals).await? else { return Ok(None) };
            let answer = match Line::parse(text) {
                Line::Say(text) => return Ok(Some(text)),
                Line::Unknown(what) => what,
                // A signal leaves the command, and the chat goes on.
                Line::Command(command) => tokio::select! {
                    answer = command::obey(self, command) => answer,
                    _ = signals.next() => "cancelled".to_owned(),
                },
            };
            screen.answer(&answer).await.map_err(streams)?;
        }
    }

    /// One run, from what the user says to its end; the signal that ended it, if one did.
    async fn run(
        &mut self,
        text: String,
        front: &mut Front,
        answers: Answers<'_>,
        signals: &mut Signals,
    ) -> Result<(End, Option<i32>), Failed> {
        self.said += 1;
        let message = format!("{}-{}", self.id, self.said);
        let order = Order { conversation: self.id.as_str().into(), message: message.into(), text };
        let control = Control::default();
        let (sender, events) = mpsc::channel(EVENTS);
        let work = async {
            tokio::join!(
                self.agent.run(order, &mut self.conversation, &control, sender),
                follow(events, &control, front, answers)
            )
        };
        tokio::pin!(work);
        let (signal, (end, followed)) = tokio::select! {
            done = &mut work => (None, done),
            number = obey(signals, &control) => (Some(number), work.await),
        };
        if let Some(error) = self.transcript.as_ref().and_then(|transcript| transcript.take_error()) {
            print::problem(&format!("the transcript is not complete: {error}"));
        }
        followed.map(|()| (end, signal))
    }
}

/// What the user types next, of one line or of several; `None` at the end, at an empty line and at a signal.
async fn next_text(
    screen: &mut Screen,
    lines: &mut Lines,
    signals: &mut Signals,
) -> Result<Option<String>, Failed> {
    let mut text = String::new();
    loop {
        screen.prompt(!text.is_empty()).await.map_err(streams)?;
        let next = tokio::select! {
            next = lines.next() => next,
            _ = signals.next() => return Ok(None),
        };
        let line = match next {
            Next::Line(line) => String::from_utf8_lossy(&line).into_owned(),
            Next::TooLong => return Err(Failed::invalid("a line is too long".to_owned())),
            Next::End => return Ok(None),
        };
        let line = line.trim_end();
        let goes_on = line.strip_suffix('\\');
        text.push_str(goes_on.unwrap_or(line));
        match goes_on {
            Some(_) if text.len() < super::PROMPT_MAX as usize => text.push('\n'),
            Some(_) => return Err(Failed::invalid("what is said is too long".to_owned())),
            None => return Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        }
    }
}
