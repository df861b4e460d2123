//! Requests that are signed with the placeholder of an AWS key.

use crate::world::*;
use broker_protocol::gateway::CredentialVerdict::{Echoed, NoValue, Passed, Refused, Used};
use broker_protocol::gateway::{Attach, CredentialSpec, CredentialUse};
use http_body_util::BodyExt;
use hyper::Request;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const KEY: &str = "AKIAPLACEHOLDER0189";
const REAL: &str = "ASIAREALREALREALREAL";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const TOKEN: &str = "the/session+token/of/the/real/key==";
/// What the gateway reads of one body for its digest.
const BODY_MAX: usize = 16 << 20;

fn printed(expiration: &str) -> Result<String, String> {
    Ok(format!(
        "{{\n  \"Version\": 1, \"AccessKeyId\": \"{REAL}\", \"SecretAccessKey\": \"{SECRET}\",\n  \"SessionToken\": \"{TOKEN}\"{expiration}\n}}\n"
    ))
}

fn of(service: &str, actions: &[&str], refused: bool) -> CredentialUse {
    CredentialUse {
        service: Some(service.into()),
        actions: actions.iter().map(|&action| action.into()).collect(),
        refused,
        ..usable(&[], "/**")
    }
}

fn setup() -> Setup {
    let aws = CredentialSpec {
        name: "aws".into(),
        placeholder: KEY.into(),
        hosts: vec!["a.example:443".into()],
        attach: Attach::Aws,
        uses: vec![
            of("s3", &[], false),
            of("s3", &["policy"], true),
            of("dynamodb", &[], false),
            of("sts", &["GetCallerIdentity"], false),
            of("sts", &["AssumeRole"], true),
        ],
    };
    let other = CredentialSpec {
        name: "other".into(),
        placeholder: OTHER.into(),
        hosts: vec!["b.example:443".into()],
        attach: Attach::Bearer,
        uses: vec![usable(&[], "/**")],
    };
    Setup {
        credentials: vec![aws, other],
        values: vec![printed("")],
        ..Setup::default()
    }
}

fn authorization(service: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential={KEY}/20000101/eu-central-1/{service}/aws4_request, SignedHeaders=host;x-amz-date, Signature=00"
    )
}

/// The headers of a request that is signed with the placeholder.
fn signed(service: &str) -> String {
    format!(
        "Authorization: {}\r\nX-Amz-Date: 20000101T000000Z\r\n",
        authorization(service)
    )
}

async fn post(world: &World, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n");
    world
        .http1(&format!("{head}{headers}Connection: close\r\n\r\n{body}"))
        .await
}

#[test]
fn a_signature_with_the_placeholder_becomes_one_with_the_key_on_both_protocols() {
    local(async {
        let world = World::new(setup()).await;
        let unsigned = format!("{}X-Amz-Content-Sha256: UNSIGNED-PAYLOAD\r\n", signed("s3"));
        let answer = world.get("/key?x=1", &unsigned).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        let mut http2 = world.http2().await;
        let request = Request::get("https://a.example/key?x=1")
            .header("authorization", authorization("dynamodb"));
        let answer = http2.send_request(request.body(full("")).unwrap()).await;
        assert_eq!(answer.unwrap().status(), 200);
        for (seen, service) in world.seen.borrow().iter().zip(["s3", "dynamodb"]) {
            let got = seen.header("authorization").unwrap();
            let begins = format!("AWS4-HMAC-SHA256 Credential={REAL}/20");
            let scope = format!("/eu-central-1/{service}/aws4_request, SignedHeaders=host;x-amz-");
            assert!(got.starts_with(&begins) && got.contains(&scope), "{got}");
            assert!(
                !got.contains("/20000101/") && !got.ends_with("=00"),
                "{got}"
            );
            assert_eq!(seen.header("x-amz-security-token").unwrap(), TOKEN);
            assert_ne!(seen.header("x-amz-date").unwrap(), "20000101T000000Z");
            assert!(!format!("{seen:?}").contains(KEY), "{seen:?}");
        }
        assert_eq!(world.seen.borrow().len(), 2);
        assert_eq!((world.count(Used), world.wanted()), (2, 1));
    });
}

