//! Begins a conversation with the user's hooks.

use crate::error::ProviderError;
use crate::event::ChatEventBody;
use crate::hooks::SessionHooks;
use crate::run::Run;
use orchestrator_engine::hooks::{HookAnswer, HookEvent, HookRan, Occasion, quoted};

impl Run<'_> {
    /// Begins the session, if it has not begun; returns the user's text with the texts of hooks for the model.
    pub(crate) async fn begin_session(&self, text: String) -> Result<String, ProviderError> {
        let Some(hooks) = self
            .parts
            .hooks
            .as_ref()
            .filter(|hooks| hooks.conversation.borrow().is_none())
        else {
            return Ok(text);
        };
        let conversation = &self.publisher.conversation;
        let occasion = Occasion::of_conversation(HookEvent::SessionStart, conversation);
        let mut notes = Vec::new();
        for hook in hooks.runner.of(occasion.event, None) {
            let name = hooks.runner.name(hook);
            let safe = |text: String| self.publisher.sanitizer.text(&text);
            match self.ask_hook(hooks, hook, &occasion).await {
                Ok(answer) if answer.allow => {
                    notes.extend(answer.ask_agent.map(|text| safe(quoted(name, &text))));
                }
                Ok(answer) => return Err(ProviderError::Hook(safe(answer.refusal(name)))),
                // An event has already reported it.
                Err(_) => {}
            }
        }
        hooks.conversation.replace(occasion.conversation_id);
        notes.push(text);
        Ok(notes.join("\n\n"))
    }

    /// Runs a hook and publishes the outcome.
    async fn ask_hook(
        &self,
        hooks: &SessionHooks,
        hook: usize,
        occasion: &Occasion,
    ) -> Result<HookAnswer, String> {
        let answer = tokio::select! {
            answer = hooks.runner.run(hook, occasion) => answer,
            () = self.control.cancelled() => Err("was cancelled".to_owned()),
        };
        let ran = HookRan::new(hooks.runner.name(hook), occasion, &answer);
        self.publisher
            .publish(ChatEventBody::Hook(Box::new(ran)))
            .await;
        answer
    }
}
