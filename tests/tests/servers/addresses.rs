//! Servers with an address: spoken to as their protocols have it, held to bounds, and sent nowhere by what they say.

use super::scene::{answer_of, call, mcp, names, servers, session, world};
use lazaret_tests::connect_proxy::ConnectProxy;
use lazaret_tests::process;
use lazaret_tests::remote_server::{RemoteServer, answered, log_in, settings};
use lazaret_tests::tls_host::TlsHost;
use lazaret_tests::{LIMIT, Place, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;

/// A world whose only server is one in this mode.
fn with(mode: &str) -> (World, RemoteServer) {
    let world = world(Place::any(), json!({}));
    let remote = RemoteServer::start(&world, mode);
    settings(&world, json!({ "there": remote.entry() }));
    (world, remote)
}

place_test!(tools_at_an_address_are_listed_and_called);
fn tools_at_an_address_are_listed_and_called(place: Place) {
    let world = world(place, json!({}));
    let remote = RemoteServer::start(&world, "friendly");
    settings(&world, json!({ "there": remote.entry() }));
    assert!(names(&world).contains(&"mcp__there__echo".to_owned()));
    assert_eq!(
        answer_of(&world, "mcp__there__echo", json!({ "text": "hällo" })),
        "hällo"
    );
    let failed = call(
        &world,
        "mcp__there__fail",
        json!({ "text": "it cannot be done" }),
    );
    assert_eq!(failed.code(), 1);
    assert!(
        failed
            .errors()
            .contains("the server `there` says: it cannot be done"),
        "{}",
        failed.errors()
    );
    let mut session = session(&world, &[]);
    let slow = session.start_call("bash", json!({ "command": "sleep 0.2" }));
    assert_eq!(
        session
            .call("mcp__there__echo", json!({ "text": "two" }))
            .success(),
        "two"
    );
    assert!(session.answer_within(&slow, LIMIT).ok());
}

once_test!(a_stream_that_breaks_off_is_resumed);
fn a_stream_that_breaks_off_is_resumed() {
    let (world, remote) = with("friendly");
    assert_eq!(answer_of(&world, "mcp__there__resume", json!({})), "resume");
    assert!(remote.was_asked("GET", "\"last-event-id\":\"event-1\""));
}

once_test!(a_session_that_has_expired_is_begun_anew);
fn a_session_that_has_expired_is_begun_anew() {
    let (world, remote) = with("friendly");
    let mut session = session(&world, &[]);
    assert_eq!(
        session.call("mcp__there__expire", json!({})).success(),
        "expire"
    );
    assert_eq!(
        session
            .call("mcp__there__echo", json!({ "text": "again" }))
            .success(),
        "again"
    );
    let is_first = |one: &&Value| one.to_string().contains("\\\"initialize\\\"");
    assert!(process::until(LIMIT, || remote
        .requests()
        .iter()
        .filter(is_first)
        .count()
        == 2));
}

once_test!(a_session_is_ended_at_the_server);
fn a_session_is_ended_at_the_server() {
    let (world, remote) = with("friendly");
    assert_eq!(
        answer_of(&world, "mcp__there__echo", json!({ "text": "x" })),
        "x"
    );
    assert!(process::until(LIMIT, || remote.was_asked("DELETE", "mcp-session-id")));
}

once_test!(the_protocol_of_2024_is_spoken_too);
fn the_protocol_of_2024_is_spoken_too() {
    let world = world(Place::any(), json!({}));
    let remote = RemoteServer::start(&world, "sse");
    settings(
        &world,
        json!({ "there": { "type": "sse", "url": remote.url() } }),
    );
    assert_eq!(
        answer_of(&world, "mcp__there__echo", json!({ "text": "x" })),
        "x"
    );
    assert!(remote.was_asked("POST", "/messages?session=1"));
}

once_test!(headers_are_sent_and_secrets_in_them_are_not_shown);
fn headers_are_sent_and_secrets_in_them_are_not_shown() {
    let world = world(Place::any(), json!({}));
    let remote = RemoteServer::start(&world, "friendly");
    let headers = json!({ "Authorization": "Bearer a-token-of-mine", "X-Tenant": "${MY_API_KEY}", "X-Client": "plainly" });
    settings(
        &world,
        json!({ "there": { "url": remote.url(), "headers": headers } }),
    );
    let shown = answer_of(&world, "mcp__there__headers", json!({}));
    assert!(
        remote.was_asked("POST", "Bearer a-token-of-mine") && remote.was_asked("POST", &world.key)
    );
    assert!(shown.contains("\"x-client\": \"plainly\""), "{shown}");
    assert!(
        !shown.contains("a-token-of-mine") && !shown.contains(&world.key),
        "{shown}"
    );
    let listed = mcp(&world, &["list", "--json"]).success();
    assert!(
        listed.contains("Authorization") && !listed.contains("a-token-of-mine"),
        "{listed}"
    );
}

once_test!(a_call_that_nobody_waits_for_is_cancelled_there);
fn a_call_that_nobody_waits_for_is_cancelled_there() {
    let (world, remote) = with("friendly");
    let mut session = session(&world, &[]);
    let slow = session.start_call("mcp__there__sleep", json!({}));
    assert!(process::until(LIMIT, || remote.was_asked("POST", "\\\"sleep\\\"")));
    session.cancel(&slow);
    assert!(process::until(LIMIT, || remote
        .was_asked("POST", "notifications/cancelled")));
    assert_eq!(
        session
            .call("mcp__there__echo", json!({ "text": "on" }))
            .success(),
        "on"
    );
}

once_test!(a_redirection_is_not_followed);
fn a_redirection_is_not_followed() {
    let world = world(Place::any(), json!({}));
    let elsewhere = RemoteServer::start(&world, "friendly");
    let remote = RemoteServer::beside(&world, "redirect", &elsewhere.url());
    settings(&world, json!({ "there": remote.entry() }));
    let status = mcp(&world, &["status"]);
    assert!(
        status.text().contains("HTTP status 307"),
        "{}",
        status.text()
    );
    assert!(!remote.requests().is_empty() && elsewhere.requests().is_empty());
}

once_test!(messages_go_to_the_server_s_own_host_alone);
fn messages_go_to_the_server_s_own_host_alone() {
    let world = world(Place::any(), json!({}));
    let elsewhere = RemoteServer::start(&world, "friendly");
    let remote = RemoteServer::beside(&world, "sse-elsewhere", &elsewhere.url());
    settings(
        &world,
        json!({ "there": { "type": "sse", "url": remote.url() } }),
    );
    let status = mcp(&world, &["status"]);
    assert!(
        status.text().contains("messages sent to a host other"),
        "{}",
        status.text()
    );
    assert!(elsewhere.requests().is_empty());
}

once_test!(server_that_exceeds_a_limit_is_lost_by_name);
fn server_that_exceeds_a_limit_is_lost_by_name() {
    for (mode, why) in [
        ("endless", "messages that nobody asked for"),
        ("hasty", "messages that nobody asked for"),
        ("giant", "more than 8388608 bytes"),
        ("long-event", "an event of more than 8388608 bytes"),
        ("values", "a message of more than 100000 values"),
        ("html", "its answer is not a message"),
    ] {
        let (world, _remote) = with(mode);
        let failed = call(&world, "mcp__there__echo", json!({ "text": "x" }));
        assert_ne!(failed.code(), 0, "{mode}");
        let errors = failed.errors();
        assert!(
            errors.contains("the server `there`") && errors.contains(why),
            "{mode}: {errors}"
        );
    }
}

once_test!(a_repository_names_public_addresses_alone);
fn a_repository_names_public_addresses_alone() {
    let world = world(Place::any(), json!({}));
    let remote = RemoteServer::start(&world, "friendly");
    world.put(
        ".mcp.json",
        json!({ "mcpServers": { "there": remote.entry() } }).to_string(),
    );
    mcp(&world, &["accept", "--yes"]).success();
    let status = mcp(&world, &["status"]);
    assert!(
        status.text().contains("a loopback address"),
        "{}",
        status.text()
    );
    assert!(remote.requests().is_empty());
    settings(&world, json!({ "there": remote.entry() }));
    assert!(
        mcp(&world, &["status"]).text().contains("there: 6 tools"),
        "control: the user may"
    );
}

/// Passes requests on to `PORT`.
const FRONT: &str = r#"
import http.client, http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        there = http.client.HTTPConnection("127.0.0.1", PORT)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        there.request(self.command, self.path, body, dict(self.headers))
        answer = there.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_DELETE = do_POST
    def log_message(self, *words): pass
"#;

once_test!(a_server_is_reached_through_the_policys_proxy);
fn a_server_is_reached_through_the_policys_proxy() {
    let (world, remote) = with("friendly");
    let proxy = ConnectProxy::open();
    let has_tools = || mcp(&world, &["status"]).text().contains("there: 6 tools");
    assert!(has_tools());
    // In clear text for a server of this machine, nothing goes there.
    world.set_policy(format!("version = 1\n[gateway]\n{}\n", proxy.line()));
    assert!(has_tools() && proxy.take().is_empty());
    let front = format!("PORT = {}\n{FRONT}", remote.port);
    let front = TlsHost::start(&world, &["localhost"], &front);
    let url = format!("https://localhost:{}/mcp", front.port);
    settings(&world, json!({ "there": { "type": "http", "url": url } }));
    let authority = format!("ca = ['{}']", front.authority().display());
    world.set_policy(format!("version = 1\n[gateway]\n{authority}\n"));
    assert!(has_tools() && proxy.take().is_empty(), "the control");
    let through = |proxy: &ConnectProxy| {
        world.set_policy(format!(
            "version = 1\n[gateway]\n{authority}\n{}\n",
            proxy.line()
        ));
    };
    through(&proxy);
    assert!(has_tools());
    let targets = proxy.targets();
    let own = format!("127.0.0.1:{}", front.port);
    let targets: Vec<_> = targets
        .iter()
        .filter(|one| !one.starts_with("[::1]"))
        .collect();
    assert!(
        !targets.is_empty() && targets.iter().all(|one| **one == own),
        "{targets:?}"
    );
    assert_eq!(
        answer_of(&world, "mcp__there__echo", json!({ "text": "x" })),
        "x"
    );
    assert!(!proxy.take().is_empty());
    let (asked, refusing) = (
        remote.requests().len(),
        ConnectProxy::answering("HTTP/1.1 403 Not by us\r\n\r\n"),
    );
    through(&refusing);
    let refused = mcp(&world, &["status"]);
    assert!(
        refused.text().contains("403 `Not by us`"),
        "{}",
        refused.text()
    );
    assert_eq!(remote.requests().len(), asked);
}

once_test!(certificates_of_the_project_prove_no_server);
fn certificates_of_the_project_prove_no_server() {
    let (world, remote) = with("friendly");
    let front = format!("PORT = {}\n{FRONT}", remote.port);
    let front = TlsHost::start(&world, &["localhost"], &front);
    let url = format!("https://localhost:{}/mcp", front.port);
    settings(&world, json!({ "there": { "type": "http", "url": url } }));
    let own = world.project.join("ca.pem");
    fs::copy(front.authority(), &own).unwrap();
    let link = world.base().join("link.pem");
    symlink(&own, &link).unwrap();
    for (certificates, is_believed) in [(front.authority(), true), (own, false), (link, false)] {
        let mut command = servers(&world);
        command.env("SSL_CERT_FILE", certificates);
        let status = run(command.arg("status"), LIMIT);
        let (text, errors) = (status.text(), status.errors());
        assert_eq!(text.contains("there: 6 tools"), is_believed, "{text}");
        let is_said = errors.contains("SSL_CERT_FILE is not used");
        assert_eq!(is_said, !is_believed, "{errors}");
    }
}

once_test!(a_scope_without_a_network_reaches_none);
fn a_scope_without_a_network_reaches_none() {
    let (world, remote) = with("friendly");
    let scope = world.base().join("scope.toml");
    let echo = |network: bool| {
        world.write(
            &scope,
            format!("[tool_permissions.mcp__there__echo]\nallowed = true\nnetwork = {network}\n"),
        );
        let mut session = session(&world, &["--scope", scope.to_str().unwrap()]);
        session
            .call("mcp__there__echo", json!({ "text": "x" }))
            .ok()
    };
    assert!(!echo(false) && remote.requests().is_empty());
    assert!(echo(true), "control");
}

once_test!(a_login_is_wanted_given_kept_and_forgotten);
fn a_login_is_wanted_given_kept_and_forgotten() {
    let (world, remote) = with("login");
    let status = mcp(&world, &["status"]);
    assert!(
        status
            .text()
            .contains("wants a login: run `lazaret mcp login there`"),
        "{}",
        status.text()
    );
    let login = log_in(&world);
    assert!(
        login.success().contains("Logged in at `there`"),
        "{}",
        login.text()
    );
    let shown = answer_of(&world, "mcp__there__headers", json!({}));
    assert!(remote.was_asked("POST", "Bearer access-token-0-of-the-test"));
    assert!(
        !shown.contains("access-token-0-of-the-test"),
        "a token is a secret: {shown}"
    );
    let kept = world.state.join("lazaret/servers/there.login");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&kept).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    mcp(&world, &["logout", "there"]).success();
    assert!(!kept.exists());
    assert!(mcp(&world, &["status"]).text().contains("wants a login"));
}

