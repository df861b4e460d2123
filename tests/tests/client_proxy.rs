//! A company's network, for what `lazaret` itself asks for: which of its requests go through the proxy, what that is told, and what is believed.

use lazaret_tests::connect_proxy::{ConnectProxy, REFUSALS};
use lazaret_tests::model_server::{ModelServer, Reply};
use lazaret_tests::process::Finished;
use lazaret_tests::tls_host::TlsHost;
use lazaret_tests::{LIMIT, Place, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::process::Command;

const LOGIN: &str = "somebody:the-password-of-the-proxy";

/// Answers every request alike, and logs its path.
const ALIKE: &str = r#"
import http.server, json
found = {"title": "One", "url": "https://one.example/", "content": "first"}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, file=log, flush=True)
        body = json.dumps({"data": [{"id": "able"}], "results": [found]}).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
"#;

/// A server of this machine that answers every request alike, and a user who asks it.
struct Asking {
    world: World,
    host: TlsHost,
}

impl Asking {
    fn new(place: Place) -> Self {
        let world = World::new(place);
        let host = TlsHost::start(&world, &["localhost", "inside.corp.invalid"], ALIKE);
        Self { world, host }
    }

    fn place(&self) -> String {
        format!("localhost:{}", self.host.port)
    }

    fn url(&self) -> String {
        format!("https://{}", self.place())
    }

    /// The number of requests that it had.
    fn count(&self) -> usize {
        self.host.log().len()
    }

    fn authority(&self) -> String {
        format!("ca = ['{}']", self.host.authority().display())
    }

    /// The user's policy with these lines in `[gateway]`, which believes the server.
    fn define(&self, gateway: &str) {
        self.define_alone(&format!("{}\n{gateway}", self.authority()));
    }

    /// Defines a policy that does not believe it.
    fn define_alone(&self, gateway: &str) {
        let place = self.place();
        self.world.set_policy(format!(
            "version = 1\n[gateway]\n{gateway}\n[profile.near.web]\nprivate = ['{place}']\n"
        ));
    }

    /// Lists the models of a provider.
    fn models(&self, base: &str) -> Command {
        let mut command = self.world.program("lazaret");
        command
            .args(["models", "--provider", "openai-chat", "--base-url", base])
            .env("XDG_CONFIG_HOME", self.world.home.join("settings"));
        command
    }

    fn list(&self) -> Finished {
        run(&mut self.models(&self.url()), LIMIT)
    }

    /// `lazaret call` of a web tool.
    fn call(&self, tool: &str, input: &Value) -> Finished {
        let mut command = self.world.lazaret_call(tool, input);
        command
            .args(["--profile", "near"])
            .env("XDG_CONFIG_HOME", self.world.home.join("settings"))
            .env("SEARXNG_URL", self.url());
        run(&mut command, LIMIT)
    }

    /// Asks in each way; all have an answer.
    fn ask(&self) {
        let before = self.count();
        self.list().success();
        self.call("web_search", &json!({"query": "q"})).success();
        let page = json!({"url": format!("{}/page", self.url())});
        self.call("web_fetch", &page).success();
        assert!(self.count() >= before + 3);
    }
}

place_test!(requests_of_lazaret_go_through_the_policys_proxy);
fn requests_of_lazaret_go_through_the_policys_proxy(place: Place) {
    let (asking, proxy) = (Asking::new(place), ConnectProxy::open());
    asking.define("");
    asking.ask();
    assert!(proxy.take().is_empty(), "the control");
    let address = format!("127.0.0.1:{}", asking.host.port);
    let by_name = asking.place();
    for (names, told) in [(false, &address), (true, &by_name)] {
        asking.define(&format!("{}\nproxy_names = {names}", proxy.line()));
        asking.ask();
        // A name may stand for two addresses, of which one has no server.
        let is_v6 = |target: &String| target.starts_with("[::1]:");
        let asked: Vec<String> = proxy.targets();
        let asked: Vec<&String> = asked.iter().filter(|one| !is_v6(one)).collect();
        assert_eq!(asked, [told; 3]);
    }
    for direct in ["localhost", "127.0.0.0/8"] {
        let rest = format!("no_proxy = ['{direct}', '::1/128', '*.corp']");
        asking.define(&format!("{}\n{rest}", proxy.line()));
        asking.ask();
        assert!(proxy.take().is_empty(), "{direct}");
    }
}

