//! Rules for requests by host, method and path: what no rule allows does not reach its server, however a cell spells it, and what would
//! allow it is said. The servers are the test's own, with TLS and without.

use lazaret_tests::approval::audited;
use lazaret_tests::registries::Registries;
use lazaret_tests::tls_host::TlsHost;
use lazaret_tests::{Finished, LIMIT, Place, Serving, Session, World, place_test, run};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// Answers everything, and writes what it receives: a line of JSON each.
const SERVER: &str = r#"
import http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do(self):
        self.rfile.read(int(self.headers.get('Content-Length', 0)))
        print(json.dumps([self.command, self.path]), file=log, flush=True)
        forbidden = 'forbidden' in self.path
        body = b'not by me' if forbidden else b'served'
        self.send_response(403 if forbidden else 200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_get = do_OPTIONS = do
    def log_message(self, *arguments): pass
"#;

/// A host with TLS, one without, and the world of a user with a policy for both.
struct Hosts {
    world: World,
    server: TlsHost,
    plain: u16,
    plain_seen: Arc<Mutex<Vec<String>>>,
    _serving: Serving,
}

impl Hosts {
    fn start(place: Place) -> Self {
        Self::with(place, SERVER)
    }

    fn with(place: Place, server: &str) -> Self {
        let world = World::new(place);
        let server = TlsHost::start(&world, &["localhost"], server);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let plain = listener.local_addr().unwrap().port();
        let plain_seen = Arc::new(Mutex::new(Vec::new()));
        let seen = plain_seen.clone();
        let serving = Serving::start(listener, move |mut client| {
            let mut bytes = [0; 4096];
            let length = client.read(&mut bytes).unwrap_or(0);
            let head = String::from_utf8_lossy(&bytes[..length]).into_owned();
            // The gateway connects before it reads what is asked for.
            let line = head.lines().next().map(str::to_owned);
            seen.lock().unwrap().extend(line);
            let _ = client.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved",
            );
        });
        let hosts = Self {
            world,
            server,
            plain,
            plain_seen,
            _serving: serving,
        };
        hosts.define(RULES, "");
        hosts
    }

    /// The user's policy: profile `open` without rules, and `ruled`, which has these; and these bounds.
    fn define(&self, rules: &str, bounds: &str) {
        let places = format!(
            "['localhost:{}', 'localhost:{}']",
            self.server.port, self.plain
        );
        let profile = |name: &str| {
            format!("[profile.{name}.network]\nallow = {places}\nprivate = {places}\n")
        };
        let text = format!(
            "version = 1\n[gateway]\nca = '{}'\n{bounds}\n[profile.narrow.network]\nprivate = {places}\n{}{}{}\n",
            self.server.authority().display(),
            profile("open"),
            profile("ruled"),
            rules.replace("&&", "[[profile.ruled.network.http]]"),
        );
        self.world.set_policy(text);
    }

    fn session(&self, profile: &str) -> Session {
        let mut command = self.world.configured("session");
        Session::start(command.args(["--profile", profile]))
    }

    fn run(&self, options: &[&str], script: &str) -> Finished {
        self.world.in_cell_with(options, script)
    }

    fn curl(&self, options: &str, path: &str) -> String {
        format!(
            "curl -sS -m 20 --noproxy '' --path-as-is -o /dev/null -w '%{{http_code}} ' {options} 'https://localhost:{}{path}' 2>&1; ",
            self.server.port
        )
    }

    /// Requests to the host with TLS, as `METHOD PATH`.
    fn sent(&self) -> Vec<String> {
        let line = |line: String| {
            let seen: Value = serde_json::from_str(&line).unwrap();
            format!(
                "{} {}",
                seen[0].as_str().unwrap(),
                seen[1].as_str().unwrap()
            )
        };
        self.server.log().into_iter().map(line).collect()
    }
}

const RULES: &str = "
    &&
    host = 'localhost'
    methods = ['GET']
    paths = ['/public/*', '/forbidden']
    action = 'allow'
    &&
    host = 'localhost'
    paths = ['/drop/**']
    action = 'deny'
    why = 'Releases are dropped by the pipeline.'
    &&
    host = 'localhost'
    methods = ['PUT']
    action = 'allow'
";

