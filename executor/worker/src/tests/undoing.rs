//! What file tools change can be undone, and nothing else can be done by way of that.

use super::*;
use crate::bounds::KEPT;
use crate::content::digest;
use broker_protocol::{Changes, Edit, FileEdit, History, Occurrence, Undo, Undone};
use std::os::unix::fs::PermissionsExt;

const CHANGES: &str = "central/.lazaret/undo/changes";
const OBJECTS: &str = "central/.lazaret/undo/objects";

impl Ground {
    fn history(&self) -> Changes {
        match self
            .answer(Request::History(History { limit: 100 }))
            .unwrap()
        {
            FileReply::History(changes) => changes,
            other => panic!("{other:?}"),
        }
    }

    fn undo_with(&self, change: u64, path: &str, force: bool) -> Result<Undone, Failed> {
        match self.answer(Request::Undo(Undo {
            change,
            path: zoned(path),
            force,
        }))? {
            FileReply::Undone(undone) => Ok(undone),
            other => panic!("{other:?}"),
        }
    }

    fn undo(&self, change: u64, path: &str) -> Result<Undone, Failed> {
        self.undo_with(change, path, false)
    }

    /// A worker on the same roots that knows nothing and keeps `budget` bytes: what a new session is.
    fn reopened(self, budget: u64) -> Self {
        let roots = roots(&self.home, Access::Write, Access::Write);
        Self {
            worker: Worker::new(roots, names(&self.home), undo_directory(&self.home), budget),
            ..self
        }
    }

    /// Replaces the line of a change.
    fn forge(&self, change: u64, from: &str, to: &str) {
        let path = self.path(&format!("{CHANGES}/{change}"));
        let line = fs::read_to_string(&path).unwrap();
        let forged = line.replace(from, to);
        assert_ne!(forged, line);
        fs::write(path, forged).unwrap();
    }
}

fn object(content: &[u8]) -> String {
    format!("{OBJECTS}/{}", digest(content))
}

#[test]
fn a_replaced_file_comes_back_with_its_mode() {
    let ground = Ground::new();
    let path = ground.put_known("dir/a", "old");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    let change = ground.write("dir/a", "new").unwrap().change.unwrap();
    let undone = ground.undo(change, "dir/a").unwrap();
    assert_eq!((undone.sha256, undone.bytes), (Some(digest(b"old")), 3));
    assert_eq!(ground.content("project/dir/a"), "old");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o750
    );
    assert_eq!(
        kind(ground.write("dir/a", "x")),
        ErrorKind::InvalidInput,
        "what came back has not been read"
    );
}

#[test]
fn an_edit_comes_back_and_an_undo_is_undone() {
    let ground = Ground::new();
    ground.put_known("a", "one two");
    let edits = vec![Edit {
        old: "one".into(),
        new: "1".into(),
        occurrence: Occurrence::Only,
    }];
    let edit = FileEdit {
        path: zoned("a"),
        edits,
        expected_sha256: None,
    };
    let FileReply::Edited(edited) = ground.answer(Request::FileEdit(edit)).unwrap() else {
        panic!()
    };
    let undone = ground.undo(edited.change.unwrap(), "a").unwrap();
    assert_eq!(ground.content("project/a"), "one two");
    let again = ground.undo(undone.change.unwrap(), "a").unwrap();
    assert_eq!(ground.content("project/a"), "1 two");
    ground.undo(again.change.unwrap(), "a").unwrap();
    assert_eq!(ground.content("project/a"), "one two");
    let changes = ground.history().changes;
    assert_eq!(
        changes
            .iter()
            .map(|change| change.number)
            .collect::<Vec<_>>(),
        [4, 3, 2, 1]
    );
    assert!(
        changes
            .iter()
            .all(|change| change.call == 7 && change.path == zoned("a"))
    );
}

