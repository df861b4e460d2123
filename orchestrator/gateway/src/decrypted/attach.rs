//! Decides for the head of a request whether it gets a credential, and puts the value in the place of the placeholder: in the header
//! that the credential's `attach` names, in the form in which the program sent it, and nowhere else. Elsewhere a placeholder is text.

use super::refusal::RequestRefusal;
use super::values::Value;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use broker_protocol::gateway::{Attach, CredentialSpec, CredentialVerdict};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS};
use hyper::http::request::Parts;
use orchestrator_aws::{self as aws, SignFault, SigningScope};
use orchestrator_effects::{OFF, RequestedUse, Unasked};
use orchestrator_http::percent;
use orchestrator_logins::TokenKey;
use zeroize::Zeroizing;

/// Parameters of a query that sign a URL: a second authorization makes the host refuse it.
const SIGNATURES: [&str; 7] = [
    "x-amz-signature",
    "x-goog-signature",
    "x-oss-signature",
    "x-cos-signature",
    "signature",
    "sig",
    "q-signature",
];
/// Passwords that programs send beside a token that they send as the user's name.
const NO_PASSWORD: [&[u8]; 2] = [b"", b"x-oauth-basic"];

/// The credentials of one host, and those of the session.
pub(super) struct HostCredentials<'a> {
    pub all: &'a [CredentialSpec],
    /// Those of this host, by their places in `all`.
    pub here: &'a [u16],
    pub place: &'a str,
}

/// The result for one request.
#[derive(Debug, Default)]
pub(super) struct AttachDecision {
    /// The credential that it gets.
    pub attach: Option<Attachment>,
    /// Credentials whose placeholders stay in it as text.
    pub passed: Vec<u16>,
    /// Whether a use names it: then it may become a WebSocket.
    pub(crate) is_use: bool,
    /// The credential whose logins it serves.
    pub login: Option<u16>,
}

impl AttachDecision {
    /// The credential that the request uses.
    pub(super) fn credential(&self) -> Option<u16> {
        let attached = self.attach.as_ref().map(|attach| attach.credential);
        attached.or(self.login)
    }
}

/// How a request gets a credential.
#[derive(Debug)]
pub(super) struct Attachment {
    /// By its place in the session's credentials.
    pub credential: u16,
    pub verdict: CredentialVerdict,
    header: HeaderName,
    form: AttachForm,
}

#[derive(Debug)]
enum AttachForm {
    Scheme(String),
    Basic(Vec<u8>),
    Whole,
    /// A scheme, and the text that stands for a token of a login.
    Sealed(String, Vec<u8>),
    /// The signature of AWS, which is made when the head is ready. The text stands for the body.
    Signature(SigningScope, Option<String>),
}

/// A request that is refused, and the credential that it was about.
pub(super) type RefusedUse = (u16, Box<RequestRefusal>);

