//! A proxy's answers, honest and hostile, and the way that each target takes.

use super::*;
use crate::decrypted::{CertificateRoots, Times};
use broker_protocol::gateway::{Attach, CredentialSpec, FromGateway, GatewaySpec};
use policies::web::WebTable;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener};
use std::thread::{self, JoinHandle};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;

struct Names(HashMap<&'static str, Vec<&'static str>>);

impl Resolve for Names {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let found = self.0.get(host).ok_or(io::ErrorKind::NotFound)?;
        let address = |text: &&str| SocketAddr::new(text.parse::<IpAddr>().unwrap(), port);
        Ok(found.iter().map(address).collect())
    }
}

fn names() -> Names {
    Names(HashMap::from([
        ("a.example", vec!["93.184.216.34", "2606:2800::1"]),
        ("inside.corp", vec!["10.1.2.3"]),
        ("two.corp", vec!["10.1.2.3", "93.184.216.34"]),
    ]))
}

fn policy(own: &str) -> WebPolicy {
    WebPolicy {
        own: toml::from_str::<WebTable>(own).unwrap(),
        bounds: vec![],
    }
}

fn proxy(port: u16, names: bool, direct: &[&str], login: Option<u16>) -> UpstreamProxy {
    let spec = ProxySpec {
        host: "127.0.0.1".into(),
        port,
        names,
        direct: direct.iter().map(|&text| text.to_owned()).collect(),
        login,
    };
    UpstreamProxy {
        patience: Duration::from_millis(700),
        ..UpstreamProxy::try_from(&spec).unwrap()
    }
}

fn target(place: &str) -> Target {
    Place::parse(place, None).unwrap().target().clone()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default());
    runtime.unwrap().block_on(work)
}

fn route(proxy: &UpstreamProxy, own: &str, place: &str) -> Result<Route, ReachError> {
    let (policy, names) = (policy(own), names());
    let judged = run(proxy.route(&PolicyJudge(&policy, &names), &names, &target(place)));
    judged.map_err(|error| match error {
        ConnectError::Reach(error) => error,
        ConnectError::NoAnswer(_) | ConnectError::Proxy { .. } | ConnectError::TimedOut(_) => {
            panic!("{error}")
        }
    })
}

fn tunnel(targets: &[&str]) -> Result<Route, ReachError> {
    let targets = targets.iter().map(|&text| text.to_owned());
    Ok(Route::Tunnel(targets.collect()))
}

fn direct(address: &str) -> Result<Route, ReachError> {
    Ok(Route::Direct(vec![address.parse().unwrap()]))
}

const ALL: &str = "allow = ['*']";
const PRIVATE: &str = "allow = ['*']\nprivate = ['10.0.0.0/8']";

#[test]
fn the_proxy_gets_checked_addresses_and_names_only_where_policy_says_so() {
    let plain = proxy(1, false, &["*.lan", "10.0.0.0/8"], None);
    let named = proxy(1, true, &["*.lan", "10.0.0.0/8"], None);
    let addresses = ["93.184.216.34:443", "[2606:2800::1]:443"];
    assert_eq!(route(&plain, ALL, "a.example:443"), tunnel(&addresses));
    assert_eq!(
        route(&named, ALL, "a.example:443"),
        tunnel(&["a.example:443"])
    );
    // A name that only the proxy can resolve.
    assert_eq!(
        route(&named, ALL, "far.example:443"),
        tunnel(&["far.example:443"])
    );
    assert!(matches!(
        route(&plain, ALL, "far.example:443"),
        Err(ReachError::Unresolved(_))
    ));
    let address = tunnel(&["93.184.216.34:80"]);
    assert_eq!(route(&named, ALL, "93.184.216.34:80"), address);
}

#[test]
fn the_guard_judges_targets_with_a_proxy_as_without() {
    for names in [false, true] {
        let of = |own: &str, place: &str| route(&proxy(1, names, &[], None), own, place);
        for place in [
            "inside.corp:443",
            "two.corp:443",
            "127.0.0.1:443",
            "10.1.2.3:443",
        ] {
            let refused = of(ALL, place);
            assert!(
                matches!(refused, Err(ReachError::Address { .. })),
                "{place}"
            );
        }
        let host = of("allow = ['b.example']", "a.example:443");
        assert!(matches!(host, Err(ReachError::Host { .. })), "{host:?}");
        // Allowed at a private address alone: where the name leads has to be seen.
        let own = "private = ['far.example:443']";
        let unseen = of(own, "far.example:443");
        assert!(
            matches!(unseen, Err(ReachError::Unresolved(_))),
            "{unseen:?}"
        );
    }
}

