//! A run: the user's message, then answer, calls, answer, until the model has finished or something ends it. What reaches the front
//! end is decided in `publish`, what reaches a vendor in its wire format; this file only decides what happens next.

use crate::calls::error_answer;
use crate::chunk::{Stop, TokenUsage};
use crate::conversation::Conversation;
use crate::error::ProviderError;
use crate::event::{ChatEventBody, EndReason, Notice};
use crate::fallback::{MALFORMED_MAX, Poor};
use crate::message::{Message, MessagePart, ToolCall, text_of};
use crate::packs::{FINISH, ToolUse};
use crate::provider::{ModelRequest, instead};
use crate::run::{Run, RunEnd, RunProgress};
use crate::spans;
use crate::turn::{ModelTurn, TurnEnd};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use serde_json::{Value, json};
use tracing::Instrument;

/// The message to a model that may make no more calls.
const ANSWER_NOW: &str =
    "No tool can be called any more. Answer now with what you have, and say what is left to do.";

/// The message to the fallback model after an answer without calls.
const ANSWER_AGAIN: &str = "The last answer was another model's, made without tools. Answer again, with tools where they help.";

/// What follows an answer.
enum NextStep {
    Again,
    End(EndReason, Option<Value>),
}

impl Run<'_> {
    /// Continues until the end. Boxed, because a subagent is a run within a run.
    pub(crate) fn go<'b>(
        &'b self,
        conversation: &'b mut Conversation,
        progress: &'b mut RunProgress,
    ) -> LocalBoxFuture<'b, RunEnd> {
        async move {
            loop {
                if self.control.is_cancelled() {
                    return RunEnd::new(EndReason::Cancelled);
                }
                self.close_in_time(conversation, progress).await;
                progress.turns += 1;
                let span = spans::turn(progress.turns);
                if let Some(end) = self.turn(conversation, progress).instrument(span).await {
                    return end;
                }
            }
        }
        .boxed_local()
    }

    /// One answer and its calls; returns the end if this was the last answer.
    async fn turn(
        &self,
        conversation: &mut Conversation,
        progress: &mut RunProgress,
    ) -> Option<RunEnd> {
        let TurnEnd { answer, error } = self.ask(conversation, progress).await;
        let calls: Vec<ToolCall> = calls_of(&answer.parts);
        let text = text_of(&answer.parts);
        if !answer.parts.is_empty() {
            self.say(
                conversation,
                Message::Assistant {
                    parts: answer.parts,
                },
            );
        }
        progress.usage.add(answer.usage);
        progress.budget.count(answer.usage, &conversation.messages);
        if let Some(error) = error {
            if self.replace_model(&error, progress).await {
                return None;
            }
            return Some(RunEnd {
                text,
                ..of_error(error)
            });
        }
        self.end_turn(answer.stop, answer.usage, conversation, progress)
            .await;
        let next = match calls.is_empty() {
            true => {
                self.after_text(&text, answer.stop, conversation, progress)
                    .await
            }
            false => {
                self.after_calls(&calls, &answer.malformed, conversation, progress)
                    .await
            }
        };
        match next {
            NextStep::Again => None,
            NextStep::End(reason, result) => Some(RunEnd {
                reason,
                error: None,
                result,
                text,
            }),
        }
    }

    /// Withdraws the tools if no turn or no context is left for them.
    async fn close_in_time(&self, conversation: &mut Conversation, progress: &mut RunProgress) {
        if progress.closing.is_some() {
            return;
        }
        let (reason, kind, why) = if progress.turns >= self.max_turns {
            (
                EndReason::TurnLimit,
                Notice::TurnLimit,
                format!("there were {} turns", progress.turns),
            )
        } else if progress.turns > 0 && progress.budget.is_spent(&conversation.messages) {
            let share = progress.budget.context(&conversation.messages).share * 100.0;
            (
                EndReason::ContextBudget,
                Notice::ContextBudget,
                format!("the context is {share:.0} % full"),
            )
        } else {
            return;
        };
        progress.closing = Some(reason);
        let message = format!("{why}: the model is asked to answer without tools");
        self.publisher
            .publish(ChatEventBody::Notice { kind, message })
            .await;
        self.say(conversation, Message::user(ANSWER_NOW));
    }

    async fn ask(&self, conversation: &mut Conversation, progress: &RunProgress) -> TurnEnd {
        let settings = &self.parts.settings;
        let (provider, model) = match &progress.instead {
            Some((provider, model)) => (provider, model),
            None => (&self.parts.provider, &self.model),
        };
        let system = self.system.borrow().clone();
        let prompt = ModelRequest {
            model: &model.id,
            system: &system,
            messages: &conversation.messages,
            tools: &self.tools,
            may_call: progress.closing.is_none(),
            max_tokens: settings.max_tokens,
            thinking_tokens: settings.thinking_tokens,
            context_window: model.context_window,
            minimal: false,
        };
        let turn = ModelTurn {
            provider: &**provider,
            publisher: &self.publisher,
            control: self.control,
            limit: settings.turn_timeout,
            input_deltas: settings.input_deltas && self.is_main,
            texts: self.is_main,
        };
        turn.run(&prompt, &conversation.ids).await
    }

    async fn end_turn(
        &self,
        stop: Option<Stop>,
        usage: TokenUsage,
        conversation: &Conversation,
        progress: &RunProgress,
    ) {
        if self.is_main {
            let context = progress.budget.context(&conversation.messages);
            self.publisher
                .publish(ChatEventBody::TurnEnd {
                    turn: progress.turns,
                    stop,
                    usage,
                    context,
                })
                .await;
        }
    }

    async fn after_text(
        &self,
        text: &str,
        stop: Option<Stop>,
        conversation: &mut Conversation,
        progress: &mut RunProgress,
    ) -> NextStep {
        if let Some(reason) = progress.closing {
            return NextStep::End(reason, None);
        }
        let is_poor = matches!(stop, Some(Stop::Done) | None)
            && progress.tools == ToolUse::NoneYet
            && !self.tools.is_empty();
        if is_poor && self.fall_back(Poor::NoToolCalls, progress).await {
            self.say(conversation, Message::user(ANSWER_AGAIN));
            return NextStep::Again;
        }
        match (stop, &self.finish) {
            (Some(Stop::Refused), _) => NextStep::End(EndReason::Refused, None),
            (Some(Stop::Length), _) => NextStep::End(EndReason::Length, None),
            (Some(Stop::Done) | None, None) => NextStep::End(EndReason::Done, None),
            (Some(Stop::Done) | None, Some(finish)) if progress.reprompt(finish.reprompts) => {
                let required = finish.required.join(", ");
                let message = format!("call {FINISH} to end the task, with {required}");
                let notice = ChatEventBody::Notice {
                    kind: Notice::CorrectiveReprompt,
                    message: message.clone(),
                };
                self.publisher.publish(notice).await;
                self.say(
                    conversation,
                    Message::user(format!(
                        "If the task is done, {message}. If it is not, go on."
                    )),
                );
                NextStep::Again
            }
            (Some(Stop::Done) | None, Some(_)) => NextStep::End(
                EndReason::QualityGate,
                Some(json!({ "action": "final", "text": text })),
            ),
        }
    }

    async fn after_calls(
        &self,
        calls: &[ToolCall],
        malformed: &std::collections::BTreeMap<String, String>,
        conversation: &mut Conversation,
        progress: &mut RunProgress,
    ) -> NextStep {
        if let Some(reason) = progress.closing {
            // Every call needs an answer, or no vendor accepts the conversation any more.
            let answers = calls
                .iter()
                .map(|call| error_answer(call, ANSWER_NOW.to_owned()))
                .collect();
            self.say(conversation, Message::Tools { answers });
            return NextStep::End(reason, None);
        }
        self.reflect(calls, conversation);
        let called = self
            .carry_out(calls, malformed, &conversation.messages, progress)
            .await;
        self.say(
            conversation,
            Message::Tools {
                answers: called.answers,
            },
        );
        if let Some(finished) = called.finished {
            let mut result = finished;
            result["action"] = "final".into();
            return NextStep::End(EndReason::Finished, Some(result));
        }
        if called.given_up {
            let refused = calls
                .iter()
                .find(|call| call.name == FINISH)
                .map(|call| call.input.clone());
            return NextStep::End(EndReason::QualityGate, refused);
        }
        if self.control.is_cancelled() {
            return NextStep::End(EndReason::Cancelled, None);
        }
        if self.parts.session.is_over() {
            return NextStep::End(EndReason::Violations, None);
        }
        progress.malformed += u32::from(!malformed.is_empty());
        if progress.malformed > MALFORMED_MAX {
            self.fall_back(Poor::MalformedArgs, progress).await;
        }
        self.swap(conversation, progress);
        NextStep::Again
    }

    /// Lets another model of the provider answer if there is no such one; returns whether it does.
    async fn replace_model(&self, error: &ProviderError, progress: &mut RunProgress) -> bool {
        let ProviderError::ModelNotFound { model: absent, .. } = error else {
            return false;
        };
        if progress.replaced || progress.fell_back {
            return false;
        }
        let models = tokio::select! {
            models = self.parts.provider.models() => models.unwrap_or_default(),
            () = self.control.cancelled() => return false,
        };
        let Some(model) = instead(&models) else {
            return false;
        };
        let message = format!(
            "there is no model {absent:?}; {}, the smallest that calls tools, answers instead",
            model.id
        );
        let kind = Notice::ModelReplaced;
        self.publisher
            .publish(ChatEventBody::Notice { kind, message })
            .await;
        progress.budget = self.budget(model);
        progress.instead = Some((self.parts.provider.clone(), model.clone()));
        progress.replaced = true;
        // Nothing was answered in it.
        progress.turns -= 1;
        true
    }

    /// Switches to the fallback model, if the user has configured it for this case; returns whether it did.
    async fn fall_back(&self, poor: Poor, progress: &mut RunProgress) -> bool {
        let fallback = self
            .parts
            .settings
            .fallback
            .as_ref()
            .filter(|fallback| fallback.when.covers(poor));
        let Some(fallback) = fallback.filter(|_| self.is_main && !progress.fell_back) else {
            return false;
        };
        let (from, to) = (&self.model.id, fallback.provider.name());
        let model = tokio::select! {
            model = fallback.model() => model,
            () = self.control.cancelled() => return false,
        };
        let (message, falls) = match &model {
            Ok(model) => (
                format!("{from}: {}; {} of {to} goes on", poor.text(), model.id),
                true,
            ),
            Err(why) => (
                format!("{from}: {}; {to} cannot go on: {why}", poor.text()),
                false,
            ),
        };
        self.publisher
            .publish(ChatEventBody::Notice {
                kind: Notice::CloudFallback,
                message,
            })
            .await;
        if let Ok(model) = model {
            progress.budget = self.budget(&model);
            progress.instead = Some((fallback.provider.clone(), model));
            progress.fell_back = true;
        }
        falls
    }
}

fn calls_of(parts: &[MessagePart]) -> Vec<ToolCall> {
    let call = |part: &MessagePart| match part {
        MessagePart::ToolCall(call) => Some(call.clone()),
        MessagePart::Text { .. } | MessagePart::Thinking { .. } | MessagePart::Sealed { .. } => {
            None
        }
    };
    parts.iter().filter_map(call).collect()
}

fn of_error(error: ProviderError) -> RunEnd {
    match error {
        ProviderError::Cancelled => RunEnd::new(EndReason::Cancelled),
        error => RunEnd {
            error: Some(error),
            ..RunEnd::new(EndReason::Error)
        },
    }
}
