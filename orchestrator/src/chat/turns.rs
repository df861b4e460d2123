//! The turns of user and model, and the user's commands to the chat between them.

use crate::chat::choice::ChosenModel;
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
use orchestrator_agent::settings::RunSettings;
use orchestrator_agent::transcript::Transcript;
use orchestrator_confine::ConfinementProof;
use orchestrator_engine::Session;
use orchestrator_launch::exit;
use orchestrator_launch::hooks::UserHooks;
use orchestrator_launch::launch::ErrorForm;
use orchestrator_launch::runlog::{PAUSE, RunLog};
use orchestrator_launch::stdio::line_reader::StdinLines;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_launch::stdio::streams::{InputStream, OutputStream, unusable};
use orchestrator_mcp_client::SessionServers;
use orchestrator_terminal::chat_command::UserLine;
use orchestrator_terminal::chat_follow::{Answers, Front};
use orchestrator_terminal::chat_prompt::{BeforeConfined, Prompt};
use orchestrator_terminal::chat_screen::Screen;
use orchestrator_text::known::redactor;
use orchestrator_tools::ToolConfig;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::rc::Rc;

/// Everything that a chat reads before we confine ourselves.
pub(super) struct ChatStart {
    pub chosen: ChosenModel,
    pub settings: RunSettings,
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
pub(super) async fn converse(
    config: ToolConfig,
    beginning: ChatStart,
    (hooks, servers): (Option<Rc<SessionHooks>>, &SessionServers),
    log: &Rc<RunLog>,
    proof: ConfinementProof,
) -> Result<u8, Failed> {
    let mut signals = Signals::listen(&[SIGINT, SIGTERM, SIGHUP], proof)?;
    let ChatStart {
        chosen,
        mut settings,
        transcript,
        conversation,
        id,
        first,
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
    let talk = Talk {
        agent,
        transcript,
        conversation,
        id,
        messages: 0,
        trust,
        sessions: BTreeSet::new(),
        undone: BTreeSet::new(),
    };
    let turns = Turns {
        talk,
        front: front(json)?,
        person: person(json, prompt, proof)?,
        signals,
    };
    turns.take(first, interactive, max_turns).await
}

fn front(json: bool) -> Result<Front, Failed> {
    Ok(match json {
        true => Front::Json(OutputStream::stdout().map_err(unusable)?),
        false => Front::Text(Screen::new().map_err(unusable)?),
    })
}

/// The person who answers questions, if one sees them.
fn person(
    json: bool,
    prompt: Option<BeforeConfined>,
    proof: ConfinementProof,
) -> Result<Option<Prompt>, Failed> {
    if json || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(None);
    }
    let lines = StdinLines::new(InputStream::stdin().map_err(unusable)?);
    Prompt::new(lines, prompt, proof).map(Some)
}

/// A chat whose model and session are ready.
struct Turns {
    talk: Talk,
    front: Front,
    person: Option<Prompt>,
    signals: Signals,
}

impl Turns {
    /// Runs on each message of the user: after `first`, if there is one, those that a person types.
    async fn take(
        mut self,
        mut first: Option<String>,
        interactive: bool,
        max_turns: u32,
    ) -> Result<u8, Failed> {
        let (front, signals) = (&mut self.front, &mut self.signals);
        loop {
            let text = match first.take() {
                Some(text) => text,
                None => match next(&mut self.talk, front, self.person.as_mut(), signals).await? {
                    Some(text) => text,
                    None => return Ok(exit::OK),
                },
            };
            let answers = self
                .person
                .as_mut()
                .map_or(Answers::Nobody, |person| Answers::Person(person.lines()));
            let (end, signal) = self.talk.run(text, front, answers, signals).await?;
            say_limit(&end, max_turns);
            let is_last = !interactive
                || signal.is_some_and(|number| number != SIGINT)
                || end.reason == EndReason::Violations;
            if is_last {
                return Ok(code(&end, signal));
            }
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
        let answer = match UserLine::parse(text) {
            UserLine::Say(text) => return Ok(Some(text)),
            UserLine::Unknown(what) => what,
            // A signal interrupts the command; the chat goes on.
            UserLine::Command(command) => tokio::select! {
                answer = command::obey(talk, command) => answer,
                _ = signals.next() => "cancelled".to_owned(),
            },
        };
        screen.answer(&answer).await.map_err(unusable)?;
    }
}
