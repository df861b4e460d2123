//! Requests through a gateway, against real servers on this machine.

use super::admit::AllowedHosts;
use super::in_process::on_thread;
use crate::System;
use orchestrator_http::ask::{ASK_MAX, BEGIN_MAX, Begin, By, HostOrigin, NetworkFault};
use orchestrator_http::{ClientGateway, ClientGatewayError, HostClient, HttpFailure, Response};
use orchestrator_reach::ReachError;
use policies::WebPolicy;
use policies::web::WebTable;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
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
    on_thread(System, begin, AllowedHosts::Begun).unwrap()
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
        By::Settings,
        By::User,
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
    for by in [By::Settings, By::User] {
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
    for (begin, by) in [(&begin, By::Stranger), (&nothing, of_server)] {
        let refused = ask(begin, by);
        let reach = matches!(
            refused,
            Err(HttpFailure::Fault(NetworkFault::Reach(
                ReachError::Address { .. }
            )))
        );
        assert!(reach, "{refused:?}");
    }
    assert_eq!(server.connections(), reached);
}

#[test]
fn hosts_cannot_speak_for_the_gateway() {
    let server = Server::start(|_, stream| {
        let fault = serde_json::to_string(&NetworkFault::NotPolicy).unwrap();
        says(stream, "Lazaret-NetworkFault: 1\r\nx-own: 1\r\n", &fault)
    });
    let begin = Begin {
        named: vec![HostOrigin::of(&server.url)],
        ..Begin::default()
    };
    let client = HostClient::new(begun(&begin), By::Settings, &server.url);
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
        named: vec![HostOrigin::of(&server.url)],
        ..Begin::default()
    };
    let client = HostClient::new(begun(&begin), By::Settings, &server.url);
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
        named: vec![HostOrigin::of(&server.url)],
        ..Begin::default()
    };
    let client = HostClient::new(begun(&begin), By::Settings, &server.url);
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
        named: vec![HostOrigin::of(&server.url)],
        ..Begin::default()
    };
    let client = HostClient::new(begun(&begin), By::Settings, &server.url);
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
        named: vec![HostOrigin::of(&server.url)],
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
    let client = HostClient::new(gateway, By::Settings, &server.url);
    assert_eq!(block_on(get(&client, &server.url)).unwrap(), "x");
}
