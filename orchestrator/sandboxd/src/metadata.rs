//! What a client may know of our environment: the variables that a pod's template gives a sandbox, without anything that looks like
//! a secret.

use orchestrator_text::redact::Redactor;
use policies::secret::looks_secret;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// The beginning of the names that clients see.
const PREFIX: &str = "SANDBOX_";
/// Parts of names that the protocol holds for secret besides those that we know.
const SENSITIVE: [&str; 6] = ["CRED", "AUTH", "BEARER", "PRIVATE", "CERT", "KEY"];
/// Maximum number of variables; further ones are left out.
const VARIABLES_MAX: usize = 256;

/// The variables of `environment` that clients see.
pub(crate) fn visible(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    redactor: &Redactor,
) -> BTreeMap<String, String> {
    let is_plain = |name: &str| {
        let upper = name.to_uppercase();
        !looks_secret(name.as_ref()) && !SENSITIVE.iter().any(|part| upper.contains(part))
    };
    let texts = environment
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts
        .filter(|(name, _)| name.starts_with(PREFIX) && is_plain(name))
        // A value that is a secret's under another name, or has one in it.
        .filter(|(_, value)| *redactor.text(value) == *value)
        .take(VARIABLES_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies::secret::Secret;

    #[test]
    fn only_what_no_secret_is_in_is_told() {
        let secret = Secret {
            name: "API_TOKEN".into(),
            value: "hunter2hunter2".into(),
        };
        let redactor = Redactor::new(vec![secret]).unwrap();
        let variables = [
            ("SANDBOX_ID", "sbx-1"),
            ("SANDBOX_WORKSPACE", "/workspace"),
            ("SANDBOX_API_TOKEN", "x"),
            ("SANDBOX_SSH_KEY", "x"),
            ("SANDBOX_AUTH_HEADER", "x"),
            ("SANDBOX_BEARER", "x"),
            ("SANDBOX_CRED", "x"),
            ("SANDBOX_PASSWD", "x"),
            ("SANDBOX_TLS_CERT", "x"),
            ("SANDBOX_PRIVATE_URL", "x"),
            ("SANDBOX_URL", "https://u:hunter2hunter2@host/"),
            ("sandbox_id", "x"),
            ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ];
        let seen = visible(
            variables.map(|(name, value)| (name.into(), value.into())),
            &redactor,
        );
        let names: Vec<&str> = seen.keys().map(String::as_str).collect();
        assert_eq!(names, ["SANDBOX_ID", "SANDBOX_WORKSPACE"]);
    }

    #[test]
    fn no_more_variables_are_told_than_the_limit() {
        let many = (0..=VARIABLES_MAX).map(|n| (format!("SANDBOX_{n}").into(), "x".into()));
        assert_eq!(
            visible(many, &Redactor::new(vec![]).unwrap()).len(),
            VARIABLES_MAX
        );
    }
}
