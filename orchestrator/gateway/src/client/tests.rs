//! Requests through a gateway, against real servers on this machine.

use super::admit::AllowedHosts;
use super::in_process::on_thread;
use super::tickets::HELD_MAX;
use crate::System;
use broker_protocol::ticket::WebTicket;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socketpair};
use orchestrator_http::ask::{
    ASK_MAX, BEGIN_MAX, Begin, By, ConnectionAsk, HostOrigin, LoginHosts, NamedRequest,
    NetworkFault, SearchEngine,
};
use orchestrator_http::{ClientGateway, ClientGatewayError, HostClient, HttpFailure, Response};
use orchestrator_logins::LOGIN_BODY;
use orchestrator_reach::ReachError;
use policies::WebPolicy;
use policies::web::WebTable;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use url::Url;

/// A server, and how many connections it has had.
struct Server {
    url: Url,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Answers each request, of which it is told the body, until `answer` says no more.
    fn start(answer: impl Fn(&[u8], &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let connections = Arc::<AtomicUsize>::default();
        let (seen, answer) = (connections.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                seen.fetch_add(1, Ordering::SeqCst);
                let answer = answer.clone();
                thread::spawn(move || serve(stream.unwrap(), &*answer));
            }
        });
        Self {
            url: url.parse().unwrap(),
            connections,
        }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&[u8], &mut TcpStream) -> bool) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut line, mut length) = (String::new(), 0);
        while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        if line.is_empty() || reader.read_exact(&mut body).is_err() {
            return;
        }
        if !answer(&body, &mut stream) {
            return;
        }
    }
}

fn says(stream: &mut TcpStream, headers: &str, body: &str) -> bool {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).is_ok()
}

fn block_on<F: Future>(future: F) -> F::Output {
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}

async fn text(mut response: Response) -> Result<String, HttpFailure> {
    let mut text = Vec::new();
    while let Some(piece) = response.chunk().await? {
        text.extend(piece);
    }
    Ok(String::from_utf8(text).unwrap())
}

async fn get(client: &HostClient, url: &Url) -> Result<String, HttpFailure> {
    text(client.to(http::Method::GET, url).send().await?).await
}

fn policy(own: &str) -> WebPolicy {
    WebPolicy {
        own: toml::from_str::<WebTable>(own).unwrap(),
        bounds: vec![],
    }
}

fn begun(begin: &Begin) -> ClientGateway {
    on_thread(System, begin, None, AllowedHosts::Begun).unwrap()
}

/// A gateway that wants tickets, and the other end of their line.
fn begun_with_tickets(begin: Begin) -> (ClientGateway, OwnedFd) {
    let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
    let (brokers, gateway) = socketpair(AddressFamily::Unix, kind, None, flags).unwrap();
    let begin = Begin {
        tickets: true,
        ..begin
    };
    let begun = on_thread(System, &begin, Some(gateway), AllowedHosts::Begun);
    (begun.unwrap(), brokers)
}

/// Such a gateway with a search engine at `server`, whose queries have `fixed` too.
fn begun_with_engine(server: &Server, fixed: &[(&str, &str)]) -> (ClientGateway, OwnedFd) {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    begun_with_tickets(Begin {
        engines: vec![SearchEngine {
            url: server.url.join("/search").unwrap().to_string(),
            fixed: fixed.iter().map(own).collect(),
        }],
        ..Begin::default()
    })
}

/// Asks `server` for a path and a query as a search engine.
fn search(gateway: &ClientGateway, server: &Server, query: &str) -> Result<String, HttpFailure> {
    let url = server.url.join(query).unwrap();
    let client = HostClient::new(gateway.clone(), By::Engine, &url);
    block_on(get(&client, &url))
}

fn permit(line: &OwnedFd, ticket: WebTicket) {
    let message = ticket.encode().unwrap();
    send(line.as_raw_fd(), &message, MsgFlags::MSG_NOSIGNAL).unwrap();
}