/// Requests that no rule allows, as options of curl and a path.
const ATTACKS: [(&str, &str); 20] = [
    ("", "/secret"),
    ("", "/secret?/public/x"),
    ("", "/public/../secret"),
    ("", "/public/%2e%2e/secret"),
    ("", "/public/%252e%252e/secret"),
    ("", "/public/..;/secret"),
    ("", "/public/x%2f..%2f..%2fsecret"),
    ("", "/public/x%2fsecret"),
    ("", "/public/x%5csecret"),
    ("", "//public/x"),
    ("", "/public//x"),
    ("", "/public/;x"),
    ("-X get", "/public/x"),
    ("-X POST -d x", "/public/x"),
    ("-H 'X-HTTP-Method-Override: DELETE'", "/public/x"),
    ("-H 'X-Original-URL: /secret'", "/public/x"),
    ("-X PUT -d x", "/drop/it"),
    ("-X PUT -d x", "/DROP/it"),
    ("-X PUT -d x", "/a/%2e%2e/drop/it"),
    ("-X PUT -d x -H 'X-Rewrite-URL: /drop/it'", "/a"),
];

place_test!(no_spelling_of_a_request_gets_past_the_rules);
fn no_spelling_of_a_request_gets_past_the_rules(place: Place) {
    let hosts = Hosts::start(place);
    let attacks: Vec<String> = ATTACKS
        .iter()
        .map(|(options, path)| hosts.curl(options, path))
        .collect();
    let line = hosts.curl(
        "--request-target \"https://localhost:$PORT/secret\"",
        "/public/x",
    );
    let line = line.replace("$PORT", &hosts.server.port.to_string());
    let attacks = attacks.concat() + &line;
    let mut control = hosts.session("open");
    let said = control.bash(&attacks);
    assert_eq!(
        said.success(),
        "200 ".repeat(ATTACKS.len() + 1),
        "the control"
    );
    let before = hosts.sent().len();
    assert_eq!(before, ATTACKS.len() + 1);
    let mut session = hosts.session("ruled");
    let said = session.bash(&attacks);
    assert_eq!(said.success(), "403 ".repeat(ATTACKS.len() + 1));
    assert_eq!(hosts.sent().len(), before, "{:?}", &hosts.sent()[before..]);
    // Another authority than the connection's.
    let said = session.bash(&hosts.curl("-H 'Host: other.example'", "/public/x"));
    assert_eq!(said.success(), "421 ");
    // Allowed requests arrive; on a kept connection, each request is judged.
    let allowed = [
        hosts.curl("", "/public/x?y=/../secret"),
        hosts.curl("", "/public/a%20b"),
        hosts.curl("-X PUT -d x", "/anything"),
        hosts.curl("-H 'Connection: keep-alive'", "/public/1").replace(" 2>&1; ", &format!(" --next -sS --noproxy '' -o /dev/null -w '%{{http_code}} ' 'https://localhost:{}/secret'; ", hosts.server.port)),
    ];
    let said = session.bash(&allowed.concat());
    assert_eq!(said.success(), "200 200 200 200 403 ");
    let want = [
        "GET /public/x?y=/../secret",
        "GET /public/a%20b",
        "PUT /anything",
        "GET /public/1",
    ];
    assert_eq!(hosts.sent()[before..], want);
}

/// A server that does not read bodies, as many do of a `GET`: what is in one is its next request.
fn careless() -> (TcpListener, u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port, Arc::default())
}

fn serve_carelessly(mut client: TcpStream, log: &Mutex<Vec<String>>) {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    while let Ok(length @ 1..) = client.read(&mut bytes) {
        text.push_str(&String::from_utf8_lossy(&bytes[..length]));
        while let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let line = head.lines().next().unwrap_or_default().to_owned();
            let is_last = head.to_lowercase().contains("connection: close");
            log.lock().unwrap().push(line);
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            if is_last {
                return;
            }
            text = rest.to_owned();
        }
    }
}

