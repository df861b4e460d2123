//! Requests that a rule asks about: they wait until somebody has allowed them, the question says what they change, and nothing else
//! lets them go on. The servers are the test's own.

use lazaret_tests::approval::{Approver, asked, audited, dressed, make_runtime};
use lazaret_tests::process::{below, until};
use lazaret_tests::registries::Registries;
use lazaret_tests::{LIMIT, Place, Session, World, place_test};
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

const NAMES: [&str; 3] = ["git.example", "npm.example", "api.example"];

/// A host of git, a registry of npm and an interface, which take everything that they are sent.
const SERVER: &str = r##"
import http.server, json, os, subprocess

class Handler(ReadingHandler):
    def do(self):
        sent, host = self.body(), self.headers['Host'].split(':')[0]
        path, _, query = self.path.partition('?')
        print(json.dumps([host, self.command, path, len(sent)]), file=log, flush=True)
        status, body, kind = self.git(path, query, sent) if host == 'git.example' else (200, b'{"ok":true}', 'application/json')
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do
    def log_message(self, *arguments): pass
"##;

/// The hosts, and profiles of a user: `open` without rules, `ruled` with rules that ask.
struct Asking(Registries);

impl Asking {
    fn start(place: Place, approval: &str) -> Self {
        let row = |text: &str| format!("[[profile.ruled.network.http]]\n{text}\n");
        let registries = Registries::start(place, &NAMES, SERVER, |_, hosts| {
            let network = format!("allow = {hosts}\nprivate = {hosts}\n");
            [
                format!("[approval]\n{approval}\n"),
                format!("[profile.open.network]\n{network}"),
                format!("[profile.ruled.network]\n{network}"),
                row("host = 'git.example'\naction = 'ask'\nmethods = ['POST']\npaths = ['/*/*/git-receive-pack']\nwhy = 'Pushes are looked at.'"),
                row("preset = 'github-read'\nhost = 'git.example'"),
                row("preset = 'npm-publish-asks'\nhost = 'npm.example'"),
                row("preset = 'npm-read'\nhost = 'npm.example'"),
                row("host = 'api.example'\naction = 'ask'\nmethods = ['POST']"),
                row("host = 'api.example'\naction = 'allow'\nmethods = ['GET']"),
            ]
            .concat()
        });
        make_runtime(&registries.world);
        Self(registries)
    }

    fn world(&self) -> &World {
        &self.0.world
    }

    fn session(&self, profile: &str) -> Session {
        let command = dressed(self.world(), self.world().configured("session"));
        let mut command = command;
        Session::start(command.args(["--profile", profile]))
    }

    /// How many requests that are no reads have arrived.
    fn writes(&self) -> usize {
        let lines = self.0.server.log();
        let all = lines
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|seen| ["POST", "PUT"].contains(&seen[1].as_str().unwrap()))
            .filter(|seen| seen[3].as_u64() > Some(0))
            .filter(|seen| !seen[2].as_str().unwrap().ends_with("git-upload-pack"))
            .count()
    }

    /// Makes the repository `o/r.git` of the host.
    fn make_repository(&self) {
        let folder = self.world().outside.join("host");
        let made = format!(
            "cd {} && mkdir -p o && git init -q --bare o/r.git && git -C o/r.git config http.receivepack true
             git init -q seed && cd seed && git -c user.name=a -c user.email=a@b.invalid commit -q --allow-empty -m one
             git push -q ../o/r.git HEAD:refs/heads/main && git -C ../o/r.git symbolic-ref HEAD refs/heads/main",
            folder.display()
        );
        self.world().on_host(&made).success();
    }

    fn refs(&self) -> String {
        let list = format!(
            "git -C {}/o/r.git for-each-ref --format='%(refname)'",
            self.world().outside.join("host").display()
        );
        self.world().on_host(&list).success()
    }
}

/// Clones into a folder of this name, and pushes a branch of it.
fn push(name: &str) -> String {
    format!(
        "export GIT_TERMINAL_PROMPT=0; git clone -q https://git.example/o/r.git {name} 2>&1 && cd {name}
         git -c user.name=a -c user.email=a@b.invalid commit -q --allow-empty -m {name}; git rev-parse HEAD > ../{name}.id
         git push -q origin HEAD:refs/heads/{name} 2>&1; echo > ../ended"
    )
}

fn post(path: &str) -> String {
    format!(
        "curl -sS -m 100 -o /dev/null -w '%{{http_code}} ' -d x https://api.example{path} 2>&1; "
    )
}

fn start(session: &mut Session, id: &str, script: &str) {
    session.send(&json!({ "id": id, "tool": "bash", "input": { "command": script } }));
}

