//! The lines of an agent's runs in the run log: where a run begins and ends, its requests to models, and where the loop intervened.
//! Its calls have lines of their own, as those of any front end.

use crate::event::{ChatEvent, ChatEventBody, Notice};
use crate::exchange::{ModelExchange, Side};
use crate::publish::Listener;
use serde_json::{Value, json};

/// Kinds of lines that only an agent's runs have.
pub const KINDS: [&str; 17] = [
    "run_start",
    "llm_request",
    "llm_response",
    "retry",
    "context_budget",
    "turn_limit",
    "loop_detected",
    "corrective_reprompt",
    "quality_gate_failed",
    "cloud_fallback",
    "model_replaced",
    "executor_lost",
    "no_project",
    "server_missing",
    "server_changed",
    "run_error",
    "run_complete",
];

/// Hands the kind and payload of each line to a run log.
pub struct AgentLines<F>(pub F);

impl<F: Fn(&'static str, Value)> Listener for AgentLines<F> {
    fn hear(&self, event: &ChatEvent) {
        if let Some((kind, payload)) = of_event(event) {
            (self.0)(kind, payload);
        }
    }

    fn record(&self, exchange: &ModelExchange) {
        let (kind, payload) = of_exchange(exchange);
        (self.0)(kind, payload);
    }
}

/// Kind and payload of an event's line; `None` for events that are not recorded here: what a model says piece by piece is in its
/// answer's line, and the session records its calls.
fn of_event(event: &ChatEvent) -> Option<(&'static str, Value)> {
    let (kind, mut payload) = match &event.body {
        ChatEventBody::StreamStart { provider, model } => {
            ("run_start", json!({ "provider": provider, "model": model }))
        }
        ChatEventBody::Retry {
            code,
            message,
            attempt,
            delay_ms,
        } => (
            "retry",
            json!({ "code": code, "message": message, "attempt": attempt, "delayMs": delay_ms }),
        ),
        ChatEventBody::Notice { kind, message } => {
            (of_notice(*kind), json!({ "message": message }))
        }
        ChatEventBody::Error(error) => (
            "run_error",
            json!({ "code": error.code, "message": error.message, "retryAfterS": error.retry_after_s }),
        ),
        ChatEventBody::StreamEnd {
            partial,
            reason,
            turns,
            usage,
            context,
            result,
        } => (
            "run_complete",
            json!({ "reason": reason, "partial": partial, "turns": turns, "usage": usage, "context": context,
                "result": result }),
        ),
        ChatEventBody::Session { .. }
        | ChatEventBody::TextDelta { .. }
        | ChatEventBody::ThinkingDelta { .. }
        | ChatEventBody::ToolInputDelta { .. }
        | ChatEventBody::ToolStart { .. }
        | ChatEventBody::ToolConfirm(_)
        | ChatEventBody::ToolDelta { .. }
        | ChatEventBody::ToolResult(_)
        | ChatEventBody::Security { .. }
        | ChatEventBody::Connection { .. }
        | ChatEventBody::Hook(_)
        | ChatEventBody::TurnEnd { .. } => return None,
    };
    payload["conversation"] = (*event.conversation).into();
    payload["message_id"] = (*event.message).into();
    payload["parent"] = event.parent.as_deref().into();
    Some((kind, payload))
}

/// Kind and payload of a line on one side of an exchange with a model.
fn of_exchange(exchange: &ModelExchange) -> (&'static str, Value) {
    let (kind, mut payload) = match &exchange.side {
        Side::Request {
            messages,
            tools,
            may_call,
            minimal,
        } => (
            "llm_request",
            json!({ "messages": messages, "tools": tools, "mayCall": may_call, "minimal": minimal }),
        ),
        Side::Answer {
            text,
            calls,
            stop,
            usage,
            wall_ms,
            error,
        } => (
            "llm_response",
            json!({ "content": text, "calls": calls, "stop": stop, "usage": usage, "wallMs": wall_ms, "error": error }),
        ),
    };
    payload["provider"] = exchange.provider.as_str().into();
    payload["model"] = exchange.model.as_str().into();
    payload["attempt"] = exchange.attempt.into();
    payload["conversation"] = (*exchange.conversation).into();
    payload["message_id"] = (*exchange.message).into();
    payload["parent"] = exchange.parent.as_deref().into();
    (kind, payload)
}

fn of_notice(notice: Notice) -> &'static str {
    match notice {
        Notice::ContextBudget => "context_budget",
        Notice::TurnLimit => "turn_limit",
        Notice::LoopDetected => "loop_detected",
        Notice::CorrectiveReprompt => "corrective_reprompt",
        Notice::QualityGateFailed => "quality_gate_failed",
        Notice::CloudFallback => "cloud_fallback",
        Notice::ModelReplaced => "model_replaced",
        Notice::ExecutorLost => "executor_lost",
        Notice::NoProject => "no_project",
        Notice::ServerMissing => "server_missing",
        Notice::ServerChanged => "server_changed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_notice_has_a_kind_of_its_own() {
        let notices = [
            Notice::ContextBudget,
            Notice::TurnLimit,
            Notice::LoopDetected,
            Notice::CorrectiveReprompt,
            Notice::QualityGateFailed,
            Notice::CloudFallback,
            Notice::ModelReplaced,
            Notice::ExecutorLost,
            Notice::NoProject,
            Notice::ServerMissing,
            Notice::ServerChanged,
        ];
        for notice in notices {
            // By the name that it has in the events.
            assert_eq!(json!(notice), of_notice(notice));
            assert!(KINDS.contains(&of_notice(notice)));
        }
    }
}