fn has_no_ticket<T: std::fmt::Debug>(answer: &Result<T, HttpFailure>) -> bool {
    matches!(answer, Err(HttpFailure::Fault(NetworkFault::NoTicket)))
}

#[test]
fn unnamed_hosts_are_not_reached() {
    let server = Server::start(|_, stream| says(stream, "", "secret"));
    let opened = policy(&format!(
        "private = ['127.0.0.1:{}']",
        server.url.port().unwrap()
    ));
    let begin = Begin {
        webs: vec![opened.own.clone()],
        named: vec![HostOrigin::of(&server.url)],
        requests: vec![NamedRequest::new("GET", &server.url)],
        ..Begin::default()
    };
    let model = |policy: &WebPolicy| By::Model(Box::new(policy.clone()));
    let image = |policy: &WebPolicy| By::ModelOfImage(Box::new(policy.clone()));
    let narrowed = WebPolicy {
        bounds: vec![WebTable::default()],
        ..opened.clone()
    };
    let ask = |begin: &Begin, by: By| {
        let gateway = begun(begin);
        block_on(get(&HostClient::new(gateway, by, &server.url), &server.url))
    };
    for by in [
        By::ProviderSettings,
        By::ServerSettings,
        model(&opened),
        model(&narrowed),
        image(&opened),
    ] {
        assert_eq!(
            ask(&begin, by.clone()).unwrap(),
            "secret",
            "control: {by:?}"
        );
    }
    let reached = server.connections();
    let nothing = Begin::default();
    for by in [By::ProviderSettings, By::ServerSettings] {
        let refused = ask(&nothing, by);
        assert!(
            matches!(refused, Err(HttpFailure::Fault(NetworkFault::NotNamed(_)))),
            "{refused:?}"
        );
    }
    for by in [model(&opened), image(&opened)] {
        let refused = ask(&nothing, by);
        assert!(
            matches!(refused, Err(HttpFailure::Fault(NetworkFault::NotPolicy))),
            "{refused:?}"
        );
    }
    // Whoever needs not be named reaches public places alone, and a server of the settings such as its own.
    let of_server = By::ServerOf(HostOrigin::of(&server.url));
    assert_eq!(ask(&begin, of_server.clone()).unwrap(), "secret");
    let reached = reached + 1;
    let of_repository = Begin {
        strangers: begin.named.clone(),
        ..Begin::default()
    };
    for by in [By::RepositorySettings, of_server] {
        let refused = ask(&of_repository, by.clone());
        let reach = matches!(
            refused,
            Err(HttpFailure::Fault(NetworkFault::Reach(
                ReachError::Address { .. }
            )))
        );
        assert!(reach, "{refused:?}");
        let refused = ask(&nothing, by);
        assert!(
            matches!(refused, Err(HttpFailure::Fault(NetworkFault::NotNamed(_)))),
            "{refused:?}"
        );
    }
    assert_eq!(server.connections(), reached);
}

