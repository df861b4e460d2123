//! Secrets in an environment, by the names of their variables, because values tell nothing.

use std::ffi::{OsStr, OsString};

/// Beginning of the text for a token of a login at a server, which the client's gateway alone can read.
pub const SEALED_TOKEN: &str = "lazaret-login-";
/// Maximum bytes of such a text.
pub const SEALED_TOKEN_MAX: usize = 32 << 10;

/// Words that make a name look like a secret's, compared without case.
const WORDS: [&str; 13] = [
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "PRIVATE",
    "AUTH",
    "COOKIE",
    "SESSION",
    "DATABASE_URL",
    "CONNECTION_STRING",
];
/// Short words that are one only at the end of a name: `PWD` alone is a directory, and `PATH` begins with `PAT`.
const LAST_WORDS: [&str; 3] = ["_PASS", "_PAT", "_PWD"];

/// Words that begin as `AUTH` does, and name a person: git's variables have them, which cells get.
const PERSON: [&str; 2] = ["AUTHOR", "AUTHORS"];
/// Words and beginnings of names that hold a word of the above and are no secret's: those of a desktop and of files. They
/// make a name open only where nothing else in it looks like a secret's: `AUTHOR_TOKEN` is one. An open name reaches no cell
/// either, but to blot it out of a result would only make that wrong.
const OPEN_WORDS: [&str; 3] = ["AUTHORITY", "XAUTHORITY", "KEYBOARD"];
const OPEN_BEGINNINGS: [&str; 6] = [
    "XDG_SESSION_",
    "DESKTOP_SESSION",
    "DBUS_SESSION_",
    "SESSION_MANAGER",
    "SSH_AUTH_SOCK",
    "GDMSESSION",
];
/// A variable with one of these words says where a secret is, whatever else its name has.
const OPEN_ENDINGS: [&str; 3] = ["_FILE", "_PATH", "_DIR"];

/// Shortest value that is looked for, in bytes: a shorter one is found in innocent text.
pub const VALUE_MIN: usize = 8;

/// Whether a variable's name looks like a secret's: then it reaches no cell.
pub fn looks_secret(name: &OsStr) -> bool {
    let upper = name.to_string_lossy().to_uppercase();
    let name = without_words(&upper, &PERSON);
    WORDS.iter().any(|word| name.contains(word))
        || LAST_WORDS.iter().any(|word| name.ends_with(word))
}

/// A value that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// The variable that holds it.
    pub name: String,
    /// The value; [`VALUE_MIN`] bytes or more.
    pub value: Vec<u8>,
}

// A secret is not shown by mistake.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({})", self.name)
    }
}

/// The secrets of an environment, longest first; of one value the first name.
pub fn secrets<'a>(
    variables: impl IntoIterator<Item = (&'a OsString, &'a OsString)>,
) -> Vec<Secret> {
    let held = variables
        .into_iter()
        .filter(|(name, value)| value.len() >= VALUE_MIN && holds_secret(name));
    let mut secrets: Vec<Secret> = held
        .map(|(name, value)| Secret {
            name: name.to_string_lossy().into_owned(),
            value: value.as_encoded_bytes().to_vec(),
        })
        .collect();
    secrets.sort_by(|a, b| {
        (b.value.len(), &a.value, &a.name).cmp(&(a.value.len(), &b.value, &b.name))
    });
    secrets.dedup_by(|second, first| second.value == first.value);
    secrets
}

/// Whether a variable's value is looked for in texts.
pub fn holds_secret(name: &OsStr) -> bool {
    let upper = name.to_string_lossy().to_uppercase();
    if OPEN_ENDINGS.iter().any(|ending| upper.ends_with(ending)) {
        return false;
    }
    let rest = OPEN_BEGINNINGS
        .iter()
        .find_map(|beginning| upper.strip_prefix(beginning))
        .unwrap_or(&upper);
    looks_secret(without_words(rest, &OPEN_WORDS).as_ref())
}

