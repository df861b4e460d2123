//! Paths that are granted beside the roots are read, and nothing else there; nothing is written.

use super::*;
use crate::tests::searching::grep;
use broker_protocol::{FileList, Glob, Grep};

/// The absolute path of `name` in a ground.
fn outside(ground: &Ground, name: &str) -> ZonePath {
    let path = ground.path(name).to_str().unwrap().to_owned();
    ZonePath::new(Zone::Granted, path.trim_start_matches('/')).unwrap()
}

fn read(path: ZonePath) -> Request {
    Request::FileRead(FileRead {
        path,
        offset: None,
        limit: None,
    })
}

fn text(reply: Result<FileReply, Failed>) -> String {
    match reply.unwrap() {
        FileReply::Read(read) => String::from_utf8(read.content).unwrap(),
        FileReply::Listed(listed) => listed
            .entries
            .into_iter()
            .map(|entry| entry.path)
            .collect::<Vec<_>>()
            .join(" "),
        FileReply::Walked(walked) => walked.paths.join(" "),
        FileReply::Grepped(found) => found
            .matches
            .into_iter()
            .map(|one| one.path)
            .collect::<Vec<_>>()
            .join(" "),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_granted_tree_is_read_listed_and_searched() {
    let ground = Ground::new();
    ground.put("tools/include/a.h", "int a;\n");
    ground.link("include", "tools/now");
    ground.link(ground.path("tools/now/a.h"), "project/a.h");
    let (tools, header) = (
        outside(&ground, "tools"),
        outside(&ground, "tools/include/a.h"),
    );
    for path in [
        header.clone(),
        outside(&ground, "tools/now/a.h"),
        zoned("a.h"),
    ] {
        assert_eq!(text(ground.answer(read(path))), "int a;\n");
    }
    let list = FileList {
        path: tools.clone(),
        depth: 2,
        hidden: true,
        limit: 10,
    };
    assert_eq!(
        text(ground.answer(Request::FileList(list))),
        "include include/a.h now"
    );
    let (path, pattern) = (tools, "**/*.h".into());
    let glob = Glob {
        pattern,
        path: path.clone(),
        hidden: false,
        ignored: true,
        limit: 10,
    };
    assert_eq!(text(ground.answer(Request::Glob(glob))), header.relative());
    assert_eq!(
        text(ground.answer(Request::Grep(Grep {
            path,
            ..grep("int")
        }))),
        header.relative()
    );
}

#[test]
fn paths_outside_a_grant_stay_closed_by_every_way_to_them() {
    let ground = Ground::new();
    ground.put("tools/.env", "SECRET\n");
    ground.put("tools/x/a", "inside\n");
    ground.put("project/.env", "SECRET\n");
    ground.link(ground.path("outside/canary"), "tools/out");
    ground.link("../tools/out", "project/out");
    ground.link(ground.path("outside"), "tools/directory");
    let closed = |path: ZonePath| ground.answer(read(path)).unwrap_err();
    // The worker reads it where the policy has it: the path is at fault, not the file.
    assert!(fs::read(ground.path("tools/out")).is_ok());
    for path in ["tools/out", "tools/directory/canary"] {
        assert_eq!(
            closed(outside(&ground, path)).kind,
            ErrorKind::Violation,
            "{path}"
        );
    }
    assert_eq!(closed(zoned("out")).kind, ErrorKind::Violation);
    for path in ["outside/canary", "tools/.env", "project/.env", "toolsx"] {
        assert_eq!(
            closed(outside(&ground, path)).kind,
            ErrorKind::DeniedPolicy,
            "{path}"
        );
    }
    let found = Request::Grep(Grep {
        path: outside(&ground, "tools"),
        ignored: true,
        ..grep("SECRET|OUTSIDE")
    });
    assert_eq!(text(ground.answer(found)), "");
}

#[test]
fn a_grant_around_the_roots_is_no_second_way_to_them() {
    let ground = Ground::new();
    let names = Names {
        granted: vec![ground.home.clone()],
        ..names(&ground.home)
    };
    let worker = Worker::new(
        roots(&ground.home, Access::Write, Access::Write),
        names,
        undo_directory(&ground.home),
        UNDO,
    );
    let ground = Ground { worker, ..ground };
    ground.put("project/a", "inside\n");
    ground.put("tools/a", "inside\n");
    assert_eq!(
        kind(ground.answer(read(outside(&ground, "project/a")))),
        ErrorKind::DeniedPolicy
    );
    let found = Request::Grep(Grep {
        path: outside(&ground, ""),
        ignored: true,
        ..grep("inside")
    });
    assert_eq!(
        text(ground.answer(found)),
        outside(&ground, "tools/a").relative()
    );
}

#[test]
fn nothing_is_written_beside_the_roots() {
    let ground = Ground::new();
    ground.put("tools/a", "old");
    ground.link(ground.path("tools/a"), "project/link");
    for path in [
        outside(&ground, "tools/a"),
        outside(&ground, "tools/new"),
        zoned("link"),
    ] {
        let write = FileWrite {
            path,
            content: b"new".to_vec(),
            overwrite: true,
            expected_sha256: None,
        };
        assert_eq!(kind(ground.write_with(write)), ErrorKind::Violation);
    }
    assert_eq!(
        (ground.content("tools/a"), ground.names("tools").len()),
        ("old".into(), 1)
    );
}