place_test!(a_body_is_no_second_request);
fn a_body_is_no_second_request(place: Place) {
    let (listener, port, log) = careless();
    let seen = log.clone();
    let _serving = Serving::start(listener, move |client| serve_carelessly(client, &seen));
    let world = World::new(place);
    let policy = format!(
        "version = 1\n[profile.ruled.network]\nprivate = ['localhost:{port}']
[[profile.ruled.network.http]]\nhost = 'localhost'\nmethods = ['GET']\npaths = ['/public/**']\naction = 'allow'\n"
    );
    world.set_policy(policy);
    let script = format!(
        "curl -sS -m 20 --noproxy '' -X GET http://localhost:{port}/public/a --data-binary $'DELETE /secret HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'
        curl -sS -m 20 --noproxy '' http://localhost:{port}/public/b http://localhost:{port}/public/c"
    );
    let smuggles = |control: bool| {
        log.lock().unwrap().clear();
        let mut command = world.configured("run");
        command.args(["--profile", "ruled", "--", "bash", "-c", &script]);
        if control {
            command = Command::new("bash");
            command.args(["-c", &script]);
        }
        run(&mut command, LIMIT).success();
        let log = log.lock().unwrap();
        for path in ["a", "b", "c"] {
            let line = format!("GET /public/{path}");
            assert!(log.iter().any(|one| one.starts_with(&line)), "{log:?}");
        }
        log.iter().any(|one| one.starts_with("DELETE /secret"))
    };
    assert!(smuggles(true), "the control");
    assert!(!smuggles(false));
}

place_test!(a_host_without_tls_has_the_same_rules);
fn a_host_without_tls_has_the_same_rules(place: Place) {
    let hosts = Hosts::start(place);
    let at = format!("http://localhost:{}", hosts.plain);
    let ask = |options: &str, path: &str| {
        format!(
            "curl -sS -m 20 --noproxy '' --path-as-is -o /dev/null -w '%{{http_code}} ' {options} '{at}{path}' 2>&1; "
        )
    };
    let proxies = ["", "--proxytunnel", "--proxy socks5h://127.0.0.1:61080"];
    let script: String = proxies
        .iter()
        .flat_map(|proxy| {
            [
                ask(proxy, "/secret"),
                ask(proxy, "/public/../secret"),
                ask(&format!("{proxy} -X DELETE"), "/public/x"),
                ask(&format!("{proxy} -X PUT -d x"), "/drop/x"),
            ]
        })
        .collect();
    let mut control = hosts.session("open");
    assert_eq!(
        control.bash(&script).success(),
        "200 ".repeat(12),
        "the control"
    );
    hosts.plain_seen.lock().unwrap().clear();
    let mut session = hosts.session("ruled");
    assert_eq!(session.bash(&script).success(), "403 ".repeat(12));
    // Other protocols than HTTP are refused for a host with rules.
    let raw = format!(
        "exec 3<>/dev/tcp/127.0.0.1/61080; printf 'CONNECT localhost:{} HTTP/1.1\\r\\n\\r\\nSSH-2.0-x\\r\\n\\r\\n' >&3; timeout 5 cat <&3 | tail -n +3 | head -c 12; true",
        hosts.plain
    );
    assert!(
        session.bash(&raw).success().contains("HTTP/1.1 4"),
        "{}",
        session.bash(&raw).text()
    );
    assert_eq!(*hosts.plain_seen.lock().unwrap(), Vec::<String>::new());
    let said: String = proxies
        .iter()
        .map(|proxy| ask(proxy, "/public/x"))
        .collect();
    assert_eq!(session.bash(&said).success(), "200 200 200 ");
    let seen = hosts.plain_seen.lock().unwrap().clone();
    assert_eq!(seen, ["GET /public/x HTTP/1.1"; 3]);
}

