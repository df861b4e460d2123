//! A write of up to 10 MiB, more than a frame holds, is one change, and half of one is none. Front ends: `agents::mcp`,
//! `sidecar::mcp`, `chat::limits`.

use broker_protocol::{
    CallId, Challenge, Extent, FileWrite, FromBroker, Grant, Open, Outcome, Request, ToBroker,
    Trust, Zone, ZonePath, content, limit,
};
use lazaret_tests::approval::{Approver, audited, dressed, set_policy};
use lazaret_tests::process::{figure, until};
use lazaret_tests::wire::{Received, opening};
use lazaret_tests::{Broker, LIMIT, Place, Session, World, place_test};
use serde_json::json;

/// More than this the broker does not need for one such content, in KiB.
const MEMORY: u64 = 48 * 1024;

const LINE: &str = "0123456789abcde\n";

/// A content of the largest size that begins with `first`.
pub fn largest(first: u8) -> String {
    let mut content = LINE.repeat(limit::WRITE / LINE.len());
    content.replace_range(..1, &(first as char).to_string());
    content
}

fn write(content: &str) -> Request {
    Request::FileWrite(FileWrite {
        path: ZonePath::new(Zone::Project, "file").unwrap(),
        content: content.as_bytes().to_vec(),
        overwrite: true,
        expected_sha256: None,
    })
}

/// Sends a write in its frames.
fn send(broker: &mut Broker, call: CallId, mut request: Request) {
    for bytes in content::split(&mut request).unwrap() {
        broker.send(&ToBroker::Content { call, bytes });
    }
    broker.send(&ToBroker::Call { call, request });
}

#[track_caller]
fn asked(broker: &mut Broker) -> Challenge {
    match broker.message() {
        FromBroker::Asked { challenge, .. } => challenge,
        other => panic!("{other:?}"),
    }
}

fn guided(world: &World, approval: &str) -> Broker {
    set_policy(world, approval);
    let open = Open {
        trust: Trust::Guided,
        ..opening(world)
    };
    let executor = dressed(world, world.program("lazaret-executor"));
    Broker::open_by(world, executor, open).0
}

place_test!(content_up_to_the_limit_is_written_and_above_it_nothing);
fn content_up_to_the_limit_is_written_and_above_it_nothing(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let content = largest(b'a');
    let input = json!({"path": "file", "content": content});
    let written = session.call("file_write", input);
    assert!(written.ok(), "{:.400}", written.result.to_string());
    assert_eq!(world.get("file"), content.as_bytes());
    // Each byte is escaped in JSON, and the old content is as large as the new one.
    let escaped = "\"".repeat(limit::WRITE);
    let input = json!({"path": "file", "content": escaped});
    let written = session.call("file_write", input);
    assert!(written.ok(), "{:.400}", written.result.to_string());
    assert_eq!(world.get("file"), escaped.as_bytes());
    let over = json!({"path": "file", "content": format!("{content}x")});
    let refused = session.call("file_write", over);
    assert_eq!(refused.kind(), "invalid_input");
    assert!(refused.text().contains("10485760"), "{}", refused.text());
    assert_eq!(world.get("file"), escaped.as_bytes());
    session
        .call("file_write", json!({"path": "small", "content": "x"}))
        .success();
}

