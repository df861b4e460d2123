//! The web tools from the command line, with engines and pages on this machine.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use broker_protocol::{FromBroker, Outcome, Request, Spill, ToBroker, Zone, ZonePath, limit};
use lazaret_fakes::{Broker, Script};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

const KEY: &str = "brave-key-5e0c";

/// What a server answers: status, media type, body.
type Answer = (u16, &'static str, Vec<u8>);

/// A server that answers every request alike, and what it has seen.
struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let requests = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), &answer, &requests);
            }
        });
        Self { address, seen }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, (status, media, body): &Answer, seen: &Mutex<Vec<String>>) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count > 0) {
        head.push(byte[0]);
    }
    seen.lock()
        .unwrap()
        .push(String::from_utf8_lossy(&head).into_owned());
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: {media}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body));
}

/// A configuration directory of a test.
struct Configuration(PathBuf);

impl Configuration {
    fn new(policy: &str) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "lazaret-web-{}-{}",
            std::process::id(),
            LAST.fetch_add(1, Ordering::Relaxed)
        );
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("lazaret")).unwrap();
        fs::write(
            folder.join("lazaret/policy.toml"),
            format!("version = 1\n{policy}"),
        )
        .unwrap();
        // Whatever our umask is: what others may write is no policy.
        for (path, mode) in [("lazaret", 0o755), ("lazaret/policy.toml", 0o644)] {
            fs::set_permissions(folder.join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        Self(folder)
    }
}

impl Drop for Configuration {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An executor that gives leave to everything that is not its own to do.
fn granting() -> Broker {
    let script = || -> Script {
        Box::new(|peer| {
            peer.open();
            let mut texts = BTreeMap::<_, u64>::new();
            loop {
                match peer.receive() {
                    Some(ToBroker::Call { call, request }) => {
                        assert!(matches!(request, Request::Effect(_)), "{request:?}");
                        peer.done(call, Outcome::Granted);
                    }
                    Some(ToBroker::Keep { call, bytes, last }) => {
                        assert!((1..=limit::CHUNK).contains(&bytes.len()));
                        *texts.entry(call).or_default() += bytes.len() as u64;
                        let path = ZonePath::new(Zone::Central, "outputs/1.log").unwrap();
                        let kept = last.then(|| {
                            Some(Spill {
                                path,
                                bytes: texts.remove(&call)?,
                                whole: true,
                            })
                        });
                        kept.into_iter()
                            .for_each(|spill| peer.send(&FromBroker::Kept { call, spill }));
                    }
                    _ => break,
                }
            }
        })
    };
    Broker::serving((0..32).map(|_| script()).collect())
}

/// What `lazaret` said: exit code, standard output, standard error.
type Said = (i32, String, String);

fn lazaret(
    configuration: &Configuration,
    environment: &[(&str, &str)],
    arguments: &[&str],
) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lazaret"));
    for name in ["SEARXNG_URL", "BRAVE_SEARCH_API_KEY", "BRAVE_SEARCH_URL"] {
        command.env_remove(name);
    }
    command
        .env("XDG_CONFIG_HOME", &configuration.0)
        .envs(environment.iter().copied());
    let broker = granting();
    command.arg("--socket").arg(broker.socket());
    let output = command
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let said = (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    );
    assert!(
        !said.1.contains(KEY) && !said.2.contains(KEY),
        "the key is in what is said: {said:?}"
    );
    said
}

fn search(environment: &[(&str, &str)], arguments: &[&str]) -> Said {
    let all = [
        &[
            "call",
            "web_search",
            r#"{"query":"sandbox rust","max_results":2}"#,
        ],
        arguments,
    ]
    .concat();
    lazaret(&Configuration::new(""), environment, &all)
}

fn searxng(results: Value) -> Server {
    Server::start((
        200,
        "application/json",
        json!({"query": "x", "results": results})
            .to_string()
            .into_bytes(),
    ))
}

fn brave(results: Value) -> Server {
    Server::start((
        200,
        "application/json",
        json!({"web": {"results": results}})
            .to_string()
            .into_bytes(),
    ))
}

fn three() -> Value {
    json!([
        {"title": "One", "url": "https://one.example/", "content": "First <b>page</b>", "engine": "bing"},
        {"title": "Two", "url": "https://two.example/", "content": "Second"},
        {"title": "Three", "url": "https://three.example/", "content": "Third"},
    ])
}

const TWO: &str = "1. One\n   https://one.example/\n   First page\n\n2. Two\n   https://two.example/\n   Second\n";

