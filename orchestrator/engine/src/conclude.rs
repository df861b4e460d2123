//! The last step of every call: its violation and result are published.

use crate::caller::Caller;
use crate::context::FoundIn;
use crate::engine::Engine;
use crate::publish::RawEvent;
use crate::spans;
use broker_protocol::ErrorKind;
use orchestrator_results::result::ToolResult;
use tracing::Span;

/// Counts a violation and publishes the result.
pub(crate) async fn conclude(engine: &Engine, caller: &Caller, mut result: ToolResult) {
    count_violation(engine, caller, &mut result).await;
    add_found(engine, caller, &mut result);
    publish(engine, caller, result).await;
}

/// Concludes a call of a batch, which goes on with the result.
pub(crate) async fn conclude_member(
    engine: &Engine,
    caller: &Caller,
    mut result: ToolResult,
) -> ToolResult {
    count_violation(engine, caller, &mut result).await;
    add_found(engine, caller, &mut result);
    publish(engine, caller, result.clone()).await;
    result
}

/// Counts a violation, once for each call.
pub(crate) async fn count_violation(engine: &Engine, caller: &Caller, result: &mut ToolResult) {
    let violation = result
        .error
        .as_ref()
        .filter(|error| error.kind == ErrorKind::Violation);
    // Violations of the calls in a batch are already published and counted.
    if let Some(error) = violation.filter(|_| result.security.is_empty()) {
        let event = engine.count_violation(caller.number, &result.metadata.tool, &error.message);
        let _ = caller.publish(RawEvent::Violation(&event)).await;
        result.security.push(event);
    }
}

/// Adds what was found since the last result, whichever call caused it.
fn add_found(engine: &Engine, caller: &Caller, result: &mut ToolResult) {
    match caller.context.found {
        FoundIn::LaterResult => {}
        FoundIn::Metadata => result.add_found(engine.found.take()),
        FoundIn::Text => {
            let found = engine.found.take();
            if !found.is_empty() {
                result.add_found(found);
                result.tell_found();
            }
        }
    }
}

async fn publish(engine: &Engine, caller: &Caller, result: ToolResult) {
    caller.publisher.finish_output().await;
    spans::end(&Span::current(), &result);
    tracing::info!(
        duration_ms = caller.begun.elapsed().as_millis() as u64,
        "call"
    );
    let found = result.metadata.found.clone();
    // If the front end is gone, it misses the result; the records have it. What was found stays for another one.
    if caller
        .publish(RawEvent::Result(Box::new(result)))
        .await
        .is_err()
    {
        engine.found.put_back(found);
    }
}