#[test]
fn a_file_that_was_made_goes_and_comes_back() {
    let ground = Ground::new();
    let made = ground.write("a", "new").unwrap().change.unwrap();
    fs::set_permissions(ground.path("project/a"), fs::Permissions::from_mode(0o710)).unwrap();
    let removed = ground.undo(made, "a").unwrap();
    assert_eq!((removed.sha256, removed.bytes), (None, 0));
    assert!(ground.names("project").is_empty());
    assert_eq!(
        ground.undo(made, "a").unwrap_err().message,
        "a is as it was before change 1 already"
    );
    ground.undo(removed.change.unwrap(), "a").unwrap();
    assert_eq!(ground.content("project/a"), "new");
    assert_eq!(
        fs::metadata(ground.path("project/a"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o710
    );
}

#[test]
fn file_changed_by_others_is_restored_only_by_force() {
    let ground = Ground::new();
    ground.put_known("a", "old");
    let change = ground.write("a", "new").unwrap().change.unwrap();
    ground.put("project/a", "theirs");
    let error = ground.undo(change, "a").unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidInput);
    assert_eq!(
        error.message,
        "a is no longer what change 1 left; look at it first, then force the undo"
    );
    assert_eq!(ground.content("project/a"), "theirs");
    let forced = ground.undo_with(change, "a", true).unwrap();
    assert_eq!(ground.content("project/a"), "old");
    ground.undo(forced.change.unwrap(), "a").unwrap();
    assert_eq!(
        ground.content("project/a"),
        "theirs",
        "what was forced away is kept too"
    );
    fs::remove_file(ground.path("project/a")).unwrap();
    assert_eq!(kind(ground.undo(change, "a")), ErrorKind::InvalidInput);
    ground.undo_with(change, "a", true).unwrap();
    assert_eq!(ground.content("project/a"), "old");
}

#[test]
fn history_outlives_the_session() {
    let ground = Ground::new();
    ground.put_known("a", "old");
    let first = ground.write("a", "new").unwrap().change.unwrap();
    let ground = ground.reopened(UNDO);
    let second = ground.write("b", "x").unwrap().change.unwrap();
    assert_eq!((first, second), (1, 2));
    ground.undo(first, "a").unwrap();
    assert_eq!(ground.content("project/a"), "old");
    let changes = ground.history();
    assert_eq!((changes.changes.len(), changes.truncated), (3, None));
    assert_eq!(changes.changes[1].before, None);
    let FileReply::History(one) = ground
        .answer(Request::History(History { limit: 1 }))
        .unwrap()
    else {
        panic!()
    };
    assert_eq!(
        one.truncated.map(|cut| (cut.total, cut.shown)),
        Some((Some(3), 1))
    );
}

#[test]
fn a_write_that_fails_is_no_change() {
    let ground = Ground::new();
    ground.put_known("a", "old");
    assert!(ground.write("a/b", "x").is_err());
    fs::set_permissions(ground.path("project/a"), fs::Permissions::from_mode(0o444)).unwrap();
    assert!(ground.write("a", "new").is_err());
    assert!(ground.history().changes.is_empty());
}

#[test]
fn the_oldest_is_dropped_when_the_budget_is_full() {
    let budget = 1 << 20;
    let ground = Ground::new().reopened(budget);
    ground.put_known("a", "first");
    for round in 0..40 {
        ground
            .write("a", &format!("{round}-{}", "x".repeat(60_000)))
            .unwrap()
            .change
            .unwrap();
        let used: u64 = [CHANGES, OBJECTS]
            .iter()
            .flat_map(|folder| fs::read_dir(ground.path(folder)).unwrap())
            .map(|entry| entry.unwrap().metadata().unwrap().len() + 4096)
            .sum();
        assert!(used <= budget, "{used} bytes after {round}");
    }
    let changes = ground.history().changes;
    assert!((8..20).contains(&changes.len()), "{}", changes.len());
    assert_eq!(kind(ground.undo(1, "a")), ErrorKind::NotFound);
    ground.undo_with(changes[0].number, "a", true).unwrap();
    assert!(ground.content("project/a").len() > 60_000);
    assert!(!ground.path(&object(b"first")).exists());
}

#[test]
fn file_too_large_for_undo_is_written_without_a_change_number() {
    let ground = Ground::new().reopened(64 << 10);
    ground.put_known("a", "x".repeat(60_000));
    assert_eq!(ground.write("a", "new").unwrap().change, None);
    let small = ground.write("a", "newer").unwrap().change;
    assert!(small.is_some());
    let ground = ground.reopened(UNDO);
    let large = vec![b'x'; KEPT + 1];
    ground.put("project/a", &large);
    let write = FileWrite {
        path: zoned("a"),
        content: b"new".to_vec(),
        overwrite: true,
        expected_sha256: Some(digest(&large)),
    };
    assert_eq!(ground.write_with(write).unwrap().change, None);
    assert_eq!(ground.content("project/a"), "new");
    let none = ground.reopened(0);
    assert_eq!(none.write("b", "x").unwrap().change, None);
}

#[test]
fn two_sessions_share_the_numbers() {
    let ground = Ground::new();
    let roots = roots(&ground.home, Access::Write, Access::Write);
    let other = Worker::new(
        roots,
        names(&ground.home),
        undo_directory(&ground.home),
        UNDO,
    );
    assert_eq!(ground.write("a", "x").unwrap().change, Some(1));
    for round in 0..100 {
        let first = WorkerContext {
            purpose: WorkerPurpose::Call(1),
            ..context(Vec::new())
        };
        let path = zoned(&format!("b{round}"));
        let write = FileWrite {
            path,
            content: vec![],
            overwrite: false,
            expected_sha256: None,
        };
        other
            .answer(first, &Request::FileWrite(write), None)
            .unwrap()
            .unwrap();
    }
    assert_eq!(ground.write("c", "x").unwrap().change, Some(102));
}

/// Attack: who may write all of `.lazaret` (a program outside a cell) gains nothing by it.
#[test]
fn forged_history_gains_nothing() {
    let ground = Ground::new();
    ground.put_known("a", "old");
    let change = ground.write("a", "new").unwrap().change.unwrap();
    // Control: what is not forged works.
    ground.undo(change, "a").unwrap();
    ground.read("a").unwrap();
    let change = ground.write("a", "new").unwrap().change.unwrap();

    fs::write(ground.path(&object(b"old")), "ODD").unwrap();
    assert_eq!(
        kind(ground.undo(change, "a")),
        ErrorKind::NotFound,
        "a forged content"
    );
    fs::remove_file(ground.path(&object(b"old"))).unwrap();
    ground.link(ground.path("outside/canary"), &object(b"old"));
    assert_eq!(
        kind(ground.undo(change, "a")),
        ErrorKind::NotFound,
        "a link in its place"
    );
    fs::remove_file(ground.path(&object(b"old"))).unwrap();
    fifo(&ground.path(&object(b"old")));
    assert_eq!(
        kind(ground.undo(change, "a")),
        ErrorKind::NotFound,
        "a FIFO in its place"
    );
    fs::remove_file(ground.path(&object(b"old"))).unwrap();
    ground.put(&object(b"old"), "old");

    for (path, forged) in [
        ("locked", "project:locked"),
        (".env", "project:.env"),
        ("sub/.git/hooks/x", "project:sub/.git/hooks/x"),
    ] {
        ground.forge(change, "project:a", forged);
        assert_eq!(
            kind(ground.undo_with(change, path, true)),
            ErrorKind::DeniedPolicy,
            "{path}"
        );
        assert_eq!(
            kind(ground.undo_with(change, "a", true)),
            ErrorKind::InvalidInput,
            "{path} by another name"
        );
        ground.forge(change, forged, "project:a");
    }
    for forged in [
        "project:../outside/canary",
        "project:/etc/passwd",
        "host:a",
        "project:b/%2e%2e/%2e%2e/outside/canary",
    ] {
        ground.forge(change, "project:a", forged);
        assert_eq!(
            kind(ground.undo_with(change, "a", true)),
            ErrorKind::NotFound,
            "{forged}"
        );
        assert!(
            ground
                .history()
                .changes
                .iter()
                .all(|listed| listed.number != change)
        );
        ground.forge(change, forged, "project:a");
    }
    ground.forge(change, "project:a", "project:out");
    ground.link(ground.path("outside/canary"), "project/out");
    assert_eq!(
        kind(ground.undo_with(change, "out", true)),
        ErrorKind::Violation,
        "through a link"
    );
    ground.forge(change, "project:out", "project:a");
    ground.forge(change, " 644 ", " 4755 ");
    assert_eq!(
        kind(ground.undo_with(change, "a", true)),
        ErrorKind::NotFound,
        "a mode that gives rights"
    );
    ground.forge(change, " 4755 ", " 644 ");
    ground.undo(change, "a").unwrap();
    assert_eq!(ground.content("outside/canary"), "OUTSIDE\n");
}

/// Attack: `.lazaret` leads somewhere else, or is filled with what is none of ours.
#[test]
fn a_store_that_is_not_ours_costs_the_history_only() {
    let ground = Ground::new();
    fs::remove_dir_all(ground.path("central/.lazaret")).unwrap();
    assert_eq!(
        ground.write("z", "x").unwrap().change,
        None,
        "it was there when the session opened"
    );
    ground.link(ground.path("outside"), "central/.lazaret");
    let ground = ground.reopened(UNDO);
    assert_eq!(ground.write("a", "x").unwrap().change, None);
    assert_eq!(ground.names("outside"), ["canary"]);
    fs::remove_file(ground.path("central/.lazaret")).unwrap();
    let ground = ground.reopened(UNDO);
    ground.put(
        "central/.lazaret/undo/changes/999999999999999",
        "not a line",
    );
    ground.put(
        "central/.lazaret/undo/changes/18446744073709551615",
        "not a line",
    );
    assert_eq!(
        ground.write("b", "x").unwrap().change,
        None,
        "no number is left"
    );
    let ground = ground.reopened(UNDO);
    fs::remove_file(ground.path("central/.lazaret/undo/changes/999999999999999")).unwrap();
    for name in ["5", "-1", "07", "x"] {
        ground.put(&format!("{CHANGES}/{name}"), "1 1 1 644 torn");
    }
    assert_eq!(ground.write("c", "x").unwrap().change, Some(6));
    assert_eq!(ground.history().changes.len(), 1);
    fs::remove_dir_all(ground.path("central/.lazaret/undo")).unwrap();
    assert!(ground.history().changes.is_empty());
    assert!(ground.write("d", "x").unwrap().change.is_some());
    ground
        .undo(ground.history().changes[0].number, "d")
        .unwrap();
    assert_eq!(ground.names("project"), ["a", "b", "c", "z"]);
}

#[test]
fn a_root_that_takes_no_writes_keeps_nothing() {
    let ground = Ground::new();
    let roots = roots(&ground.home, Access::Write, Access::Read);
    let worker = Worker::new(
        roots,
        names(&ground.home),
        undo_directory(&ground.home),
        UNDO,
    );
    let ground = Ground { worker, ..ground };
    assert_eq!(ground.write("a", "x").unwrap().change, None);
    assert!(ground.names("central/.lazaret").is_empty());
    let ground = Ground::with(Access::Read);
    let line = format!(
        "2 {} 1 1 644 {} - project:a\n",
        "5e".repeat(16),
        digest(b"x")
    );
    ground.put(&format!("{CHANGES}/1"), line);
    ground.put(&object(b"x"), "x");
    assert_eq!(
        kind(ground.undo_with(1, "a", true)),
        ErrorKind::DeniedPolicy
    );
}
