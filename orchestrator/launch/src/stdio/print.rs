//! Output for a person: results on standard output, problems on standard error, escaped, because a message may quote untrusted
//! text. Known secrets are removed from both, wherever they come from: a name, an ID, a model of a server that echoes keys.

use broker_protocol::{Failed, Findings};
use orchestrator_engine::hooks::{HookEvent, HookOutcome, HookRan};
use orchestrator_text::escape;
use orchestrator_text::known::redactor;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};

/// Makes what is printed after it visible, whatever a command has left on the terminal: it ends an unfinished control string, frozen
/// drawing, the alternate screen, a scroll region and margins, and resets the colours, the character set and the wrapping of lines.
/// Then comes a new row at the bottom. A terminal puts the cursor elsewhere at some of these, and a command could have left it amid
/// a text of its own that seems to ask something else, so the bottom is the one place that is known to be free and to be looked at.
const RESET: &str = "\x18\x1b\\\x1b[?2026l\x1b[?1049l\x1b[!p\x1b[?6l\x1b[?69l\x1b[?7h\x1b[?25h\x1b[0m\x1b(B\x0f\x1b[r\
                     \x1b]110\x07\x1b]111\x07\x1b[9999;1H\r\n";

/// A reset of the kernel's own console, where a command can also have changed the palette and the default colours (`console_codes(4)`).
/// On others the first of these would begin a text without an end.
const CONSOLE_RESET: &str = "\x1b]R\x1b[37;40m\x1b[8]";

/// Reports an error or a problem.
pub fn problem(message: &str) {
    to_stderr(
        "",
        &paint("lazaret:", Colour::Red, io::stderr().is_terminal()),
        message,
    );
}

/// Reports what was found in the project, a line a kind, so that it is seen whatever a command has left on the terminal.
pub fn findings(found: &Findings) {
    for finding in found.list() {
        question(&format!("found: {finding}"));
    }
}

/// Asks something, so that it is seen whatever a command has left on the terminal.
pub fn question(message: &str) {
    let is_terminal = io::stderr().is_terminal();
    let reset = if is_terminal {
        reset(std::env::var_os("TERM").as_deref())
    } else {
        String::new()
    };
    to_stderr(
        &reset,
        &paint("lazaret:", Colour::Red, is_terminal),
        message,
    );
}

/// Reports something the user should know although nothing failed.
pub fn note(message: &str) {
    to_stderr("", "lazaret:", message);
}

/// Reports a hook of the user that gave no answer after a call: the result does not say so. Before a call it is the reason why the call
/// is refused.
pub fn unheard_hook(ran: &HookRan) {
    if ran.event == HookEvent::AfterTool && ran.outcome == HookOutcome::Failed {
        let why = ran.message.as_deref().unwrap_or("gave no answer");
        problem(&format!("the hook `{}` {why}", ran.hook));
    }
}

fn reset(term: Option<&OsStr>) -> String {
    let console = if term == Some(OsStr::new("linux")) {
        CONSOLE_RESET
    } else {
        ""
    };
    format!("{RESET}{console}")
}

fn to_stderr(reset: &str, prefix: &str, message: &str) {
    // Every row but the first is indented: a name within the message begins no message of ours.
    let message = escape::for_terminal(&redactor().text(message)).replace('\n', "\n  ");
    // If nobody reads standard error, nothing is lost.
    let _ = writeln!(
        io::stderr().lock(),
        "{reset}{prefix} {}",
        redactor().text(&message)
    );
}

pub use orchestrator_text::escape::{for_terminal as shown, json as escaped_json, row};

#[derive(Clone, Copy)]
pub enum Colour {
    /// For errors and problems, which a person should see first.
    Red,
    /// For what is in force.
    Green,
}

/// `text` in colour, if it goes to a terminal and NO_COLOR is not set.
pub fn paint(text: &str, colour: Colour, terminal: bool) -> String {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let code = match colour {
        Colour::Red => 31,
        Colour::Green => 32,
    };
    if terminal && !refused {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Writes a result to standard output.
pub fn result(bytes: &[u8]) -> Result<(), Failed> {
    write(&redactor().bytes(bytes))
}

fn write(bytes: &[u8]) -> Result<(), Failed> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        // A reader that closes the pipe has read enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failed::internal(format!(
            "cannot write the result: {error}"
        ))),
        _ => Ok(()),
    }
}

/// Writes a value as one line of JSON to standard output. Characters that take effect on a terminal are escaped in it.
pub fn json(value: &impl serde::Serialize) -> Result<(), Failed> {
    let mut line =
        serde_json::to_string(value).map_err(|error| Failed::internal(error.to_string()))?;
    if let Cow::Owned(_) = redactor().bytes(line.as_bytes()) {
        // A number that is a secret becomes a text.
        let value =
            serde_json::to_value(value).map_err(|error| Failed::internal(error.to_string()))?;
        line = redactor().value(&value).to_string();
    }
    result(format!("{}\n", escape::json(&line)).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_of_the_kernels_console_go_to_it_alone() {
        assert!(reset(Some(OsStr::new("linux"))).ends_with(CONSOLE_RESET));
        for other in [None, Some("xterm-256color"), Some("linux-16color")] {
            assert_eq!(reset(other.map(OsStr::new)), RESET);
        }
    }
}
