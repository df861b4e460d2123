//! Changes of servers' tools while a session runs: what people are told, and what the session has once a person has accepted it.

use crate::pins::{ListedTool, ToolChanges};
use broker_protocol::paste::shell_word;
use std::cell::RefCell;
use std::collections::VecDeque;

/// Maximum number of texts that wait for a front end; of more, the oldest are dropped.
const TEXTS_MAX: usize = 32;

/// A change of one server's tools.
#[derive(Debug)]
pub(crate) enum ToolChange {
    /// It has tools that nobody has accepted: the text for people.
    Differs(String),
    /// A person has accepted these tools, by this or another process.
    Accepted {
        /// The server's place in the session.
        server: usize,
        tools: Vec<ListedTool>,
    },
}

impl ToolChanges {
    /// Whether there is something to accept.
    pub(crate) fn are_to_accept(&self) -> bool {
        !self.changed.is_empty() || !self.added.is_empty()
    }

    /// For people: what the server has that nobody has accepted, and how to accept it.
    pub(crate) fn advice(&self, server: &str) -> String {
        let word = shell_word(server);
        format!(
            "the server `{server}` has tools that nobody has accepted ({}), which are not offered; `lazaret mcp accept {word}` \
             shows them, and a running session then has them",
            self.describe()
        )
    }
}

/// Texts for a front end that displays them later.
#[derive(Default)]
pub(crate) struct Notices(RefCell<VecDeque<String>>);

impl Notices {
    /// Adds the text of one change.
    pub(crate) fn add(&self, text: String) {
        let mut texts = self.0.borrow_mut();
        if texts.len() >= TEXTS_MAX {
            texts.pop_front();
        }
        texts.push_back(text);
    }

    /// Takes all texts, in the order in which they came.
    pub(crate) fn take(&self) -> Vec<String> {
        self.0.borrow_mut().drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_notices_are_limited() {
        let texts = Notices::default();
        for number in 0..=TEXTS_MAX {
            texts.add(number.to_string());
        }
        let taken = texts.take();
        assert_eq!((taken.len(), taken[0].as_str()), (TEXTS_MAX, "1"));
        assert!(texts.take().is_empty());
    }
}