/// The other words of `name`. A word ends where no letter follows: `AUTHORIZATION` has not the word `AUTHOR`.
fn without_words(name: &str, open: &[&str]) -> String {
    let words = name.split(|c: char| !c.is_alphanumeric());
    let others: Vec<&str> = words.filter(|word| !open.contains(word)).collect();
    others.join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Vec<(String, String)> {
        let variables: Vec<(OsString, OsString)> = variables
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let pairs = variables.iter().map(|(name, value)| (name, value));
        let text = |secret: Secret| (secret.name, String::from_utf8(secret.value).unwrap());
        secrets(pairs).into_iter().map(text).collect()
    }

    #[test]
    fn secrets_are_found_by_name_and_have_eight_bytes_or_more() {
        let got = found(&[
            ("A_TOKEN", "12345678"),
            ("B_TOKEN", "1234567"),
            ("PLAIN", "123456789"),
            ("brave_search_api_key", "longest-of-them"),
        ]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            got,
            [
                pair("brave_search_api_key", "longest-of-them"),
                pair("A_TOKEN", "12345678")
            ]
        );
    }

    #[test]
    fn one_value_has_one_name() {
        let got = found(&[("B_KEY", "same-value"), ("A_KEY", "same-value")]);
        assert_eq!(got, [("A_KEY".to_owned(), "same-value".to_owned())]);
    }

    #[test]
    fn names_of_people_are_no_secrets_and_reach_cells() {
        for name in [
            "AUTHOR",
            "GIT_AUTHOR_NAME",
            "npm_package_author_email",
            "CARGO_PKG_AUTHORS",
        ] {
            assert_eq!(found(&[(name, "a-long-value")]), [], "{name}");
            assert!(!looks_secret(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn variables_of_a_desktop_are_no_secrets() {
        let open = [
            "SSH_AUTH_SOCK",
            "XDG_SESSION_TYPE",
            "DBUS_SESSION_BUS_ADDRESS",
            "GDMSESSION",
            "AZURE_AUTHORITY_HOST",
            "XAUTHORITY",
            "KEYBOARD_LAYOUT",
            "TOKEN_FILE",
            "AUTHORIZATION_TOKEN_PATH",
        ];
        for name in open {
            assert_eq!(found(&[(name, "/some/long/value")]), [], "{name}");
            assert!(
                looks_secret(OsStr::new(name)),
                "{name} may reach no cell all the same"
            );
        }
    }

    #[test]
    fn an_open_word_opens_no_name_that_has_another_one() {
        for name in [
            "AUTHORIZATION",
            "AUTHORIZATION_TOKEN",
            "HTTP_AUTHORIZATION",
            "proxy-authorization",
            "AUTHORISATION",
            "AUTHORITY_API_KEY",
            "AUTHORIZED_KEYS",
            "AUTHOR_TOKEN",
            "GIT_AUTHOR_PASSWORD",
            "XAUTHORITY_COOKIE",
            "KEYBOARD_SECRET",
            "XDG_SESSION_TOKEN",
            "DBUS_SESSION_COOKIE",
            "SSH_AUTH_SOCK_KEY",
            "AWS_SESSION_TOKEN",
        ] {
            assert_eq!(found(&[(name, "a-long-value")]).len(), 1, "{name}");
        }
    }

    #[test]
    fn short_words_count_at_the_end_of_a_name() {
        for name in [
            "SSH_PASSPHRASE",
            "DB_PASS",
            "smtp_pass",
            "GITHUB_PAT",
            "AZURE_DEVOPS_EXT_PAT",
            "MYSQL_PWD",
        ] {
            assert_eq!(found(&[(name, "a-long-value")]).len(), 1, "{name}");
        }
        for name in [
            "PWD",
            "OLDPWD",
            "PATH",
            "LD_LIBRARY_PATH",
            "PATTERN",
            "SSH_ASKPASS",
            "COMPASS",
            "PASS_THROUGH",
        ] {
            assert!(!looks_secret(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_secret_does_not_print_itself() {
        let secret = Secret {
            name: "A_KEY".into(),
            value: b"value".to_vec(),
        };
        assert_eq!(format!("{secret:?}"), "Secret(A_KEY)");
    }
}