place_test!(a_denial_names_rule_method_path_and_reason_and_a_hosts_own_answer_is_none);
fn a_denial_names_rule_method_path_and_reason_and_a_hosts_own_answer_is_none(place: Place) {
    let hosts = Hosts::start(place);
    let policy = fs::read_to_string(hosts.world.policy()).unwrap();
    let line = policy
        .lines()
        .position(|line| line.contains("'/drop/**'"))
        .unwrap()
        - 1;
    let mut session = hosts.session("ruled");
    let drop = hosts.curl("-X PUT -d x", "/drop/it?token=very-secret");
    let answer = session.bash(&format!("{} sleep 2", drop.repeat(3)));
    let denied = &answer.result["metadata"]["denied"];
    let [one] = &denied.as_array().unwrap()[..] else {
        panic!("{denied:#}");
    };
    let text = one.to_string();
    let rule = format!("settings/lazaret/policy.toml:{line} ");
    for part in [
        &*rule,
        "denies PUT /drop/it at localhost",
        "Releases are dropped by the pipeline",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("very-secret"), "{text}");
    assert_eq!(
        (&one["by"]["kind"], &one["count"]),
        (&"gateway".into(), &3.into()),
        "{one:#}"
    );
    // A host's own answer.
    let answer = session.bash(&hosts.curl("", "/forbidden"));
    assert_eq!(answer.success(), "403 ");
    assert_eq!(
        answer.result["metadata"].get("denied"),
        None,
        "{:#}",
        answer.result
    );
    assert_eq!(hosts.sent(), ["GET /forbidden"]);
    let records = audited(&hosts.world, "connection");
    let refused: Vec<_> = records
        .iter()
        .filter(|one| one["verdict"] == "request_refused")
        .collect();
    let why = refused[0]["why"].as_str().unwrap();
    assert!(
        why.contains("PUT /drop/it") && why.contains(&*rule),
        "{why}"
    );
    let count: u64 = refused
        .iter()
        .map(|one| one["count"].as_u64().unwrap())
        .sum();
    assert_eq!(count, 3, "{refused:?}");
    drop_session(session);
    let told = hosts.run(
        &["--profile", "ruled"],
        &hosts.curl("-X PUT -d x", "/drop/it"),
    );
    let errors = told.errors();
    assert!(
        errors.contains("refused: the rule at ") && errors.contains("PUT /drop/it"),
        "{errors}"
    );
}

place_test!(
    why_reports_what_the_gateway_refused_during_the_command,
    namespaced_only
);
fn why_reports_what_the_gateway_refused_during_the_command(place: Place) {
    let hosts = Hosts::start(place);
    let why = || {
        let mut command = hosts.world.configured("why");
        let done = run(command.arg("--json"), LIMIT);
        serde_json::from_str::<Value>(&done.text()).unwrap_or_else(|_| panic!("{done:?}"))
    };
    hosts.run(&["--profile", "ruled"], &hosts.curl("", "/public/x"));
    assert_eq!(why()["gateway"], serde_json::json!([]), "the control");
    hosts.run(
        &["--profile", "ruled"],
        &hosts.curl("-X PUT -d x", "/drop/it"),
    );
    let told = why();
    let one = &told["gateway"][0];
    assert!(
        one["why"].as_str().unwrap().contains("denies PUT /drop/it"),
        "{told:#}"
    );
}

fn drop_session(session: Session) {
    assert!(session.close(LIMIT).success());
}

place_test!(bounds_hold_for_every_profile_and_for_hosts_that_a_session_adds);
fn bounds_hold_for_every_profile_and_for_hosts_that_a_session_adds(place: Place) {
    let hosts = Hosts::start(place);
    let (get, put) = (hosts.curl("", "/public/x"), hosts.curl("-X PUT -d x", "/a"));
    let script = format!("{get}{put}");
    let added = format!("localhost:{}", hosts.server.port);
    let add = ["--profile", "narrow", "--allow-host", &*added];
    assert_eq!(
        hosts.run(&["--profile", "open"], &script).success(),
        "200 200 ",
        "the control"
    );
    assert_eq!(
        hosts.run(&add, &script).success(),
        "200 200 ",
        "the control"
    );
    let bound = "[[network.http]]\nhost = 'localhost'\nmethods = ['GET']\naction = 'allow'\n";
    hosts.define(RULES, bound);
    for options in [&["--profile", "open"][..], &add, &["--profile", "ruled"]] {
        let done = hosts.run(options, &script);
        assert_eq!(done.text(), "200 403 ", "{options:?}: {}", done.errors());
    }
    // A project says nothing of it.
    hosts.define(RULES, "");
    for name in ["policy.toml", ".lazaret/policy.toml", "lazaret/policy.toml"] {
        let text = "version = 1\n[[network.http]]\nhost = 'localhost'\naction = 'allow'\n";
        hosts.world.put(name, text);
    }
    let done = hosts.run(&["--profile", "ruled"], &hosts.curl("", "/secret"));
    assert_eq!(done.text(), "403 ");
}

