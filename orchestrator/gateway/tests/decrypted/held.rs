//! Requests that are held for an answer, and what a program does beside them meanwhile: in the body, on the same connection, with more of
//! the body than anybody reads.

use crate::asks::{asking, question};
use crate::world::*;
use broker_protocol::gateway::{FromGateway, RequestAnswer, RequestRule, RuleAction};
use hyper::Request;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{sleep, timeout};

/// Every `POST` is asked about and every `PUT`, and every `GET` is allowed: what gets through as a second request arrives.
fn setup(protocol: &'static [u8]) -> Setup {
    let mut setup = asking(&["/**"]);
    let ask = setup.rules[0][0].clone();
    setup.rules = vec![vec![
        ask.clone(),
        RequestRule {
            methods: vec!["PUT".into()],
            ..ask.clone()
        },
        RequestRule {
            methods: vec!["GET".into()],
            action: RuleAction::Allow,
            ..ask
        },
    ]];
    setup.protocols = vec![protocol];
    setup
}

fn questions(world: &World) -> usize {
    let told = world.told.borrow();
    let is_question = |frame: &&FromGateway| matches!(frame, FromGateway::Asked(_));
    told.iter().filter(is_question).count()
}

fn paths(world: &World) -> Vec<String> {
    let seen = world.seen.borrow();
    seen.iter().map(|one| one.uri.clone()).collect()
}

const SECOND: &str = "GET /second HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

/// A request with `SECOND` as its body, of a known length and in chunks.
fn with_a_request_inside() -> [(String, String); 2] {
    let head = |header: &str| format!("POST /a HTTP/1.1\r\nHost: a.example\r\n{header}\r\n\r\n");
    let length = SECOND.len();
    [
        (head(&format!("Content-Length: {length}")), SECOND.into()),
        (
            head("Transfer-Encoding: chunked"),
            format!("{length:x}\r\n{SECOND}\r\n0\r\n\r\n"),
        ),
    ]
}

async fn rest(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// A refusal comes before the body has. Whatever arrives of that afterwards is the body, and no request.
#[test]
fn the_body_behind_a_refusal_is_no_request() {
    local(async {
        for protocol in [HTTP1, HTTP2] {
            for is_late in [false, true] {
                for (head, body) in with_a_request_inside() {
                    let world = World::new(setup(protocol)).await;
                    assert!(world.http1(SECOND).await.starts_with("HTTP/1.1 200"));
                    assert_eq!(paths(&world).len(), 1, "the control");
                    let mut stream = world.tls(&[HTTP1]).await;
                    stream.write_all(head.as_bytes()).await.unwrap();
                    if !is_late {
                        stream.write_all(body.as_bytes()).await.unwrap();
                    }
                    let asked = question(&world, 0).await;
                    world.ended.answer(asked.question, RequestAnswer::Refused);
                    let mut status = [0; 12];
                    stream.read_exact(&mut status).await.unwrap();
                    assert_eq!(&status, b"HTTP/1.1 403");
                    if is_late {
                        // The gateway may have closed it already.
                        let _ = stream.write_all(body.as_bytes()).await;
                    }
                    let _ = stream.write_all(SECOND.as_bytes()).await;
                    let answers = rest(&mut stream).await;
                    // The one after the body may be served, the one in it not.
                    let served = answers.matches("HTTP/1.1 200").count();
                    assert!(served <= 1, "{answers}");
                    assert_eq!(paths(&world).len(), 1 + served, "{answers}");
                }
            }
        }
    });
}

/// Two ways to delimit the body of a request that would be asked about: there is no question.
#[test]
fn body_that_two_servers_delimit_differently_is_refused_unasked() {
    local(async {
        for headers in [
            "Content-Length: 4\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 4",
            "Content-Length: 4\r\nContent-Length: 5",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            "Transfer-Encoding: \x0bchunked",
            "Transfer-Encoding : chunked",
            "Content-Length: 4\r\n Transfer-Encoding: chunked",
        ] {
            let world = World::new(setup(HTTP1)).await;
            let body = "0\r\n\r\nGET /second HTTP/1.1\r\nHost: a.example\r\n\r\n";
            let path = "POST /o/r/git-receive-pack HTTP/1.1\r\nHost: a.example";
            let text = format!("{path}\r\n{headers}\r\n\r\n{body}");
            let answer = timeout(Duration::from_secs(60), world.http1(&text)).await;
            let answer = answer.expect("it is refused at once");
            assert!(answer.starts_with("HTTP/1.1 400"), "{headers}: {answer}");
            assert_eq!((questions(&world), paths(&world).len()), (0, 0));
        }
        let world = World::new(setup(HTTP1)).await;
        let text = "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
        let mut stream = world.tls(&[HTTP1]).await;
        stream.write_all(text.as_bytes()).await.unwrap();
        let asked = question(&world, 0).await;
        world.ended.answer(asked.question, RequestAnswer::Granted);
        assert!(
            rest(&mut stream).await.starts_with("HTTP/1.1 200"),
            "the control"
        );
    });
}

/// A host without TLS, which answers each head and has all bytes that it got.
async fn plain_host() -> (SocketAddr, Rc<RefCell<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, got) = (listener.local_addr().unwrap(), Rc::default());
    let all: Rc<RefCell<Vec<u8>>> = Rc::clone(&got);
    spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let all = all.clone();
            spawn_local(async move {
                let mut bytes = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                    all.borrow_mut().extend(&bytes[..length]);
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    let _ = stream.write_all(answer).await;
                }
            });
        }
    });
    (address, got)
}

