//! Commands that a person types to the chat itself: lines that begin with `/`. None of them reaches the model.

use crate::chat::talk::Talk;
use crate::undo;
use broker_protocol::{Failed, History, Request, Roots, Trust, limit};
use orchestrator_agent::conversation::Conversation;
use orchestrator_agent::error::ProviderError;
use orchestrator_agent::message::Message;
use orchestrator_agent::provider::no_tools;
use orchestrator_agent::transcript::{Recorded, Transcript};
use orchestrator_launch::stdio::print::{row, shown};
use orchestrator_launch::stdio::typed;
use orchestrator_records::transcripts;
use orchestrator_results::metadata::Changed;
use orchestrator_terminal::chat_command::{HELP, UserCommand};
use orchestrator_text::known::redactor;
use std::rc::Rc;

/// Most names that a list shows.
const LISTED: usize = 20;

/// Carries out a command to the chat; returns the text to print.
pub(super) async fn obey(talk: &mut Talk, command: UserCommand) -> String {
    let done = match command {
        UserCommand::Help => Ok(HELP.to_owned()),
        UserCommand::Model(None) => models(talk).await.map_err(|error| error.to_string()),
        UserCommand::Model(Some(name)) => {
            model(talk, name).await.map_err(|error| error.to_string())
        }
        UserCommand::Trust(None) => Ok(format!("  {}", talk.trust.name())),
        UserCommand::Trust(Some(trust)) => lower_trust(talk, trust)
            .await
            .map_err(|failed| failed.message),
        UserCommand::Undo => undo_last(talk).await.map_err(|failed| failed.message),
        UserCommand::Resume(None) => conversations(talk).map_err(|failed| failed.message),
        UserCommand::Resume(Some(id)) => resume(talk, &id).map_err(|failed| failed.message),
    };
    let answer = done.unwrap_or_else(|why| format!("lazaret: {}", shown(&why)));
    // A server that echoes keys may have one in the name of a model.
    redactor().text(&answer).into_owned()
}

async fn models(talk: &Talk) -> Result<String, ProviderError> {
    let models = talk.agent.provider().models().await?;
    let mut names: Vec<String> = models
        .iter()
        .filter(|model| model.chat)
        .map(|model| row(&model.id))
        .collect();
    names.sort();
    let more = names.len().saturating_sub(LISTED);
    names.truncate(LISTED);
    let mut list = format!("  {} answers; there are\n", row(talk.agent.model()));
    names
        .iter()
        .for_each(|name| list.push_str(&format!("    {name}\n")));
    if more > 0 {
        list.push_str(&format!(
            "    … {more} more: lazaret models --provider {provider}\n",
            provider = talk.agent.provider().name()
        ));
    }
    Ok(list)
}

async fn model(talk: &mut Talk, name: String) -> Result<String, ProviderError> {
    let model = talk.agent.provider().model(&name).await?;
    if model.supports_tools == Some(false) {
        return Err(no_tools(&**talk.agent.provider(), &model).await);
    }
    talk.agent.set_model(name);
    Ok(format!("  {} answers from now on", row(talk.agent.model())))
}

/// Lowers the trust. The executor never raises the trust of an open session: a chat that asks less has to be a new one.
async fn lower_trust(talk: &mut Talk, trust: Trust) -> Result<String, Failed> {
    if trust > talk.trust {
        let (id, name) = (&talk.id, trust.name());
        return Err(Failed::invalid(format!(
            "an open chat is never asked less; end this one, then: lazaret chat --trust {name} --resume {id}"
        )));
    }
    if trust < talk.trust {
        let opened = talk.agent.session().open().await?;
        talk.sessions.insert(opened.session);
        talk.agent.session().lower_trust(trust);
        talk.trust = trust;
    }
    Ok(format!("  {} from the next call on", trust.name()))
}

