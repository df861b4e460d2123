//! The bytes of the wire, pinned: one example of every frame, and of every shape inside, in `golden/frames.txt`.
//!
//! A change of these bytes without a change of `VERSION` would let two programs of different releases misunderstand each
//! other. When both have changed, `LAZARET_GOLDEN=write cargo test -p lazaret-tests --test golden` writes the file again.
#![allow(clippy::unwrap_used)]
#![allow(unreachable_pub)]

#[path = "golden/approval.rs"]
mod approval;
#[path = "golden/gateway.rs"]
mod gateway;

use broker_protocol::*;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/frames.txt");

#[test]
fn frames_equal_their_golden_bytes() {
    let now = render();
    if std::env::var_os("LAZARET_GOLDEN").is_some() {
        std::fs::write(FILE, &now).unwrap();
    }
    let then = std::fs::read_to_string(FILE).unwrap_or_default();
    assert_eq!(judge(&then, &now), Ok(()));
}

/// The check bites: one changed byte under the same version, and a new version with the old file.
#[test]
fn a_changed_byte_is_seen() {
    let then = render();
    let at = then.rfind('0').unwrap();
    let changed = format!("{}1{}", &then[..at], &then[at + 1..]);
    assert!(
        judge(&then, &changed)
            .unwrap_err()
            .contains("without a change of VERSION")
    );
    let newer = then.replace(
        &format!("version {VERSION}"),
        &format!("version {}", VERSION + 1),
    );
    assert!(
        judge(&then, &newer)
            .unwrap_err()
            .contains("LAZARET_GOLDEN=write")
    );
    assert!(judge("", &then).is_err());
}

#[test]
fn every_example_reads_back() {
    for (name, message) in to_broker() {
        assert_eq!(reread(&message), message, "{name}");
    }
    for (name, message) in from_broker() {
        assert_eq!(reread(&message), message, "{name}");
    }
    for (name, message) in approval::from_approver() {
        assert_eq!(reread(&message), message, "{name}");
    }
    for (name, message) in approval::to_approver(opened()) {
        assert_eq!(reread(&message), message, "{name}");
    }
    for (name, answer) in answers() {
        let bytes = frame::encode_whole(&answer).unwrap();
        assert_eq!(
            frame::decode_whole::<FileAnswer>(&bytes).unwrap(),
            answer,
            "{name}"
        );
    }
}

/// A variant without an example would change unseen. The matches below do not compile when one is added.
#[test]
fn every_variant_has_an_example() {
    let seen = |examples: Vec<&str>, all: &[&str]| {
        all.iter()
            .for_each(|name| assert!(examples.contains(name), "no golden frame of {name}"));
    };
    let to = to_broker();
    seen(
        to.iter().map(|(_, message)| variant_to(message)).collect(),
        &TO,
    );
    let requests = to.iter().filter_map(|(_, message)| match message {
        ToBroker::Call { request, .. } => Some(request.tool()),
        _ => None,
    });
    let mut tools = Request::TOOLS.to_vec();
    tools.extend(EFFECTS);
    tools.extend(StateTool::ALL.map(StateTool::name));
    seen(requests.collect(), &tools);
    let from = from_broker();
    seen(
        from.iter()
            .map(|(_, message)| variant_from(message))
            .collect(),
        &FROM,
    );
    let outcomes: Vec<&Outcome> = from
        .iter()
        .filter_map(|(_, message)| outcome(message))
        .collect();
    seen(
        outcomes
            .iter()
            .map(|outcome| variant_outcome(outcome))
            .collect(),
        &OUTCOMES,
    );
    let ends = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Ran(ran) => Some(variant_end(ran.ended)),
        _ => None,
    });
    seen(ends.collect(), &ENDS);
    let replies = answers();
    seen(
        replies
            .iter()
            .filter_map(|(_, answer)| answer.as_ref().ok().map(variant_reply))
            .collect(),
        &REPLIES,
    );
}

const EFFECTS: [&str; 3] = ["web_search", "web_fetch", "mcp__fs__read"];

const TO: [&str; 19] = [
    "hello",
    "probe",
    "open",
    "content",
    "call",
    "wanting call",
    "input",
    "input end",
    "resize",
    "signal",
    "credit",
    "cancel",
    "grant",
    "refuse",
    "look",
    "grants",
    "revoke",
    "keep",
    "explain",
];