#[test]
fn searxng_answers_and_its_results_are_formatted() {
    let engine = searxng(three());
    let (code, out, said) = search(&[("SEARXNG_URL", &engine.url())], &[]);
    assert_eq!((code, out.as_str(), said.as_str()), (0, TWO, ""));
    let first = engine.seen()[0].lines().next().unwrap().to_owned();
    assert_eq!(
        first,
        "GET /search?q=sandbox+rust&format=json&engines=bing%2Cduckduckgo%2Cbrave HTTP/1.1"
    );
    let (_, out, _) = search(&[("SEARXNG_URL", &engine.url())], &["--json"]);
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(result["status"], "success");
    assert_eq!(
        (
            &result["metadata"]["provider"],
            &result["metadata"]["resultCount"]
        ),
        (&json!("searxng"), &json!(2))
    );
}

#[test]
fn brave_is_asked_where_searxng_has_nothing() {
    let results = json!([{"title": "B", "url": "https://b.example/", "description": "from <strong>Brave</strong>"}]);
    // Of an address of its own: at the others, a server of a test beside it may get the port meanwhile.
    let down = TcpListener::bind("127.0.0.2:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let failing = Server::start((500, "text/plain", b"oops".to_vec()));
    let empty = searxng(json!([]));
    let no_json = Server::start((200, "text/html", b"<html>".to_vec()));
    let mut asked = 0;
    for (name, base) in [
        ("down", format!("http://{down}")),
        ("failing", failing.url()),
        ("empty", empty.url()),
        ("no JSON", no_json.url()),
        ("not set up", String::new()),
    ] {
        let engine = brave(results.clone());
        let environment = [
            ("SEARXNG_URL", base.as_str()),
            ("BRAVE_SEARCH_API_KEY", KEY),
            ("BRAVE_SEARCH_URL", &engine.url()),
        ];
        let (code, out, said) = search(&environment, &["--json"]);
        let result: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, said.as_str()), (0, ""), "{name}");
        assert_eq!(
            result["result"], "1. B\n   https://b.example/\n   from Brave",
            "{name}"
        );
        assert_eq!(
            (
                &result["metadata"]["provider"],
                &result["metadata"]["resultCount"]
            ),
            (&json!("brave"), &json!(1))
        );
        let head = engine.seen()[0].clone();
        assert!(
            head.starts_with("GET /res/v1/web/search?q=sandbox+rust&count=2 HTTP/1.1\r\n"),
            "{head}"
        );
        assert!(
            head.to_lowercase()
                .contains(&format!("x-subscription-token: {KEY}\r\n")),
            "{head}"
        );
        asked += 1;
    }
    for server in [failing, empty, no_json] {
        assert!(!server.seen()[0].contains(KEY), "the key went to SearXNG");
    }
    println!("Brave was asked in {asked} cases");
}

#[test]
fn error_of_two_failed_engines_names_both_reasons() {
    // Of an address of its own: at the others, a server of a test beside it may get the port meanwhile.
    let down = TcpListener::bind("127.0.0.2:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let telling = Server::start((
        403,
        "text/plain",
        format!("your key {KEY} is wrong").into_bytes(),
    ));
    let (code, out, said) = search(
        &[
            ("SEARXNG_URL", &format!("http://{down}")),
            ("BRAVE_SEARCH_API_KEY", KEY),
            ("BRAVE_SEARCH_URL", &telling.url()),
        ],
        &["--json"],
    );
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (
            code,
            said.as_str(),
            &result["status"],
            &result["error"]["code"]
        ),
        (1, "", &json!("error"), &json!("io"))
    );
    let message = result["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("SearXNG: cannot connect: Connection refused"),
        "{message}"
    );
    assert!(message.contains("Brave: HTTP status 403"), "{message}");
    let (code, _, said) = search(&[], &[]);
    assert_eq!(code, 1);
    assert!(
        said.contains("SEARXNG_URL is not set") && said.contains("BRAVE_SEARCH_API_KEY is not set"),
        "{said}"
    );
}

