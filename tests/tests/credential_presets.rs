//! The presets for package registries, with the clients that people have: npm, pip, Cargo, and the requests of twine. The registries are
//! one server of the test behind a company's proxy, which is told their names.

use lazaret_tests::registries::Registries;
use lazaret_tests::{Finished, LIMIT, Place, World, cargo_alone, place_test, run};
use serde_json::Value;

const VALUE: &str = "the-real-value-of-the-token-0123456789";
const NAMES: [&str; 3] = ["npm.example", "pypi.example", "crates.example"];

/// A registry of npm, an index of Python and a registry of Cargo, all with one private package. Without the token they refuse.
const SERVER: &str = r##"
import base64, http.server, json
VALUE = 'the-real-value-of-the-token-0123456789'
BASIC = 'Basic ' + base64.b64encode(('__token__:' + VALUE).encode()).decode()

CONFIG = {'dl': 'https://crates.example/api/v1/crates', 'api': 'https://crates.example', 'auth-required': True}
ANSWERS = {
    ('npm.example', 'GET', '/@corp%2fprivate'): ('Bearer ' + VALUE, json.dumps(packument('@corp/private', 'https://npm.example/@corp/private/-/private-1.0.0.tgz'))),
    ('npm.example', 'GET', '/@corp/private/-/private-1.0.0.tgz'): ('Bearer ' + VALUE, tarball('@corp/private')),
    ('npm.example', 'PUT', '/@corp%2fown'): ('Bearer ' + VALUE, '{"ok":true}'),
    ('pypi.example', 'GET', '/simple/private/'): (BASIC, '<!DOCTYPE html><a href="/packages/private-1.0-py3-none-any.whl">private-1.0-py3-none-any.whl</a>'),
    ('pypi.example', 'GET', '/packages/private-1.0-py3-none-any.whl'): (BASIC, wheel('private')),
    ('pypi.example', 'POST', '/legacy/'): (BASIC, 'taken'),
    ('crates.example', 'GET', '/index/config.json'): (VALUE, json.dumps(CONFIG)),
    ('crates.example', 'PUT', '/api/v1/crates/new'): (VALUE, '{"warnings":{"invalid_categories":[],"invalid_badges":[],"other":[]}}'),
    ('crates.example', 'DELETE', '/api/v1/crates/own/0.1.0/yank'): (VALUE, '{"ok":true}'),
}

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do(self):
        self.rfile.read(int(self.headers.get('Content-Length', 0)))
        host, path, sent = self.headers['Host'].split(':')[0], self.path.split('?')[0], self.headers.get('Authorization')
        print(json.dumps([host, self.command, path, sent]), file=log, flush=True)
        if path == '/api/v1/crates/new':
            # Cargo waits until it finds there what it has published.
            entry = {'name': 'own', 'vers': '0.1.0', 'deps': [], 'cksum': '0' * 64, 'features': {}, 'yanked': False}
            ANSWERS[(host, 'GET', '/index/3/o/own')] = (VALUE, json.dumps(entry))
        wanted, body = ANSWERS.get((host, self.command, path), (sent, None))
        status = 404 if body is None else 200 if sent == wanted else 401
        body = body if status == 200 else 'refused'
        body = body if isinstance(body, bytes) else body.encode()
        kind = 'text/html' if path.startswith('/simple') else 'application/json'
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_PUT = do_POST = do_DELETE = do
    def log_message(self, *arguments): pass
"##;

/// The registries, and a user with a token for each, and with a profile `plain` without.
struct Tokens(Registries);

impl Tokens {
    fn start(place: Place) -> Self {
        let registries = Registries::start(place, &NAMES, SERVER, |world, hosts| {
            let credential = |name: &str, more: &str| {
                format!(
                    "[credential.{name}]\nfrom = {{ file = '{}/token' }}\npreset = '{name}'\nhosts = ['{name}.example']\n{more}\n",
                    world.home.display()
                )
            };
            [
                credential("npm", ""),
                credential("pypi", ""),
                credential("crates", "env = ['CARGO_REGISTRIES_CORP_TOKEN']"),
                format!(
                    "[profile.net]\ncredentials = ['npm', 'pypi', 'crates']\nnetwork.private = {hosts}\n"
                ),
                format!("[profile.plain.network]\nallow = {hosts}\nprivate = {hosts}\n"),
            ]
            .concat()
        });
        let world = &registries.world;
        world.write(&world.home.join("token"), format!("{VALUE}\n"));
        Self(registries)
    }

