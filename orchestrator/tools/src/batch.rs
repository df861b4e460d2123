//! Joins the results of several calls.

use broker_protocol::{ErrorKind, Failed, Findings};
use orchestrator_engine::CallContext;
use orchestrator_results::error_body::ErrorBody;
use orchestrator_results::metadata::{Details, UsageJson};
use orchestrator_results::result::ToolResult;
use serde_json::{Value, json};

/// A batch within a batch is refused.
pub fn nested() -> Failed {
    Failed {
        kind: ErrorKind::InvalidInput,
        message: "a batch cannot contain a batch".into(),
    }
}

/// The error of one call of a batch, as the result of the batch.
pub fn refused(index: usize, error: Failed) -> ToolResult {
    let message = format!(
        "invocations[{index}]: {}; none of the calls was made",
        error.message
    );
    ToolResult::failed("batch", Failed { message, ..error })
}

/// Joins all results, with at most `share` bytes of each: for the model in call order between markers; for records separately.
pub fn join(results: Vec<ToolResult>, share: usize, context: &CallContext) -> ToolResult {
    let error = error(&results, context);
    let (usage, layers) = (usage(&results), layers(&results));
    let mut found = Findings::default();
    results
        .iter()
        .for_each(|result| found.append(result.metadata.found.clone()));
    let mut text = String::new();
    let mut records = Vec::with_capacity(results.len());
    let mut security = Vec::new();
    let failed = results
        .iter()
        .filter(|result| result.error.is_some())
        .count() as u64;
    for (index, mut result) in results.into_iter().enumerate() {
        result.shorten(share);
        // The text of one tool must not imitate the result of another.
        let inside = result.wrapped().replace("invocation.", "invocation\u{b7}");
        text.push_str(&format!(
            "<invocation.{index}.result>\n{inside}\n</invocation.{index}.result>\n"
        ));
        security.append(&mut result.security);
        records.push(record(&result));
    }
    let details = Details::Batch {
        invocations: records,
        failed,
    };
    let mut result = ToolResult {
        error,
        security,
        ..ToolResult::success("batch", text, details)
    };
    (result.metadata.usage, result.metadata.layers) = (usage, layers);
    // Their texts report it already.
    result.metadata.found = found;
    result
}

/// The error of a batch: a cancellation that reached one of its calls, or an error if every call failed.
fn error(results: &[ToolResult], context: &CallContext) -> Option<Failed> {
    let kinds = || {
        results
            .iter()
            .filter_map(|result| result.error.as_ref())
            .map(|error| error.kind)
    };
    if context.cancel.is_cancelled() && kinds().any(|kind| kind == ErrorKind::Cancelled) {
        return Some(Failed {
            kind: ErrorKind::Cancelled,
            message: "the call was cancelled".into(),
        });
    }
    let kind = kinds()
        .next()
        .filter(|_| kinds().count() == results.len())?;
    Some(Failed {
        kind,
        message: "every call of the batch failed".into(),
    })
}

fn usage(results: &[ToolResult]) -> UsageJson {
    let mut all = UsageJson::default();
    results
        .iter()
        .for_each(|result| all.add(&result.metadata.usage));
    all
}

/// The layers in force in every call that the executor carried out.
fn layers(results: &[ToolResult]) -> Vec<&'static str> {
    let mut confined = results
        .iter()
        .map(|result| &result.metadata.layers)
        .filter(|layers| !layers.is_empty());
    let mut all = confined.next().cloned().unwrap_or_default();
    confined.for_each(|layers| all.retain(|layer| layers.contains(layer)));
    all
}

fn record(result: &ToolResult) -> Value {
    let status = if result.error.is_some() {
        "error"
    } else {
        "success"
    };
    let error = result.error.as_ref().map(ErrorBody::sanitized);
    json!({"tool": result.metadata.tool, "status": status, "error": error, "metadata": result.metadata})
}
