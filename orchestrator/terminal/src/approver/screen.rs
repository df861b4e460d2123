//! The state of the screen of a person who answers.

use crate::approver::page::PageView;
use crate::approver::queue::{CallKey, PendingCall, QueueEvent, end_message};
use std::collections::{BTreeSet, VecDeque};

/// The pending calls; the first one is on the screen.
#[derive(Default)]
pub(super) struct PendingScreen {
    waiting: VecDeque<PendingCall>,
    /// The sessions seen so far.
    sessions: BTreeSet<String>,
    pub(crate) view: PageView,
}

impl PendingScreen {
    /// The call on the screen.
    pub(super) fn first(&self) -> Option<&PendingCall> {
        self.waiting.front()
    }

    /// The name of the call on the screen for lines: its number, and its session if there were several.
    pub(super) fn name(&self) -> Option<String> {
        let (session, call) = &self.first()?.key;
        Some(if self.sessions.len() > 1 {
            format!("{call} {session}")
        } else {
            call.to_string()
        })
    }

    /// How many calls wait behind it.
    pub(super) fn more(&self) -> usize {
        self.waiting.len().saturating_sub(1)
    }

    /// Applies an event; returns whether another call is on the screen now, and what to print.
    pub(super) fn update(&mut self, event: QueueEvent) -> (bool, Option<String>) {
        let before: Option<CallKey> = self.first().map(|first| first.key.clone());
        let message = match event {
            QueueEvent::Pending(pending) => {
                self.sessions.insert(pending.key.0.clone());
                self.waiting.push_back(*pending);
                None
            }
            QueueEvent::Decided(key, _) => {
                self.waiting.retain(|pending| pending.key != key);
                None
            }
            QueueEvent::SessionEnded(session, error) => {
                self.waiting.retain(|pending| pending.key.0 != session);
                Some(end_message(&session, &error))
            }
            QueueEvent::Rejected(_, rejected) => {
                Some(format!("the answer was rejected: {}", rejected.fault))
            }
            QueueEvent::SessionOpened(session, _) => {
                self.sessions.insert(session);
                None
            }
            QueueEvent::Grants(..) => None,
        };
        let is_another = self.first().map(|first| &first.key) != before.as_ref();
        if is_another {
            self.view = PageView::default();
        }
        (is_another, message)
    }
}