    /// `lazaret run` of this script.
    fn run(&self, profile: &str, options: &[&str], script: &str) -> Finished {
        let mut command = self.0.world.configured("run");
        command
            .args(["--profile", profile])
            .args(options)
            .args(["--", "bash", "-ec", script]);
        let done = run(&mut command, LIMIT);
        let said = done.text() + &done.errors();
        assert!(!said.contains(VALUE), "{said}");
        done
    }

    /// The requests to this host: method, path, and the credential.
    fn sent(&self, host: &str) -> Vec<(String, String, Option<String>)> {
        let lines = self.0.server.log().into_iter().filter_map(|line| {
            let seen: Value = serde_json::from_str(&line).unwrap();
            let text = |at: usize| seen[at].as_str().map(str::to_owned);
            (text(0)? == host).then_some((text(1)?, text(2)?, text(3)))
        });
        lines.collect()
    }

    /// Each of these requests arrived with this credential.
    fn assert_sent(&self, host: &str, value: &str, requests: &[(&str, &str)]) {
        let sent = self.sent(host);
        for (method, path) in requests {
            let wanted = (*method, *path, Some(value));
            let arrived = sent
                .iter()
                .any(|(method, path, sent)| (&**method, &**path, sent.as_deref()) == wanted);
            assert!(arrived, "{method} {path}: {sent:?}");
        }
    }
}

place_test!(npm_installs_and_publishes_and_makes_no_token);
fn npm_installs_and_publishes_and_makes_no_token(place: Place) {
    let registries = Tokens::start(place);
    let world = &registries.0.world;
    world.put(
        "own/package.json",
        r#"{"name":"@corp/own","version":"1.0.0"}"#,
    );
    let registry = "export npm_config_registry=https://npm.example/";
    let view = format!("{registry}; npm view @corp/private version");
    let control = registries.run("plain", &[], &view);
    assert!(control.errors().contains("E401"), "{}", control.errors());
    let script = format!(
        "{view}; mkdir -p new; cd new; npm install --no-save @corp/private 2>&1; cat node_modules/@corp/private/package.json
         cd ../own; npm publish 2>&1; sh -c 'npm dist-tag ls @corp/own || true' 2>&1
         npm token list 2>&1 || true; cat ~/.npmrc; printf '%s\\n' $NPM_TOKEN"
    );
    let done = registries.run("net", &[], &script);
    let said = done.success();
    assert!(said.starts_with("1.0.0\n"), "{said}");
    assert!(said.contains("+ @corp/own@1.0.0"), "{said}");
    assert!(said.contains("403 Forbidden - GET"), "{said}");
    let placeholder = said.lines().last().unwrap();
    assert!(
        placeholder.starts_with("npm_") && placeholder.len() == 40,
        "{said}"
    );
    let line = format!("//npm.example/:_authToken={placeholder}\n");
    assert!(said.contains(&line), "{said}");
    registries.assert_sent(
        "npm.example",
        &format!("Bearer {VALUE}"),
        &[
            ("GET", "/@corp/private/-/private-1.0.0.tgz"),
            ("PUT", "/@corp%2fown"),
            ("GET", "/-/package/@corp%2fown/dist-tags"),
        ],
    );
    let is_token = |one: &(String, String, Option<String>)| one.1.contains("tokens");
    assert!(!registries.sent("npm.example").iter().any(is_token));
}

place_test!(an_index_of_python_is_read_and_written_with_the_token);
fn an_index_of_python_is_read_and_written_with_the_token(place: Place) {
    let registries = Tokens::start(place);
    let download = "/usr/bin/python3 -m pip download --no-deps --no-input -d files -i https://pypi.example/simple/ private 2>&1";
    if !registries
        .0
        .world
        .on_host("/usr/bin/python3 -m pip --version")
        .success()
        .is_empty()
    {
        let control = registries.run("plain", &[], download);
        assert_ne!(control.code(), 0, "{}", control.text());
        let got = registries.run("net", &[], &format!("{download}; ls files"));
        assert!(got.success().ends_with("private-1.0-py3-none-any.whl\n"));
    }
    // As twine sends it.
    let publish =
        "curl -sS -m 20 -u \"$TWINE_USERNAME:$TWINE_PASSWORD\" -F content=x https://pypi.example";
    let script = format!(
        "{publish}/legacy/; echo; echo $TWINE_USERNAME $UV_PUBLISH_TOKEN; {publish}/_/oidc/mint-token"
    );
    let done = registries.run("net", &[], &script);
    let said = done.success();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "taken", "{said}");
    assert!(lines[1].starts_with("__token__ pypi-"), "{said}");
    assert!(
        lines[2].contains("is refused by the policy of credential"),
        "{said}"
    );
    let pair = registries
        .0
        .world
        .on_host(&format!("printf %s __token__:{VALUE} | base64 -w 0"));
    let basic = format!("Basic {}", pair.success());
    registries.assert_sent("pypi.example", &basic, &[("POST", "/legacy/")]);
}

