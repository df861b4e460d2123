//! A company's proxy: which connections of cells go through it, what it is told, and what it can do.

use lazaret_fakes::PongServer;
use lazaret_tests::approval::audited;
use lazaret_tests::connect_proxy::{ConnectProxy, REFUSALS};
use lazaret_tests::session::Answer;
use lazaret_tests::{LIMIT, Place, Session, World, place_test, run};
use serde_json::Value;
use std::fs;

const LOGIN: &str = "somebody:the-password-of-the-proxy";

/// A server of this machine that answers each request with `pong`, and the world of a user whose cells reach it.
struct Company {
    world: World,
    server: PongServer,
}

impl Company {
    fn new(place: Place) -> Self {
        Self {
            world: World::new(place),
            server: PongServer::start(),
        }
    }

    /// The user's policy with these lines in `[gateway]`.
    fn text(&self, gateway: &str) -> String {
        let place = format!("['localhost:{}']", self.server.port);
        format!(
            "version = 1\n[gateway]\n{gateway}\n[profile.net.network]\nallow = {place}\nprivate = {place}\n\
             [profile.public.network]\nallow = {place}\n"
        )
    }

    fn define(&self, gateway: &str) {
        let path = self.world.policy();
        self.world.write(&path, self.text(gateway));
    }

    fn session(&self, profile: &str, variables: &[(&str, &str)]) -> Session {
        let mut command = self.world.configured("session");
        command.envs(variables.iter().copied());
        Session::start(command.args(["--profile", profile]))
    }

    /// Asks for the server from a cell.
    fn ask(&self, session: &mut Session) -> Answer {
        session.bash(&format!(
            "curl -sS -m 30 --noproxy '' http://localhost:{}/ 2>&1",
            self.server.port
        ))
    }

    fn pong(&self, variables: &[(&str, &str)]) {
        let mut session = self.session("net", variables);
        let answer = self.ask(&mut session);
        assert!(answer.success().contains("pong"), "{}", answer.text());
    }
}

place_test!(connections_of_cells_go_through_the_policys_proxy);
fn connections_of_cells_go_through_the_policys_proxy(place: Place) {
    let (company, proxy) = (Company::new(place), ConnectProxy::open());
    let (port, line) = (company.server.port, proxy.line());
    company.define("");
    company.pong(&[]);
    assert!(proxy.take().is_empty(), "the control");
    company.define(&line);
    company.pong(&[]);
    let asked = proxy.targets();
    assert_eq!(
        asked.last().unwrap(),
        &format!("127.0.0.1:{port}"),
        "{asked:?}"
    );
    company.define(&format!("{line}\nproxy_names = true"));
    company.pong(&[]);
    assert_eq!(proxy.targets(), [format!("localhost:{port}")]);
    for direct in ["localhost", "127.0.0.0/8"] {
        company.define(&format!("{line}\nno_proxy = ['{direct}', '*.corp']"));
        company.pong(&[]);
        assert!(proxy.take().is_empty(), "{direct}");
    }
}

place_test!(a_proxy_without_a_port_is_at_80, needs_root);
fn a_proxy_without_a_port_is_at_80(place: Place) {
    let (company, proxy) = (Company::new(place), ConnectProxy::at_80());
    let host = proxy.address.ip();
    for address in [format!("http://{host}"), format!("http://{host}:80")] {
        company.define(&format!("proxy = '{address}'"));
        company.pong(&[]);
        let asked = proxy.targets();
        let want = format!("127.0.0.1:{}", company.server.port);
        assert_eq!(asked.last(), Some(&want), "{address}");
    }
}

