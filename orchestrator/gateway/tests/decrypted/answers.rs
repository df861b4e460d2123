//! Answers that hold the value.

use crate::world::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker_protocol::gateway::CredentialVerdict::{Echoed, Refused};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::{Request, Response};
use std::rc::Rc;
use tokio::sync::Notify;

/// A host that answers with `before` bytes and then with the encoded value, in parts.
fn echo(before: usize, encode: fn(&str) -> String, part: usize) -> Setup {
    Setup {
        handler: handler(move |_| async move {
            let text = ["x".repeat(before), encode(VALUE), "y".repeat(1000)].concat();
            let (send, body) = channel();
            tokio::task::spawn_local(async move {
                for part in text.as_bytes().chunks(part) {
                    send.data(Bytes::copy_from_slice(part)).await;
                }
            });
            Response::new(body)
        }),
        ..Setup::default()
    }
}

/// An answer without the lines around its chunks.
fn joined(answer: &str) -> String {
    let (head, mut rest) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let mut all = head.to_owned();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        all += &after[..length.min(after.len())];
        rest = after.get(length + 2..).unwrap_or("");
    }
    all
}

fn verbatim(value: &str) -> String {
    value.into()
}

fn basic(value: &str) -> String {
    STANDARD.encode(format!("x-access-token:{value}"))
}

fn hex(value: &str) -> String {
    value.bytes().map(|byte| format!("{byte:02X}")).collect()
}

fn percent(value: &str) -> String {
    value.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// 1 KB, 6 MB, 64 MB, across a border.
#[test]
fn an_answer_with_the_value_is_cut_before_it_however_long_it_is() {
    local(async {
        for (before, part) in [
            (1000, 1003),
            (6 << 20, 65_536),
            (64 << 20, 1 << 20),
            (0, 1),
            (5, 7),
        ] {
            let world = World::new(echo(before, verbatim, part)).await;
            let answer = joined(&world.get("/api/x", &bearer()).await);
            assert!(
                !answer.contains(VALUE) && !answer.contains("yyy"),
                "{before}"
            );
            // Nothing of the value has passed either.
            assert!(!answer.contains(&VALUE[..8]), "{before}");
            assert_eq!(world.count(Echoed), 1, "{before}");
        }
    });
}

#[test]
fn encoded_values_are_found_too() {
    local(async {
        for encode in [basic, hex, percent] {
            let world = World::new(echo(100, encode, 10)).await;
            let answer = joined(&world.get("/api/x", &bearer()).await);
            assert!(!answer.contains("yyy"), "{answer}");
            assert_eq!(world.count(Echoed), 1);
        }
        // The control: what is no value passes whole.
        let world = World::new(echo(100, |value| value[1..].into(), 10)).await;
        let answer = joined(&world.get("/api/x", &bearer()).await);
        assert!(answer.contains(&VALUE[1..]) && answer.contains("yyy"));
        assert_eq!(world.count(Echoed), 0);
    });
}

/// A host drops what stands around a header's value.
#[test]
fn value_is_sent_and_found_without_the_spaces_around_it() {
    local(async {
        for around in [("", " \n"), ("\t ", ""), (" ", "\t \r\n")] {
            let world = World::new(Setup {
                values: vec![Ok([around.0, VALUE, around.1].concat())],
                ..echo(100, verbatim, 10)
            })
            .await;
            let answer = joined(&world.get("/api/x", &bearer()).await);
            assert!(!answer.contains("yyy"), "{around:?}: {answer}");
            assert_eq!(world.count(Echoed), 1);
            let seen = &world.seen.borrow()[0].headers["authorization"];
            assert_eq!(seen, format!("Bearer {VALUE}").as_str(), "{around:?}");
        }
    });
}

#[test]
fn a_stream_of_http2_with_the_value_is_reset() {
    local(async {
        let world = World::new(echo(100, verbatim, 9)).await;
        let mut http2 = world.http2().await;
        let request = Request::get("https://a.example/api/x")
            .header("authorization", format!("Bearer {PLACEHOLDER}"));
        let answer = http2.send_request(request.body(full("")).unwrap()).await;
        // The reset may come before the head.
        let is_whole = match answer {
            Ok(answer) => answer.into_body().collect().await.is_ok(),
            Err(_) => false,
        };
        assert!(!is_whole);
        assert_eq!(world.count(Echoed), 1);
    });
}

#[test]
fn a_later_request_without_the_credential_does_not_get_the_value_either() {
    local(async {
        let world = World::new(echo(100, verbatim, 9)).await;
        world.get("/api/x", &bearer()).await;
        let answer = joined(&world.get("/elsewhere", "").await);
        assert!(!answer.contains("yyy"), "{answer}");
        assert_eq!(world.count(Echoed), 2);
    });
}

#[test]
fn headers_and_trailers_get_the_placeholder() {
    local(async {
        let world = World::new(Setup {
            handler: handler(|_| async {
                let (send, body) = channel();
                let mut response = Response::new(body);
                let location = format!("https://c.example/?t={VALUE}");
                let headers = response.headers_mut();
                headers.insert("location", location.parse().unwrap());
                headers.insert("x-echo", basic(VALUE).parse().unwrap());
                let mut trailers = hyper::HeaderMap::new();
                trailers.insert("x-end", VALUE.parse().unwrap());
                tokio::task::spawn_local(async move {
                    send.data("data").await;
                    send.trailers(trailers).await;
                });
                response
            }),
            ..Setup::default()
        })
        .await;
        let mut http2 = world.http2().await;
        let request = Request::get("https://a.example/api/x")
            .header("authorization", format!("Bearer {PLACEHOLDER}"));
        let answer = http2.send_request(request.body(full("")).unwrap()).await;
        let answer = answer.unwrap();
        let wanted = format!("https://c.example/?t={PLACEHOLDER}");
        assert_eq!(answer.headers()["location"], wanted);
        assert_eq!(answer.headers()["x-echo"], PLACEHOLDER);
        let body = answer.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["x-end"], PLACEHOLDER);
        assert_eq!(body.to_bytes(), "data");
    });
}

