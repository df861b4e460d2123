//! The signature of a request, as "Signature Version 4" of AWS' documentation has it.

use crate::asked::{CONTENT_SHA256, SigningScope};
use crate::key::KeyParts;
use crate::operations::is_s3;
use crate::time::stamp;
use hyper::Uri;
use hyper::header::{AUTHORIZATION, DATE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use orchestrator_http::percent;
use ring::digest::SHA256;
use ring::hmac;
use std::collections::BTreeMap;
use zeroize::Zeroizing;

const WHEN: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const STATED: HeaderName = HeaderName::from_static(CONTENT_SHA256);
/// Headers that are signed beside `host` and all of `x-amz-*`.
const SIGNED: [&str; 2] = ["content-md5", "content-type"];
/// Servers of AWS and what stands before them change this one.
const CHANGED: &str = "x-amzn-trace-id";

/// The digest of a body, in hex.
pub fn digest(body: &[u8]) -> String {
    hex(ring::digest::digest(&SHA256, body).as_ref())
}

/// Signs a head that is otherwise as it goes to the host. `payload` is the body's digest, or what stands for it. `None` if no header can
/// hold the signature.
pub fn sign(
    head: &mut Parts,
    (secret, key): (&[u8], &KeyParts),
    scope: &SigningScope,
    payload: &str,
    seconds: u64,
) -> Option<()> {
    let (day, when) = stamp(seconds);
    let headers = &mut head.headers;
    for name in [AUTHORIZATION, DATE, TOKEN] {
        headers.remove(name);
    }
    headers.insert(WHEN, HeaderValue::from_str(&when).ok()?);
    if let Some(token) = &key.token {
        headers.insert(TOKEN, sensitive(token)?);
    }
    if is_s3(&scope.service) {
        headers.insert(STATED, HeaderValue::from_str(payload).ok()?);
    }
    let SigningScope { region, service } = scope;
    let scope_text = format!("{day}/{region}/{service}/aws4_request");
    let (names, request) = canonical(head, service, payload)?;
    let text = format!(
        "AWS4-HMAC-SHA256\n{when}\n{scope_text}\n{}",
        digest(&request)
    );
    let first = Zeroizing::new([b"AWS4", secret].concat());
    let mut made = hmac_of(&first, day.as_bytes());
    for part in [region.as_str(), service, "aws4_request", &text] {
        made = hmac_of(made.as_ref(), part.as_bytes());
    }
    let signature = hex(made.as_ref());
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope_text}, SignedHeaders={names}, Signature={signature}",
        key.id
    );
    head.headers
        .insert(AUTHORIZATION, sensitive(authorization.as_bytes())?);
    Some(())
}

/// A header that HTTP/2 does not keep in the tables of its compression.
fn sensitive(bytes: &[u8]) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(bytes).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The names of the signed headers, and the request in the form that is signed.
fn canonical(head: &Parts, service: &str, payload: &str) -> Option<(String, Vec<u8>)> {
    let headers = signed(&head.headers, &head.uri)?;
    let names: Vec<&str> = headers.keys().copied().collect();
    let names = names.join(";");
    let mut request = format!(
        "{}\n{}\n{}\n",
        head.method,
        path(head.uri.path(), service),
        query(head.uri.query().unwrap_or_default())
    )
    .into_bytes();
    for (name, value) in headers {
        request.extend([name.as_bytes(), b":", &value, b"\n"].concat());
    }
    request.extend(format!("\n{names}\n{payload}").into_bytes());
    Some((names, request))
}

/// The headers that are signed: those that AWS demands, as a program may add others to be seen by it alone.
fn signed<'h>(headers: &'h HeaderMap, uri: &Uri) -> Option<BTreeMap<&'h str, Vec<u8>>> {
    let mut all: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    for (name, value) in headers {
        let name = name.as_str();
        let is_amz = name.starts_with("x-amz-") && name != CHANGED;
        if !is_amz && !SIGNED.contains(&name) {
            continue;
        }
        let value = folded(value.as_bytes());
        match all.get_mut(name) {
            Some(before) => before.extend([b",", &*value].concat()),
            None => drop(all.insert(name, value)),
        }
    }
    let host = headers.get(HOST).map(|host| host.as_bytes().to_vec());
    let authority = || Some(uri.authority()?.as_str().as_bytes().to_vec());
    all.insert("host", host.or_else(authority)?);
    Some(all)
}

/// Without spaces around, and with one in place of many.
fn folded(value: &[u8]) -> Vec<u8> {
    let words = value.split(|byte| matches!(byte, b' ' | b'\t'));
    let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
    words.join(&b' ')
}

/// Encoded once for S3, and once more for all others.
fn path(path: &str, service: &str) -> String {
    let once = encoded(&percent::decoded(path.as_bytes()), PLAIN_IN_PATH);
    match is_s3(service) {
        true => once,
        false => encoded(once.as_bytes(), PLAIN_IN_PATH),
    }
}

fn query(query: &str) -> String {
    let part = |part: &str| {
        let spaced = part.replace('+', " ");
        encoded(&percent::decoded(spaced.as_bytes()), PLAIN)
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(String, String)> = pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (part(name), part(value)))
        .collect();
    pairs.sort();
    let pairs: Vec<String> = pairs.iter().map(|(n, v)| format!("{n}={v}")).collect();
    pairs.join("&")
}

