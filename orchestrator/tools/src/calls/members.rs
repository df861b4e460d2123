//! Several calls at once.
//!
//! Whoever puts calls into a batch declares that they do not depend on each other. So all run in parallel, whatever their risk,
//! except those that change files: these run one after the other in call order, since two changes of one file must not overlap. All
//! are checked before the first one runs. Each is allowed, refused, put to the user and counted separately.

use super::perform::perform;
use super::planning::{PlannedCall, PlannedWork, plan};
use super::toolbox::Toolbox;
use crate::batch::{join, nested, refused};
use crate::plan::{MemberInvocation, Plan};
use crate::registry::Entry;
use broker_protocol::{ErrorKind, Failed};
use futures_util::future::join_all;
use orchestrator_engine::tools::shown_name;
use orchestrator_engine::{CallWork, spans};
use orchestrator_results::result::ToolResult;
use serde_json::Value;
use std::time::Instant;

/// One call of a batch, checked.
struct BatchMember {
    index: usize,
    tool: String,
    input: Value,
    planned: PlannedCall,
}

/// Makes all calls of a batch.
pub(crate) async fn batch(
    toolbox: &Toolbox,
    work: CallWork<'_>,
    invocations: Vec<MemberInvocation>,
) -> ToolResult {
    // Before the calls in it.
    work.announce().await;
    let share = work.profile().file.keep / invocations.len().max(1);
    let begun = Instant::now();
    let members = match members(toolbox, work, invocations) {
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
        .map(|members| lane(toolbox, work, members, share));
    let mut results: Vec<_> = join_all(lanes).await.into_iter().flatten().collect();
    results.sort_by_key(|(index, _)| *index);
    let results = results.into_iter().map(|(_, result)| result).collect();
    let mut result = join(results, share, work.context());
    result.metadata.usage.wall_us = begun.elapsed().as_micros() as u64;
    result
}

/// Checks every call. An invalid one fails the batch before any call has started.
fn members(
    toolbox: &Toolbox,
    work: CallWork<'_>,
    invocations: Vec<MemberInvocation>,
) -> Result<Vec<BatchMember>, Box<ToolResult>> {
    let member = |(index, MemberInvocation { tool, input }): (usize, MemberInvocation)| {
        let found = toolbox.get(&tool);
        let tool = shown_name(found.as_ref().ok().map(Entry::name), &tool);
        let planned = spans::validation().in_scope(|| plan(work, found, input.clone()));
        match planned {
            Ok(PlannedCall {
                work: PlannedWork::BuiltIn(Plan::Batch(_)),
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
    toolbox: &Toolbox,
    batch: CallWork<'_>,
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
        let result = batch
            .member(index, tool, input, async |work| {
                perform(toolbox, work, planned, share).await
            })
            .await;
        results.push((index, result));
    }
    results
}