place_test!(a_push_waits_for_its_answer_and_the_question_names_its_references);
fn a_push_waits_for_its_answer_and_the_question_names_its_references(place: Place) {
    let hosts = Asking::start(place, "");
    hosts.make_repository();
    let mut control = hosts.session("open");
    control.bash(&push("control"));
    assert!(hosts.refs().contains("refs/heads/control"), "the control");
    let mut session = hosts.session("ruled");
    start(&mut session, "a", &push("first"));
    let question = asked(&mut session, "a");
    let id = String::from_utf8(hosts.world().get("first.id")).unwrap();
    let why = question["why"].as_str().unwrap();
    for part in [
        "POST /o/r.git/git-receive-pack",
        "git.example:443",
        "refs/heads/first (new, at ",
        id.trim(),
        "Pushes are looked at.",
    ] {
        assert!(why.contains(part), "{part}: {question:#}");
    }
    assert_eq!(question["session"], "request", "{question:#}");
    assert!(
        !hosts.refs().contains("refs/heads/first"),
        "before the answer"
    );
    session.send(&json!({ "id": "a", "approve": "once" }));
    let answer = session.answer_within("a", LIMIT);
    assert!(
        hosts.refs().contains("refs/heads/first"),
        "{}",
        answer.text()
    );
    // Once is once, and a no is a no.
    start(&mut session, "b", &push("second"));
    asked(&mut session, "b");
    session.send(&json!({ "id": "b", "approve": "no" }));
    let answer = session.answer_within("b", LIMIT);
    assert!(
        !hosts.refs().contains("refs/heads/second"),
        "{}",
        answer.text()
    );
    let denied = answer.result["metadata"]["denied"].to_string();
    for part in [
        "asks about POST /o/r.git/git-receive-pack",
        "the user has not allowed it",
    ] {
        assert!(denied.contains(part), "{part}: {:#}", answer.result);
    }
    let questions = audited(hosts.world(), "request_asked");
    let answers = audited(hosts.world(), "request_answered");
    assert_eq!((questions.len(), answers.len()), (2, 2));
    // The first one used its yes at once.
    assert_eq!(audited(hosts.world(), "request_granted").len(), 1);
    assert!(questions[0]["about"].as_str().unwrap().contains(id.trim()));
    let given: Vec<_> = answers.iter().map(|one| &one["answer"]).collect();
    assert_eq!(given, ["granted", "refused"]);
}

place_test!(with_a_separate_channel_an_approver_sees_the_request_and_answers);
fn with_a_separate_channel_an_approver_sees_the_request_and_answers(place: Place) {
    let hosts = Asking::start(
        place,
        "channel = 'separate'\nterminal = false\ntimeout_s = 600",
    );
    let mut approver = Approver::start(hosts.world());
    let mut session = hosts.session("ruled");
    start(&mut session, "a", &post("/deploy"));
    let shown = approver.event("approval", LIMIT).expect("it is shown");
    assert_eq!(hosts.writes(), 0);
    assert!(shown.to_string().contains("POST /deploy"), "{shown:#}");
    assert_eq!(shown["tool"], "request", "{shown:#}");
    // The client's own yes counts for nothing.
    session.send(&json!({ "id": "a", "approve": "once" }));
    let answer = json!({ "session": shown["session"], "call": shown["call"], "approve": "once" });
    approver.send(&answer);
    assert_eq!(session.answer_within("a", LIMIT).success(), "200 ");
    assert_eq!(hosts.writes(), 1);
}

place_test!(each_request_is_asked_about_and_a_yes_for_the_session_is_for_the_same);
fn each_request_is_asked_about_and_a_yes_for_the_session_is_for_the_same(place: Place) {
    let hosts = Asking::start(place, "");
    let mut session = hosts.session("ruled");
    // On one kept connection.
    let url = "https://api.example";
    let script = format!(
        "curl -sS -m 100 -o /dev/null -w '%{{http_code}} ' -d x {url}/a --next -sS -o /dev/null -w '%{{http_code}} ' -d x {url}/a \
         --next -sS -o /dev/null -w '%{{http_code}} ' -d y {url}/a --next -sS -o /dev/null -w '%{{http_code}} ' -d x {url}/b"
    );
    start(&mut session, "a", &script);
    for (answer, sent) in [("once", 0), ("session", 1), ("no", 3)] {
        asked(&mut session, "a");
        assert_eq!(hosts.writes(), sent, "{answer}");
        session.send(&json!({ "id": "a", "approve": answer }));
    }
    assert_eq!(
        session.answer_within("a", LIMIT).success(),
        "200 200 200 403 "
    );
    assert_eq!(hosts.writes(), 3);
}

