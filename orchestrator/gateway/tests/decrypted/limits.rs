//! Limits of connections that are decrypted.

use crate::asks::{asking, question};
use crate::world::*;
use broker_protocol::ConnectionVerdict;
use broker_protocol::gateway::{FromGateway, RequestAnswer};
use http_body_util::BodyExt;
use hyper::Request;
use orchestrator_gateway::decrypted::{CarryError, Times};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const GOAWAY: u8 = 7;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Sends frames after the preface and reads until the end. The code of `GOAWAY`, if there was one.
async fn flood(world: &World, frames: impl Iterator<Item = Vec<u8>>) -> Option<u32> {
    let stream = world.tls(&[HTTP2]).await;
    let (mut read, mut write) = tokio::io::split(stream);
    write.write_all(PREFACE).await.unwrap();
    write.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    let reading = tokio::task::spawn_local(async move {
        let mut bytes = Vec::new();
        let _ = read.read_to_end(&mut bytes).await;
        bytes
    });
    for frame in frames {
        if write.write_all(&frame).await.is_err() {
            break;
        }
    }
    let _ = write.flush().await;
    let bytes = reading.await.unwrap();
    let mut rest = &bytes[..];
    while rest.len() >= 9 {
        let length = usize::from(rest[0]) << 16 | usize::from(rest[1]) << 8 | usize::from(rest[2]);
        if rest[3] == GOAWAY {
            let code = rest[13..17].try_into().unwrap();
            return Some(u32::from_be_bytes(code));
        }
        rest = rest.get(9 + length..)?;
    }
    None
}

/// `:method GET`, `:scheme https`, `:path /`, `:authority a.example`, in HPACK.
fn head() -> Vec<u8> {
    [&[0x82, 0x87, 0x84, 0x41, 9], &b"a.example"[..]].concat()
}

#[test]
fn streams_that_are_reset_at_once_end_the_connection() {
    local(async {
        let world = World::new(Setup::default()).await;
        let resets = (0..5000u32).map(|n| {
            let stream = 2 * n + 1;
            [
                frame(1, 5, stream, &head()),
                frame(3, 0, stream, &8u32.to_be_bytes()),
            ]
            .concat()
        });
        assert_eq!(flood(&world, resets).await, Some(11), "ENHANCE_YOUR_CALM");
        assert!(world.seen.borrow().len() < 200);
    });
}

#[test]
fn endless_head_ends_the_connection() {
    local(async {
        let world = World::new(Setup::default()).await;
        let first = frame(1, 1, 1, &head());
        // A header that is not indexed, again and again: the head has no end.
        let more = [&[0x00, 1, b'x', 100], &[b'y'; 100][..]].concat();
        let more = (0..5000).map(move |_| frame(9, 0, 1, &more.repeat(100)));
        let code = flood(&world, std::iter::once(first).chain(more)).await;
        assert!(code.is_some());
        assert!(world.seen.borrow().is_empty());
    });
}

/// The most memory that this process has had, in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line
        .and_then(|line| line.split_whitespace().nth(1))
        .unwrap();
    kib.parse::<u64>().unwrap() / 1024
}

/// One header of 4,000 bytes in the table of HPACK, and references to it of one byte each.
#[test]
fn a_head_that_grows_when_it_is_decoded_is_refused_and_takes_no_memory() {
    local(async {
        let world = World::new(Setup::default()).await;
        let entry = |length: usize| {
            // A length of 7 bits, and the rest of it in two bytes.
            let rest = length - 127;
            let low = u8::try_from(rest % 128).unwrap() | 0x80;
            let high = u8::try_from(rest / 128).unwrap();
            [&[0x40, 1, b'x', 127, low, high], &vec![b'y'; length][..]].concat()
        };
        let bomb = |references: usize| {
            let first = [head(), entry(4000)].concat();
            let more = vec![0xbe; references];
            let last = more.chunks(16_000).count();
            let rest = more.chunks(16_000).enumerate();
            let rest: Vec<_> = rest
                .map(|(at, part)| frame(9, u8::from(at + 1 == last) << 2, 1, part))
                .collect();
            std::iter::once(frame(1, 1, 1, &first)).chain(rest)
        };
        let end = || std::iter::once(frame(7, 0, 0, &[0; 8]));
        flood(&world, bomb(1).chain(end())).await;
        until(|| world.seen.borrow().len() == 1).await;
        let before = peak();
        // Decoded, 4 GB.
        for references in [100, 10_000, 1_000_000] {
            flood(&world, bomb(references).chain(end())).await;
        }
        assert_eq!(world.seen.borrow().len(), 1, "the control");
        let grown = peak() - before;
        assert!(grown < 512, "{grown} MiB");
    });
}

/// A program that reads no answer to its settings: the gateway stops to read.
#[test]
fn settings_whose_answers_nobody_reads_stop_their_program() {
    local(async {
        let world = World::new(Setup::default()).await;
        let mut stream = world.tls(&[HTTP2]).await;
        stream.write_all(PREFACE).await.unwrap();
        let settings = frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]).repeat(4096);
        let mut taken = 0;
        let write = Duration::from_secs(2);
        while let Ok(Ok(())) = tokio::time::timeout(write, stream.write_all(&settings)).await {
            taken += settings.len();
            assert!(taken < 64 << 20, "it goes on");
        }
        assert!(world.seen.borrow().is_empty());
    });
}

