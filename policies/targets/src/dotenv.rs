//! Files in dotenv form (`.env`), and what a command sees of one: the same keys, with placeholders for the values.
//!
//! The text may come from anybody. It is masked only if no program that reads such files could take a part of a value for a key: where
//! their rules differ, and where a line is none of theirs, the whole file is refused, and stays hidden. No byte of a value is copied
//! to the result but those of `kept`; the README of `policies` has the table.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use thiserror::Error;

/// Largest file that is masked, in bytes.
pub const DOTENV_MAX: usize = 64 << 10;
/// Largest masked text, in bytes: a placeholder may be longer than its value.
pub(crate) const MASKED_MAX: usize = 256 << 10;
/// Longest key, in bytes.
pub const KEY_MAX: usize = 128;
/// The beginning of a placeholder, where its shape has room for it.
pub const PREFIX: &str = "lazaret-masked-";
/// Random bytes of a session, from which its placeholders are made.
pub type Salt = [u8; 32];

/// Why a file is not masked. It names no byte of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DotenvFault {
    #[error("it has more than {} KiB", DOTENV_MAX >> 10)]
    TooLarge,
    #[error("it would have more than {} KiB when masked", MASKED_MAX >> 10)]
    MaskTooLarge,
    #[error("it is no text in UTF-8, or has control characters")]
    NotText,
    #[error("line {0} is no plain `KEY=value`")]
    Line(usize),
    #[error("no key in it has a value")]
    NoValue,
}

/// Whether a file of this name is read as `KEY=value` lines.
pub fn is_dotenv_name(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let begins = [&b".env."[..], b".env-", b".env_", b".dev.vars."];
    let whole = [&b".env"[..], b".dev.vars", b".secrets"];
    whole.contains(&name.as_slice())
        || begins.iter().any(|begin| name.starts_with(begin))
        || name.ends_with(b".env")
}

/// The masked form of `text` for commands: its keys in their order, each with a placeholder of its value's shape. Equal values have equal
/// placeholders; without `salt` nobody can tell what a placeholder stands for.
///
/// # Errors
/// The file is not cleanly in dotenv form.
pub fn mask(text: &[u8], salt: &Salt) -> Result<String, DotenvFault> {
    if text.len() > DOTENV_MAX {
        return Err(DotenvFault::TooLarge);
    }
    let text = std::str::from_utf8(text).map_err(|_| DotenvFault::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let is_control = |c: char| c.is_ascii_control() && !matches!(c, '\t' | '\n' | '\r');
    let has_lone_return = text.split("\r\n").any(|part| part.contains('\r'));
    if text.contains(is_control) || has_lone_return {
        return Err(DotenvFault::NotText);
    }
    let lines = DotenvReader {
        rest: text,
        line: 1,
    }
    .assignments()?;
    if !lines.is_empty() && lines.iter().all(|line| line.value.is_empty()) {
        return Err(DotenvFault::NoValue);
    }
    let mut masked = String::new();
    for Assignment {
        export,
        key,
        quote,
        value,
    } in lines
    {
        let (export, quote) = (
            if export { "export " } else { "" },
            quote.unwrap_or_default(),
        );
        let value = Placeholders { salt, value }.of(key);
        writeln!(masked, "{export}{key}={quote}{value}{quote}")
            .map_err(|_| DotenvFault::MaskTooLarge)?;
        if masked.len() > MASKED_MAX {
            return Err(DotenvFault::MaskTooLarge);
        }
    }
    Ok(masked)
}

/// One line, or several within quotes.
struct Assignment<'t> {
    export: bool,
    key: &'t str,
    quote: Option<&'static str>,
    value: &'t str,
}

/// Reads assignments from the beginning of a text.
struct DotenvReader<'t> {
    rest: &'t str,
    line: usize,
}

