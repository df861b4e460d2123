//! Carries out one planned call that is not a batch.

use crate::caller::Caller;
use crate::engine::Engine;
use crate::executor::Connection;
use crate::lookup::{PlannedCall, Work};
use crate::{image, outside, request, state_tools};
use broker_protocol::{Bash, ErrorKind, Failed, FileEdit, FileRead, FileWrite, Request};
use orchestrator_text::numbered::LineForm;
use orchestrator_tools::batch::nested;
use orchestrator_tools::metadata::Details;
use orchestrator_tools::plan::{Plan, Planned};
use orchestrator_tools::result::ToolResult;
use orchestrator_tools::test_results;

/// Carries out a call. Shows `max` bytes of a foreign text.
pub(crate) async fn perform(
    engine: &Engine,
    connection: &Connection,
    caller: &Caller,
    planned: PlannedCall,
    max: usize,
) -> ToolResult {
    if let Err(failed) = engine.check_open() {
        return ToolResult::failed(caller.tool.clone(), failed);
    }
    let mut result = match planned.work {
        Work::BuiltIn(plan) => built_in(engine, connection, caller, plan, max).await,
        Work::Remote(tool, input) => {
            Box::pin(outside::remote(
                engine, connection, caller, &tool, input, max,
            ))
            .await
        }
    };
    let notes = planned.times.notes(&result.metadata.details).into_iter();
    // A caller that takes output as it is reads the metadata.
    let left = result.metadata.left_running.as_ref();
    let left = left
        .filter(|_| !caller.context.raw)
        .map(|left| format!("[{left}; a process that must go on needs `background`]"));
    for note in notes
        .chain(left)
        .chain(Planned::note(&planned.without_effect))
    {
        result.push_line(&note);
    }
    result
}

async fn built_in(
    engine: &Engine,
    connection: &Connection,
    caller: &Caller,
    plan: Plan,
    max: usize,
) -> ToolResult {
    let tool = caller.tool.clone();
    let profile = caller.profile(engine);
    match plan {
        Plan::Request(request) => {
            if let Err(refused) = prepare_single(engine, connection, caller, &request).await {
                return *refused;
            }
            request::result(
                engine,
                connection,
                caller,
                request,
                LineForm::Plain,
                profile,
            )
            .await
        }
        Plan::NumberedRead(read) => {
            let request = Request::FileRead(read);
            request::result(
                engine,
                connection,
                caller,
                request,
                LineForm::Numbered,
                profile,
            )
            .await
        }
        // On the heap: every call carries the state of what it might do, and is copied with it.
        Plan::State(command) => {
            Box::pin(state_tools::run(engine, connection, caller, &command)).await
        }
        Plan::Image(path) => Box::pin(image::read(engine, connection, caller, &path)).await,
        Plan::Web(wanted) => Box::pin(outside::web(engine, connection, caller, wanted, max)).await,
        Plan::Tests { framework, command } => {
            let command = Request::Bash(command);
            let result = request::result(
                engine,
                connection,
                caller,
                command,
                LineForm::Plain,
                profile,
            )
            .await;
            test_results::suite_result(framework, result)
        }
        Plan::Agent(call) => Box::pin(outside::agent(engine, connection, caller, &call, max)).await,
        Plan::Thought => ToolResult::success(tool, "noted", Details::None),
        Plan::Finish(finished) => {
            ToolResult::success(tool, "the task is finished", Details::Finished { finished })
        }
        Plan::Batch(_) => ToolResult::failed(tool, nested()),
    }
}

/// Makes the request that must precede a session's only call; an error if the call makes no sense on its own.
async fn prepare_single(
    engine: &Engine,
    connection: &Connection,
    caller: &Caller,
    request: &Request,
) -> Result<(), Box<ToolResult>> {
    if !engine.single_call {
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
            return Err(Box::new(ToolResult::failed(caller.tool.clone(), failed)));
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
    request::run(connection, caller, read).await.map(drop)
}
