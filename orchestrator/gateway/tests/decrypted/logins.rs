//! Logins of programs: tokens of an answer are sealed, come back at the places that are named, and pass nowhere else.

use crate::world::{HTTP1, HTTP2, Setup, World, echo, full, handler, local, status, text, usable};
use broker_protocol::gateway::{
    Attach, CredentialSpec, CredentialUse, CredentialVerdict, LoginEndpoint, LoginSpec,
};
use http_body_util::BodyExt;
use hyper::header::HeaderValue;
use hyper::{Request, Response, body::Incoming};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::rc::Rc;

const MARKER: &str = "lzlogin-0123456789abcde-";
const KEY: &str = "0123456789abcdef0123456789abcdef";
const ACCESS: &str = "real-access-token-of-the-login";
const REFRESH: &str = "real-refresh-token-of-the-login";

fn login() -> CredentialSpec {
    let endpoint = |path: &str| LoginEndpoint {
        host: "a.example:443".into(),
        path: path.into(),
    };
    CredentialSpec {
        name: "login".into(),
        placeholder: MARKER.into(),
        hosts: vec!["a.example:443".into()],
        attach: Attach::Login(LoginSpec {
            endpoints: vec![endpoint("/oauth/token"), endpoint("/oauth/revoke")],
            access_prefix: "sk-".into(),
            refresh_prefix: "rt-".into(),
            claims: vec![],
            members: vec![],
        }),
        uses: vec![
            usable(&[], "/api/**"),
            CredentialUse {
                refused: true,
                ..usable(&[], "/api/keys")
            },
            CredentialUse {
                refused: true,
                ..usable(&[], "/oauth/**")
            },
        ],
    }
}

/// Bodies that the token endpoint was sent.
type Bodies = Rc<RefCell<Vec<String>>>;
type Answer = dyn Fn() -> Response<crate::world::Body>;

/// An authority that answers each request with `answer`, and an interface that returns the header that it was sent.
fn authority(answer: impl Fn() -> Response<crate::world::Body> + 'static) -> (Setup, Bodies) {
    let bodies = Bodies::default();
    let answer = Rc::new(answer);
    let seen = bodies.clone();
    let handler = handler(move |request: Request<Incoming>| {
        let (seen, answer) = (seen.clone(), answer.clone());
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            if !path.starts_with("/oauth/") {
                return text("served");
            }
            seen.borrow_mut()
                .push(String::from_utf8(body.to_vec()).unwrap());
            answer()
        }
    });
    let setup = Setup {
        credentials: vec![login()],
        values: vec![Ok(KEY.into())],
        handler,
        ..Setup::default()
    };
    (setup, bodies)
}

fn tokens() -> Response<crate::world::Body> {
    let body = json!({"access_token": ACCESS, "refresh_token": REFRESH, "expires_in": 60});
    text(body.to_string())
}

