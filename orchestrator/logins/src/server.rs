//! Tokens of logins at servers. `lazaret` has them encrypted, and stores that: each is the token again where it belongs, an access token
//! in the header of requests to its server, a refresh token in the form for the address that has given it. What a token endpoint answers
//! is read here, and its tokens are encrypted before it passes.

use crate::answer::{CapturedAnswer, capture_by};
use crate::fault::LoginFault;
use crate::request::read_request;
use crate::seal::{RealToken, TokenKey, TokenRole};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker_protocol::Digest;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use memchr::memmem;
use orchestrator_http::ask::{By, HostOrigin};
use orchestrator_reach::target::Target;
use policies::secret::{SEALED_TOKEN, SEALED_TOKEN_MAX};
use url::form_urlencoded::{byte_serialize, parse};
use zeroize::Zeroizing;

/// Digits of the digest in a marker.
const DIGITS: usize = 64;
const FORM: &str = "application/x-www-form-urlencoded";

/// The logins of the user's at servers.
#[derive(Default)]
pub struct ServerLogins(Option<Zeroizing<Vec<u8>>>);

/// Finds the secret of our client for a text in its place.
pub type ClientSecret<'c, 'k> = &'c dyn Fn(&str) -> Option<&'k [u8]>;

/// A request to the token endpoint `url` that `server` has named.
pub struct TokenRequest<'a> {
    pub server: &'a HostOrigin,
    pub url: String,
    /// Whether a person logs in, and the endpoint gets the secret of a client before it has given a token.
    pub is_first: bool,
}

/// The request as the endpoint gets it, and its secrets.
pub struct SentTokens {
    pub body: Zeroizing<Vec<u8>>,
    secrets: Vec<RealToken>,
}

impl ServerLogins {
    /// Logins whose tokens are encrypted by a key that is derived from `secret`.
    pub fn new(secret: &str) -> Self {
        Self(Some(Zeroizing::new(secret.as_bytes().to_vec())))
    }

    /// The key for tokens that are good for one purpose alone, and the beginning of their texts.
    fn key(&self, purpose: &str) -> Result<(TokenKey, String), LoginFault> {
        let digest = Digest::of(purpose.as_bytes());
        self.marked(format!("{SEALED_TOKEN}{digest}-"))
    }

    fn marked(&self, marker: String) -> Result<(TokenKey, String), LoginFault> {
        let secret = self.0.as_ref().ok_or(LoginFault::NoKey)?;
        let key = TokenKey::new(secret, &marker).ok_or(LoginFault::NoKey)?;
        Ok((key, marker))
    }

    fn access_key(&self, server: &HostOrigin) -> Result<(TokenKey, String), LoginFault> {
        self.key(&format!("access {server}"))
    }

    /// Puts an access token in the place of its text in a request of `by` to its server, the host of `target`.
    pub fn attach(&self, by: &By, target: &Target, headers: &mut HeaderMap) {
        let is_server = match by {
            By::ServerSettings | By::RepositorySettings => true,
            By::Model(_)
            | By::ModelOfImage(_)
            | By::ProviderSettings
            | By::Engine
            | By::ServerOf(_) => false,
        };
        let sent = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let sealed = sent.and_then(|sent| sent.strip_prefix(b"Bearer "));
        let Some(sealed) = sealed.filter(|_| is_server) else {
            return;
        };
        let origin = HostOrigin::of(target.url());
        let value = self.access_key(&origin).and_then(|(key, marker)| {
            let is_whole = sealed.starts_with(marker.as_bytes());
            let token = key.open(sealed, TokenRole::Access);
            token.and_then(|token| is_whole.then_some(token).ok_or(LoginFault::Sealed))
        });
        let value = value
            .ok()
            .map(|token| Zeroizing::new([b"Bearer ", &token[..]].concat()));
        if let Some(mut value) = value.and_then(|value| HeaderValue::from_bytes(&value).ok()) {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
    }

    /// The token that a text stands for, whatever it is good for: for who takes tokens out of what is shown.
    pub fn open(&self, text: &[u8]) -> Option<RealToken> {
        let marker = text.get(..SEALED_TOKEN.len() + DIGITS + 1)?;
        let (key, _) = self.marked(String::from_utf8(marker.to_vec()).ok()?).ok()?;
        let is_known = text.len() <= SEALED_TOKEN_MAX && text.starts_with(SEALED_TOKEN.as_bytes());
        let mut roles = TokenRole::ALL.into_iter().filter(|_| is_known);
        roles.find_map(|role| key.open(text, role).ok())
    }
}

/// Whether a request of `by` with these `headers` may be one for tokens, and the server that has named its address.
pub fn asks_for_tokens<'b>(by: &'b By, headers: &HeaderMap) -> Option<&'b HostOrigin> {
    let By::ServerOf(server) = by else {
        return None;
    };
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let is_form = types.any(|kind| {
        let kind = kind.as_bytes().to_ascii_lowercase();
        memmem::find(&kind, FORM.as_bytes()).is_some()
    });
    is_form.then_some(server)
}