once_test!(a_login_is_renewed_before_it_ends);
fn a_login_is_renewed_before_it_ends() {
    let (world, remote) = with("login-short");
    log_in(&world).success();
    assert_eq!(
        answer_of(&world, "mcp__there__echo", json!({ "text": "x" })),
        "x"
    );
    assert!(remote.was_asked("POST", "grant_type=refresh_token"));
    assert!(remote.was_asked("POST", "Bearer access-token-1-of-the-test"));
    assert_eq!(
        answer_of(&world, "mcp__there__echo", json!({ "text": "y" })),
        "y",
        "what was renewed is kept"
    );
}

once_test!(answer_to_another_login_is_refused);
fn answer_to_another_login_is_refused() {
    let (world, remote) = with("login-state");
    let login = answered(&world);
    let process = process::Process::find(login.pid()).unwrap();
    assert!(process.is_alive(), "it waits for its own answer");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(login.pid()),
        nix::sys::signal::Signal::SIGINT,
    )
    .unwrap();
    let login = login.finish(LIMIT);
    assert_eq!(login.code(), 130, "{}", login.errors());
    assert!(!remote.was_asked("POST", "/token"), "no code is handed in");
}

once_test!(a_login_leads_to_no_metadata_service);
fn a_login_leads_to_no_metadata_service() {
    let world = world(Place::any(), json!({}));
    let elsewhere = RemoteServer::start(&world, "login");
    let refused = |other: &str| {
        let remote = RemoteServer::beside(&world, "login", other);
        settings(&world, json!({ "there": remote.entry() }));
        let login = mcp(&world, &["login", "there"]);
        assert_eq!(login.code(), 1, "{other}: {}", login.errors());
        assert!(
            remote.was_asked("GET", "oauth-protected-resource"),
            "control: it was asked where to log in"
        );
    };
    refused("http://169.254.169.254/");
    refused("http://10.0.0.1:8080/");
    refused("file:///etc/passwd");
    assert!(elsewhere.requests().is_empty());
}

