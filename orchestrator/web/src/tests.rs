//! Attacks on the web tools, against real servers on this machine: each works if a line of the policy permits it.

use crate::client::WebClient;
use crate::error::{HttpError, WebError};
use crate::fetch::Page;
use crate::http;
use crate::request::{FetchRequest, REDIRECTS_MAX, SearchRequest, ViewRequest};
use crate::search::SearchEngines;
use orchestrator_gateway::System;
use orchestrator_gateway::client::in_process;
use orchestrator_reach::ReachError;
use orchestrator_reach::guard::Resolve;
use orchestrator_reach::target::Target;
use orchestrator_results::image::{self, Image};
use policies::web::WebTable;
use policies::{PolicyError, WebPolicy};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A server's response to the first line of a request.
type Handler = dyn Fn(&str, &mut TcpStream) -> io::Result<()> + Send + Sync;

/// A server on this machine, and the requests it has received.
struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn at(address: SocketAddr, handler: Arc<Handler>) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let requests = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (requests, handler) = (requests.clone(), handler.clone());
                thread::spawn(move || serve(stream.unwrap(), &requests, &*handler));
            }
        });
        Self { address, seen }
    }

    fn start(
        handler: impl Fn(&str, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::at((Ipv4Addr::LOCALHOST, 0).into(), Arc::new(handler))
    }

    /// One that says nothing until the client has ended the connection.
    fn silent() -> Self {
        Self::start(|_, stream| stream.read(&mut [0]).map(drop))
    }

    fn saying(text: &'static str) -> Self {
        Self::start(move |_, stream| answer(stream, "text/plain", text.as_bytes()))
    }

    fn seen(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<String>>, handler: &Handler) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count > 0) {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let first = head.lines().next().unwrap_or_default().to_owned();
    seen.lock().unwrap().push(head);
    let _ = handler(&first, &mut stream);
}

fn answer(stream: &mut TcpStream, media: &str, body: &[u8]) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

fn redirect(stream: &mut TcpStream, to: &str) -> io::Result<()> {
    stream.write_all(
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").as_bytes(),
    )
}

/// A resolver whose answers change: each query gets the next answer, and the last one stays.
#[derive(Default)]
struct Changing {
    answers: Vec<Vec<IpAddr>>,
    asked: AtomicUsize,
    names: Mutex<Vec<String>>,
}

impl Changing {
    fn shared(answers: &[&[&str]]) -> Shared {
        let parsed = |answer: &&[&str]| {
            answer
                .iter()
                .map(|address| address.parse().unwrap())
                .collect()
        };
        Shared(Arc::new(Self {
            answers: answers.iter().map(parsed).collect(),
            ..Self::default()
        }))
    }
}

/// One that a gateway and a test share.
#[derive(Clone)]
struct Shared(Arc<Changing>);

impl Resolve for Shared {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let turn = self
            .0
            .asked
            .fetch_add(1, Ordering::SeqCst)
            .min(self.0.answers.len().saturating_sub(1));
        self.0.names.lock().unwrap().push(host.to_owned());
        let answer = self
            .0
            .answers
            .get(turn)
            .ok_or_else(|| io::Error::other("no such name"))?;
        Ok(answer
            .iter()
            .map(|address| SocketAddr::new(*address, port))
            .collect())
    }
}

fn client<R: Resolve + Send + 'static>(policy: &str, resolver: R) -> WebClient {
    let own: WebTable = toml::from_str(policy).unwrap();
    let engines = SearchEngines {
        searxng: None,
        brave_key: None,
        brave: "https://api.search.brave.com".into(),
    };
    WebClient::with_gateway(
        Ok(WebPolicy {
            own,
            bounds: vec![],
        }),
        engines,
        Some(in_process(resolver).unwrap()),
    )
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn get(client: &WebClient, url: &str) -> Result<Page, WebError> {
    get_within(client, url, 20)
}

fn get_within(client: &WebClient, url: &str, timeout_s: u32) -> Result<Page, WebError> {
    let wanted = FetchRequest {
        target: Target::parse(url).unwrap(),
        selector: None,
        shown: 1000,
        timeout_s,
    };
    block_on(client.fetch(&wanted))
}

/// Fetches from a server that a line of the policy opens.
fn fetch(server: &Server) -> Result<Page, WebError> {
    get(
        &client(&format!("private = ['{}']", server.address), System),
        &server.url("/"),
    )
}

