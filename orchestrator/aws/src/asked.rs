//! Which requests are signed with a placeholder, and for which service.

use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::http::request::Parts;
use orchestrator_http::percent;
use thiserror::Error;

/// Bytes of a body whose digest is made for a signature: it is read to its end before.
pub const SIGNED_BODY: usize = 16 << 20;

const SCHEME: &str = "AWS4-HMAC-SHA256";
/// Parameters that name the key of an address which is signed itself (versions 4 and 2).
const KEY_PARAMETERS: [&str; 2] = ["x-amz-credential", "awsaccesskeyid"];
/// Longest name of a region or a service, in bytes.
const SCOPE_NAME_MAX: usize = 64;
/// States the digest of a body, or that there is none.
pub(crate) const CONTENT_SHA256: &str = "x-amz-content-sha256";

/// What a signature is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningScope {
    pub region: String,
    pub service: String,
}

/// Why a request that is signed with a placeholder is not signed again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SignFault {
    #[error(
        "its address has the signature: a signed address would serve whoever gets it; send the request itself, signed in `Authorization`"
    )]
    Presigned,
    #[error("it is signed by another way than {SCHEME} (Signature Version 4)")]
    OtherVersion,
    #[error(
        "each part of its body is signed by itself; have the client send the body unsigned, as it does over TLS (x-amz-content-sha256: UNSIGNED-PAYLOAD)"
    )]
    ChunkSigned,
    #[error("its `Authorization` or `{CONTENT_SHA256}` is malformed")]
    Malformed,
    #[error("such a request never gets a credential")]
    Never,
    #[error(
        "its body has more than {SIGNED_BODY} bytes, and its digest is not in `{CONTENT_SHA256}`"
    )]
    Long,
    #[error("the bodies of other requests wait for their signatures already; try again")]
    Crowded,
    #[error(
        "it copies from another bucket, or from a path that no use lets commands read; have the client read the object and write it"
    )]
    Copied,
    #[error(
        "its body is compressed or in another charset than UTF-8, so that its operation cannot be read; send it as it is"
    )]
    Encoded,
    #[error("none of the credential's `uses` in the user's policy names {0}")]
    NoUse(String),
}

/// The scope for which a request is signed with this placeholder; `None` if it is not.
///
/// # Errors
/// It is signed with it in a way that cannot be signed again.
pub fn asked(head: &Parts, placeholder: &str) -> Result<Option<SigningScope>, SignFault> {
    if head
        .uri
        .query()
        .is_some_and(|query| names_key(query, placeholder))
    {
        return Err(SignFault::Presigned);
    }
    let mut values = head.headers.get_all(AUTHORIZATION).iter();
    let (first, second) = (values.next(), values.next());
    let names = |value: &&hyper::header::HeaderValue| {
        memchr::memmem::find(value.as_bytes(), placeholder.as_bytes()).is_some()
    };
    if ![first, second].iter().flatten().any(names) {
        return Ok(None);
    }
    let (Some(value), None) = (first, second) else {
        return Err(SignFault::Malformed);
    };
    let text = value.to_str().map_err(|_| SignFault::Malformed)?;
    let Some((scheme, fields)) = text.split_once(' ') else {
        return Ok(None);
    };
    if scheme != SCHEME {
        // In another scheme than those of AWS it is text.
        let is_aws = scheme.to_ascii_uppercase().starts_with("AWS");
        return if is_aws {
            Err(SignFault::OtherVersion)
        } else {
            Ok(None)
        };
    }
    let fields = fields
        .split(',')
        .filter_map(|field| field.trim().split_once('='));
    let mut keys = fields.filter_map(|(name, value)| (name == "Credential").then_some(value));
    let (Some(key), None) = (keys.next(), keys.next()) else {
        return Err(SignFault::Malformed);
    };
    let parts: Vec<&str> = key.split('/').collect();
    let [id, _, region, service, "aws4_request"] = parts[..] else {
        return Err(SignFault::Malformed);
    };
    if id != placeholder {
        return Ok(None);
    }
    let is_name = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=SCOPE_NAME_MAX).contains(&text.len()) && text.bytes().all(fits)
    };
    match is_name(region) && is_name(service) {
        true => Ok(Some(SigningScope {
            region: region.to_owned(),
            service: service.to_owned(),
        })),
        false => Err(SignFault::Malformed),
    }
}

/// What a head states of its body, as it is signed; `None` if the digest has to be made.
///
/// # Errors
/// The body has signatures of its own, or the statement is none.
pub fn stated_payload(headers: &HeaderMap) -> Result<Option<String>, SignFault> {
    let mut values = headers.get_all(CONTENT_SHA256).iter();
    let (first, second) = (values.next(), values.next());
    let Some(value) = first else {
        return Ok(None);
    };
    let (Ok(text), None) = (value.to_str(), second) else {
        return Err(SignFault::Malformed);
    };
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    match text {
        "UNSIGNED-PAYLOAD" | "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Ok(Some(text.to_owned())),
        digest if digest.len() == 64 && digest.bytes().all(is_digit) => Ok(Some(text.to_owned())),
        other if other.starts_with("STREAMING-") => Err(SignFault::ChunkSigned),
        _ => Err(SignFault::Malformed),
    }
}

