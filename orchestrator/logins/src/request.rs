//! A request to a token endpoint: a form or an object of JSON, in which a sealed token becomes the token.

use crate::fault::{LOGIN_BODY, LoginFault};
use crate::seal::{RealToken, TokenKey, TokenRole};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use orchestrator_effects::strict_json;
use orchestrator_http::percent;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use zeroize::Zeroizing;

/// Types of grants that a login consists of. Others exchange a token for a key of another kind.
const GRANTS: [&str; 3] = [
    "authorization_code",
    "refresh_token",
    "urn:ietf:params:oauth:grant-type:device_code",
];
/// Members that may hold a sealed token: of a refresh (RFC 6749, section 6), and of a revocation (RFC 7009, section 2.1).
const MEMBERS: [&str; 2] = ["refresh_token", "token"];

/// A request as the token endpoint gets it.
#[derive(Debug)]
pub struct LoginRequest {
    pub body: Zeroizing<Vec<u8>>,
    /// The tokens that it holds now.
    pub tokens: Vec<RealToken>,
}

/// Reads a request, and puts tokens in the place of sealed ones.
///
/// # Errors
/// Servers may read it in several ways, it asks for another credential, or its sealed token does not open.
pub fn read_request(
    headers: &HeaderMap,
    body: &[u8],
    (key, marker): (&TokenKey, &str),
) -> Result<LoginRequest, LoginFault> {
    if body.len() > LOGIN_BODY {
        return Err(LoginFault::Long);
    }
    if headers.contains_key(CONTENT_ENCODING) {
        return Err(LoginFault::Encoded);
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(kind), None) = (types.next(), types.next()) else {
        return Err(LoginFault::Type);
    };
    let kind = kind.as_bytes().to_ascii_lowercase();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    let mut opened = Vec::new();
    let mut open = |name: &str, value: &[u8]| open(name, value, (key, marker), &mut opened);
    let body = match kind.trim_ascii() {
        b"application/json" => json(body, &mut open)?,
        b"application/x-www-form-urlencoded" => form(body, &mut open)?,
        _ => return Err(LoginFault::Type),
    };
    Ok(LoginRequest {
        body,
        tokens: opened,
    })
}

/// The token in the place of a member's value; `None` if that stays as it is.
fn open(
    name: &str,
    value: &[u8],
    (key, marker): (&TokenKey, &str),
    opened: &mut Vec<RealToken>,
) -> Result<Option<RealToken>, LoginFault> {
    if name == "grant_type" && !GRANTS.iter().any(|grant| grant.as_bytes() == value) {
        let grant = String::from_utf8_lossy(value).chars().take(128).collect();
        return Err(LoginFault::Grant(grant));
    }
    if !MEMBERS.contains(&name) || !TokenKey::is_sealed(marker, value) {
        return Ok(None);
    }
    let token = key.open(value, TokenRole::Refresh);
    // An access token may be revoked, and is no token to refresh with.
    let token = match name {
        "token" => token.or_else(|_| key.open(value, TokenRole::Access)),
        _ => token,
    }?;
    opened.push(token.clone());
    Ok(Some(token))
}

type OpenToken<'o> = dyn FnMut(&str, &[u8]) -> Result<Option<RealToken>, LoginFault> + 'o;

fn json(body: &[u8], open: &mut OpenToken) -> Result<Zeroizing<Vec<u8>>, LoginFault> {
    let read = strict_json(body).map_err(|_| LoginFault::Unread)?;
    let Value::Object(members) = read else {
        return Err(LoginFault::Type);
    };
    let mut sent = Map::new();
    for (name, value) in members {
        let value = match value {
            Value::String(text) => match open(&name, text.as_bytes())? {
                Some(token) => Value::String(String::from_utf8_lossy(&token).into_owned()),
                None => Value::String(text),
            },
            // Some servers read `["x"]` or an object as text.
            _ if name == "grant_type" => return Err(LoginFault::Unread),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => value,
        };
        sent.insert(name, value);
    }
    let sent = serde_json::to_vec(&sent).map_err(|_| LoginFault::Unread)?;
    Ok(Zeroizing::new(sent))
}

