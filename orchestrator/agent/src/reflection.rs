//! What a model may learn of its own conversation, and change in it: its thoughts, its skills, where it begins.

use crate::conversation::Conversation;
use crate::message::{Message, MessagePart};
use orchestrator_text::utf8::beginning;
use orchestrator_tools::agent_call::{HotSwap, ReadReasoning};
use std::fmt::Write;

/// Thoughts that one call returns if it names no number.
const TRACES: u32 = 5;
/// Maximum bytes of one of several thoughts.
const TRACE_MAX: usize = 8 << 10;
/// Maximum bytes of all archived thoughts of a conversation; the oldest are dropped.
const ARCHIVE_MAX: usize = 1 << 20;
/// Maximum bytes of the user's messages with which a conversation begins anew; the oldest are dropped.
const BEGINNING_MAX: usize = 64 << 10;

/// What calls about the agent itself read, and what they want.
#[derive(Debug, Default)]
pub(crate) struct Reflection {
    pub(crate) thoughts: Thoughts,
    pub(crate) swap: Option<HotSwap>,
}

/// The thoughts of a conversation, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Thoughts {
    all: Vec<String>,
    /// How many of them are of messages that are gone.
    archived: usize,
}

impl Thoughts {
    pub(crate) fn of(conversation: &Conversation) -> Self {
        let mut all = conversation.archived.clone();
        let archived = all.len();
        all.extend(conversation.messages.iter().filter_map(thought));
        Self { all, archived }
    }

