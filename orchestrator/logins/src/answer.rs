//! The answer of a token endpoint: its tokens are sealed, and nothing passes but members that are known to be none.

use crate::fault::{LOGIN_BODY, LoginFault, TOKEN_MIN};
use crate::seal::{RealToken, TokenKey, TokenRole};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use broker_protocol::gateway::LoginSpec;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use orchestrator_effects::strict_json;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

/// Members of an answer that every client may see: of RFC 6749, and of errors.
const PLAIN: [&str; 6] = [
    "token_type",
    "scope",
    "error",
    "error_description",
    "error_uri",
    "type",
];

/// Headers of an answer that programs may see: a cookie, or a header that nobody knows, may be as good as a token.
const HEADERS: [&str; 6] = [
    "cache-control",
    "date",
    "pragma",
    "request-id",
    "retry-after",
    "x-request-id",
];

/// An answer as the program gets it.
#[derive(Debug)]
pub struct CapturedAnswer {
    pub body: Vec<u8>,
    /// The tokens that it had before.
    pub tokens: Vec<RealToken>,
}

/// Takes the tokens out of an answer.
///
/// # Errors
/// The answer is too long, or no object that all clients read alike.
pub fn capture(
    body: &[u8],
    (key, spec): (&TokenKey, &LoginSpec),
) -> Result<CapturedAnswer, LoginFault> {
    let seal = |token: &[u8], role| placeholder(token, role, (key, spec));
    capture_by(body, &spec.members, seal)
}

/// Puts the text that `seal` makes in the place of each token; `members` pass besides those that every client may see.
///
/// # Errors
/// What an answer has that nobody can read in one way, and what `seal` says.
pub fn capture_by(
    body: &[u8],
    members: &[String],
    seal: impl Fn(&[u8], TokenRole) -> Result<String, LoginFault>,
) -> Result<CapturedAnswer, LoginFault> {
    if body.len() > LOGIN_BODY {
        return Err(LoginFault::Long);
    }
    let mut tokens = Vec::new();
    // As a revocation is answered.
    if body.is_empty() {
        let body = Vec::new();
        return Ok(CapturedAnswer { body, tokens });
    }
    let read = strict_json(body).map_err(|_| LoginFault::Unread)?;
    let Value::Object(read) = read else {
        return Err(LoginFault::Type);
    };
    let mut passed = Map::new();
    for (name, value) in read {
        let role = TokenRole::ALL
            .into_iter()
            .find(|role| role.member() == name);
        let value = match (role, value) {
            (Some(role), Value::String(text)) if text.trim().len() < TOKEN_MIN => {
                return Err(LoginFault::Short(role.member()));
            }
            (Some(role), Value::String(text)) => {
                let token = Zeroizing::new(text.into_bytes());
                let shown = seal(&token, role)?;
                tokens.push(token);
                Value::String(shown)
            }
            (_, value @ (Value::Null | Value::Bool(_) | Value::Number(_))) => value,
            (Some(role), Value::Array(_) | Value::Object(_)) => {
                return Err(LoginFault::Token(role.member()));
            }
            (None, mut value) => {
                let is_plain = PLAIN.contains(&&*name) || members.contains(&name);
                if !is_plain {
                    continue;
                }
                drop_secrets(&mut value);
                value
            }
        };
        passed.insert(name, value);
    }
    let body = serde_json::to_vec(&passed).map_err(|_| LoginFault::Unread)?;
    Ok(CapturedAnswer { body, tokens })
}