#[test]
fn direct_hosts_bypass_the_proxy() {
    for names in [false, true] {
        let of =
            |direct: &[&str], place: &str| route(&proxy(1, names, direct, None), PRIVATE, place);
        assert_eq!(of(&["*.corp"], "inside.corp:443"), direct("10.1.2.3:443"));
        assert_eq!(of(&["10.0.0.0/8"], "two.corp:80"), direct("10.1.2.3:80"));
        let by_proxy = of(&["*.corp:80"], "inside.corp:443").unwrap();
        assert!(matches!(by_proxy, Route::Tunnel(_)), "{by_proxy:?}");
        // Not what is not allowed.
        let closed = route(&proxy(1, names, &["*"], None), ALL, "inside.corp:443");
        assert!(
            matches!(closed, Err(ReachError::Address { .. })),
            "{closed:?}"
        );
    }
}

/// A proxy that gives each connection the next answer in pieces, and returns the requests that it got.
fn serve(answers: Vec<Vec<Vec<u8>>>) -> (u16, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = thread::spawn(move || {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut client, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            requests.push(String::from_utf8(request).unwrap());
            for piece in answer {
                if client.write_all(&piece).is_err() {
                    break;
                }
                thread::sleep(Duration::from_millis(2));
            }
            // Until the other side has seen enough.
            let _ = client.shutdown(std::net::Shutdown::Write);
            let _ = client.read(&mut [0]);
        }
        requests
    });
    (port, serving)
}

fn whole(text: &str) -> Vec<Vec<u8>> {
    vec![text.as_bytes().to_vec()]
}

async fn ask(
    proxy: &UpstreamProxy,
    terminator: Option<&TlsTerminator>,
) -> Result<TcpStream, ProxyFault> {
    let (policy, names) = (policy(ALL), names());
    let of = (&PolicyJudge(&policy, &names), &names);
    match proxy
        .connect(of, &target("a.example:443"), terminator)
        .await
    {
        Ok(tunnel) => Ok(tunnel),
        Err(ConnectError::Proxy { fault, .. }) => Err(fault),
        Err(error) => panic!("{error}"),
    }
}

/// What comes of a proxy with this answer.
fn answered(answer: Vec<Vec<u8>>) -> ProxyFault {
    let (port, serving) = serve(vec![answer]);
    let fault = run(ask(&proxy(port, true, &[], None), None)).unwrap_err();
    serving.join().unwrap();
    fault
}

#[test]
fn bytes_behind_the_answer_are_the_hosts() {
    for answer in [
        whole("HTTP/1.1 200 Connection established\r\n\r\n220 hello"),
        whole(
            "HTTP/1.0 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n220 hello",
        ),
        whole("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n220 hello"),
        b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n220 hello"
            .chunks(1)
            .map(<[u8]>::to_vec)
            .collect(),
    ] {
        let (port, serving) = serve(vec![answer]);
        let said = run(async {
            let mut tunnel = ask(&proxy(port, false, &[], None), None).await.unwrap();
            let mut said = String::new();
            tunnel.read_to_string(&mut said).await.unwrap();
            said
        });
        assert_eq!(said, "220 hello");
        let request = serving.join().unwrap().remove(0);
        let want = "CONNECT 93.184.216.34:443 HTTP/1.1\r\nHost: 93.184.216.34:443\r\n\r\n";
        assert_eq!(request, want);
    }
}

#[test]
fn a_hostile_proxy_gets_bounded_time_and_memory() {
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n";
    let headers = "A: b\r\n".repeat(HEADERS_MAX + 1);
    let long = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(2 * HEAD_MAX));
    let drip = |text: String| {
        text.into_bytes()
            .into_iter()
            .map(|byte| vec![byte])
            .collect()
    };
    for (answer, want) in [
        (whole(&long), ProxyFault::TooLong),
        (
            whole(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n")),
            ProxyFault::TooLong,
        ),
        (whole(&interim.repeat(INTERIM_MAX + 1)), ProxyFault::TooLong),
        (
            whole("HTTP/1.1 101 Switching Protocols\r\n\r\n"),
            ProxyFault::Malformed,
        ),
        (whole("SSH-2.0-x\r\n"), ProxyFault::Malformed),
        (whole("HTTP/2 200\r\n\r\n"), ProxyFault::Malformed),
        (whole("HTTP/1.1 two OK\r\n\r\n"), ProxyFault::Malformed),
        (
            whole("HTTP/1.1 200 OK\r\n\0\r\n\r\n"),
            ProxyFault::Malformed,
        ),
        (whole("HTTP/1.1 200 OK\r\n"), ProxyFault::Gone),
        (whole(""), ProxyFault::Gone),
        (
            drip(format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(2000))),
            ProxyFault::Slow(0),
        ),
        (
            whole("HTTP/1.1 407 Login\r\n\r\n"),
            ProxyFault::LoginMissing,
        ),
    ] {
        let begin = answer.concat();
        let begin = String::from_utf8_lossy(&begin[..begin.len().min(40)]).into_owned();
        assert_eq!(answered(answer), want, "{begin:?}");
    }
}

