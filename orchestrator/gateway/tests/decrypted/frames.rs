//! Requests of HTTP/2 that no library sends, frame by frame: what a host of HTTP/1.1 behind us would read as another request, or a host of
//! HTTP/2 as one for somebody else, reaches neither.

use crate::limits::{PREFACE, frame};
use crate::world::*;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

type Headers = Vec<(&'static str, &'static str)>;

/// A head in HPACK: each header as a literal that is not indexed.
fn hpack(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in headers {
        out.push(0);
        for part in [name, value] {
            // A length of 127 and more goes on in a second byte.
            match u8::try_from(part.len()).unwrap() {
                short @ 0..127 => out.push(short),
                long => out.extend([127, long - 127]),
            }
            out.extend(part.as_bytes());
        }
    }
    out
}

/// The well-formed head that the others differ from.
fn plain() -> Headers {
    vec![
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", "a.example"),
        (":path", "/x"),
    ]
}

fn with(name: &'static str, value: &'static str) -> Headers {
    let mut headers = plain();
    match headers.iter_mut().find(|header| header.0 == name) {
        Some(header) => header.1 = value,
        None => headers.push((name, value)),
    }
    headers
}

fn and(name: &'static str, value: &'static str) -> Headers {
    let mut headers = plain();
    headers.push((name, value));
    headers
}

fn without(name: &str) -> Headers {
    let mut headers = plain();
    headers.retain(|header| header.0 != name);
    headers
}