/// Two servers on one port: an honest one, and one at an address that must not be reached.
fn pair() -> (Server, Server) {
    let secret: Arc<Handler> =
        Arc::new(|_, stream: &mut TcpStream| answer(stream, "text/plain", b"SECRET"));
    loop {
        let honest = Server::saying("honest");
        let other = SocketAddr::from(([127, 0, 0, 2], honest.address.port()));
        if TcpListener::bind(other).is_ok() {
            return (honest, Server::at(other, secret));
        }
    }
}

/// A careless client: resolves the name, checks the answer, and then connects by name, which resolves it again.
fn careless(resolver: &Shared, host: &str, port: u16, allowed: IpAddr) -> String {
    block_on(async {
        let checked = resolver.resolve(host, port).await.unwrap();
        assert!(
            checked.iter().all(|address| address.ip() == allowed),
            "the check itself holds"
        );
        let used = resolver.resolve(host, port).await.unwrap();
        let mut stream = TcpStream::connect(&used[..]).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    })
}

#[test]
fn a_resolver_that_changes_its_answer_gets_nobody_elsewhere() {
    let (honest, secret) = pair();
    let port = honest.address.port();
    let url = format!("http://rebind.example:{port}/");
    let line = format!("allow = ['*']\nprivate = ['127.0.0.1:{port}']");
    let rebinding = [&["127.0.0.1"][..], &["127.0.0.2"]];

    // The attack works against a client that checks one answer and uses the next.
    let got = careless(
        &Changing::shared(&rebinding),
        "rebind.example",
        port,
        Ipv4Addr::LOCALHOST.into(),
    );
    assert!(got.ends_with("SECRET"), "{got}");
    assert_eq!(secret.seen(), 1);

    let resolver = Changing::shared(&rebinding);
    assert_eq!(
        get(&client(&line, resolver.clone()), &url).unwrap().text,
        "honest"
    );
    assert_eq!(
        (resolver.0.asked.load(Ordering::SeqCst), secret.seen()),
        (1, 1)
    );
    // Each later call resolves the name again, and the changed answer is refused.
    let refused = get(&client(&line, resolver.clone()), &url);
    assert!(
        matches!(refused, Err(WebError::Reach(ReachError::Address { .. }))),
        "{refused:?}"
    );
    // If one of several addresses is bad, the name is refused before any is tried.
    for mixed in [["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"]] {
        let resolver = Changing::shared(&[&mixed]);
        let refused = get(&client(&line, resolver.clone()), &url);
        assert!(
            matches!(refused, Err(WebError::Reach(ReachError::Address { .. }))),
            "{refused:?}"
        );
    }
    assert_eq!(secret.seen(), 1);
    // A policy line for the address opens it.
    let resolver = Changing::shared(&[&["127.0.0.2"]]);
    let opened = client("allow = ['*']\nprivate = ['127.0.0.0/8']", resolver.clone());
    assert_eq!(get(&opened, &url).unwrap().text, "SECRET");
}