#[test]
fn signatures_with_other_keys_pass_as_they_are_and_the_placeholder_as_text() {
    local(async {
        let world = World::new(setup()).await;
        let own = authorization("iam").replace(KEY, "AKIAOWNKEYOFTHECELL1");
        for sent in [own, format!("Bearer {KEY}")] {
            world.get("/", &format!("Authorization: {sent}\r\n")).await;
            assert_eq!(world.last().header("authorization").unwrap(), sent);
        }
        let note = format!("X-Note: {KEY}\r\n");
        world.get(&format!("/?note={KEY}"), &note).await;
        assert_eq!(world.last().header("x-note").unwrap(), KEY);
        assert_eq!((world.count(Passed), world.wanted()), (2, 1));
        // At a host of another credential, in the header of that.
        let mut stream = world
            .try_tls("b.example:443", "b.example", &[HTTP1])
            .await
            .unwrap();
        let head = format!(
            "GET / HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n{}\r\n",
            signed("s3")
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(
            answer.contains("none of that credential's hosts"),
            "{answer}"
        );
        assert_eq!(world.seen.borrow().len(), 3);
    });
}

#[test]
fn request_that_cannot_be_signed_again_is_refused_with_its_reason() {
    local(async {
        let world = World::new(setup()).await;
        let s3 = signed("s3");
        let chunked = "X-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\n";
        for (path, headers, want) in [
            (
                format!("/k?X-Amz-Credential={KEY}%2Fx&X-Amz-Signature=0"),
                String::new(),
                "signed address",
            ),
            (
                "/k?X-Amz-Signature=0".into(),
                s3.clone(),
                "never gets a credential",
            ),
            (
                "/k".into(),
                format!("{s3}Max-Forwards: 0\r\n"),
                "never gets a credential",
            ),
            (
                "/k".into(),
                format!("Authorization: AWS {KEY}:x=\r\n"),
                "Signature Version 4",
            ),
            (
                "/k".into(),
                s3.replace("HMAC-SHA256", "ECDSA-P256-SHA256"),
                "Signature Version 4",
            ),
            (
                "/k".into(),
                format!("{s3}{chunked}"),
                "each part of its body",
            ),
            ("/k".into(), format!("{s3}{s3}"), "malformed"),
            ("/k".into(), signed("ec2"), "names GET /k (service ec2)"),
            ("/k".into(), signed("iam"), "names GET /k (service iam)"),
            // Other spellings of a path are no use.
            ("/a/../k".into(), s3.clone(), "names GET /a/../k"),
            (
                "/b?policy".into(),
                s3.clone(),
                "is refused by the policy of credential",
            ),
            (
                "/b?%70olicy".into(),
                s3,
                "is refused by the policy of credential",
            ),
        ] {
            let answer = world.get(&path, &headers).await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{path} {answer}");
            assert!(answer.contains(want), "{path} {want}: {answer}");
        }
        assert!(world.seen.borrow().is_empty());
        assert_eq!((world.count(Refused), world.wanted()), (12, 0));
    });
}

#[test]
fn an_operation_in_the_body_is_read_before_anything_is_signed() {
    local(async {
        let world = World::new(Setup {
            handler: echo(),
            ..setup()
        })
        .await;
        let form = format!(
            "{}Content-Type: application/x-www-form-urlencoded\r\n",
            signed("sts")
        );
        let stated = format!("{form}X-Amz-Content-Sha256: UNSIGNED-PAYLOAD\r\n");
        let json = form.replace("x-www-form-urlencoded", "x-amz-json-1.0");
        let target = format!("{json}X-Amz-Target: S.GetCallerIdentity\r\n");
        let identity = "Action=GetCallerIdentity&Version=2011-06-15";
        for headers in [&form, &stated] {
            let answer = post(&world, "/", headers, identity).await;
            assert!(answer.ends_with(identity), "{answer}");
        }
        let assume = "Action=AssumeRole&RoleArn=x";
        let both = format!("{identity}&Action=AssumeRole");
        for (path, headers, body) in [
            ("/", &form, assume),
            ("/", &stated, assume),
            ("/", &form, &both),
            ("/?Action=AssumeRole", &form, identity),
            ("/?Action=GetCallerIdentity", &form, assume),
            ("/", &json, assume),
            ("/", &target.replace("json", "other"), assume),
            ("/", &format!("{form}Content-Encoding: gzip\r\n"), identity),
            (
                "/",
                &form.replace("urlencoded", "urlencoded; charset=ibm037"),
                identity,
            ),
            ("/", &form, "%41ction=%41ssumeRole"),
            ("/", &form, ""),
        ] {
            let answer = post(&world, path, headers, body).await;
            assert!(answer.contains("lazaret: "), "{path} {body}: {answer}");
        }
        assert_eq!(world.seen.borrow().len(), 2);
        assert_eq!((world.count(Used), world.count(Refused)), (2, 11));
    });
}

#[test]
fn a_body_is_read_for_its_digest_up_to_the_limit_and_streams_where_it_is_stated() {
    local(async {
        let world = World::new(Setup {
            handler: handler(|request| async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                text(format!("{} bytes", body.len()))
            }),
            ..setup()
        })
        .await;
        let (fits, over) = ("x".repeat(BODY_MAX), "x".repeat(BODY_MAX + 1));
        let answer = post(&world, "/", &signed("dynamodb"), &fits).await;
        assert!(answer.ends_with(&format!("{BODY_MAX} bytes")), "{answer}");
        let answer = post(&world, "/", &signed("dynamodb"), &over).await;
        assert!(answer.contains("has more than"), "{answer}");
        let stated = format!("{}X-Amz-Content-Sha256: UNSIGNED-PAYLOAD\r\n", signed("s3"));
        let answer = post(&world, "/k", &stated, &over).await;
        assert!(
            answer.ends_with(&format!("{} bytes", BODY_MAX + 1)),
            "{answer}"
        );
        // What S3 has to be told of a body is told.
        post(&world, "/k", &signed("s3"), "").await;
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(world.last().header("x-amz-content-sha256").unwrap(), empty);
    });
}

