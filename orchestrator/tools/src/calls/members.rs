//! Several calls at once.
//!
//! Whoever puts calls into a batch declares that they do not depend on each other. So all run in parallel, whatever their risk,
//! except those that change files: these run one after the other in call order, since two changes of one file must not overlap. All
//! are checked before the first one runs. Each is allowed, refused, put to the user and counted separately.

use crate::caller::Caller;
use crate::conclude::conclude_member;
use crate::engine::Engine;
use crate::executor::Connection;
use crate::lookup::{PlannedCall, Work, shown_name};
use crate::perform::perform;
use crate::spans;
use broker_protocol::{ErrorKind, Failed, Roots};
use futures_util::future::join_all;
use orchestrator_tools::batch::{join, nested, refused};
use orchestrator_tools::plan::{Invocation, Plan};
use orchestrator_tools::result::ToolResult;
use serde_json::Value;
use std::time::Instant;
use tracing::{Instrument, Span};

/// One call of a batch, checked.
struct BatchMember {
    index: usize,
    tool: String,
    input: Value,
    planned: PlannedCall,
}

/// Makes all calls of a batch.
pub(crate) async fn batch(
    engine: &Engine,
    connection: &Connection,
    caller: &Caller,
    invocations: Vec<Invocation>,
) -> ToolResult {
    // Before the calls in it.
    caller.announce().await;
    let share = caller.profile(engine).file.keep / invocations.len().max(1);
    let begun = Instant::now();
    let members = match members(engine, invocations, connection.roots()) {
        Ok(members) => members,
        Err(result) => return *result,
    };
    let (changing, others): (Vec<_>, Vec<_>) = members
        .into_iter()
        .partition(|member| member.planned.changes_files);
    let mut lanes: Vec<Vec<BatchMember>> = others.into_iter().map(|member| vec![member]).collect();
    lanes.push(changing);
    let lanes = lanes
        .into_iter()
        .map(|members| lane(engine, connection, caller, members, share));
    let mut results: Vec<_> = join_all(lanes).await.into_iter().flatten().collect();
    results.sort_by_key(|(index, _)| *index);
    let results = results.into_iter().map(|(_, result)| result).collect();
    let mut result = join(results, share, caller.context.cancel.is_cancelled());
    result.metadata.usage.wall_us = begun.elapsed().as_micros() as u64;
    result
}

/// Checks every call. An invalid one fails the batch before any call has started.
fn members(
    engine: &Engine,
    invocations: Vec<Invocation>,
    roots: &Roots,
) -> Result<Vec<BatchMember>, Box<ToolResult>> {
    let member = |(index, Invocation { tool, input }): (usize, Invocation)| {
        let found = engine.find(&tool);
        let tool = shown_name(&found, &tool);
        let planned = spans::validation().in_scope(|| engine.plan(found, input.clone(), roots));
        match planned {
            Ok(PlannedCall {
                work: Work::BuiltIn(Plan::Batch(_)),
                ..
            }) => Err(Box::new(refused(index, nested()))),
            Ok(planned) => Ok(BatchMember {
                index,
                tool,
                input,
                planned,
            }),
            Err(result) => Err(Box::new(refused(
                index,
                result.error.unwrap_or_else(no_reason),
            ))),
        }
    };
    invocations.into_iter().enumerate().map(member).collect()
}

fn no_reason() -> Failed {
    Failed {
        kind: ErrorKind::Internal,
        message: "the call was refused without a reason".into(),
    }
}

/// Makes calls one after the other, and shows at most `share` bytes of each.
async fn lane(
    engine: &Engine,
    connection: &Connection,
    batch: &Caller,
    members: Vec<BatchMember>,
    share: usize,
) -> Vec<(usize, ToolResult)> {
    let mut results = Vec::with_capacity(members.len());
    for BatchMember {
        index,
        tool,
        input,
        planned,
    } in members
    {
        let caller = batch.member(engine, index, tool, input);
        let span = spans::call(
            &Span::current(),
            caller.number,
            &caller.context,
            &caller.tool,
        );
        span.record("tier", connection.opened().tier.name());
        let made = async {
            caller.announce().await;
            let result = perform(engine, connection, &caller, planned, share).await;
            conclude_member(engine, &caller, result).await
        };
        results.push((index, made.instrument(span).await));
    }
    results
}
