//! The spans of a call: who makes it, its stages, its end. This file decides what they contain: names of tools and front ends,
//! numbers, sizes, verdicts, rule IDs. Never an input, an output or the client's ID of a call, which may contain anything.
//!
//! Without a subscriber they are off, and each costs one load.

use crate::context::{BatchPlace, CallContext};
use crate::pending::ApprovalAnswer;
use broker_protocol::{Challenge, ErrorKind};
use orchestrator_results::result::ToolResult;
use tracing::field::Empty;
use tracing::{Span, debug_span, info_span};

/// The name of an unknown tool: the given name may be anything, even a secret.
pub(crate) const UNKNOWN: &str = "unknown";

/// A call, or one call of a batch: a child of `parent`, the span that ordered it.
pub(crate) fn call(parent: &Span, number: u64, context: &CallContext, tool: &str) -> Span {
    let span = info_span!(
        parent: parent,
        "tools.run_tool",
        otel.name = Empty,
        otel.status_code = Empty,
        tool,
        call = number,
        agent = &*context.asker,
        batch = Empty,
        part = Empty,
        tier = Empty,
        audit_call = Empty,
        outcome = Empty,
        error = Empty,
        stage = Empty,
        bytes = Empty,
    );
    if !span.is_disabled() {
        span.record("otel.name", format!("tools.run_tool.{tool}"));
    }
    if let Some(BatchPlace { batch, index }) = context.part {
        span.record("batch", batch).record("part", index);
    }
    span
}

/// Checking the input and the scope.
pub fn validation() -> Span {
    debug_span!("tools.validate")
}

/// Finding a session with the executor, or opening one.
pub(crate) fn connection() -> Span {
    debug_span!("tools.connect")
}

/// The executor's part, from the start of the request to its end, including questions.
pub(crate) fn execution(request: &str) -> Span {
    debug_span!(
        "tools.execute",
        request,
        audit_call = Empty,
        wall_us = Empty
    )
}

/// Carrying out a permitted call here, or by the owner of the tool.
pub fn outside() -> Span {
    debug_span!("tools.execute", request = "outside")
}

/// A question, from asking it to its answer.
pub(crate) fn approval(challenge: &Challenge) -> Span {
    let (risk, channel) = (challenge.risk.name(), challenge.channel.name());
    debug_span!(
        "tools.approve",
        rule = challenge.rule,
        risk,
        channel,
        answer = Empty
    )
}

/// The name of an answer in spans and records.
pub(crate) fn answer(approval: ApprovalAnswer) -> &'static str {
    match approval {
        ApprovalAnswer::Yes(extent) => extent.name(),
        ApprovalAnswer::No => "no",
    }
}

/// Records in the call's span how the call ended.
pub(crate) fn end(span: &Span, result: &ToolResult) {
    if span.is_disabled() {
        return;
    }
    span.record("outcome", outcome(result))
        .record("bytes", result.text.len());
    if let Some(number) = result.metadata.call {
        span.record("audit_call", number);
    }
    if let Some(error) = &result.error {
        span.record("error", error.kind.name())
            .record("stage", error.kind.layer().name());
        span.record("otel.status_code", "ERROR");
    }
}

/// Keeps refused (by the policy), failed (the work) and broken (our machinery) apart.
pub(crate) fn outcome(result: &ToolResult) -> &'static str {
    let Some(error) = &result.error else {
        return "ok";
    };
    match error.kind {
        ErrorKind::DeniedPolicy
        | ErrorKind::DeniedUser
        | ErrorKind::ApprovalTimeout
        | ErrorKind::Violation => "denied",
        ErrorKind::InvalidInput
        | ErrorKind::UnknownTool
        | ErrorKind::NotFound
        | ErrorKind::Io
        | ErrorKind::ExitNonzero
        | ErrorKind::Timeout
        | ErrorKind::IdleTimeout
        | ErrorKind::Cancelled
        | ErrorKind::ResourceLimit => "failed",
        ErrorKind::ExecutorLost | ErrorKind::Protocol | ErrorKind::Internal => "broken",
    }
}