fn variant_to(message: &ToBroker) -> &'static str {
    match message {
        ToBroker::Hello(_) => "hello",
        ToBroker::Probe => "probe",
        ToBroker::GatewayLine => "gateway line",
        ToBroker::Open(_) => "open",
        ToBroker::Content { .. } => "content",
        ToBroker::Call { .. } => "call",
        ToBroker::WantingCall { .. } => "wanting call",
        ToBroker::Input { .. } => "input",
        ToBroker::InputEnd { .. } => "input end",
        ToBroker::Resize { .. } => "resize",
        ToBroker::Signal { .. } => "signal",
        ToBroker::Credit { .. } => "credit",
        ToBroker::Cancel { .. } => "cancel",
        ToBroker::Grant(_) => "grant",
        ToBroker::Refuse { .. } => "refuse",
        ToBroker::Look { .. } => "look",
        ToBroker::Grants => "grants",
        ToBroker::Revoke { .. } => "revoke",
        ToBroker::Keep { .. } => "keep",
        ToBroker::Explain(_) => "explain",
    }
}

const FROM: [&str; 18] = [
    "hello",
    "probed",
    "opened",
    "output",
    "input credit",
    "part",
    "done",
    "fault",
    "asked",
    "before",
    "seen",
    "ungranted",
    "grants",
    "leases",
    "kept",
    "suspended",
    "explained",
    "connected",
];

fn variant_from(message: &FromBroker) -> &'static str {
    match message {
        FromBroker::Hello(_) => "hello",
        FromBroker::Probed(_) => "probed",
        FromBroker::Opened(_) => "opened",
        FromBroker::Output { .. } => "output",
        FromBroker::InputCredit { .. } => "input credit",
        FromBroker::Part { .. } => "part",
        FromBroker::Done { .. } => "done",
        FromBroker::Fault(_) => "fault",
        FromBroker::Asked { .. } => "asked",
        FromBroker::Before { .. } => "before",
        FromBroker::Seen { .. } => "seen",
        FromBroker::Ungranted(_) => "ungranted",
        FromBroker::Grants(_) => "grants",
        FromBroker::Leases(_) => "leases",
        FromBroker::Kept { .. } => "kept",
        FromBroker::Suspended { .. } => "suspended",
        FromBroker::Explained(_) => "explained",
        FromBroker::Connected(_) => "connected",
        FromBroker::Found(_) => "found",
    }
}

const OUTCOMES: [&str; 6] = ["ran", "answered", "refused", "failed", "broken", "granted"];

fn variant_outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Ran(_) => "ran",
        Outcome::Answered => "answered",
        Outcome::Refused(_) => "refused",
        Outcome::Failed(_) => "failed",
        Outcome::Broken(_) => "broken",
        Outcome::Granted => "granted",
    }
}

const ENDS: [&str; 8] = [
    "exited",
    "signalled",
    "timed out",
    "idle",
    "cancelled",
    "limited",
    "not started",
    "no directory",
];

fn variant_end(ended: Ended) -> &'static str {
    match ended {
        Ended::Exited(_) => "exited",
        Ended::Signalled(_) => "signalled",
        Ended::TimedOut => "timed out",
        Ended::Idle => "idle",
        Ended::Cancelled => "cancelled",
        Ended::Limited(_) => "limited",
        Ended::NotStarted(_) => "not started",
        Ended::NoDirectory(_) => "no directory",
    }
}

const REPLIES: [&str; 13] = [
    "read",
    "written",
    "edited",
    "listed",
    "walked",
    "grepped",
    "started",
    "background",
    "logged",
    "killed",
    "history",
    "undone",
    "bytes",
];

fn variant_reply(reply: &FileReply) -> &'static str {
    match reply {
        FileReply::Read(_) => "read",
        FileReply::Written(_) => "written",
        FileReply::Edited(_) => "edited",
        FileReply::Listed(_) => "listed",
        FileReply::Walked(_) => "walked",
        FileReply::Grepped(_) => "grepped",
        FileReply::Started(_) => "started",
        FileReply::Background(_) => "background",
        FileReply::Logged(_) => "logged",
        FileReply::Killed(_) => "killed",
        FileReply::History(_) => "history",
        FileReply::Undone(_) => "undone",
        FileReply::Bytes(_) => "bytes",
    }
}

fn outcome(message: &FromBroker) -> Option<&Outcome> {
    match message {
        FromBroker::Done { outcome, .. } => Some(outcome),
        _ => None,
    }
}