/// What a provider's host does besides what a model needs: no process that hears the model can ask for it.
#[test]
fn provider_gets_the_requests_of_its_interface_alone() {
    let server = Server::start(|_, stream| says(stream, "", "done"));
    let at = |path: &str| server.url.join(path).unwrap();
    let named = |method: &str, path: &str| NamedRequest::new(method, &at(path));
    let gateway = begun(&Begin {
        requests: vec![
            named("POST", "/api/chat"),
            named("GET", "/v1/models?limit=9"),
        ],
        ..Begin::default()
    });
    let ask = |by: By, (method, path): (&str, &str)| {
        let client = HostClient::new(gateway.clone(), by, &server.url);
        let method = http::Method::from_bytes(method.as_bytes()).unwrap();
        block_on(async { text(client.to(method, &at(path)).send().await?).await })
    };
    for request in [("POST", "/api/chat"), ("GET", "/v1/models?limit=9")] {
        assert_eq!(
            ask(By::ProviderSettings, request).unwrap(),
            "done",
            "{request:?}"
        );
    }
    let reached = server.connections();
    for request in [
        ("POST", "/api/pull"),
        ("DELETE", "/api/chat"),
        ("GET", "/api/chat"),
        ("POST", "/api/chat?data"),
        ("POST", "/api/chat/"),
        ("POST", "/api//chat"),
        ("POST", "/api/%63hat"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models?limit=9&data"),
        ("PUT", "/v1/models?limit=9"),
    ] {
        let refused = ask(By::ProviderSettings, request);
        assert!(
            matches!(
                refused,
                Err(HttpFailure::Fault(NetworkFault::NotRequest(_)))
            ),
            "{request:?}: {refused:?}"
        );
    }
    // Nor does it become a server of the settings, whose requests are not listed.
    for by in [
        By::ServerSettings,
        By::ServerOf(HostOrigin::of(&server.url)),
    ] {
        let refused = ask(by, ("POST", "/api/pull"));
        assert!(
            matches!(refused, Err(HttpFailure::Fault(NetworkFault::NotNamed(_)))),
            "{refused:?}"
        );
    }
    assert_eq!(server.connections(), reached);
}

#[test]
fn servers_get_the_methods_of_their_interfaces_and_bodies_where_they_read_them() {
    let server = Server::start(|_, stream| says(stream, "", "done"));
    let gateway = begun(&Begin {
        named: vec![HostOrigin::of(&server.url)],
        ..Begin::default()
    });
    let ask = |method: &str, body: &'static str| {
        let client = HostClient::new(gateway.clone(), By::ServerSettings, &server.url);
        let method = http::Method::from_bytes(method.as_bytes()).unwrap();
        let request = client.to(method, &server.url);
        let request = match body {
            "" => request,
            body => request.body(body),
        };
        block_on(async { text(request.send().await?).await })
    };
    for (method, body) in [("GET", ""), ("DELETE", ""), ("POST", ""), ("POST", "x")] {
        assert_eq!(ask(method, body).unwrap(), "done", "{method}");
    }
    let reached = server.connections();
    for (method, body) in [
        ("TRACE", ""),
        ("PUT", "x"),
        ("GET", "x"),
        ("DELETE", "x"),
        ("QUERY", ""),
    ] {
        let refused = ask(method, body);
        let is_fault = matches!(
            refused,
            Err(HttpFailure::Fault(NetworkFault::NotRequest(_)))
        );
        assert!(is_fault, "{method} {body}: {refused:?}");
    }
    assert_eq!(server.connections(), reached);
}

/// A server that has been named, or its settings, refer to any address: a session reaches those alone at which a person has logged in.
#[test]
fn logins_lead_only_where_a_person_has_logged_in() {
    let server = Server::start(|_, stream| says(stream, "", "of the server"));
    let other = Server::start(|_, stream| says(stream, "", "of another"));
    let (origin, place) = (HostOrigin::of(&server.url), HostOrigin::of(&other.url));
    let with = |logins: LoginHosts| Begin {
        named: vec![origin.clone()],
        logins,
        ..Begin::default()
    };
    let recorded = |hosts: &[(&HostOrigin, &HostOrigin)]| {
        let hosts = hosts
            .iter()
            .map(|(server, host)| ((*server).clone(), (*host).clone()));
        with(LoginHosts::Recorded(hosts.collect()))
    };
    let ask = |begin: &Begin, url: &Url| {
        let client = HostClient::new(begun(begin), By::ServerOf(origin.clone()), url);
        block_on(get(&client, url))
    };
    for begin in [with(LoginHosts::Any), recorded(&[(&origin, &place)])] {
        assert_eq!(ask(&begin, &other.url).unwrap(), "of another", "control");
        assert_eq!(ask(&begin, &server.url).unwrap(), "of the server");
    }
    let reached = other.connections();
    let evil: Url = "https://evil.example/?data".parse().unwrap();
    for begin in [recorded(&[]), recorded(&[(&place, &place)])] {
        assert_eq!(ask(&begin, &server.url).unwrap(), "of the server");
        for url in [&other.url, &evil] {
            let refused = ask(&begin, url);
            assert!(
                matches!(
                    refused,
                    Err(HttpFailure::Fault(NetworkFault::NotOfLogin(_)))
                ),
                "{refused:?}"
            );
        }
    }
    assert_eq!(other.connections(), reached);
}