place_test!(a_rule_that_cannot_hold_is_an_error_with_its_line);
fn a_rule_that_cannot_hold_is_an_error_with_its_line(place: Place) {
    let hosts = Hosts::start(place);
    for (rules, want) in [
        (
            "host = 'other.example'\naction = 'deny'",
            "is none of the hosts of this profile",
        ),
        ("host = 'localhost'", "has `host` and `action`"),
        (
            "host = 'localhost'\naction = 'deny'\npaths = ['/%2e']",
            "begins with `/`",
        ),
    ] {
        hosts.define(&format!("&&\n{rules}"), "");
        let done = hosts.run(&["--profile", "ruled"], "true");
        let why = done.errors();
        assert!(done.code() != 0 && why.contains(want), "{rules}: {why}");
        assert!(
            why.contains("settings/lazaret/policy.toml:"),
            "{rules}: {why}"
        );
    }
    hosts.define(RULES, "");
    let mut show = hosts.world.configured("policy");
    show.args(["show", "--profile", "ruled", "--json"]);
    let shown: Value = serde_json::from_str(&run(&mut show, LIMIT).success()).unwrap();
    let rules = shown["requests"][0].as_array().unwrap();
    assert_eq!(
        (rules.len(), &rules[1]["action"]),
        (3, &"deny".into()),
        "{rules:?}"
    );
}

/// Wants a certificate of its clients, and says so in the handshake, as TLS 1.2 has it.
const WANTS: &str = r"
import ssl
load = ssl.SSLContext.load_cert_chain
def wanting(self, *files):
    self.verify_mode, self.maximum_version = ssl.CERT_REQUIRED, ssl.TLSVersion.TLSv1_2
    self.load_verify_locations('ca.pem')
    load(self, *files)
ssl.SSLContext.load_cert_chain = wanting
";

place_test!(a_host_that_wants_its_clients_certificate_is_named_and_passes_by_the_policy);
fn a_host_that_wants_its_clients_certificate_is_named_and_passes_by_the_policy(place: Place) {
    let hosts = Hosts::with(place, &format!("{WANTS}{SERVER}"));
    let part = |name: &str| fs::read(hosts.server.authority().with_file_name(name)).unwrap();
    // The host's own will do: it is of the authority that it believes.
    hosts
        .world
        .put("client", [part("host.pem"), part("host.key")].concat());
    let authority = String::from_utf8(part("ca.pem")).unwrap();
    hosts.world.put("authority", authority);
    let get = |options: &str| hosts.curl(&format!("--cacert authority {options}"), "/x");
    let run = |script: &str| hosts.run(&["--profile", "ruled"], script);
    // A rule has the gateway open the connection, and that has no such certificate.
    hosts.define("&&\nhost = 'localhost'\naction = 'allow'", "");
    let opened = run(&hosts.curl("--cert client", "/x"));
    assert!(opened.text().contains("502"), "{}", opened.text());
    let why = opened.errors();
    assert!(
        why.contains("ended the TLS handshake with the gateway") && why.contains("tls = \"pass\""),
        "{why}"
    );
    assert!(hosts.sent().is_empty());
    let pass = "&&\nhost = 'localhost'\ntls = 'pass'";
    hosts.define(pass, "");
    let passed = run(&get("--cert client"));
    assert!(passed.text().contains("200"), "{}", passed.text());
    assert_eq!(hosts.sent(), ["GET /x"]);
    // The control: the host sees the program's own certificate, and wants it.
    let without = run(&get(""));
    assert!(!without.text().contains("200"), "{}", without.text());
    // A rule for another host opens none to this one.
    let other = "[profile.other]\nextends = 'ruled'\n[profile.other.network]\nallow = ['other.example']\n\
                 [[profile.other.network.http]]\nhost = 'other.example'\naction = 'allow'";
    hosts.define(other, "");
    let unnamed = hosts.run(&["--profile", "other"], &get("--cert client"));
    assert!(unnamed.text().contains("200"), "{}", unnamed.errors());
    assert_eq!(hosts.sent(), ["GET /x", "GET /x"]);
    let deny = "[[network.http]]\nhost = 'localhost'\naction = 'deny'";
    let token = hosts.world.home.join("token");
    hosts.world.write(&token, "a-value-of-a-token");
    let credential = format!(
        "{pass}\n[profile.ruled]\ncredentials = ['own']\n[credential.own]\nfrom = {{ file = '{}' }}\n\
         hosts = ['localhost:{}']\nattach = 'bearer'\nenv = ['OWN_TOKEN']\nuses = [{{ path = '/**' }}]",
        token.display(),
        hosts.server.port
    );
    for (rules, bounds, want) in [
        (pass, deny, "whose connections pass unopened by"),
        (&*credential, "", "and credential `own` is for that host"),
    ] {
        hosts.define(rules, bounds);
        let refused = run("true");
        let why = refused.errors();
        assert!(refused.code() != 0 && why.contains(want), "{why}");
        assert!(why.contains("settings/lazaret/policy.toml:"), "{why}");
    }
    assert_eq!(hosts.sent(), ["GET /x", "GET /x"]);
}