/// Compares two renderings; the first line of each is its version.
fn judge(then: &str, now: &str) -> Result<(), String> {
    if then == now {
        return Ok(());
    }
    let file = Path::new(FILE).file_name().unwrap().display();
    if then.lines().next() != now.lines().next() {
        return Err(format!(
            "VERSION has changed: write {file} again with LAZARET_GOLDEN=write, and look at its diff"
        ));
    }
    let lines: BTreeMap<&str, &str> = then
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .collect();
    let mut changes = String::new();
    for (name, bytes) in now.lines().filter_map(|line| line.split_once(" = ")) {
        match lines.get(name) {
            None => writeln!(changes, "new: {name}").unwrap(),
            Some(old) if *old != bytes => {
                writeln!(changes, "{name}\n  was {old}\n  is  {bytes}").unwrap()
            }
            Some(_) => {}
        }
    }
    Err(format!(
        "the wire has changed without a change of VERSION (or an example has; see {file}):\n{changes}"
    ))
}

fn render() -> String {
    let mut text = format!("version {VERSION}\n");
    for (name, message) in to_broker() {
        writeln!(text, "to broker, {name} = {}", hex(&framed(&message))).unwrap();
    }
    for (name, message) in from_broker() {
        writeln!(text, "from broker, {name} = {}", hex(&framed(&message))).unwrap();
    }
    for (name, message) in approval::from_approver() {
        writeln!(text, "from approver, {name} = {}", hex(&framed(&message))).unwrap();
    }
    for (name, message) in approval::to_approver(opened()) {
        writeln!(text, "to approver, {name} = {}", hex(&framed(&message))).unwrap();
    }
    for (name, answer) in answers() {
        writeln!(
            text,
            "answer, {name} = {}",
            hex(&frame::encode_whole(&answer).unwrap())
        )
        .unwrap();
    }
    text
}

fn framed<T: serde::Serialize>(message: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes).unwrap();
    bytes
}