#[test]
fn a_redirection_reaches_nothing_that_the_first_request_could_not() {
    let (honest, secret) = pair();
    drop(honest);
    let port = secret.address.port();
    let names = [
        "127.0.0.2",
        "2130706434",
        "0x7f.2",
        "0177.0.0.2",
        "127.2",
        "[::ffff:127.0.0.2]",
        "127.0.0.2.",
        "evil.example",
    ];
    let mut refused = 0;
    for name in names {
        let to = format!("http://{name}:{port}/");
        let at = to.clone();
        let door = Server::start(move |_, stream| redirect(stream, &at));
        let host = Target::parse(&to).unwrap().host().to_owned();
        let resolver = Changing::shared(&[&["127.0.0.2"]]);
        let start = format!("private = ['{}'", door.address);
        // By default a redirect to another host is not followed,
        let unnamed = client(&format!("allow = ['*']\n{start}]"), resolver.clone());
        assert!(
            matches!(
                get(&unnamed, &door.url("/")),
                Err(WebError::OtherHost { .. })
            ),
            "{name}"
        );
        // and one to a host named in the policy is checked like a first target.
        let named = client(
            &format!("allow = ['*', '{host}']\n{start}]"),
            resolver.clone(),
        );
        assert!(
            matches!(
                get(&named, &door.url("/")),
                Err(WebError::Reach(ReachError::Address { .. }))
            ),
            "{name}"
        );
        assert_eq!(secret.seen(), refused, "{name}");
        let open = client(
            &format!("allow = ['*', '{host}']\n{start}, '127.0.0.0/8']"),
            resolver.clone(),
        );
        assert_eq!(get(&open, &door.url("/")).unwrap().text, "SECRET", "{name}");
        refused += 1;
    }
    // The user part of a URL does not make another host the same.
    let user =
        Server::start(move |_, stream| redirect(stream, &format!("http://u@127.0.0.2:{port}/")));
    assert!(matches!(fetch(&user), Err(WebError::Redirect(_))));
    for scheme in [
        "file:///etc/passwd",
        "gopher://127.0.0.2/",
        "ftp://127.0.0.2/",
        "data:text/plain,x",
        "http://",
    ] {
        let other = Server::start(move |_, stream| redirect(stream, scheme));
        assert!(
            matches!(fetch(&other), Err(WebError::Redirect(_))),
            "{scheme}"
        );
    }
    assert_eq!(secret.seen(), refused);
    println!(
        "{} redirections refused, and followed where a line opens their end",
        refused
    );
}

#[test]
fn ten_redirections_are_followed_and_not_eleven() {
    let server = Server::start(|first, stream| {
        let left: usize = first.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        if left == 0 {
            answer(stream, "text/plain", b"end")
        } else {
            redirect(stream, &format!("/{}", left - 1))
        }
    });
    let client = client(&format!("private = ['{}']", server.address), System);
    let page = get(&client, &server.url(&format!("/{REDIRECTS_MAX}"))).unwrap();
    assert_eq!(
        (page.text.as_str(), page.target.to_string()),
        ("end", server.url("/0"))
    );
    assert_eq!(server.seen(), REDIRECTS_MAX + 1);
    assert_eq!(get(&client, &server.url("/11")), Err(WebError::Redirects));
    assert_eq!(server.seen(), 2 * (REDIRECTS_MAX + 1));
    let looping = Server::start(|_, stream| redirect(stream, ""));
    assert_eq!(fetch(&looping), Err(WebError::Redirects));
}

#[test]
fn a_name_is_asked_for_as_it_is_reached() {
    let server = Server::saying("x");
    let port = server.address.port();
    let resolver = Changing::shared(&[&["127.0.0.1"]]);
    let client = client(
        &format!("private = ['box.example:{port}']"),
        resolver.clone(),
    );
    assert!(get(&client, &format!("http://BOX.example.:{port}/p#f")).is_ok());
    assert_eq!(*resolver.0.names.lock().unwrap(), ["box.example"]);
    let head = server.seen.lock().unwrap()[0].to_lowercase();
    assert!(
        head.starts_with("get /p http/1.1\r\n")
            && head.contains(&format!("host: box.example:{port}\r\n")),
        "{head}"
    );
    assert!(
        !head.contains("referer") && !head.contains("cookie") && !head.contains("authorization"),
        "{head}"
    );
}

/// A server that declares an endless body and sends `bytes` of it.
fn pouring(head: &'static str, bytes: usize) -> Server {
    Server::start(move |_, stream| {
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{head}\r\n"
        )?;
        let piece = vec![b'x'; 1 << 16];
        let mut left = bytes;
        while left > 0 {
            let count = left.min(piece.len());
            stream.write_all(&piece[..count])?;
            left -= count;
        }
        Ok(())
    })
}

#[test]
fn a_body_is_read_to_its_bound_and_not_further() {
    for (bytes, whole) in [
        (0, true),
        (http::BODY_MAX, true),
        (http::BODY_MAX + 1, false),
        (1 << 30, false),
    ] {
        let begun = Instant::now();
        let page = fetch(&pouring("Connection: close\r\n", bytes)).unwrap();
        assert_eq!(
            (page.text.len(), page.complete),
            (bytes.min(http::BODY_MAX), whole),
            "{bytes}"
        );
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "a gigabyte was waited for"
        );
    }
    // A body that is shorter than declared is an error.
    let broken = fetch(&pouring("Content-Length: 100\r\n", 50));
    assert!(
        matches!(broken, Err(WebError::Http(HttpError::Broken(_)))),
        "{broken:?}"
    );
}

