//! `file_write`.

use super::*;
use crate::bounds::KEPT;
use crate::content::digest;
use broker_protocol::Hunk;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))
        .unwrap();
    u32::from_str_radix(line.trim(), 8).unwrap()
}

#[test]
fn a_new_file_comes_with_its_parents() {
    let ground = Ground::new();
    let written = ground.write("a/b/c/new", "text").unwrap();
    assert_eq!((written.bytes, written.created), (4, true));
    assert_eq!(
        written.sha256,
        ground.read("a/b/c/new").unwrap().sha256.unwrap()
    );
    assert_eq!(mode(&ground.path("project/a/b/c/new")), 0o666 & !umask());
    assert_eq!(mode(&ground.path("project/a/b")), 0o777 & !umask());
    assert!(ground.write("empty", "").unwrap().created);
    assert_eq!(ground.names("project"), ["a", "empty"]);
    assert_eq!(ground.names("project/a/b/c"), ["new"]);
}

#[test]
fn replaced_file_keeps_its_mode_and_leaves_no_temporary() {
    let ground = Ground::new();
    let path = ground.put_known("a", "old");
    for bits in [0o600, 0o755, 0o4711, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
        assert!(!ground.write("a", "new").unwrap().created);
        assert_eq!(mode(&path), bits & 0o777);
    }
    assert_eq!(ground.names("project"), ["a"]);
}

#[test]
fn a_link_is_written_through_and_stays_a_link() {
    let ground = Ground::new();
    ground.put("central/real", "old");
    ground.link(ground.path("central/real"), "project/link");
    ground.read("link").unwrap();
    assert!(!ground.write("link", "new").unwrap().created);
    assert!(ground.path("project/link").is_symlink());
    assert_eq!(ground.content("central/real"), "new");
}

/// Attack: FS-009-hardlink-then-write.
#[test]
fn a_second_name_of_a_file_is_not_written_through() {
    let ground = Ground::new();
    fs::hard_link(ground.path("outside/canary"), ground.path("project/alias")).unwrap();
    ground.read("alias").unwrap();
    ground.write("alias", "new").unwrap();
    assert_eq!(ground.content("outside/canary"), "OUTSIDE\n");
}

#[test]
fn existing_file_is_kept_without_overwrite() {
    let ground = Ground::new();
    ground.put("project/a", "old");
    let write = |path: &str| FileWrite {
        path: zoned(path),
        content: b"new".to_vec(),
        overwrite: false,
        expected_sha256: None,
    };
    assert_eq!(kind(ground.write_with(write("a"))), ErrorKind::InvalidInput);
    assert_eq!(ground.content("project/a"), "old");
    assert!(ground.write_with(write("b")).unwrap().created);
}

#[test]
fn a_digest_guards_what_was_read() {
    let ground = Ground::new();
    ground.put("project/a", "old");
    let write = |path: &str, digest| FileWrite {
        path: zoned(path),
        content: b"new".to_vec(),
        overwrite: true,
        expected_sha256: Some(digest),
    };
    assert_eq!(
        kind(ground.write_with(write("a", digest(b"other")))),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        kind(ground.write_with(write("dir/none", digest(b"")))),
        ErrorKind::InvalidInput
    );
    assert_eq!(ground.names("project"), ["a"]);
    assert!(ground.write_with(write("a", digest(b"old"))).is_ok());
    assert_eq!(ground.content("project/a"), "new");
    fs::File::create(ground.path("project/sparse"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    assert_eq!(
        kind(ground.write_with(write("sparse", digest(b"")))),
        ErrorKind::ResourceLimit
    );
}

#[test]
fn unwritable_file_is_not_replaced() {
    let ground = Ground::new();
    let path = ground.put_known("a", "old");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(kind(ground.write("a", "new")), ErrorKind::Io);
    assert_eq!(ground.content("project/a"), "old");
    assert_eq!(ground.names("project"), ["a"]);
}

#[test]
fn a_file_is_not_a_directory() {
    let ground = Ground::new();
    ground.put("project/a", "old");
    let error = ground.write("a/b", "x").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
    assert_eq!(
        error.message,
        "cannot write a/b: Not a directory (os error 20)"
    );
    assert_eq!(ground.content("project/a"), "old");
}

#[test]
fn readers_see_the_old_file_or_the_new_one() {
    let ground = Ground::new();
    let texts = ["a".repeat(300_000), "b".repeat(200_000)];
    let path = ground.put_known("a", &texts[0]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) || reads == 0 {
                let text = fs::read_to_string(&path).unwrap();
                assert!(texts.contains(&text), "{} bytes", text.len());
                reads += 1;
            }
        });
        let stop = Stop(&done);
        for turn in 0..200 {
            ground.write("a", &texts[turn % 2]).unwrap();
        }
        drop(stop);
        reader.join().unwrap();
    });
}