place_test!(nothing_goes_to_a_proxy_in_clear_text_for_a_server_of_this_machine);
/// A key may be in it, and the proxy is another machine.
fn nothing_goes_to_a_proxy_in_clear_text_for_a_server_of_this_machine(place: Place) {
    let (asking, proxy) = (Asking::new(place), ConnectProxy::open());
    let answer = |_: &_| Reply::status(200, &json!({"data": [{"id": "able"}]}));
    let plain = ModelServer::answering("127.0.0.1", answer);
    let named = plain.url().replace("127.0.0.1", "localhost");
    for names in [false, true] {
        asking.define(&format!("{}\nproxy_names = {names}", proxy.line()));
        for url in [&plain.url(), &named] {
            let mut list = asking.models(url);
            let list = list.env("OPENAI_API_KEY", "sk-in-clear-text");
            assert!(run(list, LIMIT).success().contains("able"));
        }
        assert!(proxy.take().is_empty());
        asking.list().success();
        assert!(!proxy.take().is_empty(), "the control");
    }
    let keyed =
        |asked: &lazaret_tests::model_server::SeenRequest| asked.head.contains("sk-in-clear-text");
    assert!(plain.asked().len() == 4 && plain.asked().iter().all(keyed));
}

place_test!(requests_of_lazaret_use_the_environments_proxy_only_if_the_policy_says_so);
fn requests_of_lazaret_use_the_environments_proxy_only_if_the_policy_says_so(place: Place) {
    let (asking, proxy) = (Asking::new(place), ConnectProxy::open());
    let own = format!("http://127.0.0.1:{}", proxy.port);
    let list = |variables: &[(&str, &str)]| {
        let mut command = asking.models(&asking.url());
        command.envs(variables.iter().copied());
        run(&mut command, LIMIT)
    };
    let variables = [("HTTPS_PROXY", &*own), ("HTTP_PROXY", &*own)];
    asking.define("");
    list(&variables).success();
    assert!(proxy.take().is_empty());
    asking.define("proxy = 'environment'");
    list(&variables).success();
    assert!(!proxy.take().is_empty());
    list(&[variables[0], ("NO_PROXY", "localhost")]).success();
    list(&[]).success();
    assert!(proxy.take().is_empty());
    // A password in a variable can be read by all that inherit it: nothing is asked for rather than without the proxy.
    let before = asking.count();
    let with_password = own.replace("http://", "http://user:secret@");
    let refused = list(&[("HTTPS_PROXY", &with_password)]);
    let why = refused.errors();
    assert!(
        refused.code() == 1 && why.contains("`proxy_from = ") && !why.contains("secret"),
        "{why}"
    );
    assert_eq!(asking.count(), before);
}

place_test!(a_login_is_shown_to_the_proxy_for_requests_of_lazaret);
fn a_login_is_shown_to_the_proxy_for_requests_of_lazaret(place: Place) {
    let (asking, proxy) = (Asking::new(place), ConnectProxy::open());
    let encode = format!("printf %s {LOGIN} | base64 -w 0");
    let encoded = asking.world.on_host(&encode).success();
    let want = format!("Proxy-Authorization: Basic {encoded}\r\n");
    let file = asking.world.home.join("login");
    asking.world.write(&file, format!("{LOGIN}\n"));
    for from in [
        format!("{{ file = '{}' }}", file.display()),
        format!("{{ command = ['/bin/cat', '{}'] }}", file.display()),
    ] {
        asking.define(&format!("{}\nproxy_from = {from}", proxy.line()));
        asking.list().success();
        let heads = proxy.take();
        let has = |head: &String| head.contains(&want);
        assert!(!heads.is_empty() && heads.iter().all(has), "{heads:?}");
    }
    // What commands can write is no source.
    let before = asking.count();
    let file = asking.world.put("login", LOGIN);
    asking.define(&format!(
        "{}\nproxy_from = {{ file = '{}' }}",
        proxy.line(),
        file.display()
    ));
    let call = asking.call("web_search", &json!({"query": "q"}));
    assert_ne!(call.code(), 0);
    assert!(call.errors().contains("`proxy_from`"), "{}", call.errors());
    assert_eq!(asking.count(), before);
}

