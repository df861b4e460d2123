//! Logins of programs in cells: an authority of the test's gives tokens, and a client logs in as Codex and as Claude Code do. The real
//! tokens reach the host and no cell, no file of one, and no process but the gateway.

use lazaret_tests::process::{below, until};
use lazaret_tests::tls_host::TlsHost;
use lazaret_tests::{LIMIT, Place, Session, World, place_test};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

/// An authority whose refresh tokens are good once, and an interface that takes its access tokens. Writes what it receives, a line of
/// JSON each. Tokens have digits behind this text, which no other text has.
const SERVER: &str = r#"
import base64, http.server, json, secrets, urllib.parse
good = {'access': set(), 'refresh': set()}
def token(kind):
    made = f'real-{kind}-{secrets.token_hex(16)}'
    good[kind].add(made)
    return made
def part(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip('=')
def tokens():
    claims = {'email': 'me@example.org', 'exp': 4000000000, 'sid': 'a-session-of-the-web'}
    identity = f"{part({'alg': 'RS256'})}.{part(claims)}.real-identity-{secrets.token_hex(16)}"
    return {'access_token': token('access'), 'refresh_token': token('refresh'), 'id_token': identity,
            'token_type': 'Bearer', 'expires_in': 28800, 'account': {'email_address': 'me@example.org'}}
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def answer(self, status, body):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get('Content-Length', 0))).decode()
        print(json.dumps({'path': self.path, 'authorization': self.headers.get('Authorization'), 'body': body}), file=log, flush=True)
        if self.path == '/oauth/token':
            if self.headers.get('Content-Type') == 'application/json':
                asked = json.loads(body)
            else:
                asked = dict(urllib.parse.parse_qsl(body))
            if asked['grant_type'] == 'refresh_token':
                if asked['refresh_token'] not in good['refresh']:
                    return self.answer(400, {'error': 'invalid_grant'})
                good['refresh'].remove(asked['refresh_token'])
            if asked.get('code') == 'unreadable':
                return self.answer(200, ('token=' + token('access')).encode())
            return self.answer(200, tokens())
        sent = (self.headers.get('Authorization') or '').removeprefix('Bearer ')
        self.answer(200 if sent in good['access'] else 401, {'served': sent in good['access']})
    do_POST = do_GET
    def log_message(self, *arguments): pass
"#;

/// A client: its first word is the kind of login, its second the file of its state. It says how many tokens its own memory holds.
const CLIENT: &str = r#"
import json, os, re, subprocess, sys
kind, state, place = sys.argv[1:]
def send(path, *options):
    done = subprocess.run(['curl', '-sS', '-m', '20', '--noproxy', '', *options, f'https://{place}{path}'], stdout=subprocess.PIPE)
    return done.stdout
def post(form, members):
    if form == 'form':
        import urllib.parse
        return send('/oauth/token', '-H', 'Content-Type: application/x-www-form-urlencoded', '-d', urllib.parse.urlencode(members))
    return send('/oauth/token', '-H', 'Content-Type: application/json', '-d', json.dumps(members))
def stored():
    return json.load(open(state))
code = {'grant_type': 'authorization_code', 'code': 'c', 'redirect_uri': 'http://localhost:1455/auth/callback', 'client_id': 'app', 'code_verifier': 'v'}
if kind == 'use':
    print(send('/api/x', '-H', 'Authorization: Bearer ' + stored()['access_token']).decode())
