//! Carries out one planned call that is not a batch.

use super::planning::{PlannedCall, PlannedWork};
use super::toolbox::Toolbox;
use super::{outside, state, view};
use crate::batch::nested;
use crate::plan::{Plan, Planned};
use crate::test_results;
use broker_protocol::{Bash, ErrorKind, Failed, FileEdit, FileRead, FileWrite, Request};
use orchestrator_engine::CallWork;
use orchestrator_results::metadata::Details;
use orchestrator_results::result::ToolResult;
use orchestrator_text::numbered::LineForm;

/// Carries out a call. Shows `max` bytes of a foreign text.
pub(crate) async fn perform(
    toolbox: &Toolbox,
    work: CallWork<'_>,
    planned: PlannedCall,
    max: usize,
) -> ToolResult {
    if let Err(failed) = work.check_violations() {
        return ToolResult::failed(work.tool().to_owned(), failed);
    }
    let mut result = match planned.work {
        PlannedWork::BuiltIn(plan) => built_in(toolbox, work, plan, max).await,
        PlannedWork::Registered(tool, input) => {
            Box::pin(outside::registered(work, &tool, input, max)).await
        }
    };
    let notes = planned.times.notes(&result.metadata.details).into_iter();
    // A caller that takes output as it is reads the metadata.
    let left = result.metadata.left_running.as_ref();
    let left = left
        .filter(|_| !work.context().raw)
        .map(|left| format!("[{left}; a process that must go on needs `background`]"));
    for note in notes
        .chain(left)
        .chain(Planned::note(&planned.without_effect))
    {
        result.push_line(&note);
    }
    result
}

async fn built_in(toolbox: &Toolbox, work: CallWork<'_>, plan: Plan, max: usize) -> ToolResult {
    let tool = work.tool().to_owned();
    match plan {
        Plan::Request(request) => match prepare_single(work, &request).await {
            Ok(()) => work.result(request, LineForm::Plain).await,
            Err(refused) => *refused,
        },
        Plan::NumberedRead(read) => {
            work.result(Request::FileRead(read), LineForm::Numbered)
                .await
        }
        // On the heap: every call carries the state of what it might do, and is copied with it.
        Plan::State(command) => Box::pin(state::run(toolbox, work, &command)).await,
        Plan::Image(path) => Box::pin(view::read(work, &path)).await,
        Plan::Web(wanted) => Box::pin(outside::web(toolbox, work, wanted, max)).await,
        Plan::Tests { framework, command } => {
            let result = work.result(Request::Bash(command), LineForm::Plain).await;
            test_results::suite_result(framework, result)
        }
        Plan::Agent(call) => Box::pin(outside::agent(work, &call, max)).await,
        Plan::Thought => ToolResult::success(tool, "noted", Details::None),
        Plan::Finish(finished) => {
            ToolResult::success(tool, "the task is finished", Details::Finished { finished })
        }
        Plan::Batch(_) => ToolResult::failed(tool, nested()),
    }
}

/// Makes the request that must precede a session's only call; an error if the call makes no sense on its own.
async fn prepare_single(work: CallWork<'_>, request: &Request) -> Result<(), Box<ToolResult>> {
    if !work.is_single() {
        return Ok(());
    }
    let changed = match request {
        Request::Bash(Bash {
            background: true, ..
        }) => {
            let message = "a background process ends with its session, and this one has a single call; use \
                           `lazaret session`";
            let failed = Failed {
                kind: ErrorKind::InvalidInput,
                message: message.into(),
            };
            return Err(Box::new(ToolResult::failed(work.tool().to_owned(), failed)));
        }
        // Whoever makes a single call knows what it does, and no call comes after it, so we read the file for it.
        Request::FileWrite(FileWrite {
            path,
            expected_sha256: None,
            overwrite: true,
            ..
        })
        | Request::FileEdit(FileEdit {
            path,
            expected_sha256: None,
            ..
        }) => path.clone(),
        _ => return Ok(()),
    };
    // Reading a part is enough as long as the file stays unchanged. If reading fails, the call itself is refused for that.
    let read = Request::FileRead(FileRead {
        path: changed,
        offset: None,
        limit: Some(1),
    });
    work.run(read).await.map(drop)
}
