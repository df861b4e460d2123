//! Bytes and names as text: where a character is cut, and which names may stand in a line as they are.

/// Bytes at the end of `bytes` that begin a character and do not end it.
pub fn unfinished(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    let begins = |byte: &u8| *byte >= 0xc0;
    let Some(back) = tail.iter().rev().position(begins) else { return 0 };
    let start = &tail[tail.len() - 1 - back..];
    match std::str::from_utf8(start) {
        Err(error) if error.error_len().is_none() => start.len(),
        _ => 0,
    }
}

/// Bytes at the start of `bytes` that only continue a character.
pub fn continued(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| (0x80..0xc0).contains(*byte)).count()
}

/// A file's name for a line of text: quoted where it could pass for something else, such as two lines.
pub fn name(name: &str) -> String {
    if name.contains(is_unsafe) || name.starts_with('"') { format!("{name:?}") } else { name.to_owned() }
}

/// Whether a character can change how the text around it is shown, or is not shown itself.
pub fn is_unsafe(c: char) -> bool {
    c.is_control() || is_hidden(c)
}

/// Whether a character has no shape of its own: marks that turn the direction of writing, format controls, fillers, tags.
/// From Unicode's `Default_Ignorable_Code_Point` and `Bidi_Control`, and what else separates lines.
pub fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// `1 byte`, `2 bytes`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_still_become_a_character_is_unfinished() {
        for (bytes, want) in [
            (&b""[..], 0),
            (b"ab", 0),
            (b"a\xc3", 1),
            (b"a\xe2\x82", 2),
            (b"a\xf0\x9f\x98", 3),
            (b"\xc3\xa9", 0),
            (b"\xff", 0),
            (b"\xc0", 0),
            (b"\x82\x82", 0),
            (b"\xe2\x41", 0),
        ] {
            assert_eq!(unfinished(bytes), want, "{bytes:x?}");
        }
    }

    #[test]
    fn a_name_that_could_pass_for_something_else_is_quoted() {
        for plain in ["a b", "é", "back\\slash", "a\"b", "日本"] {
            assert_eq!(name(plain), plain);
        }
        for (odd, want) in [("a\nb", r#""a\nb""#), ("\u{1b}[2J", r#""\u{1b}[2J""#), ("\"x\"", r#""\"x\"""#)] {
            assert_eq!(name(odd), want);
        }
    }
}