async fn post(world: &World, path: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    world
        .http1(&format!(
            "POST {path} HTTP/1.1\r\nHost: a.example\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        ))
        .await
}

const FORM: &str = "application/x-www-form-urlencoded";
const CODE: &str = "grant_type=authorization_code&code=c";

async fn logged_in(world: &World) -> Value {
    let answer = post(world, "/oauth/token", FORM, CODE).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(!answer.contains("real-"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

#[test]
fn tokens_are_sealed_and_come_back_where_they_belong() {
    local(async {
        for protocols in [vec![HTTP1], vec![HTTP2]] {
            let (setup, bodies) = authority(tokens);
            let world = World::new(Setup { protocols, ..setup }).await;
            let got = logged_in(&world).await;
            let access = got["access_token"].as_str().unwrap();
            let refresh = got["refresh_token"].as_str().unwrap();
            assert!(access.starts_with(&format!("sk-{MARKER}")), "{access}");
            assert!(refresh.starts_with(&format!("rt-{MARKER}")), "{refresh}");
            assert_eq!(got["expires_in"], 60);
            let used = world
                .get("/api/x", &format!("Authorization: Bearer {access}\r\n"))
                .await;
            assert!(used.contains("served"), "{used}");
            let sent = world.last().header("authorization").unwrap();
            assert_eq!(sent, format!("Bearer {ACCESS}"));
            // At no other path, in no other scheme, and not for the other purpose.
            for (path, value) in [
                ("/other", format!("Bearer {access}")),
                ("/api/x", format!("Basic {access}")),
                ("/api/x", access.to_owned()),
            ] {
                world
                    .get(path, &format!("Authorization: {value}\r\n"))
                    .await;
                assert_eq!(world.last().header("authorization").unwrap(), value);
            }
            let wrong = world
                .get("/api/x", &format!("Authorization: Bearer {refresh}\r\n"))
                .await;
            assert!(
                wrong.starts_with("HTTP/1.1 401") && wrong.contains("lazaret:"),
                "{wrong}"
            );
            let body = json!({"grant_type": "refresh_token", "refresh_token": refresh}).to_string();
            let rotated = post(&world, "/oauth/token", "application/json", &body).await;
            assert!(
                rotated.starts_with("HTTP/1.1 200") && !rotated.contains("real-"),
                "{rotated}"
            );
            let sent: Value = serde_json::from_str(bodies.borrow().last().unwrap()).unwrap();
            assert_eq!(sent["refresh_token"], REFRESH);
            assert_eq!(world.count(CredentialVerdict::Captured), 2);
            // The key is asked for once.
            assert_eq!(world.wanted(), 1);
        }
    });
}

/// The control for the others: without the login, the host's own words arrive.
#[test]
fn without_the_login_a_program_gets_the_tokens() {
    local(async {
        let (setup, _) = authority(tokens);
        let credentials = vec![CredentialSpec {
            attach: Attach::Bearer,
            uses: vec![usable(&[], "/api/**")],
            ..login()
        }];
        let world = World::new(Setup {
            credentials,
            ..setup
        })
        .await;
        let answer = post(&world, "/oauth/token", FORM, CODE).await;
        assert!(
            answer.contains(ACCESS) && answer.contains(REFRESH),
            "{answer}"
        );
    });
}

#[test]
fn an_answer_that_may_show_a_token_does_not_pass() {
    local(async {
        let with = |name: &'static str, value: &'static str| {
            let mut answer = tokens();
            let value = HeaderValue::from_static(value);
            answer.headers_mut().insert(name, value);
            answer
        };
        let long = || {
            text(format!(
                "{{\"access_token\":\"{ACCESS}\",\"x\":\"{}\"}}",
                "x".repeat(70_000)
            ))
        };
        let cases: Vec<(&str, Box<Answer>)> = vec![
            ("502", Box::new(|| text(format!("access_token={ACCESS}")))),
            (
                "502",
                Box::new(|| {
                    text(format!(
                        "{{\"access_token\":\"a\",\"access_token\":\"{ACCESS}\"}}"
                    ))
                }),
            ),
            ("502", Box::new(|| text(format!("[\"{ACCESS}\"]")))),
            ("502", Box::new(long)),
            ("502", Box::new(move || with("content-encoding", "gzip"))),
            (
                "502",
                Box::new(|| text(json!({"access_token": ACCESS, "scope": ACCESS}).to_string())),
            ),
            (
                "502",
                Box::new(|| {
                    text(json!({"access_token": ACCESS, "scope": format!("x%72eal-access-token-of-the-login")}).to_string())
                }),
            ),
            (
                "502",
                Box::new(|| {
                    let mut answer = status(302);
                    *answer.body_mut() = full(ACCESS);
                    answer
                }),
            ),
            (
                "503",
                Box::new(|| {
                    let mut answer = status(503);
                    *answer.body_mut() = full(format!("<p>{ACCESS}"));
                    answer
                }),
            ),
        ];
        for (number, (want, answer)) in cases.into_iter().enumerate() {
            let (setup, _) = authority(answer);
            let world = World::new(setup).await;
            let answer = post(&world, "/oauth/token", FORM, CODE).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {want}")),
                "{number}: {answer}"
            );
            assert!(
                answer.contains("server_error") && answer.contains("lazaret:"),
                "{answer}"
            );
            assert!(!answer.contains(ACCESS), "{number}: {answer}");
            assert_eq!(world.count(CredentialVerdict::Refused), 1, "{number}");
        }
    });
}

#[test]
fn an_answer_that_is_refused_says_what_is_wrong_with_it() {
    local(async {
        for (scope, want) in [
            (ACCESS, "in a member of it that programs see"),
            ("a\", \"scope\": \"b", "a name stands twice"),
        ] {
            let body = format!("{{\"access_token\": \"{ACCESS}\", \"scope\": \"{scope}\"}}");
            let (setup, _) = authority(move || text(body.clone()));
            let world = World::new(setup).await;
            let answer = post(&world, "/oauth/token", FORM, CODE).await;
            assert!(answer.contains(want), "{answer}");
            assert!(!answer.contains(ACCESS), "{answer}");
        }
    });
}

#[test]
fn headers_and_members_that_nobody_knows_do_not_pass() {
    local(async {
        let (setup, _) = authority(|| {
            let body = json!({"access_token": ACCESS, "session": "s3cret", "token_type": "bearer"});
            let mut answer = text(body.to_string());
            for name in ["set-cookie", "x-token", "x-request-id"] {
                let value = HeaderValue::from_static("header-of-the-host");
                answer.headers_mut().insert(name, value);
            }
            answer
        });
        let world = World::new(setup).await;
        let answer = post(&world, "/oauth/token", FORM, CODE).await;
        assert_eq!(answer.matches("header-of-the-host").count(), 1, "{answer}");
        assert!(
            answer.contains("x-request-id") && answer.contains("bearer"),
            "{answer}"
        );
        assert!(!answer.contains("s3cret"), "{answer}");
    });
}

#[test]
fn an_answer_byte_by_byte_is_captured_and_one_that_ends_early_is_not_passed() {
    local(async {
        for whole in [true, false] {
            let handler = handler(move |_| async move {
                let (sender, body) = crate::world::channel();
                tokio::task::spawn_local(async move {
                    let text = json!({"access_token": ACCESS}).to_string();
                    let end = text.len() - usize::from(!whole);
                    for byte in text.as_bytes()[..end].chunks(1) {
                        sender.data(byte.to_vec()).await;
                    }
                });
                Response::new(body)
            });
            let (setup, _) = authority(tokens);
            let world = World::new(Setup { handler, ..setup }).await;
            let answer = post(&world, "/oauth/token", FORM, CODE).await;
            assert_eq!(answer.starts_with("HTTP/1.1 200"), whole, "{answer}");
            assert_eq!(answer.contains(MARKER), whole, "{answer}");
            assert!(!answer.contains("real-"), "{answer}");
        }
    });
}

#[test]
fn a_request_that_may_be_taken_for_a_login_is_refused() {
    local(async {
        let (setup, bodies) = authority(tokens);
        let world = World::new(setup).await;
        for path in [
            "/oauth//token",
            "/oauth/./token",
            "/oauth/x/../token",
            "/oauth/%74oken",
            "/OAUTH/token",
            "/oauth/token/",
            "/oauth/token;x",
            "/oauth%2Ftoken",
        ] {
            let answer = post(&world, path, FORM, CODE).await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{path}: {answer}");
        }
        for method in ["GET", "PUT", "OPTIONS", "TRACE", "options"] {
            let other = format!(
                "{method} /oauth/token HTTP/1.1\r\nHost: a.example\r\nContent-Type: {FORM}\r\nContent-Length: 3\r\n\
                 Connection: close\r\n\r\na=b"
            );
            let answer = world.http1(&other).await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{method}: {answer}");
        }
        let over = format!(
            "POST /oauth/token HTTP/1.1\r\nHost: a.example\r\nX-HTTP-Method-Override: GET\r\nContent-Type: {FORM}\r\n\
             Content-Length: 3\r\nConnection: close\r\n\r\na=b"
        );
        let answer = world.http1(&over).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(bodies.borrow().is_empty());
    });
}

#[test]
fn requests_that_make_another_credential_or_cannot_be_read_are_not_sent() {
    local(async {
        let (setup, bodies) = authority(tokens);
        let world = World::new(setup).await;
        let exchange = "grant_type=urn:ietf:params:oauth:grant-type:token-exchange&requested_token=openai-api-key";
        for (kind, body, error) in [
            (FORM, exchange, "unsupported_grant_type"),
            (FORM, "a=1&a=2", "invalid_request"),
            ("application/json", "{\"a\":1,\"a\":2}", "invalid_request"),
            ("text/plain", "x", "invalid_request"),
        ] {
            let answer = post(&world, "/oauth/token", kind, body).await;
            assert!(
                answer.starts_with("HTTP/1.1 400") && answer.contains(error),
                "{answer}"
            );
        }
        let long = post(
            &world,
            "/oauth/token",
            FORM,
            &format!("a={}", "x".repeat(65_536)),
        )
        .await;
        assert!(long.contains("invalid_request"), "{long}");
        let keys = world.get("/api/keys", "").await;
        assert!(keys.starts_with("HTTP/1.1 403"), "{keys}");
        let other = post(&world, "/oauth/other", FORM, CODE).await;
        assert!(other.starts_with("HTTP/1.1 403"), "{other}");
        assert!(bodies.borrow().is_empty());
    });
}

#[test]
fn a_successor_opens_the_tokens_and_another_key_does_not() {
    local(async {
        let (setup, _) = authority(tokens);
        let world = World::new(setup).await;
        let got = logged_in(&world).await;
        let access = format!(
            "Authorization: Bearer {}\r\n",
            got["access_token"].as_str().unwrap()
        );
        let refresh = got["refresh_token"].as_str().unwrap();
        let body = json!({"refresh_token": refresh}).to_string();
        let (setup, bodies) = authority(tokens);
        let successor = World::new(setup).await;
        assert!(successor.get("/api/x", &access).await.contains("served"));
        let answer = post(&successor, "/oauth/token", "application/json", &body).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(bodies.borrow()[0].contains(REFRESH));
        let (setup, bodies) = authority(tokens);
        let values = vec![Ok("fedcba9876543210fedcba9876543210".into())];
        let other = World::new(Setup { values, ..setup }).await;
        let answer = other.get("/api/x", &access).await;
        assert!(
            answer.starts_with("HTTP/1.1 401") && answer.contains("log in again"),
            "{answer}"
        );
        let answer = post(&other, "/oauth/token", "application/json", &body).await;
        assert!(
            answer.starts_with("HTTP/1.1 400") && answer.contains("invalid_grant"),
            "{answer}"
        );
        assert!(bodies.borrow().is_empty() && other.seen.borrow().is_empty());
    });
}

#[test]
fn nothing_is_sent_without_a_key() {
    local(async {
        for value in [Err("gone".to_owned()), Ok("short".repeat(6))] {
            let (setup, bodies) = authority(tokens);
            let world = World::new(Setup {
                values: vec![value],
                ..setup
            })
            .await;
            let answer = post(&world, "/oauth/token", FORM, CODE).await;
            assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
            assert!(bodies.borrow().is_empty());
        }
    });
}

#[test]
fn a_host_of_logins_is_not_spoken_to_without_tls() {
    local(async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (setup, bodies) = authority(tokens);
        let world = World::new(setup).await;
        let mut stream = world.tunnel("a.example:443").await;
        let request = b"POST /oauth/token HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty() && bodies.borrow().is_empty());
        assert_eq!(world.errors.borrow().len(), 1);
    });
}

#[test]
fn an_echo_of_a_token_is_cut() {
    local(async {
        let (setup, _) = authority(tokens);
        let world = World::new(setup).await;
        let got = logged_in(&world).await;
        let access = got["access_token"].as_str().unwrap().to_owned();
        let handler = handler(|request: Request<Incoming>| async move {
            text(request.headers()["authorization"].as_bytes().to_vec())
        });
        let (setup, _) = authority(tokens);
        let world = World::new(Setup { handler, ..setup }).await;
        let answer = world
            .get("/api/x", &format!("Authorization: Bearer {access}\r\n"))
            .await;
        assert!(!answer.contains(ACCESS), "{answer}");
        assert_eq!(world.count(CredentialVerdict::Echoed), 1);
        // The text that stands for it may be echoed: the control.
        let (setup, _) = authority(tokens);
        let world = World::new(Setup {
            handler: echo(),
            ..setup
        })
        .await;
        let answer = post(&world, "/api/x", FORM, &access).await;
        assert!(answer.contains(&access), "{answer}");
    });
}

#[test]
fn two_refreshes_at_once_are_each_answered() {
    local(async {
        let (setup, bodies) = authority(tokens);
        let world = World::new(setup).await;
        let got = logged_in(&world).await;
        let body = json!({"refresh_token": got["refresh_token"]}).to_string();
        let both = [0, 1].map(|_| post(&world, "/oauth/token", "application/json", &body));
        let [one, two] = both;
        let (one, two) = tokio::join!(one, two);
        assert!(one.contains(MARKER) && two.contains(MARKER), "{one} {two}");
        assert_eq!(bodies.borrow().len(), 3);
    });
}

#[test]
fn a_refused_token_is_the_programs_to_renew() {
    local(async {
        let (setup, _) = authority(tokens);
        let world = World::new(setup).await;
        let got = logged_in(&world).await;
        let access = got["access_token"].as_str().unwrap().to_owned();
        let (setup, _) = authority(tokens);
        let handler = handler(|_| async { status(401) });
        let world = World::new(Setup { handler, ..setup }).await;
        let answer = world
            .get("/api/x", &format!("Authorization: Bearer {access}\r\n"))
            .await;
        assert!(
            answer.starts_with("HTTP/1.1 401") && !answer.contains("lazaret"),
            "{answer}"
        );
        assert_eq!((world.wanted(), world.seen.borrow().len()), (1, 1));
    });
}
