//! Files with a name outside both roots, as package stores, backups and `git clone` of a path make them: no change through the name in
//! the project reaches the other one. Each attack runs as its control first, with no cell, and must work there.

use crate::kept_world::KeptWorld;
use lazaret_tests::{LIMIT, Place, Session, World, place_test, run};
use serde_json::json;
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

const PYTHON: &str = r#"import ctypes, mmap, os
x = "dep/x"
def change(fd): os.write(fd, b"evil")
def again(fd, flags): return os.open(f"/proc/self/fd/{fd}", flags)
"#;

/// Another project and a store outside, whose file `x` is `dep/x` here.
fn fixture(place: Place) -> World {
    let world = World::new(place);
    let store = world.outside.join("store/x");
    world.write(&store, "theirs\n");
    world.make_folder(&world.project.join("dep"));
    fs::hard_link(&store, world.project.join("dep/x")).unwrap();
    world.put("own", "own\n");
    world
}

fn stored(world: &World) -> String {
    fs::read_to_string(world.outside.join("store/x")).unwrap()
}

fn python(lines: &str) -> String {
    format!("python3 -c '{PYTHON}{lines}'")
}

/// Each changes the other name without a cell.
#[track_caller]
fn hold(place: Place, scripts: &[String], is_changed: fn(&World) -> bool) {
    let kept = KeptWorld::of(fixture(place));
    for script in scripts {
        kept.contains(script, is_changed);
    }
}

place_test!(no_change_of_content_reaches_the_other_name);
/// In a cell, the name here has the change.
fn no_change_of_content_reaches_the_other_name(place: Place) {
    const SHELL: [&str; 8] = [
        "echo evil >> dep/x",
        "echo evil > dep/x",
        "echo evil >| dep/x",
        "ln -s dep/x s; echo evil >> s",
        "exec 3<> dep/x; echo evil >&3",
        "echo evil | tee -a dep/x",
        "echo evil > new; cp new dep/x",
        "printf evil | dd of=dep/x conv=notrunc status=none",
    ];
    const CALLS: [&str; 14] = [
        "change(os.open(x, os.O_WRONLY))",
        "change(os.open(x, os.O_RDWR))",
        "change(os.open(x, os.O_WRONLY | os.O_APPEND))",
        "change(os.open(x, os.O_WRONLY | os.O_CREAT, 0o600))",
        "os.open(x, os.O_RDONLY | os.O_TRUNC); change(os.open(x, os.O_WRONLY))",
        "os.truncate(x, 2); change(os.open(x, os.O_WRONLY | os.O_APPEND))",
        "os.ftruncate(os.open(x, os.O_RDWR), 0); change(os.open(x, os.O_WRONLY))",
        "mmap.mmap(os.open(x, os.O_RDWR), 4, mmap.MAP_SHARED)[0:4] = bytes([101, 118, 105, 108])",
        "change(again(os.open(x, os.O_RDONLY), os.O_WRONLY))",
        "change(again(os.open(x, os.O_PATH), os.O_RDWR))",
        "change(os.open(f\"/dev/fd/{os.open(x, os.O_RDONLY)}\", os.O_WRONLY))",
        "change(os.open(f\"/proc/{os.getpid()}/fd/{os.open(x, os.O_RDONLY)}\", os.O_WRONLY | os.O_TRUNC))",
        "os.posix_fallocate(os.open(x, os.O_RDWR), 0, 99); change(os.open(x, os.O_WRONLY))",
        "open(\"n\", \"w\").write(\"evil\"); os.copy_file_range(os.open(\"n\", 0), os.open(x, os.O_WRONLY), 4)",
    ];
    let scripts = SHELL
        .map(str::to_owned)
        .into_iter()
        .chain(CALLS.map(python));
    let kept = KeptWorld::of(fixture(place));
    for script in scripts {
        let here = Cell::new(false);
        kept.contains(&script, |world| {
            here.set(String::from_utf8_lossy(&world.get("dep/x")).contains("evil"));
            stored(world) != "theirs\n"
        });
        assert!(here.get(), "{script}: the change is nowhere");
    }
}