once_test!(a_server_that_wants_no_login_is_named);
fn a_server_that_wants_no_login_is_named() {
    let (world, _remote) = with("friendly");
    let login = mcp(&world, &["login", "there"]);
    assert_eq!(login.code(), 1);
    assert!(
        login.errors().contains("it needs no login"),
        "{}",
        login.errors()
    );
    assert_eq!(mcp(&world, &["login", "nobody"]).code(), 2);
}

once_test!(an_address_is_added_listed_and_removed);
fn an_address_is_added_listed_and_removed() {
    let world = world(Place::any(), json!({}));
    let remote = RemoteServer::start(&world, "friendly");
    let url = remote.url();
    let added = mcp(
        &world,
        &[
            "add",
            "new",
            "--url",
            &url,
            "--header",
            "X-Key: ${MY_API_KEY}",
        ],
    );
    assert!(added.success().contains("new: 6 tools"), "{}", added.text());
    assert!(remote.was_asked("POST", &world.key));
    assert_eq!(
        mcp(&world, &["list"]).success(),
        format!("new (user): {url} (http)\n")
    );
    assert_eq!(
        mcp(&world, &["add", "two", "--url", &url, "--", "python3"]).code(),
        2
    );
    assert_eq!(
        mcp(&world, &["add", "two", "--header", "A: b", "--", "python3"]).code(),
        2
    );
    assert_eq!(mcp(&world, &["add", "two"]).code(), 2);
    mcp(&world, &["remove", "new"]).success();
    let empty: [(&[&str], &str); 4] = [
        (&["list"], ""),
        (&["status"], ""),
        (&["list", "--json"], "[]\n"),
        (&["status", "--json"], "[]\n"),
    ];
    for (words, want) in empty {
        let listed = mcp(&world, words);
        assert_eq!(listed.success(), want);
        assert!(
            listed.errors().contains("there are no servers here"),
            "{}",
            listed.errors()
        );
    }
}
