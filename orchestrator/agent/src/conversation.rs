//! Conversations between their runs: kept in memory until nobody has used them for an hour.

use crate::message::{Message, MessagePart};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// How long an unused conversation is kept.
pub const IDLE: Duration = Duration::from_secs(3600);
/// How often to look for unused conversations.
pub const SWEEP: Duration = Duration::from_secs(300);
/// Maximum number of conversations; beyond it, the least recently used is dropped.
const CONVERSATIONS_MAX: usize = 1000;

/// The IDs of all calls of a conversation, those of its subagents among them: an answer to a question names its call by ID alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallIds(Rc<RefCell<BTreeSet<String>>>);

impl CallIds {
    /// Adds an ID; returns whether no other call has it.
    pub(crate) fn take(&self, id: &str) -> bool {
        self.0.borrow_mut().insert(id.to_owned())
    }

    /// Adds those of `others`.
    fn add(&self, others: &Self) {
        if !Rc::ptr_eq(&self.0, &others.0) {
            self.0
                .borrow_mut()
                .extend(others.0.borrow().iter().cloned());
        }
    }
}

impl FromIterator<String> for CallIds {
    fn from_iter<I: IntoIterator<Item = String>>(ids: I) -> Self {
        Self(Rc::new(RefCell::new(ids.into_iter().collect())))
    }
}

/// The messages so far.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    pub messages: Vec<Message>,
    /// The IDs of all calls in them and of subagents.
    pub(crate) ids: CallIds,
    /// The skills that guide the model, by name.
    pub(crate) skills: Vec<String>,
    /// Thoughts of messages that are gone, oldest first.
    pub(crate) archived: Vec<String>,
}

impl Conversation {
    /// A conversation with `messages`. Calls without an answer and answers without a call are left out: no vendor accepts them.
    pub fn of(messages: Vec<Message>) -> Self {
        let mut whole: Vec<Message> = Vec::new();
        let mut messages = messages.into_iter().peekable();
        while let Some(message) = messages.next() {
            match message {
                Message::Assistant { parts } => {
                    let answered: BTreeSet<String> = match messages.peek() {
                        Some(Message::Tools { answers }) => {
                            answers.iter().map(|one| one.id.clone()).collect()
                        }
                        _ => BTreeSet::new(),
                    };
                    let is_whole = |part: &MessagePart| match part {
                        MessagePart::ToolCall(call) => answered.contains(&call.id),
                        MessagePart::Text { .. }
                        | MessagePart::Thinking { .. }
                        | MessagePart::Sealed { .. } => true,
                    };
                    whole.push(Message::Assistant {
                        parts: parts.into_iter().filter(is_whole).collect(),
                    });
                }
                Message::Tools { mut answers } => {
                    let asked: BTreeSet<String> = whole
                        .last()
                        .into_iter()
                        .flat_map(Message::calls)
                        .map(|call| call.id.clone())
                        .collect();
                    answers.retain(|answer| asked.contains(&answer.id));
                    if !answers.is_empty() {
                        whole.push(Message::Tools { answers });
                    }
                }
                user @ Message::User { .. } => whole.push(user),
            }
        }
        let ids = whole
            .iter()
            .flat_map(Message::calls)
            .map(|call| call.id.clone())
            .collect();
        Self {
            messages: whole,
            ids,
            ..Self::default()
        }
    }
}

/// The conversations of a server.
#[derive(Debug, Default)]
pub struct Conversations {
    by_id: HashMap<String, (Conversation, Instant)>,
}

impl Conversations {
    /// Takes out the conversation `id`, or begins one. A history from the client replaces ours.
    pub fn take(&mut self, id: &str, history: Option<Vec<Message>>) -> Conversation {
        let kept = self.by_id.remove(id);
        match (history, kept) {
            (Some(history), kept) => {
                let conversation = Conversation::of(history);
                // Clients have seen the calls of the history that this one replaces.
                kept.iter()
                    .for_each(|(kept, _)| conversation.ids.add(&kept.ids));
                conversation
            }
            (None, Some((conversation, used))) if used.elapsed() < IDLE => conversation,
            (None, _) => Conversation::default(),
        }
    }

    /// Puts a conversation back.
    pub fn put(&mut self, id: &str, conversation: Conversation) {
        self.by_id
            .insert(id.to_owned(), (conversation, Instant::now()));
        if self.by_id.len() > CONVERSATIONS_MAX {
            let oldest = self
                .by_id
                .iter()
                .min_by_key(|(_, (_, used))| *used)
                .map(|(id, _)| id.clone());
            oldest.map(|id| self.by_id.remove(&id));
        }
    }

    /// Drops unused conversations; returns how many are left. To be called every [`SWEEP`].
    pub fn sweep(&mut self) -> usize {
        self.by_id.retain(|_, (_, used)| used.elapsed() < IDLE);
        self.by_id.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ToolAnswer, ToolCall};
    use serde_json::json;

    fn call(id: &str) -> MessagePart {
        MessagePart::ToolCall(ToolCall {
            id: id.into(),
            name: "bash".into(),
            input: json!({}),
        })
    }

    fn answer(id: &str) -> ToolAnswer {
        ToolAnswer {
            id: id.into(),
            name: "bash".into(),
            text: "x".into(),
            is_error: false,
            image: None,
            full: None,
            found_bytes: 0,
        }
    }

    #[test]
    fn a_history_that_no_vendor_would_take_is_mended() {
        let history = vec![
            Message::Tools {
                answers: vec![answer("orphan")],
            },
            Message::user("go"),
            Message::Assistant {
                parts: vec![call("a"), call("b")],
            },
            Message::Tools {
                answers: vec![answer("a"), answer("c")],
            },
            Message::Assistant {
                parts: vec![MessagePart::Text { text: "and".into() }, call("d")],
            },
        ];
        let conversation = Conversation::of(history);
        let want = [
            Message::user("go"),
            Message::Assistant {
                parts: vec![call("a")],
            },
            Message::Tools {
                answers: vec![answer("a")],
            },
            Message::Assistant {
                parts: vec![MessagePart::Text { text: "and".into() }],
            },
        ];
        assert_eq!(conversation.messages, want);
        assert_eq!(conversation.ids, CallIds::from_iter(["a".to_owned()]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_conversation_is_forgotten_after_an_hour_and_the_clients_history_counts() {
        let mut store = Conversations::default();
        let with = |text: &str| Conversation::of(vec![Message::user(text)]);
        let texts = |conversation: Conversation| {
            conversation
                .messages
                .iter()
                .map(Message::text)
                .collect::<Vec<_>>()
        };
        store.put("a", with("kept"));
        tokio::time::advance(IDLE - Duration::from_secs(1)).await;
        assert_eq!(
            (store.sweep(), texts(store.take("a", None))),
            (1, vec!["kept".to_owned()])
        );
        assert_eq!(
            texts(store.take("a", None)),
            [""; 0],
            "one run at a time has it"
        );
        store.put("a", with("kept"));
        assert_eq!(
            texts(store.take("a", Some(vec![Message::user("client's")]))),
            ["client's"]
        );
        let kept = with("kept");
        assert!(kept.ids.take("1"));
        store.put("a", kept);
        let replaced = store.take("a", Some(vec![]));
        assert!(!replaced.ids.take("1"), "an ID is given once");
        store.put("a", with("kept"));
        tokio::time::advance(IDLE).await;
        assert_eq!(texts(store.take("a", None)), [""; 0]);
        store.put("a", with("kept"));
        tokio::time::advance(IDLE).await;
        assert_eq!(store.sweep(), 0);
    }
}