/// Signs that stay as they are, besides letters and digits.
const PLAIN: &[u8] = b"-._~";
const PLAIN_IN_PATH: &[u8] = b"-._~/";

fn encoded(bytes: &[u8], plain: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn hmac_of(key: &[u8], text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    const SECRET: &[u8] = b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    fn key(token: Option<&str>) -> KeyParts {
        KeyParts {
            id: "AKIDEXAMPLE".into(),
            token: token.map(|token| Zeroizing::new(token.into())),
            expires: None,
        }
    }

    fn head(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn signature(
        mut head: Parts,
        (region, service): (&str, &str),
        payload: &str,
        at: u64,
    ) -> String {
        let scope = SigningScope {
            region: region.into(),
            service: service.into(),
        };
        sign(&mut head, (SECRET, &key(None)), &scope, payload, at).unwrap();
        let text = head.headers[AUTHORIZATION].to_str().unwrap().to_owned();
        text.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    /// From AWS' own test suite for this signature ("aws-sig-v4-test-suite"), all of 2015-08-30T12:36:00Z.
    #[test]
    fn signatures_are_those_of_the_published_suite() {
        let service = ("us-east-1", "service");
        let of = |method: &str, uri: &str, headers: &[(&str, &str)], body: &[u8]| {
            let host = [("host", "example.amazonaws.com")];
            let head = head(method, uri, &[&host, headers].concat());
            signature(head, service, &digest(body), 1_440_938_160)
        };
        let form = [("content-type", "application/x-www-form-urlencoded")];
        for (made, want) in [
            // get-vanilla
            (
                of("GET", "/", &[], b""),
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            // post-vanilla
            (
                of("POST", "/", &[], b""),
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            // get-vanilla-query-order-key-case
            (
                of("GET", "/?Param2=value2&Param1=value1", &[], b""),
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            // post-x-www-form-urlencoded
            (
                of("POST", "/", &form, b"Param1=value1"),
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
        ] {
            assert_eq!(made, want);
        }
    }

    /// The examples of "Authenticating Requests" in the documentation of S3, but for the key's name.
    #[test]
    fn signatures_of_s3_are_those_of_its_documentation() {
        let secret_of_s3 = b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        let mut head = head(
            "GET",
            "/?max-keys=2&prefix=J",
            &[("host", "examplebucket.s3.amazonaws.com")],
        );
        let scope = SigningScope {
            region: "us-east-1".into(),
            service: "s3".into(),
        };
        sign(
            &mut head,
            (secret_of_s3, &key(None)),
            &scope,
            &digest(b""),
            1_369_353_600,
        )
        .unwrap();
        let text = head.headers[AUTHORIZATION].to_str().unwrap();
        let want = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        assert!(text.ends_with(want), "{text}");
        assert_eq!(head.headers[STATED], digest(b""));
    }

    #[test]
    fn signature_of_the_program_is_removed() {
        let mut head = head(
            "GET",
            "/a%7Eb",
            &[
                ("host", "a.example"),
                ("authorization", "AWS4-HMAC-SHA256 Credential=PLACEHOLDER"),
                ("date", "today"),
                ("x-amz-date", "20000101T000000Z"),
                ("x-amz-date", "20010101T000000Z"),
                ("x-amz-security-token", "of the program"),
                ("x-amzn-trace-id", "1"),
                ("x-amz-meta-a", " two   words "),
                ("x-amz-meta-a", "b"),
                ("user-agent", "c"),
            ],
        );
        let scope = SigningScope {
            region: "r".into(),
            service: "service".into(),
        };
        sign(
            &mut head,
            (SECRET, &key(Some("real-token"))),
            &scope,
            "UNSIGNED-PAYLOAD",
            0,
        )
        .unwrap();
        let values = |name: &str| -> Vec<&[u8]> {
            let values = head.headers.get_all(name).iter();
            values.map(HeaderValue::as_bytes).collect()
        };
        assert_eq!(values("x-amz-date"), [b"19700101T000000Z"]);
        assert_eq!(values("x-amz-security-token"), [b"real-token"]);
        assert!(values("date").is_empty() && values(CONTENT_SHA256).is_empty());
        let authorization = String::from_utf8_lossy(values("authorization")[0]).into_owned();
        let names = "SignedHeaders=host;x-amz-date;x-amz-meta-a;x-amz-security-token,";
        assert!(authorization.contains(names), "{authorization}");
        assert!(head.headers[AUTHORIZATION].is_sensitive() && head.headers[TOKEN].is_sensitive());
        let (_, request) = canonical(&head, "service", "x").unwrap();
        let request = String::from_utf8(request).unwrap();
        assert!(
            request.contains("\nx-amz-meta-a:two words,b\n"),
            "{request}"
        );
    }

    #[test]
    fn paths_and_queries_have_one_form() {
        for (given, once, twice) in [
            ("/", "/", "/"),
            ("/a b", "/a%20b", "/a%2520b"),
            ("/%7e/%c3%a9", "/~/%C3%A9", "/~/%25C3%25A9"),
            ("/a+b:c", "/a%2Bb%3Ac", "/a%252Bb%253Ac"),
        ] {
            assert_eq!(path(given, "s3"), once);
            assert_eq!(path(given, "sts"), twice);
        }
        let given = "b=2&a&b=%31&c=x%2Fy+z&&d=%7e";
        assert_eq!(query(given), "a=&b=1&b=2&c=x%2Fy%20z&d=~");
        assert_eq!(query(""), "");
    }
}
