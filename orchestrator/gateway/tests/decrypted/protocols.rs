//! HTTP/1.1 and HTTP/2 on either side, what streams in both directions, and WebSockets.

use crate::world::*;
use broker_protocol::gateway::CredentialVerdict::{Echoed, Used};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Frame};
use hyper::{HeaderMap, Request, Response, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn get(path: &str) -> Request<Body> {
    Request::get(format!("https://a.example{path}"))
        .header("authorization", format!("Bearer {PLACEHOLDER}"))
        .body(full(""))
        .unwrap()
}

#[test]
fn each_protocol_of_the_program_works_with_each_of_the_host() {
    local(async {
        for host in [vec![HTTP1], vec![HTTP2], vec![HTTP2, HTTP1], vec![]] {
            for program in [vec![HTTP1], vec![HTTP2], vec![HTTP2, HTTP1], vec![]] {
                let world = World::new(Setup {
                    protocols: host.clone(),
                    ..Setup::default()
                })
                .await;
                let mut stream = world.tls(&program).await;
                let chosen = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
                assert_eq!(chosen.is_none(), program.is_empty());
                if chosen.as_deref() == Some(HTTP2) {
                    let mut http2 = world.http2_over(stream).await;
                    assert_eq!(
                        http2.send_request(get("/api/x")).await.unwrap().status(),
                        200
                    );
                } else {
                    let text = format!(
                        "GET /api/x HTTP/1.1\r\nHost: a.example\r\n{}Connection: close\r\n\r\n",
                        bearer()
                    );
                    stream.write_all(text.as_bytes()).await.unwrap();
                    let mut answer = Vec::new();
                    let _ = stream.read_to_end(&mut answer).await;
                    assert!(answer.starts_with(b"HTTP/1.1 200"));
                }
                assert_eq!(world.count(Used), 1, "{host:?} {program:?}");
            }
        }
    });
}

#[test]
fn a_program_gets_the_protocol_that_the_host_speaks() {
    local(async {
        for (host, want) in [(HTTP1, HTTP1), (HTTP2, HTTP2)] {
            let world = World::new(Setup {
                protocols: vec![host],
                ..Setup::default()
            })
            .await;
            let stream = world.tls(&[HTTP2, HTTP1]).await;
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(want));
        }
    });
}

/// Requests with a value, which by HTTP/1.1 have a connection each.
#[test]
fn a_host_of_a_credential_is_spoken_to_by_http2_if_it_has_that() {
    local(async {
        for (protocols, connections) in [(vec![HTTP2, HTTP1], 1), (vec![HTTP1], 3)] {
            let world = World::new(Setup {
                protocols,
                ..Setup::default()
            })
            .await;
            let one = |end: &str| {
                let bearer = bearer();
                format!("GET /api/x HTTP/1.1\r\nHost: a.example\r\n{bearer}{end}\r\n")
            };
            let three = [one(""), one(""), one("Connection: close\r\n")].concat();
            let answer = world.http1(&three).await;
            assert_eq!(answer.matches("HTTP/1.1 200").count(), 3, "{answer}");
            assert_eq!(world.last().connection, connections);
            assert_eq!(world.count(Used), 3);
        }
    });
}

/// HTTP/2 without a word of it in the hello.
#[test]
fn http2_with_prior_knowledge_is_http2() {
    local(async {
        let world = World::new(Setup::default()).await;
        for alpn in [vec![], vec![HTTP1]] {
            let stream = world.tls(&alpn).await;
            let mut http2 = world.http2_over(stream).await;
            assert_eq!(
                http2.send_request(get("/api/x")).await.unwrap().status(),
                200
            );
        }
        assert_eq!(world.seen.borrow()[0].version, Version::HTTP_2);
    });
}

#[test]
fn requests_of_one_http2_connection_run_at_a_time_on_a_host_of_http1() {
    local(async {
        let world = World::new(Setup {
            protocols: vec![HTTP1],
            handler: handler(|request| async move {
                if request.uri().path() == "/api/slow" {
                    std::future::pending::<()>().await;
                }
                text("ok")
            }),
            ..Setup::default()
        })
        .await;
        let mut http2 = world.http2().await;
        let slow = http2.send_request(get("/api/slow"));
        for _ in 0..3 {
            let answer = http2.send_request(get("/api/x")).await.unwrap();
            assert_eq!(answer.status(), 200);
        }
        drop(slow);
    });
}