place_test!(the_environments_proxy_is_used_only_where_the_policy_says_so);
fn the_environments_proxy_is_used_only_where_the_policy_says_so(place: Place) {
    let (company, proxy) = (Company::new(place), ConnectProxy::open());
    let own = format!("http://127.0.0.1:{}", proxy.port);
    let variables = [
        ("HTTPS_PROXY", &*own),
        ("HTTP_PROXY", &*own),
        ("ALL_PROXY", &*own),
    ];
    company.define("");
    company.pong(&variables);
    assert!(proxy.take().is_empty());
    company.define("proxy = 'environment'");
    company.pong(&variables);
    assert!(!proxy.take().is_empty());
    company.pong(&[variables[0], ("NO_PROXY", "localhost")]);
    company.pong(&[]);
    assert!(proxy.take().is_empty());
    // A password in a variable can be read by all that inherit it.
    let with_password = own.replace("http://", "http://user:secret@");
    let mut command = company.world.configured("run");
    command
        .env("HTTPS_PROXY", with_password)
        .args(["--profile", "net", "--", "true"]);
    let refused = run(&mut command, LIMIT);
    let why = refused.errors();
    assert!(
        refused.code() == 125 && why.contains("`proxy_from = ") && !why.contains("secret"),
        "{why}"
    );
}

place_test!(a_proxys_login_is_shown_to_the_proxy_alone);
fn a_proxys_login_is_shown_to_the_proxy_alone(place: Place) {
    let (company, proxy) = (Company::new(place), ConnectProxy::open());
    let file = company.world.home.join("login");
    company.world.write(&file, format!("{LOGIN}\n"));
    let from = format!("proxy_from = {{ file = '{}' }}", file.display());
    company.define(&format!("{}\n{from}", proxy.line()));
    let mut session = company.session("net", &[]);
    let answer = company.ask(&mut session);
    assert!(answer.success().contains("pong"), "{}", answer.text());
    let encode = format!("printf %s {LOGIN} | base64 -w 0");
    let encoded = company.world.on_host(&encode);
    let want = format!("Proxy-Authorization: Basic {}\r\n", encoded.success());
    let heads = proxy.take();
    assert!(heads.iter().all(|head| head.contains(&want)), "{heads:?}");
    let look = format!(
        "cat {} 2>&1; env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; true",
        file.display()
    );
    let seen = session.bash(&look).result.to_string();
    assert!(!seen.contains("the-password"), "{seen}");
    let records = audited(&company.world, "connection");
    assert!(!records.is_empty() && !format!("{records:?}").contains("the-password"));
    assert!(session.close(LIMIT).success());
    // Without the file no session opens: the proxy would refuse each connection.
    fs::remove_file(&file).unwrap();
    let mut command = company.world.configured("run");
    command.args(["--profile", "net", "--", "true"]);
    let refused = run(&mut command, LIMIT);
    assert!(
        refused.errors().contains("`proxy_from`"),
        "{}",
        refused.errors()
    );
}

place_test!(a_refusal_names_the_proxy_and_what_it_said);
fn a_refusal_names_the_proxy_and_what_it_said(place: Place) {
    let company = Company::new(place);
    for (answer, want) in REFUSALS {
        let proxy = ConnectProxy::answering(answer);
        company.define(&proxy.line());
        let mut session = company.session("net", &[]);
        let said = company.ask(&mut session).result.to_string();
        let name = format!("the proxy 127.0.0.1:{} ", proxy.port);
        assert!(said.contains(&name) && said.contains(want), "{said}");
        assert!(session.close(LIMIT).success());
        let records = audited(&company.world, "connection");
        let record = records.last().unwrap();
        assert_eq!(record["verdict"], "proxy_refused", "{record}");
    }
}

place_test!(the_guard_judges_what_goes_through_a_proxy);
fn the_guard_judges_what_goes_through_a_proxy(place: Place) {
    let (company, proxy) = (Company::new(place), ConnectProxy::open());
    for names in [false, true] {
        company.define(&format!("{}\nproxy_names = {names}", proxy.line()));
        let mut session = company.session("public", &[]);
        let refused = company.ask(&mut session);
        let text = refused.result.to_string();
        assert!(
            !text.contains("pong") && text.contains("loopback address"),
            "{text}"
        );
        let address = format!(
            "curl -sS -m 30 --noproxy '' http://127.0.0.1:{}/",
            company.server.port
        );
        let refused = session.bash(&address).result.to_string();
        assert!(!refused.contains("pong"), "{refused}");
        assert!(proxy.take().is_empty());
        assert!(session.close(LIMIT).success());
        company.pong(&[]);
        assert!(!proxy.take().is_empty(), "the control");
    }
}

