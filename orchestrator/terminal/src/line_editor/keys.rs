//! Decodes keys from the bytes of a terminal in raw mode: UTF-8, control characters, xterm's sequences, bracketed paste.
//!
//! A pasted text is untrusted. It is one key, without escape sequences and invisible characters. Some terminals pass on an
//! end-of-paste sequence from within the pasted text: what follows would count as typed, and its first line break would submit it.
//! So Enter counts only after the terminal was quiet for [`QUIET`] after a paste; before that, it is a line break in the text.

use crate::line_editor::buffer::TEXT_MAX;
use orchestrator_text::clean::Cleaner;
use std::time::{Duration, Instant};

/// How long no byte may come after a paste before Enter counts as a key.
pub(crate) const QUIET: Duration = Duration::from_millis(50);
/// Maximum bytes of a sequence; a longer one is ignored.
const SEQUENCE_MAX: usize = 32;
const PASTE_END: &[u8] = b"\x1b[201~";

/// A key, by its function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyPress {
    /// One visible character, or one that joins others.
    Char(char),
    /// A whole pasted text, cleaned.
    Paste(String),
    /// A paste of more than [`TEXT_MAX`] bytes, which was dropped.
    PasteTooLong,
    Enter,
    /// Begins another line of the text.
    NewLine,
    Tab,
    Escape,
    Left,
    Right,
    Up,
    Down,
    WordLeft,
    WordRight,
    Home,
    End,
    Backspace,
    Delete,
    /// Deletes to the end of the line.
    KillToEnd,
    /// Deletes to the beginning of the line.
    KillToStart,
    /// Deletes back to a space.
    KillArgument,
    /// Deletes back to the beginning of a word.
    KillWord,
    /// Deletes to the end of a word.
    KillNextWord,
    /// Inserts the text deleted last.
    Yank,
    Search,
    ClearScreen,
    Interrupt,
    EndOfInput,
    Suspend,
}

/// Splits bytes into keys, in whatever pieces they arrive.
#[derive(Debug, Default)]
pub(crate) struct KeyDecoder {
    state: EscapeState,
    /// Until when Enter is not a key, after a paste.
    paste_until: Option<Instant>,
}

#[derive(Debug, Default)]
enum EscapeState {
    #[default]
    Text,
    /// The beginning of a UTF-8 character.
    Character(Vec<u8>),
    Escape,
    /// The parameters of a control sequence.
    Control(Vec<u8>),
    /// A sequence whose next byte is its last.
    Single,
    /// A sequence of the Linux console, whose next byte is its last.
    Console,
    Paste(PastedBytes),
}

/// A paste whose end has not come.
#[derive(Debug, Default)]
struct PastedBytes {
    text: Vec<u8>,
    /// Then only what may be its end mark is kept.
    is_too_long: bool,
}

impl KeyDecoder {
    /// The keys completed by `bytes`, which were read at once.
    pub(crate) fn push(&mut self, bytes: &[u8], now: Instant) -> Vec<KeyPress> {
        if matches!(self.state, EscapeState::Paste { .. }) && bytes == b"\x03" {
            // The end of the paste was lost; the user must still be able to type.
            self.state = EscapeState::Text;
            return vec![KeyPress::Interrupt];
        }
        let follows_paste = self.paste_until.is_some_and(|until| now < until);
        self.paste_until = follows_paste.then(|| now + QUIET);
        let mut keys = Vec::new();
        for byte in bytes {
            if let Some(key) = self.byte(*byte, now) {
                let held = key == KeyPress::Enter && self.paste_until.is_some();
                keys.push(if held { KeyPress::NewLine } else { key });
            }
        }
        keys
    }

    /// Whether the bytes so far may be a complete key or the beginning of another.
    pub(crate) fn is_within_key(&self) -> bool {
        !matches!(self.state, EscapeState::Text | EscapeState::Paste { .. })
    }