/// The rules for a host without TLS are no weaker.
#[test]
fn plain_request_that_two_servers_delimit_differently_is_refused() {
    local(async {
        for headers in [
            "Content-Length: 4\r\nContent-Length: 5",
            "Content-Length: 4, 5",
            "Content-Length: 4\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 4",
            "Transfer-Encoding: chunked,",
            "Transfer-Encoding: ,chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            "X: a\r\n Transfer-Encoding: chunked",
            "X: a\r\n\tContent-Length: 4",
            "Content-Length: 4\r\n Transfer-Encoding: chunked",
        ] {
            let (host, got) = plain_host().await;
            let mut setup = setup(HTTP1);
            setup.rules[0].iter_mut().for_each(|rule| {
                rule.action = RuleAction::Allow;
            });
            setup.host = Some(host);
            let world = World::new(setup).await;
            let send = async |headers: &str, body: &str| {
                let mut stream = world.tunnel("a.example:80").await;
                let head = "POST /a HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n";
                let text = format!("{head}{headers}\r\n\r\n{body}");
                stream.write_all(text.as_bytes()).await.unwrap();
                timeout(Duration::from_secs(60), rest(&mut stream)).await
            };
            let answer = send("Content-Length: 4", "0\r\n\r").await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "the control: {answer}");
            got.borrow_mut().clear();
            let body = format!("0\r\n\r\n{SECOND}");
            let answer = send(headers, &body).await;
            let answer = answer.expect("it is refused at once");
            assert!(answer.starts_with("HTTP/1.1 400"), "{headers}: {answer}");
            let got = String::from_utf8_lossy(&got.borrow()).into_owned();
            assert_eq!(got, "", "{headers}");
        }
    });
}

/// A request with a body is the last of a connection to a host of HTTP/1.1 with rules; what follows it is judged by itself, if at all.
#[test]
fn requests_behind_a_held_one_wait_and_share_no_answer() {
    local(async {
        for (first, want) in [
            (RequestAnswer::Granted, "200"),
            (RequestAnswer::Refused, "403"),
        ] {
            let world = World::new(setup(HTTP1)).await;
            let mut stream = world.tls(&[HTTP1]).await;
            let post = |path: &str| {
                format!("POST {path} HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n\r\nx")
            };
            let all = post("/a") + &post("/b") + SECOND;
            stream.write_all(all.as_bytes()).await.unwrap();
            let asked = question(&world, 0).await;
            assert_eq!((&*asked.path, paths(&world).len()), ("/a", 0));
            sleep(Duration::from_millis(100)).await;
            assert_eq!((questions(&world), paths(&world).len()), (1, 0));
            world.ended.answer(asked.question, first);
            let refusing = async {
                let asked = question(&world, 1).await;
                assert_eq!(asked.path, "/b");
                world.ended.answer(asked.question, RequestAnswer::Refused);
                std::future::pending::<()>().await;
            };
            let answers = tokio::select! {
                answers = rest(&mut stream) => answers,
                () = refusing => unreachable!(),
            };
            let mut got = answers.split("HTTP/1.1 ").skip(1).map(|one| &one[..3]);
            assert_eq!(got.next(), Some(want), "{answers}");
            assert!(
                ["403", "200"].starts_with(&got.collect::<Vec<_>>()),
                "{answers}"
            );
            assert!(!paths(&world).iter().any(|path| path == "/b"));
        }
    });
}

