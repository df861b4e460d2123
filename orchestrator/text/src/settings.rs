//! A person's settings, shown without the keys and passwords that stand in them.

use policies::secret::{VALUE_MIN, looks_secret};
use std::collections::HashMap;

/// The text that replaces a value.
const HIDDEN: &str = "…";
/// What options with a secret are called for short.
const SHORT: [&str; 5] = ["TOK", "PASS", "PAT", "PWD", "PW"];

/// Shows each line of `texts` as [`hide_values`] shows it in its text.
pub fn line_hider(texts: [&str; 2]) -> impl Fn(&str) -> String + use<'_> {
    let mut hidden: HashMap<&str, String> = HashMap::new();
    for text in texts {
        let shown = hide_values(text);
        // A line that stands in a value here and elsewhere for itself is hidden wherever it stands.
        hidden.extend(
            text.split('\n')
                .zip(shown.split('\n').map(str::to_owned))
                .filter(|(line, shown)| line != shown),
        );
    }
    move |line| hidden.get(line).cloned().unwrap_or_else(|| line.to_owned())
}

/// A text of JSON, TOML, YAML or shell without the value of each name that looks like a secret's: in `"API_KEY": "…"`,
/// `token = """…"""`, `"--api-key", "…"`, `"Authorization: …"`, and without the password of an address. A value without quotes goes to the
/// end of the line, a block of YAML to the end of its lines. Line ends stay.
pub(crate) fn hide_values(text: &str) -> String {
    let text = hide_passwords(text);
    let mut shown = String::with_capacity(text.len());
    let mut quotes = Quotes::default();
    let mut at = 0;
    while let Some(start) = text[at..].find(is_of_name) {
        let begin = at + start;
        let end = text[begin..]
            .find(|c| !is_of_name(c))
            .map_or(text.len(), |length| begin + length);
        shown.push_str(&text[at..end]);
        quotes.pass(&text[at..end]);
        at = end;
        let name = SettingName {
            text: &text[begin..end],
            before: &text[..begin],
            quote: quotes.open,
        };
        if let Some((between, length)) = name.value(&text[end..]) {
            let (from, until) = (end + between, end + between + length);
            shown.push_str(&text[end..from]);
            shown.push_str(&hidden(&text[from..until]));
            quotes.pass(&text[end..until]);
            at = until;
        }
    }
    shown + &text[at..]
}

/// Whether a text stands in quotes, which end with their line at the latest.
#[derive(Default)]
struct Quotes {
    open: Option<char>,
    escaped: bool,
}

impl Quotes {
    fn pass(&mut self, text: &str) {
        for c in text.chars() {
            match self.open {
                _ if c == '\n' => self.open = None,
                Some(quote) if c == quote && !self.escaped => self.open = None,
                None if "\"'".contains(c) => self.open = Some(c),
                Some(_) | None => {}
            }
            self.escaped = c == '\\' && !self.escaped;
        }
    }
}

/// In place of each line of a value.
fn hidden(value: &str) -> String {
    let line = |line: &str| if line.trim().is_empty() { "" } else { HIDDEN };
    value.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// `text` without what stands between `://` and `@`, but for the name of a user.
fn hide_passwords(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|c: char| c.is_whitespace() || "/?#\"'`<>\\".contains(c))
            .unwrap_or(part.len());
        let user = part[..end].rfind('@').map_or("", |at| &part[..at]);
        let kept = match user.split_once(':') {
            Some((name, _)) => name.len() + 1,
            // A token by itself, and no name.
            None if user.len() >= VALUE_MIN => 0,
            None => user.len(),
        };
        let hidden = if kept < user.len() { HIDDEN } else { "" };
        shown.extend(["://", &part[..kept], hidden, &part[user.len()..]]);
    }
    shown
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || "_-.".contains(c)
}

/// A name, what stands before it, and the quote in which it stands.
struct SettingName<'t> {
    text: &'t str,
    before: &'t str,
    quote: Option<char>,
}

