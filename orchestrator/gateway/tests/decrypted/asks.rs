//! Rules that ask: a request is held until the broker's answer, by both protocols, and its body arrives as it was sent.

use crate::world::*;
use broker_protocol::gateway::{FromGateway, HeldRequest, RequestAnswer, RequestRule, RuleAction};
use http_body_util::BodyExt;
use hyper::Request;
use orchestrator_gateway::decrypted::Times;
use std::time::Duration;
use tokio::task::spawn_local;

pub(crate) fn asking(paths: &[&str]) -> Setup {
    let rule = RequestRule {
        host: "a.example".into(),
        port: None,
        methods: vec!["POST".into()],
        paths: paths.iter().map(|&path| path.into()).collect(),
        action: RuleAction::Ask,
        why: None,
        name: "policy.toml:7".into(),
    };
    Setup {
        credentials: vec![],
        rules: vec![vec![rule]],
        handler: handler(|request| async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            text(format!(
                "{} {}",
                body.len(),
                body.iter().map(|&b| u64::from(b)).sum::<u64>()
            ))
        }),
        ..Setup::default()
    }
}

/// A request whose body is JSON.
fn json(path: &str) -> hyper::http::request::Builder {
    let request = Request::post(format!("https://a.example{path}"));
    request.header("content-type", "application/json")
}

/// The question with this place among all, once it is there.
pub(crate) async fn question(world: &World, at: usize) -> HeldRequest {
    let asked = || {
        let told = world.told.borrow();
        let asked = told.iter().filter_map(|frame| match frame {
            FromGateway::Asked(request) => Some(request.clone()),
            _ => None,
        });
        asked.into_iter().nth(at)
    };
    until(|| asked().is_some()).await;
    asked().unwrap()
}

#[test]
fn a_request_is_held_until_its_answer_by_both_protocols() {
    local(async {
        for protocol in [HTTP1, HTTP2] {
            let world = World::new(Setup {
                protocols: vec![protocol],
                ..asking(&["/a", "/b"])
            })
            .await;
            let mut http2 = world.http2().await;
            for (number, (path, answer, want)) in [
                ("/a", RequestAnswer::Granted, 200),
                ("/a", RequestAnswer::Refused, 403),
                ("/b", RequestAnswer::Expired, 403),
            ]
            .into_iter()
            .enumerate()
            {
                let request = Request::post(format!("https://a.example{path}"));
                let sent = http2.send_request(request.body(full("xyz")).unwrap());
                let sent = spawn_local(sent);
                let asked = question(&world, number).await;
                assert_eq!((&*asked.path, asked.call, asked.rule), (path, CALL, 0));
                assert_eq!(world.seen.borrow().len(), usize::from(number > 0));
                world.ended.answer(asked.question, answer);
                assert_eq!(sent.await.unwrap().unwrap().status(), want, "{path}");
            }
            assert_eq!(world.seen.borrow().len(), 1);
        }
    });
}

#[test]
fn a_program_hears_before_it_gives_up_that_its_request_waits() {
    local(async {
        for protocol in [HTTP1, HTTP2] {
            let setup = asking(&["/**"]);
            let times = Times {
                held: Duration::from_millis(200),
                ..setup.times
            };
            let world = World::new(Setup {
                protocols: vec![protocol],
                times,
                ..setup
            })
            .await;
            let post = async |path: &str| {
                let head = format!("POST {path} HTTP/1.1\r\nHost: a.example\r\n");
                let rest = "Connection: close\r\nContent-Length: 3\r\n\r\nxyz";
                world.http1(&(head + rest)).await
            };
            let answer = post("/a").await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
            assert!(answer.contains("it waits for approval"), "{answer}");
            assert!(world.seen.borrow().is_empty());
            let asked = question(&world, 0).await;
            // The broker has the grant; whether a request may use it, it decides then.
            world.ended.answer(asked.question, RequestAnswer::Kept);
            let claim = async {
                until(|| claimed(&world).is_some()).await;
                let claimed = claimed(&world).unwrap();
                assert!(world.seen.borrow().is_empty(), "before the answer");
                assert_eq!(claimed.path, "/a");
                world.ended.answer(claimed.question, RequestAnswer::Granted);
            };
            let (answer, ()) = tokio::join!(post("/a"), claim);
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert_eq!(world.seen.borrow().len(), 1);
            let answer = post("/a").await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
            assert_eq!(question(&world, 1).await.path, "/a", "it is asked again");
            assert_eq!(world.seen.borrow().len(), 1);
        }
    });
}

/// The request that uses a grant, if there is one.
fn claimed(world: &World) -> Option<HeldRequest> {
    let told = world.told.borrow();
    told.iter().find_map(|frame| match frame {
        FromGateway::Claimed(request) => Some(request.clone()),
        _ => None,
    })
}