#[test]
fn beside_a_held_request_of_http2_reads_go_on_and_writes_wait() {
    local(async {
        for protocol in [HTTP1, HTTP2] {
            let world = World::new(setup(protocol)).await;
            let http2 = world.http2().await;
            let send = |method: &str, path: &str| {
                let request = Request::builder().method(method);
                let request = request.uri(format!("https://a.example{path}"));
                let mut http2 = http2.clone();
                let request = request.body(full("x")).unwrap();
                async move { http2.send_request(request).await.unwrap().status().as_u16() }
            };
            let first = spawn_local(send("POST", "/a"));
            let asked = question(&world, 0).await;
            let second = spawn_local(send("POST", "/b"));
            assert_eq!(send("GET", "/read").await, 200);
            assert_eq!((questions(&world), paths(&world).len()), (1, 1));
            assert!(!first.is_finished() && !second.is_finished());
            // A yes to one is none to the other.
            world.ended.answer(asked.question, RequestAnswer::Granted);
            assert_eq!(first.await.unwrap(), 200);
            let asked = question(&world, 1).await;
            assert_eq!(asked.path, "/b");
            assert_eq!(paths(&world).len(), 2);
            world.ended.answer(asked.question, RequestAnswer::Refused);
            assert_eq!(second.await.unwrap(), 403);
            assert_eq!(paths(&world).len(), 2);
        }
    });
}

/// Of a body that nobody reads for the question, no more is taken than a connection may send before it is read.
#[test]
fn a_held_body_that_grows_stops_its_program() {
    local(async {
        let world = World::new(setup(HTTP1)).await;
        let stream = world.tls(&[HTTP1]).await;
        let (mut read, mut write) = tokio::io::split(stream);
        let head = "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 134217728\r\nConnection: close\r\n\r\n";
        write.write_all(head.as_bytes()).await.unwrap();
        let asked = question(&world, 0).await;
        let (part, mut taken) = (vec![b'x'; 64 * 1024], 0);
        while timeout(Duration::from_secs(2), write.write_all(&part))
            .await
            .is_ok()
        {
            taken += part.len();
            assert!(taken < 32 << 20, "it goes on");
        }
        world.ended.answer(asked.question, RequestAnswer::Refused);
        assert!(rest(&mut read).await.starts_with("HTTP/1.1 403"));
        assert!(paths(&world).is_empty());
    });
}

#[test]
fn bodies_read_for_questions_are_bounded_alone_and_together() {
    local(async {
        let world = World::new(setup(HTTP1)).await;
        let http2 = world.http2().await;
        let put = |number: usize, body: Body| {
            let uri = format!("https://a.example/package{number}");
            let request = Request::put(uri).header("content-type", "application/json");
            let (mut http2, request) = (http2.clone(), request.body(body).unwrap());
            spawn_local(async move { http2.send_request(request).await.unwrap().status().as_u16() })
        };
        // One that does not end.
        let (send, body) = channel();
        let endless = spawn_local(async move {
            for _ in 0..400 {
                send.data(vec![b' '; 64 * 1024]).await;
            }
        });
        assert_eq!(put(0, body).await.unwrap(), 403);
        endless.abort();
        // Three that together are more than all may be: the one that comes over the bound is refused, and the others have room again.
        let much = |number: usize, count: usize| {
            let (send, body) = channel();
            let sending = spawn_local(async move {
                for _ in 0..count {
                    send.data(vec![b' '; 1 << 20]).await;
                }
                std::future::pending::<()>().await;
                drop(send);
            });
            (sending, put(number, body))
        };
        let [mut one, mut two, mut three] =
            [(1, 15), (2, 15), (3, 8)].map(|(n, count)| much(n, count));
        let refused = tokio::select! {
            refused = &mut one.1 => (refused, [&two.1, &three.1].map(JoinHandle::is_finished)),
            refused = &mut two.1 => (refused, [&one.1, &three.1].map(JoinHandle::is_finished)),
            refused = &mut three.1 => (refused, [&one.1, &two.1].map(JoinHandle::is_finished)),
        };
        assert_eq!((refused.0.unwrap(), refused.1), (403, [false, false]));
        assert_eq!((questions(&world), paths(&world).len()), (0, 0));
        // Their places are free again when they have ended.
        for (sending, sent) in [one, two, three] {
            sending.abort();
            if !sent.is_finished() {
                assert_eq!(sent.await.unwrap(), 403, "it is no package");
            }
        }
        let package =
            r#"{"name":"package4","versions":{"1.2.3":{}},"_attachments":{"own-1.2.3.tgz":{}}}"#;
        let long = format!("{}{package}", " ".repeat(10 << 20));
        let sent = put(4, full(long));
        let asked = question(&world, 0).await;
        world.ended.answer(asked.question, RequestAnswer::Granted);
        assert_eq!(sent.await.unwrap(), 200, "the control");
    });
}