#[test]
fn cookies_of_http2_are_one_header_on_a_host_of_http1() {
    local(async {
        let world = World::new(Setup {
            protocols: vec![HTTP1],
            ..Setup::default()
        })
        .await;
        let mut http2 = world.http2().await;
        let request = Request::get("https://a.example/x")
            .header("cookie", "a=1")
            .header("cookie", "b=2");
        let answer = http2.send_request(request.body(full("")).unwrap()).await;
        assert_eq!(answer.unwrap().status(), 200);
        assert_eq!(world.last().header("cookie").unwrap(), "a=1; b=2");
    });
}

/// Of unknown length, as programs with HTTP/2 send them.
#[test]
fn the_body_of_a_read_reaches_a_host_of_either_protocol() {
    local(async {
        for protocols in [vec![HTTP1], vec![HTTP2]] {
            let world = World::new(Setup {
                protocols,
                handler: echo(),
                ..Setup::default()
            })
            .await;
            let mut http2 = world.http2().await;
            let (send, body) = channel();
            send.data("a query").await;
            drop(send);
            let request = Request::get("https://a.example/api/x").body(body);
            let answer = http2.send_request(request.unwrap()).await.unwrap();
            let answer = answer.into_body().collect().await.unwrap();
            assert_eq!(answer.to_bytes(), "a query");
            let chunked = "GET /api/x HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\
                 Connection: close\r\n\r\n7\r\na query\r\n0\r\n\r\n";
            let answer = world.http1(chunked).await;
            assert!(answer.contains("a query"), "{answer}");
            // The control: without a body none is announced.
            world.get("/api/x", "").await;
            assert!(world.last().header("transfer-encoding").is_none());
        }
    });
}

#[test]
fn both_directions_of_a_stream_flow_and_trailers_arrive() {
    local(async {
        let world = World::new(Setup {
            handler: handler(|request| async move {
                assert_eq!(request.headers()["te"], "trailers");
                let (send, body) = channel();
                tokio::task::spawn_local(async move {
                    let mut from = request.into_body();
                    let mut end = HeaderMap::new();
                    while let Some(Ok(frame)) = from.frame().await {
                        match frame.into_data() {
                            Ok(data) => send.data(data).await,
                            Err(frame) => end = frame.into_trailers().unwrap(),
                        }
                    }
                    send.trailers(end).await;
                });
                Response::new(body)
            }),
            ..Setup::default()
        })
        .await;
        let mut http2 = world.http2().await;
        let (send, body) = channel();
        let mut request = Request::new(body);
        *request.uri_mut() = "https://a.example/api/x".parse().unwrap();
        request
            .headers_mut()
            .insert("te", "trailers".parse().unwrap());
        let mut answer = http2.send_request(request).await.unwrap().into_body();
        for text in ["one", "two"] {
            send.data(text).await;
            let frame: Frame<Bytes> = answer.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), text);
        }
        let mut end = HeaderMap::new();
        end.insert("grpc-status", "0".parse().unwrap());
        send.trailers(end).await;
        let frame = loop {
            let frame = answer.frame().await.unwrap().unwrap();
            if frame.is_trailers() {
                break frame;
            }
        };
        assert_eq!(frame.into_trailers().unwrap()["grpc-status"], "0");
    });
}

#[test]
fn a_large_upload_streams_and_arrives_whole() {
    local(async {
        const SIZE: usize = 64 << 20;
        let world = World::new(Setup {
            handler: handler(|request| async move {
                let (mut sum, mut length, mut body) = (0u64, 0, request.into_body());
                while let Some(Ok(frame)) = body.frame().await {
                    for byte in frame.into_data().unwrap() {
                        sum = sum.wrapping_mul(31).wrapping_add(byte.into());
                        length += 1;
                    }
                }
                text(format!("{length} {sum}"))
            }),
            protocols: vec![HTTP1],
            ..Setup::default()
        })
        .await;
        let bytes: Vec<u8> = (0..SIZE)
            .map(|n| u8::try_from(n * 7 % 251).unwrap())
            .collect();
        let sum = bytes.iter().fold(0u64, |sum, &byte| {
            sum.wrapping_mul(31).wrapping_add(byte.into())
        });
        let mut stream = world.tls(&[HTTP1]).await;
        let head = format!(
            "PUT /api/x HTTP/1.1\r\nHost: a.example\r\n{}Content-Length: {SIZE}\r\nConnection: close\r\n\r\n",
            bearer()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        // Reading does not write what TLS still holds.
        stream.flush().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.ends_with(&format!("{SIZE} {sum}")), "{answer}");
    });
}