const NAMES: [&str; 3] = ["npm.example", "pypi.example", "git.example"];

/// A registry of npm, an index of Python and a host of git, which take everything that they are sent.
const REGISTRIES: &str = r##"
import http.server, json, os, subprocess

ANSWERS = {
    ('npm.example', 'GET', '/public'): json.dumps(packument('public', 'https://npm.example/public/-/public-1.0.0.tgz')),
    ('npm.example', 'GET', '/public/-/public-1.0.0.tgz'): tarball('public'),
    ('npm.example', 'PUT', '/own'): '{"ok":true}',
    ('npm.example', 'POST', '/-/npm/v1/security/advisories/bulk'): '{}',
    ('pypi.example', 'GET', '/simple/public/'): '<!DOCTYPE html><a href="/packages/public-1.0-py3-none-any.whl">public-1.0-py3-none-any.whl</a>',
    ('pypi.example', 'GET', '/packages/public-1.0-py3-none-any.whl'): wheel('public'),
    ('pypi.example', 'POST', '/'): 'taken',
}

class Handler(ReadingHandler):
    def do(self):
        sent, host = self.body(), self.headers['Host'].split(':')[0]
        path, _, query = self.path.partition('?')
        print(json.dumps([host, self.command, path]), file=log, flush=True)
        if host == 'git.example':
            status, body, kind = self.git(path, query, sent)
        else:
            body = ANSWERS.get((host, self.command, path))
            status, body, kind = (404, 'no', 'text/plain') if body is None else (200, body, 'text/html' if path.startswith('/simple') else 'application/json')
        body = body if isinstance(body, bytes) else body.encode()
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do
    def log_message(self, *arguments): pass
"##;

/// The registries, and profiles of a user: `open` without rules, `ruled` with the presets.
struct ReadPresets(Registries);

impl ReadPresets {
    fn start(place: Place) -> Self {
        let row = |preset: &str, host: &str| {
            format!("[[profile.ruled.network.http]]\npreset = '{preset}'\nhost = '{host}'\n")
        };
        Self(Registries::start(place, &NAMES, REGISTRIES, |_, hosts| {
            [
                format!("[profile.open.network]\nallow = {hosts}\nprivate = {hosts}\n"),
                format!("[profile.ruled.network]\nallow = {hosts}\nprivate = {hosts}\n"),
                row("npm-read", NAMES[0]),
                row("pypi-read", NAMES[1]),
                row("github-read", NAMES[2]),
            ]
            .concat()
        }))
    }

    fn run(&self, profile: &str, script: &str) -> Finished {
        self.0.world.in_cell_with(&["--profile", profile], script)
    }

    /// Whether this request has arrived since the log had `from` lines.
    fn got(&self, from: usize, host: &str, method: &str, path: &str) -> bool {
        let wanted = serde_json::json!([host, method, path]);
        let is = |line: &String| serde_json::from_str::<Value>(line).unwrap() == wanted;
        self.0.server.log()[from..].iter().any(is)
    }
}