#[test]
fn requests_for_tokens_are_read_as_a_whole_and_have_limits() {
    const TOKENS: &str = r#"{"access_token":"a-real-token","scope":"x"}"#;
    let server = Server::start(|body, stream| match body {
        b"a=long" => says(
            stream,
            "",
            &format!(r#"{{"scope":"{}"}}"#, "x".repeat(LOGIN_BODY)),
        ),
        b"a=away" => {
            let away = "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(away.as_bytes()).is_ok()
        }
        _ => says(stream, "Set-Cookie: a-real-token\r\n", TOKENS),
    });
    let origin = HostOrigin::of(&server.url);
    let begin = |login_key| Begin {
        named: vec![origin.clone()],
        login_key,
        ..Begin::default()
    };
    let ask = |begin: &Begin, kind: &'static str, body: String| {
        let client = HostClient::new(begun(begin), By::ServerOf(origin.clone()), &server.url);
        let request = client.to(http::Method::POST, &server.url).body(body);
        let kind = http::HeaderValue::from_static(kind);
        let request = request.header(http::header::CONTENT_TYPE, kind);
        block_on(async {
            let answer = request.send().await?;
            let cookie = answer.headers().contains_key("set-cookie");
            text(answer).await.map(|text| (text, cookie))
        })
    };
    let form = "application/x-www-form-urlencoded";
    let own = || "grant_type=authorization_code&code=c".to_owned();
    let (answer, has_cookie) = ask(&begin(Some(0)), form, own()).unwrap();
    assert!(!answer.contains("a-real-token") && !has_cookie, "{answer}");
    assert!(
        answer.contains(r#""access_token":"lazaret-login-"#),
        "{answer}"
    );
    let (answer, _) = ask(&begin(Some(0)), "application/json", own()).unwrap();
    assert_eq!(answer, TOKENS, "control");
    let filled = |length: usize| format!("a={}", "x".repeat(length - 2));
    assert!(ask(&begin(Some(0)), form, filled(LOGIN_BODY)).is_ok());
    for (key, body) in [
        (None, own()),
        (Some(0), filled(LOGIN_BODY + 1)),
        (Some(0), "a=long".to_owned()),
        (Some(0), "a=away".to_owned()),
        (Some(0), "grant_type=client_credentials".to_owned()),
    ] {
        let refused = ask(&begin(key), form, body);
        let is_named = matches!(&refused, Err(HttpFailure::Fault(NetworkFault::Login(_))));
        assert!(is_named, "{refused:?}");
    }
}

/// A `lazaret` that was taken over may ask for what it likes.
#[test]
fn pages_need_tickets_and_each_is_good_for_one_request_that_says_nothing_else() {
    let server = Server::start(|_, stream| says(stream, "", "page"));
    let opened = policy(&format!(
        "private = ['127.0.0.1:{}']",
        server.url.port().unwrap()
    ));
    let begin = || Begin {
        webs: vec![opened.own.clone()],
        ..Begin::default()
    };
    let page = server.url.join("/a?b=c").unwrap();
    let leak = server.url.join("/a?data").unwrap();
    for by in [
        By::Model(Box::new(opened.clone())),
        By::ModelOfImage(Box::new(opened.clone())),
    ] {
        let ask = |gateway: ClientGateway, url: &Url| {
            block_on(get(&HostClient::new(gateway, by.clone(), url), url))
        };
        // The control: without a line, whatever the policy allows.
        assert_eq!(ask(begun(&begin()), &leak).unwrap(), "page");
        let (gateway, line) = begun_with_tickets(begin());
        let reached = server.connections();
        assert!(has_no_ticket(&ask(gateway.clone(), &page)));
        permit(&line, WebTicket::fetch(page.as_str()));
        assert!(has_no_ticket(&ask(gateway.clone(), &leak)));
        let client = HostClient::new(gateway.clone(), by.clone(), &page);
        let post = client.to(http::Method::POST, &page);
        assert!(has_no_ticket(&block_on(post.send())));
        let body = client.to(http::Method::GET, &page).body("data");
        assert!(has_no_ticket(&block_on(body.send())));
        assert!(has_no_ticket(&block_on(client.locate())));
        assert_eq!(server.connections(), reached, "nothing has left");
        assert_eq!(ask(gateway.clone(), &page).unwrap(), "page");
        assert!(has_no_ticket(&ask(gateway.clone(), &page)), "used twice");
        // Of a search, and what is no ticket.
        permit(&line, WebTicket::search(page.as_str()));
        send(line.as_raw_fd(), b"x", MsgFlags::MSG_NOSIGNAL).unwrap();
        assert!(has_no_ticket(&ask(gateway, &page)));
    }
}

/// The head of what a server got.
fn head_of(answered: &TcpListener) -> String {
    let (mut stream, _) = answered.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while reader.read_line(&mut head).is_ok_and(|count| count > 2) {}
    says(&mut stream, "", "page");
    head
}

#[test]
fn headers_of_a_page_say_nothing_of_their_own() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url: Url = format!("http://{}/", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let opened = policy(&format!("private = ['127.0.0.1:{}']", url.port().unwrap()));
    let begin = Begin {
        webs: vec![opened.own.clone()],
        ..Begin::default()
    };
    let (gateway, line) = begun_with_tickets(begin);
    permit(&line, WebTicket::fetch(url.as_str()));
    let heads = thread::spawn(move || head_of(&listener));
    let client = HostClient::new(gateway, By::Model(Box::new(opened)), &url);
    let value = http::HeaderValue::from_static;
    let request = client
        .to(http::Method::GET, &url)
        .header(http::header::ACCEPT, value("data-1"))
        .header(http::header::ACCEPT_ENCODING, value("gzip"))
        .header(http::header::USER_AGENT, value("data-2"))
        .header(http::header::COOKIE, value("data-3"));
    block_on(request.send()).unwrap();
    let head = heads.join().unwrap();
    assert!(!head.contains("data-"), "{head}");
    assert!(head.contains("gzip") && head.contains("lazaret/"), "{head}");
}

#[test]
fn redirects_that_the_gateway_has_seen_are_followed_within_the_policy() {
    let other = Server::start(|_, stream| says(stream, "", "other"));
    let location = other.url.to_string();
    let server = Server::start(move |_, stream| {
        let head =
            format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).is_ok()
    });
    let ports = [&server, &other].map(|server| server.url.port().unwrap());
    let both = policy(&format!(
        "private = ['127.0.0.1:{}', '127.0.0.1:{}']",
        ports[0], ports[1]
    ));
    let begin = Begin {
        webs: vec![both.own.clone()],
        ..Begin::default()
    };
    let (gateway, line) = begun_with_tickets(begin);
    let ask = |by: By, url: &Url| block_on(get(&HostClient::new(gateway.clone(), by, url), url));
    let model = || By::Model(Box::new(both.clone()));
    assert!(has_no_ticket(&ask(model(), &other.url)), "control");
    permit(&line, WebTicket::fetch(server.url.as_str()));
    assert_eq!(ask(model(), &server.url).unwrap(), "");
    assert_eq!(ask(model(), &other.url).unwrap(), "other");
    assert!(has_no_ticket(&ask(model(), &other.url)), "once");
    // An image is not redirected.
    permit(&line, WebTicket::fetch(server.url.as_str()));
    let image = By::ModelOfImage(Box::new(both.clone()));
    assert_eq!(ask(image, &server.url).unwrap(), "");
    assert!(has_no_ticket(&ask(model(), &other.url)));
}