else:
    if kind == 'refresh': members = {'client_id': 'app', 'grant_type': 'refresh_token', 'refresh_token': stored()['refresh_token'], 'scope': 'openid'}
    elif kind == 'unreadable': members = {**code, 'code': 'unreadable'}
    elif kind == 'claude': members = {**code, 'state': 's'}
    else: members = code
    answer = post('form' if kind == 'codex' else 'json', members)
    try: got = json.loads(answer)
    except ValueError: got = {}
    if 'access_token' in got: open(state, 'wb').write(answer)
    held = set()
    with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb') as memory:
        for line in maps:
            start, end = (int(number, 16) for number in line.split()[0].split('-'))
            if line.split()[1][0] != 'r' or end - start > 1 << 28: continue
            try:
                memory.seek(start)
                held |= set(re.findall(rb'real-[a-z]+-[0-9a-f]{32}', memory.read(end - start)))
            except (OSError, OverflowError): pass
    print(json.dumps({'held': len(held), 'error': got.get('error'), 'why': got.get('error_description'), 'account': got.get('account')}))
"#;

/// An authority with its interface, and the world of a user whose agents log in there.
struct Authority {
    world: World,
    server: TlsHost,
}

impl Authority {
    fn start(place: Place) -> Self {
        let world = World::new(place);
        let server = TlsHost::start(&world, &["localhost"], SERVER);
        world.put("client.py", CLIENT);
        let authority = Self { world, server };
        authority.define("");
        authority
    }

    /// Gives the user's policy a credential that captures logins, with this line beside, and a profile without it.
    fn define(&self, from: &str) {
        let port = self.server.port;
        let text = format!(
            "version = 1
            [credential.login]
            {from}
            hosts = ['localhost:{port}']
            uses = [{{ path = '/api/**' }}]
            [credential.login.capture]
            endpoints = [{{ host = 'localhost:{port}', path = '/oauth/token' }}]
            access_prefix = 'sk-ant-oat01-'
            claims = ['email', 'exp']
            members = ['account']
            [profile.net]
            credentials = ['login']
            [profile.net.network]
            private = ['localhost:{port}']
            [profile.plain.network]
            allow = ['localhost:{port}']
            private = ['localhost:{port}']"
        );
        self.world.set_policy(text);
    }

    fn session(&self, profile: &str) -> Session {
        let mut command = self.world.configured("session");
        command.env("SSL_CERT_FILE", self.server.authority());
        Session::start(command.args(["--profile", profile]))
    }

    /// The script of one step of the client.
    fn client(&self, step: &str) -> String {
        format!(
            "python3 client.py {step} auth.json localhost:{} 2>&1",
            self.server.port
        )
    }