impl<'t> DotenvReader<'t> {
    fn assignments(mut self) -> Result<Vec<Assignment<'t>>, DotenvFault> {
        let mut all = Vec::new();
        loop {
            self.skip_blanks();
            if self.rest.is_empty() {
                return Ok(all);
            }
            if self.rest.starts_with(['#', '\n', '\r']) {
                self.rest_of_line();
                continue;
            }
            let at = DotenvFault::Line(self.line);
            all.push(self.assignment().ok_or(at)?);
        }
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    /// Takes what is left of the line.
    fn rest_of_line(&mut self) -> &'t str {
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        (self.rest, self.line) = (rest, self.line + 1);
        line.trim_end_matches('\r')
    }

    fn assignment(&mut self) -> Option<Assignment<'t>> {
        let exported = self
            .rest
            .strip_prefix("export")
            .filter(|rest| rest.starts_with([' ', '\t']));
        self.rest = exported.unwrap_or(self.rest);
        self.skip_blanks();
        let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let end = self.rest.find(|c| !is_key(c)).unwrap_or(self.rest.len());
        let (key, rest) = self.rest.split_at(end);
        let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
        if !key.starts_with(is_first) || key.len() > KEY_MAX {
            return None;
        }
        self.rest = rest;
        self.skip_blanks();
        // A line of base64 that ends with two signs looks like a key with one as its value.
        self.rest = self
            .rest
            .strip_prefix('=')
            .filter(|rest| !rest.starts_with('='))?;
        let before = self.rest.len();
        self.skip_blanks();
        let is_spaced = self.rest.len() < before;
        let (quote, value) = match ["'", "\"", "`"]
            .into_iter()
            .find(|quote| self.rest.starts_with(quote))
        {
            Some(quote) => (Some(quote), self.quoted(quote)?),
            None => (None, self.unquoted(is_spaced)?),
        };
        // And one that ends with one sign looks like a key without a value.
        let is_like_a_value = key.contains(|c: char| c.is_ascii_lowercase())
            && key.contains(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit())
            || key.len() > 40;
        (!value.is_empty() || !is_like_a_value).then_some(Assignment {
            export: exported.is_some(),
            key,
            quote,
            value,
        })
    }

    /// A value up to the next `quote`, which must be the last of its line but for a comment. Programs differ on what a backslash
    /// before a quote means, except for a single one in double quotes.
    fn quoted(&mut self, quote: &'static str) -> Option<&'t str> {
        let body = self.rest.strip_prefix(quote)?;
        let mut from = 0;
        let end = loop {
            let at = from + body[from..].find(quote)?;
            let backslashes = body[..at]
                .bytes()
                .rev()
                .take_while(|byte| *byte == b'\\')
                .count();
            match (backslashes, quote) {
                (0, _) => break at,
                (1, "\"") => from = at + 1,
                _ => return None,
            }
        };
        let value = &body[..end];
        self.line += value.matches('\n').count();
        self.rest = &body[end + quote.len()..];
        let after = self.rest_of_line().trim_matches([' ', '\t']);
        (after.is_empty() || after.starts_with('#')).then_some(value)
    }

    /// A value up to the end of its line or a comment. A quote without its fellow, and a backslash at the end, may mean that the
    /// value goes on in the next line.
    fn unquoted(&mut self, is_spaced: bool) -> Option<&'t str> {
        let line = self.rest_of_line();
        let is_paired = |quote| line.matches(quote).count() % 2 == 0;
        if line.ends_with('\\') || !['\'', '"', '`'].into_iter().all(is_paired) {
            return None;
        }
        let comment = [" #", "\t#"]
            .into_iter()
            .filter_map(|sign| line.find(sign))
            .min();
        let comment = if is_spaced && line.starts_with('#') {
            Some(0)
        } else {
            comment
        };
        Some(line[..comment.unwrap_or(line.len())].trim_end_matches([' ', '\t']))
    }
}

/// Words that say which way a program runs, and no more.
const MODES: [&str; 20] = [
    "development",
    "dev",
    "production",
    "prod",
    "staging",
    "stage",
    "test",
    "testing",
    "local",
    "ci",
    "preview",
    "trace",
    "debug",
    "verbose",
    "info",
    "notice",
    "warn",
    "warning",
    "error",
    "fatal",
];

/// Schemes that a placeholder of an address keeps.
const SCHEMES: [&str; 34] = [
    "http",
    "https",
    "ws",
    "wss",
    "postgres",
    "postgresql",
    "jdbc:postgresql",
    "jdbc:mysql",
    "mysql",
    "mysql2",
    "mariadb",
    "mssql",
    "sqlserver",
    "mongodb",
    "mongodb+srv",
    "redis",
    "rediss",
    "amqp",
    "amqps",
    "nats",
    "kafka",
    "smtp",
    "smtps",
    "ftp",
    "sftp",
    "ssh",
    "git",
    "ldap",
    "ldaps",
    "s3",
    "sqlite",
    "sqlite3",
    "file",
    "libsql",
];

/// Longest number, in digits, that a placeholder keeps as one.
const DIGITS_MAX: usize = 64;

/// Whether a value is shown as it is: a truth value under any key, a port under `PORT` and `*_PORT`, a word of [`MODES`] under
/// `*ENV`, `*MODE` and `*LEVEL`.
fn kept(key: &str, value: &str) -> bool {
    let ends = |last: &str| {
        let parts = key.rsplit_once('_').map_or(key, |(_, part)| part);
        parts.eq_ignore_ascii_case(last)
    };
    let truth = ["true", "false", "yes", "no", "on", "off", "0", "1"];
    let is_port = || {
        let digits = value.bytes().all(|byte| byte.is_ascii_digit()) && !value.starts_with('0');
        digits && value.parse::<u16>().is_ok()
    };
    truth.iter().any(|word| value.eq_ignore_ascii_case(word))
        || ends("PORT") && is_port()
        || ["ENV", "ENVIRONMENT", "MODE", "LEVEL"]
            .into_iter()
            .any(ends)
            && MODES.contains(&value)
}