/// Answers with this header, to a request with the credential and to one without it.
async fn answers_with(name: &'static str, value: &'static str) -> [String; 2] {
    let world = World::new(Setup {
        handler: handler(move |_| async move {
            let mut response = text("compressed");
            let headers = response.headers_mut();
            headers.insert(name, value.parse().unwrap());
            response
        }),
        ..Setup::default()
    })
    .await;
    let with = world.get("/api/x", &bearer()).await;
    let is_refused = with.starts_with("HTTP/1.1 502");
    assert_eq!(world.count(Refused), u32::from(is_refused), "{with}");
    [with, world.get("/elsewhere", "").await]
}

#[test]
fn a_request_with_the_value_begins_no_session_of_cookies() {
    local(async {
        let [with, without] = answers_with("set-cookie", "session=1").await;
        assert!(with.ends_with("compressed") && !with.contains("session=1"));
        assert!(without.contains("session=1"), "the control: {without}");
    });
}

#[test]
fn an_answer_that_is_encoded_unasked_is_not_passed_on() {
    local(async {
        for (name, value) in [
            ("content-encoding", "gzip"),
            ("grpc-encoding", "gzip"),
            ("connect-content-encoding", "br"),
            ("im", "gzip"),
            ("content-type", "text/plain; charset=utf-16"),
            ("content-type", "text/plain;Charset=\"UTF-7\""),
            ("content-type", "application/json; x=y; charset=IBM037"),
        ] {
            let [with, without] = answers_with(name, value).await;
            assert!(with.starts_with("HTTP/1.1 502"), "{value}: {with}");
            assert!(!with.contains("compressed"), "{value}: {with}");
            assert!(without.ends_with("compressed"), "{value}: {without}");
        }
        // The control: what is plain text passes.
        for (name, value) in [
            ("content-encoding", "Identity"),
            ("grpc-encoding", "identity"),
            ("content-type", "text/plain; charset=UTF-8"),
            ("content-type", "text/plain; charset=\"iso-8859-1\""),
            ("content-type", "text/html; charset="),
            ("content-type", "text/html"),
        ] {
            let [with, _] = answers_with(name, value).await;
            assert!(with.ends_with("compressed"), "{value}: {with}");
        }
    });
}