place_test!(refusal_by_a_proxy_is_a_denial_that_names_it);
fn refusal_by_a_proxy_is_a_denial_that_names_it(place: Place) {
    let company = Company::new(place);
    let denied = |answer: Answer| answer.result["metadata"]["denied"].clone();
    let proxy = ConnectProxy::open();
    company.define(&proxy.line());
    let answer = company.ask(&mut company.session("net", &[]));
    assert!(denied(answer).is_null(), "the control");
    let proxy = ConnectProxy::answering("HTTP/1.1 403 Not by us\r\n\r\n");
    company.define(&proxy.line());
    let refused = denied(company.ask(&mut company.session("net", &[])));
    let one = refused[0].to_string();
    for part in ["403 `Not by us`", "`[gateway]` of the policy", "localhost:"] {
        assert!(one.contains(part), "{part}: {refused:#}");
    }
    assert_eq!(refused[0]["by"]["kind"], "gateway", "{refused:#}");
}

place_test!(a_project_sets_no_proxy);
fn a_project_sets_no_proxy(place: Place) {
    let (company, proxy) = (Company::new(place), ConnectProxy::open());
    company.define("");
    for name in ["policy.toml", ".lazaret/policy.toml", "lazaret/policy.toml"] {
        company.world.put(name, company.text(&proxy.line()));
    }
    company.pong(&[]);
    assert!(proxy.take().is_empty());
    company.define(&proxy.line());
    company.pong(&[]);
    assert!(!proxy.take().is_empty(), "the control");
}

place_test!(doctor_asks_the_proxy_for_a_host_of_the_policy_and_for_nothing_else);
fn doctor_asks_the_proxy_for_a_host_of_the_policy_and_for_nothing_else(place: Place) {
    let company = Company::new(place);
    let doctor = |profile: &str| -> Value {
        let mut command = company.world.configured("doctor");
        command.args(["--profile", profile, "--json"]);
        let report: Value = serde_json::from_str(&run(&mut command, LIMIT).success()).unwrap();
        report["network"]["proxyAnswers"].clone()
    };
    let target = format!("localhost:{}", company.server.port);
    company.define("");
    assert_eq!(doctor("net"), Value::Null, "the control");
    let proxy = ConnectProxy::open();
    company.define(&format!("{}\nproxy_names = true", proxy.line()));
    let asked = doctor("net");
    assert!(asked["ok"] == true && asked["target"] == *target, "{asked}");
    assert_eq!(proxy.targets(), [target]);
    let asked = doctor("default");
    assert!(asked["ok"] == true && asked["target"].is_null(), "{asked}");
    assert!(proxy.take().is_empty());
    let file = company.world.home.join("login");
    company.world.write(&file, LOGIN);
    let from = format!("proxy_from = {{ file = '{}' }}", file.display());
    for (answer, with, ok) in [
        ("HTTP/1.1 403 Not by us\r\n\r\n", "", false),
        ("HTTP/1.1 407 Login\r\n\r\n", "", false),
        ("HTTP/1.1 407 Login\r\n\r\n", &*from, true),
        ("", "", false),
    ] {
        let proxy = ConnectProxy::answering(answer);
        company.define(&format!("{}\n{with}", proxy.line()));
        let asked = doctor("net");
        assert_eq!(asked["ok"], ok, "{asked}");
        let sent = proxy.take().concat();
        assert!(
            !sent.is_empty() && !sent.contains("Authorization"),
            "{sent}"
        );
        drop(proxy);
    }
}
