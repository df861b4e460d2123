//! When a value is asked for, and what happens where there is none.

use crate::world::*;
use broker_protocol::gateway::CredentialVerdict::{Attached, NoValue, Used};
use hyper::body::Incoming;
use hyper::{Request, Response};
use orchestrator_gateway::decrypted::Times;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

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
        for _ in 0..3 {
            let answer = world.get("/api/x", &bearer()).await;
            assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        }
        assert_eq!(world.wanted(), 1);
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
            use http_body_util::BodyExt;
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