    /// The key that the bytes so far form, since no more came.
    pub(crate) fn end_key(&mut self) -> Option<KeyPress> {
        match std::mem::take(&mut self.state) {
            EscapeState::Escape => Some(KeyPress::Escape),
            paste @ EscapeState::Paste { .. } => {
                self.state = paste;
                None
            }
            EscapeState::Text
            | EscapeState::Character(_)
            | EscapeState::Control(_)
            | EscapeState::Single
            | EscapeState::Console => None,
        }
    }

    fn byte(&mut self, byte: u8, now: Instant) -> Option<KeyPress> {
        match std::mem::take(&mut self.state) {
            EscapeState::Text => self.text(byte),
            EscapeState::Character(mut bytes) if (0x80..0xc0).contains(&byte) => {
                bytes.push(byte);
                self.character(bytes)
            }
            EscapeState::Character(_) => self.text(byte),
            EscapeState::Escape => self.escape(byte),
            EscapeState::Control(mut parameters) => match byte {
                b' '..=b'?' if parameters.len() < SEQUENCE_MAX => {
                    parameters.push(byte);
                    self.state = EscapeState::Control(parameters);
                    None
                }
                b'[' if parameters.is_empty() => {
                    self.state = EscapeState::Console;
                    None
                }
                b'@'..=b'~' => self.control(&parameters, byte, now),
                // It was no sequence: the byte that ends it is decoded on its own.
                _ => self.text(byte),
            },
            EscapeState::Single => match byte {
                b'A'..=b'D' | b'F' | b'H' => self.control(b"", byte, now),
                b'M' => Some(KeyPress::Enter),
                _ => None,
            },
            EscapeState::Console => None,
            EscapeState::Paste(pasted) => self.paste(pasted, byte, now),
        }
    }

    fn text(&mut self, byte: u8) -> Option<KeyPress> {
        let key = match byte {
            0x01 => KeyPress::Home,
            0x02 => KeyPress::Left,
            0x03 => KeyPress::Interrupt,
            0x04 => KeyPress::EndOfInput,
            0x05 => KeyPress::End,
            0x06 => KeyPress::Right,
            0x07 => KeyPress::Escape,
            0x08 | 0x7f => KeyPress::Backspace,
            b'\t' => KeyPress::Tab,
            b'\n' | b'\r' => KeyPress::Enter,
            0x0b => KeyPress::KillToEnd,
            0x0c => KeyPress::ClearScreen,
            0x0e => KeyPress::Down,
            0x10 => KeyPress::Up,
            0x12 => KeyPress::Search,
            0x15 => KeyPress::KillToStart,
            0x17 => KeyPress::KillArgument,
            0x19 => KeyPress::Yank,
            0x1a => KeyPress::Suspend,
            0x1b => {
                self.state = EscapeState::Escape;
                return None;
            }
            b' '..=b'~' => KeyPress::Char(byte.into()),
            0x80.. => return self.character(vec![byte]),
            0x00 | 0x0f | 0x11 | 0x13 | 0x14 | 0x16 | 0x18 | 0x1c..=0x1f => return None,
        };
        Some(key)
    }

    fn character(&mut self, bytes: Vec<u8>) -> Option<KeyPress> {
        match std::str::from_utf8(&bytes) {
            Ok(text) => text
                .chars()
                .next()
                .filter(|c| !c.is_control())
                .map(KeyPress::Char),
            Err(error) if error.error_len().is_none() => {
                self.state = EscapeState::Character(bytes);
                None
            }
            Err(_) => Some(KeyPress::Char(char::REPLACEMENT_CHARACTER)),
        }
    }

    fn escape(&mut self, byte: u8) -> Option<KeyPress> {
        match byte {
            b'[' => self.state = EscapeState::Control(Vec::new()),
            b'O' => self.state = EscapeState::Single,
            0x1b => {
                self.state = EscapeState::Escape;
                return Some(KeyPress::Escape);
            }
            b'\r' | b'\n' => return Some(KeyPress::NewLine),
            b'b' => return Some(KeyPress::WordLeft),
            b'f' => return Some(KeyPress::WordRight),
            b'd' => return Some(KeyPress::KillNextWord),
            0x08 | 0x7f => return Some(KeyPress::KillWord),
            // A key with Alt that has no function here.
            b' '..=b'~' => {}
            _ => return self.text(byte),
        }
        None
    }

