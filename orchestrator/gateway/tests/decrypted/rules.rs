//! Rules for requests: what goes to a host that has them, by both protocols, on kept connections and as a WebSocket.

use crate::protocols::{read_head, upgrade, websocket};
use crate::world::*;
use broker_protocol::gateway::{FromGateway, RequestRule, RuleAction};
use broker_protocol::{ConnectionReport, ConnectionVerdict};
use hyper::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn rule(action: RuleAction, methods: &[&str], paths: &[&str]) -> RequestRule {
    RequestRule {
        host: "a.example".into(),
        port: None,
        methods: methods.iter().map(|&method| method.into()).collect(),
        paths: paths.iter().map(|&path| path.into()).collect(),
        action,
        why: Some("The pipeline does that.".into()),
        name: "policy.toml:7".into(),
    }
}

/// GET of all but a secret, and nothing else.
fn reading() -> Vec<Vec<RequestRule>> {
    vec![vec![
        rule(RuleAction::Deny, &[], &["/secret/**"]),
        rule(RuleAction::Allow, &["GET"], &["/**"]),
    ]]
}

fn ruled(rules: Vec<Vec<RequestRule>>) -> Setup {
    Setup {
        credentials: vec![],
        rules,
        ..Setup::default()
    }
}

fn refused(world: &World) -> Vec<ConnectionReport> {
    let told = world.told.borrow();
    let reports = told.iter().filter_map(|frame| match frame {
        FromGateway::Connected(report) => Some(report.clone()),
        _ => None,
    });
    reports.collect()
}

#[test]
fn request_denied_by_a_rule_is_not_sent_and_is_reported_with_the_reason() {
    local(async {
        let world = World::new(ruled(reading())).await;
        let answer = world.get("/a?x=/secret/", "").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let answer = world.get("/secret/x?token=t", "").await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        let want = "lazaret: the rule at policy.toml:7 denies GET /secret/x at a.example:443, because: The pipeline does that; only";
        assert!(answer.contains(want), "{answer}");
        let put =
            "PUT /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
        let answer = world.http1(put).await;
        assert!(
            answer.contains("no rule allows PUT /a at a.example:443"),
            "{answer}"
        );
        assert_eq!(world.seen.borrow().len(), 1, "the control and nothing else");
        let reports = refused(&world);
        assert_eq!(reports.len(), 2, "{reports:?}");
        for report in &reports {
            assert_eq!(report.verdict, ConnectionVerdict::RequestRefused);
            let why = report.why.as_deref().unwrap();
            assert!(
                why.contains("policy.toml:7") && !why.contains("token"),
                "{why}"
            );
        }
    });
}

#[test]
fn each_request_of_a_connection_is_judged() {
    local(async {
        let world = World::new(ruled(reading())).await;
        let mut stream = world.tls(&[HTTP1]).await;
        let head = |path: &str, more: &str| {
            format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{more}\r\n")
        };
        let text = [
            head("/a", ""),
            head("/secret/x", ""),
            head("https://a.example/secret/y", ""),
            head("/b", "Connection: close\r\n"),
        ];
        stream.write_all(text.concat().as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        let counted = |status: &str| answer.matches(&format!("HTTP/1.1 {status}")).count();
        assert_eq!((counted("200"), counted("403")), (2, 2), "{answer}");
        // The same by HTTP/2.
        let mut http2 = world.http2().await;
        for (path, want) in [("/a", 200), ("/secret/x", 403), ("/b", 200)] {
            let request = Request::get(format!("https://a.example{path}"));
            let answer = http2.send_request(request.body(full("")).unwrap()).await;
            assert_eq!(answer.unwrap().status(), want, "{path}");
        }
        let request = Request::post("https://a.example/a")
            .body(full("x"))
            .unwrap();
        let answer = http2.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 403);
        assert!(
            world
                .seen
                .borrow()
                .iter()
                .all(|seen| !seen.uri.contains("secret"))
        );
        assert_eq!(world.seen.borrow().len(), 4);
    });
}

#[test]
fn a_websocket_is_what_a_rule_allows_a_get_of() {
    local(async {
        let only = |methods: &[&str]| vec![vec![rule(RuleAction::Allow, methods, &["/ws"])]];
        for (rules, path, want) in [
            (only(&["GET"]), "/ws", "HTTP/1.1 101"),
            (only(&["GET"]), "/other", "HTTP/1.1 403"),
            (only(&["POST"]), "/ws", "HTTP/1.1 403"),
        ] {
            let world = World::new(Setup {
                rules,
                ..websocket("hello")
            })
            .await;
            let mut stream = world.tls(&[HTTP1]).await;
            let text = upgrade(path, "websocket");
            stream.write_all(text.as_bytes()).await.unwrap();
            let head = read_head(&mut stream).await;
            assert!(head.starts_with(want), "{path}: {head}");
        }
    });
}

#[test]
fn a_host_with_a_dot_at_its_end_is_the_same_host() {
    local(async {
        let world = World::new(ruled(reading())).await;
        for (place, host) in [
            ("a.example.:443", "a.example."),
            ("a.example:8443", "a.example:8443"),
        ] {
            let mut stream = world.try_tls(place, "a.example", &[HTTP1]).await.unwrap();
            let text =
                format!("GET /secret/x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            stream.write_all(text.as_bytes()).await.unwrap();
            let head = read_head(&mut stream).await;
            assert!(!head.starts_with("HTTP/1.1 200"), "{place}: {head}");
        }
        assert!(world.seen.borrow().is_empty());
    });
}

#[test]
fn an_answer_of_the_hosts_own_is_never_called_ours() {
    local(async {
        for code in [401, 403] {
            let world = World::new(Setup {
                handler: handler(move |_| async move { status(code) }),
                ..ruled(reading())
            })
            .await;
            let answer = world.get("/a", "").await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{answer}");
            assert!(!answer.contains("lazaret"), "{answer}");
            assert_eq!(refused(&world), []);
            assert_eq!(world.seen.borrow().len(), 1);
        }
    });
}

#[test]
fn a_host_keeps_its_encodings_where_no_value_is_searched_for() {
    local(async {
        let world = World::new(ruled(reading())).await;
        world.get("/a", "Accept-Encoding: gzip\r\n").await;
        assert_eq!(world.last().header("accept-encoding").unwrap(), "gzip");
    });
}