/// A host that becomes a WebSocket and sends back what it gets, after `first`.
pub(crate) fn websocket(first: &'static str) -> Setup {
    Setup {
        protocols: vec![HTTP1],
        handler: handler(move |mut request| async move {
            if request.headers().get("upgrade").is_none() {
                return text("no upgrade");
            }
            assert!(request.headers().get("sec-websocket-extensions").is_none());
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::task::spawn_local(async move {
                let mut stream = TokioIo::new(upgrade.await.unwrap());
                stream.write_all(first.as_bytes()).await.unwrap();
                let mut bytes = [0; 100];
                while let Ok(length) = stream.read(&mut bytes).await {
                    if length == 0 || stream.write_all(&bytes[..length]).await.is_err() {
                        break;
                    }
                }
            });
            let mut response = status(101);
            *response.body_mut() = full("");
            let extensions = request.uri().path().ends_with("/deflate");
            let headers = response.headers_mut();
            if extensions {
                headers.insert(
                    "sec-websocket-extensions",
                    "permessage-deflate".parse().unwrap(),
                );
            }
            headers.insert("connection", "upgrade".parse().unwrap());
            headers.insert("upgrade", "websocket".parse().unwrap());
            if !request.uri().path().ends_with("/unaccepted") {
                headers.insert("sec-websocket-accept", ACCEPT.parse().unwrap());
            }
            response
        }),
        ..Setup::default()
    }
}

/// A key and what answers it (RFC 6455, section 1.3).
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

pub(crate) fn upgrade(path: &str, protocol: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: a.example\r\n{}Connection: Upgrade\r\nUpgrade: {protocol}\r\n\
         Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
        bearer()
    )
}

pub(crate) async fn read_head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).await.is_ok_and(|n| n > 0) {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// By HTTP/1.1, whatever the host speaks beside it.
#[test]
fn frames_of_a_websocket_pass_as_they_are() {
    local(async {
        for protocols in [vec![HTTP1], vec![HTTP2, HTTP1]] {
            frames_pass(protocols).await;
        }
    });
}

async fn frames_pass(protocols: Vec<&'static [u8]>) {
    let world = World::new(Setup {
        protocols,
        ..websocket("hello")
    })
    .await;
    let mut stream = world.tls(&[HTTP1]).await;
    stream
        .write_all(upgrade("/api/ws", "websocket").as_bytes())
        .await
        .unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert_eq!(
        world.last().header("authorization").unwrap(),
        format!("Bearer {VALUE}")
    );
    let text = format!("GET / HTTP/1.1\r\n\r\n{PLACEHOLDER}");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut got = vec![0; "hello".len() + text.len()];
    stream.read_exact(&mut got).await.unwrap();
    assert_eq!(String::from_utf8(got).unwrap(), format!("hello{text}"));
    drop(stream);
    until(|| world.carried.get() != 0).await;
}

#[test]
fn a_websocket_that_is_none_is_refused() {
    local(async {
        let world = World::new(websocket("hello")).await;
        let asked = |path| upgrade(path, "websocket");
        let key = format!("Sec-WebSocket-Key: {KEY}\r\n");
        for (request, want) in [
            (asked("/api/ws"), "HTTP/1.1 101"),
            (asked("/api/deflate"), "HTTP/1.1 502"),
            (asked("/api/unaccepted"), "HTTP/1.1 502"),
            (asked("/api/ws").replace("GET", "POST"), "HTTP/1.1 400"),
            (asked("/api/ws").replace(&key, ""), "HTTP/1.1 400"),
            (
                asked("/api/ws").replace(&key, &key.repeat(2)),
                "HTTP/1.1 400",
            ),
            (asked("/api/ws").replace(KEY, "c2hvcnQ="), "HTTP/1.1 400"),
        ] {
            let mut stream = world.tls(&[HTTP1]).await;
            stream.write_all(request.as_bytes()).await.unwrap();
            let head = read_head(&mut stream).await;
            assert!(head.starts_with(want), "{head}");
        }
    });
}

#[test]
fn a_websocket_that_sends_the_value_is_cut() {
    local(async {
        let world = World::new(websocket("hello gho_the/real+Value.0123456789 end")).await;
        let mut stream = world.tls(&[HTTP1]).await;
        stream
            .write_all(upgrade("/api/ws", "websocket").as_bytes())
            .await
            .unwrap();
        read_head(&mut stream).await;
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got).await;
        assert!(!String::from_utf8_lossy(&got).contains("real"), "{got:?}");
        assert_eq!(world.count(Echoed), 1);
    });
}