#[test]
fn searches_need_tickets_for_their_words() {
    let server = Server::start(|_, stream| says(stream, "", "found"));
    let (gateway, line) = begun_with_engine(&server, &[("format", "json")]);
    let ask = |query: &str| search(&gateway, &server, query);
    permit(&line, WebTicket::search("two words"));
    for other in [
        "/search?q=data&format=json",
        "/search?q=two+words&format=data",
        "/search?q=two+words&format=json&x=data",
        "/search?q=two+words&q=data&format=json",
        "/search?q=two+words&format=json&count=data",
        "/search/data?q=two+words&format=json",
        "/?q=two+words&format=json",
        "/search",
    ] {
        assert!(has_no_ticket(&ask(other)), "{other}");
    }
    assert_eq!(server.connections(), 0);
    assert_eq!(
        ask("/search?q=two+words&format=json&count=5").unwrap(),
        "found"
    );
    assert!(has_no_ticket(&ask("/search?q=two+words&format=json")));
    let elsewhere: Url = "https://evil.example/search?q=two+words&format=json"
        .parse()
        .unwrap();
    let client = HostClient::new(gateway.clone(), By::Engine, &elsewhere);
    let refused = block_on(get(&client, &elsewhere));
    assert!(
        matches!(refused, Err(HttpFailure::Fault(NetworkFault::NotNamed(_)))),
        "{refused:?}"
    );
}