    fn control(&mut self, parameters: &[u8], end: u8, now: Instant) -> Option<KeyPress> {
        let text = std::str::from_utf8(parameters).unwrap_or_default();
        let mut numbers = text
            .split(';')
            .map(|number| number.parse::<u16>().unwrap_or_default());
        let (first, second) = (
            numbers.next().unwrap_or_default(),
            numbers.next().unwrap_or_default(),
        );
        // xterm counts modifiers from one: 1 Shift, 2 Alt, 4 Control.
        let modifiers = second.saturating_sub(1);
        let is_word = modifiers & 6 != 0;
        Some(match (end, first) {
            (b'A', _) => KeyPress::Up,
            (b'B', _) => KeyPress::Down,
            (b'C', _) => [KeyPress::Right, KeyPress::WordRight][usize::from(is_word)].clone(),
            (b'D', _) => [KeyPress::Left, KeyPress::WordLeft][usize::from(is_word)].clone(),
            (b'H', _) | (b'~', 1 | 7) => KeyPress::Home,
            (b'F', _) | (b'~', 4 | 8) => KeyPress::End,
            (b'~', 3) => [KeyPress::Delete, KeyPress::KillNextWord][usize::from(is_word)].clone(),
            (b'~', 200) => {
                self.state = EscapeState::Paste(PastedBytes::default());
                return None;
            }
            (b'~', 201) => {
                self.paste_until = Some(now + QUIET);
                return None;
            }
            // Enter with a modifier, as sent by terminals that can distinguish it.
            (b'u', 13) if modifiers & 7 != 0 => KeyPress::NewLine,
            (b'u', 13) => KeyPress::Enter,
            (b'~', 27) if text.ends_with(";13") => KeyPress::NewLine,
            _ => return None,
        })
    }

    fn paste(&mut self, pasted: PastedBytes, byte: u8, now: Instant) -> Option<KeyPress> {
        let PastedBytes {
            mut text,
            mut is_too_long,
        } = pasted;
        text.push(byte);
        if !text.ends_with(PASTE_END) {
            if text.len() > TEXT_MAX + PASTE_END.len() {
                // The end of the buffer may be the beginning of the end mark.
                text.drain(..text.len() - PASTE_END.len());
                is_too_long = true;
            }
            self.state = EscapeState::Paste(PastedBytes { text, is_too_long });
            return None;
        }
        self.paste_until = Some(now + QUIET);
        text.truncate(text.len() - PASTE_END.len());
        is_too_long |= text.len() > TEXT_MAX;
        Some(if is_too_long {
            KeyPress::PasteTooLong
        } else {
            KeyPress::Paste(cleaned(&String::from_utf8_lossy(&text)))
        })
    }
}