#[test]
fn a_key_is_not_said_by_whoever_learns_it() {
    let hit = json!([{"title": KEY, "url": format!("https://b.example/{KEY}"), "description": format!("<b>{KEY}</b>")}]);
    let engine = brave(hit);
    let environment = [
        ("BRAVE_SEARCH_API_KEY", KEY),
        ("BRAVE_SEARCH_URL", engine.url().as_str()),
    ]
    .map(|(a, b)| (a, b.to_owned()));
    let environment: Vec<_> = environment
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let (code, out, _) = search(&environment, &[]);
    assert_eq!(code, 0);
    assert_eq!(
        out,
        "1. [redacted:BRAVE_SEARCH_API_KEY]\n   https://b.example/[redacted:BRAVE_SEARCH_API_KEY]\n   [redacted:BRAVE_SEARCH_API_KEY]\n"
    );
    // A redirection does not carry it elsewhere, and an address without TLS never gets it.
    let (code, _, said) = search(
        &[
            ("BRAVE_SEARCH_API_KEY", KEY),
            ("BRAVE_SEARCH_URL", "http://brave.example"),
        ],
        &[],
    );
    assert_eq!(code, 1);
    assert!(said.contains("unprotected"), "{said}");
}

#[test]
fn a_page_is_fetched_where_a_line_opens_it_and_refused_where_none_does() {
    let page = Server::start((
        200,
        "text/html",
        b"<title>T</title><h1>Hi</h1><p>there".to_vec(),
    ));
    let input = json!({"url": page.url(), "max_length": 8}).to_string();
    let call = ["call", "web_fetch", &input];
    let (code, out, said) = lazaret(&Configuration::new(""), &[], &call);
    assert_eq!((code, out.as_str()), (126, ""));
    assert!(
        said.contains("denied_policy: 127.0.0.1 is at 127.0.0.1, a loopback address"),
        "{said}"
    );
    assert!(page.seen().is_empty());

    let open = Configuration::new(&format!(
        "[profile.local.web]\nprivate = [\"{}\"]",
        page.address
    ));
    let (code, out, _) = lazaret(
        &open,
        &[],
        &[&call[..], &["--profile", "local", "--json"]].concat(),
    );
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &result["result"]),
        (
            0,
            &json!("# Hi\n\nth\n[truncated: total=11 shown=8 strategy=head full=/c/outputs/1.log]")
        )
    );
    let full = "/c/outputs/1.log";
    let cut = json!({"total": 11, "shown": 8, "strategy": "head", "full": full});
    assert_eq!(result["metadata"]["truncated"], cut);
    assert_eq!(
        result["metadata"]["spill"],
        json!({"path": full, "bytes": 11, "whole": true})
    );
    assert_eq!(
        (
            &result["metadata"]["title"],
            &result["metadata"]["mediaType"]
        ),
        (&json!("T"), &json!("text/html"))
    );
    // A file's own table only bounds.
    let bounded = format!(
        "[web]\nprivate = []\n[profile.local.web]\nprivate = [\"{}\"]",
        page.address
    );
    assert_eq!(
        lazaret(
            &Configuration::new(&bounded),
            &[],
            &[&call[..], &["--profile", "local"]].concat()
        )
        .0,
        126
    );
    // A policy that cannot be read is no policy.
    assert_eq!(lazaret(&Configuration::new("[wbe]"), &[], &call).0, 125);
    assert_eq!(page.seen().len(), 1);
}

/// O27: seconds, also where a number looks like milliseconds. No more than the maximum and the scope's is had, as in `bash`.
#[test]
fn a_time_above_the_maximum_becomes_the_maximum_and_is_said() {
    let page = Server::start((200, "text/plain", b"x".to_vec()));
    let open = Configuration::new(&format!(
        "[profile.local.web]\nprivate = [\"{}\"]",
        page.address
    ));
    let scope = open.0.join("scope.yaml");
    fs::write(
        &scope,
        "tool_permissions:\n  web_fetch: { allowed: true, timeout: 7s }\n",
    )
    .unwrap();
    let scoped = ["--scope", scope.to_str().unwrap()];
    for (asked, more, want) in [
        (json!(30_000), &[][..], 120),
        (json!(150_000), &[], 120),
        (json!(121), &[], 120),
        (json!(120), &[], 120),
        (json!(1), &[], 1),
        (json!(null), &[], 30),
        (json!(30_000), &scoped, 7),
        (json!(6), &scoped, 6),
    ] {
        let input = json!({"url": page.url(), "timeout": asked}).to_string();
        let call = ["call", "web_fetch", &input, "--profile", "local", "--json"];
        let (code, out, said) = lazaret(&open, &[], &[&call[..], more].concat());
        let result: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (code, &result["metadata"]["timeout"]),
            (0, &json!(want)),
            "{asked} {result} {said}"
        );
    }
    let input = json!({"url": page.url(), "timeout": 0}).to_string();
    assert_eq!(lazaret(&open, &[], &["call", "web_fetch", &input]).0, 2);
}