fn names_key(query: &str, placeholder: &str) -> bool {
    query.split('&').any(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = percent::decoded(name.as_bytes()).to_ascii_lowercase();
        let value = percent::decoded(value.as_bytes());
        KEY_PARAMETERS.iter().any(|known| name == known.as_bytes())
            && value.starts_with(placeholder.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    const KEY: &str = "AKIAPLACEHOLDER01089";

    fn of(uri: &str, headers: &[(&str, &str)]) -> Result<Option<SigningScope>, SignFault> {
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        asked(&request.body(()).unwrap().into_parts().0, KEY)
    }

    fn by(authorization: &str) -> Result<Option<SigningScope>, SignFault> {
        of("/", &[("authorization", authorization)])
    }

    fn signed(scope: &str) -> String {
        format!("{SCHEME} Credential={scope}, SignedHeaders=host;x-amz-date, Signature=00")
    }

    #[test]
    fn only_the_placeholder_as_the_keys_name_asks() {
        let scope = SigningScope {
            region: "eu-central-1".into(),
            service: "s3".into(),
        };
        let own = format!("{KEY}/20150830/eu-central-1/s3/aws4_request");
        assert_eq!(by(&signed(&own)), Ok(Some(scope.clone())));
        assert_eq!(by(&signed(&own).replace(", ", ",")), Ok(Some(scope)));
        let other = own.replace(KEY, "AKIAIOSFODNN7EXAMPLE");
        let text = format!("{}, Note={KEY}", signed(&other));
        for passes in [signed(&other), text, format!("Bearer {KEY}"), KEY.into()] {
            assert_eq!(by(&passes), Ok(None), "{passes}");
        }
        assert_eq!(of("/?note=AKIAPLACEHOLDER01089", &[]), Ok(None));
    }

    #[test]
    fn request_that_cannot_be_signed_again_fails_with_a_reason() {
        let own = format!("{KEY}/20150830/eu-central-1/s3/aws4_request");
        let malformed = [
            signed(KEY),
            signed(&own.replace("aws4_request", "aws5_request")),
            signed(&own.replace("/s3/", "/S3/")),
            signed(&own.replace("/s3/", "//")),
            signed(&own.replace("/s3/", &format!("/{}/", "s".repeat(SCOPE_NAME_MAX + 1)))),
            format!("{}, Credential={own}", signed(&own)),
        ];
        for malformed in malformed {
            assert_eq!(by(&malformed), Err(SignFault::Malformed), "{malformed}");
        }
        let longest = own.replace("/s3/", &format!("/{}/", "s".repeat(SCOPE_NAME_MAX)));
        assert!(by(&signed(&longest)).unwrap().is_some());
        let two = [("authorization", &*signed(&own)), ("authorization", "x")];
        assert_eq!(of("/", &two), Err(SignFault::Malformed));
        for other in ["AWS4-ECDSA-P256-SHA256", "aws4-hmac-sha256"] {
            let other = signed(&own).replace(SCHEME, other);
            assert_eq!(by(&other), Err(SignFault::OtherVersion), "{other}");
        }
        assert_eq!(by(&format!("AWS {KEY}:sig")), Err(SignFault::OtherVersion));
        for query in [
            format!("x-amz-credential={KEY}%2F20150830"),
            "a=b&X-Amz%2DCredential=%41KIAPLACEHOLDER01089/x".to_string(),
            format!("AWSAccessKeyId={KEY}&Signature=x"),
        ] {
            assert_eq!(of(&format!("/?{query}"), &[]), Err(SignFault::Presigned));
        }
    }

    #[test]
    fn the_statement_about_a_body_is_one_of_a_few() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_SHA256, value.parse().unwrap());
            }
            stated_payload(&headers)
        };
        let digest = "0a".repeat(32);
        assert_eq!(of(&[]), Ok(None));
        for stated in [
            "UNSIGNED-PAYLOAD",
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
            &digest,
        ] {
            assert_eq!(of(&[stated]), Ok(Some(stated.to_owned())));
        }
        for chunked in [
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
            "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD",
            "STREAMING-AWS4-HMAC-SHA256-EVENTS",
        ] {
            assert_eq!(of(&[chunked]), Err(SignFault::ChunkSigned));
        }
        for malformed in [
            &["x"] as &[&str],
            &[""],
            &[&digest[1..]],
            &[&digest, &digest],
        ] {
            assert_eq!(of(malformed), Err(SignFault::Malformed), "{malformed:?}");
        }
    }
}