#[test]
fn only_a_use_becomes_a_websocket_and_nothing_becomes_something_else() {
    local(async {
        let world = World::new(websocket("hello")).await;
        for (path, protocol, want) in [
            ("/elsewhere", "websocket", "HTTP/1.1 403"),
            ("/api/x", "h2c", "HTTP/1.1 200"),
            ("/api/x", "tls/1.3", "HTTP/1.1 200"),
        ] {
            let mut stream = world.tls(&[HTTP1]).await;
            stream
                .write_all(upgrade(path, protocol).as_bytes())
                .await
                .unwrap();
            let head = read_head(&mut stream).await;
            assert!(head.starts_with(want), "{head}");
        }
        // Unasked.
        let world = World::new(Setup {
            protocols: vec![HTTP1],
            handler: handler(|_| async {
                let mut response = status(101);
                let headers = response.headers_mut();
                headers.insert("connection", "upgrade".parse().unwrap());
                headers.insert("upgrade", "websocket".parse().unwrap());
                response
            }),
            ..Setup::default()
        })
        .await;
        let answer = world.get("/api/x", &bearer()).await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    });
}

#[test]
fn a_connection_of_a_program_has_its_own_to_the_host_and_they_end_together() {
    local(async {
        let world = World::new(Setup {
            handler: handler(|request| async move {
                let mut response = text("ok");
                if request.uri().path() == "/last" {
                    let close = "close".parse().unwrap();
                    response.headers_mut().insert("connection", close);
                }
                response
            }),
            protocols: vec![HTTP1],
            ..Setup::default()
        })
        .await;
        for connection in 1..3 {
            let kept = "GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\nGET /2 HTTP/1.1\r\nHost: a.example\r\n\r\n\
                        GET /last HTTP/1.1\r\nHost: a.example\r\n\r\n";
            // It ends although the program did not say so: the host did.
            let answer = world.http1(kept).await;
            assert_eq!(answer.matches("HTTP/1.1 200").count(), 3);
            assert!(
                world
                    .seen
                    .borrow()
                    .iter()
                    .rev()
                    .take(3)
                    .all(|seen| seen.connection == connection)
            );
        }
    });
}

/// Bytes that do not repeat for long.
fn noise(length: usize) -> impl Iterator<Item = Bytes> {
    const PART: usize = 1 << 20;
    (0..length.div_ceil(PART)).map(move |number| {
        let size = PART.min(length - number * PART);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ number as u64;
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        let bytes: Vec<u8> = words.take(size.div_ceil(8)).flatten().collect();
        Bytes::copy_from_slice(&bytes[..size])
    })
}

#[test]
fn a_large_upload_arrives_whole_by_each_protocol() {
    use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256 as SUITE;
    const LENGTH: usize = 64 << 20;
    let hash = || SUITE.tls13().unwrap().common.hash_provider.start();
    let mut whole = hash();
    noise(LENGTH).for_each(|part| whole.update(&part));
    let want = whole.finish().as_ref().to_vec();
    local(async {
        for protocol in [HTTP1, HTTP2] {
            let world = World::new(Setup {
                protocols: vec![protocol],
                handler: handler(move |request| async move {
                    let (mut body, mut hash) = (request.into_body(), hash());
                    while let Some(Ok(frame)) = body.frame().await {
                        frame
                            .data_ref()
                            .into_iter()
                            .for_each(|data| hash.update(data));
                    }
                    text(hash.finish().as_ref().to_vec())
                }),
                ..Setup::default()
            })
            .await;
            let (send, body) = channel();
            tokio::task::spawn_local(async move {
                for part in noise(LENGTH) {
                    send.data(part).await;
                }
            });
            let request = Request::post("https://a.example/api/x")
                .header("authorization", format!("Bearer {PLACEHOLDER}"));
            let request = request.body(body).unwrap();
            let stream = world.tls(&[protocol]).await;
            let answer = if protocol == HTTP2 {
                let mut http2 = world.http2_over(stream).await;
                http2.send_request(request).await.unwrap()
            } else {
                let client = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
                let (mut send, connection) = client.unwrap();
                tokio::task::spawn_local(connection);
                let (mut head, body) = request.into_parts();
                head.uri = "/api/x".parse().unwrap();
                let host = "a.example".parse().unwrap();
                head.headers.insert("host", host);
                send.send_request(Request::from_parts(head, body))
                    .await
                    .unwrap()
            };
            let got = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(got, want);
            assert_eq!(world.count(Used), 1);
        }
    });
}
