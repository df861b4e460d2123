//! Names in one spelling: letters without case in every alphabet, and without characters that file systems ignore.

use std::borrow::Cow;

/// Bytes in which ASCII stands as it is (the patterns fold its case) and everything else has one form for each letter.
/// Directories with case folding (ext4, f2fs) compare so: to them `.e\u{200c}nv` and `.env` are one name.
pub fn fold(bytes: &[u8]) -> Cow<'_, [u8]> {
    if bytes.is_ascii() {
        return Cow::Borrowed(bytes);
    }
    let text = String::from_utf8_lossy(bytes);
    Cow::Owned(fold_text(&text).into_bytes())
}

/// A path in one spelling: without case, and without what file systems ignore.
pub fn one_spelling(path: &[u8]) -> Vec<u8> {
    fold(path).to_ascii_lowercase()
}

/// A pattern as names are compared with it.
pub fn fold_pattern(pattern: &str) -> Cow<'_, str> {
    if pattern.is_ascii() {
        Cow::Borrowed(pattern)
    } else {
        Cow::Owned(fold_text(pattern))
    }
}

fn fold_text(text: &str) -> String {
    let kept = text.chars().filter(|c| !is_ignorable(*c));
    // To upper case in between: the long s and the Kelvin sign have a small letter of their own. To lower case before:
    // the capital sharp s is two letters only by way of the small one.
    kept.flat_map(char::to_lowercase)
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect()
}

fn is_ignorable(c: char) -> bool {
    matches!(u32::from(c), 0xad | 0x34f | 0x61c | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180f | 0x200b..=0x200f
        | 0x202a..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff0..=0xfff8
        | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_folding_gives_every_letter_one_form() {
        assert_eq!(fold(".\u{1e9e}h".as_bytes()), fold(b".ssh"));
        // No letter above these has another case.
        for letter in (0..0x2_0000).filter_map(char::from_u32).map(String::from) {
            let form = fold_text(&letter);
            for other in [letter.to_lowercase(), letter.to_uppercase(), form.clone()] {
                assert_eq!(fold_text(&other), form, "{letter} and {other}");
            }
        }
    }
}