place_test!(cargo_publishes_and_yanks_and_adds_no_owner);
fn cargo_publishes_and_yanks_and_adds_no_owner(place: Place) {
    let registries = Tokens::start(place);
    let cargo = cargo_alone::copy(&registries.0.world);
    let cargo = cargo.display().to_string();
    let manifest = "[package]\nname = \"own\"\nversion = \"0.1.0\"\nedition = \"2021\"\nlicense = \"MIT\"\ndescription = \"d\"\n";
    registries.0.world.put("Cargo.toml", manifest);
    registries.0.world.put("src/lib.rs", "");
    let options = [
        "--read",
        &*cargo,
        "--env",
        "CARGO_REGISTRIES_CORP_INDEX=sparse+https://crates.example/index/",
    ];
    let yank = format!("{cargo} yank --registry corp --version 0.1.0 own 2>&1");
    let control = registries.run("plain", &options, &yank);
    assert_ne!(control.code(), 0, "{}", control.text());
    let script = format!(
        "{yank}; {cargo} publish --registry corp --no-verify --allow-dirty 2>&1 || true
         {cargo} owner --registry corp --add other own 2>&1 || true"
    );
    let done = registries.run("net", &options, &script);
    let said = done.success();
    assert!(
        said.contains("is refused by the policy of credential"),
        "{said}"
    );
    registries.assert_sent(
        "crates.example",
        VALUE,
        &[
            ("GET", "/index/config.json"),
            ("DELETE", "/api/v1/crates/own/0.1.0/yank"),
            ("PUT", "/api/v1/crates/new"),
        ],
    );
    let is_owners = |one: &(String, String, Option<String>)| one.1.ends_with("owners");
    assert!(!registries.sent("crates.example").iter().any(is_owners));
}

/// Checks both files by what reads them.
const READ: &str = "import configparser, os, tomllib
index = configparser.ConfigParser(); index.read(os.path.expanduser('~/.pypirc'))
servers = index['distutils']['index-servers'].split()
print(servers, index['pypi']['username'], index['pypi']['password'] == os.environ['TWINE_PASSWORD'])
cargo = tomllib.load(open(os.path.expanduser('~/.cargo/credentials.toml'), 'rb'))
print(cargo['registry']['token'] == os.environ['CARGO_REGISTRY_TOKEN'])";

place_test!(files_of_clients_have_the_placeholders_of_their_variables);
fn files_of_clients_have_the_placeholders_of_their_variables(place: Place) {
    let world = World::new(place);
    world.write(&world.home.join("token"), VALUE);
    let define = |hosts: &str| {
        let from = format!("{{ file = '{}/token' }}", world.home.display());
        let one = |name: &str| {
            format!("[credential.{name}]\nfrom = {from}\npreset = '{name}'\n{hosts}\n")
        };
        let names = "[profile.net]\ncredentials = ['pypi', 'crates']\n";
        let (pypi, crates) = (one("pypi"), one("crates"));
        world.set_policy(format!("version = 1\n{pypi}{crates}{names}"));
    };
    define("");
    let read = world.in_cell_with(&["--profile", "net"], &format!("python3 -c \"{READ}\""));
    assert_eq!(
        read.success(),
        "['pypi'] __token__ True\nTrue\n",
        "{}",
        read.errors()
    );
    // A registry of one's own has a name there that nobody else knows.
    define("hosts = ['a.example']");
    let none = "ls ~/.pypirc ~/.cargo/credentials.toml 2>/dev/null; true";
    let listed = world.in_cell_with(&["--profile", "net"], none);
    assert_eq!(listed.success(), "");
}
