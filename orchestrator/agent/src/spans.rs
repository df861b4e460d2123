//! The spans of a run: its turns, and each request to a model. They hold names, numbers and codes, but no text of user or model and no key.

use crate::chunk::TokenUsage;
use crate::error::ProviderError;
use crate::event::EndReason;
use crate::run::RunEnd;
use std::time::Duration;
use tracing::field::Empty;
use tracing::{Span, debug_span, info_span};

/// A run: its conversation, and the provider and model that answer it.
pub(crate) fn run(conversation: &str, run: &str, provider: &str, model: &str) -> Span {
    info_span!(
        "chat.run",
        otel.status_code = Empty,
        conversation,
        run,
        provider,
        model,
        reason = Empty,
        error = Empty,
        turns = Empty,
        input_tokens = Empty,
        output_tokens = Empty,
    )
}

/// One answer and its calls.
pub(crate) fn turn(turn: u32) -> Span {
    debug_span!("chat.turn", turn)
}

/// One request to a provider.
pub(crate) fn model_request(provider: &str, model: &str, attempt: u32) -> Span {
    info_span!(
        "chat.model_request",
        otel.kind = "client",
        otel.status_code = Empty,
        provider,
        model,
        attempt,
        error = Empty,
        input_tokens = Empty,
        output_tokens = Empty,
    )
}

/// Records the end of the run. Called within its span.
pub(crate) fn end_run(end: &RunEnd, turns: u32, usage: TokenUsage, duration: Duration) {
    let span = Span::current();
    span.record("reason", end.reason.name())
        .record("turns", turns);
    record_usage(&span, usage);
    record_error(&span, end.error.as_ref());
    let duration_ms = duration.as_millis() as u64;
    if end.reason == EndReason::Error {
        tracing::warn!(duration_ms, "run");
    } else {
        tracing::info!(duration_ms, "run");
    }
}

/// Records the end of the request. Called within its span.
pub(crate) fn end_request(
    result: &Result<(), ProviderError>,
    usage: TokenUsage,
    duration: Duration,
) {
    let span = Span::current();
    record_usage(&span, usage);
    record_error(&span, result.as_ref().err());
    tracing::info!(duration_ms = duration.as_millis() as u64, "model request");
}

fn record_usage(span: &Span, usage: TokenUsage) {
    span.record("input_tokens", usage.input_tokens)
        .record("output_tokens", usage.output_tokens);
}

fn record_error(span: &Span, error: Option<&ProviderError>) {
    if let Some(error) = error {
        span.record("error", error.code().name())
            .record("otel.status_code", "ERROR");
    }
}
