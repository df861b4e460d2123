//! Lines of a person's settings, shown without the keys that stand in them.

use policies::secret::{VALUE_MIN, looks_secret};

/// What stands in place of a value.
const HIDDEN: &str = "…";

/// A line of JSON, TOML, YAML or shell without the value of each name that looks like a secret's: in `"API_KEY": "…"`,
/// `token = "…"`, `"--api-key", "…"`, `"Authorization: …"`. A value without quotes goes to the end of the line.
pub fn hide_values(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find(is_of_name) {
        let (before, from) = rest.split_at(start);
        let (name, after) = from.split_at(from.find(|c| !is_of_name(c)).unwrap_or(from.len()));
        shown.extend([before, name]);
        rest = after;
        if !looks_secret(name.as_ref()) {
            continue;
        }
        let Some((between, value)) = value_after(after) else { continue };
        shown.extend([between, HIDDEN]);
        rest = &after[between.len() + value.len()..];
    }
    shown + rest
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || "_-.".contains(c)
}

/// What stands between a name and its value, and the value, if one is there that is long enough to be a secret.
fn value_after(after: &str) -> Option<(&str, &str)> {
    let between = after.find(|c: char| !c.is_whitespace() && !"\"':=,".contains(c))?;
    let (between, rest) = after.split_at(between);
    if !between.contains([':', '=', ',', ' ']) {
        return None;
    }
    // A value in quotes has its first one before it, or before its name.
    let quote = between.chars().rev().find(|c| "\"'".contains(*c)).unwrap_or('"');
    let mut escaped = false;
    let end = rest.find(|c| {
        let ends = c == quote && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    let value = &rest[..end.unwrap_or(rest.len())];
    (value.len() >= VALUE_MIN).then_some((between, value))
}

#[cfg(test)]
mod tests {
    use super::hide_values;

    #[test]
    fn values_of_secrets_are_hidden_and_nothing_else() {
        for (line, want) in [
            (r#"  "API_KEY": "sk-12345678","#, r#"  "API_KEY": "…","#),
            (
                r#"env = { A_TOKEN = 'a"12345678', B = "plain-text" }"#,
                r#"env = { A_TOKEN = '…', B = "plain-text" }"#,
            ),
            (r#"{"env":{"X_SECRET":"12\"345678","C":"d"}}"#, r#"{"env":{"X_SECRET":"…","C":"d"}}"#),
            (r#""args": ["--api-key", "12345678", "x"]"#, r#""args": ["--api-key", "…", "x"]"#),
            (r#""--token=12345678", "y""#, r#""--token=…", "y""#),
            (r#"["-H", "Authorization: Bearer 12345678"]"#, r#"["-H", "Authorization: …"]"#),
            ("  GITHUB_TOKEN: ghp_12345678 # mine", "  GITHUB_TOKEN: …"),
            ("export A_PASSWORD=12345678", "export A_PASSWORD=…"),
            (r#""API_KEY": "short","#, r#""API_KEY": "short","#),
            (r#""sessions": {"#, r#""sessions": {"#),
            (r#""command": "lazaret", "args": ["mcp"]"#, r#""command": "lazaret", "args": ["mcp"]"#),
            ("a line without any, in ünïcode", "a line without any, in ünïcode"),
            ("TOKEN", "TOKEN"),
            ("", ""),
        ] {
            assert_eq!(hide_values(line), want);
        }
    }
}