fn form(body: &[u8], open: &mut OpenToken) -> Result<Zeroizing<Vec<u8>>, LoginFault> {
    let mut names = BTreeSet::new();
    let mut sent = Zeroizing::new(Vec::with_capacity(2 * LOGIN_BODY));
    for pair in body.split(|byte| *byte == b'&') {
        if pair.is_empty() || pair.contains(&b';') || !pair.iter().all(u8::is_ascii_graphic) {
            return Err(LoginFault::Unread);
        }
        let equals = pair.iter().position(|byte| *byte == b'=');
        let (name, value) = pair.split_at(equals.ok_or(LoginFault::Unread)?);
        let name = text(name)?;
        let value = text(&value[1..])?;
        if !names.insert(name.clone()) {
            return Err(LoginFault::Unread);
        }
        if !sent.is_empty() {
            sent.push(b'&');
        }
        match open(&name, value.as_bytes())? {
            Some(token) => {
                sent.extend_from_slice(name.as_bytes());
                sent.push(b'=');
                escape(&token, &mut sent);
            }
            None => sent.extend_from_slice(pair),
        }
    }
    Ok(sent)
}

/// A name or a value of a form.
fn text(bytes: &[u8]) -> Result<String, LoginFault> {
    let spaced: Vec<u8> = bytes
        .iter()
        .map(|&byte| if byte == b'+' { b' ' } else { byte })
        .collect();
    String::from_utf8(percent::decoded(&spaced)).map_err(|_| LoginFault::Unread)
}