impl TokenRequest<'_> {
    fn refresh_key(&self, logins: &ServerLogins) -> Result<(TokenKey, String), LoginFault> {
        logins.key(&format!("refresh {} {}", self.server, self.url))
    }

    /// The request as the endpoint gets it: with the refresh token that it has given, and with the secret of our client, which `secret` has
    /// for the text in its place.
    ///
    /// # Errors
    /// It can be read in several ways, or its token is another one's.
    pub fn open(
        &self,
        (logins, secret): (&ServerLogins, ClientSecret<'_, '_>),
        headers: &mut HeaderMap,
        body: &[u8],
    ) -> Result<SentTokens, LoginFault> {
        let (key, marker) = self.refresh_key(logins)?;
        let read = read_request(headers, body, (&key, &marker))?;
        let mut sent = SentTokens {
            body: read.body,
            secrets: read.tokens,
        };
        if self.is_first || !sent.secrets.is_empty() {
            put_secret(secret, headers, &mut sent);
        }
        Ok(sent)
    }

    /// The answer of the endpoint without its tokens, and without those that it was sent.
    ///
    /// # Errors
    /// It is no object that all clients read alike, or it shows a secret.
    pub fn seal(
        &self,
        logins: &ServerLogins,
        sent: &SentTokens,
        answer: &[u8],
    ) -> Result<Vec<u8>, LoginFault> {
        let ((access, _), (refresh, _)) =
            (logins.access_key(self.server)?, self.refresh_key(logins)?);
        let seal = |token: &[u8], role| match role {
            TokenRole::Access | TokenRole::Identity => access.seal(token, role),
            TokenRole::Refresh => refresh.seal(token, role),
        };
        let CapturedAnswer { body, tokens } = capture_by(answer, &[], seal)?;
        let mut secrets = tokens.iter().chain(&sent.secrets);
        match secrets.any(|secret| memmem::find(&body, secret).is_some()) {
            true => Err(LoginFault::Unread),
            false => Ok(body),
        }
    }
}

/// Puts the secret of our client where a form or a header for it (RFC 6749, section 2.3.1) has the text in its place.
fn put_secret(of_client: ClientSecret<'_, '_>, headers: &mut HeaderMap, sent: &mut SentTokens) {
    let secret = |text: &[u8]| {
        let text = parse(&[b"=", text].concat()).next()?.1.into_owned();
        of_client(&text)
    };
    let pairs = sent.body.split(|byte| *byte == b'&');
    let place = pairs.filter_map(|pair| pair.strip_prefix(b"client_secret="));
    if let Some((text, value)) = place.filter_map(|text| Some((text, secret(text)?))).next() {
        let sealed = [b"client_secret=", text].concat();
        let real = escaped(b"client_secret=", value);
        if let Some(at) = memmem::find(&sent.body, &sealed) {
            let rest = &sent.body[at + sealed.len()..];
            let body = [&sent.body[..at], &real, rest].concat();
            sent.body = Zeroizing::new(body);
            sent.secrets.push(Zeroizing::new(value.to_vec()));
        }
    }
    let basic = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let basic = basic.and_then(|value| STANDARD.decode(value.strip_prefix(b"Basic ")?).ok());
    let Some(basic) = basic else { return };
    let Some(at) = basic.iter().position(|byte| *byte == b':') else {
        return;
    };
    if let Some(value) = secret(&basic[at + 1..]) {
        let pair = escaped(&basic[..=at], value);
        let header = Zeroizing::new(format!("Basic {}", STANDARD.encode(&*pair)));
        if let Ok(mut header) = HeaderValue::from_str(&header) {
            header.set_sensitive(true);
            headers.insert(AUTHORIZATION, header);
            sent.secrets.push(Zeroizing::new(value.to_vec()));
        }
    }
}

