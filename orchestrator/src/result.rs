//! Prints the result of a call for a person, a pipe or a program.

use broker_protocol::Failed;
use orchestrator_engine::CallResult;
use orchestrator_launch::exit;
use orchestrator_launch::stdio::print;
use orchestrator_wire::json::{ResultLine, failed_result};
use std::io::{self, IsTerminal};

/// Tools whose result is content, not a list of lines.
const CONTENT: [&str; 2] = ["bash", "file_read"];

/// Prints the result of a call; returns the exit code.
pub(crate) fn report(result: &CallResult, json: bool) -> Result<u8, Failed> {
    if json {
        print::json(&ResultLine::for_model(None, result))?;
    } else {
        print::findings(result.findings());
        if let Some(left) = result.left_running() {
            print::note(&left.to_string());
        }
        print::result(&render(
            result.tool(),
            &result.text,
            io::stdout().is_terminal(),
        ))?;
        if let Some(error) = &result.error {
            print::problem(&format!("{}: {}", error.kind.name(), error.message));
        }
    }
    Ok(result
        .error
        .as_ref()
        .map_or(exit::OK, |error| exit::of_error(error.kind)))
}

/// Prints why a call of `tool` could not be made; returns the exit code.
pub(crate) fn report_failed(tool: &str, failed: &Failed, json: bool) -> Result<u8, Failed> {
    if json {
        print::json(&failed_result(None, tool, failed))?;
    } else {
        print::problem(&format!("{}: {}", failed.kind.name(), failed.message));
    }
    Ok(exit::of_error(failed.kind))
}

/// Content stays as it is; a list of lines, and anything shown to a person, gets a final line break.
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
        assert_eq!(
            String::from_utf8(render("bash", text, true)).unwrap(),
            "a\\u{1b}[2J\u{fffd}\n"
        );
        assert_eq!(render("glob", b"a", false), b"a\n");
    }
}
