//! Parses what a person types in a chat: text for the model, of one or several lines, or a command to the chat itself, which no model sees.

use crate::chat_screen::Screen;
use crate::line_editor::buffer::TEXT_MAX;
use broker_protocol::{Failed, Trust};
use orchestrator_launch::stdio::line_reader::{NextLine, StdinLines};
use orchestrator_launch::stdio::print::shown;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_launch::stdio::streams::unusable;
use orchestrator_records::transcripts;
use policies::value::TrustName;

/// The commands to a chat, as help text.
pub const HELP: &str = "\
  /model [NAME]   the model of the next answers; without a name, which there are
  /trust [LEVEL]  what is asked before a call: supervised or guided; never less than now
  /undo           undo what the last call of this chat has changed with file tools
  /resume [ID]    go on with an earlier conversation; without an id, which there are
  /help           this list
  //…             say a line that begins with /
Alt-Enter, or Enter behind a \\, begins another line. Up and Ctrl-R bring back what you typed; what begins
with a space is not kept. Tab completes a command. Ctrl-C clears the line; twice, or Ctrl-D, ends the chat.";

/// Maximum number of conversations to offer for completion: the latest.
const OFFERED: usize = 10;

/// A line from the user.
#[derive(Debug, PartialEq, Eq)]
pub enum UserLine {
    /// For the model.
    Say(String),
    Command(UserCommand),
    /// An unknown command, with an explanation.
    Unknown(String),
}

/// A command of the user to the chat; without its argument, each lists or shows.
#[derive(Debug, PartialEq, Eq)]
pub enum UserCommand {
    Help,
    /// Use this model from now on.
    Model(Option<String>),
    /// Apply this level of trust from now on.
    Trust(Option<Trust>),
    /// Undo the changes of the last call.
    Undo,
    Resume(Option<String>),
}

impl UserLine {
    /// Parses a typed line. Two slashes at the start stand for a single one that the model is to see.
    pub fn parse(text: String) -> Self {
        let Some(words) = text.strip_prefix('/') else {
            return Self::Say(text);
        };
        if words.starts_with('/') {
            return Self::Say(words.to_owned());
        }
        let (name, rest) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
        let argument = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
        match (name, argument) {
            ("help", None) => Self::Command(UserCommand::Help),
            ("undo", None) => Self::Command(UserCommand::Undo),
            ("model", name) => Self::Command(UserCommand::Model(name)),
            ("resume", id) => Self::Command(UserCommand::Resume(id)),
            ("trust", None) => Self::Command(UserCommand::Trust(None)),
            ("trust", Some(level)) => match TrustName::try_from(level) {
                Ok(level) => Self::Command(UserCommand::Trust(Some(level.0))),
                Err(error) => Self::Unknown(error.to_string()),
            },
            ("help" | "undo", Some(_)) => Self::Unknown(format!("/{name} takes nothing more")),
            (name, _) => {
                let name = shown(name);
                Self::Unknown(format!(
                    "there is no /{name}, and the model was not told; /help, or //{name}"
                ))
            }
        }
    }
}

/// Completions of a partly typed command to the chat.
pub fn complete(begun: &str) -> Vec<String> {
    let with = |command: &str, words: &[&str]| -> Vec<String> {
        words
            .iter()
            .map(|word| format!("{command} {word}"))
            .collect()
    };
    let all = match begun.split_once(' ') {
        _ if !begun.starts_with('/') => Vec::new(),
        None => ["/help", "/model", "/resume", "/trust", "/undo"]
            .map(str::to_owned)
            .to_vec(),
        Some(("/trust", _)) => with("/trust", &["supervised", "guided"]),
        Some(("/resume", _)) => {
            let ids = transcripts::ids().unwrap_or_default();
            let newest = ids.iter().rev().take(OFFERED).map(String::as_str);
            with(
                "/resume",
                &["last"].into_iter().chain(newest).collect::<Vec<_>>(),
            )
        }
        Some(_) => Vec::new(),
    };
    all.into_iter()
        .filter(|whole| whole.starts_with(begun))
        .collect()
}

/// The user's next text, of one or several lines, if the terminal edits lines itself; `None` at the end, at an empty line and at a signal.
///
/// # Errors
/// If the terminal fails, or more than [`TEXT_MAX`] bytes are typed.
pub async fn next_text(
    screen: &mut Screen,
    lines: &mut StdinLines,
    signals: &mut Signals,
) -> Result<Option<String>, Failed> {
    let mut text = String::new();
    loop {
        screen.prompt(!text.is_empty()).await.map_err(unusable)?;
        let next = tokio::select! {
            next = lines.next() => next,
            _ = signals.next() => return Ok(None),
        };
        let line = match next {
            NextLine::Line(line) => String::from_utf8_lossy(&line).into_owned(),
            NextLine::TooLong => return Err(Failed::invalid("a line is too long".to_owned())),
            NextLine::End => return Ok(None),
        };
        let line = line.trim_end();
        let goes_on = line.strip_suffix('\\');
        text.push_str(goes_on.unwrap_or(line));
        match goes_on {
            Some(_) if text.len() < TEXT_MAX => text.push('\n'),
            Some(_) => return Err(Failed::invalid("what is said is too long".to_owned())),
            None => return Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_is_for_the_chat_and_two_are_for_the_model() {
        let parse = |text: &str| UserLine::parse(text.to_owned());
        let say = |text: &str| UserLine::Say(text.to_owned());
        assert_eq!(parse("look at a/b"), say("look at a/b"));
        assert_eq!(parse("//etc/hosts is wrong"), say("/etc/hosts is wrong"));
        assert_eq!(parse("/help"), UserLine::Command(UserCommand::Help));
        assert_eq!(
            parse("/model  small "),
            UserLine::Command(UserCommand::Model(Some("small".into())))
        );
        assert_eq!(
            parse("/trust ask"),
            UserLine::Command(UserCommand::Trust(Some(Trust::Supervised)))
        );
        assert_eq!(
            parse("/resume"),
            UserLine::Command(UserCommand::Resume(None))
        );
        for wrong in [
            "/",
            "/etc/hosts is wrong",
            "/undo all",
            "/trust none",
            "/Model x",
            "/\u{1b}[2J",
        ] {
            let UserLine::Unknown(why) = parse(wrong) else {
                panic!("{wrong:?} is taken")
            };
            assert!(!why.contains('\u{1b}'), "{why:?}");
        }
    }
}