#[test]
fn a_refusal_is_escaped_and_cut() {
    let status = 502;
    let answer = format!(
        "HTTP/1.1 {status} a\u{e4}b{}\r\n\r\n<script>",
        "x".repeat(500)
    );
    let ProxyFault::Refused { words, .. } = answered(whole(&answer)) else {
        panic!("another fault");
    };
    assert!(words.len() <= WORDS_MAX && words.is_ascii(), "{words}");
    let text = ConnectError::Proxy {
        proxy: "proxy.corp:3128".into(),
        fault: ProxyFault::Refused {
            status,
            words: "Bad".into(),
        },
    };
    assert_eq!(
        text.to_string(),
        "the proxy proxy.corp:3128 answered 502 `Bad`"
    );
}

#[test]
fn the_next_address_is_tried_where_the_proxy_does_not_reach_one() {
    let refused = whole("HTTP/1.1 503 Unreachable\r\n\r\n");
    let (port, serving) = serve(vec![refused, whole("HTTP/1.1 200 OK\r\n\r\n")]);
    assert!(run(ask(&proxy(port, false, &[], None), None)).is_ok());
    let requests = serving.join().unwrap();
    assert!(
        requests[1].starts_with("CONNECT [2606:2800::1]:443 "),
        "{requests:?}"
    );
    // Not where it does not want to.
    let (port, serving) = serve(vec![whole("HTTP/1.1 403 Forbidden\r\n\r\n")]);
    let fault = run(ask(&proxy(port, false, &[], None), None)).unwrap_err();
    assert!(fault.to_string().contains("proxy_names"), "{fault}");
    serving.join().unwrap();
}

#[test]
fn a_proxy_that_is_not_there_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let fault = run(ask(&proxy(port, false, &[], None), None)).unwrap_err();
    assert!(matches!(fault, ProxyFault::Unreachable(_)), "{fault:?}");
}

/// Asks for a tunnel with a login whose source gives these values in turn.
fn with_login(answers: &[&str], values: &[&str]) -> (Result<(), ProxyFault>, Vec<String>) {
    let (port, serving) = serve(answers.iter().map(|answer| whole(answer)).collect());
    let spec = GatewaySpec {
        credentials: vec![CredentialSpec {
            name: "proxy login".into(),
            placeholder: "x".into(),
            hosts: vec![],
            attach: Attach::Bearer,
            uses: vec![],
        }],
        ..GatewaySpec::default()
    };
    let result = run(async {
        let (tell, mut told) = mpsc::unbounded_channel();
        let times = Times {
            refresh: Duration::ZERO,
            ..Times::default()
        };
        let tell = move |frame: FromGateway| drop(tell.send(frame));
        let terminator =
            TlsTerminator::with_times(&spec, CertificateRoots::default(), tell, times).unwrap();
        let mut values = values.iter();
        let deliver = async {
            while let Some(frame) = told.recv().await {
                assert_eq!(frame, FromGateway::Wanted { credential: 0 });
                let value = values.next().map(|value| value.as_bytes().to_vec());
                terminator.value(0, value.ok_or_else(|| "its file is gone".to_owned()));
            }
            std::future::pending().await
        };
        let proxy = proxy(port, true, &[], Some(0));
        tokio::select! {
            asked = ask(&proxy, Some(&terminator)) => asked.map(|_| ()),
            () = deliver => unreachable!(),
        }
    });
    let requests = match answers.is_empty() {
        true => Vec::new(),
        false => serving.join().unwrap(),
    };
    (result, requests)
}

const OK: &str = "HTTP/1.1 200 OK\r\n\r\n";
const DENIED: &str = "HTTP/1.1 407 Denied\r\n\r\n";

#[test]
fn the_login_is_sent_to_the_proxy_and_shown_to_nobody() {
    let (result, requests) = with_login(&[OK], &["user:password\n"]);
    assert_eq!(result, Ok(()));
    let encoded = STANDARD.encode("user:password");
    assert!(requests[0].contains(&format!("Proxy-Authorization: Basic {encoded}\r\n")));
    for said in ["user:password", "you are password", &encoded] {
        let answer = format!("HTTP/1.1 403 {said}\r\n\r\n");
        let (result, _) = with_login(&[&answer], &["user:password"]);
        let text = result.unwrap_err().to_string();
        assert!(
            !text.contains("password") && !text.contains(&encoded),
            "{text}"
        );
        assert!(text.contains("contain the login"), "{text}");
    }
}

#[test]
fn a_refused_login_is_asked_for_once_more() {
    let (result, requests) = with_login(&[DENIED, OK], &["user:old-one", "user:new-one"]);
    assert_eq!((result, requests.len()), (Ok(()), 2));
    assert_ne!(requests[0], requests[1]);
    let (result, requests) = with_login(&[DENIED], &["user:old-one", "user:old-one"]);
    assert_eq!((result, requests.len()), (Err(ProxyFault::LoginRefused), 1));
    let (result, _) = with_login(&[DENIED, DENIED], &["user:old-one", "user:new-one"]);
    assert_eq!(result, Err(ProxyFault::LoginRefused));
    let (result, _) = with_login(&[], &[]);
    assert!(
        matches!(result, Err(ProxyFault::NoLogin(error)) if error.to_string().contains("gone"))
    );
}
