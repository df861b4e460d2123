//! Quoting for advice that a person may paste into a shell or a policy file. Names in it come from commands, so nothing in them may
//! act: not as a word of its own, not as an expansion, not as a character that a terminal does not show.

use std::borrow::Cow;
use std::fmt::Write;

/// Characters that stand for themselves in every shell.
const PLAIN: &str = "/._-:=@%+,";

/// `text` as one word of a POSIX shell or bash.
///
/// Text with characters that are not shown becomes `$'…'`, which bash, zsh and ksh read.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || PLAIN.contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    if text.chars().all(is_shown) {
        return Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")));
    }
    let mut word = String::from("$'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => word.extend(['\\', c]),
            shown if is_shown(shown) => word.push(shown),
            hidden => hidden.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| {
                // Three octal digits: a hexadecimal escape would take a following digit of the text with it.
                let _ = write!(word, "\\{byte:03o}");
            }),
        }
    }
    word.push('\'');
    Cow::Owned(word)
}

/// `text` as a string of TOML on one line.
pub fn toml_string(text: &str) -> String {
    if !text.contains('\'') && text.chars().all(is_shown) {
        return format!("'{text}'");
    }
    let mut string = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => string.extend(['\\', c]),
            shown if is_shown(shown) => string.push(shown),
            hidden => {
                let _ = write!(string, "\\U{:08X}", u32::from(hidden));
            }
        }
    }
    string.push('"');
    string
}

/// Letters, digits, and the signs and the space of ASCII: everything else may be invisible or move the cursor.
fn is_shown(c: char) -> bool {
    c.is_alphanumeric() || c.is_ascii_graphic() || c == ' '
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: [&str; 9] = [
        "/home/u/data; touch pasted #",
        "/srv/$(touch pasted2)`id`",
        "it's",
        "/home/u/x' }, { path = '/srv/all",
        "a\nb\rc\u{1b}[2J1",
        "\u{202e}gpj.sh\u{200b}7",
        "back\\slash\"quote",
        "",
        "ümläut ~",
    ];

    #[test]
    fn pasted_word_is_one_word_to_bash() {
        for text in HOSTILE {
            let line = format!("printf %s {}", shell_word(text));
            assert!(line.chars().all(is_shown), "{line}");
            let run = std::process::Command::new("bash")
                .args(["-c", &line])
                .output()
                .expect("bash starts");
            assert_eq!(String::from_utf8_lossy(&run.stdout), text, "{line}");
        }
        assert_eq!(shell_word("/usr/share/x-1.2"), "/usr/share/x-1.2");
        assert_eq!(shell_word("a b"), "'a b'");
    }

    #[test]
    fn pasted_string_is_one_string_of_toml() {
        assert_eq!(toml_string("/srv/a b"), "'/srv/a b'");
        assert_eq!(
            toml_string("/x' }, { path = '/all"),
            "\"/x' }, { path = '/all\""
        );
        assert_eq!(
            toml_string("a\n\u{202e}\"\\"),
            "\"a\\U0000000A\\U0000202E\\\"\\\\\""
        );
    }
}
