//! What links can and cannot do.

use super::*;

#[test]
fn a_link_inside_its_zone_is_followed() {
    let ground = Ground::new();
    ground.put("project/real/a", "inside");
    ground.link("real/a", "project/file");
    ground.link("real", "project/directory");
    ground.link("../directory/a", "project/deep/up");
    for path in ["file", "directory/a", "deep/up"] {
        assert_eq!(ground.read(path).unwrap().content, b"inside", "{path}");
    }
}

#[test]
fn an_absolute_link_into_a_zone_is_followed() {
    let ground = Ground::new();
    ground.put("project/real/a", "project");
    ground.put("central/b", "central");
    ground.link(ground.path("project/real/a"), "project/own");
    ground.link(ground.path("central/b"), "project/other");
    ground.link("../../central", "project/deep/relative");
    assert_eq!(ground.read("own").unwrap().content, b"project");
    assert_eq!(ground.read("other").unwrap().content, b"central");
    assert_eq!(ground.read("deep/relative/b").unwrap().content, b"central");
}

/// Attacks: RDR-001-symlink-file, RDR-002-symlink-dir, RDR-004-prefix-sibling, RDR-009-dev-zero.
#[test]
fn a_link_out_of_the_zones_is_a_violation() {
    let ground = Ground::new();
    ground.put("project-private/canary", "SIBLING");
    ground.link(ground.path("outside/canary"), "project/file");
    ground.link(ground.path("outside"), "project/directory");
    ground.link("../outside/canary", "project/up");
    ground.link(ground.path("project-private/canary"), "project/sibling");
    ground.link("directory/canary", "project/twice");
    ground.link("/dev/zero", "project/zero");
    ground.link("/proc/self/environ", "project/proc");
    ground.link("/proc/self/fd", "project/fd");
    for path in [
        "file",
        "directory/canary",
        "up",
        "sibling",
        "twice",
        "zero",
        "proc",
        "fd/3",
    ] {
        assert_eq!(kind(ground.read(path)), ErrorKind::Violation, "{path}");
        assert_eq!(
            kind(ground.write(path, "x")),
            ErrorKind::Violation,
            "{path}"
        );
    }
    assert_eq!(ground.content("outside/canary"), "OUTSIDE\n");
}

#[test]
fn links_without_end_are_an_error() {
    let ground = Ground::new();
    ground.link("b", "project/a");
    ground.link("a", "project/b");
    ground.link("self/self", "project/self");
    for path in ["a", "self", "self/x"] {
        assert_eq!(kind(ground.read(path)), ErrorKind::Io, "{path}");
        assert_eq!(kind(ground.write(path, "x")), ErrorKind::Io, "{path}");
    }
    for number in 0..40 {
        ground.link(
            format!("chain{}", number + 1),
            &format!("project/chain{number}"),
        );
    }
    ground.put("project/chain40", "end");
    assert_eq!(ground.read("chain0").unwrap().content, b"end");
    ground.link("chain0", "project/chain");
    assert_eq!(kind(ground.read("chain")), ErrorKind::Io);
}

#[test]
fn a_link_to_nothing_is_not_found_and_can_be_written() {
    let ground = Ground::new();
    ground.link("new/file", "project/link");
    assert_eq!(kind(ground.read("link")), ErrorKind::NotFound);
    assert!(ground.write("link", "made").unwrap().created);
    assert_eq!(ground.content("project/new/file"), "made");
    assert!(ground.path("project/link").is_symlink());
}

/// Attack: SEC-002-dotenv-symlink-alias.
#[test]
fn a_closed_name_is_closed_by_whatever_link() {
    let ground = Ground::new();
    ground.put("project/.env", "SECRET");
    ground.put("project/.git/hooks/pre-commit", "echo");
    ground.link(".env", "project/notes");
    ground.link(ground.path("project/.env"), "central/notes");
    ground.link(".git/hooks", "project/scripts");
    for path in ["notes", "central:notes"] {
        assert_eq!(kind(ground.read(path)), ErrorKind::DeniedPolicy, "{path}");
    }
    assert_eq!(kind(ground.read(".env")), ErrorKind::DeniedPolicy);
    assert_eq!(kind(ground.read(".ENV")), ErrorKind::DeniedPolicy);
    assert_eq!(ground.read("scripts/pre-commit").unwrap().content, b"echo");
    assert_eq!(
        kind(ground.write("scripts/pre-commit", "evil")),
        ErrorKind::DeniedPolicy
    );
    assert_eq!(
        kind(ground.write("scripts/new", "evil")),
        ErrorKind::DeniedPolicy
    );
    assert_eq!(
        kind(ground.write("locked", "evil")),
        ErrorKind::DeniedPolicy
    );
    assert_eq!(ground.content("project/.git/hooks/pre-commit"), "echo");
    let message = ground.read("notes").unwrap_err().message;
    assert_eq!(
        message,
        "notes leads by a link to project:.env, which must not be read: it holds secrets"
    );
}

/// Exchanges two names for as long as `work` runs. It runs until it says so, and a hundred seconds at most.
fn swapping(one: &Path, other: &Path, mut work: impl FnMut() -> bool) {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE).unwrap();
            }
        });
        let _stop = Stop(&done);
        let end = Instant::now() + Duration::from_secs(100);
        while work() && Instant::now() < end {}
    });
}