#[test]
fn of_more_tickets_than_are_held_the_oldest_is_void() {
    let server = Server::start(|_, stream| says(stream, "", "page"));
    let opened = policy(&format!(
        "private = ['127.0.0.1:{}']",
        server.url.port().unwrap()
    ));
    let begin = Begin {
        webs: vec![opened.own.clone()],
        ..Begin::default()
    };
    let (gateway, line) = begun_with_tickets(begin);
    let page = |number: usize| server.url.join(&format!("/{number}")).unwrap();
    let ask = |number: usize| {
        let by = By::Model(Box::new(opened.clone()));
        let url = page(number);
        block_on(get(&HostClient::new(gateway.clone(), by, &url), &url))
    };
    // More than the line holds: the gateway takes them although nobody asks for anything.
    for number in 0..=HELD_MAX {
        permit(&line, WebTicket::fetch(page(number).as_str()));
    }
    assert!(has_no_ticket(&ask(0)));
    for number in [1, HELD_MAX] {
        assert_eq!(ask(number).unwrap(), "page");
    }
}

#[test]
fn hosts_cannot_speak_for_the_gateway() {
    let server = Server::start(|_, stream| {
        let fault = serde_json::to_string(&NetworkFault::NotPolicy).unwrap();
        says(stream, "Lazaret-NetworkFault: 1\r\nx-own: 1\r\n", &fault)
    });
    let begin = Begin {
        requests: vec![NamedRequest::new("GET", &server.url)],
        ..Begin::default()
    };
    let client = HostClient::new(begun(&begin), By::ProviderSettings, &server.url);
    let response = block_on(client.to(http::Method::GET, &server.url).send()).unwrap();
    let headers = response.headers();
    assert!(headers.contains_key("x-own"));
    assert!(!headers.contains_key("lazaret-fault"));
    block_on(client.locate()).unwrap();
}

#[test]
fn closed_connection_is_reopened_for_an_unseen_request() {
    let server = Server::start(|body, stream| {
        says(stream, "", &String::from_utf8_lossy(body));
        body != b"last"
    });
    let begin = Begin {
        requests: vec![NamedRequest::new("POST", &server.url)],
        ..Begin::default()
    };
    let client = HostClient::new(begun(&begin), By::ProviderSettings, &server.url);
    let say = async |body: &str| {
        let request = client.to(http::Method::POST, &server.url);
        text(request.body(body.to_owned()).send().await.unwrap())
            .await
            .unwrap()
    };
    block_on(async {
        let first = say("a").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!((first, say("b").await), ("a".into(), "b".into()));
        assert_eq!(server.connections(), 1);
        assert_eq!(say("last").await, "last");
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(say("c").await, "c");
        // More on a busy machine: what has been answered is not back in its place yet.
        assert!(server.connections() >= 2);
        let elsewhere = "http://127.0.0.1:1/".parse().unwrap();
        let sent = client.to(http::Method::GET, &elsewhere).send().await;
        assert!(matches!(sent, Err(HttpFailure::Elsewhere)), "{sent:?}");
    });
}

