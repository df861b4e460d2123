//! A request as its question shows it: what a grant for the session would cover, the file that it changes, what it holds while it waits.

use broker_protocol::{Coverage, Request, Stdin, Wants, ZonePath, limit};
use policies::Question;

/// The file whose content before and after shows the effect of a call.
pub(crate) fn changed_file(request: &Request) -> Option<&ZonePath> {
    match request {
        Request::FileWrite(write) => Some(&write.path),
        Request::FileEdit(edit) => Some(&edit.path),
        Request::Bash(_)
        | Request::Service(_)
        | Request::FileRead(_)
        | Request::FileList(_)
        | Request::Glob(_)
        | Request::Grep(_)
        | Request::BackgroundList
        | Request::BackgroundLog(_)
        | Request::BackgroundKill(_)
        | Request::History(_)
        | Request::Undo(_)
        | Request::FileBytes(_)
        | Request::State(_)
        | Request::Effect(_) => None,
    }
}

/// What a grant for the session would allow if it answers `question` about `request`, and for which programs.
pub(super) fn coverage(
    question: &Question,
    request: &Request,
    wants: &Wants,
) -> (Coverage, Vec<String>) {
    if !wants.is_empty() {
        return (Coverage::Wants, Vec::new());
    }
    match (takes_input(request), question.whole) {
        (true, _) => (Coverage::Once, Vec::new()),
        (false, true) => match named_programs(request) {
            Some(programs) => (Coverage::Rule, programs),
            None => (Coverage::Call, Vec::new()),
        },
        (false, false) => (Coverage::Call, Vec::new()),
    }
}

/// The programs that a command names, if that is certain; none for other calls, and for a test suite, which is known by its command.
fn named_programs(request: &Request) -> Option<Vec<String>> {
    match request.command() {
        Some(bash) if request.asked_as() == "bash" => policies::command::programs(&bash.command),
        Some(_) | None => Some(Vec::new()),
    }
}

/// The working directory in a request that runs a program.
pub(super) fn working_directory(request: &Request) -> Option<Option<&ZonePath>> {
    match request {
        Request::Service(service) => Some(service.directory.as_ref()),
        request => request.command().map(|bash| bash.directory.as_ref()),
    }
}

/// Whether the client sends input while the request runs.
fn takes_input(request: &Request) -> bool {
    let feeds = |stdin: &Stdin| match stdin {
        Stdin::Null => false,
        Stdin::Stream | Stdin::Terminal(_) => true,
    };
    matches!(request, Request::Service(_))
        || request.command().is_some_and(|bash| feeds(&bash.stdin))
}

/// Bytes that a call may hold: its request, and the input that its client may send at once.
pub(super) fn cost(request: &Request, encoded: usize) -> usize {
    encoded
        + if takes_input(request) {
            limit::INPUT_WINDOW as usize
        } else {
            0
        }
}