place_test!(npm_installs_and_does_not_publish_by_npm_read);
fn npm_installs_and_does_not_publish_by_npm_read(place: Place) {
    let registries = ReadPresets::start(place);
    registries
        .0
        .world
        .put("own/package.json", r#"{"name":"own","version":"1.0.0"}"#);
    let script = "export npm_config_registry=https://npm.example/; rm -rf new; mkdir new; cd new; npm install --no-save public 2>&1
        cat node_modules/public/package.json; echo; cd ../own; npm publish --//npm.example/:_authToken=x 2>&1";
    let done = registries.run("open", script);
    let said = done.text();
    assert!(said.contains("+ own@1.0.0"), "the control: {said}");
    assert!(
        registries.got(0, "npm.example", "PUT", "/own"),
        "the control"
    );
    let from = registries.0.server.log().len();
    let done = registries.run("ruled", script);
    let (said, errors) = (done.text(), done.errors());
    assert!(said.contains("\"name\":\"public\""), "{said}");
    assert!(
        !said.contains("+ own@1.0.0") && said.contains("403"),
        "{said}"
    );
    assert!(
        errors.contains("no rule allows PUT /own at npm.example:443"),
        "{errors}"
    );
    assert!(errors.contains("preset `npm-read`"), "{errors}");
    assert!(registries.got(from, "npm.example", "GET", "/public/-/public-1.0.0.tgz"));
    assert!(!registries.got(from, "npm.example", "PUT", "/own"));
}

place_test!(pip_installs_and_nothing_is_published_by_pypi_read);
fn pip_installs_and_nothing_is_published_by_pypi_read(place: Place) {
    let registries = ReadPresets::start(place);
    let publish = "curl -sS -m 20 -F content=x https://pypi.example/ 2>&1; echo";
    let has_pip = registries
        .0
        .world
        .on_host("/usr/bin/python3 -m pip --version");
    let script = match has_pip.success().is_empty() {
        true => format!("{publish}; curl -sS -m 20 https://pypi.example/simple/public/"),
        false => format!(
            "{publish}; rm -rf files; /usr/bin/python3 -m pip download --no-deps --no-input -d files -i https://pypi.example/simple/ public 2>&1; ls files"
        ),
    };
    let control = registries.run("open", &script);
    assert!(control.text().starts_with("taken\n"), "{}", control.text());
    let from = registries.0.server.log().len();
    let done = registries.run("ruled", &script);
    let said = done.text();
    assert!(said.contains("denies POST / at pypi.example:443"), "{said}");
    assert!(
        said.trim_end().ends_with("public-1.0-py3-none-any.whl") || said.contains("href"),
        "{said}"
    );
    assert!(!registries.got(from, "pypi.example", "POST", "/"));
}

place_test!(git_clones_and_does_not_push_by_github_read);
fn git_clones_and_does_not_push_by_github_read(place: Place) {
    let registries = ReadPresets::start(place);
    let folder = registries.0.world.outside.join("host");
    let made = format!(
        "cd {} && mkdir -p o && git init -q --bare o/r.git && git -C o/r.git config http.receivepack true
         git init -q seed && cd seed && git -c user.name=a -c user.email=a@b.invalid commit -q --allow-empty -m one
         git push -q ../o/r.git HEAD:refs/heads/main && git -C ../o/r.git symbolic-ref HEAD refs/heads/main",
        folder.display()
    );
    registries.0.world.on_host(&made).success();
    let push = |name: &str| {
        format!(
            "export GIT_TERMINAL_PROMPT=0; git clone -q https://git.example/o/r.git {name} 2>&1 && cd {name} && git log --format=%s
             git -c user.name=a -c user.email=a@b.invalid commit -q --allow-empty -m {name} && git push -q origin HEAD:refs/heads/{name} 2>&1; true"
        )
    };
    let refs = || {
        let list = format!(
            "git -C {}/o/r.git for-each-ref --format='%(refname)'",
            folder.display()
        );
        registries.0.world.on_host(&list).success()
    };
    let done = registries.run("open", &push("first"));
    assert!(done.text().starts_with("one\n"), "{}", done.text());
    assert!(
        refs().contains("refs/heads/first"),
        "the control: {}",
        done.text()
    );
    let done = registries.run("ruled", &push("second"));
    assert!(done.text().starts_with("one\n"), "{}", done.text());
    assert!(!refs().contains("refs/heads/second"), "{}", done.text());
    let errors = done.errors();
    assert!(
        errors.contains("no rule allows POST /o/r.git/git-receive-pack"),
        "{errors}"
    );
}