/// Heads of requests that are no single request for the host of the connection.
fn hostile() -> Vec<Headers> {
    let mut late = plain();
    late.insert(0, ("x-first", "1"));
    let mut all = vec![late];
    all.extend([":method", ":scheme", ":authority", ":path"].map(without));
    for (name, value) in [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "b.example"),
        (":authority", "a.example"),
        (":path", "/y"),
        (":status", "200"),
        (":x", "1"),
        (":protocol", "websocket"),
        ("host", "b.example"),
        ("host", "a.example, b.example"),
        ("Host", "a.example"),
        ("X-Upper", "1"),
        ("x y", "1"),
        ("x:y", "1"),
        ("x\r\nhost", "b.example"),
        ("", "1"),
        ("x-line", "1\r\nHost: b.example"),
        ("x-line", "1\nHost: b.example"),
        (
            "x-line",
            "1\r\n\r\nGET /y HTTP/1.1\r\nHost: a.example\r\n\r\n",
        ),
        ("x-nul", "1\0"),
        ("connection", "close"),
        ("connection", "content-length"),
        ("keep-alive", "1"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("transfer-encoding", "identity"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
        ("content-length", "2"),
        ("content-length", "4"),
        ("content-length", "+3"),
        ("content-length", "3, 3"),
        ("content-length", "-1"),
        ("content-length", "99999999999999999999999"),
    ] {
        all.push(and(name, value));
    }
    for (name, value) in [
        (":method", ""),
        (":method", "GET x"),
        (":method", "GET /y HTTP/1.1\r\nHost: a.example\r\n\r\nPOST"),
        (":method", "CONNECT"),
        (":scheme", "http"),
        (":scheme", "ftp"),
        (":authority", ""),
        (":authority", "b.example"),
        (":authority", "u@a.example"),
        (":authority", "a.example:80"),
        (":authority", "a.example:443:443"),
        (":authority", "a.example/y"),
        (":authority", "a.example#"),
        (":authority", "a.example\r\nHost: b.example"),
        (":path", ""),
        (":path", "x"),
        (":path", "*"),
        (":path", "/x y"),
        (":path", "/x HTTP/1.1\r\nHost: b.example\r\n\r\nGET /y"),
        (":path", "/x\0"),
        (":path", "https://b.example/x"),
    ] {
        all.push(with(name, value));
    }
    all
}

/// What becomes of one request: its head, a body of three bytes, and what ends it.
async fn sent(world: &World, head: &[(&str, &str)], trailers: &[(&str, &str)]) -> Vec<u8> {
    let stream = world.tls(&[HTTP2]).await;
    let (mut read, mut write) = tokio::io::split(stream);
    let end = if trailers.is_empty() { END_STREAM } else { 0 };
    let mut bytes = [
        PREFACE.to_vec(),
        frame(4, 0, 0, &[]),
        frame(HEADERS, END_HEADERS, 1, &hpack(head)),
        frame(DATA, end, 1, b"abc"),
    ]
    .concat();
    if !trailers.is_empty() {
        let flags = END_HEADERS | END_STREAM;
        bytes.extend(frame(HEADERS, flags, 1, &hpack(trailers)));
    }
    // A ping, so that an answer tells that all before it was read; what is on its way to the host then may still be.
    bytes.extend(frame(6, 0, 0, b"behind.."));
    let _ = write.write_all(&bytes).await;
    let _ = write.flush().await;
    let (mut got, mut part) = (Vec::new(), [0; 4096]);
    // Until the stream has an answer or an end: a well-formed request has one soon.
    while !is_over(&got) {
        match timeout(Duration::from_secs(60), read.read(&mut part)).await {
            Ok(Ok(length @ 1..)) => got.extend(&part[..length]),
            Ok(Ok(0) | Err(_)) => break,
            Err(_) => panic!("{head:?} {trailers:?}: neither answered nor refused: {got:?}"),
        }
    }
    got
}

/// Whether the frames answer stream 1 to its end, reset it, or end the connection.
fn is_over(mut frames: &[u8]) -> bool {
    while let [a, b, c, kind, flags, s0, s1, s2, s3, rest @ ..] = frames {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let Some(rest) = rest.get(length..) else {
            return false;
        };
        let stream = u32::from_be_bytes([*s0, *s1, *s2, *s3]);
        let is_end = matches!(*kind, DATA | HEADERS) && flags & END_STREAM != 0;
        if *kind == 7 || stream == 1 && (*kind == 3 || is_end) {
            return true;
        }
        frames = rest;
    }
    false
}

#[test]
fn malformed_request_of_http2_reaches_no_host() {
    local(async {
        let mut refused = 0;
        for protocol in [HTTP1, HTTP2] {
            let world = World::new(Setup {
                protocols: vec![protocol],
                handler: handler(|request| async move {
                    use http_body_util::BodyExt;
                    match request.into_body().collect().await {
                        Ok(body) => text(body.to_bytes()),
                        Err(_) => status(400),
                    }
                }),
                ..Setup::default()
            })
            .await;
            for control in [
                plain(),
                and("content-length", "3"),
                and("te", "trailers"),
                and("host", "a.example"),
                with(":authority", "a.example:443"),
            ] {
                world.seen.borrow_mut().clear();
                sent(&world, &control, &[("x-end", "1")]).await;
                let seen = world.seen.borrow().clone();
                assert_eq!(seen.len(), 1, "the control: {control:?} {protocol:?}");
            }
            world.seen.borrow_mut().clear();
            for head in hostile() {
                sent(&world, &head, &[]).await;
                let seen = world.seen.borrow().clone();
                assert!(seen.is_empty(), "{head:?} {protocol:?}: {seen:#?}");
                refused += 1;
            }
        }
        println!("{refused} of {refused} heads refused");
    });
}

/// The request has begun to go to the host: its end must be none there, or hold nothing of these.
#[test]
fn hostile_trailers_of_http2_end_no_request() {
    local(async {
        for protocol in [HTTP1, HTTP2] {
            let world = World::new(Setup {
                protocols: vec![protocol],
                handler: handler(|request| async move {
                    use http_body_util::BodyExt;
                    let body = request.into_body().collect().await;
                    let Ok(body) = body else {
                        return status(400);
                    };
                    let names = body.trailers().into_iter().flat_map(|all| all.keys());
                    let names: Vec<_> = names.map(|name| name.as_str().to_owned()).collect();
                    text(format!("arrived {}", names.join(" ")))
                }),
                ..Setup::default()
            })
            .await;
            let control = sent(&world, &plain(), &[("x-end", "1")]).await;
            let said = |bytes: &[u8], words: &[u8]| memchr::memmem::find(bytes, words).is_some();
            assert!(said(&control, b"arrived"), "the control");
            for trailer in [
                (":path", "/y"),
                (":status", "200"),
                ("X-Upper", "1"),
                ("x\r\ny", "1"),
                (
                    "x-line",
                    "1\r\n\r\nGET /y HTTP/1.1\r\nHost: a.example\r\n\r\n",
                ),
                ("connection", "close"),
                ("transfer-encoding", "chunked"),
                ("content-length", "9"),
                ("host", "b.example"),
                ("authorization", "Basic x"),
            ] {
                world.seen.borrow_mut().clear();
                let got = sent(&world, &plain(), &[trailer]).await;
                let seen = world.seen.borrow().clone();
                assert!(seen.iter().all(|one| one.uri == "/x"), "{seen:#?}");
                assert!(seen.len() <= 1, "{seen:#?}");
                let name = trailer.0.as_bytes();
                let arrived = said(&got, b"arrived") && said(&got, name);
                assert!(!arrived, "{trailer:?} {protocol:?}");
            }
        }
    });
}