place_test!(a_cell_that_asks_in_a_loop_gets_one_question_and_a_bounded_record);
fn a_cell_that_asks_in_a_loop_gets_one_question_and_a_bounded_record(place: Place) {
    let hosts = Asking::start(place, "timeout_s = 2");
    let mut session = hosts.session("ruled");
    let script: String = (0..40).map(|number| post(&format!("/{number}"))).collect();
    let many = format!("{script} {{ {} }} & wait", post("/again").repeat(3));
    start(&mut session, "a", &many);
    asked(&mut session, "a");
    // Nobody answers.
    let answer = session.answer_within("a", LIMIT);
    assert_eq!(answer.success(), "403 ".repeat(43));
    assert_eq!(hosts.writes(), 0);
    assert_eq!(audited(hosts.world(), "request_asked").len(), 1);
    let answers = audited(hosts.world(), "request_answered");
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["answer"], "expired");
}

place_test!(a_yes_that_comes_too_late_is_for_the_next_try);
fn a_yes_that_comes_too_late_is_for_the_next_try(place: Place) {
    let hosts = Asking::start(place, "timeout_s = 600");
    hosts.make_repository();
    let mut session = hosts.session("ruled");
    let started = Instant::now();
    start(&mut session, "a", &push("late"));
    asked(&mut session, "a");
    // Its program has given up; the question is as open as before, and the call waits for it.
    let exited = hosts.world().project.join("ended");
    assert!(until(LIMIT, || exited.exists()));
    let waited = started.elapsed();
    assert!(waited >= Duration::from_secs(10), "{waited:?}");
    assert!(waited < Duration::from_secs(60), "{waited:?}");
    assert!(!hosts.refs().contains("refs/heads/late"));
    session.send(&json!({ "id": "a", "approve": "once" }));
    let answer = session.answer_within("a", LIMIT);
    assert!(answer.text().contains("403"), "{}", answer.text());
    let denied = answer.result["metadata"]["denied"].to_string();
    assert!(denied.contains("it waits for approval"), "{denied}");
    // The same commit goes unasked, once.
    let again = "cd late; git push -q origin HEAD:refs/heads/late 2>&1; echo $?";
    let answer = session.bash(again);
    assert_eq!(answer.success(), "0\n", "{:#}", answer.result);
    assert!(hosts.refs().contains("refs/heads/late"));
    let world = hosts.world();
    assert_eq!(audited(world, "request_asked").len(), 1);
    let used = audited(world, "request_granted");
    let by = &audited(world, "request_answered")[0];
    assert_eq!((used.len(), &by["answer"]), (1, &json!("granted")));
    assert_eq!(used[0]["by_call"], by["call"], "{used:#?}");
    assert_eq!(used[0]["by_question"], by["question"], "{used:#?}");
    assert_ne!(used[0]["call"], by["call"], "{used:#?}");
}

/// Sends it, lets its program give up, and says yes then.
fn allow_too_late(hosts: &Asking, session: &mut Session, id: &str, script: &str) {
    let script = script.replace("-m 100", "-m 1");
    start(session, id, &format!("{script} echo > left-{id}"));
    asked(session, id);
    let left = hosts.world().project.join(format!("left-{id}"));
    assert!(until(LIMIT, || left.exists()));
    session.send(&json!({ "id": id, "approve": "once" }));
    session.answer_within(id, LIMIT);
}

place_test!(a_kept_yes_is_for_one_such_request_of_its_session);
fn a_kept_yes_is_for_one_such_request_of_its_session(place: Place) {
    let hosts = Asking::start(place, "timeout_s = 600");
    let mut session = hosts.session("ruled");
    let refused = |session: &mut Session, id: &str, script: &str| {
        start(session, id, script);
        asked(session, id);
        session.send(&json!({ "id": id, "approve": "no" }));
        assert_eq!(session.answer_within(id, LIMIT).success(), "403 ");
    };
    allow_too_late(&hosts, &mut session, "a", &post("/deploy"));
    assert_eq!(hosts.writes(), 0);
    let mut other = hosts.session("ruled");
    refused(&mut other, "other session", &post("/deploy"));
    refused(&mut session, "other path", &post("/deploy?x=1"));
    let put = post("/deploy").replace("https://api.", "https://npm.");
    let put = put.replace("/deploy", "/own").replace("-d x", "-X PUT -d '{\"name\":\"own\",\"versions\":{\"1.0.0\":{}},\"_attachments\":{\"own-1.0.0.tgz\":{}}}' -H 'Content-Type: application/json'");
    allow_too_late(&hosts, &mut session, "package", &put);
    refused(&mut session, "other body", &put.replace("1.0.0", "1.0.1"));
    assert_eq!(hosts.writes(), 0);
    assert_eq!(session.bash(&post("/deploy")).success(), "200 ");
    assert_eq!(session.bash(&put).success(), "200 ");
    assert_eq!(hosts.writes(), 2);
    refused(&mut session, "third", &post("/deploy"));
    // A no is kept for nobody, and the next try asks again.
    start(&mut session, "yes", &post("/deploy"));
    asked(&mut session, "yes");
    session.send(&json!({ "id": "yes", "approve": "once" }));
    assert_eq!(session.answer_within("yes", LIMIT).success(), "200 ");
    assert_eq!(hosts.writes(), 3);
}