fn packed(bytes: usize) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let piece = vec![b'x'; 1 << 16];
    for _ in 0..bytes / piece.len() {
        encoder.write_all(&piece).unwrap();
    }
    encoder.write_all(&piece[..bytes % piece.len()]).unwrap();
    encoder.finish().unwrap()
}

fn serving_packed(how: &'static str, body: Vec<u8>) -> Server {
    Server::start(move |_, stream| {
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: {how}\r\nContent-Length: {length}\r\n\r\n"
        )?;
        stream.write_all(&body)
    })
}

#[test]
fn compressed_body_is_limited_by_its_unpacked_size() {
    for (bytes, whole) in [
        (http::BODY_MAX, true),
        (http::BODY_MAX + 1, false),
        (500 << 20, false),
    ] {
        let body = packed(bytes);
        let (small, begun) = (body.len(), Instant::now());
        let page = fetch(&serving_packed("gzip", body)).unwrap();
        assert_eq!(
            (page.text.len(), page.complete),
            (bytes.min(http::BODY_MAX), whole)
        );
        println!(
            "{small} bytes that unpack to {bytes}: {:?}",
            begun.elapsed()
        );
    }
    for how in [
        "br",
        "zstd",
        "gzip, gzip",
        "gzip\r\nContent-Encoding: gzip",
        "x",
    ] {
        let refused = fetch(&serving_packed(how, packed(10)));
        assert!(
            matches!(refused, Err(WebError::Http(HttpError::Compressed(_)))),
            "{how}: {refused:?}"
        );
    }
    assert!(matches!(
        fetch(&serving_packed("gzip", b"no gzip".to_vec())),
        Err(WebError::Http(HttpError::Broken(_)))
    ));
}

/// Compressed bytes that decompress to nothing: endless empty blocks, and endless empty members.
#[test]
fn packed_bytes_that_stand_for_nothing_are_counted_too() {
    const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    const EMPTY_BLOCK: [u8; 5] = [0, 0, 0, 0xff, 0xff];
    let endless = |first: Vec<u8>, again: Vec<u8>| {
        Server::start(move |_, stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n")?;
            stream.write_all(&first)?;
            loop {
                stream.write_all(&again)?;
            }
        })
    };
    for (first, again) in [
        (HEAD.to_vec(), EMPTY_BLOCK.repeat(1000)),
        (Vec::new(), packed(0).repeat(1000)),
    ] {
        let begun = Instant::now();
        let server = endless(first, again);
        let client = client(&format!("private = ['{}']", server.address), System);
        let page = get_within(&client, &server.url("/"), 120).unwrap();
        assert_eq!((page.text.len(), page.complete), (0, false));
        println!("ended after {:?}", begun.elapsed());
    }
}

#[test]
fn the_time_limit_is_for_all_of_it() {
    let silent = Server::silent();
    let dripping = Server::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")?;
        loop {
            stream.write_all(b"x")?;
            thread::sleep(Duration::from_millis(50));
        }
    });
    let wandering = Server::start(|_, stream| {
        thread::sleep(Duration::from_millis(300));
        redirect(stream, "/")
    });
    for server in [silent, dripping, wandering] {
        let client = client(&format!("private = ['{}']", server.address), System);
        let begun = Instant::now();
        assert_eq!(
            get_within(&client, &server.url("/"), 1),
            Err(WebError::TimedOut(1))
        );
        let took = begun.elapsed();
        assert!((900..15_000).contains(&took.as_millis()), "{took:?}");
    }
}

