//! Every change of a small chain is found by `lazaret audit verify`, and every kind is counted.

use super::written::{audit_of, of_kind, records, whole};
use lazaret_tests::{LIMIT, Place, World, once_test, process, run};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A world whose audit has `calls` calls in it, each in a session of its own.
fn chain(calls: usize) -> World {
    let world = World::new(Place::any());
    for _ in 0..calls {
        run(
            &mut world.lazaret_call("file_list", &serde_json::json!({"path": "."})),
            LIMIT,
        )
        .success();
    }
    assert!(process::until(LIMIT, || of_kind(
        &records(&world),
        "closed"
    )
    .len()
        == calls));
    whole(&world);
    world
}

/// The verdict of verification on an audit with these files; `None` where it is valid.
fn judged(world: &World, files: &[(&str, &[u8])], words: &[&str]) -> Option<Value> {
    let state = world
        .state
        .join(format!("copy-{}", lazaret_tests::world::unique()));
    for (name, bytes) in files {
        world.write(&state.join("lazaret/audit").join(name), bytes);
    }
    let mut command = world.program("lazaret");
    command
        .env("XDG_STATE_HOME", &state)
        .args(["audit", "verify", "--json"])
        .args(words);
    let finished = run(&mut command, LIMIT);
    fs::remove_dir_all(&state).unwrap();
    let report: Value = serde_json::from_str(&finished.text()).unwrap();
    assert_eq!(
        finished.code(),
        i32::from(report["whole"] == false),
        "{report}"
    );
    (finished.code() != 0).then(|| report["bad"].clone())
}

const FILE: &str = "audit-000001.jsonl";

fn files(world: &World) -> (Vec<u8>, Vec<u8>) {
    let get = |name: &str| fs::read(Path::new(&audit_of(world)).join(name)).unwrap();
    (get(FILE), get("head"))
}

once_test!(no_byte_can_be_flipped);
/// Each of the first record and of the head; of the other records, which are hashed as the first is, each eighth and each end of a line.
fn no_byte_can_be_flipped() {
    let world = chain(1);
    let (text, head) = files(&world);
    assert_eq!(
        judged(&world, &[(FILE, &text), ("head", &head)], &[]),
        None,
        "the control: untouched it is whole"
    );
    let flipped = |bytes: &[u8], at: usize| {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1;
        flipped
    };
    let line_of = |at: usize| text[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    let is_tried = |at: &usize| line_of(*at) == 1 || at.is_multiple_of(8) || text[*at] == b'\n';
    // With the line that is to be named.
    let in_text = (0..text.len()).filter(is_tried);
    let in_text = in_text.map(|at| (flipped(&text, at), head.clone(), line_of(at)));
    let in_head = (0..head.len()).map(|at| (text.clone(), flipped(&head, at), 0));
    let cases: Vec<_> = in_text.chain(in_head).collect();
    let judge = |cases: &[(Vec<u8>, Vec<u8>, usize)]| {
        for (text, head, line) in cases {
            let bad = judged(&world, &[(FILE, text), ("head", head)], &[]);
            let text = String::from_utf8_lossy(text);
            let bad = bad.unwrap_or_else(|| panic!("a flipped byte is not found: {text}"));
            assert_eq!(bad["line"], *line, "{bad}");
        }
    };
    let halves = cases.split_at(cases.len() / 2);
    std::thread::scope(|scope| {
        scope.spawn(|| judge(halves.1));
        judge(halves.0);
    });
}

once_test!(no_record_can_go_come_or_change_its_place);
fn no_record_can_go_come_or_change_its_place() {
    let world = chain(3);
    let (text, head) = files(&world);
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let mut counts = Vec::new();
    let mut all_found = |what: &str, cases: Vec<Vec<u8>>| {
        for (number, case) in cases.iter().enumerate() {
            let bad = judged(&world, &[(FILE, case), ("head", &head)], &[]);
            assert!(bad.is_some(), "{what} {number} is not found");
        }
        counts.push(format!("{what} {}", cases.len()));
    };
    let without = |gone: usize| {
        let left = lines.iter().enumerate().filter(|(at, _)| *at != gone);
        left.flat_map(|(_, line)| line.to_vec())
            .collect::<Vec<u8>>()
    };
    all_found("dropped", (0..lines.len()).map(without).collect());
    let mut swapped = Vec::new();
    for first in 0..lines.len() {
        for second in first + 1..lines.len() {
            let mut other = lines.clone();
            other.swap(first, second);
            swapped.push(other.concat());
        }
    }
    all_found("swapped", swapped);
    let twice = |at: usize, to: usize| {
        let mut other = lines.clone();
        other.insert(to, lines[at]);
        other.concat()
    };
    all_found(
        "doubled",
        (0..lines.len()).map(|at| twice(at, at + 1)).collect(),
    );
    all_found(
        "put at the end",
        (0..lines.len()).map(|at| twice(at, lines.len())).collect(),
    );
    all_found(
        "cut at a line",
        (0..lines.len())
            .map(|left| lines[..left].concat())
            .collect(),
    );
    let last = text.len() - lines[lines.len() - 1].len();
    all_found(
        "cut within the last line",
        (last + 1..text.len())
            .map(|end| text[..end].to_vec())
            .collect(),
    );
    all_found(
        "something behind it",
        vec![
            [&text[..], b"x"].concat(),
            [&text[..], b"\n"].concat(),
            [&text[..], b"{}\n"].concat(),
        ],
    );
    println!("all found: {}", counts.join(", "));
}

once_test!(files_cannot_go_and_a_kept_hash_finds_an_audit_that_was_replaced);
fn files_cannot_go_and_a_kept_hash_finds_an_audit_that_was_replaced() {
    let world = chain(2);
    let (text, head) = files(&world);
    let kept = String::from_utf8(head[63..127].to_vec()).unwrap();
    let whole = [(FILE, &text[..]), ("head", &head[..])];
    assert_eq!(
        judged(&world, &whole, &["--head", &kept]),
        None,
        "the control"
    );
    assert!(
        judged(&world, &whole[..1], &[]).is_some(),
        "without its head"
    );
    assert!(
        judged(&world, &whole[1..], &[]).is_some(),
        "without its file"
    );
    assert!(
        judged(
            &world,
            &[("audit-000002.jsonl", &text), ("head", &head)],
            &[]
        )
        .is_some(),
        "without its first file"
    );
    // Who has the user's rights writes a whole new chain: only a hash that was kept elsewhere tells.
    let other = chain(1);
    let (text, head) = files(&other);
    let replaced = [(FILE, &text[..]), ("head", &head[..])];
    assert_eq!(
        judged(&world, &replaced, &[]),
        None,
        "this is what verification cannot know by itself"
    );
    assert!(judged(&world, &replaced, &["--head", &kept]).is_some());
    // A later head is no reason to doubt an earlier one.
    world.in_cell("true").success();
    assert!(process::until(LIMIT, || of_kind(
        &records(&world),
        "closed"
    )
    .len()
        == 3));
    let mut command = world.program("lazaret");
    let finished = run(command.args(["audit", "verify", "--head", &kept]), LIMIT).success();
    assert!(
        finished.contains("the given hash belongs to record"),
        "{finished}"
    );
    // And none at all is not whole.
    let empty = World::new(Place::any());
    run(empty.program("lazaret").args(["audit", "verify"]), LIMIT).expect(1);
}