#[test]
fn a_question_names_the_credential_that_its_request_uses() {
    local(async {
        let world = World::new(Setup {
            credentials: Setup::default().credentials,
            ..asking(&["/**"])
        })
        .await;
        for (number, (path, value, credential)) in [
            ("/api/x", PLACEHOLDER, Some(0)),
            ("/api/x", "own-value-of-the-program", None),
            ("/elsewhere", PLACEHOLDER, None),
        ]
        .into_iter()
        .enumerate()
        {
            let mut http2 = world.http2().await;
            let request = Request::post(format!("https://a.example{path}"))
                .header("authorization", format!("Bearer {value}"));
            let sent = spawn_local(http2.send_request(request.body(full("x")).unwrap()));
            let asked = question(&world, number).await;
            assert_eq!(asked.credential, credential, "{path} {value}");
            world.ended.answer(asked.question, RequestAnswer::Refused);
            assert_eq!(sent.await.unwrap().unwrap().status(), 403);
        }
    });
}

#[test]
fn a_push_arrives_as_it_was_sent_and_a_request_without_commands_is_no_question() {
    local(async {
        let world = World::new(asking(&["/**"])).await;
        let mut http2 = world.http2().await;
        let send = |body: Vec<u8>| {
            let request = Request::post("https://a.example/o/r/git-receive-pack");
            http2.send_request(request.body(full(body)).unwrap())
        };
        let mut send = send;
        assert_eq!(send(b"0000".to_vec()).await.unwrap().status(), 200);
        assert_eq!(world.told.borrow().len(), 0, "nothing is pushed");
        assert_eq!(send(b"0000PACK".to_vec()).await.unwrap().status(), 403);
        let id = |digit: &str| digit.repeat(40);
        let line = format!("{} {} refs/heads/x\0report-status", id("a"), id("b"));
        let mut body = format!("{:04x}{line}0000PACK", line.len() + 4).into_bytes();
        body.extend((0..3_000_000u32).map(|number| (number % 251) as u8));
        let (length, sum) = (body.len(), body.iter().map(|&b| u64::from(b)).sum::<u64>());
        let sent = spawn_local(send(body));
        let asked = question(&world, 0).await;
        assert_eq!(asked.effects[0].object, "refs/heads/x");
        world.ended.answer(asked.question, RequestAnswer::Granted);
        let answer = sent.await.unwrap().unwrap();
        let answer = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(answer, format!("{length} {sum}").as_bytes());
    });
}

#[test]
fn a_body_that_does_not_say_in_time_what_it_changes_is_refused() {
    local(async {
        let world = World::new(asking(&["/**"])).await;
        let mut http2 = world.http2().await;
        let mut post = |path: &str, body: Vec<u8>| {
            let request = json(path);
            let sent = http2.send_request(request.body(full(body)).unwrap());
            async move { sent.await.unwrap().status() }
        };
        // Shallow lines without an end.
        let line = format!("0034shallow {}", "a".repeat(40));
        let long = line.repeat(20_000).into_bytes();
        assert_eq!(post("/o/r/git-receive-pack", long).await, 403);
        let long = format!("{{\"query\":\"{{ a }}{}\"}}", " ".repeat(2_000_000));
        assert_eq!(post("/graphql", long.into_bytes()).await, 403);
        assert_eq!(
            post("/graphql", b"{\"query\":\"{ a }\"}".to_vec()).await,
            200
        );
        assert_eq!(world.seen.borrow().len(), 1, "the control");
    });
}

#[test]
fn a_program_that_sends_a_long_body_reads_why_it_is_refused() {
    local(async {
        let mut setup = asking(&["/**"]);
        setup.rules[0][0].action = RuleAction::Deny;
        let world = World::new(setup).await;
        for length in [0, 1, 4 << 20] {
            let head = format!(
                "POST /x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
            );
            let answer = world.http1(&(head + &"x".repeat(length))).await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{length}: {answer}");
            assert!(answer.contains("policy.toml:7"), "{length}: {answer}");
        }
        assert_eq!(world.seen.borrow().len(), 0);
    });
}

#[test]
fn a_query_of_graphql_with_another_in_its_address_is_refused() {
    local(async {
        let world = World::new(asking(&["/**"])).await;
        let mut http2 = world.http2().await;
        let mut post = |path: &str| {
            let request = json(path);
            let body = full(&b"{\"query\":\"{ a }\"}"[..]);
            let sent = http2.send_request(request.body(body).unwrap());
            async move { sent.await.unwrap().status() }
        };
        for query in ["query=mutation%7Ba%7D", "%71uery[]=a", "operationName=B"] {
            assert_eq!(post(&format!("/graphql?{query}")).await, 403, "{query}");
        }
        assert_eq!(post("/graphql").await, 200);
        assert_eq!(world.seen.borrow().len(), 1, "the control");
        // What looks like JSON, a server may read as a form.
        let form = json("/graphql").header("content-type", "text/plain");
        let body = full(&b"{\"query\":\"{ a }\",\"operationName\":\"&query=mutation{x}&b=\"}"[..]);
        let sent = http2.send_request(form.body(body).unwrap());
        assert_eq!(sent.await.unwrap().status(), 403);
        assert_eq!(world.seen.borrow().len(), 1);
        let told = world.told.borrow();
        let mut told = told.iter();
        assert!(!told.any(|frame| matches!(frame, FromGateway::Asked(_))));
    });
}
