//! When a value is asked for, and what happens where there is none.

use crate::world::*;
use broker_protocol::gateway::CredentialVerdict::{Attached, Echoed, NoValue, Used};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response};
use orchestrator_gateway::decrypted::Times;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

const OLD: &str = "gho_old-old-old-old-old";
const NEW: &str = "gho_new-new-new-new-new";

/// A host that refuses the old value.
fn expiring(request: Request<Incoming>) -> impl Future<Output = Response<Body>> {
    let value = request.headers().get("authorization").cloned();
    async move {
        match value {
            Some(value) if value == format!("Bearer {OLD}") => status(401),
            _ => text("ok"),
        }
    }
}

fn post(path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: a.example\r\n{}Content-Length: 1\r\nConnection: close\r\n\r\nx",
        bearer()
    )
}

fn expiry(values: &[&str]) -> Setup {
    Setup {
        handler: handler(expiring),
        values: values.iter().map(|&value| Ok(value.into())).collect(),
        times: Times {
            refresh: Duration::ZERO,
            ..Setup::default().times
        },
        ..Setup::default()
    }
}

#[test]
fn no_value_is_sent_before_its_first_use_is_recorded() {
    local(async {
        let world = World::new(Setup {
            is_recorded: false,
            ..Setup::default()
        })
        .await;
        let (headers, is_over) = (bearer(), Cell::new(false));
        let both = async {
            // The second one waits for the record of the first.
            let requests = (world.get("/api/x", &headers), world.get("/api/x", &headers));
            let answers = tokio::join!(requests.0, requests.1);
            is_over.set(true);
            answers
        };
        let recorded = async {
            until(|| world.count(Used) == 2).await;
            // Nothing else holds a request that has no value.
            assert!(world.get("/api/x", "").await.ends_with("ok"));
            assert_eq!(world.seen.borrow().len(), 1);
            assert!(!is_over.get());
            world.ended.recorded();
        };
        let (answers, ()) = tokio::join!(both, recorded);
        assert!(answers.0.ends_with("ok") && answers.1.ends_with("ok"));
        assert_eq!(world.seen.borrow().len(), 3);
        // Further ones of the kind do not wait.
        assert!(world.get("/api/x", &headers).await.ends_with("ok"));
    });
}

#[test]
fn fifty_requests_at_a_time_ask_once() {
    local(async {
        let world = World::new(Setup::default()).await;
        let mut http2 = world.http2().await;
        let requests: Vec<_> = (0..50)
            .map(|_| {
                let request = Request::get("https://a.example/api/x")
                    .header("authorization", format!("Bearer {PLACEHOLDER}"));
                http2.send_request(request.body(full("")).unwrap())
            })
            .collect();
        for request in requests {
            assert_eq!(request.await.unwrap().status(), 200);
        }
        assert_eq!((world.count(Used), world.wanted()), (50, 1));
        // The first one at once, the others counted.
        assert_eq!(world.reports().len(), 2);
    });
}

#[test]
fn a_read_is_sent_again_with_the_new_value_and_the_old_one_never() {
    local(async {
        for protocols in [vec![HTTP1], vec![HTTP2]] {
            let world = World::new(Setup {
                protocols,
                ..expiry(&[OLD, NEW])
            })
            .await;
            let answer = world.get("/api/x", &bearer()).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            let answer = world.get("/api/x", &bearer()).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            let seen: Vec<_> = world
                .seen
                .borrow()
                .iter()
                .map(|seen| seen.header("authorization").unwrap())
                .collect();
            let (old, new) = (format!("Bearer {OLD}"), format!("Bearer {NEW}"));
            assert_eq!(seen, [old, new.clone(), new]);
            assert_eq!(world.wanted(), 2);
        }
    });
}

#[test]
fn fifty_requests_at_expiry_ask_once() {
    local(async {
        let world = World::new(expiry(&[OLD, NEW])).await;
        let mut http2 = world.http2().await;
        let requests: Vec<_> = (0..50)
            .map(|_| {
                let request = Request::get("https://a.example/api/x")
                    .header("authorization", format!("Bearer {PLACEHOLDER}"));
                http2.send_request(request.body(full("")).unwrap())
            })
            .collect();
        for request in requests {
            assert_eq!(request.await.unwrap().status(), 200);
        }
        assert_eq!(world.wanted(), 2);
    });
}