#[test]
fn only_texts_come_through_and_in_their_encoding() {
    let page = |media: &'static str, body: &'static [u8]| {
        fetch(&Server::start(move |_, stream| answer(stream, media, body)))
    };
    assert_eq!(
        page("text/plain; charset=iso-8859-1", b"caf\xe9")
            .unwrap()
            .text,
        "café"
    );
    let html = page(
        "text/html; charset=utf-8",
        b"<title>T</title><p>a <a href=/x>b</a>",
    )
    .unwrap();
    assert_eq!(html.title.as_deref(), Some("T"));
    assert!(
        html.text.starts_with("a [b](http://127.0.0.1:"),
        "{}",
        html.text
    );
    assert_eq!(
        page("application/json", b"{\"a\":1}").unwrap().text,
        "{\"a\":1}"
    );
    assert_eq!(page("", b"plain").unwrap().text, "plain");
    for (media, body) in [
        ("image/png", &b"\x89PNG"[..]),
        ("application/octet-stream", b"text"),
        ("application/pdf", b"%PDF"),
        ("", b"a\0b"),
        ("text/plain", b"\x7fELF\0\0"),
    ] {
        let refused = page(media, body);
        assert!(
            matches!(refused, Err(WebError::NotText(_))),
            "{media}: {refused:?}"
        );
    }
    for (status, want) in [
        ("404 Not Found", 404),
        ("500 Oops", 500),
        ("204 No Content", 0),
        ("304 Not Modified", 304),
    ] {
        let got = fetch(&Server::start(move |_, stream| {
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
        }));
        match want {
            0 => assert_eq!(got.unwrap().text, ""),
            status => assert_eq!(got, Err(WebError::Http(HttpError::Status(status)))),
        }
    }
    let nonsense = fetch(&Server::start(|_, stream| {
        stream.write_all(b"SSH-2.0-x\r\n")
    }));
    assert!(
        matches!(nonsense, Err(WebError::Http(HttpError::Connect(_)))),
        "{nonsense:?}"
    );
}

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// A file of `bytes` bytes that begins like a PNG.
fn png(bytes: usize) -> Vec<u8> {
    let mut png = PNG.to_vec();
    png.resize(bytes, b'x');
    png
}

fn fetch_image(client: &WebClient, url: &str, timeout_s: u32) -> Result<Image, WebError> {
    block_on(client.view(&ViewRequest {
        target: Target::parse(url).unwrap(),
        timeout_s,
    }))
}

/// Fetches an image from a server that a line of the policy opens.
fn view(server: &Server) -> Result<Image, WebError> {
    fetch_image(
        &client(&format!("private = ['{}']", server.address), System),
        &server.url("/"),
        20,
    )
}

#[test]
fn an_image_is_what_its_bytes_are_and_whole_or_nothing() {
    let most = image::MAX as usize;
    let serving =
        |media: &'static str, body: Vec<u8>| Server::start(move |_, s| answer(s, media, &body));
    for (media, body, want) in [
        ("image/png", png(9), "image/png"),
        ("image/png; q=1", b"\xff\xd8\xff\xe0".to_vec(), "image/jpeg"),
        ("", b"GIF89a".to_vec(), "image/gif"),
        (
            "application/octet-stream",
            b"RIFF\0\0\0\0WEBP".to_vec(),
            "image/webp",
        ),
        ("image/png", png(most), "image/png"),
    ] {
        let server = serving(media, body.clone());
        assert_eq!(
            view(&server),
            Ok(Image {
                media_type: want,
                data: body
            }),
            "{media}"
        );
        let head = server.seen.lock().unwrap()[0].to_lowercase();
        assert!(
            head.contains("accept: image/png, image/jpeg, image/gif, image/webp\r\n"),
            "{head}"
        );
    }
    for (media, body) in [
        ("text/html", png(9)),
        ("application/json", png(9)),
        ("text/plain", b"x".to_vec()),
    ] {
        let refused = view(&serving(media, body));
        assert!(
            matches!(refused, Err(WebError::NotImage(_))),
            "{media}: {refused:?}"
        );
    }
    for body in [
        &b"<svg xmlns='http://www.w3.org/2000/svg'/>"[..],
        b"<html>",
        b"",
        b"\x89PNG",
    ] {
        let refused = view(&serving("image/png", body.to_vec()));
        assert!(matches!(refused, Err(WebError::Image(_))), "{refused:?}");
    }
    // Too large by the declared, the received and the decompressed size.
    let promising = Server::start(|_, s| {
        s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5000001\r\n\r\n\x89PNG")
    });
    assert_eq!(view(&promising), Err(WebError::LargeImage));
    assert_eq!(
        view(&serving("image/png", png(most + 1))),
        Err(WebError::LargeImage)
    );
    let endless = Server::start(|_, stream| {
        stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nConnection: close\r\n\r\n",
        )?;
        loop {
            stream.write_all(&[b'x'; 1 << 16])?;
        }
    });
    assert_eq!(view(&endless), Err(WebError::LargeImage));
    let packed = packed(most + 1);
    let bomb = Server::start(move |_, stream| {
        let length = packed.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n"
        )?;
        stream.write_all(&packed)
    });
    assert_eq!(view(&bomb), Err(WebError::LargeImage));
    let gone =
        Server::start(|_, stream| stream.write_all(b"HTTP/1.1 404 N\r\nContent-Length: 0\r\n\r\n"));
    assert_eq!(view(&gone), Err(WebError::Http(HttpError::Status(404))));
    let silent = Server::silent();
    let open = client(&format!("private = ['{}']", silent.address), System);
    assert_eq!(
        fetch_image(&open, &silent.url("/"), 1),
        Err(WebError::TimedOut(1))
    );
}