/// The placeholders of one value.
struct Placeholders<'t> {
    salt: &'t Salt,
    value: &'t str,
}

impl Placeholders<'_> {
    fn of(&self, key: &str) -> String {
        if self.value.is_empty() || kept(key, self.value) {
            return self.value.to_owned();
        }
        self.number()
            .or_else(|| self.address())
            .or_else(|| self.mailbox())
            .unwrap_or_else(|| self.text())
    }

    /// Bytes that depend on the salt and the value, as many as are wanted.
    fn bytes(&self) -> impl Iterator<Item = u8> {
        let start = Sha256::new()
            .chain_update(self.salt)
            .chain_update(self.value);
        (0u32..).flat_map(move |block| start.clone().chain_update(block.to_le_bytes()).finalize())
    }

    fn hex(&self, digits: usize) -> String {
        let mut text: String = self
            .bytes()
            .take(digits.div_ceil(2))
            .map(|byte| format!("{byte:02x}"))
            .collect();
        text.truncate(digits);
        text
    }

    /// At least as long as the value, and as long as all others of its class.
    fn text(&self) -> String {
        let length = self.value.len().next_power_of_two().max(32);
        format!("{PREFIX}{}", self.hex(length - PREFIX.len()))
    }

    /// As many digits before and after the point, with the sign. One that fits into an integer still does, and one of up to five
    /// digits is a port.
    fn number(&self) -> Option<String> {
        let (sign, number) = self
            .value
            .strip_prefix('-')
            .map_or(("", self.value), |rest| ("-", rest));
        let (whole, part) = number
            .split_once('.')
            .map_or((number, None), |(whole, part)| (whole, Some(part)));
        let is_number = |text: &str| {
            (1..=DIGITS_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !is_number(whole) || !part.is_none_or(is_number) {
            return None;
        }
        let mut digits = self.bytes().map(|byte| char::from(b'0' + byte % 10));
        let mut text = sign.to_owned();
        match whole.len() {
            1 => text.extend(self.bytes().take(1).map(|byte| char::from(b'2' + byte % 8))),
            more => text.extend(std::iter::once('1').chain(digits.by_ref().take(more - 1))),
        }
        if let Some(part) = part {
            text.push('.');
            text.extend(digits.take(part.len()));
        }
        Some(text)
    }

    /// An address of the same scheme, with user, port and path where there are some, on a host that does not exist.
    fn address(&self) -> Option<String> {
        let fits = |scheme: &&&str| {
            self.value
                .strip_prefix(**scheme)
                .is_some_and(|rest| rest.starts_with(':'))
        };
        let scheme = SCHEMES
            .iter()
            .filter(fits)
            .max_by_key(|scheme| scheme.len())?;
        let rest = &self.value[scheme.len() + 1..];
        let mut text = format!("{scheme}:");
        let Some(rest) = rest.strip_prefix("//") else {
            let is_relative = rest.starts_with("./");
            let opaque = ["file", "sqlite", "sqlite3", "libsql"].contains(scheme);
            return opaque.then(|| text + if is_relative { "./" } else { "" } + &self.text());
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        text.push_str("//");
        if authority.contains('@') {
            text.extend(["lazaret-masked:", &self.hex(16), "@"]);
        }
        if !authority.is_empty() {
            text.extend([PREFIX, &self.hex(16), ".invalid"]);
        }
        let port = authority.rsplit_once(':').map(|(_, port)| port);
        if port
            .is_some_and(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
        {
            text.push_str(":1");
            text.extend(
                self.bytes()
                    .take(4)
                    .map(|byte| char::from(b'0' + byte % 10)),
            );
        }
        match path.len() {
            0 => {}
            1 => text.push('/'),
            _ => text.extend(["/", PREFIX, &self.hex(8)]),
        }
        Some(text)
    }

    fn mailbox(&self) -> Option<String> {
        let (local, domain) = self.value.split_once('@')?;
        let is_plain = |text: &str| {
            !text.is_empty()
                && !text.contains(|c: char| "@/:;,<>\"'\\".contains(c) || c.is_whitespace())
        };
        (is_plain(local) && is_plain(domain) && domain.contains('.'))
            .then(|| format!("{PREFIX}{}@lazaret.invalid", self.hex(16)))
    }
}

#[cfg(test)]
mod tests;