/// O27.
#[test]
fn a_selector_gives_what_it_means_or_says_why_not() {
    let page = b"<title>T</title><nav>menu</nav><main><p class=x>one<p>two</main><p class=x>three"
        .to_vec();
    let page = Server::start((200, "text/html", page));
    let plain = Server::start((200, "text/plain", b"<p>one".to_vec()));
    let open = [&page, &plain]
        .map(|server| format!("\"{}\"", server.address))
        .join(", ");
    let open = Configuration::new(&format!("[profile.local.web]\nprivate = [{open}]"));
    let fetch = |server: &Server, selector: Value| {
        let input = json!({"url": server.url(), "selector": selector}).to_string();
        let (code, out, _) = lazaret(
            &open,
            &[],
            &["call", "web_fetch", &input, "--profile", "local", "--json"],
        );
        (code, serde_json::from_str::<Value>(&out).unwrap())
    };
    let (code, result) = fetch(&page, json!("p.x"));
    assert_eq!(
        (code, &result["result"]),
        (0, &json!("one\n\nthree")),
        "{result}"
    );
    assert_eq!(
        (
            &result["metadata"]["elements"],
            &result["metadata"]["title"]
        ),
        (&json!(2), &json!("T"))
    );
    let (code, result) = fetch(&page, json!("table"));
    assert_eq!((code, &result["error"]["code"]), (1, &json!("not_found")));
    assert_eq!(
        result["result"],
        "the selector \"table\": nothing in the page matches it"
    );
    let (code, result) = fetch(&plain, json!("p"));
    assert_eq!((code, &result["error"]["code"]), (1, &json!("io")));
    assert!(
        result["result"]
            .as_str()
            .unwrap()
            .contains("not HTML but text/plain"),
        "{result}"
    );
    // An invalid selector is refused before anything is fetched.
    let seen = page.seen().len();
    for (selector, rule) in [
        (json!("a >"), "a CSS selector"),
        (json!("x".repeat(501)), "at most 500 bytes"),
        (json!(1), "a string"),
    ] {
        let (code, result) = fetch(&page, selector);
        assert_eq!(
            (code, &result["error"]["code"]),
            (2, &json!("invalid_input"))
        );
        let said = result["result"].as_str().unwrap();
        assert!(
            said.starts_with("field `selector`: ") && said.contains(rule),
            "{said}"
        );
    }
    assert_eq!(page.seen().len(), seen);
}

/// K21: through the whole program, alone and in a batch.
#[test]
fn an_image_is_shown_from_where_a_page_may_be_fetched() {
    let png = b"\x89PNG\r\n\x1a\n".to_vec();
    let image = Server::start((200, "image/png", png));
    let open = Configuration::new(&format!(
        "[profile.local.web]\nprivate = [\"{}\"]",
        image.address
    ));
    let input = json!({"image_path": format!("{}/a.png", image.url()), "prompt": "?"}).to_string();
    let call = ["call", "view_image", &input, "--json"];
    let (code, out, _) = lazaret(&open, &[], &call);
    let refused: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &refused["error"]["code"]),
        (126, &json!("denied_policy")),
        "{refused}"
    );
    assert!(image.seen().is_empty());
    let (code, out, said) = lazaret(&open, &[], &[&call[..], &["--profile", "local"]].concat());
    assert_eq!(code, 0, "{out} {said}");
    let shown: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        shown["result"],
        format!("image/png, 8 bytes: {}/a.png", image.url())
    );
    assert_eq!(
        shown["image"],
        json!({"mediaType": "image/png", "dataBase64": "iVBORw0KGgo="})
    );
    let metadata = &shown["metadata"];
    assert_eq!(
        (&metadata["tool"], &metadata["size"], &metadata["timeout"]),
        (&json!("view_image"), &json!(8), &json!(30))
    );
    assert_eq!(metadata["url"], format!("{}/a.png", image.url()));
    let batch = json!({"invocations": [{"tool": "view_image", "input": {"path": image.url()}}]})
        .to_string();
    let (code, out, said) = lazaret(
        &open,
        &[],
        &["call", "batch", &batch, "--profile", "local", "--json"],
    );
    let both: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &both["metadata"]["failed"]),
        (0, &json!(0)),
        "{out} {said}"
    );
    assert_eq!(image.seen().len(), 2);
}