place_test!(half_a_write_changes_nothing);
fn half_a_write_changes_nothing(place: Place) {
    let world = World::new(place);
    world.put("file", "before");
    let piece = vec![b'x'; limit::PIECE];
    let half = |broker: &mut Broker, call| {
        for _ in 0..limit::WRITE / limit::PIECE {
            let bytes = piece.clone();
            broker.send(&ToBroker::Content { call, bytes });
        }
    };
    let mut broker = Broker::open(&world).0;
    // Given up: what follows is not mixed with it.
    half(&mut broker, 1);
    broker.send(&ToBroker::Cancel { call: 1 });
    let Request::FileWrite(small) = write("small") else {
        unreachable!()
    };
    let path = ZonePath::new(Zone::Project, "other").unwrap();
    let done = broker.call(2, Request::FileWrite(FileWrite { path, ..small }));
    assert_eq!(done.outcome, Outcome::Answered);
    assert_eq!(world.get("other"), b"small");
    assert_eq!(world.get("file"), b"before");
    let peak = figure(broker.pid(), "status", "VmHWM").unwrap();
    assert!(peak < MEMORY, "the broker has taken {peak} KiB");
    // The client leaves.
    half(&mut broker, 3);
    let _ = broker.stream.shutdown(std::net::Shutdown::Both);
    broker.ended(LIMIT);
    assert_eq!(world.get("file"), b"before");
    // More than the limit, another call between, and pieces for what is no write end the connection.
    let pieces = limit::WRITE / limit::PIECE;
    let fault = |send: &dyn Fn(&mut Broker)| {
        let mut broker = Broker::open(&world).0;
        send(&mut broker);
        match broker.receive(LIMIT) {
            Received::Message(FromBroker::Fault(failed)) => failed.message,
            other => panic!("{other:?}"),
        }
    };
    let over = fault(&|broker| {
        for _ in 0..=pieces {
            let bytes = piece.clone();
            broker.send(&ToBroker::Content { call: 1, bytes });
        }
    });
    assert!(over.contains("10485760"), "{over}");
    let mixed = fault(&|broker| {
        half(broker, 1);
        broker.send(&ToBroker::Call {
            call: 2,
            request: write("x"),
        });
    });
    assert!(mixed.contains("call 1 is incomplete"), "{mixed}");
    let no_write = fault(&|broker| {
        half(broker, 1);
        broker.send(&ToBroker::Call {
            call: 1,
            request: Request::BackgroundList,
        });
    });
    assert!(no_write.contains("is no write"), "{no_write}");
    assert_eq!(world.get("file"), b"before");
}

place_test!(an_approval_is_of_the_whole_content);
/// The digest covers every piece, and so does the record; the file is the one that was asked about.
fn an_approval_is_of_the_whole_content(place: Place) {
    let world = World::new(place);
    let mut broker = guided(&world, "timeout_s = 20");
    send(&mut broker, 1, write(&largest(b'a')));
    let first = asked(&mut broker);
    broker.send(&ToBroker::Refuse { call: 1 });
    broker.done(1);
    send(&mut broker, 1, write(&largest(b'b')));
    let second = asked(&mut broker);
    assert_ne!(first.digest, second.digest);
    let grant = |challenge: &Challenge, digest| Grant {
        call: 1,
        digest,
        nonce: challenge.nonce,
        extent: Extent::Once,
    };
    broker.send(&ToBroker::Grant(grant(&second, first.digest)));
    assert!(matches!(broker.message(), FromBroker::Ungranted(_)));
    assert!(!world.project.join("file").exists());
    broker.send(&ToBroker::Grant(grant(&second, second.digest)));
    assert_eq!(broker.done(1).outcome, Outcome::Answered);
    assert_eq!(world.get("file"), largest(b'b').as_bytes());
    let requests = audited(&world, "call");
    let digests: Vec<_> = requests.iter().map(|one| &one["request"]).collect();
    assert_eq!(digests.len(), 2, "{requests:?}");
    assert_ne!(digests[0], digests[1]);
}

place_test!(an_approver_reads_all_of_a_large_write);
fn an_approver_reads_all_of_a_large_write(place: Place) {
    let world = World::new(place);
    let separate = "timeout_s = 60\nchannel = \"separate\"\nterminal = false";
    let mut broker = guided(&world, separate);
    send(&mut broker, 1, write(&largest(b'a')));
    asked(&mut broker);
    let mut approver = Approver::start(&world);
    let shown = approver.answer("once");
    let body = shown["body"].as_array().unwrap();
    let added = |line: &&serde_json::Value| line.as_str().unwrap().starts_with('+');
    assert_eq!(
        body.iter().filter(added).count(),
        limit::WRITE / LINE.len(),
        "{} lines",
        body.len()
    );
    assert_eq!(broker.done(1).outcome, Outcome::Answered);
    assert!(until(LIMIT, || world.project.join("file").exists()));
    assert_eq!(world.get("file"), largest(b'a').as_bytes());
}