/// Attack: RDR-010-toctou-swap. The control: opening by the path alone does give it away.
#[test]
fn a_file_that_becomes_a_link_while_it_is_read_gives_nothing_away() {
    let ground = Ground::new();
    let (file, link) = (
        ground.put("project/file", "harmless\n"),
        ground.path("project/link"),
    );
    symlink(ground.path("outside/canary"), &link).unwrap();
    let (mut fooled, mut reads) = (0, 0);
    swapping(&file, &link, || {
        fooled += usize::from(fs::read(&file).is_ok_and(|content| content == b"OUTSIDE\n"));
        match ground.read("file") {
            Ok(answer) => assert_eq!(answer.content, b"harmless\n"),
            Err(error) => assert!(
                matches!(error.kind, ErrorKind::Violation | ErrorKind::Io),
                "{error:?}"
            ),
        }
        reads += 1;
        fooled == 0 || reads < 2000
    });
    assert!(fooled > 0, "the attack did not work on the control");
}

/// Attack: RACE-001-symlink-dir-swap. The control: writing by the path alone does reach the outside.
#[test]
fn a_directory_that_becomes_a_link_while_it_is_used_leads_nowhere() {
    let ground = Ground::new();
    let (directory, link) = (
        ground.path("project/directory"),
        ground.path("project/link"),
    );
    fs::create_dir(&directory).unwrap();
    symlink(ground.path("outside"), &link).unwrap();
    let (mut fooled, mut turns) = (0, 0);
    swapping(&directory, &link, || {
        let _ = fs::write(directory.join("control"), "");
        fooled += usize::from(fs::remove_file(ground.path("outside/control")).is_ok());
        let _ = ground.write(&format!("directory/new{}/file", turns % 3), "written");
        let _ = ground.write("directory/canary", "written");
        assert_eq!(searching::found(&ground, "OUTSIDE"), [""; 0]);
        turns += 1;
        fooled == 0 || turns < 300
    });
    let _ = fs::remove_file(ground.path("outside/control"));
    assert!(fooled > 0, "the attack did not work on the control");
    assert_eq!(ground.names("outside"), ["canary"]);
    assert_eq!(ground.content("outside/canary"), "OUTSIDE\n");
}

#[test]
fn one_root_may_lie_inside_the_other() {
    let keep = tempfile::tempdir().unwrap();
    let home = keep.path().canonicalize().unwrap();
    let central = home.join("project/.central");
    fs::create_dir_all(&central).unwrap();
    fs::write(central.join("note"), "note").unwrap();
    symlink(central.join("note"), home.join("project/link")).unwrap();
    let open = |path: &Path, access| OpenRoot::open(path.to_str().unwrap(), access).unwrap();
    let project = open(&home.join("project"), Access::Write);
    let roots = OpenRoots {
        project,
        central: open(&central, Access::Read),
        granted: open(Path::new("/"), Access::Read),
    };
    let names = Names {
        central,
        ..names(&home)
    };
    let ground = Ground {
        worker: Worker::new(roots, names, undo_directory(&home), UNDO),
        home,
        _keep: keep,
    };
    assert_eq!(ground.read("link").unwrap().content, b"note");
    assert_eq!(kind(ground.write("link", "x")), ErrorKind::DeniedPolicy);
}

#[test]
fn a_read_only_root_takes_no_write() {
    let ground = Ground::with(Access::Read);
    ground.put("project/a", "old");
    ground.link(ground.path("project/a"), "central/link");
    for path in ["a", "new", "central:link"] {
        assert_eq!(
            kind(ground.write(path, "x")),
            ErrorKind::DeniedPolicy,
            "{path}"
        );
    }
    assert_eq!(ground.content("project/a"), "old");
    assert!(ground.write("central:own", "x").is_ok());
}

/// A link leads to another name, on which the broker decides first.
#[test]
fn nothing_is_done_where_a_link_leads_before_it_was_permitted() {
    let ground = Ground::new();
    let answer = |permitted: &[&str], request: &Request| {
        let permitted = permitted.iter().map(|path| zoned(path)).collect();
        ground
            .worker
            .answer(context(permitted), request, None)
            .map_err(|real| real.to_string())
    };
    ground.put("project/real/a", "safe");
    ground.link("real/a", "project/file");
    ground.link("real", "project/directory");
    let read = |path| {
        Request::FileRead(FileRead {
            path: zoned(path),
            offset: None,
            limit: None,
        })
    };
    let write = |path| {
        let (path, content) = (zoned(path), b"evil".to_vec());
        Request::FileWrite(FileWrite {
            path,
            content,
            overwrite: true,
            expected_sha256: None,
        })
    };
    assert!(
        answer(&[], &read("real/a")).unwrap().is_ok(),
        "a name without links needs no permission"
    );
    for request in [
        read("file"),
        write("file"),
        read("directory/a"),
        write("directory/a"),
    ] {
        assert_eq!(answer(&[], &request), Err("real/a".into()));
        assert_eq!(
            answer(&["real", "real/b", "central:real/a"], &request),
            Err("real/a".into())
        );
    }
    assert_eq!(answer(&[], &write("directory/new")), Err("real/new".into()));
    assert_eq!(
        (
            ground.content("project/real/a"),
            ground.names("project/real").len()
        ),
        ("safe".into(), 1)
    );
    assert!(
        answer(&["real/b", "real/a"], &write("directory/a"))
            .unwrap()
            .is_ok()
    );
    assert_eq!(ground.content("project/real/a"), "evil");
}