/// Only over HTTPS, without redirects, and from no address from which a page would not be fetched.
#[test]
fn an_image_comes_from_nowhere_that_its_address_does_not_say() {
    let image = Server::start(|_, stream| answer(stream, "image/png", PNG));
    let closed = client("allow = ['*']", System);
    assert!(matches!(
        fetch_image(&closed, &image.url("/"), 20),
        Err(WebError::Reach(ReachError::Address { .. }))
    ));
    assert!(matches!(
        fetch_image(&client("", System), "https://a.example/", 20),
        Err(WebError::Reach(ReachError::Host { .. }))
    ));
    assert_eq!(image.seen(), 0);
    assert!(view(&image).is_ok());

    // Not even to the same host, where a page's redirect would be followed.
    let door = Server::start(|first, stream| match first.starts_with("GET /a ") {
        true => redirect(stream, "/b"),
        false => answer(stream, "text/plain", PNG),
    });
    let open = client(&format!("private = ['{}']", door.address), System);
    assert!(get(&open, &door.url("/a")).is_ok());
    let before = door.seen();
    let moved = fetch_image(&open, &door.url("/a"), 20);
    assert_eq!(
        moved,
        Err(WebError::Moved {
            to: Target::parse(&door.url("/b")).unwrap()
        })
    );
    assert_eq!(door.seen(), before + 1);
    let file = Server::start(|_, stream| redirect(stream, "file:///etc/passwd"));
    assert!(matches!(view(&file), Err(WebError::Redirect(_))));

    // Without TLS only from this machine, whatever the policy permits for pages.
    let plain = "allow = ['*']\nhttp = ['*']\nprivate = ['10.0.0.0/8', '127.0.0.0/8', '::1/128']";
    let port = image.address.port();
    for (address, here) in [
        ("127.0.0.1", true),
        ("::ffff:127.0.0.1", true),
        ("10.1.2.3", false),
        ("1.2.3.4", false),
    ] {
        let resolver = Changing::shared(&[&[address]]);
        let seen = fetch_image(
            &client(plain, resolver.clone()),
            &format!("http://a.example:{port}/"),
            20,
        );
        match here {
            true => assert!(seen.is_ok(), "{address}: {seen:?}"),
            false => assert_eq!(seen, Err(WebError::PlainImage), "{address}"),
        }
    }
    // A name with any non-local address is not this machine's.
    let resolver = Changing::shared(&[&["127.0.0.1", "10.1.2.3"]]);
    let mixed = fetch_image(
        &client(plain, resolver.clone()),
        &format!("http://a.example:{port}/"),
        20,
    );
    assert_eq!(mixed, Err(WebError::PlainImage));
}

#[test]
fn without_a_policy_nothing_is_reached() {
    let server = Server::saying("x");
    let broken = PolicyError::NoProfile {
        profile: "x".into(),
        known: String::new(),
    };
    let engines = SearchEngines {
        searxng: Some(server.url("")),
        brave_key: None,
        brave: String::new(),
    };
    let client = WebClient::with_gateway(Err(broken), engines, in_process(System).ok());
    assert!(matches!(
        get(&client, &server.url("/")),
        Err(WebError::Policy(_))
    ));
    let search = SearchRequest {
        query: "x".into(),
        max_results: 1,
    };
    assert!(matches!(
        block_on(client.search(&search)),
        Err(WebError::Policy(_))
    ));
    assert!(matches!(
        fetch_image(&client, &server.url("/"), 20),
        Err(WebError::Policy(_))
    ));
    assert_eq!(server.seen(), 0);
}
