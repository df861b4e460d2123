//! The tools whose state is a file in the central root. The file is read, changed here and replaced.

use super::toolbox::Toolbox;
use crate::state::StateCommand;
use broker_protocol::{ErrorKind, Failed, FileReply, Request, State, StateChange, StateTool};
use orchestrator_engine::CallWork;
use orchestrator_results::metadata::{Details, Metadata};
use orchestrator_results::result::ToolResult;

/// How often to retry a change when another session was faster.
const TRIES: u32 = 5;

/// Applies a command to its state file.
pub(crate) async fn run(
    toolbox: &Toolbox,
    work: CallWork<'_>,
    command: &StateCommand,
) -> ToolResult {
    // Changes within this session are serialized; between sessions the digest decides.
    let _turn = toolbox.state.lock().await;
    let tool = command.tool();
    for _ in 0..TRIES {
        let read = Request::State(State { tool, change: None });
        let (file, expected_sha256) = match work.exchange(read).await {
            Ok((FileReply::Read(read), _)) if read.truncated.is_none() => {
                (Some(read.content), read.sha256)
            }
            Ok(_) => (Some(Vec::new()), None),
            Err(result) if is(&result, ErrorKind::NotFound) => (None, None),
            Err(result) => return without_blame(tool, *result),
        };
        let effect = match command.apply(file.as_deref()) {
            Ok(effect) => effect,
            Err(error) => return ToolResult::failed(tool.name(), error.into()),
        };
        let done = ToolResult::success(
            tool.name(),
            effect.text,
            Details::State {
                count: effect.count,
            },
        );
        let Some(content) = effect.save else {
            return done;
        };
        let change = Some(StateChange {
            content,
            expected_sha256,
        });
        match work.exchange(Request::State(State { tool, change })).await {
            Ok((_, request)) => return with_request(done, &request),
            // Another session has changed it in between.
            Err(result) if is(&result, ErrorKind::InvalidInput) => {}
            Err(result) => return without_blame(tool, *result),
        }
    }
    let message = format!("other programs kept changing {}; try again", tool.file());
    ToolResult::failed(
        tool.name(),
        Failed {
            kind: ErrorKind::Io,
            message,
        },
    )
}

/// The path is Lazaret's own: a link that a command has put there is no violation of whoever calls the tool, and ends no session.
fn without_blame(tool: StateTool, result: ToolResult) -> ToolResult {
    if !is(&result, ErrorKind::Violation) {
        return result;
    }
    let message = format!(
        "{} of the central root is behind a link that leads out of it; a command has made this link: remove it, then call {} again",
        tool.file(),
        tool.name()
    );
    ToolResult::failed(
        tool.name(),
        Failed {
            kind: ErrorKind::Io,
            message,
        },
    )
}

fn with_request(result: ToolResult, request: &Metadata) -> ToolResult {
    ToolResult {
        metadata: result.metadata.clone().with_request(request),
        ..result
    }
}

fn is(result: &ToolResult, kind: ErrorKind) -> bool {
    result
        .error
        .as_ref()
        .is_some_and(|error| error.kind == kind)
}