/// By whichever header a host takes the form of its answer from.
#[test]
fn a_request_asks_for_plain_text_alone() {
    local(async {
        let world = World::new(Setup::default()).await;
        let names = [
            "grpc-accept-encoding",
            "connect-accept-encoding",
            "a-im",
            "accept-charset",
            "accept_encoding",
            "grpc-encoding",
            "connect-content-encoding",
        ];
        let headers: String = names.map(|name| format!("{name}: gzip\r\n")).concat();
        for credential in [bearer(), String::new()] {
            world.get("/api/x", &format!("{headers}{credential}")).await;
            let seen = world.last();
            let sent = names.map(|name| seen.header(name));
            assert!(sent.iter().all(Option::is_none), "{sent:?}");
            assert_eq!(seen.header("accept-encoding").unwrap(), "identity");
        }
        // The control, and what a server reads a compressed body by.
        let kind = "Content-Type: application/grpc+proto\r\n";
        world
            .get("/api/x", &format!("{headers}{kind}X-Other: gzip\r\n"))
            .await;
        let seen = world.last();
        assert_eq!(seen.header("x-other").unwrap(), "gzip");
        assert_eq!(seen.header("grpc-encoding").unwrap(), "gzip");
        assert!(seen.header("connect-content-encoding").is_none());
    });
}

/// The bytes of an event arrive when they are sent, and not when the answer ends.
#[test]
fn an_answer_streams() {
    local(async {
        let world = World::new(Setup {
            handler: handler(|_| async {
                let (send, body) = channel();
                tokio::task::spawn_local(async move {
                    send.data("data: 1\n\n").await;
                    std::future::pending::<()>().await;
                });
                Response::new(body)
            }),
            ..Setup::default()
        })
        .await;
        let mut http2 = world.http2().await;
        let request = Request::get("https://a.example/api/x")
            .header("authorization", format!("Bearer {PLACEHOLDER}"));
        let answer = http2.send_request(request.body(full("")).unwrap()).await;
        let frame = answer.unwrap().into_body().frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "data: 1\n\n");
    });
}

/// A host that sends the first of `parts` for each request, and the others when somebody says so.
fn in_steps(parts: [&'static str; 2], goes_on: Rc<Notify>) -> Setup {
    Setup {
        handler: handler(move |_| {
            let goes_on = goes_on.clone();
            async move {
                let (send, body) = channel();
                tokio::task::spawn_local(async move {
                    send.data(parts[0]).await;
                    goes_on.notified().await;
                    send.data(parts[1]).await;
                });
                Response::new(body)
            }
        }),
        ..Setup::default()
    }
}

/// Whoever waits gets a word that no line ends after a moment. The value is found all the same.
#[test]
fn a_word_is_passed_on_after_a_moment_and_the_value_still_found() {
    local(async {
        let goes_on = Rc::new(Notify::new());
        let (begin, end) = VALUE.split_at(VALUE.len() / 2);
        let world = World::new(in_steps([begin, end], goes_on.clone())).await;
        let mut http2 = world.http2().await;
        let request = Request::get("https://a.example/api/x")
            .header("authorization", format!("Bearer {PLACEHOLDER}"));
        let answer = http2.send_request(request.body(full("")).unwrap()).await;
        let mut body = answer.unwrap().into_body();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), begin);
        goes_on.notify_one();
        assert!(body.frame().await.unwrap().is_err());
        assert_eq!(world.count(Echoed), 1);
    });
}

/// The lengths of the parts in which a program gets an answer of two steps.
async fn lengths(parts: [&'static str; 2]) -> Vec<usize> {
    let goes_on = Rc::new(Notify::new());
    let world = World::new(in_steps(parts, goes_on.clone())).await;
    goes_on.notify_one();
    world.get("/api/y", &bearer()).await;
    // The gateway has the value now.
    goes_on.notify_one();
    let mut http2 = world.http2().await;
    let request = Request::get("https://a.example/elsewhere").body(full(""));
    let answer = http2.send_request(request.unwrap()).await.unwrap();
    let mut body = answer.into_body();
    let mut lengths = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        lengths.extend(frame.into_data().map(|data| data.len()));
    }
    lengths
}

/// A program has a host send guesses, without a credential, and looks at the parts of its answers.
#[test]
fn parts_of_an_answer_do_not_say_whether_a_guess_is_the_beginning_of_the_value() {
    local(async {
        let right = VALUE[..VALUE.len() - 2].to_owned();
        let wrong = right.replace(|c: char| c.is_ascii_digit(), "~");
        assert_ne!(right, wrong);
        let [right, wrong] = [right, wrong]
            .map(|guess| -> &'static str { String::leak(format!("some text {guess}")) });
        assert_eq!(
            lengths([right, " end\n"]).await,
            lengths([wrong, " end\n"]).await
        );
    });
}