impl SettingName<'_> {
    /// Whether its value is a secret.
    fn is_secret(&self) -> bool {
        let name = self.text.replace(['-', '.'], "_");
        let short = name.trim_start_matches('_').to_uppercase();
        looks_secret(name.as_ref()) || self.is_option() && SHORT.contains(&short.as_str())
    }

    fn is_option(&self) -> bool {
        self.text.starts_with('-')
    }

    /// How many bytes behind it its value begins, and how many that has; `None` where none is there that is long enough to be a secret.
    fn value(&self, after: &str) -> Option<(usize, usize)> {
        if !self.is_secret() {
            return None;
        }
        let begin = self.separator(after)?;
        let rest = &after[begin..];
        let (skipped, length) = match self.quote {
            Some(quote) if !after.starts_with(quote) => (0, quoted(rest, &quote.to_string())),
            Some(_) | None => self.bare_value(rest)?,
        };
        (length >= VALUE_MIN).then_some((begin + skipped, length))
    }

    /// The bytes between it and its value.
    fn separator(&self, after: &str) -> Option<usize> {
        let blanks = |text: &str| text.len() - text.trim_start_matches([' ', '\t']).len();
        let lines = |text: &str| text.len() - text.trim_start().len();
        // The quote behind the name, which may be escaped: JSON within JSON.
        let quote = after.trim_start_matches('\\');
        let closed = if quote.starts_with(['"', '\'']) {
            after.len() - quote.len() + 1
        } else {
            0
        };
        let gap = closed + blanks(&after[closed..]);
        let rest = &after[gap..];
        let behind = gap + 1;
        match rest.chars().next()? {
            ':' => Some(behind + lines(&after[behind..])),
            '=' => Some(behind + blanks(&after[behind..])),
            ',' if self.is_option() => Some(behind + lines(&after[behind..])),
            ',' => Some(behind + blanks(&after[behind..])),
            // An item of a list in YAML, of which the next one is its value.
            '\n' | '\r' if self.is_option() => {
                let item = gap + lines(rest);
                after[item..].starts_with("- ").then_some(item + 2)
            }
            '\n' | '\r' => None,
            _ => (gap > closed).then_some(gap),
        }
    }

    /// Where a value in no quotes that are open already begins, and its length.
    fn bare_value(&self, rest: &str) -> Option<(usize, usize)> {
        for quote in ["\"\"\"", "'''", "\"", "'"] {
            if let Some(inner) = rest.strip_prefix(quote) {
                return Some((quote.len(), quoted(inner, quote)));
            }
        }
        match rest.chars().next()? {
            '{' => return None,
            '[' => {
                let list = &rest[1..rest.find(']')?];
                return (!list.contains('{')).then_some((1, list.len()));
            }
            // A number of JSON.
            _ if self.quote.is_some() => {
                return Some((0, rest.find([',', '}', ']', '\n']).unwrap_or(rest.len())));
            }
            _ => {}
        }
        let line = rest.split('\n').next().unwrap_or_default();
        match rest.chars().next()? {
            '|' | '>' => Some((line.len(), self.deeper(&rest[line.len()..]))),
            '-' if line.starts_with("- ") => {
                Some((0, line.len() + self.items(&rest[line.len()..])))
            }
            // The first key of an object in YAML.
            _ if line.trim_end().ends_with(':') || line.contains(": ") => None,
            _ => Some((0, line.len())),
        }
    }

    /// Bytes of the lines that are indented more than its own.
    fn deeper(&self, rest: &str) -> usize {
        let own = indent(self.before.rsplit('\n').next().unwrap_or_default());
        let is_inner = |line: &&str| line.trim().is_empty() || indent(line) > own;
        rest.split_inclusive('\n')
            .skip(1)
            .take_while(is_inner)
            .map(str::len)
            .sum::<usize>()
            + 1
    }

    /// Bytes of the lines that are items of a list.
    fn items(&self, rest: &str) -> usize {
        let is_item = |line: &&str| line.trim_start().starts_with("- ");
        rest.split_inclusive('\n')
            .skip(1)
            .take_while(is_item)
            .map(str::len)
            .sum::<usize>()
            + 1
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// The bytes up to a quote that is not escaped.
fn quoted(text: &str, quote: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if !escaped && text[at..].starts_with(quote) {
            return at;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::{hide_values, line_hider};

    #[test]
    fn values_of_secrets_are_hidden_and_nothing_else() {
        for (line, want) in [
            (r#"  "API_KEY": "sk-12345678","#, r#"  "API_KEY": "…","#),
            (
                r#"env = { A_TOKEN = 'a"12345678', B = "plain-text" }"#,
                r#"env = { A_TOKEN = '…', B = "plain-text" }"#,
            ),
            (
                r#"{"env":{"X_SECRET":"12\"345678","C":"d"}}"#,
                r#"{"env":{"X_SECRET":"…","C":"d"}}"#,
            ),
            (
                r#""args": ["--api-key", "12345678", "x"]"#,
                r#""args": ["--api-key", "…", "x"]"#,
            ),
            (r#""--token=12345678", "y""#, r#""--token=…", "y""#),
            (r#"["--tok", "12345678", "y"]"#, r#"["--tok", "…", "y"]"#),
            (
                r#"["--db-pass=12345678", "--pw", "12345678"]"#,
                r#"["--db-pass=…", "--pw", "…"]"#,
            ),
            (
                r#"["{\"token\": \"12345678\"}", "x"]"#,
                r#"["{\"token\": …", "x"]"#,
            ),
            (
                "command = 'server --token 12345678'",
                "command = 'server --token …'",
            ),
            (
                r#"["-H", "Authorization: Bearer 12345678"]"#,
                r#"["-H", "Authorization: …"]"#,
            ),
            ("  GITHUB_TOKEN: ghp_12345678 # mine", "  GITHUB_TOKEN: …"),
            ("export A_PASSWORD=12345678", "export A_PASSWORD=…"),
            ("password: it's-12345678", "password: …"),
            (r#"api_keys = ["12345678", "87654321"]"#, "api_keys = […]"),
            (r#""API_KEY": "short","#, r#""API_KEY": "short","#),
            (
                r#""token": "", "permissions": {"#,
                r#""token": "", "permissions": {"#,
            ),
            (
                r#"{"maxTokens":12345,"b":{"tokens":123456789,"c":1}}"#,
                r#"{"maxTokens":12345,"b":{"tokens":…,"c":1}}"#,
            ),
            (r#""sessions": {"#, r#""sessions": {"#),
            (
                r#""command": "lazaret", "args": ["mcp"]"#,
                r#""command": "lazaret", "args": ["mcp"]"#,
            ),
            (
                "a line without any, in ünïcode",
                "a line without any, in ünïcode",
            ),
            ("TOKEN", "TOKEN"),
            ("", ""),
        ] {
            assert_eq!(hide_values(line), want);
        }
    }

    #[test]
    fn passwords_in_addresses_are_hidden() {
        for (line, want) in [
            (
                r#""url": "https://u:PW@h/p", "x""#,
                r#""url": "https://u:…@h/p", "x""#,
            ),
            (
                "https://ghp_12345678@h and ssh://git@h/x",
                "https://…@h and ssh://git@h/x",
            ),
            ("postgres://u:p@ss:w@h:5432/db", "postgres://u:…@h:5432/db"),
            (
                "https://h/u:p@x http://h:80/",
                "https://h/u:p@x http://h:80/",
            ),
        ] {
            assert_eq!(hide_values(line), want);
        }
    }

    #[test]
    fn values_of_several_lines_are_hidden_and_the_lines_stay() {
        for (text, want) in [
            (
                "token = \"\"\"\n1234\n5678\"\"\"\nx = 1\n",
                "token = \"\"\"\n…\n…\"\"\"\nx = 1\n",
            ),
            ("token = '''12345678\n9'''\n", "token = '''…\n…'''\n"),
            (
                "a:\n  private_key: |\n    12345678\n\n    9\n  b: c\n",
                "a:\n  private_key: |\n…\n\n…\n  b: c\n",
            ),
            (
                "api_keys:\n  - 12345678\n  - 87654321\nb: c\n",
                "api_keys:\n  …\n…\nb: c\n",
            ),
            (
                "secrets:\n  name: plain-text\n",
                "secrets:\n  name: plain-text\n",
            ),
            ("\"KEY\":\n  \"12345678\",\n", "\"KEY\":\n  \"…\",\n"),
            (
                "[\n  \"--api-key\",\n  \"12345678\",\n  \"x\"\n]",
                "[\n  \"--api-key\",\n  \"…\",\n  \"x\"\n]",
            ),
            (
                "args:\n  - --token\n  - 12345678\n  - x\n",
                "args:\n  - --token\n  - …\n  - x\n",
            ),
            ("A_TOKEN=\nB=plain-text\n", "A_TOKEN=\nB=plain-text\n"),
            (
                "[\"token\",\n  \"permissions\"]",
                "[\"token\",\n  \"permissions\"]",
            ),
        ] {
            assert_eq!(hide_values(text), want, "{text}");
        }
        let show = line_hider(["token = \"\"\"\n12345678\"\"\"\n", "x\n"]);
        assert_eq!(
            (show("12345678\"\"\""), show("x")),
            ("…\"\"\"".to_owned(), "x".to_owned())
        );
    }
}
