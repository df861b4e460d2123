//! `file_read`.

use super::*;
use crate::bounds::COUNTED;
use broker_protocol::Truncated;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;

#[test]
fn a_small_file_is_read_whole() {
    let ground = Ground::new();
    let content = b"one\r\ntwo\0\xff\nthree";
    ground.put("project/a", content);
    let read = ground.read("a").unwrap();
    assert_eq!(read.content, content);
    assert_eq!(
        (read.first_line, read.lines, read.size),
        (1, 3, read.content.len() as u64)
    );
    assert_eq!(read.truncated, None);
    let digest = read.sha256.unwrap();
    ground.put("project/hello", "hello\n");
    let known = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
    assert_eq!(
        ground.read("hello").unwrap().sha256.unwrap().to_string(),
        known
    );
    assert_ne!(digest.to_string(), known);
}

#[test]
fn an_empty_file_has_no_lines() {
    let ground = Ground::new();
    ground.put("project/empty", "");
    for (offset, limit) in [(None, None), (Some(1), None), (None, Some(5))] {
        let read = ground.read_lines("empty", offset, limit).unwrap();
        assert_eq!((read.lines, read.size, read.truncated), (0, 0, None));
        assert!(read.sha256.is_some());
    }
}

#[test]
fn lines_are_counted_from_one_and_keep_their_ends() {
    let ground = Ground::new();
    ground.put("project/a", "1\n2\r\n\n4");
    let lines = |offset, limit| {
        let read = ground.read_lines("a", offset, limit).unwrap();
        assert_eq!(read.truncated, None);
        assert_eq!(read.first_line, offset.unwrap_or(1));
        (
            String::from_utf8(read.content).unwrap(),
            read.lines,
            read.sha256.is_some(),
        )
    };
    assert_eq!(lines(None, Some(2)), ("1\n2\r\n".into(), 2, false));
    assert_eq!(lines(Some(2), Some(1)), ("2\r\n".into(), 1, false));
    assert_eq!(lines(Some(3), None), ("\n4".into(), 2, false));
    assert_eq!(lines(Some(4), Some(100)), ("4".into(), 1, false));
    assert_eq!(lines(Some(1), Some(100)), ("1\n2\r\n\n4".into(), 4, true));
}

#[test]
fn a_line_past_the_end_is_an_error_that_says_how_many_there_are() {
    let ground = Ground::new();
    ground.put("project/a", "1\n2\n3");
    ground.put("project/b", "1\n2\n3\n");
    ground.put("project/empty", "");
    for (path, lines) in [("a", 3), ("b", 3), ("empty", 0)] {
        let error = ground.read_lines(path, Some(4), None).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidInput);
        assert_eq!(
            error.message,
            format!("line 4 is past the end of {path}, which has {lines} lines")
        );
    }
}

#[test]
fn the_limit_holds_at_its_edge() {
    let ground = Ground::new();
    for size in [
        limit::READ - 1,
        limit::READ,
        limit::READ + 1,
        3 * limit::READ,
    ] {
        ground.put("project/a", vec![b'x'; size]);
        for (offset, limit) in [(None, None), (Some(1), Some(9))] {
            let read = ground.read_lines("a", offset, limit).unwrap();
            let cut = size > limit::READ;
            let whole = Truncated {
                total: Some(size as u64),
                shown: limit::READ as u64,
            };
            assert_eq!(read.content.len(), size.min(limit::READ));
            assert_eq!(read.truncated, cut.then_some(whole));
            assert_eq!(read.sha256.is_some(), !cut);
            assert_eq!(read.size, size as u64);
        }
    }
}