place_test!(no_way_around_the_count_of_names);
fn no_way_around_the_count_of_names(place: Place) {
    const SHELL: [&str; 8] = [
        "ln dep/x y; echo evil >> y",
        "ln dep/x y; ln y z; rm y dep/x; echo evil >> z",
        "ln dep/x y; ln dep/x z; rm y; echo evil >> z",
        "ln dep/x y; mv y z; ln z y; echo evil >> y",
        "ln dep/x dep/y; mv dep d; ln d/x d/z; mv d dep; echo evil >> dep/z",
        "mkdir a; ln dep/x a/x; mv a b; mkdir a; ln b/x a/x; ln -s b c; echo evil >> c/x",
        "mv dep/x 'x (deleted)'; echo evil >> 'x (deleted)'",
        "for n in {1..90}; do ln dep/x n$n; done; echo evil >> n9",
    ];
    const CALLS: [&str; 6] = [
        "fd = os.open(x, os.O_RDONLY); os.unlink(x); change(again(fd, os.O_WRONLY))",
        "fd = os.open(x, os.O_PATH); os.link(x, \"y\"); os.unlink(x); os.unlink(\"y\"); change(again(fd, os.O_RDWR))",
        "fd = os.open(x, os.O_RDONLY); os.rename(\"own\", x); change(again(fd, os.O_WRONLY))",
        "fd = os.open(x, os.O_RDONLY); os.unlink(x)
ctypes.CDLL(None).linkat(-100, f\"/proc/self/fd/{fd}\".encode(), -100, b\"y\", 0x400)
change(os.open(\"y\", os.O_WRONLY))",
        "ctypes.CDLL(None).renameat2(-100, x.encode(), -100, b\"own\", 2); change(os.open(\"own\", os.O_WRONLY))",
        "open(\"x (deleted)\", \"w\"); fd = os.open(x, os.O_RDONLY); os.rename(x, \"x\"); os.unlink(\"x\")
change(again(fd, os.O_WRONLY))",
    ];
    let scripts: Vec<_> = SHELL
        .map(str::to_owned)
        .into_iter()
        .chain(CALLS.map(python))
        .collect();
    hold(place, &scripts, |world| stored(world) != "theirs\n");
}

place_test!(no_name_in_a_view_counts);
/// A name that commands made leads through a link to the one outside, which they may read.
fn no_name_in_a_view_counts(place: Place) {
    let script = |store: &str| {
        format!("mkdir h; ln dep/x h/x; rm -r h; ln -s {store} h; echo evil >> dep/x; cat h/x")
    };
    let control = fixture(place);
    let store = control.outside.join("store").display().to_string();
    control.on_host(&script(&store)).success();
    assert_ne!(stored(&control), "theirs\n", "the control");
    let world = fixture(place);
    let store = world.outside.join("store").display().to_string();
    let mut command = world.lazaret("run");
    command.args(["--read", &store, "--", "bash", "-c", &script(&store)]);
    assert_eq!(run(&mut command, LIMIT).success(), "theirs\n");
    assert_eq!(stored(&world), "theirs\n");
}

place_test!(a_race_between_names_and_opens_changes_nothing_outside);
/// Other threads and another cell make, move and remove names between the look and the open.
fn a_race_between_names_and_opens_changes_nothing_outside(place: Place) {
    const RACE: &str = "import os, threading
def names():
    for n in range(400):
        for call in (lambda: os.link(\"keep\", \"a\"), lambda: os.unlink(\"a\"), lambda: os.rename(\"b\", \"a\"), lambda: os.link(\"a\", \"b\")):
            try: call()
            except OSError: pass
def opens():
    for n in range(400):
        for path in (\"a\", \"b\", fd):
            try: os.write(os.open(path, os.O_WRONLY), b\"evil\")
            except OSError: pass
fd = \"/proc/self/fd/\" + str(os.open(\"keep\", 0))
both = [threading.Thread(target=one) for one in (names, opens, opens)]
for one in both: one.start()
for one in both: one.join()";
    let script = format!("cp -l dep/x keep; python3 -c '{RACE}'");
    let control = fixture(place);
    control.on_host(&script).success();
    assert_ne!(stored(&control), "theirs\n", "the control");
    let world = fixture(place);
    let mut session = Session::open(&world);
    let first = session.start_call("bash", json!({"command": format!("{script}; echo done")}));
    let other = session.bash(&format!("{script}; echo done"));
    assert!(other.success().contains("done"));
    assert!(
        session
            .answer_within(&first, LIMIT)
            .success()
            .contains("done")
    );
    assert_eq!(stored(&world), "theirs\n");
}

place_test!(metadata_of_the_other_name_stays, flat_only);
/// Only in the flat tier, whose supervisor makes these calls.
fn metadata_of_the_other_name_stays(place: Place) {
    const CHANGES: [&str; 6] = [
        "chmod 666 dep/x",
        "touch -d 2001-01-01 dep/x",
        "ln -s dep/x s; chmod 600 s",
        "exec 3< dep/x; chmod 666 /proc/self/fd/3",
        "python3 -c 'import os; os.utime(\"dep/x\", (1, 1))'",
        "python3 -c 'import os; fd = os.open(\"dep/x\", 0); os.fchmod(fd, 0o666); os.utime(fd, (1, 1))'",
    ];
    let facts = |world: &World| {
        let state = fs::metadata(world.outside.join("store/x")).unwrap();
        (state.mode() & 0o7777, state.mtime())
    };
    let kept = KeptWorld::of(fixture(place));
    let before = facts(kept.restore());
    for change in CHANGES {
        kept.contains(change, |world| facts(world) != before);
    }
}

place_test!(links_of_the_session_stay_links);
/// Within one session: links of its commands are links, also after they and their directories were moved.
fn links_of_the_session_stay_links(place: Place) {
    let world = fixture(place);
    let mut session = Session::open(&world);
    session
        .bash("ln own second; echo 1 >> second; mkdir d; ln own d/third; echo new > made; ln made also")
        .success();
    for script in [
        "echo 2 >> own",
        "mv second renamed; echo 3 >> renamed",
        "mv d e; echo 4 >> e/third",
        "python3 -c 'import os; os.truncate(\"renamed\", os.path.getsize(\"own\")); fd = os.open(\"own\", 0)
os.write(os.open(f\"/proc/self/fd/{fd}\", os.O_WRONLY | os.O_APPEND), b\"5\\n\")'",
        "rm renamed; echo 6 >> own; chmod 640 own",
    ] {
        session.bash(script).success();
    }
    let said = session
        .bash("cat e/third; echo new >> also; cat made; stat -c %a e/third; echo evil >> dep/x");
    assert_eq!(
        said.success().trim(),
        "own\n1\n2\n3\n4\n5\n6\nnew\nnew\n640"
    );
    let tmpfile = "import ctypes, os; fd = os.open(\".\", os.O_TMPFILE | os.O_RDWR); p = f\"/proc/self/fd/{fd}\"
ctypes.CDLL(None).linkat(-100, p.encode(), -100, b\"t\", 0x400); os.link(\"t\", \"u\"); os.write(os.open(p, os.O_WRONLY), b\"one\"); print(open(\"u\").read())";
    assert_eq!(
        session
            .bash(&format!("python3 -c '{tmpfile}'"))
            .success()
            .trim(),
        "one"
    );
    let private = "cd; echo a > a; ln a b; echo b >> b; cat a; m=/dev/shm; echo a > $m/a; ln $m/a $m/b; echo b >> $m/b; cat $m/a";
    assert_eq!(session.bash(private).success().trim(), "a\nb\na\nb");
    assert_eq!(stored(&world), "theirs\n");
}

place_test!(a_later_session_copies);
/// Nobody knows any more who made the second name.
fn a_later_session_copies(place: Place) {
    let world = fixture(place);
    world.in_cell("ln own second").success();
    assert_eq!(
        world.in_cell("echo 2 >> second; cat own second").success(),
        "own\nown\n2\n"
    );
}

place_test!(shared_inode_too_large_to_copy_is_refused_and_named);
fn shared_inode_too_large_to_copy_is_refused_and_named(place: Place) {
    let world = fixture(place);
    let big = world.outside.join("store/big");
    world.write(&big, "");
    fs::File::options()
        .write(true)
        .open(&big)
        .unwrap()
        .set_len(300 << 20)
        .unwrap();
    fs::hard_link(&big, world.project.join("dep/big")).unwrap();
    let mut session = Session::open(&world);
    let refused = session.bash("echo evil >> dep/big");
    assert!(!refused.ok(), "{}", refused.result);
    let said = refused.result.to_string();
    assert!(
        said.contains("write dep/big")
            && said.contains("256 MiB")
            && said.contains("package-import-method"),
        "{said}"
    );
    assert_eq!(fs::metadata(&big).unwrap().len(), 300 << 20);
    // Nothing of it has to be copied.
    session.bash("echo mine > dep/big; cat dep/big").success();
    assert_eq!(fs::metadata(&big).unwrap().len(), 300 << 20);
    fs::set_permissions(world.project.join("dep"), fs::Permissions::from_mode(0o555)).unwrap();
    let refused = session.bash("echo evil >> dep/x");
    let said = refused.result.to_string();
    assert!(
        !refused.ok() && said.contains("write dep/x") && said.contains("hard link"),
        "{said}"
    );
    assert_eq!(stored(&world), "theirs\n");
    fs::set_permissions(world.project.join("dep"), fs::Permissions::from_mode(0o755)).unwrap();
}

place_test!(a_copy_keeps_metadata);
fn a_copy_keeps_metadata(place: Place) {
    let world = fixture(place);
    let store = world.outside.join("store/x");
    let attribute = "import os; os.setxattr(\"store/x\", \"user.origin\", b\"registry\"); os.utime(\"store/x\", (5, 7))";
    run(
        world
            .host("python3")
            .current_dir(&world.outside)
            .args(["-c", attribute]),
        LIMIT,
    )
    .success();
    fs::set_permissions(&store, fs::Permissions::from_mode(0o750)).unwrap();
    let script = "python3 -c 'import os; os.open(\"dep/x\", os.O_RDWR)
print(os.getxattr(os.open(\"dep/x\", 0), \"user.origin\"), os.stat(\"dep/x\").st_nlink)'; stat -c '%a %Y' dep/x; ls -A dep";
    assert_eq!(world.in_cell(script).success(), "b'registry' 1\n750 7\nx\n");
    let state = fs::metadata(&store).unwrap();
    assert_eq!(
        (state.nlink(), state.uid()),
        (1, fs::metadata(world.project.join("dep/x")).unwrap().uid())
    );
}

place_test!(file_tools_replace);
fn file_tools_replace(place: Place) {
    let world = fixture(place);
    let mut session = Session::open(&world);
    session
        .call("file_read", json!({"path": "dep/x"}))
        .success();
    let edit = json!({"path": "dep/x", "old_string": "theirs", "new_string": "evil"});
    session.call("file_edit", edit).success();
    session
        .call(
            "file_write",
            json!({"path": "dep/x", "content": "more evil\n"}),
        )
        .success();
    assert_eq!(
        (stored(&world).as_str(), world.get("dep/x").as_slice()),
        ("theirs\n", b"more evil\n".as_slice())
    );
    let mut ask = |line: serde_json::Value| {
        session.send(&line);
        session.answer_within(line["id"].as_str().unwrap(), LIMIT)
    };
    let listed = ask(json!({"id": "h", "history": true, "limit": 1}));
    let number = &listed.result["metadata"]["changes"][0]["number"];
    ask(json!({"id": "u", "op": "undo", "undo": number, "path": "dep/x"})).success();
    assert_eq!(
        (stored(&world).as_str(), world.get("dep/x").as_slice()),
        ("theirs\n", b"evil\n".as_slice())
    );
}

place_test!(background_commands_copy);
fn background_commands_copy(place: Place) {
    let world = fixture(place);
    let mut session = Session::open(&world);
    let command = "echo evil >> dep/x; touch done";
    session
        .call("bash", json!({"command": command, "background": true}))
        .success();
    assert!(lazaret_tests::process::until(LIMIT, || world
        .project
        .join("done")
        .exists()));
    assert_eq!(
        (stored(&world).as_str(), world.get("dep/x").as_slice()),
        ("theirs\n", b"theirs\nevil\n".as_slice())
    );
}

const COMMIT: &str =
    "git init -q . && git config user.name t && git config user.email t@t.invalid &&
    git add own && git commit -qm one";

place_test!(git_works_on_a_project_that_a_backup_links);
/// `cp -al` is how rsnapshot and others keep versions: each file of the project, and of its repository, has a second name.
fn git_works_on_a_project_that_a_backup_links(place: Place) {
    let world = fixture(place);
    world.on_host(COMMIT).success();
    let backup = world.outside.join("backup");
    run(
        world
            .host("cp")
            .args(["-al"])
            .arg(&world.project)
            .arg(&backup),
        LIMIT,
    )
    .success();
    symlink("/nowhere", backup.join("marker")).unwrap();
    let digest = "find . -type f -exec sha256sum {} + | sort";
    let backed_up = || {
        run(
            world.host("bash").current_dir(&backup).args(["-c", digest]),
            LIMIT,
        )
        .success()
    };
    let before = backed_up();
    let work = "set -e; echo two >> own; git add own; git commit -qm two; git checkout -qb other; echo 3 >> own
        git commit -qam three; git checkout -q -; git merge -q other; git gc -q; git worktree add -q w; git -C w log --oneline
        git stash -q || true; git fsck";
    let mut session = Session::open(&world);
    session.bash(work).success();
    session
        .bash("git worktree remove w; echo 4 >> own; git commit -qam four; git gc -q; git fsck")
        .success();
    session.close(LIMIT);
    world
        .in_cell("set -e; echo 5 >> own; git commit -qam five; git fsck")
        .success();
    assert_eq!(backed_up(), before);
}

place_test!(a_local_clone_leaves_the_original);
/// Its objects are the original's, and a change of one would be checked out there.
fn a_local_clone_leaves_the_original(place: Place) {
    let world = World::new(place);
    let original = world.outside.join("original");
    world.write(&original.join("own"), "own\n");
    run(
        world
            .host("bash")
            .current_dir(&original)
            .args(["-c", COMMIT]),
        LIMIT,
    )
    .success();
    run(
        world
            .host("git")
            .args(["clone", "-q"])
            .arg(&original)
            .arg("clone"),
        LIMIT,
    )
    .success();
    let evil = "cd clone/.git/objects; for o in ??/*; do chmod u+w $o; echo evil >> $o; done; true";
    let fsck = || {
        run(
            world
                .host("git")
                .current_dir(&original)
                .args(["fsck", "--full"]),
            LIMIT,
        )
        .code()
    };
    assert_eq!(fsck(), 0);
    let finished = world.in_cell(evil);
    assert_eq!((fsck(), finished.code()), (0, 0), "{finished:?}");
    world.on_host(evil).success();
    // In the clone, they are its own by now.
    assert_eq!(fsck(), 0);
    let control = original.with_file_name("control");
    run(
        world
            .host("git")
            .args(["clone", "-q"])
            .arg(&original)
            .arg(&control),
        LIMIT,
    )
    .success();
    run(
        world
            .host("bash")
            .current_dir(control)
            .args(["-c", &evil.replace("clone/", "")]),
        LIMIT,
    )
    .success();
    assert_ne!(fsck(), 0, "the control");
}