/// Drops what stands inside a member under the name of a secret.
fn drop_secrets(value: &mut Value) {
    const WORDS: [&str; 5] = ["token", "key", "secret", "password", "credential"];
    match value {
        Value::Object(members) => {
            members.retain(|name, _| {
                let name = name.to_ascii_lowercase();
                !WORDS.iter().any(|word| name.contains(word))
            });
            members.values_mut().for_each(drop_secrets);
        }
        Value::Array(all) => all.iter_mut().for_each(drop_secrets),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The text for a token: in the shape of a JWT where the token is one and clients read claims of it, else with the login's beginning.
fn placeholder(
    token: &[u8],
    role: TokenRole,
    (key, spec): (&TokenKey, &LoginSpec),
) -> Result<String, LoginFault> {
    let sealed = key.seal(token, role)?;
    if !spec.claims.is_empty()
        && let Some(claims) = claims(token, spec)
    {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let head = part(&json!({ "alg": "none", "typ": "JWT" }));
        return Ok(format!("{head}.{}.{sealed}", part(&claims)));
    }
    let prefix = match role {
        TokenRole::Access => &spec.access_prefix,
        TokenRole::Refresh => &spec.refresh_prefix,
        TokenRole::Identity => "",
    };
    Ok(format!("{prefix}{sealed}"))
}

/// The claims of a JWT that clients may see. Without the signature they prove nothing.
fn claims(token: &[u8], spec: &LoginSpec) -> Option<Value> {
    let parts: Vec<&[u8]> = token.split(|byte| *byte == b'.').collect();
    let [_, claims, _] = parts[..] else {
        return None;
    };
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let Value::Object(claims) = strict_json(&claims).ok()? else {
        return None;
    };
    let is_named = |(name, _): &(String, Value)| spec.claims.contains(name);
    Some(Value::Object(claims.into_iter().filter(is_named).collect()))
}

/// The headers of an answer as the program gets them.
pub fn passed_headers(headers: &HeaderMap) -> HeaderMap {
    let is_passed = |(name, _): &(&HeaderName, &HeaderValue)| HEADERS.contains(&name.as_str());
    let kept = headers.iter().filter(is_passed);
    let mut passed: HeaderMap = kept
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let kind = HeaderValue::from_static("application/json");
    passed.insert(CONTENT_TYPE, kind);
    passed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::KEY_MIN;

    const MARKER: &str = "lzlogin-0123456789abcde-";

    fn key() -> TokenKey {
        TokenKey::new(&[1; KEY_MIN], MARKER).unwrap()
    }

    fn spec() -> LoginSpec {
        LoginSpec {
            endpoints: vec![],
            access_prefix: "sk-ant-oat01-".into(),
            refresh_prefix: "rt_".into(),
            claims: vec!["exp".into(), "email".into()],
            members: vec!["account".into()],
        }
    }

    fn captured(body: &str) -> Result<CapturedAnswer, LoginFault> {
        capture(body.as_bytes(), (&key(), &spec()))
    }

    fn value(body: &str) -> Value {
        serde_json::from_slice(&captured(body).unwrap().body).unwrap()
    }

    fn jwt(claims: &Value) -> String {
        let part = |text: String| URL_SAFE_NO_PAD.encode(text);
        format!(
            "{}.{}.{}",
            part(json!({"alg": "RS256"}).to_string()),
            part(claims.to_string()),
            part("the signature".into())
        )
    }

    #[test]
    fn each_token_is_sealed_for_its_purpose() {
        let answer = r#"{"access_token":"real-access","refresh_token":"real-refresh","id_token":"real-identity",
            "expires_in":3600,"scope":"a b","account":{"uuid":"u"}}"#;
        let read = value(answer);
        let text = |name: &str| read[name].as_str().unwrap().to_owned();
        for (role, begins) in [
            (TokenRole::Access, "sk-ant-oat01-lzlogin-"),
            (TokenRole::Refresh, "rt_lzlogin-"),
            (TokenRole::Identity, "lzlogin-"),
        ] {
            let shown = text(role.member());
            assert!(shown.starts_with(begins), "{shown}");
            assert!(
                key()
                    .open(shown.as_bytes(), role)
                    .unwrap()
                    .starts_with(b"real-")
            );
        }
        assert_eq!(read["expires_in"], 3600);
        assert_eq!(read["account"]["uuid"], "u");
        assert_eq!(captured(answer).unwrap().tokens.len(), 3);
        assert!(!read.to_string().contains("real-"));
    }

    #[test]
    fn a_jwt_has_the_claims_that_are_named_and_no_signature() {
        let token = jwt(&json!({"exp": 7, "email": "a@b", "sid": "secret", "nonce": "n"}));
        let read = value(&json!({ "id_token": token }).to_string());
        let shown = read["id_token"].as_str().unwrap();
        let parts: Vec<&str> = shown.split('.').collect();
        assert_eq!(parts.len(), 3, "{shown}");
        let claims = URL_SAFE_NO_PAD.decode(parts[1]).unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(claims, json!({"exp": 7, "email": "a@b"}));
        let signature = token.rsplit('.').next().unwrap();
        assert!(!shown.contains(signature));
        let opened = key().open(shown.as_bytes(), TokenRole::Identity).unwrap();
        assert_eq!(*opened, token.as_bytes());
    }

    /// As clients decode it, which look at no signature.
    #[test]
    fn each_part_of_a_jwt_decodes_whatever_its_length() {
        for length in 0..8 {
            let token = jwt(&json!({"exp": 7, "sid": "s".repeat(length)}));
            let read = value(&json!({ "id_token": token }).to_string());
            let shown = read["id_token"].as_str().unwrap();
            let parts: Vec<_> = shown
                .split('.')
                .map(|part| URL_SAFE_NO_PAD.decode(part))
                .collect();
            let [Ok(head), Ok(claims), Ok(signature)] = &parts[..] else {
                panic!("{shown}: {parts:?}");
            };
            let head: Value = serde_json::from_slice(head).unwrap();
            assert_eq!(head, json!({"alg": "none", "typ": "JWT"}));
            let claims: Value = serde_json::from_slice(claims).unwrap();
            assert_eq!(claims["exp"], 7);
            assert!(!signature.is_empty());
        }
    }

    #[test]
    fn members_that_nobody_knows_do_not_pass() {
        let read = value(
            r#"{"device_secret":"s","tokens":{"access_token":"s"},"error":"e","n":1,"list":["s"]}"#,
        );
        assert_eq!(read, json!({"error": "e", "n": 1}));
    }

    #[test]
    fn a_member_that_programs_see_has_no_token_inside() {
        let read = value(
            r#"{"account":{"id":"a","access_token":"s","all":[{"apiKey":"s","mail":"m"}],"session_token":{"a":"s"}}}"#,
        );
        let seen = json!({"account": {"id": "a", "all": [{"mail": "m"}]}});
        assert_eq!(read, seen);
    }

    #[test]
    fn an_answer_that_clients_read_in_two_ways_is_refused() {
        for (body, fault) in [
            (
                r#"{"access_token":"aaaaaaaa","access_token":"b"}"#,
                LoginFault::Unread,
            ),
            (r#"{"account":{"a":1,"a":2}}"#, LoginFault::Unread),
            (
                r#"{"access_token":"aaaaaaaa"} trailing"#,
                LoginFault::Unread,
            ),
            (r#"{"access_token":"aaaa"#, LoginFault::Unread),
            (r#"["access_token","aaaaaaaa"]"#, LoginFault::Type),
            ("access_token=aaaaaaaa", LoginFault::Unread),
            (
                r#"{"access_token":{"value":"x"}}"#,
                LoginFault::Token("access_token"),
            ),
            (
                r#"{"refresh_token":"a b-of-two"}"#,
                LoginFault::Token("refresh_token"),
            ),
            (
                r#"{"refresh_token":""}"#,
                LoginFault::Short("refresh_token"),
            ),
            (
                r#"{"refresh_token":"1234567"}"#,
                LoginFault::Short("refresh_token"),
            ),
        ] {
            assert_eq!(captured(body).unwrap_err(), fault, "{body}");
        }
        assert!(captured("").unwrap().body.is_empty());
    }

    #[test]
    fn an_answer_has_a_maximum_size() {
        let body = |length: usize| format!(r#"{{"x":"{}"}}"#, "x".repeat(length - 8));
        assert!(captured(&body(LOGIN_BODY)).is_ok());
        assert_eq!(
            captured(&body(LOGIN_BODY + 1)).unwrap_err(),
            LoginFault::Long
        );
    }
}