/// Undoes this chat's last call that changed files and is not undone yet.
async fn undo_last(talk: &mut Talk) -> Result<String, Failed> {
    let session = talk.agent.session();
    let opened = session.open().await?;
    talk.sessions.insert(opened.session.clone());
    let roots = Roots {
        project: opened.project,
        central: opened.central,
    };
    let wanted = || {
        Request::History(History {
            limit: limit::CHANGES,
        })
    };
    let history = typed::ask(session, "chat", wanted()).await?;
    let changes = history.changes().ok_or_else(|| failed(&history))?;
    let mine =
        |one: &&Changed| talk.sessions.contains(&one.session) && !talk.undone.contains(&one.number);
    let Some(last) = changes.iter().filter(mine).max_by_key(|one| one.number) else {
        return Ok(
            "  this chat has changed nothing more; `lazaret history` lists what others did"
                .to_owned(),
        );
    };
    let (of, call) = (last.session.clone(), last.call);
    let mut meant: Vec<&Changed> = changes
        .iter()
        .filter(mine)
        .filter(|one| one.session == of && one.call == call)
        .collect();
    meant.sort_by_key(|one| std::cmp::Reverse(one.number));
    let mut answer = String::new();
    for change in meant {
        let result = typed::ask(
            session,
            "chat",
            undo::request(&roots, changes, change.number, false)?,
        )
        .await?;
        if result.error.is_some() {
            answer.push_str(&format!("lazaret: {}\n", shown(&failed(&result).message)));
            break;
        }
        talk.undone.insert(change.number);
        answer.push_str(&format!(
            "  {}\n",
            shown(&String::from_utf8_lossy(&result.text))
        ));
    }
    // An undo is a change too, but `/undo` must not select it as the last change.
    let after = typed::ask(session, "chat", wanted()).await?;
    let numbers = |changes: &[Changed]| changes.iter().map(|one| one.number).collect::<Vec<_>>();
    let newest = numbers(changes).into_iter().max().unwrap_or_default();
    let after = numbers(after.changes().unwrap_or_default());
    talk.undone
        .extend(after.into_iter().filter(|one| *one > newest));
    Ok(answer)
}

fn failed(result: &orchestrator_engine::CallResult) -> Failed {
    result
        .error
        .clone()
        .unwrap_or_else(|| Failed::internal("the executor gave no list of changes".to_owned()))
}

fn conversations(talk: &Talk) -> Result<String, Failed> {
    let ids = others(talk)?;
    if ids.is_empty() {
        return Ok("  there is no other conversation".to_owned());
    }
    let mut list = String::new();
    for id in ids.iter().rev().take(LISTED) {
        // A conversation removed in the meantime has no first words.
        let first = transcripts::recorded(id)
            .ok()
            .and_then(|text| first_words(&Recorded::read(&text).messages));
        list.push_str(&format!("  {id}  {}\n", row(&first.unwrap_or_default())));
    }
    Ok(list)
}

fn resume(talk: &mut Talk, id: &str) -> Result<String, Failed> {
    let last = match id {
        "last" => others(talk)?.pop(),
        id => Some(id.to_owned()),
    };
    let id = last.ok_or_else(|| Failed::invalid("there is no other conversation".to_owned()))?;
    if id == talk.id {
        return Ok("  this is that conversation".to_owned());
    }
    if talk.transcript.is_none() {
        return Err(Failed::invalid(
            "this chat keeps no transcript, and reads none".to_owned(),
        ));
    }
    let opened = transcripts::resume(&id)?;
    let transcript = Rc::new(Transcript::resume(
        Box::new(opened.file),
        redactor(),
        opened.bytes,
    ));
    talk.agent.set_transcript(transcript.clone());
    talk.transcript = Some(transcript);
    talk.conversation = Conversation::of(Recorded::read(&opened.text).messages);
    talk.id = opened.id;
    let count = talk
        .conversation
        .messages
        .iter()
        .filter(|one| matches!(one, Message::User { .. }))
        .count();
    Ok(format!("  Resumed {} ({count} of your messages)", talk.id))
}

/// The other conversations, oldest first.
fn others(talk: &Talk) -> Result<Vec<String>, Failed> {
    let ids = transcripts::ids()
        .map_err(|error| Failed::internal(format!("the transcripts cannot be listed: {error}")))?;
    Ok(ids.into_iter().filter(|id| *id != talk.id).collect())
}

/// The beginning of the user's first message.
fn first_words(messages: &[Message]) -> Option<String> {
    const WORDS: usize = 50;
    messages.iter().find_map(|message| match message {
        Message::User { text } => Some(text.chars().take(WORDS).collect()),
        Message::Assistant { .. } | Message::Tools { .. } => None,
    })
}
