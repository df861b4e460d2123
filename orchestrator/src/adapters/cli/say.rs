//! What is said to a person: on standard error, escaped, because a message may quote what a stranger wrote.

use crate::adapters::secrets::known;
use crate::domain::text::is_unsafe;
use broker_protocol::{ErrorKind, Failed};
use std::io::{self, IsTerminal, Write};

/// Says what went wrong.
pub fn problem(message: &str) {
    let prefix = paint("lazaret:", Colour::Red, io::stderr().is_terminal());
    // With nobody to read it there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{prefix} {}", shown(&known().text(message)));
}

/// `text` without anything that could move the cursor or turn the direction of writing. Line ends and tabs stay.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe(c) && c != '\n' && c != '\t' { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

/// The colours in use.
#[derive(Clone, Copy)]
pub enum Colour {
    /// What is wrong.
    Red,
    /// What is well.
    Green,
}

/// `text` in colour, if it goes to a terminal whose user has not said NO_COLOR.
pub fn paint(text: &str, colour: Colour, terminal: bool) -> String {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let code = match colour {
        Colour::Red => 31,
        Colour::Green => 32,
    };
    if terminal && !refused { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Writes a command's result to standard output.
pub fn result(bytes: &[u8]) -> Result<(), Failed> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        // Who stops reading has read enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(internal(format!("cannot write the result: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a value as one line of JSON to standard output.
pub fn json(value: &impl serde::Serialize) -> Result<(), Failed> {
    let mut line = serde_json::to_vec(value).map_err(|error| internal(error.to_string()))?;
    line.push(b'\n');
    result(&line)
}

/// An error of our own.
pub fn internal(message: String) -> Failed {
    Failed { kind: ErrorKind::Internal, message }
}

/// An error of the caller's.
pub fn invalid(message: String) -> Failed {
    Failed { kind: ErrorKind::InvalidInput, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_shown_can_steer_a_terminal() {
        assert_eq!(shown("a\x1b[2Jb\r\nc\td\u{202e}"), "a\\u{1b}[2Jb\\u{d}\nc\td\\u{202e}");
        assert_eq!(shown("é 日本"), "é 日本");
    }
}