impl HostCredentials<'_> {
    /// Decides on a request.
    ///
    /// # Errors
    /// It is refused.
    pub(super) fn decide(&self, head: &Parts) -> Result<AttachDecision, RefusedUse> {
        let wanted = RequestedUse::new(self.place, head.method.as_str(), &head.uri, &head.headers);
        let login = self.login(head, &wanted)?;
        if login.is_none() {
            self.refuse_by_uses(head, &wanted)?;
        }
        self.refuse_foreign(head)?;
        let never = gets_none(head);
        let fits = |credential: u16| wanted.fits(&self.spec(credential).uses);
        let mut attach = self.to_sign(head)?;
        for &credential in self.here {
            let spec = self.spec(credential);
            if spec.attach == Attach::Aws {
                continue;
            }
            let Some(header) = header_of(&spec.attach) else {
                continue;
            };
            let mut values = head.headers.get_all(&header).iter();
            let form = match (values.next(), values.next()) {
                (Some(value), None) => asked(&spec.attach, value.as_bytes(), &spec.placeholder),
                _ => None,
            };
            if let Some(form) = form
                && !never
                && attach.is_none()
                && fits(credential).is_some()
            {
                attach = Some(Attachment {
                    credential,
                    verdict: CredentialVerdict::Used,
                    header,
                    form,
                });
            }
        }
        let unasked = |credential: &&u16| fits(**credential) == Some(Unasked(true));
        if attach.is_none()
            && !never
            && let Some(&credential) = self.here.iter().find(unasked)
        {
            attach = self.unasked(credential, &head.headers);
        }
        let got = attach.as_ref().map(|attach| attach.credential);
        let passed = self.here.iter().copied().filter(|&credential| {
            Some(credential) != got && holds_text(head, &self.spec(credential).placeholder)
        });
        Ok(AttachDecision {
            passed: passed.collect(),
            is_use: self
                .here
                .iter()
                .any(|&credential| fits(credential).is_some()),
            login,
            attach,
        })
    }

    /// The credential whose token endpoint this is. A request that a server may take for one is refused: its answer would not be read.
    fn login(&self, head: &Parts, wanted: &RequestedUse) -> Result<Option<u16>, RefusedUse> {
        for &credential in self.here {
            let Attach::Login(login) = &self.spec(credential).attach else {
                continue;
            };
            let endpoints = || login.endpoints.iter();
            let logins: Vec<_> = endpoints().map(|one| one.as_use(Some("POST"))).collect();
            if wanted.fits(&logins).is_some() {
                return Ok(Some(credential));
            }
            let others = endpoints().flat_map(|one| {
                let mut off = one.as_use(None);
                off.methods = OFF.map(str::to_owned).to_vec();
                [one.as_use(None), off]
            });
            if wanted.refused(&others.collect::<Vec<_>>()).is_some() {
                let why = "It is not the request of a login.".to_owned();
                return Err(self.refused(credential, Some(why), head));
            }
        }
        Ok(None)
    }

    /// The signature of a request that is signed with a placeholder. Whether a use names it is decided when its body is there.
    fn to_sign(&self, head: &Parts) -> Result<Option<Attachment>, RefusedUse> {
        for &credential in self.here {
            let spec = self.spec(credential);
            if spec.attach != Attach::Aws {
                continue;
            }
            let scope = match aws::asked(head, &spec.placeholder) {
                Ok(None) => continue,
                Ok(Some(_)) if gets_none(head) => Err(SignFault::Never),
                Ok(Some(scope)) => Ok(scope),
                Err(why) => Err(why),
            };
            let scope = scope.map_err(|why| {
                let refusal = RequestRefusal::NotSigned {
                    credential: spec.name.clone(),
                    place: self.place.into(),
                    why,
                };
                (credential, Box::new(refusal))
            })?;
            return Ok(Some(Attachment {
                credential,
                verdict: CredentialVerdict::Used,
                header: AUTHORIZATION,
                form: AttachForm::Signature(scope, None),
            }));
        }
        Ok(None)
    }

    fn spec(&self, credential: u16) -> &CredentialSpec {
        &self.all[usize::from(credential)]
    }

    /// The credential where the request has none. One that brings its own keeps it.
    fn unasked(&self, credential: u16, headers: &HeaderMap) -> Option<Attachment> {
        let attach = &self.spec(credential).attach;
        let header = header_of(attach)?;
        if headers.contains_key(&header) || headers.contains_key(AUTHORIZATION) {
            return None;
        }
        let form = match attach {
            Attach::Bearer => AttachForm::Scheme("Bearer".into()),
            Attach::Basic { user } | Attach::Any { user } => AttachForm::Basic(user.clone().into()),
            Attach::Header { .. } => AttachForm::Whole,
            // Nothing says for which service, and of which login.
            Attach::Aws | Attach::Login(_) => return None,
        };
        Some(Attachment {
            credential,
            verdict: CredentialVerdict::Attached,
            header,
            form,
        })
    }

    fn refuse_by_uses(&self, head: &Parts, wanted: &RequestedUse) -> Result<(), RefusedUse> {
        let refused = |&credential: &u16| {
            let by = wanted.refused(&self.spec(credential).uses)?;
            Some((credential, by))
        };
        let Some((credential, by)) = self.here.iter().find_map(refused) else {
            return Ok(());
        };
        Err(self.refused(credential, by.why.clone(), head))
    }

    fn refused(&self, credential: u16, why: Option<String>, head: &Parts) -> RefusedUse {
        let refusal = RequestRefusal::UseRefused {
            why,
            credential: self.spec(credential).name.clone(),
            place: self.place.into(),
            method: head.method.to_string(),
            path: head.uri.path().chars().take(256).collect(),
        };
        (credential, Box::new(refusal))
    }

    fn refuse_foreign(&self, head: &Parts) -> Result<(), RefusedUse> {
        let own = self.all.iter().filter_map(|spec| header_of(&spec.attach));
        for header in own.chain([AUTHORIZATION]) {
            for value in head.headers.get_all(&header) {
                for (credential, spec) in (0u16..).zip(self.all) {
                    if !self.here.contains(&credential) && holds(value, &spec.placeholder) {
                        let refusal = RequestRefusal::Foreign {
                            credential: spec.name.clone(),
                            header: header.to_string(),
                            place: self.place.into(),
                        };
                        return Err((credential, Box::new(refusal)));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Attachment {
    /// The scope for which the request has to be signed.
    pub(crate) fn scope(&self) -> Option<&SigningScope> {
        match &self.form {
            AttachForm::Signature(scope, _) => Some(scope),
            AttachForm::Scheme(_)
            | AttachForm::Basic(_)
            | AttachForm::Whole
            | AttachForm::Sealed(_, _) => None,
        }
    }

    /// The text that stands for a token of a login, which is to be opened.
    pub(crate) fn sealed(&self) -> Option<&[u8]> {
        match &self.form {
            AttachForm::Sealed(_, text) => Some(text),
            AttachForm::Scheme(_)
            | AttachForm::Basic(_)
            | AttachForm::Whole
            | AttachForm::Signature(_, _) => None,
        }
    }

    /// Takes what stands for the body in a signature.
    pub(crate) fn state(&mut self, text: String) {
        match &mut self.form {
            AttachForm::Signature(_, payload) => *payload = Some(text),
            AttachForm::Scheme(_)
            | AttachForm::Basic(_)
            | AttachForm::Whole
            | AttachForm::Sealed(_, _) => {}
        }
    }

    /// Puts the value into the head, or its signature. `None` if no header can hold it.
    pub(crate) fn put(&self, head: &mut Parts, value: &Value) -> Option<()> {
        match &self.form {
            AttachForm::Signature(scope, payload) => {
                let key = (value.bytes.as_slice(), value.key.as_ref()?);
                aws::sign(head, key, scope, payload.as_deref()?, aws::now())
            }
            AttachForm::Scheme(_)
            | AttachForm::Basic(_)
            | AttachForm::Whole
            | AttachForm::Sealed(_, _) => self.put_text(&mut head.headers, &value.bytes),
        }
    }

    fn put_text(&self, headers: &mut HeaderMap, value: &[u8]) -> Option<()> {
        let text = match &self.form {
            AttachForm::Scheme(scheme) | AttachForm::Sealed(scheme, _) => {
                Zeroizing::new([scheme.as_bytes(), b" ", value].concat())
            }
            AttachForm::Basic(user) => {
                let pair = Zeroizing::new([user, b":".as_slice(), value].concat());
                let encoded = Zeroizing::new(STANDARD.encode(&*pair));
                Zeroizing::new([b"Basic ", encoded.as_bytes()].concat())
            }
            AttachForm::Whole => Zeroizing::new(value.to_vec()),
            AttachForm::Signature(_, _) => return None,
        };
        let mut text = HeaderValue::from_bytes(&text).ok()?;
        // HTTP/2 does not keep it in the tables of its compression.
        text.set_sensitive(true);
        headers.insert(&self.header, text);
        Some(())
    }
}

/// The header in which a credential stands; `None` if no header can have its name.
fn header_of(attach: &Attach) -> Option<HeaderName> {
    match attach {
        Attach::Bearer
        | Attach::Basic { .. }
        | Attach::Any { .. }
        | Attach::Aws
        | Attach::Login(_) => Some(AUTHORIZATION),
        Attach::Header { name } => name.parse().ok(),
    }
}

/// The form of a header's value that is asked to become the credential: it has the placeholder in exactly the credential's place.
fn asked(attach: &Attach, value: &[u8], placeholder: &str) -> Option<AttachForm> {
    let placeholder = placeholder.as_bytes();
    let token = || {
        let (scheme, token) = scheme(value)?;
        let known = ["bearer", "token"].contains(&&*scheme.to_ascii_lowercase());
        (known && token == placeholder).then_some(AttachForm::Scheme(scheme))
    };
    match attach {
        Attach::Bearer => token(),
        Attach::Basic { user } => basic(value, placeholder, user),
        Attach::Any { user } => token().or_else(|| basic(value, placeholder, user)),
        Attach::Header { .. } => (value == placeholder).then_some(AttachForm::Whole),
        Attach::Aws => None,
        Attach::Login(_) => {
            let (scheme, text) = scheme(value)?;
            let is_token = scheme.eq_ignore_ascii_case("bearer");
            let marker = std::str::from_utf8(placeholder).ok()?;
            (is_token && TokenKey::is_sealed(marker, text))
                .then(|| AttachForm::Sealed(scheme, text.to_vec()))
        }
    }
}

fn scheme(value: &[u8]) -> Option<(String, &[u8])> {
    let space = value.iter().position(|byte| *byte == b' ')?;
    let scheme = String::from_utf8(value[..space].to_vec()).ok()?;
    Some((scheme, value[space..].trim_ascii()))
}

fn basic(value: &[u8], placeholder: &[u8], default: &str) -> Option<AttachForm> {
    let pair = basic_pair(value)?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    let (user, password) = (&pair[..colon], &pair[colon + 1..]);
    let default = || default.as_bytes().to_vec();
    if password == placeholder {
        let user = if user.is_empty() {
            default()
        } else {
            user.to_vec()
        };
        Some(AttachForm::Basic(user))
    } else {
        (user == placeholder && NO_PASSWORD.contains(&password))
            .then(|| AttachForm::Basic(default()))
    }
}

fn basic_pair(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, encoded) = scheme(value)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    STANDARD
        .decode(encoded)
        .or_else(|_| STANDARD_NO_PAD.decode(encoded))
        .ok()
}

/// Whether a header's value contains the placeholder, as text or in `Basic`.
fn holds(value: &HeaderValue, placeholder: &str) -> bool {
    let finder = memchr::memmem::Finder::new(placeholder);
    finder.find(value.as_bytes()).is_some()
        || basic_pair(value.as_bytes()).is_some_and(|pair| finder.find(&pair).is_some())
}

fn holds_text(head: &Parts, placeholder: &str) -> bool {
    head.uri
        .path_and_query()
        .is_some_and(|path| path.as_str().contains(placeholder))
        || head.headers.values().any(|value| holds(value, placeholder))
}

/// Whether no credential ever belongs into this request: it is sent back to who asked, or to a host that stands before another, or has
/// an authorization of its own.
fn gets_none(head: &Parts) -> bool {
    let last_hop = |value: &HeaderValue| {
        let digits = value.as_bytes().trim_ascii();
        !digits.iter().any(|digit| matches!(digit, b'1'..=b'9'))
    };
    matches!(head.method.as_str(), "TRACE" | "OPTIONS" | "CONNECT")
        || head.headers.get_all(MAX_FORWARDS).iter().any(last_hop)
        || head.uri.query().is_some_and(is_signed)
}

fn is_signed(query: &str) -> bool {
    query.split('&').any(|pair| {
        let name = pair.split('=').next().unwrap_or(pair);
        let name = String::from_utf8_lossy(&percent::decoded(name.as_bytes())).to_ascii_lowercase();
        SIGNATURES.contains(&&*name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::gateway::CredentialUse;
    use hyper::Request;

    const A: &str = "ghp_AAAAAAAAAAAAAAAA";
    const B: &str = "key-BBBBBBBBBBBBBBBB";
    const VALUE: &[u8] = b"real-value-of-a";

    fn any(path: &str, unasked: bool, refused: bool) -> CredentialUse {
        CredentialUse {
            host: None,
            methods: vec![],
            path: path.into(),
            unasked,
            refused,
            otherwise: false,
            why: None,
            service: None,
            actions: vec![],
        }
    }

    fn credentials(attach: Attach, unasked: bool) -> Vec<CredentialSpec> {
        let spec = |name: &str, placeholder: &str, attach, uses| CredentialSpec {
            name: name.into(),
            placeholder: placeholder.into(),
            hosts: vec![],
            attach,
            uses,
        };
        vec![
            spec(
                "a",
                A,
                attach,
                vec![any("/api/**", unasked, false), any("/mint", false, true)],
            ),
            spec(
                "b",
                B,
                Attach::Header {
                    name: "x-api-key".into(),
                },
                vec![any("/**", false, false)],
            ),
        ]
    }

    fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn decide(all: &[CredentialSpec], head: &Parts) -> Result<AttachDecision, RefusedUse> {
        let credentials = HostCredentials {
            all,
            here: &[0],
            place: "a.example:443",
        };
        credentials.decide(head)
    }

    /// The header with the value, or as it was.
    fn sent(attach: Attach, unasked: bool, head: &Parts, header: &str) -> Option<String> {
        let all = credentials(attach, unasked);
        let decision = decide(&all, head).unwrap();
        let mut headers = head.headers.clone();
        if let Some(attach) = &decision.attach {
            attach.put_text(&mut headers, VALUE).unwrap();
        }
        headers
            .get(header)
            .map(|value| value.to_str().unwrap().to_owned())
    }

    fn encoded(pair: &str) -> String {
        format!("Basic {}", STANDARD.encode(pair))
    }

    #[test]
    fn basic_is_decoded_swapped_and_encoded() {
        let user = || Attach::Any {
            user: "x-access-token".into(),
        };
        for (sent_pair, want) in [
            (format!("me:{A}"), "me:real-value-of-a"),
            (format!(":{A}"), "x-access-token:real-value-of-a"),
            (format!("{A}:"), "x-access-token:real-value-of-a"),
            (
                format!("{A}:x-oauth-basic"),
                "x-access-token:real-value-of-a",
            ),
            (format!("me:x{A}"), &format!("me:x{A}")),
            (format!("{A}:other"), &format!("{A}:other")),
        ] {
            let head = head("GET", "/api/x", &[("authorization", &encoded(&sent_pair))]);
            assert_eq!(
                sent(user(), false, &head, "authorization"),
                Some(encoded(want)),
                "{sent_pair}"
            );
        }
    }

    #[test]
    fn only_the_exact_place_is_swapped() {
        for (attach, header, value, want) in [
            (
                Attach::Bearer,
                "authorization",
                format!("bearer {A}"),
                "bearer real-value-of-a".into(),
            ),
            (
                Attach::Bearer,
                "authorization",
                format!("token {A}"),
                "token real-value-of-a".into(),
            ),
            (Attach::Bearer, "authorization", A.to_owned(), A.to_owned()),
            (
                Attach::Bearer,
                "authorization",
                format!("Bearer x{A}"),
                format!("Bearer x{A}"),
            ),
            (
                Attach::Bearer,
                "x-other",
                format!("Bearer {A}"),
                format!("Bearer {A}"),
            ),
            (
                Attach::Header {
                    name: "x-key".into(),
                },
                "x-key",
                A.to_owned(),
                "real-value-of-a".into(),
            ),
            (
                Attach::Header {
                    name: "x-key".into(),
                },
                "authorization",
                format!("Bearer {A}"),
                format!("Bearer {A}"),
            ),
        ] {
            let head = head("GET", "/api/x", &[(header, &value)]);
            assert_eq!(sent(attach, false, &head, header), Some(want), "{value}");
        }
    }

    #[test]
    fn a_placeholder_in_path_or_query_or_outside_of_a_use_passes_and_is_counted() {
        let all = credentials(Attach::Bearer, true);
        for (path, header) in [
            (format!("/other?key={A}"), "x"),
            (format!("/other/{A}"), "x"),
            ("/other".into(), A),
        ] {
            let head = head("GET", &path, &[("x-note", header)]);
            let decision = decide(&all, &head).unwrap();
            assert!(decision.attach.is_none());
            assert_eq!(decision.passed, [0], "{path}");
        }
    }

    #[test]
    fn trace_options_last_hops_and_signed_urls_get_none() {
        let bearer = format!("Bearer {A}");
        for (method, path, hops) in [
            ("TRACE", "/api/x", "5"),
            ("OPTIONS", "/api/x", "5"),
            ("GET", "/api/x", "0"),
            ("GET", "/api/x", " 00 "),
            ("GET", "/api/x?X-Amz-Signature=1", "5"),
            ("GET", "/api/x?a=b&sig=1", "5"),
            ("GET", "/api/x?X%2DGoog-Signature=1", "5"),
        ] {
            for with in [true, false] {
                let mut headers = vec![("max-forwards", hops)];
                if with {
                    headers.push(("authorization", &*bearer));
                }
                let head = head(method, path, &headers);
                let got = sent(Attach::Bearer, true, &head, "authorization");
                assert_eq!(got, with.then(|| bearer.clone()), "{method} {path} {hops}");
            }
        }
        let head = head("GET", "/api/x?a=b", &[("max-forwards", "10")]);
        let got = sent(Attach::Bearer, true, &head, "authorization");
        assert_eq!(got.unwrap(), "Bearer real-value-of-a", "the control");
    }

    #[test]
    fn unasked_only_where_a_use_says_so_and_the_request_has_none() {
        let git = || Attach::Any {
            user: "x-access-token".into(),
        };
        let plain = head("GET", "/api/x", &[]);
        let want = encoded("x-access-token:real-value-of-a");
        assert_eq!(sent(git(), true, &plain, "authorization"), Some(want));
        assert_eq!(sent(git(), false, &plain, "authorization"), None);
        let elsewhere = head("GET", "/o/r/releases/download/v1/x", &[]);
        assert_eq!(sent(git(), true, &elsewhere, "authorization"), None);
        let own = head("GET", "/api/x", &[("authorization", "Bearer own")]);
        assert_eq!(
            sent(git(), true, &own, "authorization").unwrap(),
            "Bearer own"
        );
    }

    #[test]
    fn the_placeholder_of_another_hosts_credential_is_refused() {
        let all = credentials(Attach::Bearer, true);
        for (header, value) in [
            ("authorization", format!("Bearer {B}")),
            ("authorization", encoded(&format!("x:{B}"))),
            ("x-api-key", B.to_owned()),
        ] {
            let head = head("GET", "/api/x", &[(header, &value)]);
            let (credential, refusal) = decide(&all, &head).unwrap_err();
            assert_eq!(credential, 1);
            assert!(
                matches!(*refusal, RequestRefusal::Foreign { .. }),
                "{value}"
            );
        }
        // Elsewhere it is text.
        let head = head("GET", "/api/x", &[("x-note", B)]);
        assert!(decide(&all, &head).is_ok());
    }

    #[test]
    fn request_that_mints_credentials_is_refused_with_and_without_the_placeholder() {
        let all = credentials(Attach::Bearer, true);
        for headers in [vec![], vec![("authorization", A)]] {
            let head = head("POST", "/mint", &headers);
            let (credential, refusal) = decide(&all, &head).unwrap_err();
            assert_eq!(credential, 0);
            let text = refusal.text();
            assert!(text.starts_with("lazaret: POST /mint"), "{text}");
            assert!(text.contains("[credential.a]"), "{text}");
        }
    }

    #[test]
    fn two_values_of_the_header_get_none() {
        let bearer = format!("Bearer {A}");
        let twice = [("authorization", &*bearer), ("authorization", "Bearer x")];
        let head = head("GET", "/api/x", &twice);
        let all = credentials(Attach::Bearer, true);
        let decision = decide(&all, &head).unwrap();
        assert!(decision.attach.is_none());
        assert_eq!(decision.passed, [0]);
    }
}