fn escape(token: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in token {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            let [high, low] = [byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)]);
            out.extend([b'%', high, low]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::KEY_MIN;
    use hyper::header::HeaderValue;

    const MARKER: &str = "lzlogin-0123456789abcde-";
    const TOKEN: &str = "rt/token+1";
    const JSON: &str = "application/json";
    const FORM: &str = "application/x-www-form-urlencoded";

    fn key() -> TokenKey {
        TokenKey::new(&[1; KEY_MIN], MARKER).unwrap()
    }

    fn read(kind: &'static str, body: &str) -> Result<LoginRequest, LoginFault> {
        let headers = [(CONTENT_TYPE, HeaderValue::from_static(kind))];
        read_request(
            &headers.into_iter().collect(),
            body.as_bytes(),
            (&key(), MARKER),
        )
    }

    fn body(read: LoginRequest) -> String {
        String::from_utf8(read.body.to_vec()).unwrap()
    }

    fn sealed(role: TokenRole) -> String {
        "rt-".to_owned() + &key().seal(TOKEN.as_bytes(), role).unwrap()
    }

    #[test]
    fn a_sealed_refresh_token_becomes_the_token_in_both_forms() {
        let sealed = sealed(TokenRole::Refresh);
        let json = format!(
            r#"{{"grant_type":"refresh_token","refresh_token":"{sealed}","scope":"{sealed}"}}"#
        );
        let read_json = read(JSON, &json).unwrap();
        assert_eq!(
            read_json.tokens,
            [Zeroizing::new(TOKEN.as_bytes().to_vec())]
        );
        let value: Value = serde_json::from_str(&body(read_json)).unwrap();
        assert_eq!(value["refresh_token"], TOKEN);
        assert_eq!(value["scope"], sealed, "nowhere else");
        let form = format!("grant_type=refresh%5Ftoken&scope={sealed}&refresh_token={sealed}");
        let sent = body(read(FORM, &form).unwrap());
        let want =
            format!("grant_type=refresh%5Ftoken&scope={sealed}&refresh_token=rt%2Ftoken%2B1");
        assert_eq!(sent, want);
        let revoked = format!(r#"{{"token":"{sealed}"}}"#);
        assert!(body(read(JSON, &revoked).unwrap()).contains(TOKEN));
    }

    #[test]
    fn a_code_and_a_token_of_the_programs_own_pass_as_they_are() {
        let code = "grant_type=authorization_code&code=a%2Bb&redirect_uri=http%3A%2F%2Flocalhost";
        assert_eq!(body(read(FORM, code).unwrap()), code);
        let own = r#"{"grant_type":"refresh_token","refresh_token":"rt_own"}"#;
        let read = read(JSON, own).unwrap();
        assert!(read.tokens.is_empty() && body(read).contains("rt_own"));
    }

    #[test]
    fn an_access_token_does_not_refresh_and_can_be_revoked() {
        let sealed = sealed(TokenRole::Access);
        let refresh = format!(r#"{{"refresh_token":"{sealed}"}}"#);
        assert_eq!(read(JSON, &refresh).unwrap_err(), LoginFault::Sealed);
        assert!(read(JSON, &format!(r#"{{"token":"{sealed}"}}"#)).is_ok());
        let identity = self::sealed(TokenRole::Identity);
        let fault = read(JSON, &format!(r#"{{"token":"{identity}"}}"#)).unwrap_err();
        assert_eq!(fault, LoginFault::Sealed);
    }

    #[test]
    fn a_request_that_servers_read_in_two_ways_is_refused() {
        for (kind, body, fault) in [
            (JSON, r#"{"a":"1","a":"2"}"#, LoginFault::Unread),
            (JSON, r#"{"a":"1"} x"#, LoginFault::Unread),
            (JSON, r#"{"grant_type":["x"]}"#, LoginFault::Unread),
            (JSON, "[]", LoginFault::Type),
            (JSON, "", LoginFault::Unread),
            (FORM, "a=1&a=2", LoginFault::Unread),
            (FORM, "a=1&%61=2", LoginFault::Unread),
            (FORM, "a=1;b=2", LoginFault::Unread),
            (FORM, "a", LoginFault::Unread),
            (FORM, "a=%ff", LoginFault::Unread),
            ("multipart/form-data", "a=1", LoginFault::Type),
        ] {
            assert_eq!(read(kind, body).unwrap_err(), fault, "{body}");
        }
        let headers = |pairs: &[(hyper::header::HeaderName, &'static str)]| {
            let pairs = pairs.iter().cloned();
            let pairs = pairs.map(|(name, value)| (name, HeaderValue::from_static(value)));
            read_request(&pairs.collect(), b"{}", (&key(), MARKER)).unwrap_err()
        };
        let encoded = [(CONTENT_TYPE, JSON), (CONTENT_ENCODING, "gzip")];
        assert_eq!(headers(&encoded), LoginFault::Encoded);
        assert_eq!(headers(&[]), LoginFault::Type);
        let mut two: HeaderMap = [(CONTENT_TYPE, HeaderValue::from_static(JSON))]
            .into_iter()
            .collect();
        two.append(CONTENT_TYPE, HeaderValue::from_static(FORM));
        let fault = read_request(&two, b"{}", (&key(), MARKER)).unwrap_err();
        assert_eq!(fault, LoginFault::Type);
    }

    #[test]
    fn a_grant_that_makes_another_credential_is_refused() {
        let exchange = "urn:ietf:params:oauth:grant-type:token-exchange";
        let fault = LoginFault::Grant(exchange.to_owned());
        let json = format!(r#"{{"grant_type":"{exchange}"}}"#);
        assert_eq!(read(JSON, &json).unwrap_err(), fault);
        let form = format!("x=1&grant%5ftype={exchange}");
        assert_eq!(read(FORM, &form).unwrap_err(), fault);
    }

    #[test]
    fn a_request_has_a_maximum_size() {
        let body = |length: usize| format!("a={}", "x".repeat(length - 2));
        assert!(read(FORM, &body(LOGIN_BODY)).is_ok());
        let fault = read(FORM, &body(LOGIN_BODY + 1)).unwrap_err();
        assert_eq!(fault, LoginFault::Long);
    }
}
