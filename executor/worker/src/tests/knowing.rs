//! Read before edit: what a session has not read it does not change.

use super::*;
use crate::bounds::KEPT;
use crate::content::digest;
use crate::seen::FILES;
use broker_protocol::{Edit, FileEdit, Occurrence};
use executor_spec::worker::{WorkerContext, WorkerPurpose};
use std::time::SystemTime;

const UNREAD: &str =
    "a has not been read in this session; read it first: its content may be unexpected";
const MODIFIED: &str = "a was modified since the last read; read it again";

impl Ground {
    /// What a replacement and an edit of `a` say, which must be the same.
    fn refusal(&self) -> Option<String> {
        let expected_sha256 = None;
        let edits = vec![Edit {
            old: "o".into(),
            new: "o".into(),
            occurrence: Occurrence::All,
        }];
        let edit = Request::FileEdit(FileEdit {
            path: zoned("a"),
            edits,
            expected_sha256,
        });
        let edited = self.answer(edit).err().map(|error| error.message);
        let written = self.write("a", "only").err().map(|error| error.message);
        assert_eq!(edited, written);
        written
    }
}

/// A file that changed so long ago that its times can be relied on.
fn age(path: &Path) {
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(long_ago)
        .unwrap();
}

#[test]
fn an_existing_file_is_changed_only_when_it_has_been_read() {
    let ground = Ground::new();
    ground.put("project/a", "old");
    assert_eq!(ground.refusal().as_deref(), Some(UNREAD));
    assert_eq!(kind(ground.write("a", "x")), ErrorKind::InvalidInput);
    assert_eq!(ground.content("project/a"), "old");
    ground.read("a").unwrap();
    assert_eq!(ground.refusal(), None);
    assert_eq!(ground.content("project/a"), "only");
    assert_eq!(ground.refusal(), None, "what the session wrote it knows");
}

#[test]
fn file_changed_since_it_was_read_must_be_read_again() {
    let ground = Ground::new();
    ground.put_known("a", "old");
    ground.put("project/a", "odd");
    assert_eq!(
        ground.refusal().as_deref(),
        Some(MODIFIED),
        "in place, same size, same tick of the clock"
    );
    ground.put_known("a", "old");
    ground.put("project/b", "odd");
    fs::rename(ground.path("project/b"), ground.path("project/a")).unwrap();
    assert_eq!(
        ground.refusal().as_deref(),
        Some(MODIFIED),
        "another file of the same name"
    );
    assert_eq!(ground.content("project/a"), "odd");
    ground.write("a", "x").unwrap_err();
    ground.read("a").unwrap();
    assert_eq!(ground.refusal(), None);
    ground.put("project/a", "theirs");
    assert_eq!(
        ground.refusal().as_deref(),
        Some(MODIFIED),
        "after a write of our own"
    );
}

#[test]
fn the_content_counts_and_not_its_times() {
    let ground = Ground::new();
    let path = ground.put_known("a", "old");
    age(&path);
    assert_eq!(ground.refusal(), None);
    ground.put("project/a", "only");
    assert_eq!(
        ground.refusal(),
        None,
        "the same content, put there by others"
    );
}

#[test]
fn a_part_counts_while_the_file_stays_as_it_is() {
    let ground = Ground::new();
    let path = ground.put("project/a", "one\ntwo\n");
    let part = || ground.read_lines("a", Some(2), Some(1)).unwrap();
    part();
    assert_eq!(ground.refusal(), None, "changed just now, so hashed");
    ground.put("project/a", "one\ntwo\n");
    part();
    ground.put("project/a", "one\nodd\n");
    assert_eq!(
        ground.refusal().as_deref(),
        Some(MODIFIED),
        "hashed, same size, same tick of the clock"
    );
    std::thread::sleep(Duration::from_millis(3100));
    part();
    age(&path);
    assert_eq!(
        ground.refusal().as_deref(),
        Some(MODIFIED),
        "by its times alone"
    );
    std::thread::sleep(Duration::from_millis(3100));
    part();
    assert_eq!(ground.refusal(), None);
}