    /// Those that are asked for, newest first, each with its number.
    pub(crate) fn read(&self, asked: &ReadReasoning) -> Result<String, String> {
        let numbered = || self.all.iter().enumerate().map(|(at, text)| (at + 1, text));
        if let Some(id) = asked.trace_id {
            let found = numbered().find(|(number, _)| *number == id as usize);
            let (number, text) = found
                .ok_or_else(|| format!("there is no thought {id}; there are {}", self.all.len()))?;
            return Ok(self.describe(number, text, usize::MAX));
        }
        let first = if asked.include_archived {
            0
        } else {
            self.archived
        };
        let limit = asked.limit.unwrap_or(TRACES) as usize;
        let shown: Vec<_> = numbered()
            .skip(first)
            .map(|(number, text)| self.describe(number, text, TRACE_MAX))
            .collect();
        if shown.is_empty() {
            return Ok("no thoughts; a model's thoughts are there if it shows any".to_owned());
        }
        Ok(shown
            .iter()
            .rev()
            .take(limit)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n\n"))
    }

    fn describe(&self, number: usize, text: &str, max: usize) -> String {
        let archived = if number <= self.archived {
            " (archived)"
        } else {
            ""
        };
        let begun = beginning(text, max);
        let mut shown = format!("thought {number}{archived}:\n{begun}");
        if begun.len() < text.len() {
            // A `String` takes any text.
            let _ = write!(
                shown,
                "\n[cut; `trace_id` {number} returns all {} bytes]",
                text.len()
            );
        }
        shown
    }
}

fn thought(message: &Message) -> Option<String> {
    let Message::Assistant { parts } = message else {
        return None;
    };
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| match part {
            MessagePart::Thinking { text, .. } if !text.trim().is_empty() => Some(text.as_str()),
            MessagePart::Thinking { .. }
            | MessagePart::Text { .. }
            | MessagePart::Sealed { .. }
            | MessagePart::ToolCall(_) => None,
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// Removes all messages and archives their thoughts; returns the message with which the conversation begins anew.
pub(crate) fn begin_anew(conversation: &mut Conversation) -> Message {
    let thoughts = Thoughts::of(conversation).all;
    let mut room = ARCHIVE_MAX;
    let kept = thoughts
        .iter()
        .rev()
        .take_while(|text| {
            let fits = text.len() <= room;
            room = room.saturating_sub(text.len());
            fits
        })
        .count();
    conversation.archived = thoughts[thoughts.len() - kept..].to_vec();
    let message = Message::user(said_by_user(&conversation.messages));
    conversation.messages.clear();
    message
}

/// What the user has said, as one text; of too much the end.
fn said_by_user(messages: &[Message]) -> String {
    let texts = messages.iter().rev().filter_map(|message| match message {
        Message::User { text } => Some(text.as_str()),
        Message::Assistant { .. } | Message::Tools { .. } => None,
    });
    let mut said: Vec<&str> = Vec::new();
    let mut room = BEGINNING_MAX;
    for text in texts {
        let fits = beginning(text, room);
        room -= fits.len();
        if fits.is_empty() {
            break;
        }
        said.push(fits);
    }
    said.reverse();
    format!(
        "{}\n\n[You have begun this conversation anew: your earlier answers, calls and their results are gone. Notes are in \
         `memory`, `todo_read` and `goal_list`. Go on with the task.]",
        said.join("\n\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thinks(text: &str) -> Message {
        let thinking = MessagePart::Thinking {
            text: text.to_owned(),
            signature: None,
        };
        Message::Assistant {
            parts: vec![
                thinking,
                MessagePart::Text {
                    text: "said".into(),
                },
            ],
        }
    }

    fn asked(trace_id: Option<u32>, limit: Option<u32>, include_archived: bool) -> ReadReasoning {
        ReadReasoning {
            trace_id,
            limit,
            include_archived,
        }
    }

    fn conversation() -> Conversation {
        Conversation::of(vec![
            Message::user("do it"),
            thinks("first"),
            Message::user("and that"),
            thinks("second"),
        ])
    }

    #[test]
    fn thoughts_are_read_newest_first_and_by_number() {
        let thoughts = Thoughts::of(&conversation());
        let read = |asked| thoughts.read(&asked);
        let both = "thought 2:\nsecond\n\nthought 1:\nfirst";
        assert_eq!(read(asked(None, None, false)).unwrap(), both);
        assert_eq!(
            read(asked(None, Some(1), false)).unwrap(),
            "thought 2:\nsecond"
        );
        assert_eq!(
            read(asked(Some(1), None, false)).unwrap(),
            "thought 1:\nfirst"
        );
        assert!(read(asked(Some(3), None, false)).is_err());
        let long = Conversation::of(vec![thinks(&"x".repeat(TRACE_MAX + 1))]);
        let thoughts = Thoughts::of(&long);
        let cut = thoughts.read(&asked(None, None, false)).unwrap();
        assert!(cut.len() < TRACE_MAX + 100 && cut.ends_with("bytes]"));
        let whole = thoughts.read(&asked(Some(1), None, false)).unwrap();
        assert!(whole.len() > TRACE_MAX + 1);
    }

    #[test]
    fn a_conversation_begun_anew_has_what_the_user_said_and_archived_thoughts() {
        let mut anew = conversation();
        let Message::User { text } = begin_anew(&mut anew) else {
            panic!("a message of the user")
        };
        assert!(text.starts_with("do it\n\nand that\n\n["), "{text}");
        assert!(anew.messages.is_empty());
        let thoughts = Thoughts::of(&anew);
        let read = |archived| thoughts.read(&asked(None, None, archived)).unwrap();
        assert!(read(false).starts_with("no thoughts"));
        assert!(read(true).starts_with("thought 2 (archived):\nsecond"));
        // Both are bounded, and what is newest stays.
        let much = |sign: char, bytes: usize| sign.to_string().repeat(bytes);
        let mut large = Conversation::of(vec![
            Message::user(much('a', BEGINNING_MAX)),
            thinks(&much('o', ARCHIVE_MAX)),
            Message::user("last"),
            thinks("newest"),
        ]);
        let Message::User { text } = begin_anew(&mut large) else {
            panic!("a message of the user")
        };
        assert!(text.contains("\n\nlast\n\n[") && text.len() < BEGINNING_MAX + 1000);
        assert_eq!(large.archived, ["newest"]);
    }
}