#[test]
fn settings_without_end_take_no_memory_and_the_connection_goes_on_or_ends() {
    local(async {
        let world = World::new(Setup::default()).await;
        let settings = (0..20_000).map(|_| frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]));
        let end = std::iter::once(frame(7, 0, 0, &[0; 8]));
        flood(&world, settings.chain(end)).await;
        assert!(world.seen.borrow().is_empty());
    });
}

#[test]
fn more_streams_than_the_limit_wait_or_are_refused() {
    local(async {
        let world = World::new(Setup {
            handler: handler(|_| async { std::future::pending().await }),
            ..Setup::default()
        })
        .await;
        let mut http2 = world.http2().await;
        let requests: Vec<_> = (0..200)
            .map(|_| {
                let request = Request::get("https://a.example/x");
                tokio::task::spawn_local(http2.send_request(request.body(full("")).unwrap()))
            })
            .collect();
        until(|| world.seen.borrow().len() >= 100).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(world.seen.borrow().len(), 100);
        drop(requests);
    });
}

#[test]
fn a_head_has_at_most_64_kib() {
    local(async {
        // A host of HTTP/2 may say itself that it takes less.
        let world = World::new(Setup {
            protocols: vec![HTTP1],
            ..Setup::default()
        })
        .await;
        let long = |length| format!("X-Long: {}\r\n", "x".repeat(length));
        let answer = world.get("/x", &long(60_000)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let answer = world.get("/x", &long(70_000)).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
        let many = "X: y\r\n".repeat(101);
        let answer = world.get("/x", &many).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
        assert_eq!(world.seen.borrow().len(), 1);
    });
}

fn short() -> Setup {
    Setup {
        times: Times {
            begin: Duration::from_millis(200),
            idle: Duration::from_millis(500),
            look: Duration::from_millis(10),
            ..Times::default()
        },
        ..Setup::default()
    }
}

async fn wait(world: &World) {
    until(|| world.carried.get() > 0).await;
}

#[test]
fn a_connection_that_begins_with_nothing_ends() {
    local(async {
        let world = World::new(short()).await;
        let _stream = world.tunnel("a.example:443").await;
        wait(&world).await;
        assert!(matches!(world.errors.borrow()[..], [CarryError::Gone]));
    });
}

#[test]
fn half_a_hello_ends() {
    local(async {
        let world = World::new(short()).await;
        let mut stream = world.tunnel("a.example:443").await;
        stream.write_all(&[0x16, 3, 1, 1, 0, 1]).await.unwrap();
        wait(&world).await;
        assert!(matches!(world.errors.borrow()[..], [CarryError::Hello(_)]));
    });
}

#[test]
fn half_a_head_ends_before_the_connection_is_idle() {
    local(async {
        let mut setup = short();
        setup.times.idle = Duration::from_secs(3600);
        let world = World::new(setup).await;
        let mut stream = world.tls(&[HTTP1]).await;
        let whole = "GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n";
        stream
            .write_all(format!("{whole}GET /2").as_bytes())
            .await
            .unwrap();
        wait(&world).await;
        assert_eq!(world.seen.borrow().len(), 1);
    });
}

#[test]
fn a_quiet_connection_ends_where_others_need_its_place_and_one_with_bytes_does_not() {
    local(async {
        // Longer as a whole than a connection may be idle, which on a busy machine is no pause of ours.
        let mut setup = short();
        setup.times.begin = Duration::from_secs(60);
        setup.times.idle = Duration::from_secs(3);
        let world = World::new(setup).await;
        world.is_crowded.set(true);
        let _quiet = world.tls(&[HTTP1]).await;
        let mut stream = world.tls(&[HTTP1]).await;
        let before = tokio::time::Instant::now();
        while world.carried.get() == 0 || before.elapsed() < Duration::from_millis(3500) {
            let head = b"GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n";
            stream.write_all(head).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(matches!(world.errors.borrow()[..], [CarryError::Idle]));
        until(|| world.carried.get() == 2).await;
        let errors = world.errors.borrow();
        assert!(matches!(errors[..], [CarryError::Idle, CarryError::Idle]));
    });
}

#[test]
fn a_quiet_stream_lasts_while_there_is_room() {
    local(async {
        for protocol in [HTTP1, HTTP2] {
            let (send, body) = channel();
            let body = Cell::new(Some(body));
            let mut setup = short();
            setup.times.begin = Duration::from_secs(60);
            setup.times.idle = Duration::from_millis(200);
            setup.protocols = vec![protocol];
            setup.handler = handler(move |_| {
                let body = body.take().unwrap();
                async move { hyper::Response::new(body) }
            });
            let world = World::new(setup).await;
            let mut http2 = world.http2().await;
            let request = Request::get("https://a.example/events").body(full(""));
            let answer = http2.send_request(request.unwrap()).await.unwrap();
            let mut events = answer.into_body();
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(
                world.carried.get(),
                0,
                "ten times as long as it may be idle"
            );
            send.data("late ").await;
            let event = events.frame().await.unwrap().unwrap();
            assert_eq!(event.into_data().unwrap(), "late ");
            // The control.
            world.is_crowded.set(true);
            wait(&world).await;
            assert!(matches!(world.errors.borrow()[..], [CarryError::Idle]));
        }
    });
}

#[test]
fn a_request_that_is_held_is_not_quiet() {
    local(async {
        let mut setup = asking(&["/**"]);
        setup.times.idle = Duration::from_millis(100);
        setup.times.look = Duration::from_millis(10);
        let world = World::new(setup).await;
        let head = "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n\r\nx";
        let mut stream = world.tls(&[HTTP1]).await;
        stream.write_all(head.as_bytes()).await.unwrap();
        let asked = question(&world, 0).await;
        let _quiet = world.tls(&[HTTP1]).await;
        world.is_crowded.set(true);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(world.carried.get(), 1, "the control");
        assert!(matches!(world.errors.borrow()[..], [CarryError::Idle]));
        world.ended.answer(asked.question, RequestAnswer::Granted);
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
    });
}

#[test]
fn a_body_that_breaks_off_is_not_called_the_hosts_fault() {
    local(async {
        let head = "POST /x HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n";
        let whole = "3\r\nabc\r\n0\r\n\r\n";
        let closed = head.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        for protocols in [vec![HTTP1], vec![HTTP2]] {
            let world = World::new(Setup {
                protocols,
                ..Setup::default()
            })
            .await;
            let answer = world.http1(&format!("{closed}{whole}")).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "the control: {answer}");
            let broken = format!("{head}3\r\nabc\r\nno length\r\n");
            let answer = world.http1(&broken).await;
            assert!(
                answer.starts_with("HTTP/1.1 400") && answer.contains("body broke off"),
                "{answer}"
            );
        }
    });
}

#[test]
fn a_host_that_ends_the_handshake_is_named() {
    local(async {
        let world = World::new(Setup {
            protocols: vec![b"other"],
            ..Setup::default()
        })
        .await;
        let answer = world.get("/api/x", &bearer()).await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(
            answer.contains("no TLS connection to a.example:443"),
            "{answer}"
        );
        until(|| !world.errors.borrow().is_empty()).await;
        let errors = world.errors.borrow();
        assert!(
            matches!(errors[..], [CarryError::Host { .. }]),
            "{errors:?}"
        );
    });
}

#[test]
fn a_host_that_resets_the_hello_is_named() {
    local(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = Some(listener.local_addr().unwrap());
        tokio::task::spawn_local(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 64]).await;
                stream.set_zero_linger().unwrap();
            }
        });
        let world = World::new(Setup {
            host,
            ..Setup::default()
        })
        .await;
        let answer = world.get("/api/x", &bearer()).await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        let named = "a.example:443 ended the TLS handshake with the gateway";
        assert!(answer.contains(named), "{answer}");
        until(|| !world.errors.borrow().is_empty()).await;
        let told = world.told.borrow();
        let is_told = |frame: &FromGateway| {
            matches!(frame, FromGateway::Connected(report)
                if report.verdict == ConnectionVerdict::TlsRefused && report.host == "a.example")
        };
        assert!(told.iter().any(is_told), "{told:?}");
    });
}

