//! Bytes of a file, and what the small tools keep.

use super::*;
use broker_protocol::{Bytes, Digest, FileBytes, State, StateChange, StateTool};

fn bytes(ground: &Ground, path: &str, offset: u64, limit: u32) -> Result<Bytes, Failed> {
    match ground.answer(Request::FileBytes(FileBytes {
        path: zoned(path),
        offset,
        limit,
    }))? {
        FileReply::Bytes(bytes) => Ok(bytes),
        other => panic!("{other:?}"),
    }
}

fn state(
    ground: &Ground,
    tool: StateTool,
    change: Option<(&[u8], Option<Digest>)>,
) -> Result<FileReply, Failed> {
    let change = change.map(|(content, expected_sha256)| StateChange {
        content: content.into(),
        expected_sha256,
    });
    ground.answer(Request::State(State { tool, change }))
}

#[test]
fn bytes_come_in_pieces_and_end_with_the_file() {
    let ground = Ground::new();
    ground.put("project/a", b"0123\xff\n6789");
    let piece = |offset, limit| {
        let bytes = bytes(&ground, "a", offset, limit).unwrap();
        assert_eq!(bytes.size, 10);
        bytes.content
    };
    assert_eq!(piece(0, 10), b"0123\xff\n6789");
    assert_eq!(
        (piece(2, 4), piece(8, 5)),
        (b"23\xff\n".to_vec(), b"89".to_vec())
    );
    assert_eq!((piece(10, 1), piece(1 << 40, 1)), (vec![], vec![]));
}

#[test]
fn bytes_are_bounded_and_of_open_files_only() {
    let ground = Ground::new();
    let large = ground.put("project/large", "");
    fs::File::options()
        .write(true)
        .open(large)
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    assert_eq!(
        bytes(&ground, "large", 1 << 39, limit::READ as u32)
            .unwrap()
            .content
            .len(),
        limit::READ
    );
    assert_eq!(
        kind(bytes(&ground, "large", 0, limit::READ as u32 + 1)),
        ErrorKind::InvalidInput
    );
    assert_eq!(kind(bytes(&ground, "large", 0, 0)), ErrorKind::InvalidInput);
    assert_eq!(kind(bytes(&ground, "large", u64::MAX, 1)), ErrorKind::Io);
    ground.put("project/.env", "SECRET");
    assert_eq!(kind(bytes(&ground, ".env", 0, 9)), ErrorKind::DeniedPolicy);
    ground.link("../outside/canary", "project/out");
    assert_eq!(kind(bytes(&ground, "out", 0, 9)), ErrorKind::Violation);
    fifo(&ground.path("project/fifo"));
    assert_eq!(kind(bytes(&ground, "fifo", 0, 9)), ErrorKind::InvalidInput);
}

#[test]
fn state_is_created_once_and_replaced_only_by_its_reader() {
    let ground = Ground::new();
    assert_eq!(
        kind(state(&ground, StateTool::TodoRead, None)),
        ErrorKind::NotFound
    );
    let Ok(FileReply::Written(first)) = state(&ground, StateTool::TodoWrite, Some((b"[1]", None)))
    else {
        panic!()
    };
    assert_eq!(ground.content("central/state/todo.json"), "[1]");
    assert_eq!(
        kind(state(&ground, StateTool::TodoWrite, Some((b"[2]", None)))),
        ErrorKind::InvalidInput
    );
    let wrong = Some(Digest([0; 32]));
    assert_eq!(
        kind(state(&ground, StateTool::TodoWrite, Some((b"[2]", wrong)))),
        ErrorKind::InvalidInput
    );
    state(
        &ground,
        StateTool::TodoWrite,
        Some((b"[2]", Some(first.sha256))),
    )
    .unwrap();
    assert_eq!(ground.content("central/state/todo.json"), "[2]");
    assert_eq!(
        kind(state(&ground, StateTool::Memory, None)),
        ErrorKind::NotFound
    );
}

#[test]
fn a_state_is_bounded_follows_no_link_out_and_a_reader_does_not_write() {
    let ground = Ground::new();
    let most = vec![b'x'; limit::STATE];
    state(&ground, StateTool::Memory, Some((&most, None))).unwrap();
    let more = vec![b'x'; limit::STATE + 1];
    assert_eq!(
        kind(state(&ground, StateTool::Checkpoint, Some((&more, None)))),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        kind(state(&ground, StateTool::TodoRead, Some((b"[]", None)))),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        kind(state(&ground, StateTool::GoalList, Some((b"[]", None)))),
        ErrorKind::InvalidInput
    );
    ground.link("../../outside/canary", "central/state/todo.json");
    assert_eq!(
        kind(state(&ground, StateTool::TodoRead, None)),
        ErrorKind::Violation
    );
    assert!(state(&ground, StateTool::TodoWrite, Some((b"[]", None))).is_err());
    assert_eq!(ground.content("outside/canary"), "OUTSIDE\n");
}