#[test]
fn refusals_have_their_codes() {
    let listed = Configuration::new("[web]\nallow = [\"docs.rs\"]\nsearch = false");
    let fetch = |configuration: &Configuration, url: &str| {
        let input = json!({"url": url}).to_string();
        lazaret(configuration, &[], &["call", "web_fetch", &input]).0
    };
    let default = Configuration::new("");
    assert_eq!(
        fetch(&default, "http://169.254.169.254/latest/meta-data/"),
        126
    );
    assert_eq!(fetch(&default, "https://[fd00:ec2::254]/"), 126);
    assert_eq!(fetch(&default, "https://localhost./"), 126);
    assert_eq!(fetch(&default, "file:///etc/passwd"), 2);
    assert_eq!(fetch(&default, "https://u:p@docs.rs/"), 2);
    assert_eq!(fetch(&listed, "https://example.org/"), 126);
    let engine = searxng(three());
    let (code, _, said) = lazaret(
        &listed,
        &[("SEARXNG_URL", &engine.url())],
        &["call", "web_search", r#"{"query":"x"}"#],
    );
    assert_eq!((code, engine.seen().len()), (126, 0), "{said}");
    assert_eq!(
        lazaret(&default, &[], &["call", "web_search", r#"{"query":""}"#]).0,
        2
    );
}

#[test]
fn a_proxy_of_the_environment_is_not_asked() {
    let (page, proxy) = (
        Server::start((200, "text/plain", b"page".to_vec())),
        Server::start((200, "text/plain", b"proxy".to_vec())),
    );
    let open = Configuration::new(&format!(
        "[profile.local.web]\nprivate = [\"{}\"]",
        page.address
    ));
    let at = proxy.url();
    let names = [
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ];
    let environment: Vec<_> = names.iter().map(|name| (*name, at.as_str())).collect();
    let input = json!({"url": page.url()}).to_string();
    let (code, out, said) = lazaret(
        &open,
        &environment,
        &["call", "web_fetch", &input, "--profile", "local"],
    );
    assert_eq!((code, out.as_str(), said.as_str()), (0, "page\n", ""));
    let engine = searxng(three());
    let base = engine.url();
    let environment: Vec<_> = environment
        .into_iter()
        .chain([("SEARXNG_URL", base.as_str())])
        .collect();
    assert_eq!(search(&environment, &[]).1, TWO);
    assert!(proxy.seen().is_empty());
}

/// An authority, and the certificate and key of a server that it vouches for: `box.example`.
fn write_certificates(folder: &Path) {
    let mut authority = CertificateParams::new([]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority
        .distinguished_name
        .push(DnType::CommonName, "test authority");
    let issuer_key = KeyPair::generate().unwrap();
    let authority_pem = authority.self_signed(&issuer_key).unwrap().pem();
    let issuer = Issuer::new(authority, issuer_key);
    let key = KeyPair::generate().unwrap();
    let mut server = CertificateParams::new(["box.example".to_owned()]).unwrap();
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server_pem = server.signed_by(&key, &issuer).unwrap().pem();
    fs::write(folder.join("authority.pem"), authority_pem).unwrap();
    fs::write(folder.join("server.pem"), server_pem + &key.serialize_pem()).unwrap();
}

/// With the system's own resolver, DNS over UDP, and TLS: on a machine of its own.
#[test]
fn a_name_server_that_changes_its_answer_gets_nobody_elsewhere() {
    let machine = |arguments: &[&str]| {
        Command::new("unshare")
            .arg("-rnm")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    if !machine(&["true"]).status.success() {
        println!("no namespaces here: the system's own resolver is not tested");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/web/machine.py");
    let certificates = Configuration::new("");
    write_certificates(&certificates.0);
    let broker = granting();
    let socket = broker.socket();
    let [folder, socket] = [&certificates.0, &socket].map(|path| path.to_str().unwrap());
    let output = machine(&[
        "python3",
        script,
        env!("CARGO_BIN_EXE_lazaret"),
        folder,
        socket,
    ]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let found: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    // The attack works on who asks twice; lazaret asks once, and uses that answer.
    assert_eq!(found["careless"], "SECRET");
    assert_eq!(
        found["pinned"],
        json!({"code": 0, "out": "honest", "said": "", "asked": 1})
    );
    assert_eq!(found["refused"]["code"], 126, "{found}");
    assert_eq!(
        found["tls"],
        json!({"code": 0, "out": "over TLS", "said": ""})
    );
    for (name, why) in [
        ("stranger", "UnknownIssuer"),
        ("other name", "not valid for name"),
    ] {
        assert_eq!(found[name]["code"], 1, "{found}");
        assert!(
            found[name]["said"].as_str().unwrap().contains(why),
            "{found}"
        );
    }
}