/// Only who the machine's roots vouch for; the program is told which host and why.
#[test]
fn a_host_that_is_not_who_it_should_be_gets_nothing_and_is_named() {
    local(async {
        let world = World::new(Setup {
            is_trusted: false,
            ..Setup::default()
        })
        .await;
        for alpn in [HTTP1, HTTP2] {
            if alpn == HTTP1 {
                let answer = world.get("/api/x", &bearer()).await;
                assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
                assert!(
                    answer.contains("a.example:443") && answer.contains("certificate"),
                    "{answer}"
                );
            } else {
                let mut http2 = world.http2().await;
                let request = Request::get("https://a.example/x").body(full("")).unwrap();
                assert_eq!(http2.send_request(request).await.unwrap().status(), 502);
            }
        }
        assert!(world.seen.borrow().is_empty());
    });
}

#[test]
fn a_connection_that_is_dropped_ends_with_all_that_it_began() {
    struct Dropped(Rc<Cell<bool>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    local(async {
        let dropped = Rc::new(Cell::new(false));
        let flag = dropped.clone();
        let world = World::new(Setup {
            handler: handler(move |_| {
                let dropped = Dropped(flag.clone());
                async move {
                    let _dropped = dropped;
                    std::future::pending().await
                }
            }),
            ..Setup::default()
        })
        .await;
        let mut http2 = world.http2().await;
        let request = Request::get("https://a.example/x").body(full(""));
        let answer = tokio::task::spawn_local(http2.send_request(request.unwrap()));
        until(|| !world.seen.borrow().is_empty()).await;
        assert!(!dropped.get());
        world.withdraw();
        assert!(answer.await.unwrap().is_err());
        until(|| dropped.get()).await;
    });
}
