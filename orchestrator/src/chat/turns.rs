//! The turns of user and model, and the user's commands to the chat between them.

use crate::chat::choice::Chosen;
use crate::chat::command;
use crate::chat::config::Engines;
use crate::chat::ended::{code, provider_failed, say_limit};
use crate::chat::run_lines::run_lines;
use crate::chat::talk::Talk;
use broker_protocol::{Failed, Trust};
use nix::libc::{SIGHUP, SIGINT, SIGTERM};
use orchestrator_agent::agent::Agent;
use orchestrator_agent::conversation::Conversation;
use orchestrator_agent::event::EndReason;
use orchestrator_agent::hooks::SessionHooks;
use orchestrator_agent::settings::Settings;
use orchestrator_agent::transcript::Transcript;
use orchestrator_confine::ConfinementProof;
use orchestrator_engine::Session;
use orchestrator_launch::exit;
use orchestrator_launch::hooks::UserHooks;
use orchestrator_launch::launch::ErrorForm;
use orchestrator_launch::runlog::{PAUSE, RunLog};
use orchestrator_launch::stdio::line_reader::Lines;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_launch::stdio::streams::{Input, Output, unusable};
use orchestrator_mcp_client::SessionServers;
use orchestrator_terminal::chat_command::Line;
use orchestrator_terminal::chat_follow::{Answers, Front};
use orchestrator_terminal::chat_prompt::{BeforeConfined, Prompt};
use orchestrator_terminal::chat_screen::Screen;
use orchestrator_text::known::redactor;
use orchestrator_tools::Config;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::rc::Rc;

/// Everything that a chat reads before we confine ourselves.
pub struct Beginning {
    pub chosen: Chosen,
    pub settings: Settings,
    pub transcript: Option<Rc<Transcript>>,
    pub conversation: Conversation,
    pub id: String,
    /// The user's first message, if the command line or standard input gave it.
    pub first: Option<String>,
    pub engines: Engines,
    pub hooks: UserHooks,
    pub trust: Trust,
    /// Whether events are printed as JSON.
    pub json: bool,
    /// The line editor of a person who types the later messages.
    pub prompt: Option<BeforeConfined>,
}

/// Talks until the user ends the chat, or answers once; returns the exit code.
pub async fn talk(
    config: Config,
    beginning: Beginning,
    (hooks, servers): (Option<Rc<SessionHooks>>, &SessionServers),
    log: &Rc<RunLog>,
    proof: ConfinementProof,
) -> Result<u8, Failed> {
    let mut signals = Signals::listen(&[SIGINT, SIGTERM, SIGHUP], proof)?;
    let Beginning {
        chosen,
        mut settings,
        transcript,
        conversation,
        id,
        mut first,
        trust,
        json,
        prompt,
        ..
    } = beginning;
    let (interactive, max_turns) = (prompt.is_some(), settings.max_turns);
    settings.model = tokio::select! {
        model = chosen.model() => match model {
            Ok(model) => model,
            Err(error) => return Ok(provider_failed(&error, &ErrorForm::chat(json))),
        },
        number = signals.next() => return Ok(exit::SIGNAL + number as u8),
    };
    let session = Session::start(config, proof);
    servers.follow(&session);
    let agent = Agent::new(
        session,
        chosen.provider,
        settings,
        transcript.clone(),
        redactor(),
    )
    .with_hooks(hooks)
    .with_record(run_lines(log.clone()));
    tokio::task::spawn_local(log.clone().write_later(PAUSE));
    let (sessions, undone) = (BTreeSet::new(), BTreeSet::new());
    let mut talk = Talk {
        agent,
        transcript,
        conversation,
        id,
        messages: 0,
        trust,
        sessions,
        undone,
    };
    let mut front = match json {
        true => Front::Json(Output::stdout().map_err(unusable)?),
        false => Front::Text(Screen::new().map_err(unusable)?),
    };
    // Only a person who sees the question may answer it.
    let mut person = match io::stdin().is_terminal() && io::stderr().is_terminal() && !json {
        true => Some(Prompt::new(
            Lines::new(Input::stdin().map_err(unusable)?),
            prompt,
            proof,
        )?),
        false => None,
    };
    loop {
        let text = match first.take() {
            Some(text) => text,
            None => match next(&mut talk, &mut front, person.as_mut(), &mut signals).await? {
                Some(text) => text,
                None => return Ok(exit::OK),
            },
        };
        let answers = person
            .as_mut()
            .map_or(Answers::Nobody, |person| Answers::Person(person.lines()));
        let (end, signal) = talk.run(text, &mut front, answers, &mut signals).await?;
        say_limit(&end, max_turns);
        let is_last = !interactive
            || signal.is_some_and(|number| number != SIGINT)
            || end.reason == EndReason::Violations;
        if is_last {
            return Ok(code(&end, signal));
        }
    }
}

/// The user's next message; `None` at the end of input. Carries out commands to the chat that come before it.
async fn next(
    talk: &mut Talk,
    front: &mut Front,
    person: Option<&mut Prompt>,
    signals: &mut Signals,
) -> Result<Option<String>, Failed> {
    let Front::Text(screen) = front else {
        return Ok(None);
    };
    let Some(person) = person else {
        return Ok(None);
    };
    loop {
        let Some(text) = person.next_text(screen, signals).await? else {
            return Ok(None);
        };
        let answer = match Line::parse(text) {
            Line::Say(text) => return Ok(Some(text)),
            Line::Unknown(what) => what,
            // A signal interrupts the command; the chat goes on.
            Line::Command(command) => tokio::select! {
                answer = command::obey(talk, command) => answer,
                _ = signals.next() => "cancelled".to_owned(),
            },
        };
        screen.answer(&answer).await.map_err(unusable)?;
    }
}