fn reread<T: serde::Serialize + serde::de::DeserializeOwned>(message: &T) -> T {
    let mut decoder = Decoder::new();
    decoder.push(&framed(message));
    decoder.next().unwrap().unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn zone(path: &str) -> ZonePath {
    ZonePath::new(Zone::Project, path).unwrap()
}

fn to_broker() -> Vec<(&'static str, ToBroker)> {
    let call = |request| ToBroker::Call { call: 7, request };
    let open = Open {
        profile: "rust".into(),
        spare: 2,
        trust: Trust::Guided,
        ..lazaret_fakes::open("/p", "/c")
    };
    let scoped = Open {
        scope: Some(scope()),
        trust: Trust::Supervised,
        ..open.clone()
    };
    let autonomous = Open {
        trust: Trust::Autonomous,
        capture: Some(10_240),
        ..open.clone()
    };
    let wanted = NetworkRequest {
        hosts: vec!["a.example:443".into()],
        presets: vec!["npm".into()],
        leases: true,
        connect: vec![5432],
        publish: vec![PublishedPort {
            machine: 8080,
            cell: 3000,
        }],
        gateway: GatewaySupply::Client,
    };
    let connected = Open {
        network: Some(wanted),
        ..open.clone()
    };
    let leased = Open {
        read: vec!["/r".into()],
        write: vec!["/w".into()],
        ..open.clone()
    };
    let revealed = Open {
        reveal: vec![".env".into()],
        ..open.clone()
    };
    let boxed = Open {
        image: Some("/i".into()),
        ..open.clone()
    };
    let thrown_away = Open {
        throw_away: true,
        ..open.clone()
    };
    let mut frames = vec![
        (
            "hello",
            ToBroker::Hello(Hello {
                version: 0x0102,
                ..Hello::ours(Some(Digest([0xab; 32])))
            }),
        ),
        (
            "hello without digest",
            ToBroker::Hello(Hello {
                version: 0x0102,
                ..Hello::ours(None)
            }),
        ),
        ("probe", ToBroker::Probe),
        ("gateway line", ToBroker::GatewayLine),
        ("open", ToBroker::Open(open)),
        ("open, with a network", ToBroker::Open(connected)),
        ("open, with an image", ToBroker::Open(boxed)),
        ("open, with paths", ToBroker::Open(leased)),
        ("open, with a revealed secret", ToBroker::Open(revealed)),
        ("open, to be thrown away", ToBroker::Open(thrown_away)),
        ("open, scoped", ToBroker::Open(scoped)),
        ("open, autonomous", ToBroker::Open(autonomous)),
        (
            "bash",
            call(Request::Bash(bash(
                Command::Shell("true".into()),
                Stdin::Null,
            ))),
        ),
        (
            "bash by arguments, streamed",
            call(Request::Bash(streamed())),
        ),
        (
            "bash on a terminal",
            call(Request::Bash(bash(Command::Shell("sh".into()), terminal()))),
        ),
        (
            "bash that wants a host",
            ToBroker::WantingCall {
                call: 7,
                request: Request::Bash(bash(Command::Shell("true".into()), Stdin::Null)),
                wants: Wants {
                    hosts: vec!["a.example:443".into()],
                    read: vec!["/r".into()],
                    write: vec!["/w".into()],
                    connect: vec![5432],
                },
            },
        ),
        (
            "file_read",
            call(Request::FileRead(FileRead {
                path: zone("a"),
                offset: Some(1),
                limit: None,
            })),
        ),
        (
            "file_read granted",
            call(Request::FileRead(FileRead {
                path: ZonePath::new(Zone::Granted, "usr/include/stdio.h").unwrap(),
                offset: None,
                limit: None,
            })),
        ),
        ("file_write", call(Request::FileWrite(file_write()))),
        ("file_edit", call(Request::FileEdit(file_edit()))),
        (
            "file_list",
            call(Request::FileList(FileList {
                path: zone(""),
                depth: 1,
                hidden: true,
                limit: 9,
            })),
        ),
        ("glob", call(Request::Glob(glob()))),
        ("grep", call(Request::Grep(grep()))),
        (
            "grep, newest first",
            call(Request::Grep(Grep {
                sort: GrepSort::Modified,
                ..grep()
            })),
        ),
        (
            "keep",
            ToBroker::Keep {
                call: 7,
                bytes: b"text".into(),
                last: true,
            },
        ),
        (
            "bash in the background",
            call(Request::Bash(in_background())),
        ),
        (
            "bash, streams apart",
            call(Request::Bash(Bash {
                split: true,
                attended: false,
                ..streamed()
            })),
        ),
        ("background_list", call(Request::BackgroundList)),
        (
            "background_log",
            call(Request::BackgroundLog(BackgroundLog {
                id: 3,
                from: Some(5),
                most: 9,
            })),
        ),
        (
            "background_kill",
            call(Request::BackgroundKill(BackgroundKill { id: 3 })),
        ),
        ("history", call(Request::History(History { limit: 9 }))),
        (
            "undo",
            call(Request::Undo(Undo {
                change: 4,
                path: zone("a"),
                force: true,
            })),
        ),
        (
            "view_image",
            call(Request::FileBytes(FileBytes {
                path: zone("a.png"),
                offset: 3,
                limit: 2,
            })),
        ),
        (
            "todo_read",
            call(Request::State(State {
                tool: StateTool::TodoRead,
                change: None,
            })),
        ),
        (
            "todo_write",
            call(state(StateTool::TodoWrite, Some(Digest([4; 32])))),
        ),
        ("memory", call(state(StateTool::Memory, None))),
        ("goal_create", call(state(StateTool::GoalCreate, None))),
        ("goal_switch", call(state(StateTool::GoalSwitch, None))),
        ("goal_complete", call(state(StateTool::GoalComplete, None))),
        (
            "goal_list",
            call(Request::State(State {
                tool: StateTool::GoalList,
                change: None,
            })),
        ),
        ("checkpoint", call(state(StateTool::Checkpoint, None))),
        (
            "web_search",
            call(Request::Effect(Effect::WebSearch { query: "q".into() })),
        ),
        (
            "web_fetch",
            call(Request::Effect(Effect::WebFetch {
                url: "https://a/".into(),
            })),
        ),
        ("an added tool", call(added())),
        ("service", call(Request::Service(service()))),
        (
            "content",
            ToBroker::Content {
                call: 7,
                bytes: b"abc".into(),
            },
        ),
        (
            "input",
            ToBroker::Input {
                call: 7,
                bytes: b"in".into(),
            },
        ),
        ("input end", ToBroker::InputEnd { call: 7 }),
        (
            "resize",
            ToBroker::Resize {
                call: 7,
                rows: 24,
                columns: 80,
            },
        ),
        (
            "signal interrupt",
            ToBroker::Signal {
                call: 7,
                signal: Signal::Interrupt,
            },
        ),
        (
            "signal terminate",
            ToBroker::Signal {
                call: 7,
                signal: Signal::Terminate,
            },
        ),
        (
            "signal hangup",
            ToBroker::Signal {
                call: 7,
                signal: Signal::Hangup,
            },
        ),
        (
            "signal quit",
            ToBroker::Signal {
                call: 7,
                signal: Signal::Quit,
            },
        ),
        (
            "signal suspend",
            ToBroker::Signal {
                call: 7,
                signal: Signal::Suspend,
            },
        ),
        (
            "signal continue",
            ToBroker::Signal {
                call: 7,
                signal: Signal::Continue,
            },
        ),
        (
            "credit",
            ToBroker::Credit {
                call: 7,
                bytes: 65_536,
            },
        ),
        ("cancel", ToBroker::Cancel { call: 7 }),
        ("look", ToBroker::Look { call: 7 }),
        ("explain", ToBroker::Explain(traced())),
    ];
    frames.extend(approval::to_broker());
    frames
}

fn traced() -> Vec<Traced> {
    let call = TracedCall {
        name: "unshare".into(),
        number: 272,
        arguments: [1, 2, 3, 4, 5, 6],
    };
    vec![
        Traced::Path {
            kind: AttemptKind::Write,
            path: "/a/b".into(),
        },
        Traced::Call(call),
    ]
}

fn added() -> Request {
    let (tool, input) = ("mcp__fs__read".into(), "{}".into());
    Request::Effect(Effect::Added {
        tool,
        risk: Risk::Medium,
        input,
    })
}

fn service() -> Service {
    let environment = vec![Variable {
        name: "TOKEN".into(),
        value: "t".into(),
    }];
    let command = Command::Arguments(vec![b"server".to_vec().into()]);
    Service {
        name: "fs".into(),
        command,
        directory: Some(zone("a")),
        environment,
    }
}

fn state(tool: StateTool, expected_sha256: Option<Digest>) -> Request {
    let change = Some(StateChange {
        content: b"{}".into(),
        expected_sha256,
    });
    Request::State(State { tool, change })
}

fn scope() -> Scope {
    let read = Permission {
        tool: "file_read".into(),
        allowed: true,
        paths: vec!["src/**".into(), "central:**".into()],
        timeout_s: None,
        network: false,
    };
    let bash = Permission {
        tool: "bash".into(),
        allowed: false,
        paths: vec![],
        timeout_s: Some(120),
        network: true,
    };
    Scope {
        permissions: vec![read, bash],
    }
}

fn bash(command: Command, stdin: Stdin) -> Bash {
    Bash {
        command,
        directory: None,
        timeout_s: None,
        idle_timeout_s: None,
        stdin,
        live: false,
        background: false,
        split: false,
        attended: false,
    }
}

fn streamed() -> Bash {
    Bash {
        directory: Some(ZonePath::new(Zone::Central, "notes").unwrap()),
        timeout_s: Some(60),
        idle_timeout_s: Some(5),
        live: true,
        ..bash(
            Command::Arguments(vec![
                ByteBuf::from("cat"),
                ByteBuf::from(b"\xff".as_slice()),
            ]),
            Stdin::Stream,
        )
    }
}

fn in_background() -> Bash {
    Bash {
        background: true,
        ..bash(Command::Shell("serve".into()), Stdin::Null)
    }
}

fn terminal() -> Stdin {
    Stdin::Terminal(Terminal {
        rows: 24,
        columns: 80,
        term: "xterm".into(),
    })
}

fn file_write() -> FileWrite {
    FileWrite {
        path: zone("a/b"),
        content: b"text".into(),
        overwrite: true,
        expected_sha256: Some(Digest([1; 32])),
    }
}

fn file_edit() -> FileEdit {
    let edit = |occurrence| Edit {
        old: "old".into(),
        new: "new".into(),
        occurrence,
    };
    let edits = [
        Occurrence::Only,
        Occurrence::All,
        Occurrence::Exactly(3),
        Occurrence::Near(7),
    ]
    .map(edit)
    .into();
    FileEdit {
        path: zone("a"),
        edits,
        expected_sha256: None,
    }
}

fn glob() -> Glob {
    Glob {
        pattern: "**/*.rs".into(),
        path: zone("src"),
        hidden: false,
        ignored: true,
        limit: 100,
    }
}

fn grep() -> Grep {
    Grep {
        pattern: "fn".into(),
        literal: true,
        ignore_case: false,
        path: zone(""),
        include: Some("*.rs".into()),
        ignored: false,
        context: 2,
        limit: 50,
        sort: GrepSort::Path,
    }
}

fn from_broker() -> Vec<(&'static str, FromBroker)> {
    let mut frames = vec![
        (
            "hello",
            FromBroker::Hello(Hello {
                version: 0x0102,
                ..Hello::ours(Some(Digest([0xcd; 32])))
            }),
        ),
        ("probed", FromBroker::Probed(machine())),
        ("opened", FromBroker::Opened(opened())),
        (
            "opened, with a network",
            FromBroker::Opened(Opened {
                network: Some(network()),
                ..opened()
            }),
        ),
        (
            "output",
            FromBroker::Output {
                call: 7,
                stderr: true,
                sequence: 3,
                bytes: b"out".into(),
            },
        ),
        (
            "input credit",
            FromBroker::InputCredit {
                call: 7,
                bytes: 65_536,
            },
        ),
        (
            "part",
            FromBroker::Part {
                call: 7,
                bytes: b"part".into(),
            },
        ),
        ("done, answered", done(Outcome::Answered)),
        ("done, spilled", done(Outcome::Ran(spilled()))),
        ("done, streams apart", done(Outcome::Ran(split()))),
        ("done, not in this cell", done(Outcome::Ran(missing()))),
        (
            "done, refused",
            done(Outcome::Refused(Refused {
                rule: "r".into(),
                why: "w".into(),
                violation: true,
            })),
        ),
        ("done, failed", done(Outcome::Failed(failed()))),
        ("done, granted", done(Outcome::Granted)),
        (
            "done, broken",
            done(Outcome::Broken(Broken {
                message: "m".into(),
            })),
        ),
        ("done, denied", denied()),
        (
            "before",
            FromBroker::Before {
                call: 7,
                bytes: b"old".into(),
            },
        ),
        ("seen", FromBroker::Seen { call: 7 }),
        ("fault", FromBroker::Fault(failed())),
        (
            "kept",
            FromBroker::Kept {
                call: 7,
                spill: spilled().spill,
            },
        ),
        (
            "kept, not",
            FromBroker::Kept {
                call: 7,
                spill: None,
            },
        ),
        ("suspended", FromBroker::Suspended { call: 7 }),
        (
            "explained",
            FromBroker::Explained(vec![None, Some(denial())]),
        ),
        ("found", found()),
        (
            "connected",
            FromBroker::Connected(ConnectionReport {
                why: None,
                private: None,
                ..connection(ConnectionVerdict::Allowed)
            }),
        ),
        (
            "connected, refused",
            FromBroker::Connected(connection(ConnectionVerdict::NotPublic)),
        ),
    ];
    frames.extend(approval::from_broker());
    frames.extend(ends().map(|(name, ended)| (name, done(Outcome::Ran(ran(ended))))));
    frames
}

fn ends() -> impl Iterator<Item = (&'static str, Ended)> {
    [
        ("done, exited", Ended::Exited(1)),
        ("done, signalled", Ended::Signalled(9)),
        ("done, timed out", Ended::TimedOut),
        ("done, idle", Ended::Idle),
        ("done, cancelled", Ended::Cancelled),
        ("done, over its output", Ended::Limited(Limit::Output)),
        ("done, over its CPU time", Ended::Limited(Limit::Cpu)),
        ("done, over its memory", Ended::Limited(Limit::Memory)),
        ("done, over its file size", Ended::Limited(Limit::FileSize)),
        ("done, over its processes", Ended::Limited(Limit::Processes)),
        (
            "done, over its written bytes",
            Ended::Limited(Limit::Written),
        ),
        (
            "done, over its share of memory",
            Ended::Limited(Limit::MemoryShare),
        ),
        (
            "done, over its share of the disk",
            Ended::Limited(Limit::DiskShare),
        ),
        ("done, not started", Ended::NotStarted(2)),
        ("done, no directory", Ended::NoDirectory(20)),
    ]
    .into_iter()
}

fn ran(ended: Ended) -> Ran {
    Ran {
        ended,
        output: Captured::default(),
        spill: None,
        stderr: None,
        timeout_s: None,
        profile: None,
        leftover: broker_protocol::LeftRunning::default(),
    }
}

fn spilled() -> Ran {
    Ran {
        output: Captured {
            head: b"head".into(),
            tail: b"tail".into(),
            omitted: 1 << 40,
        },
        spill: Some(Spill {
            path: ZonePath::new(Zone::Central, "o/7.log").unwrap(),
            bytes: 9,
            whole: false,
        }),
        timeout_s: Some(60),
        ..ran(Ended::Exited(0))
    }
}

fn split() -> Ran {
    let Ran { output, spill, .. } = spilled();
    Ran {
        stderr: Some(Box::new(Stderr { output, spill })),
        ..ran(Ended::Exited(0))
    }
}

fn missing() -> Ran {
    Ran {
        profile: Some("rust".into()),
        ..ran(Ended::Exited(127))
    }
}

fn done(outcome: Outcome) -> FromBroker {
    let usage = Usage {
        wall_us: 1,
        user_us: 2,
        system_us: 3,
        peak_kib: 4,
        stdin_bytes: 5,
        stdout_bytes: 6,
        stderr_bytes: 7,
    };
    let layers = Layer::ALL.into_iter().collect();
    FromBroker::Done {
        call: 7,
        outcome,
        usage,
        layers,
        denied: Denials::default(),
    }
}

/// Each kind of attempt, barrier and remedy.
fn denial() -> Denial {
    let by = Barrier::Layer(Layer::MountNamespace, None);
    let remedy = Remedy::Option("--read /a".into());
    Denial::new(AttemptKind::Read, "/a", by, "w", remedy)
        .with_lease(Some(Leased::Read("/a".into())))
}

/// A finding of each kind, the first with all that one can have.
fn found() -> FromBroker {
    let mut found = Findings::default();
    found.extend(FindingKind::ALL.map(|kind| Finding::new(kind, "t", "w")));
    let first = Finding::new(FindingKind::ALL[0], "u", "w")
        .with_state("s")
        .with_advice("a");
    found.push(first.with_unnamed(2));
    found.push(Finding::new(FindingKind::Lock, "u", "w"));
    FromBroker::Found(found)
}

fn denied() -> FromBroker {
    let FromBroker::Done {
        call,
        outcome,
        usage,
        layers,
        mut denied,
    } = done(Outcome::Answered)
    else {
        panic!()
    };
    let rule = || PolicyRule {
        name: "r".into(),
        at: Some("f:1".into()),
    };
    for (at, kind) in AttemptKind::ALL.into_iter().enumerate() {
        let by = match at % 5 {
            0 => Barrier::Layer(Layer::Seccomp, None),
            1 => Barrier::Layer(Layer::ProtectedNames, Some(rule())),
            2 => Barrier::Limit("memory".into()),
            3 => Barrier::Rule(PolicyRule { at: None, ..rule() }),
            _ => Barrier::Hosts(Some(rule())),
        };
        let remedy = match at % 4 {
            0 => Remedy::Policy("p".into()),
            1 => Remedy::Option("o".into()),
            2 => Remedy::Advice("a".into()),
            _ => Remedy::Nothing,
        };
        denied.push(Denial::new(kind, "t", by, "w", remedy));
    }
    denied.add_unnamed(2);
    FromBroker::Done {
        call,
        outcome,
        usage,
        layers,
        denied,
    }
}

fn failed() -> Failed {
    Failed {
        kind: ErrorKind::Protocol,
        message: "m".into(),
    }
}

fn layers() -> Vec<LayerReport> {
    let missing = LayerState::Missing {
        why: "w".into(),
        lost: "l".into(),
    };
    vec![
        LayerReport {
            layer: Layer::Environment,
            state: LayerState::InForce("all".into()),
        },
        LayerReport {
            layer: Layer::Seccomp,
            state: missing,
        },
    ]
}

fn opened() -> Opened {
    Opened {
        policy: Digest([2; 32]),
        tier: Tier::Flat,
        layers: layers(),
        ..lazaret_fakes::opened(0)
    }
}

fn network() -> Network {
    let own = HostList {
        allow: Some(vec!["a.example:443".into()]),
        private: None,
    };
    Network {
        lists: vec![
            own,
            HostList {
                allow: None,
                private: Some(vec![]),
            },
        ],
    }
}

fn connection(verdict: ConnectionVerdict) -> ConnectionReport {
    ConnectionReport {
        host: "a.example".into(),
        port: 443,
        verdict,
        count: 2,
        why: Some("it is at 10.0.0.1".into()),
        private: Some("10.0.0.1:443".into()),
        call: Some(7),
    }
}

fn machine() -> Machine {
    Machine {
        kernel: "6.1".into(),
        landlock_abi: 7,
        tier: Tier::Namespaced,
        layers: layers(),
    }
}

fn answers() -> Vec<(&'static str, FileAnswer)> {
    let sha256 = Digest([3; 32]);
    let truncated = Some(Truncated {
        total: Some(9),
        shown: 1,
    });
    let read = Read {
        content: b"a\r\n".into(),
        first_line: 1,
        lines: 1,
        size: 9,
        truncated,
        sha256: Some(sha256),
        total_lines: Some(5),
    };
    let hunk = Hunk {
        old_start: 6,
        new_start: 7,
        old: b"old\n".into(),
        new: b"new".into(),
    };
    let hunks = Some(vec![hunk]);
    let kinds = [
        ListedKind::File,
        ListedKind::Directory,
        ListedKind::Link,
        ListedKind::Other,
    ];
    let entries = kinds
        .map(|kind| ListedEntry {
            path: "a".into(),
            kind,
            size: 1,
            mode: 0o644,
            modified_ms: 2,
        })
        .into();
    let line = MatchLine {
        number: 4,
        matched: true,
        text: "x".into(),
    };
    let matches = vec![Match {
        path: "a".into(),
        lines: vec![line],
    }];
    let in_part = [Unsearched::LongLine, Unsearched::Unreadable]
        .map(|why| InPart {
            path: "a".into(),
            why,
        })
        .into();
    let mut answers = vec![
        ("read", Ok(FileReply::Read(read))),
        (
            "written",
            Ok(FileReply::Written(Written {
                bytes: 4,
                created: true,
                sha256,
                change: Some(4),
                hunks: None,
            })),
        ),
        (
            "edited",
            Ok(FileReply::Edited(Edited {
                replaced: vec![1, 2],
                bytes: 5,
                sha256,
                change: None,
                hunks,
            })),
        ),
        (
            "listed",
            Ok(FileReply::Listed(Listed {
                entries,
                truncated: Some(Truncated {
                    total: None,
                    shown: 4,
                }),
            })),
        ),
        (
            "walked",
            Ok(FileReply::Walked(Walked {
                paths: vec!["a".into()],
                truncated: None,
            })),
        ),
        (
            "grepped",
            Ok(FileReply::Grepped(Grepped {
                matches,
                truncated: None,
                binary: 2,
                in_part,
                in_part_count: 3,
            })),
        ),
        (
            "started",
            Ok(FileReply::Started(Started {
                id: 3,
                log: Some(zone("a")),
                timeout_s: Some(9),
            })),
        ),
        (
            "background",
            Ok(FileReply::Background(vec![
                background(None),
                background(Some(Ok(Ended::Exited(1)))),
            ])),
        ),
        (
            "logged",
            Ok(FileReply::Logged(Logged {
                from: 5,
                bytes: b"log".into(),
                before: b"the ".into(),
                behind: b".".into(),
                total: 8,
                alive: true,
            })),
        ),
        (
            "killed",
            Ok(FileReply::Killed(background(Some(Err(Broken {
                message: "m".into(),
            }))))),
        ),
        (
            "history",
            Ok(FileReply::History(Changes {
                changes: vec![change()],
                truncated,
            })),
        ),
        (
            "undone",
            Ok(FileReply::Undone(Undone {
                sha256: Some(sha256),
                bytes: 5,
                change: Some(6),
            })),
        ),
        (
            "undone, removed",
            Ok(FileReply::Undone(Undone {
                sha256: None,
                bytes: 0,
                change: None,
            })),
        ),
        (
            "bytes",
            Ok(FileReply::Bytes(Bytes {
                content: b"ab".into(),
                size: 5,
            })),
        ),
    ];
    answers.extend(KINDS.map(|kind| {
        (
            kind.name(),
            Err(Failed {
                kind,
                message: "m".into(),
            }),
        )
    }));
    answers
}

fn background(ended: Option<Result<Ended, Broken>>) -> Background {
    let usage = Usage {
        wall_us: 5,
        ..Usage::default()
    };
    Background {
        id: 3,
        command: "serve".into(),
        started_ms: 7,
        log: None,
        ended,
        usage,
    }
}

fn change() -> FileChange {
    let digest = Some(Digest([3; 32]));
    FileChange {
        number: 4,
        session: "5e".repeat(16),
        call: 7,
        time_ms: 9,
        path: zone("a"),
        before: None,
        after: digest,
    }
}

const KINDS: [ErrorKind; 16] = [
    ErrorKind::InvalidInput,
    ErrorKind::UnknownTool,
    ErrorKind::DeniedPolicy,
    ErrorKind::DeniedUser,
    ErrorKind::ApprovalTimeout,
    ErrorKind::Violation,
    ErrorKind::NotFound,
    ErrorKind::Io,
    ErrorKind::ExitNonzero,
    ErrorKind::Timeout,
    ErrorKind::IdleTimeout,
    ErrorKind::Cancelled,
    ErrorKind::ResourceLimit,
    ErrorKind::ExecutorLost,
    ErrorKind::Protocol,
    ErrorKind::Internal,
];