#[test]
fn a_large_file_is_known_by_its_state() {
    let ground = Ground::new();
    let path = ground.put("project/a", vec![b'o'; KEPT + 1]);
    assert!(ground.read("a").unwrap().truncated.is_some());
    assert_eq!(
        kind(ground.write("a", "x")),
        ErrorKind::InvalidInput,
        "changed just now and too large to be held"
    );
    std::thread::sleep(Duration::from_millis(3100));
    ground.read("a").unwrap();
    age(&path);
    assert_eq!(ground.write("a", "x").unwrap_err().message, MODIFIED);
    std::thread::sleep(Duration::from_millis(3100));
    ground.read("a").unwrap();
    ground.write("a", "x").unwrap();
}

#[test]
fn the_digest_of_the_content_proves_knowledge() {
    let ground = Ground::new();
    ground.put("project/a", "old");
    let write = |expected: &[u8]| FileWrite {
        path: zoned("a"),
        content: b"new".to_vec(),
        overwrite: true,
        expected_sha256: Some(digest(expected)),
    };
    assert_eq!(
        kind(ground.write_with(write(b"odd"))),
        ErrorKind::InvalidInput
    );
    assert!(ground.write_with(write(b"old")).is_ok());
}

#[test]
fn a_file_is_known_by_the_name_that_links_lead_to() {
    let ground = Ground::new();
    ground.put("project/real", "old");
    ground.put("project/other", "old");
    ground.link("real", "project/a");
    ground.read("a").unwrap();
    ground.write("real", "new").unwrap();
    fs::remove_file(ground.path("project/a")).unwrap();
    ground.link("other", "project/a");
    assert_eq!(ground.refusal().as_deref(), Some(UNREAD));
    assert_eq!(ground.content("project/other"), "old");
}

#[test]
fn file_read_longest_ago_is_forgotten_first() {
    let ground = Ground::new();
    ground.put_known("a", "old");
    ground.put_known("b", "old");
    ground.put("project/c", "x");
    for name in 0..FILES - 2 {
        fs::hard_link(
            ground.path("project/c"),
            ground.path(&format!("project/{name}")),
        )
        .unwrap();
        ground.read(&name.to_string()).unwrap();
    }
    assert!(
        ground.read("a").is_ok(),
        "known already, nothing is forgotten for it"
    );
    ground.read("c").unwrap();
    assert_eq!(kind(ground.write("b", "x")), ErrorKind::InvalidInput);
    assert!(ground.write("a", "x").is_ok());
}

#[test]
fn a_search_is_no_reading() {
    use broker_protocol::Grep;
    let ground = Ground::new();
    ground.put("project/a", "old");
    let grep = Grep {
        pattern: "o".into(),
        literal: true,
        ignore_case: false,
        path: zoned("a"),
        include: None,
        ignored: true,
        context: 0,
        limit: 10,
        sort: broker_protocol::GrepSort::Path,
    };
    ground.answer(Request::Grep(grep)).unwrap();
    assert_eq!(ground.refusal().as_deref(), Some(UNREAD));
}

/// Who is asked about a change looks at the file; the session does not come to know it by that.
#[test]
fn preview_does_not_count_as_read() {
    let ground = Ground::new();
    ground.put("project/a", "old\n");
    let read = Request::FileRead(FileRead {
        path: zoned("a"),
        offset: None,
        limit: None,
    });
    let preview = WorkerContext {
        purpose: WorkerPurpose::Preview,
        ..context(Vec::new())
    };
    ground.worker.answer(preview, &read, None).unwrap().unwrap();
    assert!(
        ground
            .write("a", "new")
            .unwrap_err()
            .message
            .contains(UNREAD)
    );
    ground
        .worker
        .answer(context(Vec::new()), &read, None)
        .unwrap()
        .unwrap();
    ground.write("a", "new").unwrap();
}