place_test!(a_gateway_killed_before_the_answer_sends_nothing);
fn a_gateway_killed_before_the_answer_sends_nothing(place: Place) {
    let hosts = Asking::start(place, "");
    let mut session = hosts.session("ruled");
    start(&mut session, "a", &post("/deploy"));
    asked(&mut session, "a");
    let all = below(session.pid());
    let gateway = all.iter().find(|one| one.name == "lazaret-gateway");
    let gateway = gateway.expect("the session has one");
    gateway.kill();
    assert!(until(LIMIT, || !gateway.is_alive()));
    session.send(&json!({ "id": "a", "approve": "once" }));
    let answer = session.answer_within("a", LIMIT);
    assert!(!answer.text().contains("200"), "{}", answer.text());
    assert_eq!(hosts.writes(), 0);
    // A yes to nothing holds for nothing.
    start(&mut session, "b", &post("/deploy"));
    asked(&mut session, "b");
    session.send(&json!({ "id": "b", "approve": "once" }));
    assert_eq!(session.answer_within("b", LIMIT).success(), "200 ");
}

place_test!(no_request_is_sent_if_nobody_can_be_asked);
fn no_request_is_sent_if_nobody_can_be_asked(place: Place) {
    let hosts = Asking::start(place, "");
    let run = |profile: &str| {
        let options = ["--profile", profile];
        hosts.world().in_cell_with(&options, &post("/deploy"))
    };
    assert_eq!(run("open").text(), "200 ", "the control");
    // Whoever typed the command has not seen the request.
    let done = run("ruled");
    assert_eq!(done.text(), "403 ", "{}", done.errors());
    assert!(done.errors().contains("not sent: "), "{}", done.errors());
    let mut session = hosts.session("ruled");
    let script = format!("{{ {} }} > said", post("/deploy"));
    session.call("bash", json!({ "command": script, "background": true }));
    let said = || fs::read_to_string(hosts.world().project.join("said")).unwrap_or_default();
    assert!(until(LIMIT, || !said().is_empty()));
    assert_eq!(said(), "403 ");
    assert_eq!(hosts.writes(), 1, "the control's");
}

place_test!(a_package_and_a_query_are_known_by_their_bodies);
fn a_package_and_a_query_are_known_by_their_bodies(place: Place) {
    let hosts = Asking::start(place, "");
    let mut session = hosts.session("ruled");
    let send = |method: &str, url: &str, body: &str| {
        format!(
            "curl -sS -m 100 -o /dev/null -w '%{{http_code}} ' -X {method} -H 'Content-Type: application/json' -d '{body}' https://{url} 2>&1; "
        )
    };
    let package = r#"{"name":"own","versions":{"1.2.3":{}},"_attachments":{"own-1.2.3.tgz":{}}}"#;
    start(&mut session, "a", &send("PUT", "npm.example/own", package));
    let question = asked(&mut session, "a");
    let why = question["why"].as_str().unwrap();
    assert!(why.contains("own 1.2.3 (publish)"), "{why}");
    session.send(&json!({ "id": "a", "approve": "once" }));
    assert_eq!(session.answer_within("a", LIMIT).success(), "200 ");
    let twice = r#"{"name":"own","versions":{"1.0.0":{}},"versions":{"6.6.6":{}}}"#;
    let script = [
        send(
            "POST",
            "api.example/graphql",
            r#"{"query":"{ viewer { login } }"}"#,
        ),
        send("PUT", "npm.example/own", twice),
    ];
    let answer = session.bash(&script.concat());
    assert_eq!(answer.success(), "200 403 ", "{:#}", answer.result);
    let mutation = r#"{"query":"mutation { createPullRequest(input: {title: \"T\"}) { url } }"}"#;
    start(
        &mut session,
        "b",
        &send("POST", "api.example/graphql", mutation),
    );
    let question = asked(&mut session, "b");
    assert!(
        question
            .to_string()
            .contains("mutation of createPullRequest"),
        "{question:#}"
    );
    session.send(&json!({ "id": "b", "approve": "no" }));
    assert_eq!(session.answer_within("b", LIMIT).success(), "403 ");
}
