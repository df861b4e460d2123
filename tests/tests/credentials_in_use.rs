//! Credentials in use: a host that takes them gets the value, cells have the placeholder, and no process but the gateway holds the value.
//! The host is a server of the test with a certificate of the test's authority, which the user's `SSL_CERT_FILE` names.

use broker_protocol::Tier;
use lazaret_tests::approval::audited;
use lazaret_tests::connect_proxy::ConnectProxy;
use lazaret_tests::process::{Process, below, until};
use lazaret_tests::programs::need;
use lazaret_tests::tls_host::TlsHost;
use lazaret_tests::{LIMIT, Place, Session, World, place_test, run};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const VALUE: &str = "the-real-value-of-the-token-0123456789";

/// Writes what it receives, a line of JSON each.
const SERVER: &str = r#"
import http.server, json, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        if self.path not in ('/unasked/reads-no-body', '/api/reads-no-body'):
            self.rfile.read(int(self.headers.get('Content-Length', 0)))
        seen = json.dumps({'path': self.path, 'authorization': self.headers.get('Authorization')})
        print(seen, file=log, flush=True)
        if self.path == '/unasked/reads-no-body':
            time.sleep(600)
        body = (seen if self.path == '/api/echo' else 'served').encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_PUT = do_GET
    def do_HEAD(self):
        self.send_response(200)
        self.end_headers()
        time.sleep(0.2)
        self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n')
    def log_message(self, *arguments): pass
"#;

/// Asks for two things on one connection, the second with a token, by way of a proxy or not, and prints the second answer's length.
const TWO: &str = r#"
import os, socket, ssl, sys
port, token, proxy = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
stream = socket.create_connection(('127.0.0.1', int(proxy[0]) if proxy else port), 20)
if proxy:
    stream.sendall(b'CONNECT localhost:%d HTTP/1.1\r\n\r\n' % port)
    assert b' 200 ' in stream.recv(4096)
stream = ssl.create_default_context().wrap_socket(stream, server_hostname='localhost')
stream.settimeout(20)
host = 'Host: localhost:%d\r\n' % port
stream.sendall(('HEAD /api/late HTTP/1.1\r\n%s\r\nGET /api/y HTTP/1.1\r\n%sAuthorization: Bearer %s\r\n\r\n' % (host, host, token)).encode())
text = ''
while text.lower().count('\r\n\r\n') < 2: text += stream.recv(4096).decode()
second = text.split('\r\n\r\n')[1].lower()
print(second.split('content-length: ')[1].split('\r')[0])
"#;

/// The machine's trust store for Java, on Debian.
const CACERTS: &str = "/etc/ssl/certs/java/cacerts";

/// Asks for the address that it is given.
const JAVA: &str = r#"
import java.net.URI; import java.net.http.*;
public class Get { public static void main(String[] of) throws Exception {
    var request = HttpRequest.newBuilder(URI.create(of[0])).header("Authorization", "Bearer " + System.getenv("ONE_TOKEN")).build();
    System.out.println(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body()); } }
"#;

/// A host that takes the credential, and the world of the user who has it.
struct Host {
    world: World,
    server: TlsHost,
    port: u16,
}

impl Host {
    fn start(place: Place) -> Self {
        let world = World::new(place);
        let server = TlsHost::start(&world, &["localhost"], SERVER);
        let host = Self {
            port: server.port,
            world,
            server,
        };
        host.define("{ file = '~/token' }");
        host
    }

    /// Gives the user's policy a credential from this source.
    fn define(&self, from: &str) {
        self.define_with(from, "");
    }

    /// Defines the credential with these lines in `[gateway]`.
    fn define_with(&self, from: &str, gateway: &str) {
        let (world, port) = (&self.world, self.port);
        let from = from.replace('~', &world.home.display().to_string());
        let text = format!(
            "version = 1
            [credential.one]
            from = {from}
            hosts = ['localhost:{port}']
            attach = 'any:me'
            env = ['ONE_TOKEN']
            uses = [
                {{ path = '/api/**' }}, {{ path = '/unasked/**', unasked = true }},
                {{ path = '/api/keys', methods = ['POST'], refused = true, why = 'It makes new keys.' }},
            ]
            [profile.net]
            credentials = ['one']
            [profile.net.network]
            private = ['localhost:{port}']
            [profile.plain.network]
            allow = ['localhost:{port}']
            private = ['localhost:{port}']
            [gateway]
            {gateway}"
        );
        world.set_policy(text);
        world.write(&world.home.join("token"), format!("{VALUE}\n"));
    }