#[test]
fn bodies_stream_in_both_directions() {
    const BYTES: usize = 8 << 20;
    let server = Server::start(|body, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            .unwrap();
        for piece in body.chunks(100_000) {
            let length = piece.len();
            stream
                .write_all(format!("{length:x}\r\n").as_bytes())
                .unwrap();
            stream.write_all(&[piece, b"\r\n"].concat()).unwrap();
        }
        stream.write_all(b"0\r\n\r\n").is_ok()
    });
    let begin = Begin {
        requests: vec![NamedRequest::new("POST", &server.url)],
        ..Begin::default()
    };
    let client = HostClient::new(begun(&begin), By::ProviderSettings, &server.url);
    let body: String = (0..BYTES)
        .map(|n| char::from(b'a' + (n % 23) as u8))
        .collect();
    let request = client
        .to(http::Method::POST, &server.url)
        .body(body.clone());
    let answer = block_on(async { text(request.send().await?).await }).unwrap();
    assert!(answer == body);
}

#[test]
fn broken_off_answer_is_an_error() {
    let server = Server::start(|_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            .unwrap();
        false
    });
    let begin = Begin {
        requests: vec![NamedRequest::new("GET", &server.url)],
        ..Begin::default()
    };
    let client = HostClient::new(begun(&begin), By::ProviderSettings, &server.url);
    let broken = block_on(get(&client, &server.url));
    assert!(matches!(broken, Err(HttpFailure::Broken(_))), "{broken:?}");
}

#[test]
fn frames_have_limits() {
    let server = Server::start(|_, stream| says(stream, "", "x"));
    let long = policy(&format!(
        "allow = [{}]",
        "'a.example', ".repeat(ASK_MAX / 11)
    ));
    let begin = Begin {
        requests: vec![NamedRequest::new("GET", &server.url)],
        ..Begin::default()
    };
    let gateway = begun(&begin);
    let client = HostClient::new(
        gateway.clone(),
        By::Model(Box::new(long.clone())),
        &server.url,
    );
    let refused = block_on(get(&client, &server.url));
    let gateway_error = ClientGatewayError::TooLong(ASK_MAX);
    assert!(
        matches!(&refused, Err(HttpFailure::Gateway(error)) if error.to_string() == gateway_error.to_string()),
        "{refused:?}"
    );
    // One that a client of another make sends is not read, and costs its own connection alone.
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    ours.write_all(&u32::try_from(BEGIN_MAX + 1).unwrap().to_be_bytes())
        .unwrap();
    assert!(super::accept::begin(&mut theirs).is_err());
    drop(ours);
    let client = HostClient::new(gateway, By::ProviderSettings, &server.url);
    assert_eq!(block_on(get(&client, &server.url)).unwrap(), "x");
}

