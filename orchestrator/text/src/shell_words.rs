//! Words as a shell reads them.

/// One word for a shell. In fish a backslash is special in single quotes too.
pub fn quote(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    let escaped = |c: char| match c {
        '\'' => r"'\''".to_owned(),
        '\\' => r"'\\'".to_owned(),
        other => other.to_string(),
    };
    format!("'{}'", text.chars().map(escaped).collect::<String>())
}

/// A command line of these words.
pub fn line(words: impl Iterator<Item = impl AsRef<str>>) -> String {
    let quoted: Vec<_> = words.map(|word| quote(word.as_ref())).collect();
    quoted.join(" ")
}