    /// A session of a user whose machine does not know the host's authority.
    fn stranger(&self, profile: &str) -> Session {
        let mut command = self.world.configured("session");
        Session::start(command.args(["--profile", profile]))
    }

    fn session(&self, profile: &str) -> Session {
        let mut command = self.world.configured("session");
        command.env("SSL_CERT_FILE", self.server.authority());
        Session::start(command.args(["--profile", profile]))
    }

    /// The script of a request to a path of the host.
    fn curl(&self, path: &str, options: &str) -> String {
        format!(
            "curl -sS -m 20 --noproxy '' {options} https://localhost:{}{path} 2>&1",
            self.port
        )
    }

    /// The credentials that the host was sent, by path.
    fn sent(&self) -> Vec<(String, Option<String>)> {
        let requests = self.server.log().into_iter().map(|line| {
            let seen: Value = serde_json::from_str(&line).unwrap();
            let text = |name: &str| seen[name].as_str().map(str::to_owned);
            (text("path").unwrap(), text("authorization"))
        });
        requests.collect()
    }
}

fn gateway(session: &Session) -> Process {
    let mut all = below(session.pid());
    all.retain(|process| process.name == "lazaret-gateway");
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

place_test!(a_host_gets_the_value_where_a_use_says_so_and_the_placeholder_elsewhere);
fn a_host_gets_the_value_where_a_use_says_so_and_the_placeholder_elsewhere(place: Place) {
    let host = Host::start(place);
    let mut session = host.session("net");
    let with = "-H \"Authorization: Bearer $ONE_TOKEN\"";
    for (path, options) in [
        ("/api/a", with),
        ("/api/b", "-u \"x:$ONE_TOKEN\""),
        ("/unasked/c", ""),
        ("/elsewhere", with),
        ("/api/d", ""),
    ] {
        let answer = session.bash(&host.curl(path, options));
        assert_eq!(answer.success(), "served", "{path}");
    }
    let placeholder = session.bash("printf %s $ONE_TOKEN");
    let placeholder = placeholder.success();
    let basic = |user: &str| {
        let script = format!("printf %s {user}:{VALUE} | base64 -w 0");
        format!("Basic {}", host.world.on_host(&script).success())
    };
    let want = [
        ("/api/a", Some(format!("Bearer {VALUE}"))),
        ("/api/b", Some(basic("x"))),
        ("/unasked/c", Some(basic("me"))),
        ("/elsewhere", Some(format!("Bearer {placeholder}"))),
        ("/api/d", None),
    ];
    assert_eq!(
        host.sent(),
        want.map(|(path, sent)| (path.to_owned(), sent))
    );
    // What would make new keys, and what would show the value.
    let refused = session.bash(&host.curl("/api/keys", &format!("{with} -X POST -d x")));
    assert!(
        refused
            .success()
            .contains("is refused by the policy of credential"),
        "{refused:?}"
    );
    let echoed = session.bash(&host.curl("/api/echo", with));
    assert!(!echoed.result.to_string().contains(VALUE), "{echoed:?}");
    assert_eq!(host.sent().len(), 6, "{:?}", host.sent());
    // Without the credential the program's own text arrives: the control.
    let mut plain = host.session("plain");
    let authority = host.server.authority();
    let trusted = fs::read_to_string(authority).unwrap();
    host.world.put("ca.pem", trusted);
    let control = format!("--cacert ca.pem -H 'Authorization: Bearer {VALUE}'");
    let control = plain.bash(&host.curl("/api/echo", &control));
    assert!(control.result.to_string().contains("Bearer"), "{control:?}");
}

place_test!(a_variable_is_a_source_also_where_it_has_a_key_of_our_own);
fn a_variable_is_a_source_also_where_it_has_a_key_of_our_own(place: Place) {
    let host = Host::start(place);
    let names = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OTHER_TOKEN"];
    for name in names {
        host.define(&format!("{{ env = '{name}' }}"));
        let mut command = host.world.configured("session");
        command
            .env("SSL_CERT_FILE", host.server.authority())
            .envs(names.map(|name| (name, VALUE)));
        let mut session = Session::start(command.args(["--profile", "net"]));
        let answer = session.bash(&host.curl("/unasked/a", ""));
        assert_eq!(answer.success(), "served", "{name}");
        let seen = session.bash("env; cat /proc/*/environ 2>/dev/null; true");
        assert!(!seen.result.to_string().contains(VALUE), "{name}");
    }
    let sent = host.sent();
    assert_eq!(sent.len(), names.len());
    assert!(sent.windows(2).all(|two| two[0] == two[1]), "{sent:?}");
}

place_test!(no_process_but_the_gateway_holds_the_value, root_only);
/// As root, who may read the memory of each.
fn no_process_but_the_gateway_holds_the_value(place: Place) {
    let host = Host::start(place);
    for source in [
        "{ command = ['/bin/cat', '~/token'] }",
        "{ file = '~/token' }",
    ] {
        host.define(source);
        let mut session = host.session("net");
        let script = host.curl("/unasked/a", "");
        session.bash(&script).success();
        let held: Vec<_> = below(session.pid())
            .into_iter()
            .filter(|process| process.memory_holds(VALUE))
            .map(|process| process.name)
            .collect();
        assert_eq!(held, ["lazaret-gateway"], "{source}");
        let seen = session.bash("grep -a the-real /proc/*/environ; echo $ONE_TOKEN");
        assert!(!seen.result.to_string().contains(VALUE), "{source}");
    }
}

/// Private keys of P-256 in the memory of a process.
fn private_keys(of: &Process) -> Vec<[u8; 32]> {
    // PKCS #8 as the gateway has it: version 1 and the private key, then the public one.
    const BEFORE: &[u8] = &[0x02, 0x01, 0x01, 0x04, 0x20];
    const AFTER: &[u8] = &[0xa1, 0x44, 0x03, 0x42, 0x00, 0x04];
    let mut found = Vec::new();
    of.in_memory(|memory| {
        for at in memchr::memmem::find_iter(memory, BEFORE) {
            let key = &memory[at + BEFORE.len()..];
            if key.get(32..38) == Some(AFTER) {
                found.push(key[..32].try_into().unwrap());
            }
        }
        false
    });
    found
}

/// Names files below these folders with the bytes of a key, as they are, in hex or in base64. What is older than the session, as the
/// machine's programs are, has no key of it.
const SEARCH: &str = r#"
import base64, os, sys
begun = os.stat('begun').st_mtime - 60
key = bytes.fromhex(sys.argv[1])
wanted = [key, key.hex().encode(), base64.b64encode(key)[:40]]
for top in sys.argv[2:]:
    for folder, folders, names in os.walk(top):
        folders[:] = [one for one in folders if os.path.join(folder, one) not in ('/proc', '/sys', '/usr')]
        for name in names:
            path = os.path.join(folder, name)
            try:
                if os.path.isfile(path) and os.path.getmtime(path) > begun and os.path.getsize(path) < 64 << 20 and any(one in open(path, 'rb').read() for one in wanted):
                    print('found', path)
            except OSError: pass
print('searched')
"#;

place_test!(the_key_of_the_sessions_authority_is_in_no_cell, root_only);
/// As root, who may read the memory of each: only the gateway has it, and the broker for a successor.
fn the_key_of_the_sessions_authority_is_in_no_cell(place: Place) {
    let host = Host::start(place);
    let mut session = host.session("net");
    session.bash(&host.curl("/unasked/a", "")).success();
    let input = json!({ "command": "echo > begun; sleep 300" });
    session.send(&json!({ "id": "cell", "tool": "bash", "input": input }));
    let is_sleep = |process: &Process| process.name == "sleep";
    let sleeps = || below(session.pid()).iter().any(is_sleep);
    assert!(until(LIMIT, sleeps));
    let gateway = gateway(&session);
    let keys = private_keys(&gateway);
    assert!(!keys.is_empty(), "the gateway has an authority");
    let all = below(session.pid());
    assert!(all.iter().any(is_sleep), "{all:#?}");
    // The broker has the authority's key as bytes, and no other key of the gateway.
    let is_held_by = |name: &str, key: &[u8; 32]| {
        let mut named = all.iter().filter(|process| process.name == name);
        named.any(|process| process.memory_holds(key))
    };
    let broker = "lazaret-executo";
    let of_authority = keys.iter().find(|key| is_held_by(broker, key));
    let key = of_authority.expect("the broker has it for a successor");
    let holders: Vec<_> = all
        .iter()
        .filter(|process| process.memory_holds(key))
        .map(|process| &*process.name)
        .collect();
    assert_eq!(holders.iter().filter(|name| **name == broker).count(), 1);
    assert!(
        holders
            .iter()
            .all(|name| [broker, "lazaret-gateway"].contains(name)),
        "{holders:?}"
    );
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    host.world.put("search.py", SEARCH);
    // The flat tier does not list the machine's root.
    let folders = r#"/ "$PWD" "$HOME" "${TMPDIR:-/tmp}" /etc "${CURL_CA_BUNDLE%/*}""#;
    let search = format!("python3 search.py {hex} {folders} 2>&1");
    let seen = session.bash(&search);
    assert_eq!(seen.success(), "searched\n", "{:#}", seen.result);
    host.world.put("planted", hex);
    let seen = session.bash(&search);
    assert!(
        seen.success().contains("planted"),
        "the control: {:#}",
        seen.result
    );
    session.cancel("cell");
}

place_test!(a_successor_has_the_same_authority_and_asks_for_the_value_again);
fn a_successor_has_the_same_authority_and_asks_for_the_value_again(place: Place) {
    let host = Host::start(place);
    let mut session = host.session("net");
    let script = host.curl("/unasked/a", "");
    assert_eq!(session.bash(&script).success(), "served");
    let first = gateway(&session);
    first.kill();
    assert!(until(LIMIT, || !first.is_alive()));
    let mut said = String::new();
    assert!(
        until(LIMIT, || {
            said = session.bash(&script).result["result"].to_string();
            said.contains("served")
        }),
        "{said}"
    );
    assert_ne!(gateway(&session).pid, first.pid);
    let sent = host.sent();
    assert!(
        sent.len() >= 2 && sent.iter().all(|(_, sent)| sent.is_some()),
        "{sent:?}"
    );
}

place_test!(a_gateway_killed_while_it_sends_the_value_gives_it_to_nobody);
/// The host has the head with the value and reads no more, so the gateway is killed with the rest of the request in its memory.
fn a_gateway_killed_while_it_sends_the_value_gives_it_to_nobody(place: Place) {
    let host = Host::start(place);
    let mut session = host.session("net");
    let script = host.curl("/unasked/reads-no-body", "-T large -v");
    let script =
        format!("head -c 64M /dev/zero > large; {script}; cat /proc/self/environ | tr '\\0' '\\n'");
    session.send(&json!({ "id": "a", "tool": "bash", "input": { "command": script } }));
    assert!(until(LIMIT, || !host.sent().is_empty()), "nothing is sent");
    gateway(&session).kill();
    let ended = session.answer_within("a", LIMIT);
    let text = ended.result.to_string();
    assert!(text.contains("curl: ("), "it does not fail: {text}");
    assert!(!text.contains(VALUE), "{text}");
    // The use was recorded before the value was sent.
    let uses = audited(&host.world, "credential");
    assert!(uses.iter().any(|one| one["name"] == "one"), "{uses:#?}");
    // The control: the host has had it. It is asked of nobody again for this request, and the next one is served.
    let [(path, sent)] = &host.sent()[..] else {
        panic!("{:?}", host.sent())
    };
    assert!(
        path == "/unasked/reads-no-body" && sent.is_some(),
        "{sent:?}"
    );
    let script = host.curl("/unasked/a", "");
    let is_served = || {
        session.bash(&script).result["result"]
            .to_string()
            .contains("served")
    };
    assert!(until(LIMIT, is_served));
}

place_test!(refusal_by_the_gateway_is_a_denial_that_names_it);
/// A client prints the number of the status, and some not that.
fn refusal_by_the_gateway_is_a_denial_that_names_it(place: Place) {
    let host = Host::start(place);
    let mut session = host.session("net");
    let denied = |session: &mut Session, script: &str| {
        let answer = session.bash(&format!("{{ {script}; }} > /dev/null; sleep 2"));
        answer.result["metadata"]["denied"].clone()
    };
    let none = denied(&mut session, &host.curl("/api/a", ""));
    assert!(none.is_null(), "the control: {none:#}");
    let keys = host.curl("/api/keys", "-X POST -d x");
    let refused = denied(&mut session, &format!("{keys}; {keys}"));
    let one = &refused[0];
    let why = one["why"].as_str().unwrap();
    assert!(
        why.contains("POST /api/keys at localhost") && why.contains("credential `one`"),
        "{why}"
    );
    assert_eq!(one["count"], 2, "{refused:#}");
    assert_eq!(refused.as_array().unwrap().len(), 1, "{refused:#}");
    // A program that believes the host's authority alone.
    host.world.put(
        "ca.pem",
        fs::read_to_string(host.server.authority()).unwrap(),
    );
    let refused = denied(&mut session, &host.curl("/api/a", "--cacert ca.pem"));
    let one = refused[0].to_string();
    assert!(
        one.contains("does not believe") && one.contains("SSL_CERT_FILE"),
        "{refused:#}"
    );
    drop(session);
    host.define("{ command = ['/bin/false'] }");
    let mut session = host.session("net");
    let refused = denied(&mut session, &host.curl("/unasked/a", ""));
    let why = refused[0]["why"].as_str().unwrap();
    assert!(why.contains("credential `one` has no value"), "{why}");
    let verdicts: Vec<_> = lazaret_tests::approval::audited(&host.world, "connection")
        .iter()
        .filter(|record| !record["why"].is_null())
        .map(|record| record["verdict"].as_str().unwrap().to_owned())
        .collect();
    for verdict in ["request_refused", "not_trusted", "no_value"] {
        assert!(verdicts.iter().any(|one| one == verdict), "{verdicts:?}");
    }
}

place_test!(a_source_that_fails_is_named_in_the_answer);
fn a_source_that_fails_is_named_in_the_answer(place: Place) {
    let host = Host::start(place);
    host.define("{ command = ['/bin/false'] }");
    let mut session = host.session("net");
    let answer = session.bash(&host.curl("/unasked/a", "-w ' %{http_code}'"));
    let said = answer.success();
    assert!(said.ends_with(" 502") && said.contains("one"), "{said}");
    assert!(host.sent().is_empty());
}

place_test!(a_tunnel_asks_by_tls_for_the_host_that_it_was_allowed_for);
fn a_tunnel_asks_by_tls_for_the_host_that_it_was_allowed_for(place: Place) {
    let host = Host::start(place);
    let mut session = host.session("plain");
    let ask = |name: &str| {
        format!(
            "openssl s_client -proxy 127.0.0.1:61080 -connect localhost:{} -servername {name} < /dev/null 2>&1 | grep -c 'BEGIN CERT'; true",
            host.port
        )
    };
    assert_eq!(session.bash(&ask("localhost")).success().trim(), "1");
    assert_eq!(session.bash(&ask("other.example")).success().trim(), "0");
    let records = lazaret_tests::approval::audited(&host.world, "connection");
    let refused: Vec<_> = records
        .iter()
        .filter(|record| record["verdict"] == "not_listed")
        .map(|record| record["host"].as_str().unwrap())
        .collect();
    assert_eq!(refused, ["other.example"]);
}

place_test!(a_companys_authority_is_believed_by_the_gateway_and_by_cells);
fn a_companys_authority_is_believed_by_the_gateway_and_by_cells(place: Place) {
    let host = Host::start(place);
    let authority = host.server.authority();
    let line = format!("ca = '{}'", authority.display());
    for name in ["policy.toml", ".lazaret/policy.toml", "lazaret/policy.toml"] {
        host.world
            .put(name, format!("version = 1\n[gateway]\n{line}\n"));
    }
    let mut control = host.stranger("net");
    let refused = control.bash(&host.curl("/unasked/a", ""));
    assert!(
        refused.text().contains("no TLS connection"),
        "{}",
        refused.text()
    );
    let mut control = host.stranger("plain");
    let refused = control
        .bash(&host.curl("/elsewhere", ""))
        .result
        .to_string();
    assert!(!refused.contains("served"), "{refused}");

    let proxy = ConnectProxy::open();
    host.define_with("{ file = '~/token' }", &format!("{line}\n{}", proxy.line()));
    let mut session = host.stranger("net");
    let served = session.bash(&host.curl("/unasked/b", ""));
    assert_eq!(served.success(), "served");
    assert!(!proxy.take().is_empty(), "by the proxy");
    assert!(
        host.sent()
            .iter()
            .any(|(path, sent)| path == "/unasked/b" && sent.is_some())
    );
    // The machine's, the company's and the session's; the last two.
    let count = "grep -c BEGIN \"$SSL_CERT_FILE\" \"$NODE_EXTRA_CA_CERTS\" | sed 's/.*://'";
    let machine = "echo $(($(grep -c BEGIN /etc/ssl/certs/ca-certificates.crt) + 2))";
    let want = format!("{}2\n", host.world.on_host(machine).success());
    assert_eq!(session.bash(count).success(), want);
    // Without a credential too.
    let mut plain = host.stranger("plain");
    let served = plain.bash(&host.curl("/elsewhere", ""));
    assert_eq!(served.success(), "served");
}

/// Java knows no variable for a proxy, and takes none to `localhost` by itself.
const BY_PROXY: &str = "p=${HTTPS_PROXY%/}; by_proxy=\"-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=${p##*:} -Dhttp.nonProxyHosts=\"";

place_test!(java_trusts_the_authority_of_the_session);
fn java_trusts_the_authority_of_the_session(place: Place) {
    need("javac", "default-jdk-headless");
    let host = Host::start(place);
    host.world.put("Get.java", JAVA);
    host.world.set_up("javac Get.java");
    let mut session = host.session("net");
    let get = format!(
        "{BY_PROXY}; java $by_proxy -cp . Get https://localhost:{}/api/java 2>&1",
        host.port
    );
    let served = session.bash(&get).success().to_owned();
    assert!(served.trim_end().ends_with("served"), "{served}");
    let sent = ("/api/java".to_owned(), Some(format!("Bearer {VALUE}")));
    assert_eq!(host.sent(), [sent]);
    // Without the variable, where the machine's own file is not covered.
    let without = session.bash(&format!("unset JAVA_TOOL_OPTIONS; {get}; true"));
    let want = match place.tier {
        Tier::Namespaced if Path::new(CACERTS).exists() => "served",
        Tier::Namespaced | Tier::Flat => "PKIX path building failed",
    };
    assert!(without.text().contains(want), "{}", without.text());
    // A program's own store counts more. Where there is none of its name, Java takes the machine's, which the other tier covers.
    if place.tier == Tier::Flat {
        let own = get.replace("-cp", "-Djavax.net.ssl.trustStore=none.jks -cp");
        let other = session.bash(&format!("{own}; true"));
        assert!(!other.text().contains("served"), "{}", other.text());
    }
}

place_test!(a_trust_store_of_java_has_what_the_bundle_has);
fn a_trust_store_of_java_has_what_the_bundle_has(place: Place) {
    need("keytool", "default-jdk-headless");
    let host = Host::start(place);
    let mut session = host.session("net");
    let script = format!(
        "store=${{JAVA_TOOL_OPTIONS#*trustStore=}}; store=${{store%% *}}; unset JAVA_TOOL_OPTIONS
         grep -c BEGIN \"$SSL_CERT_FILE\"
         keytool -list -storepass changeit -keystore $store 2>/dev/null | grep -c 'lazaret-.*trustedCertEntry'
         (echo x >> $store) 2>/dev/null && echo written
         cmp $store {CACERTS} >/dev/null 2>&1 && echo covered; true"
    );
    let seen = session.bash(&script);
    let seen: Vec<&str> = seen.success().lines().collect();
    let covered: &[&str] = match place.tier {
        Tier::Namespaced if Path::new(CACERTS).exists() => &["covered"],
        Tier::Namespaced | Tier::Flat => &[],
    };
    assert!(seen.len() >= 2 && seen[0] == seen[1], "{seen:?}");
    assert_eq!(seen[2..], *covered);
    // A company's alone are in it too.
    let line = format!("ca = '{}'", host.server.authority().display());
    host.define_with("{ file = '~/token' }", &line);
    let mut plain = host.stranger("plain");
    let seen = plain.bash(&script);
    let seen: Vec<&str> = seen.success().lines().collect();
    assert!(seen.len() >= 2 && seen[0] == seen[1], "{seen:?}");
}

place_test!(a_file_of_authorities_that_cannot_be_used_is_named);
fn a_file_of_authorities_that_cannot_be_used_is_named(place: Place) {
    let host = Host::start(place);
    let planted = fs::read_to_string(host.server.authority()).unwrap();
    let planted = host.world.put("ca.pem", planted);
    let text = host.server.authority().with_file_name("log");
    let absent = host.world.home.join("absent.pem");
    for (path, want) in [
        (&planted, "where commands can write"),
        (&text, "no certificate in PEM form"),
        (&absent, "No such file"),
    ] {
        let line = format!("ca = '{}'", path.display());
        host.define_with("{ file = '~/token' }", &line);
        let mut command = host.world.configured("run");
        command.args(["--profile", "net", "--", "true"]);
        let refused = run(&mut command, LIMIT);
        let why = refused.errors();
        assert!(
            refused.code() == 125 && why.contains(want) && why.contains(path.to_str().unwrap()),
            "{why}"
        );
    }
}

place_test!(no_body_takes_the_value_of_the_next_request);
fn no_body_takes_the_value_of_the_next_request(place: Place) {
    let host = Host::start(place);
    let at = format!("https://localhost:{}/api", host.port);
    // What the host reads as the next request ends in the head of the one that is.
    let ask = |token: &str, more: &str| {
        let more = format!("-sS -m 20 {more} -H \"Authorization: Bearer {token}\"");
        let body = r"POST /api/keys HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nX-Ignore: ";
        format!(
            "curl {more} -X GET --data-binary $'{body}' {at}/reads-no-body --next {more} {at}/y; true"
        )
    };
    let sent = |path: &str| {
        let all = host.sent().into_iter().filter(|(at, _)| at == path);
        all.filter_map(|(_, value)| value).collect::<Vec<_>>()
    };
    let direct = format!(
        "--noproxy '*' --cacert {}",
        host.server.authority().display()
    );
    host.world.on_host(&ask(VALUE, &direct)).success();
    let keys = sent("/api/keys");
    assert!(
        keys.len() == 1 && keys[0].ends_with(VALUE),
        "the control: {keys:?}"
    );
    let mut session = host.session("net");
    session.bash(&ask("$ONE_TOKEN", "--noproxy ''")).success();
    assert_eq!(sent("/api/keys"), keys);
    let value = [format!("Bearer {VALUE}")];
    assert_eq!(
        (sent("/api/reads-no-body").last(), sent("/api/y")),
        (value.last(), value.to_vec())
    );
}

place_test!(bytes_after_an_answer_are_none_to_a_request_with_the_value);
fn bytes_after_an_answer_are_none_to_a_request_with_the_value(place: Place) {
    let host = Host::start(place);
    host.world.put("two.py", TWO);
    let authority = host.server.authority();
    let direct = format!(
        "SSL_CERT_FILE={} python3 two.py {} x",
        authority.display(),
        host.port
    );
    assert_eq!(
        host.world.on_host(&direct).success(),
        "100000\n",
        "the control"
    );
    let mut session = host.session("net");
    let own = format!(
        "python3 two.py {} $ONE_TOKEN ${{https_proxy##*:}}",
        host.port
    );
    assert_eq!(session.bash(&own).success(), "6\n");
    assert_eq!(
        host.sent().last().unwrap().1,
        Some(format!("Bearer {VALUE}"))
    );
}

// In the namespace of `why` root is nobody, and so is any other user.
place_test!(an_authority_of_root_stops_no_explanation, namespaced_only);
fn an_authority_of_root_stops_no_explanation(place: Place) {
    let host = Host::start(place);
    let authority = host.world.home.join("company.pem");
    fs::copy(host.server.authority(), &authority).unwrap();
    let line = format!("ca = '{}'", authority.display());
    host.define_with("{ file = '~/token' }", &line);
    let denied = ["--profile", "net", "--", "cat", "/etc/shadow"];
    let of = |command: &str| run(host.world.configured(command).args(denied), LIMIT);
    of("run").expect(1);
    let explained = of("why");
    assert!(explained.text().contains("/etc/shadow"), "{explained:?}");
}

place_test!(a_credential_is_tried_and_the_step_that_fails_is_named);
fn a_credential_is_tried_and_the_step_that_fails_is_named(place: Place) {
    let host = Host::start(place);
    let test = |words: &[&str]| {
        let mut command = host.world.configured("credential");
        command
            .env("SSL_CERT_FILE", host.server.authority())
            .arg("test");
        let done = run(command.args(words), LIMIT);
        let said = done.text() + &done.errors();
        assert!(!said.contains(VALUE), "{said}");
        done
    };
    let step = |code: i32| -> Value {
        let tried: Value = serde_json::from_str(&test(&["one", "--json"]).expect(code)).unwrap();
        tried[0].clone()
    };
    let answered = step(0);
    assert_eq!(
        (&answered["ok"], &answered["status"]),
        (&true.into(), &200.into())
    );
    let sent = host.sent();
    let (path, value) = sent.last().unwrap();
    assert!(
        path == "/api/" && value.as_ref().unwrap().starts_with("Basic "),
        "{sent:?}"
    );
    let text = test(&["one"]).success();
    assert!(
        text.contains(&format!("localhost:{}: answered 200", host.port)),
        "{text}"
    );
    host.define("{ command = ['/bin/false'] }");
    let failed = step(1);
    assert_eq!(failed["step"], "source", "{failed}");
    assert!(
        failed["why"].as_str().unwrap().contains("exit code"),
        "{failed}"
    );
    host.define("{ file = '~/absent' }");
    assert_eq!(step(1)["step"], "source");
    let proxy = ConnectProxy::answering("HTTP/1.1 403 Not by us\r\n\r\n");
    host.define_with("{ file = '~/token' }", &proxy.line());
    let failed = step(1);
    assert_eq!(failed["step"], "connection", "{failed}");
    assert!(
        failed["why"].as_str().unwrap().contains("Not by us"),
        "{failed}"
    );
    // The host sends the value back: what the person sees is that it answered, and why the answer stopped.
    let echoed = format!(
        "[credential.echoed]
        from = {{ file = '{}/token' }}
        hosts = ['localhost:{port}']
        attach = 'bearer'
        env = ['ECHOED_TOKEN']
        uses = [{{ path = '/api/echo', methods = ['GET'] }}]
        [profile.echoes]
        credentials = ['echoed']
        [profile.echoes.network]
        private = ['localhost:{port}']",
        host.world.home.display(),
        port = host.port
    );
    host.define_with("{ file = '~/token' }", &echoed);
    let tried: Value = serde_json::from_str(&test(&["echoed", "--json"]).expect(1)).unwrap();
    let failed = &tried[0];
    assert_eq!(failed["step"], "answer", "{failed}");
    // Where the cut comes at once, the answer's head has not been sent yet.
    let status = &failed["status"];
    assert!(*status == 200 || status.is_null(), "{failed}");
    let why = failed["why"].as_str().unwrap();
    assert!(
        why.contains("contained the value of a credential"),
        "{failed}"
    );
    host.define("{ file = '~/token' }");
    for (words, want) in [
        (&["two"][..], "there is no credential `two`"),
        (
            &["one", "--profile", "plain"],
            "does not have the credential",
        ),
    ] {
        let refused = test(words);
        assert!(
            refused.code() == 2 && refused.errors().contains(want),
            "{}",
            refused.errors()
        );
    }
}