/// A text without escape sequences, control and invisible characters; its line breaks become `\n`, however the terminal sends them.
pub(crate) fn cleaned(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    String::from_utf8_lossy(&Cleaner::default().clean(text.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Vec<KeyPress> {
        text.chars().map(KeyPress::Char).collect()
    }

    fn keys(bytes: &[u8]) -> Vec<KeyPress> {
        KeyDecoder::default().push(bytes, Instant::now())
    }

    #[test]
    fn keys_are_the_same_however_their_bytes_arrive() {
        let bytes =
            "aé日👍\x1b[1;5D\x1bOA\x1b[3~\x1b\r\x1bb\x01\x1b[200~x\ty\r\nz\x1b[201~\x1b[[Ab"
                .as_bytes();
        let mut want = typed("aé日👍");
        want.extend([
            KeyPress::WordLeft,
            KeyPress::Up,
            KeyPress::Delete,
            KeyPress::NewLine,
            KeyPress::WordLeft,
            KeyPress::Home,
        ]);
        want.extend([KeyPress::Paste("x\ty\nz".into()), KeyPress::Char('b')]);
        for size in 1..bytes.len() {
            let mut decoder = KeyDecoder::default();
            let got: Vec<KeyPress> = bytes
                .chunks(size)
                .flat_map(|chunk| decoder.push(chunk, Instant::now()))
                .collect();
            assert_eq!(got, want, "in pieces of {size}");
        }
    }

    #[test]
    fn unknown_key_sequence_types_nothing() {
        for nothing in [
            "\0",
            "\x1b[5~",
            "\x1b[?1;2c",
            "\x1b]",
            "\x1bOP",
            "\u{9b}",
            "\x1b[99;99;99X",
        ] {
            assert_eq!(keys(nothing.as_bytes()), [], "{nothing:?}");
        }
        assert_eq!(
            keys(b"\x1b[1\x03"),
            [KeyPress::Interrupt],
            "a sequence that is broken off"
        );
        assert_eq!(
            keys(&[b"\x1b[" as &[u8], &[b'1'; 2 * SEQUENCE_MAX], b"x"].concat())[0],
            KeyPress::Char('1')
        );
        assert_eq!(keys(b"\xff"), [KeyPress::Char('\u{fffd}')]);
    }

    #[test]
    fn escape_is_a_key_once_nothing_follows() {
        let mut decoder = KeyDecoder::default();
        assert_eq!(
            (
                decoder.push(b"\x1b", Instant::now()),
                decoder.is_within_key()
            ),
            (vec![], true)
        );
        assert_eq!(
            (decoder.end_key(), decoder.is_within_key()),
            (Some(KeyPress::Escape), false)
        );
    }

    #[test]
    fn a_paste_is_one_key_without_control_characters() {
        let hostile =
            b"\x1b[200~one\rtwo\x1b]0;title\x07\x1b[2J\x03\x04\x9b\r\rend\xe2\x80\xae\x1b[201~";
        assert_eq!(
            keys(hostile),
            [KeyPress::Paste("one\ntwo\u{fffd}\n\nend".into())]
        );
    }

    #[test]
    fn a_paste_that_ends_itself_sends_nothing() {
        let (mut decoder, now) = (KeyDecoder::default(), Instant::now());
        let escapes = |keys: Vec<KeyPress>| keys.contains(&KeyPress::Enter);
        // The control: typed, it would be submitted.
        assert!(escapes(decoder.push(b"rm\r", now)));
        assert!(!escapes(decoder.push(b"\x1b[200~a\x1b[201~\rrm\r", now)));
        // The rest of it comes in further pieces without a pause.
        let mut at = now;
        for _ in 0..100 {
            at += QUIET / 2;
            assert!(!escapes(decoder.push(b"rm\r", at)));
        }
        assert!(!escapes(decoder.push(b"\x1b[201~", at)));
        assert!(
            escapes(decoder.push(b"\r", at + QUIET)),
            "and then Enter is Enter again"
        );
    }

    #[test]
    fn a_paste_is_bounded_and_one_without_an_end_is_left_by_control_c() {
        let paste = |size: usize| [b"\x1b[200~", &vec![b'x'; size][..], PASTE_END].concat();
        assert!(keys(&paste(TEXT_MAX)) == [KeyPress::Paste("x".repeat(TEXT_MAX))]);
        for surplus in [1, 2, 10, TEXT_MAX] {
            assert!(
                keys(&paste(TEXT_MAX + surplus)) == [KeyPress::PasteTooLong],
                "{surplus}"
            );
        }
        let mut decoder = KeyDecoder::default();
        decoder.push(b"\x1b[200~never", Instant::now());
        assert_eq!(decoder.push(b"\x03", Instant::now()), [KeyPress::Interrupt]);
        assert_eq!(decoder.push(b"x", Instant::now()), [KeyPress::Char('x')]);
    }
}