fn escaped(before: &[u8], value: &[u8]) -> Zeroizing<Vec<u8>> {
    let value = byte_serialize(value).map(str::as_bytes);
    let mut text = Zeroizing::new(before.to_vec());
    value.for_each(|piece| text.extend_from_slice(piece));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderName;
    use serde_json::Value;

    const SERVER: &str = "https://mcp.example";
    const ENDPOINT: &str = "https://auth.example/token";
    const ANSWER: &[u8] = br#"{"access_token":"real-access","refresh_token":"real/refresh","expires_in":9,"secret":"s"}"#;

    fn origin(url: &str) -> HostOrigin {
        HostOrigin::of(&url.parse().unwrap())
    }

    fn logins() -> ServerLogins {
        ServerLogins::new(&"k".repeat(64))
    }

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pairs = pairs.iter().cloned();
        pairs
            .map(|(name, value)| (name, value.parse().unwrap()))
            .collect()
    }

    /// For a client that has no secret.
    const NONE: ClientSecret<'_, '_> = &|_| None;

    /// A request to `url` that `server` has named, and the form of it that is sent with `secret`.
    fn sent(
        (server, url): (&HostOrigin, &str),
        secret: ClientSecret<'_, '_>,
        is_first: bool,
        body: &str,
    ) -> Result<(String, SentTokens, HeaderMap), LoginFault> {
        let asked = TokenRequest {
            server,
            url: url.to_owned(),
            is_first,
        };
        let basic = STANDARD.encode("me:lazaret-key-0");
        let mut head = headers(&[
            (CONTENT_TYPE, FORM),
            (AUTHORIZATION, &format!("Basic {basic}")),
        ]);
        let sent = asked.open((&logins(), secret), &mut head, body.as_bytes())?;
        let body = String::from_utf8(sent.body.to_vec()).unwrap();
        Ok((body, sent, head))
    }

    /// The texts of an access and a refresh token that [`ENDPOINT`] has given.
    fn texts() -> [String; 2] {
        let server = origin(SERVER);
        let asked = TokenRequest {
            server: &server,
            url: ENDPOINT.to_owned(),
            is_first: false,
        };
        let nothing = SentTokens {
            body: Zeroizing::default(),
            secrets: Vec::new(),
        };
        let sealed = asked.seal(&logins(), &nothing, ANSWER).unwrap();
        let sealed: Value = serde_json::from_slice(&sealed).unwrap();
        assert!(!sealed.to_string().contains("real"), "{sealed}");
        assert_eq!(
            (&sealed["expires_in"], &sealed["secret"]),
            (&9.into(), &Value::Null)
        );
        ["access_token", "refresh_token"].map(|name| sealed[name].as_str().unwrap().to_owned())
    }

    #[test]
    fn an_access_token_is_put_into_requests_to_its_server_alone() {
        let [access, refresh] = texts();
        let sent = |by: By, url: &str, value: &str| {
            let mut head = headers(&[(AUTHORIZATION, value)]);
            logins().attach(&by, &Target::parse(url).unwrap(), &mut head);
            head[AUTHORIZATION].to_str().unwrap().to_owned()
        };
        let whole = format!("Bearer {access}");
        let url = "https://mcp.example/mcp";
        for by in [By::ServerSettings, By::RepositorySettings] {
            assert_eq!(sent(by, url, &whole), "Bearer real-access");
        }
        for (by, url, value) in [
            (By::ServerSettings, "https://other.example/", whole.clone()),
            (By::ServerSettings, "http://mcp.example/", whole.clone()),
            (
                By::ServerSettings,
                "https://mcp.example:444/",
                whole.clone(),
            ),
            (By::ProviderSettings, url, whole.clone()),
            (By::ServerOf(origin(SERVER)), url, whole.clone()),
            (By::ServerSettings, url, format!("Bearer {refresh}")),
            (By::ServerSettings, url, format!("Bearer x{access}")),
            (By::ServerSettings, url, format!("Basic {access}")),
        ] {
            assert_eq!(sent(by.clone(), url, &value), value, "{by:?} {url}");
        }
    }

    #[test]
    fn a_refresh_token_is_sent_where_it_came_from_alone() {
        let [access, refresh] = texts();
        let form = |text: &str| format!("grant_type=refresh_token&refresh_token={text}");
        let (server, other) = (origin(SERVER), origin("https://other.example"));
        let (body, ..) = sent((&server, ENDPOINT), NONE, false, &form(&refresh)).unwrap();
        assert_eq!(body, form("real%2Frefresh"));
        for (server, url, text) in [
            (&server, "https://auth.example/log", &refresh),
            (&server, "https://auth.example/token?x", &refresh),
            (&server, "https://other.example/token", &refresh),
            (&other, ENDPOINT, &refresh),
            (&server, ENDPOINT, &access),
        ] {
            let (body, sent, _) = sent((server, url), NONE, true, &form(text)).unwrap();
            assert_eq!(body, form(text), "{url}");
            assert!(sent.secrets.is_empty());
        }
        let mut changed = refresh.clone();
        changed.pop();
        let fault = sent((&server, ENDPOINT), NONE, false, &form(&changed)).err();
        assert_eq!(fault, Some(LoginFault::Sealed));
    }

    #[test]
    fn the_secret_of_a_client_goes_with_a_token_or_with_a_person() {
        let secret = |text: &str| (text == "lazaret-key-0").then_some(&b"s/1"[..]);
        let [_, refresh] = texts();
        let server = origin(SERVER);
        let own = "grant_type=authorization_code&client_secret=lazaret-key-0";
        let refreshing = format!("refresh_token={refresh}&client_secret=lazaret-key-0&x=1");
        let basic = |head: &HeaderMap| {
            let text = head[AUTHORIZATION].to_str().unwrap().to_owned();
            String::from_utf8(STANDARD.decode(&text["Basic ".len()..]).unwrap()).unwrap()
        };
        let place = (&server, ENDPOINT);
        for (is_first, body, want) in [
            (
                true,
                own,
                "grant_type=authorization_code&client_secret=s%2F1",
            ),
            (
                false,
                &*refreshing,
                "refresh_token=real%2Frefresh&client_secret=s%2F1&x=1",
            ),
        ] {
            let (body, _, head) = sent(place, &secret, is_first, body).unwrap();
            assert_eq!((&*body, &*basic(&head)), (want, "me:s%2F1"));
        }
        for (secret, is_first) in [(&secret as ClientSecret<'_, '_>, false), (NONE, true)] {
            let (body, _, head) = sent(place, secret, is_first, own).unwrap();
            assert_eq!((&*body, &*basic(&head)), (own, "me:lazaret-key-0"));
        }
    }

    #[test]
    fn an_answer_that_shows_a_token_does_not_pass() {
        let [_, refresh] = texts();
        let server = origin(SERVER);
        let body = format!("grant_type=refresh_token&refresh_token={refresh}");
        let (_, sent, _) = sent((&server, ENDPOINT), NONE, false, &body).unwrap();
        let asked = TokenRequest {
            server: &server,
            url: ENDPOINT.to_owned(),
            is_first: false,
        };
        let answered = |answer: &str| asked.seal(&logins(), &sent, answer.as_bytes());
        let shown = r#"{"error":"x","error_description":"no token real/refresh"}"#;
        assert_eq!(answered(shown), Err(LoginFault::Unread));
        assert!(answered(r#"{"error":"x","error_description":"no token"}"#).is_ok());
        let new = r#"{"access_token":"a-new-one","scope":"a-new-one"}"#;
        assert_eq!(answered(new), Err(LoginFault::Unread));
    }

    #[test]
    fn each_text_is_read_for_who_searches_for_its_token_and_no_other() {
        let [access, refresh] = texts();
        let read = |text: &str| logins().open(text.as_bytes()).map(|token| token.to_vec());
        assert_eq!(read(&access).unwrap(), b"real-access");
        assert_eq!(read(&refresh).unwrap(), b"real/refresh");
        for text in [
            "",
            SEALED_TOKEN,
            "sk-0",
            &access[1..],
            &format!("{access}x"),
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        let other = ServerLogins::new(&"x".repeat(64));
        assert!(other.open(access.as_bytes()).is_none());
        assert!(ServerLogins::default().open(access.as_bytes()).is_none());
    }
}