/// What `lazaret` would send by itself is answered by `gateway`, which it asks for the host of `url`.
fn answer_to(gateway: &ClientGateway, by: By, url: &Url, request: &str) -> String {
    let ask = ConnectionAsk {
        by,
        url: url.to_string(),
    };
    block_on(async {
        let mut stream = gateway.connect(&ask).await.unwrap();
        let request = format!("{request}\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    })
}

#[test]
fn the_target_of_a_request_names_no_host() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url: Url = format!("http://{}/a", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let opened = policy(&format!("private = ['127.0.0.1:{}']", url.port().unwrap()));
    let begin = || Begin {
        webs: vec![opened.own.clone()],
        requests: [("GET", "/a"), ("POST", "/x"), ("GET", "/")]
            .map(|(method, path)| NamedRequest::new(method, &url.join(path).unwrap()))
            .to_vec(),
        ..Begin::default()
    };
    let place = format!("host: 127.0.0.1:{}\r\n", url.port().unwrap());
    for (by, request, line) in [
        (
            By::ProviderSettings,
            "GET /a HTTP/1.0",
            "GET /a HTTP/1.1\r\n",
        ),
        (
            By::ProviderSettings,
            "POST http://evil.example/x HTTP/1.1",
            "POST /x HTTP/1.1\r\n",
        ),
        (
            By::ProviderSettings,
            "GET DATA.evil.example:443 HTTP/1.1",
            "GET / HTTP/1.1\r\n",
        ),
        (
            By::Model(Box::new(opened.clone())),
            "GET http://DATA@127.0.0.1/a HTTP/1.1",
            "GET /a HTTP/1.1\r\n",
        ),
        (
            By::Model(Box::new(opened.clone())),
            "GET https://evil.example:8443/a HTTP/1.1",
            "GET /a HTTP/1.1\r\n",
        ),
    ] {
        let (gateway, tickets) = begun_with_tickets(begin());
        permit(&tickets, WebTicket::fetch(url.as_str()));
        let accepting = listener.try_clone().unwrap();
        let heads = thread::spawn(move || head_of(&accepting));
        let answer = answer_to(&gateway, by, &url, request);
        assert!(answer.contains("page"), "{request}: {answer}");
        let head = heads.join().unwrap();
        assert!(head.starts_with(line), "{request}: {head}");
        assert!(head.to_lowercase().contains(&place), "{request}: {head}");
        assert!(
            !head.contains("evil") && !head.contains("DATA"),
            "{request}: {head}"
        );
    }
    let (gateway, _tickets) = begun_with_tickets(begin());
    listener.set_nonblocking(true).unwrap();
    let answer = answer_to(
        &gateway,
        By::ProviderSettings,
        &url,
        "CONNECT evil.example:443 HTTP/1.1",
    );
    assert!(!answer.contains("page"), "{answer}");
    assert!(listener.accept().is_err(), "nobody was reached");
}

#[test]
fn bounds_name_no_host_of_a_redirect() {
    let other = Server::start(|_, stream| says(stream, "", "other"));
    let to = format!("http://localhost:{}/x", other.url.port().unwrap());
    let location = to.clone();
    let server = Server::start(move |_, stream| {
        let head =
            format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).is_ok()
    });
    let to: Url = to.parse().unwrap();
    for (allowed, bound) in [("'*'", "'*', 'localhost'"), ("'*', 'localhost'", "'*'")] {
        let private = "private = ['127.0.0.0/8', '::1/128']";
        let own = policy(&format!("allow = [{allowed}]\n{private}")).own;
        let chosen = WebPolicy {
            own: own.clone(),
            bounds: vec![policy(&format!("allow = [{bound}]")).own],
        };
        let (gateway, line) = begun_with_tickets(Begin {
            webs: vec![own],
            ..Begin::default()
        });
        let ask = |url: &Url| {
            let by = By::Model(Box::new(chosen.clone()));
            block_on(get(&HostClient::new(gateway.clone(), by, url), url))
        };
        permit(&line, WebTicket::fetch(server.url.as_str()));
        assert_eq!(ask(&server.url).unwrap(), "");
        // The control: the profile itself names it.
        match allowed.contains("localhost") {
            true => assert_eq!(ask(&to).unwrap(), "other"),
            false => assert!(has_no_ticket(&ask(&to))),
        }
    }
}

#[test]
fn the_spelling_of_a_search_says_nothing() {
    let server = Server::start(|_, stream| says(stream, "", "found"));
    let (gateway, line) = begun_with_engine(&server, &[]);
    let ask = |query: &str| search(&gateway, &server, query);
    permit(&line, WebTicket::search("two words"));
    for query in [
        "/search?q=two+words&count=05",
        "/search?q=t%77o+words",
        "/search?q=two%20words",
        "/search?q=two+words&count=1&count=2",
        "/search?&&q=two+words&",
        "/search?q=two+words&q=x",
    ] {
        assert!(has_no_ticket(&ask(query)), "{query}");
    }
    assert_eq!(ask("/search?q=two+words&count=5").unwrap(), "found");
}