    /// Runs one step; returns what it printed.
    fn step(&self, session: &mut Session, step: &str) -> Value {
        let ran = session.bash(&self.client(step));
        let printed = ran.success();
        serde_json::from_str(printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
    }

    /// The state of the client, as it lies in the cell's files.
    fn state(&self) -> String {
        fs::read_to_string(self.world.project.join("auth.json")).unwrap_or_default()
    }

    /// The requests that the host was sent.
    fn sent(&self) -> Vec<Value> {
        let lines = self.server.log().into_iter();
        lines
            .map(|line| serde_json::from_str(&line).unwrap())
            .collect()
    }
}

const REAL: &str = "real-";

place_test!(tokens_of_a_login_reach_the_host_and_no_cell);
fn tokens_of_a_login_reach_the_host_and_no_cell(place: Place) {
    let authority = Authority::start(place);
    // Without the credential the client has them: the control.
    let trusted = fs::read_to_string(authority.server.authority()).unwrap();
    authority.world.put("ca.pem", trusted);
    let mut plain = authority.session("plain");
    let control = format!(
        "export CURL_CA_BUNDLE=$PWD/ca.pem; {}",
        authority.client("codex")
    );
    let control: Value = serde_json::from_str(plain.bash(&control).success()).unwrap();
    assert!(control["held"].as_u64().unwrap() >= 3, "{control}");
    assert!(authority.state().contains(REAL));
    drop(plain);
    fs::remove_file(authority.world.project.join("auth.json")).unwrap();
    let mut session = authority.session("net");
    for kind in ["codex", "claude"] {
        let got = authority.step(&mut session, kind);
        assert_eq!(
            (&got["held"], &got["error"]),
            (&0.into(), &Value::Null),
            "{got}"
        );
        assert_eq!(got["account"]["email_address"], "me@example.org");
        let state: Value = serde_json::from_str(&authority.state()).unwrap();
        let text = |name: &str| state[name].as_str().unwrap().to_owned();
        assert!(
            text("access_token").starts_with("sk-ant-oat01-lzlogin-"),
            "{state}"
        );
        assert_eq!(text("id_token").split('.').count(), 3, "{state}");
        assert_eq!(authority.step(&mut session, "use")["served"], true);
        let refreshed = authority.step(&mut session, "refresh");
        assert_eq!(
            (&refreshed["held"], &refreshed["error"]),
            (&0.into(), &Value::Null)
        );
        assert_ne!(authority.state(), state.to_string());
        assert_eq!(authority.step(&mut session, "use")["served"], true);
        let found = session.bash("grep -rla 'real-[a-z]*-[0-9a-f]' . ~ /tmp 2>/dev/null; true");
        assert_eq!(found.success().replace("./client.py", "").trim(), "");
    }
    let sent = authority.sent();
    let used = sent.iter().filter(|one| one["path"] == "/api/x");
    let mut used = used.map(|one| one["authorization"].as_str().unwrap());
    assert!(used.all(|value| value.starts_with("Bearer real-access-")));
}

place_test!(no_process_but_the_gateway_holds_a_token, root_only);
/// As root, who may read the memory of each.
fn no_process_but_the_gateway_holds_a_token(place: Place) {
    let authority = Authority::start(place);
    let mut session = authority.session("net");
    authority.step(&mut session, "codex");
    authority.step(&mut session, "use");
    let sent = authority.sent();
    let sent = sent.last().unwrap()["authorization"].as_str().unwrap();
    let token = sent.strip_prefix("Bearer ").unwrap();
    let held = below(session.pid()).into_iter();
    let held = held.filter(|process| process.memory_holds(token));
    let held: Vec<_> = held.map(|process| process.name).collect();
    assert_eq!(held, ["lazaret-gateway"]);
}

place_test!(an_answer_that_cannot_be_read_does_not_pass);
fn an_answer_that_cannot_be_read_does_not_pass(place: Place) {
    let authority = Authority::start(place);
    let mut session = authority.session("net");
    let got = authority.step(&mut session, "unreadable");
    assert_eq!(
        (&got["held"], &got["error"]),
        (&0.into(), &"server_error".into()),
        "{got}"
    );
    assert_eq!(authority.sent().len(), 1);
}

place_test!(a_login_outlives_its_gateway_and_its_session_only_with_a_key_of_the_users);
fn a_login_outlives_its_gateway_and_its_session_only_with_a_key_of_the_users(place: Place) {
    let authority = Authority::start(place);
    let key = authority.world.home.join("login.key");
    authority.world.write(&key, "k".repeat(44));
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let kept = format!("from = {{ file = '{}' }}", key.display());
    for (from, outlives) in [("", false), (&*kept, true)] {
        authority.define(from);
        let mut session = authority.session("net");
        authority.step(&mut session, "codex");
        let gateway = below(session.pid()).into_iter();
        let gateway = gateway
            .filter(|process| process.name == "lazaret-gateway")
            .collect::<Vec<_>>();
        gateway[0].kill();
        assert!(until(LIMIT, || !gateway[0].is_alive()));
        let mut said = String::new();
        let served = until(LIMIT, || {
            said = session.bash(&authority.client("use")).result["result"].to_string();
            said.contains("true")
        });
        assert!(served, "{said}");
        drop(session);
        let mut next = authority.session("net");
        let used = next.bash(&authority.client("use"));
        assert_eq!(
            used.result.to_string().contains("true"),
            outlives,
            "{used:?}"
        );
        let refreshed = authority.step(&mut next, "refresh");
        let error = if outlives {
            Value::Null
        } else {
            "invalid_grant".into()
        };
        assert_eq!(refreshed["error"], error, "{refreshed}");
    }
}