place_test!(a_proxy_that_refuses_is_named_to_the_user);
fn a_proxy_that_refuses_is_named_to_the_user(place: Place) {
    let asking = Asking::new(place);
    for (answer, want) in REFUSALS {
        let proxy = ConnectProxy::answering(answer);
        asking.define(&proxy.line());
        let name = format!("the proxy 127.0.0.1:{} ", proxy.port);
        let refused = [
            asking.list(),
            asking.call("web_search", &json!({"query": "q"})),
        ];
        for said in refused {
            let text = said.text() + &said.errors();
            assert!(said.code() != 0 && text.contains(want), "{text}");
            assert!(text.contains(&name), "{text}");
        }
    }
    assert_eq!(asking.count(), 0);
}

place_test!(closed_hosts_stay_closed_behind_a_proxy);
fn closed_hosts_stay_closed_behind_a_proxy(place: Place) {
    let (asking, proxy) = (Asking::new(place), ConnectProxy::open());
    for names in [false, true] {
        let gateway = format!(
            "{}\n{}\nproxy_names = {names}",
            asking.authority(),
            proxy.line()
        );
        asking.define_alone(&gateway);
        let page = json!({"url": format!("{}/page", asking.url())});
        asking.call("web_fetch", &page).success();
        assert!(!proxy.take().is_empty(), "the control");
        // Without the profile's `private`.
        asking.world.set_policy(format!(
            "version = 1\n[gateway]\n{gateway}\n[profile.near]\n"
        ));
        let refused = asking.call("web_fetch", &page);
        assert_ne!(refused.code(), 0);
        assert!(proxy.take().is_empty());
    }
}

once_test!(a_companys_authority_is_believed_for_requests_of_lazaret);
fn a_companys_authority_is_believed_for_requests_of_lazaret() {
    let asking = Asking::new(Place::any());
    let list = |host: &str| run(&mut asking.models(host), LIMIT);
    let here = asking.url();
    asking.define_alone("");
    let refused = list(&here);
    assert!(
        refused.code() == 1 && refused.errors().contains("certificate"),
        "{}",
        refused.errors()
    );
    asking.define("");
    assert!(list(&here).success().contains("able"));
    // A name that only the proxy knows.
    let proxy = ConnectProxy::to(asking.host.port);
    let inside = "https://inside.corp.invalid";
    asking.define(&format!("{}\nproxy_names = true", proxy.line()));
    assert!(list(inside).success().contains("able"));
    assert_eq!(proxy.targets(), ["inside.corp.invalid:443"]);
    asking.define(&proxy.line());
    assert_ne!(list(inside).code(), 0, "a proxy that is told addresses");
    assert!(proxy.take().is_empty());
    // A file that cannot be used ends the network rather than being left out.
    let before = asking.count();
    asking.define_alone("ca = ['/is/not/there.pem']");
    let refused = asking.list();
    let why = refused.errors();
    assert!(
        refused.code() == 1 && why.contains("/is/not/there.pem"),
        "{why}"
    );
    assert_eq!(asking.count(), before);
}

place_test!(doctor_tries_what_requests_of_lazaret_would_use);
fn doctor_tries_what_requests_of_lazaret_would_use(place: Place) {
    let asking = Asking::new(place);
    let doctor = || -> Value {
        let mut command = asking.world.configured("doctor");
        let report = run(command.arg("--json"), LIMIT);
        let report: Value = serde_json::from_str(&report.text()).unwrap();
        report["network"]["ownRequests"].clone()
    };
    let proxy = ConnectProxy::open();
    asking.define(&proxy.line());
    assert_eq!(doctor()["ok"], true, "the control");
    // The profile has no hosts, so that its session opens without the file.
    asking.define_alone("ca = ['/is/not/there.pem']");
    let tried = doctor();
    assert!(
        tried["ok"] == false && tried["why"].to_string().contains("/is/not/there.pem"),
        "{tried}"
    );
}
