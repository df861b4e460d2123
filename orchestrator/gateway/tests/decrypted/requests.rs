//! Which requests get a credential.

use crate::world::*;
use broker_protocol::gateway::CredentialVerdict::{Attached, Passed, Refused, Used};
use hyper::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[test]
fn a_placeholder_becomes_the_value_on_both_protocols() {
    local(async {
        let world = World::new(Setup::default()).await;
        let answer = world.get("/api/x?y=1", &bearer()).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        let mut http2 = world.http2().await;
        let request = Request::get("https://a.example/api/x?y=1")
            .header("authorization", format!("Bearer {PLACEHOLDER}"));
        let answer = http2.send_request(request.body(full("")).unwrap()).await;
        assert_eq!(answer.unwrap().status(), 200);
        for seen in world.seen.borrow().iter() {
            assert_eq!(
                seen.header("authorization").unwrap(),
                format!("Bearer {VALUE}")
            );
            assert_eq!(seen.uri, "/api/x?y=1");
            assert_eq!(seen.header("accept-encoding").unwrap(), "identity");
        }
        assert_eq!(world.seen.borrow().len(), 2);
        assert_eq!((world.count(Used), world.wanted()), (2, 1));
    });
}

/// Git sends its first request without.
#[test]
fn a_request_without_authorization_gets_it_unasked_only_where_a_use_says_so() {
    local(async {
        let world = World::new(Setup::default()).await;
        world.get("/o/r.git/info/refs", "").await;
        let got = world.last().header("authorization").unwrap();
        assert!(got.starts_with("Basic "), "{got}");
        // A download of a public release with any authorization is refused by its host.
        world.get("/o/r/releases/download/v1/x", "").await;
        assert_eq!(world.last().header("authorization"), None);
        let head = |path: &str| {
            format!("HEAD {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
        };
        world.http1(&head("/o/r/releases/download/v1/x")).await;
        assert_eq!(world.last().header("authorization"), None);
        assert_eq!((world.count(Attached), world.count(Used)), (1, 0));
        world.http1(&head("/o/r.git/info/refs")).await;
        assert!(
            world.last().header("authorization").is_some(),
            "the control"
        );
    });
}

#[test]
fn a_placeholder_in_body_query_or_path_passes_as_text() {
    local(async {
        let world = World::new(Setup {
            handler: echo(),
            ..Setup::default()
        })
        .await;
        let length = PLACEHOLDER.len();
        let answer = world
            .http1(&format!(
                "POST /api/{PLACEHOLDER}?q={PLACEHOLDER} HTTP/1.1\r\nHost: a.example\r\nX-Note: {PLACEHOLDER}\r\n\
                 Content-Length: {length}\r\nConnection: close\r\n\r\n{PLACEHOLDER}"
            ))
            .await;
        assert!(answer.ends_with(PLACEHOLDER), "{answer}");
        let seen = world.last();
        assert_eq!(seen.uri, format!("/api/{PLACEHOLDER}?q={PLACEHOLDER}"));
        assert_eq!(seen.header("x-note").unwrap(), PLACEHOLDER);
        assert_eq!((world.count(Passed), world.wanted()), (1, 1));
    });
}

#[test]
fn outside_of_its_uses_a_placeholder_passes_as_text() {
    local(async {
        let world = World::new(Setup::default()).await;
        world.get("/elsewhere", &bearer()).await;
        assert_eq!(
            world.last().header("authorization").unwrap(),
            format!("Bearer {PLACEHOLDER}")
        );
        assert_eq!((world.count(Passed), world.wanted()), (1, 1));
    });
}

#[test]
fn trace_options_and_last_hops_get_none() {
    local(async {
        let world = World::new(Setup::default()).await;
        for (method, more) in [
            ("TRACE", ""),
            ("OPTIONS", ""),
            ("GET", "Max-Forwards: 0\r\n"),
        ] {
            for bearer in ["".to_owned(), bearer()] {
                let text = format!(
                    "{method} /o/r.git/info/refs HTTP/1.1\r\nHost: a.example\r\n{more}{bearer}Connection: close\r\n\r\n"
                );
                world.http1(&text).await;
                let got = world.last().header("authorization");
                assert_ne!(got.clone().unwrap_or_default(), format!("Bearer {VALUE}"));
                assert_eq!(got.is_some(), !bearer.is_empty(), "{method}");
            }
        }
        assert_eq!((world.seen.borrow().len(), world.wanted()), (6, 1));
    });
}

#[test]
fn the_placeholder_of_one_credential_gets_nothing_at_anothers_host() {
    local(async {
        let world = World::new(Setup::default()).await;
        for header in [
            format!("Authorization: Bearer {OTHER}\r\n"),
            format!("X-Api-Key: {OTHER}\r\n"),
        ] {
            let answer = world.get("/api/x", &header).await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
            assert!(answer.contains("lazaret: the placeholder of credential `other`"));
        }
        assert!(world.seen.borrow().is_empty());
        assert_eq!((world.count(Refused), world.wanted()), (2, 0));
    });
}

#[test]
fn a_request_that_makes_new_credentials_is_refused_and_says_why() {
    local(async {
        let world = World::new(Setup::default()).await;
        for path in ["/user/keys", "/api/../user/keys", "/User/%6beys/"] {
            let answer = world
                .http1(&format!(
                    "POST {path} HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                ))
                .await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
            assert!(answer.contains("[credential.github]"), "{answer}");
        }
        assert!(world.seen.borrow().is_empty());
        assert_eq!(world.count(Refused), 3);
        world.get("/user/keys", "").await;
        assert_eq!(world.seen.borrow().len(), 1, "the control");
    });
}

#[test]
fn a_hosts_own_refusal_is_passed_on_as_it_is() {
    local(async {
        let world = World::new(Setup {
            handler: handler(|_| async { status(403) }),
            ..Setup::default()
        })
        .await;
        let answer = world.get("/api/x", &bearer()).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(answer.ends_with("no") && !answer.contains("lazaret"));
    });
}

/// An agent that has listed its variables sends them to its model with every request from then on.
#[test]
fn requests_of_a_program_that_has_shown_its_placeholder_go_on() {
    local(async {
        let world = World::new(Setup {
            handler: echo(),
            ..Setup::default()
        })
        .await;
        let transcript = format!("GITHUB_TOKEN={PLACEHOLDER} OTHER={OTHER} ");
        for turn in 1..=20 {
            let (body, bearer) = (transcript.repeat(turn), bearer());
            let length = body.len();
            let answer = world
                .http1(&format!(
                    "POST /api/x HTTP/1.1\r\nHost: a.example\r\n{bearer}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                ))
                .await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{turn}: {answer}");
            assert!(answer.ends_with(&body), "{turn}: {answer}");
            let sent = world.last().header("authorization").unwrap();
            assert_eq!(sent, format!("Bearer {VALUE}"), "{turn}");
        }
    });
}

/// A signed address of a store elsewhere: nobody follows it here, and it leaves as it came.
#[test]
fn a_redirect_to_another_host_passes_and_takes_no_credential_along() {
    local(async {
        const SIGNED: &str = "https://b.example/blob?X-Amz-Signature=0123&sig=a%2Fb%3D";
        let world = World::new(Setup {
            handler: handler(|request| async move {
                match request.uri().path() {
                    "/api/blob" => {
                        let mut response = status(307);
                        let headers = response.headers_mut();
                        headers.insert("location", SIGNED.parse().unwrap());
                        response
                    }
                    _ => text("blob"),
                }
            }),
            ..Setup::default()
        })
        .await;
        let answer = world.get("/api/blob", &bearer()).await;
        assert!(answer.starts_with("HTTP/1.1 307"), "{answer}");
        assert!(answer.contains(SIGNED), "{answer}");
        assert_eq!(world.seen.borrow().len(), 1, "it is not followed");
        // The program follows it, as curl does: without what it sent before.
        let mut stream = world
            .try_tls("b.example:443", "b.example", &[HTTP1])
            .await
            .unwrap();
        let path = SIGNED.strip_prefix("https://b.example").unwrap();
        let text = format!("GET {path} HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.ends_with(b"blob"));
        let seen = world.last();
        assert_eq!(seen.uri, path);
        assert_eq!(
            (seen.header("authorization"), seen.header("x-api-key")),
            (None, None)
        );
    });
}

/// A host that does not read a body takes the next request for its end or for the end of a request in it, and the answer of one that sends
/// more than it said is taken for the next one's.
#[test]
fn a_request_with_a_body_or_a_value_has_a_connection_to_its_host_alone() {
    local(async {
        let world = World::new(Setup {
            protocols: vec![HTTP1],
            ..Setup::default()
        })
        .await;
        let connections = || -> Vec<usize> {
            let mut seen = world.seen.borrow_mut();
            seen.drain(..).map(|one| one.connection).collect()
        };
        let one = |more: &str| format!("GET /api/x HTTP/1.1\r\nHost: a.example\r\n{more}\r\n");
        let (plain, last) = (one(""), one("Connection: close\r\n"));
        let answers = world.http1(&format!("{plain}{plain}{last}")).await;
        assert_eq!(answers.matches("200 OK").count(), 3, "{answers}");
        assert_eq!(connections(), [1, 1, 1], "the control");
        for alone in [
            &*bearer(),
            "Content-Length: 1\r\n\r\nx",
            "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n",
            "Transfer-Encoding: chunked\r\n\r\n0\r\n",
        ] {
            let alone = one(alone);
            let text = format!("{alone}{plain}{alone}{plain}{last}");
            let answers = world.http1(&text).await;
            assert_eq!(answers.matches("200 OK").count(), 5, "{answers}");
            let of = connections();
            // The first one is the connection that the program's began with.
            assert!(of[1] == of[3] && of[3] == of[4], "{alone}: {of:?}");
            assert!(
                of[0] != of[1] && of[2] != of[1] && of[0] != of[2],
                "{alone}: {of:?}"
            );
        }
        // Of one connection of HTTP/2 of the program's, too.
        let mut http2 = world.http2().await;
        for body in ["", "", "x", "", "x"] {
            let request = Request::get("https://a.example/api/x").body(full(body));
            let answer = http2.send_request(request.unwrap()).await.unwrap();
            assert_eq!(answer.status(), 200);
            let read = http_body_util::BodyExt::collect(answer.into_body());
            read.await.unwrap();
        }
        let of = connections();
        assert!(of[0] == of[1] && of[1] == of[3], "{of:?}");
        assert!(of[2] != of[1] && of[4] != of[1] && of[2] != of[4], "{of:?}");
    });
}

/// The host may not switch, and the connection would go on.
#[test]
fn a_request_for_a_websocket_has_no_body() {
    local(async {
        let world = World::new(Setup {
            protocols: vec![HTTP1],
            ..Setup::default()
        })
        .await;
        let ask = |body: &str| {
            format!(
                "GET /api/x HTTP/1.1\r\nHost: a.example\r\n{}Connection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{body}",
                bearer()
            )
        };
        for (body, want) in [("Content-Length: 1\r\n\r\nx", "400"), ("\r\n", "200")] {
            let mut stream = world.tls(&[HTTP1]).await;
            stream.write_all(ask(body).as_bytes()).await.unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, format!("HTTP/1.1 {want}").as_bytes());
            assert_eq!(world.seen.borrow().len(), usize::from(want == "200"));
        }
        // What is taken for the answer to it may not be that to another one.
        world.seen.borrow_mut().clear();
        let plain = "GET /elsewhere HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let mut stream = world.tls(&[HTTP1]).await;
        let text = format!("{plain}{plain}{}", ask("\r\n"));
        stream.write_all(text.as_bytes()).await.unwrap();
        until(|| world.seen.borrow().len() == 3).await;
        let seen = world.seen.borrow();
        let of: Vec<usize> = seen.iter().map(|one| one.connection).collect();
        assert!(of[0] == of[1] && of[2] != of[1], "{of:?}");
    });
}
