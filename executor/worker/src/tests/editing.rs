//! `file_edit`.

use super::*;
use crate::bounds::EDITED;
use crate::content::digest;
use broker_protocol::{Edit, Edited, FileEdit, Hunk, Occurrence};
use std::os::unix::fs::PermissionsExt;

fn edit(old: &str, new: &str, occurrence: Occurrence) -> Edit {
    Edit {
        old: old.into(),
        new: new.into(),
        occurrence,
    }
}

fn only(old: &str, new: &str) -> Edit {
    edit(old, new, Occurrence::Only)
}

impl Ground {
    fn edit(&self, path: &str, edits: Vec<Edit>) -> Result<Edited, Failed> {
        self.edit_with(FileEdit {
            path: zoned(path),
            edits,
            expected_sha256: None,
        })
    }

    fn edit_with(&self, edit: FileEdit) -> Result<Edited, Failed> {
        match self.answer(Request::FileEdit(edit))? {
            FileReply::Edited(edited) => Ok(edited),
            other => panic!("{other:?}"),
        }
    }

    /// Edits a file of `content` and returns what becomes of it.
    fn edited(&self, content: &str, edits: Vec<Edit>) -> String {
        self.put_known("edited", content);
        self.edit("edited", edits).unwrap();
        self.content("project/edited")
    }
}

#[test]
fn each_edit_is_made_in_the_result_of_the_one_before() {
    let ground = Ground::new();
    let path = ground.put_known("a", "one two two");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    let edited = ground
        .edit(
            "a",
            vec![only("one", "two"), edit("two", "3", Occurrence::All)],
        )
        .unwrap();
    assert_eq!((edited.replaced, edited.bytes), (vec![1, 3], 5));
    assert_eq!(edited.sha256, digest(b"3 3 3"));
    let hunk = Hunk {
        old_start: 1,
        new_start: 1,
        old: b"one two two".into(),
        new: b"3 3 3".into(),
    };
    assert_eq!(edited.hunks, Some(vec![hunk]));
    assert_eq!(ground.content("project/a"), "3 3 3");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o750
    );
    assert_eq!(ground.names("project"), ["a"]);
}

#[test]
fn wrong_match_counts_are_reported_and_nothing_is_written() {
    let ground = Ground::new();
    ground.put_known("a", "x x x y");
    let message = |edits| {
        let error = ground.edit("a", edits).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidInput);
        assert_eq!(ground.content("project/a"), "x x x y");
        error.message
    };
    assert!(
        message(vec![only("y", "z"), only("none", "")])
            .contains("edit 2: the text is not found in a")
    );
    assert!(message(vec![only("x", "z")]).contains("occurs 3 times"));
    assert!(message(vec![edit("none", "", Occurrence::All)]).contains("not found"));
    assert!(
        message(vec![edit("x", "z", Occurrence::Exactly(2))])
            .contains("occurs 3 times in a, not 2")
    );
    assert!(message(vec![edit("none", "z", Occurrence::Exactly(2))]).contains("not found"));
    assert!(message(vec![edit("", "z", Occurrence::All)]).contains("edits.old"));
    assert_eq!(
        ground
            .edit("a", vec![edit("x", "z", Occurrence::Exactly(3))])
            .unwrap()
            .replaced,
        [3]
    );
}

#[test]
fn places_do_not_overlap() {
    assert_eq!(
        Ground::new().edited("aaaaa", vec![edit("aa", "b", Occurrence::All)]),
        "bba"
    );
}

#[test]
fn line_ends_stay_as_they_are() {
    let ground = Ground::new();
    let multi = || vec![only("a\nb", "x\ny\nz")];
    assert_eq!(ground.edited("a\nb\n", multi()), "x\ny\nz\n");
    assert_eq!(ground.edited("a\r\nb\r\n", multi()), "x\r\ny\r\nz\r\n");
    assert_eq!(
        ground.edited("0\na\r\nb\r\n", multi()),
        "0\nx\r\ny\r\nz\r\n",
        "mixed, the text in CRLF"
    );
    assert_eq!(
        ground.edited("0\r\na\nb\r\n", multi()),
        "0\r\nx\ny\nz\r\n",
        "mixed, the text in LF"
    );
    assert_eq!(
        ground.edited("a\r\nb\r\n", vec![only("a", "x\ny")]),
        "x\r\ny\r\nb\r\n"
    );
    assert_eq!(
        ground.edited("a\r\nb", vec![edit("\r\n", "\n", Occurrence::All)]),
        "a\nb"
    );
    assert_eq!(
        ground.edited("a\nb", vec![edit("\n", "\r\n", Occurrence::All)]),
        "a\r\nb"
    );
    assert_eq!(
        ground.edited("a\r\nb\r\n", vec![only("\nb", "\nx\nb")]),
        "a\r\nx\r\nb\r\n"
    );
}

