//! The user's hooks for a conversation as a whole: before its first run and after its last. Those for its calls are the engine's.

use orchestrator_engine::hooks::{HookEvent, HookRunner, Occasion};
use std::cell::RefCell;
use std::rc::Rc;

/// The hooks of one conversation's session.
pub struct SessionHooks {
    pub(crate) runner: Rc<dyn HookRunner>,
    tell: fn(&str),
    /// The conversation in which the session began.
    pub(crate) conversation: RefCell<Option<String>>,
}

impl SessionHooks {
    /// Hooks of a session that has not begun. Errors after the last run, which no event can report, go to `tell`.
    pub fn new(runner: Rc<dyn HookRunner>, tell: fn(&str)) -> Self {
        Self {
            runner,
            tell,
            conversation: RefCell::default(),
        }
    }

    /// Ends the session: runs the hooks for its end, if it had begun.
    pub async fn end(&self) {
        let Some(conversation) = self.conversation.take() else {
            return;
        };
        let occasion = Occasion::of_conversation(HookEvent::SessionEnd, &conversation);
        for hook in self.runner.of(occasion.event, None) {
            if let Err(why) = self.runner.run(hook, &occasion).await {
                (self.tell)(&format!("the hook `{}` {why}", self.runner.name(hook)));
            }
        }
    }
}