#[test]
fn a_file_that_comes_and_goes_meanwhile_is_made_or_left_alone() {
    let ground = Ground::new();
    let path = ground.path("project/a");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::write(&path, "theirs").unwrap();
                let _ = fs::remove_file(&path);
            }
        });
        let _stop = Stop(&done);
        let failed: Vec<Failed> = (0..300)
            .filter_map(|_| ground.write("a", "ours").err())
            .collect();
        // It is written where there is none, and left alone where it is theirs.
        assert!(
            failed
                .iter()
                .all(|error| error.kind == ErrorKind::InvalidInput),
            "{failed:?}"
        );
    });
    assert!(ground.names("project").len() <= 1);
}

#[test]
fn write_without_unnamed_temporaries_has_the_same_result() {
    use crate::temporary::{Durability, TemporaryFile};
    let ground = Ground::new();
    let directory = fs::File::open(ground.path("project")).unwrap().into();
    let named =
        |content| TemporaryFile::with_name(&directory, content, None, Durability::OnDisk).unwrap();
    let file = named(b"new");
    assert_eq!(ground.names("project").len(), 1);
    file.create("a".as_ref()).unwrap();
    assert_eq!(
        named(b"other").create("a".as_ref()),
        Err(nix::errno::Errno::EEXIST)
    );
    assert_eq!(ground.content("project/a"), "new");
    named(b"other").replace("a".as_ref()).unwrap();
    assert_eq!(ground.content("project/a"), "other");
    drop(named(b"dropped"));
    assert_eq!(ground.names("project"), ["a"]);
    assert_eq!(fs::metadata(ground.path("project/a")).unwrap().nlink(), 1);
}

#[test]
fn a_file_that_changes_between_look_and_rename_is_not_lost() {
    use crate::root::Location;
    use crate::write::CurrentFile;
    let ground = Ground::new();
    ground.put("project/a", "old");
    let (path, place) = (zoned("a"), Location::from(&zoned("a")));
    let before = CurrentFile::of(
        ground.call().stat(&place).unwrap().unwrap(),
        b"old".to_vec(),
    );
    ground.put("project/a", "theirs");
    let error = ground
        .call()
        .put(&path, &place, b"ours", Some(&before), None)
        .unwrap_err();
    assert_eq!(Failed::from(error).kind, ErrorKind::InvalidInput);
    assert_eq!(ground.content("project/a"), "theirs");
    assert_eq!(ground.names("project"), ["a"]);
}

#[test]
fn hunks_of_a_write_are_reported_if_the_old_content_is_known() {
    let ground = Ground::new();
    assert_eq!(ground.write("new", "a\n").unwrap().hunks, Some(vec![]));
    assert_eq!(ground.write("new", "a\n").unwrap().hunks, Some(vec![]));
    ground.put_known("a", "1\n2\n3\n4\n5");
    let (old, new) = ("2\n3\n4\n5".into(), "2\n3\n4\nfive\n".into());
    let hunk = Hunk {
        old_start: 2,
        new_start: 2,
        old,
        new,
    };
    assert_eq!(
        ground.write("a", "1\n2\n3\n4\nfive\n").unwrap().hunks,
        Some(vec![hunk])
    );
    // More than may be told, and more than is held.
    assert_eq!(
        ground.write("a", &"x".repeat(limit::HUNKS)).unwrap().hunks,
        None
    );
    ground.put_known("held", vec![b'x'; KEPT]);
    assert_eq!(ground.write("held", "x").unwrap().hunks, None);
    let large = vec![b'x'; KEPT + 1];
    ground.put("project/large", &large);
    let (path, content, expected_sha256) = (zoned("large"), b"x".to_vec(), Some(digest(&large)));
    let written = ground
        .write_with(FileWrite {
            path,
            content,
            overwrite: true,
            expected_sha256,
        })
        .unwrap();
    assert_eq!(written.hunks, None);
}

/// The host makes them while the session is open, so nothing that was found then says so.
#[test]
fn settings_of_a_repository_that_was_made_meanwhile_are_closed() {
    let ground = Ground::new();
    for part in [
        "store/HEAD",
        "store/objects/x",
        "store/refs/x",
        "plain/HEAD",
    ] {
        ground.put(&format!("project/{part}"), "ref: refs/heads/main\n");
    }
    assert_eq!(
        kind(ground.write("store/hooks/pre-commit", "echo")),
        ErrorKind::DeniedPolicy
    );
    assert!(!ground.path("project/store/hooks").exists());
    ground.write("plain/hooks/pre-commit", "echo").unwrap();
    ground.write("store/refs/y", "x").unwrap();
}

#[test]
fn a_repository_that_somebody_has_begun_is_not_completed() {
    let ground = Ground::new();
    ground.put("project/.git/HEAD", "ref: refs/heads/main\n");
    ground.put("project/.git/objects/x", "x");
    assert_eq!(
        kind(ground.write(".git/refs/heads/main", "x")),
        ErrorKind::DeniedPolicy
    );
    assert!(!ground.path("project/.git/refs").exists());
    ground.put("project/.git/refs/heads/other", "x");
    ground.write(".git/refs/heads/main", "x").unwrap();
}