#[test]
fn the_end_of_the_file_stays_as_it_is() {
    let ground = Ground::new();
    assert_eq!(ground.edited("a\nb", vec![only("a", "x")]), "x\nb");
    assert_eq!(ground.edited("a\nb\n\n", vec![only("a", "x")]), "x\nb\n\n");
    assert_eq!(ground.edited("a", vec![only("a", "")]), "");
}

#[test]
fn bytes_that_are_not_text_stay_as_they_are() {
    let ground = Ground::new();
    ground.put_known("a", b"\xff\0old\xfe");
    ground.edit("a", vec![only("old", "n\u{e9}w")]).unwrap();
    assert_eq!(
        fs::read(ground.path("project/a")).unwrap(),
        b"\xff\0n\xc3\xa9w\xfe"
    );
}

#[test]
fn size_is_bounded_before_and_after() {
    let ground = Ground::new();
    ground.put_known("a", vec![b'x'; EDITED]);
    ground.put_known("b", vec![b'x'; EDITED + 1]);
    ground.put_known("c", vec![b'x'; 5000]);
    assert_eq!(
        kind(ground.edit("a", vec![only("y", "")])),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        kind(ground.edit("b", vec![only("y", "")])),
        ErrorKind::ResourceLimit
    );
    let grow = edit("x", &"y".repeat(1000), Occurrence::All);
    assert_eq!(kind(ground.edit("c", vec![grow])), ErrorKind::ResourceLimit);
    fs::File::create(ground.path("project/sparse"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    assert_eq!(
        kind(ground.edit("sparse", vec![only("y", "")])),
        ErrorKind::ResourceLimit
    );
}

#[test]
fn a_digest_guards_what_was_read() {
    let ground = Ground::new();
    ground.put("project/a", "old");
    let with = |content: &[u8]| FileEdit {
        path: zoned("a"),
        edits: vec![only("old", "new")],
        expected_sha256: Some(digest(content)),
    };
    assert_eq!(
        kind(ground.edit_with(with(b"other"))),
        ErrorKind::InvalidInput
    );
    assert!(ground.edit_with(with(b"old")).is_ok());
}

#[test]
fn file_that_may_not_be_written_may_not_be_edited() {
    let ground = Ground::new();
    ground.put("project/locked", "old");
    let path = ground.put_known("fixed", "old");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    fifo(&ground.path("project/fifo"));
    let try_one = |path: &str| kind(ground.edit(path, vec![only("old", "new")]));
    assert_eq!(try_one("locked"), ErrorKind::DeniedPolicy);
    assert_eq!(try_one("fixed"), ErrorKind::Io);
    assert_eq!(try_one("fifo"), ErrorKind::InvalidInput);
    assert_eq!(try_one("none"), ErrorKind::NotFound);
}

#[test]
fn a_line_chooses_among_several_places_but_not_between_two_equally_close() {
    let near = |line| vec![edit("x", "z", Occurrence::Near(line))];
    let ground = Ground::new();
    assert_eq!(ground.edited("x\n.\n.\nx\n", near(3)), "x\n.\n.\nz\n");
    assert_eq!(ground.edited("x\n.\n.\nx\n", near(2)), "z\n.\n.\nx\n");
    assert_eq!(ground.edited("x\n", near(90)), "z\n");
    let lines = vec![edit("x\ny", "z", Occurrence::Near(4))];
    assert_eq!(ground.edited("x\r\ny\r\nx\r\ny", lines), "x\r\ny\r\nz");
    ground.put_known("a", "x\n.\nx\n");
    let ambiguous = ground.edit("a", near(2)).unwrap_err();
    assert!(
        ambiguous.message.contains("occurs 2 times"),
        "{ambiguous:?}"
    );
    assert_eq!(ground.content("project/a"), "x\n.\nx\n");
}