#[test]
fn all_lines_of_the_file_are_counted_as_far_as_that_is_cheap() {
    let ground = Ground::new();
    let total = |offset, limit| ground.read_lines("a", offset, limit).unwrap().total_lines;
    for (content, lines) in [
        ("", 0),
        ("1", 1),
        ("1\n", 1),
        ("1\n2\r\n\n4", 4),
        ("1\n2\r\n\n4\n", 4),
    ] {
        ground.put("project/a", content);
        let parts = [
            (None, None),
            (None, Some(1)),
            (Some(1), Some(3)),
            (Some(1), Some(9)),
        ];
        assert!(
            parts
                .iter()
                .all(|(offset, limit)| total(*offset, *limit) == Some(lines)),
            "{content:?}"
        );
        assert!(lines < 4 || total(Some(3), Some(1)) == Some(4) && total(Some(4), None) == Some(4));
    }
    // A read that is cut within a line counts that line once.
    ground.put("project/a", format!("{}\nlast", "x".repeat(limit::READ)));
    assert_eq!(
        (total(None, None), total(Some(1), Some(9))),
        (Some(2), Some(2))
    );
    let counted = COUNTED as usize + limit::READ;
    for (size, lines) in [(counted - 1, Some(1)), (counted, None)] {
        ground.put("project/a", vec![b'x'; size]);
        assert_eq!(total(None, None), lines, "{size}");
    }
}

#[test]
fn lines_across_the_limit_are_cut_and_say_so() {
    let ground = Ground::new();
    ground.put(
        "project/a",
        format!("first\n{}\nlast\n", "x".repeat(limit::READ)),
    );
    let read = ground.read_lines("a", Some(2), Some(2)).unwrap();
    assert_eq!(read.content.len(), limit::READ);
    assert_eq!(read.truncated.unwrap().shown, limit::READ as u64);
    assert_eq!(
        ground.read_lines("a", Some(3), None).unwrap().content,
        b"last\n"
    );
}

/// Attack: RDR-007-fifo-hang.
#[test]
fn only_regular_files_are_read() {
    let ground = Ground::new();
    fifo(&ground.path("project/fifo"));
    let _socket = UnixListener::bind(ground.path("project/socket")).unwrap();
    fs::create_dir(ground.path("project/directory")).unwrap();
    ground.link("fifo", "project/link");
    for (path, is) in [
        ("fifo", "a FIFO"),
        ("link", "a FIFO"),
        ("directory", "a directory"),
        ("socket", "a socket"),
    ] {
        let error = ground.read(path).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidInput, "{path}");
        assert!(error.message.contains(is), "{}", error.message);
        assert_eq!(
            kind(ground.write(path, "x")),
            ErrorKind::InvalidInput,
            "{path}"
        );
    }
    assert_eq!(kind(ground.read("")), ErrorKind::InvalidInput);
    assert_eq!(kind(ground.write("", "x")), ErrorKind::InvalidInput);
}

#[test]
fn a_file_of_a_terabyte_costs_no_more_than_its_limits() {
    let ground = Ground::new();
    let file = fs::File::create(ground.path("project/sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    let start = Instant::now();
    assert_eq!(ground.read("sparse").unwrap().content.len(), limit::READ);
    assert_eq!(
        ground
            .read_lines("sparse", None, Some(10))
            .unwrap()
            .content
            .len(),
        limit::READ
    );
    assert_eq!(
        kind(ground.read_lines("sparse", Some(2), None)),
        ErrorKind::ResourceLimit
    );
    assert_eq!(
        kind(ground.read_lines("sparse", Some(u64::MAX), Some(u64::MAX))),
        ErrorKind::ResourceLimit
    );
    // A terabyte takes minutes.
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn missing_file_is_not_found() {
    let ground = Ground::new();
    ground.put("project/a", "x");
    for path in ["none", "none/none", "a/none"] {
        let error = ground.read(path).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound);
        assert_eq!(error.message, format!("file not found: {path}"));
    }
}

#[test]
fn odd_names_are_read() {
    let ground = Ground::new();
    for name in [
        "new\nline",
        " ",
        "-rf",
        "\u{1b}]52;c;QUJD\u{7}",
        "a\\b",
        "ä",
    ] {
        ground.put(&format!("project/{name}"), name);
        assert_eq!(ground.read(name).unwrap().content, name.as_bytes());
    }
    let raw = std::ffi::OsStr::from_bytes(b"raw\xff");
    fs::write(ground.path("project").join(raw), "raw").unwrap();
    symlink(raw, ground.path("project/link")).unwrap();
    assert_eq!(ground.read("link").unwrap().content, b"raw");
}