#[test]
fn an_answer_with_the_secret_or_the_token_is_cut() {
    local(async {
        for secret in [SECRET, TOKEN] {
            let world = World::new(Setup {
                handler: handler(move |_| async move { text(format!("it is {secret}!")) }),
                ..setup()
            })
            .await;
            let answer = world.get("/k", &signed("s3")).await;
            assert!(!answer.contains(secret), "{answer}");
            assert_eq!(world.count(Echoed), 1);
        }
    });
}

#[test]
fn a_key_that_has_expired_is_asked_for_again_and_never_sent() {
    local(async {
        let old = printed(",\"Expiration\": \"2015-08-30T12:36:00Z\"");
        let fresh = printed(",\"Expiration\": \"2999-08-30T12:36:00Z\"");
        let fresh = fresh.map(|text| text.replace(REAL, "ASIANEXTNEXTNEXTNEXT"));
        let mut setup = setup();
        setup.values = vec![old, fresh];
        setup.times.refresh = Duration::ZERO;
        let world = World::new(setup).await;
        let answer = world.get("/k", &signed("s3")).await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(answer.contains("it has expired"), "{answer}");
        assert!(world.seen.borrow().is_empty());
        world.get("/k", &signed("s3")).await;
        let got = world.last().header("authorization").unwrap();
        assert!(got.contains("Credential=ASIANEXTNEXTNEXTNEXT/"), "{got}");
        world.get("/k", &signed("s3")).await;
        assert_eq!((world.count(NoValue), world.wanted()), (1, 2));
    });
}

#[test]
fn a_source_without_a_key_is_named() {
    local(async {
        let world = World::new(Setup {
            values: vec![Ok(SECRET.into())],
            ..setup()
        })
        .await;
        let answer = world.get("/k", &signed("s3")).await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(
            answer.contains("aws configure export-credentials"),
            "{answer}"
        );
        assert!(!answer.contains(SECRET) && world.seen.borrow().is_empty());
    });
}
