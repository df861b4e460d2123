//! A call that a person typed: typing it was the yes to its own question. Where answers are taken elsewhere, it is said where.

use broker_protocol::{Challenge, Channel, Extent, Failed, Request};
use orchestrator_lines::json::{ResultLine, failed_result};
use orchestrator_options::exit;
use orchestrator_session::{
    Approval, ApprovalQuestion, Body, Call, CallContext, CallHandle, CallResult, Invocation, Part, Session,
};
use orchestrator_terminal::print;
use std::io::{self, IsTerminal};
use std::sync::Arc;

/// Tools whose result is content and no list of lines.
const CONTENT: [&str; 2] = ["bash", "file_read"];

/// The result of a request that prints nothing before its end.
pub async fn ask(session: &Session, asker: &str, request: Request) -> Result<Arc<CallResult>, Failed> {
    // Unsafe characters are escaped, or go to a file or a program as they are.
    let context = CallContext { raw: true, ..CallContext::new(asker.into()) };
    follow(&mut session.call(context, Invocation::Request(request))).await
}

/// Follows a call to its result.
pub async fn follow(call: &mut Call) -> Result<Arc<CallResult>, Failed> {
    while let Some(event) = call.next().await {
        match &*event.body {
            Body::ApprovalWanted(question) => {
                answer(&call.handle, event.part, question, Extent::Once).await;
            }
            Body::Result(result) if event.part.is_none() => return Ok(result.clone()),
            _ => {}
        }
    }
    Err(Failed::internal("the call ended without a result"))
}

/// Answers a question with a yes that reaches as far as `extent` where it opens something, or says where it is to be answered.
pub async fn answer(call: &CallHandle, part: Option<Part>, question: &ApprovalQuestion, extent: Extent) {
    let approval = match (question.challenge.channel, question.rejected) {
        (Channel::Separate, _) => return print::problem(&waiting(&question.challenge)),
        (Channel::Relay, None) if question.challenge.wants.is_empty() => Approval::Yes(Extent::Once),
        (Channel::Relay, None) => Approval::Yes(extent),
        // No answer from here would be accepted.
        (Channel::Relay, Some(_)) => Approval::No,
    };
    // The call may have ended meanwhile.
    call.approve(part.map(|part| part.index), approval).await;
}

/// Answers no where nobody has typed the call, and says why; or says where the question is to be answered.
pub async fn refuse(call: &CallHandle, part: Option<Part>, question: &ApprovalQuestion) {
    let challenge = &question.challenge;
    print::problem(&match challenge.channel {
        Channel::Separate => return print::problem(&waiting(challenge)),
        Channel::Relay => format!(
            "not run: it needs an approval, and nobody can give one here: {} (rule `{}`); allow it in the policy, or take answers \
             from `lazaret approve` with approval.channel = \"separate\"",
            challenge.why, challenge.rule
        ),
    });
    // The call may have ended meanwhile.
    call.approve(part.map(|part| part.index), Approval::No).await;
}

fn waiting(challenge: &Challenge) -> String {
    format!(
        "waiting for `lazaret approve` in another terminal, {} s: {} (rule `{}`, {} risk)",
        challenge.expires_s,
        challenge.why,
        challenge.rule,
        challenge.risk.name()
    )
}

/// Prints the result of a call; the exit code.
pub fn report(result: &CallResult, json: bool) -> Result<u8, Failed> {
    if json {
        print::json(&ResultLine::for_model(None, result))?;
    } else {
        print::result(&render(result.tool(), &result.text, io::stdout().is_terminal()))?;
        if let Some(error) = &result.error {
            print::problem(&format!("{}: {}", error.kind.name(), error.message));
        }
    }
    Ok(result.error.as_ref().map_or(exit::OK, |error| exit::of_error(error.kind)))
}

/// Prints what kept a call of `tool` from being made; the exit code.
pub fn report_failed(tool: &str, failed: &Failed, json: bool) -> Result<u8, Failed> {
    if json {
        print::json(&failed_result(None, tool, failed))?;
    } else {
        print::problem(&format!("{}: {}", failed.kind.name(), failed.message));
    }
    Ok(exit::of_error(failed.kind))
}

/// The text as it is where it is content; with a last line end where it is a list of lines, or for a person.
fn render(tool: &str, text: &[u8], terminal: bool) -> Vec<u8> {
    let mut text = match terminal {
        true => print::shown(&String::from_utf8_lossy(text)).into_bytes(),
        false => text.to_vec(),
    };
    if !text.is_empty() && !text.ends_with(b"\n") && (terminal || !CONTENT.contains(&tool)) {
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_sees_no_control_characters_and_a_pipe_sees_every_byte() {
        let text = b"a\x1b[2J\xff";
        assert_eq!(render("bash", text, false), text);
        assert_eq!(String::from_utf8(render("bash", text, true)).unwrap(), "a\\u{1b}[2J\u{fffd}\n");
        assert_eq!(render("glob", b"a", false), b"a\n");
    }
}