#[test]
fn a_write_is_not_sent_again_but_the_value_is_asked_for() {
    local(async {
        let world = World::new(expiry(&[OLD, NEW])).await;
        let answer = world.http1(&post("/api/x")).await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        let answer = world.http1(&post("/api/x")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!((world.seen.borrow().len(), world.wanted()), (2, 2));
    });
}

#[test]
fn a_source_that_gives_the_refused_value_again_is_not_tried_twice() {
    local(async {
        let world = World::new(expiry(&[OLD])).await;
        let answer = world.get("/api/x", &bearer()).await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        assert_eq!((world.seen.borrow().len(), world.wanted()), (1, 2));
    });
}

#[test]
fn a_value_is_asked_for_at_most_once_in_the_interval() {
    local(async {
        let mut setup = expiry(&[OLD, NEW]);
        setup.times.refresh = Duration::from_secs(30);
        let world = World::new(setup).await;
        let answer = world.get("/api/x", &bearer()).await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        for request in [post("/api/x"), post("/api/y")] {
            let answer = world.http1(&request).await;
            assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
            assert!(
                answer.contains("a.example:443 has refused it (401)"),
                "{answer}"
            );
        }
        assert_eq!((world.seen.borrow().len(), world.wanted()), (1, 1));
        // Requests without it go on, and to another host it goes.
        let answer = world.get("/elsewhere", "").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let stream = world.try_tls("a.example:8443", "a.example", &[HTTP1]);
        let mut stream = stream.await.unwrap();
        let request = post("/api/x").replace("a.example", "a.example:8443");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        assert_eq!((world.seen.borrow().len(), world.wanted()), (3, 1));
    });
}

/// How often the host was sent this value.
fn sent(world: &World, value: &str) -> usize {
    let seen = world.seen.borrow();
    let value = Some(format!("Bearer {value}"));
    let with_it = seen
        .iter()
        .filter(|one| one.header("authorization") == value);
    with_it.count()
}

#[test]
fn a_refused_value_is_sent_again_only_if_its_source_gives_it_again() {
    local(async {
        for (values, want) in [(vec![OLD, NEW], "200"), (vec![OLD, OLD, NEW], "401")] {
            let mut setup = expiry(&values);
            setup.times.refresh = Duration::from_secs(2);
            let world = World::new(setup).await;
            let answer = world.get("/api/x", &bearer()).await;
            let asked = Instant::now();
            assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
            let answer = world.get("/api/x", &bearer()).await;
            assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
            assert_eq!((sent(&world, OLD), world.wanted()), (1, 1));
            until(|| asked.elapsed() > Duration::from_secs(2)).await;
            // The source is asked before it is sent.
            for _ in 0..2 {
                let answer = world.http1(&post("/api/x")).await;
                assert!(answer.starts_with(&format!("HTTP/1.1 {want}")), "{answer}");
            }
            let old = if want == "401" { 3 } else { 1 };
            assert_eq!((sent(&world, OLD), world.wanted()), (old, 2));
        }
    });
}

/// npm's password of one use is missing beside a good value.
#[test]
fn a_missing_one_time_password_does_not_refresh() {
    local(async {
        let world = World::new(Setup {
            handler: handler(|_| async {
                let mut response = status(401);
                let otp = "OTP".parse().unwrap();
                response.headers_mut().insert("www-authenticate", otp);
                response
            }),
            ..expiry(&[OLD, NEW])
        })
        .await;
        let answer = world.get("/api/x", &bearer()).await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        assert_eq!((world.seen.borrow().len(), world.wanted()), (1, 1));
    });
}

/// No value is an answer with the reason.
#[test]
fn a_source_without_a_value_is_502_with_its_reason() {
    local(async {
        for (value, reason) in [
            (Err("`gh` exited with 1".to_owned()), "`gh` exited with 1"),
            (Ok("short\n".into()), "fewer than 8 bytes"),
            (Ok("with\r\nX-Evil: 1".into()), "characters that no header"),
        ] {
            let world = World::new(Setup {
                values: vec![value],
                ..Setup::default()
            })
            .await;
            for path in ["/api/x", "/o/r.git/x"] {
                let answer = world.get(path, &bearer()).await;
                assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
                assert!(answer.contains(reason), "{answer}");
            }
            assert!(world.seen.borrow().is_empty());
            assert_eq!((world.count(NoValue), world.wanted()), (2, 1));
        }
    });
}

#[test]
fn a_source_that_does_not_answer_is_502_in_time_and_few_wait() {
    local(async {
        let mut setup = Setup {
            values: vec![],
            ..Setup::default()
        };
        setup.times.value = Duration::from_millis(300);
        let world = World::new(setup).await;
        let mut http2 = world.http2().await;
        let requests: Vec<_> = (0..80)
            .map(|_| {
                let request = Request::get("https://a.example/o/r.git/x");
                http2.send_request(request.body(full("")).unwrap())
            })
            .collect();
        let texts = Rc::new(Cell::new((0, 0)));
        for request in requests {
            let answer = request.await.unwrap();
            assert_eq!(answer.status(), 502);
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let (late, many) = texts.get();
            let is_late = String::from_utf8_lossy(&body).contains("did not answer");
            texts.set(if is_late {
                (late + 1, many)
            } else {
                (late, many + 1)
            });
        }
        assert_eq!(texts.get(), (64, 16));
        assert_eq!((world.wanted(), world.count(Attached)), (1, 0));
    });
}

/// A host that repeats in an answer, after a while, what an earlier session has sent.
fn repeating() -> Setup {
    Setup {
        handler: handler(|_| async { text(format!("it was {VALUE}, of old")) }),
        ..Setup::default()
    }
}

/// A request without the credential, by both protocols of the host.
#[test]
fn an_answer_is_searched_before_a_request_has_needed_the_value() {
    local(async {
        for protocols in [vec![HTTP1], vec![HTTP2]] {
            let world = World::new(Setup {
                protocols: protocols.clone(),
                ..repeating()
            })
            .await;
            let answer = world.get("/elsewhere", "").await;
            assert!(!answer.contains(&VALUE[..8]), "{answer}");
            assert_eq!((world.count(Echoed), world.wanted()), (1, 1));
            // The control: another value passes, and is asked for once.
            let world = World::new(Setup {
                protocols,
                values: vec![Ok("gho_quite-another-value".into())],
                ..repeating()
            })
            .await;
            for _ in 0..2 {
                let answer = world.get("/elsewhere", "").await;
                assert!(answer.contains(VALUE), "{answer}");
            }
            assert_eq!((world.count(NoValue), world.wanted()), (0, 1));
        }
    });
}

/// Commands use a host without its credential, where the user has none.
#[test]
fn an_answer_passes_where_the_source_has_failed_and_that_is_recorded_once() {
    local(async {
        let fails = Err("`gh` exited with 1".to_owned());
        let world = World::new(Setup {
            values: vec![fails, Ok(VALUE.into())],
            ..repeating()
        })
        .await;
        for _ in 0..3 {
            let answer = world.get("/elsewhere", "").await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(answer.contains(VALUE), "{answer}");
        }
        assert_eq!((world.count(NoValue), world.wanted()), (1, 1));
    });
}

#[test]
fn an_answer_waits_for_a_source_as_long_as_a_request_does_and_no_longer() {
    local(async {
        let mut setup = Setup {
            values: vec![],
            ..repeating()
        };
        setup.times.value = Duration::from_millis(300);
        let world = World::new(setup).await;
        let mut http2 = world.http2().await;
        let requests: Vec<_> = (0..80)
            .map(|_| {
                let request = Request::get("https://a.example/elsewhere");
                http2.send_request(request.body(full("")).unwrap())
            })
            .collect();
        let asked = Instant::now();
        for request in requests {
            assert_eq!(request.await.unwrap().status(), 200);
        }
        assert!(asked.elapsed() >= Duration::from_millis(200));
        assert_eq!((world.count(NoValue), world.wanted()), (1, 1));
        // It comes late, and is searched for from then on.
        world.ended.value(0, Ok(VALUE.into()));
        let answer = world.get("/elsewhere", "").await;
        assert!(!answer.contains(&VALUE[..8]), "{answer}");
    });
}

/// Nothing was known when the first part of the value passed.
#[test]
fn an_answer_under_way_is_searched_when_the_value_comes() {
    local(async {
        let goes_on = Rc::new(Notify::new());
        let wait = goes_on.clone();
        let mut setup = Setup {
            values: vec![],
            handler: handler(move |_| {
                let wait = wait.clone();
                async move {
                    let (send, body) = channel();
                    tokio::task::spawn_local(async move {
                        send.data(&VALUE.as_bytes()[..9]).await;
                        wait.notified().await;
                        send.data(&VALUE.as_bytes()[9..]).await;
                    });
                    Response::new(body)
                }
            }),
            ..Setup::default()
        };
        setup.times.value = Duration::ZERO;
        let world = World::new(setup).await;
        let mut http2 = world.http2().await;
        let request = Request::get("https://a.example/elsewhere");
        let answer = http2.send_request(request.body(full("")).unwrap()).await;
        let mut body = answer.unwrap().into_body();
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), VALUE[..9]);
        world.ended.value(0, Ok(VALUE.into()));
        goes_on.notify_one();
        assert!(body.frame().await.unwrap().is_err());
        assert_eq!(world.count(Echoed), 1);
    });
}
