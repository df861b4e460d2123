//! The file tools: exact bytes, whole or not at all, and an answer to every odd thing that a folder can hold.

use lazaret_tests::process::until;
use lazaret_tests::session::Answer;
use lazaret_tests::{LIMIT, Place, Session, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

/// A world and its session.
struct Files {
    world: World,
    session: Session,
}

impl Files {
    fn new(place: Place) -> Self {
        let world = World::new(place);
        let session = Session::open(&world);
        Self { world, session }
    }

    #[track_caller]
    fn call(&mut self, tool: &str, input: Value) -> Answer {
        self.session.call(tool, input)
    }

    #[track_caller]
    fn read(&mut self, path: &str) -> Answer {
        self.call("file_read", json!({"path": path}))
    }

    #[track_caller]
    fn write(&mut self, path: &str, content: &str) -> Answer {
        self.call("file_write", json!({"path": path, "content": content}))
    }

    #[track_caller]
    fn edit(&mut self, path: &str, edits: Value) -> Answer {
        self.call("file_edit", json!({"path": path, "edits": edits}))
    }

    /// Names in the project's top folder: what a write must not add to.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.world.project).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

place_test!(a_file_reads_as_it_is);
fn a_file_reads_as_it_is(place: Place) {
    let mut files = Files::new(place);
    for content in [
        "plain\n",
        "no end",
        "one\r\ntwo\r\n",
        "mixed\r\nends\n",
        "",
        "é€😀\n",
    ] {
        files.world.put("file", content);
        assert_eq!(files.read("file").success(), content);
    }
    files.world.put("lines", "1\n2\n3\n4\n5");
    let part = files.call(
        "file_read",
        json!({"path": "lines", "offset": 2, "limit": 2}),
    );
    assert!(part.success().starts_with("2\n3"), "{}", part.result);
    assert!(
        !part.success().contains('4') || part.success().contains("[truncated"),
        "{}",
        part.result
    );
    let absolute = files.world.project.join("lines").display().to_string();
    assert_eq!(files.read(&absolute).success(), "1\n2\n3\n4\n5");
    let missing = files.read("missing");
    assert_eq!((missing.kind(), missing.ok()), ("not_found", false));
    assert!(missing.text().contains("not found"), "{}", missing.result);
    assert!(
        !files.read(".").ok() || files.read(".").text().contains("lines"),
        "a folder is an error or a list"
    );
}

place_test!(a_large_file_is_cut_with_a_note);
fn a_large_file_is_cut_with_a_note(place: Place) {
    let mut files = Files::new(place);
    files
        .world
        .put("large", "0123456789abcde\n".repeat(200_000));
    let answer = files.read("large");
    let text = answer.success();
    assert!(text.len() <= (1 << 20) + 200, "{} bytes", text.len());
    assert!(
        text.contains("[truncated: total=3200000 shown=1048576 strategy=head"),
        "{}",
        &text[text.len() - 200..]
    );
    // Far beyond the cap there is still a way to read.
    let late = files.call(
        "file_read",
        json!({"path": "large", "offset": 199_999, "limit": 1}),
    );
    assert!(late.success().starts_with("0123456789abcde"));
}

place_test!(a_write_is_whole_keeps_the_mode_and_makes_parents);
fn a_write_is_whole_keeps_the_mode_and_makes_parents(place: Place) {
    let mut files = Files::new(place);
    let text = "line\r\nno end";
    assert!(
        files
            .write("a/b/c.txt", text)
            .success()
            .contains("a/b/c.txt")
    );
    assert_eq!(files.world.get("a/b/c.txt"), text.as_bytes());
    let script = files.world.put_program("script", "#!/bin/sh\n");
    files.read("script").success();
    files.write("script", "#!/bin/sh\necho new\n").success();
    assert_eq!(
        fs::metadata(&script).unwrap().permissions().mode() & 0o7777,
        0o755
    );
    let owner =
        |path: &std::path::Path| std::os::unix::fs::MetadataExt::uid(&fs::metadata(path).unwrap());
    let user = place.account().uid.as_raw();
    assert_eq!(
        (
            owner(&script),
            owner(&files.world.project.join("a/b/c.txt"))
        ),
        (user, user)
    );
    files.write("empty", "").success();
    assert_eq!(files.world.get("empty"), b"");
    files.write("central:note", "kept").success();
    assert_eq!(fs::read(files.world.central.join("note")).unwrap(), b"kept");
    assert_eq!(
        files.names(),
        ["a", "empty", "script"],
        "a write has left something behind"
    );
}

place_test!(a_write_that_expects_something_else_changes_nothing);
fn a_write_that_expects_something_else_changes_nothing(place: Place) {
    let mut files = Files::new(place);
    let first = files.write("file", "first");
    let sha256 = first.result["metadata"]["sha256"]
        .as_str()
        .unwrap()
        .to_owned();
    let write = |content: &str, sha256: &str| json!({"path": "file", "content": content, "expected_sha256": sha256});
    files.call("file_write", write("second", &sha256)).success();
    let stale = files.call("file_write", write("third", &sha256));
    assert!(!stale.ok(), "{}", stale.result);
    let careful = files.call(
        "file_write",
        json!({"path": "file", "content": "fourth", "overwrite": false}),
    );
    assert!(!careful.ok(), "{}", careful.result);
    assert_eq!(files.world.get("file"), b"second");
    files
        .call(
            "file_write",
            json!({"path": "new", "content": "x", "overwrite": false}),
        )
        .success();
    assert_eq!(files.names(), ["file", "new"]);
}

once_test!(a_reader_never_sees_half_a_file);
/// A reader beside the writer sees one content or the other, never a piece.
fn a_reader_never_sees_half_a_file() {
    let mut files = Files::new(Place::any());
    let contents = ["a", "b"].map(|letter| letter.repeat(400_000));
    let path = files.world.put("file", &contents[0]);
    files.read("file").success();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !over.load(Ordering::Relaxed) {
                let bytes = fs::read(&path).expect("the file is always there");
                assert!(
                    contents.iter().any(|content| content.as_bytes() == bytes),
                    "{} bytes seen",
                    bytes.len()
                );
                reads += 1;
            }
            reads
        });
        for round in 0..40 {
            files.write("file", &contents[round % 2]).success();
        }
        over.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 5);
    });
    assert_eq!(files.names(), ["file"]);
}

place_test!(an_edit_changes_what_was_meant_and_nothing_else);
fn an_edit_changes_what_was_meant_and_nothing_else(place: Place) {
    let mut files = Files::new(place);
    let text = "one\r\ntwo\r\ntwo\r\nthree";
    files.world.put("file", text);
    files.read("file").success();
    files
        .edit("file", json!([{"old": "one", "new": "1"}]))
        .success();
    assert_eq!(files.world.get("file"), b"1\r\ntwo\r\ntwo\r\nthree");
    let ambiguous = files.edit("file", json!([{"old": "two", "new": "2"}]));
    assert!(
        !ambiguous.ok() && ambiguous.text().contains('2'),
        "{}",
        ambiguous.result
    );
    let absent = files.edit("file", json!([{"old": "four", "new": "4"}]));
    assert!(!absent.ok(), "{}", absent.result);
    let partly = files.edit(
        "file",
        json!([{"old": "three", "new": "3"}, {"old": "four", "new": "4"}]),
    );
    assert!(!partly.ok(), "{}", partly.result);
    assert_eq!(
        files.world.get("file"),
        b"1\r\ntwo\r\ntwo\r\nthree",
        "a failed edit has changed the file"
    );
    let wrong = files.edit("file", json!([{"old": "two", "new": "2", "occurrence": 3}]));
    assert!(!wrong.ok(), "{}", wrong.result);
    let right = files.edit("file", json!([{"old": "two", "new": "2", "occurrence": 2}]));
    assert_eq!(
        right.result["metadata"]["replaced"],
        json!([2]),
        "{}",
        right.result
    );
    files
        .edit(
            "file",
            json!([{"old": "2", "new": "two", "all": true}, {"old": "two\r\nthree", "new": "end"}]),
        )
        .success();
    assert_eq!(files.world.get("file"), b"1\r\ntwo\r\nend");
    assert_eq!(files.names(), ["file"]);
}

place_test!(odd_things_get_an_answer_and_never_a_hang);
fn odd_things_get_an_answer_and_never_a_hang(place: Place) {
    let mut files = Files::new(place);
    let project = files.world.project.clone();
    nix::unistd::mkfifo(
        &project.join("fifo"),
        nix::sys::stat::Mode::from_bits_truncate(0o666),
    )
    .unwrap();
    files.world.own(&project.join("fifo"));
    let _socket = std::os::unix::net::UnixListener::bind(project.join("socket")).unwrap();
    let sparse = fs::File::create(project.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    for (target, link) in [
        ("loop-b", "loop-a"),
        ("loop-a", "loop-b"),
        ("/dev/zero", "zero"),
        ("/dev/tty", "tty"),
        ("/proc/kmsg", "kmsg"),
    ] {
        symlink(target, project.join(link)).unwrap();
    }
    for path in [
        "fifo",
        "socket",
        "loop-a",
        "zero",
        "tty",
        "kmsg",
        "missing/x",
        "file/x",
        &"n".repeat(255),
        &"d/".repeat(1000),
    ] {
        let id = files.session.start_call("file_read", json!({"path": path}));
        let answer = files.session.answer_within(&id, LIMIT);
        assert!(!answer.ok(), "{path:.40}: {:.300}", answer.result);
    }
    let id = files
        .session
        .start_call("file_read", json!({"path": "sparse"}));
    let answer = files.session.answer_within(&id, LIMIT);
    assert!(answer.text().len() < 8 << 20);
    for path in ["fifo", "socket", "loop-a"] {
        let id = files.session.start_call(
            "file_edit",
            json!({"path": path, "edits": [{"old": "a", "new": "b"}]}),
        );
        assert!(!files.session.answer_within(&id, LIMIT).ok(), "edit {path}");
    }
    for (tool, input) in [
        ("grep", json!({"pattern": "needle"})),
        ("glob", json!({"pattern": "**/*"})),
        ("file_list", json!({"depth": 5, "hidden": true})),
    ] {
        let id = files.session.start_call(tool, input);
        let answer = files.session.answer_within(&id, LIMIT);
        assert!(answer.ok(), "{tool}: {}", answer.result);
    }
    assert_eq!(files.session.bash("echo on").success(), "on\n");
}

place_test!(odd_names_stay_one_name);
fn odd_names_stay_one_name(place: Place) {
    let mut files = Files::new(place);
    for name in [
        "two\nlines",
        "-rf",
        "a b",
        "*",
        "$HOME",
        "é",
        "\u{1b}[31mred",
        "'quoted\"",
    ] {
        files.write(name, "content").success();
        assert_eq!(files.read(name).success(), "content");
        assert_eq!(files.world.get(name), b"content");
    }
    let listed = files.call("file_list", json!({"path": "."}));
    assert_eq!(listed.success().lines().count(), 8, "{}", listed.text());
    assert!(
        !listed.text().contains('\u{1b}'),
        "a name steers the terminal: {:?}",
        listed.text()
    );
}

place_test!(links_inside_work_and_links_out_do_not);
fn links_inside_work_and_links_out_do_not(place: Place) {
    let mut files = Files::new(place);
    let project = files.world.project.clone();
    let secret = files.world.outside.join("secret.txt");
    files.world.put("real/file", "inside");
    for (target, link) in [("real/file", "to-file"), ("real", "to-folder")] {
        symlink(target, project.join(link)).unwrap();
    }
    symlink(&secret, project.join("out")).unwrap();
    symlink(&files.world.outside, project.join("out-folder")).unwrap();
    symlink("../outside/secret.txt", project.join("out-relative")).unwrap();
    symlink("/proc/self/root", project.join("magic")).unwrap();
    assert_eq!(files.read("to-file").success(), "inside");
    assert_eq!(files.read("to-folder/file").success(), "inside");
    let through = format!("magic{}", secret.display());
    for path in ["out", "out-folder/secret.txt", "out-relative", &through] {
        for answer in [
            files.read(path),
            files.write(path, "mine"),
            files.edit(path, json!([{"old": "CANARY", "new": "x"}])),
        ] {
            assert!(
                !answer.result.to_string().contains(&files.world.canary),
                "{path}: {}",
                answer.result
            );
            assert!(
                !answer.ok() || !path.contains("out-folder"),
                "{path}: {}",
                answer.result
            );
        }
    }
    files.write("out-folder/planted", "x");
    assert!(!files.world.outside.join("planted").exists());
    assert_eq!(
        fs::read_to_string(&secret).unwrap(),
        files.world.canary,
        "the file outside has changed"
    );
    assert_eq!(
        files.read("out").kind(),
        "violation",
        "{}",
        files.read("out").result
    );
    let found = files.call("grep", json!({"pattern": "CANARY"}));
    assert!(
        !found.result.to_string().contains(&files.world.canary),
        "{}",
        found.result
    );
}

place_test!(paths_that_climb_are_violations);
fn paths_that_climb_are_violations(place: Place) {
    let mut files = Files::new(place);
    let secret = files.world.outside.join("secret.txt").display().to_string();
    let sibling = format!("{}-private/x", files.world.project.display());
    for path in [
        "../outside/secret.txt",
        "a/../../outside/secret.txt",
        "/etc/passwd",
        &secret,
        &sibling,
        "central:../outside/secret.txt",
        "/",
    ] {
        for tool in ["file_read", "file_write", "file_list"] {
            let input = match tool {
                "file_write" => json!({"path": path, "content": "x"}),
                _ => json!({"path": path}),
            };
            assert_eq!(files.call(tool, input).kind(), "violation", "{tool} {path}");
        }
    }
}

place_test!(granted_path_is_read_and_never_written);
/// The control of what stays closed is the user, who reads all of it.
fn granted_path_is_read_and_never_written(place: Place) {
    let world = World::new(place);
    let grants =
        ["tools", ".ssh"].map(|name| format!("{{ path = '{}' }}", world.home.join(name).display()));
    let policy = format!(
        "version = 1\n[profile.own]\ngrants = [{}]\n",
        grants.join(", ")
    );
    world.set_policy(policy);
    world.write(&world.home.join("tools/src/lib.rs"), "fn granted() {}\n");
    world.write(&world.home.join("tools/.env"), &world.canary);
    world.write(&world.home.join("secret"), &world.canary);
    symlink("../secret", world.home.join("tools/out")).unwrap();
    symlink(world.home.join("tools/src"), world.project.join("sources")).unwrap();
    for name in ["tools/out", "tools/.env", ".ssh/id_rsa"] {
        assert_eq!(
            run(world.host("cat").arg(world.home.join(name)), LIMIT).text(),
            world.canary,
            "{name}"
        );
    }
    let mut command = world.lazaret("session");
    command.args([
        "--profile",
        "own",
        "--trust",
        "autonomous",
        "--max-violations",
        "99",
    ]);
    let mut session = Session::start(command.env("XDG_CONFIG_HOME", world.home.join("settings")));
    let at = |name: &str| world.home.join(name).display().to_string();
    for path in [at("tools/src/lib.rs"), "sources/lib.rs".into()] {
        assert_eq!(
            session.call("file_read", json!({ "path": path })).success(),
            "fn granted() {}\n"
        );
    }
    let found = session.call(
        "grep",
        json!({"pattern": "granted|CANARY", "path": at("tools"), "ignored": true}),
    );
    assert_eq!(
        found.success(),
        format!("{}:1:fn granted() {{}}", at("tools/src/lib.rs"))
    );
    let listed = session.call("file_list", json!({"path": at("tools"), "depth": 2}));
    assert!(listed.success().contains("lib.rs"), "{}", listed.result);
    let programs = session.call("glob", json!({"path": "/usr", "pattern": "bin/env"}));
    assert_eq!(programs.success(), "/usr/bin/env");
    for path in ["tools/out", "tools/.env", ".ssh/id_rsa", "secret", ""]
        .map(at)
        .iter()
        .chain(&["/etc/passwd".into()])
    {
        let answer = session.call("file_read", json!({ "path": path }));
        // A protected name in what is granted is a refusal: nothing was tried to leave it.
        let is_protected = ["tools/.env", ".ssh/id_rsa"]
            .iter()
            .any(|name| path.ends_with(name));
        let kind = if is_protected {
            "denied_policy"
        } else {
            "violation"
        };
        assert_eq!(answer.kind(), kind, "{path}: {}", answer.result);
    }
    for path in [
        at("tools/src/lib.rs"),
        at("tools/new"),
        "sources/lib.rs".into(),
    ] {
        let written = session.call("file_write", json!({"path": path, "content": "x"}));
        assert_eq!(written.kind(), "violation", "{path}: {}", written.result);
    }
    assert_eq!(
        session
            .call("bash", json!({"command": "pwd", "cwd": at("tools")}))
            .kind(),
        "violation"
    );
    assert_eq!(
        fs::read_to_string(world.home.join("tools/src/lib.rs")).unwrap(),
        "fn granted() {}\n"
    );
    assert!(!world.home.join("tools/new").exists());
}

place_test!(searches_find_what_is_there_and_pass_over_the_rest);
fn searches_find_what_is_there_and_pass_over_the_rest(place: Place) {
    let mut files = Files::new(place);
    for (name, text) in [
        ("src/a.rs", "fn needle() {}\n"),
        ("src/deep/b.rs", "// nothing\n"),
        ("notes.txt", "a Needle in text\nneedle again\n"),
        (".hidden", "needle\n"),
        ("target/out.rs", "needle\n"),
        (".gitignore", "target/\n"),
    ] {
        files.world.put(name, text);
    }
    files.world.put("binary", b"needle\0needle");
    files.world.make_folder(&files.world.project.join(".git"));
    let grep = files.call("grep", json!({"pattern": "needle"}));
    let found = grep.success();
    assert!(
        found.contains("src/a.rs:1:fn needle() {}") && found.contains("notes.txt:2:"),
        "{found}"
    );
    assert!(
        !found.contains("target") && !found.contains("binary"),
        "{found}"
    );
    let included = files.call("grep", json!({"pattern": "(?i)NEEDLE", "include": "*.txt"}));
    assert_eq!(included.success().lines().count(), 2, "{}", included.text());
    let glob = files.call("glob", json!({"pattern": "**/*.rs"}));
    let mut paths: Vec<&str> = glob.success().lines().collect();
    paths.sort_unstable();
    assert_eq!(paths, ["src/a.rs", "src/deep/b.rs"]);
    let list = files.call("file_list", json!({"path": "src", "depth": 3}));
    assert_eq!(
        list.success().lines().collect::<Vec<_>>(),
        ["a.rs", "deep/", "deep/b.rs"]
    );
    let hidden = files.call("file_list", json!({"hidden": true}));
    assert!(
        hidden.success().contains(".gitignore")
            && !files
                .call("file_list", json!({}))
                .text()
                .contains(".gitignore")
    );
    assert!(
        !files.call("grep", json!({"pattern": "("})).ok(),
        "a broken expression is an error"
    );
    let none = files.call("grep", json!({"pattern": "no such text"}));
    assert!(none.ok() && !none.text().is_empty());
}

once_test!(a_large_tree_is_answered_in_time);
/// A million names and a pattern that explodes: an answer in time, cut where it must be.
fn a_large_tree_is_answered_in_time() {
    let mut files = Files::new(Place::any());
    for folder in 0..40 {
        let folder = files.world.project.join(format!("d{folder}"));
        files.world.make_folder(&folder);
        for file in 0..500 {
            fs::write(folder.join(format!("f{file}")), "text\n").unwrap();
        }
    }
    let answer = files.call("glob", json!({"pattern": "**/f*", "limit": 10_000}));
    assert!(
        answer.text().contains("[truncated"),
        "{:.300}",
        answer.text()
    );
    files.call("grep", json!({"pattern": "(a|a|aa|e)*x$", "limit": 10_000}));
}

place_test!(files_and_commands_see_each_other_at_once);
/// Bash and the file tools work on one disk, and a file tool does not wait for a long command.
fn files_and_commands_see_each_other_at_once(place: Place) {
    let mut files = Files::new(place);
    files.write("in", "from the tool").success();
    assert_eq!(
        files.session.bash("cat in; echo from bash > out").success(),
        "from the tool"
    );
    assert_eq!(files.read("out").success(), "from bash\n");
    // It ends only once the read has been answered.
    let id = files.session.start_call(
        "bash",
        json!({"command": "until [ -e read ]; do sleep 0.05; done"}),
    );
    files.read("out").success();
    files.write("read", "").success();
    files.session.answer_within(&id, LIMIT).success();
}

place_test!(the_answer_of_call_is_the_file);
fn the_answer_of_call_is_the_file(place: Place) {
    let world = World::new(place);
    world.put("file", "a\r\nb");
    let finished = run(
        &mut world.lazaret_call("file_read", &json!({"path": "file"})),
        LIMIT,
    );
    assert!(
        finished.success().starts_with("a\r\nb"),
        "{:?}",
        finished.text()
    );
    assert!(until(LIMIT, || lazaret_tests::process::with_marker(
        world.project.to_str().unwrap()
    )
    .is_empty()));
}

/// The earlier content of a file, by the diff of its last change and the host's git.
#[track_caller]
fn before(world: &World, path: &str, change: &Answer) -> Vec<u8> {
    let folder = world
        .home
        .join(format!("undone-{}", lazaret_tests::world::unique()));
    let (file, patch) = (folder.join(path), folder.join("the.patch"));
    world.write(&file, world.get(path));
    world.write(
        &patch,
        change.result["metadata"]["diff"].as_str().expect("a diff"),
    );
    let mut git = world.host("git");
    git.args(["apply", "-R", "--whitespace=nowarn", "the.patch"])
        .current_dir(&folder);
    run(git.env("GIT_CEILING_DIRECTORIES", &world.home), LIMIT).success();
    fs::read(file).unwrap()
}

place_test!(a_change_comes_with_the_diff_that_undoes_it);
fn a_change_comes_with_the_diff_that_undoes_it(place: Place) {
    let numbers: String = (1..=60).map(|line| format!("line {line}\n")).collect();
    let mut files = Files::new(place);
    let far = json!([{"old": "line 3\n", "new": ""}, {"old": "line 9\n", "new": "x\ny\n"}, {"old": "line 60\n", "new": "end"}]);
    let cases = [
        ("a", numbers.as_str(), far),
        (
            "dir/a b",
            "one\ntwo\nthree",
            json!([{"old": "three", "new": "3\n4"}]),
        ),
        (
            "crlf",
            "one\r\ntwo\r\n",
            json!([{"old": "one\ntwo", "new": "1\n\n2"}]),
        ),
        (
            "no-end",
            "one\ntwo\n",
            json!([{"old": "two\n", "new": "two"}]),
        ),
        (
            "all",
            "a b a\nb\n\na\n",
            json!([{"old": "a", "new": "é\n", "all": true}]),
        ),
        (
            "twice",
            "a\nb\nc\n",
            json!([{"old": "b", "new": "b\nb"}, {"old": "b\nb\nc", "new": "d"}]),
        ),
        ("first", "one\ntwo\n", json!([{"old": "one\n", "new": ""}])),
    ];
    for (path, content, edits) in cases {
        files.world.put(path, content);
        files.read(path).success();
        let edited = files.edit(path, edits);
        assert!(
            !edited.success().contains("@@"),
            "the model gets what it got before"
        );
        assert_eq!(
            before(&files.world, path, &edited),
            content.as_bytes(),
            "{}",
            edited.result
        );
        let now = files.world.get(path);
        let written = files.write(path, "line 7\nanother end");
        assert_eq!(
            before(&files.world, path, &written),
            now,
            "{}",
            written.result
        );
        let diff = written.result["metadata"]["diff"].as_str().unwrap();
        assert!(
            diff.starts_with(&format!("--- a/{path}\n+++ b/{path}\n@@ -1")),
            "{diff}"
        );
    }
    // Of what is not UTF-8 the text is shown as far as possible.
    files.world.put("bytes", b"\xff\xfe\nb\n");
    files.read("bytes");
    let odd = files.edit("bytes", json!([{"old": "b", "new": "c"}]));
    let diff = "--- a/bytes\n+++ b/bytes\n@@ -1,2 +1,2 @@\n \u{fffd}\u{fffd}\n-b\n+c\n";
    assert_eq!(odd.result["metadata"]["diff"], diff);
}

once_test!(a_diff_that_would_be_too_large_or_of_no_text_is_left_out_and_that_is_said);
fn a_diff_that_would_be_too_large_or_of_no_text_is_left_out_and_that_is_said() {
    let mut files = Files::new(Place::any());
    let reported = |answer: &Answer| {
        answer.success();
        let about = &answer.result["metadata"];
        (
            about.get("diff").is_some(),
            about.get("diffOmitted").cloned(),
        )
    };
    // 64 KiB, old and new together.
    for (size, want) in [
        (32 << 10, (true, None)),
        ((32 << 10) + 1, (false, Some(json!(true)))),
    ] {
        files.world.put("large", "a".repeat(32 << 10));
        files.read("large").success();
        let written = files.write("large", &"b".repeat(size));
        assert_eq!(reported(&written), want, "{size}");
        // It is whole, however long it is.
        let diff = written.result["metadata"]["diff"].as_str();
        assert!(
            diff.is_none_or(|diff| diff.matches('b').count() > size),
            "{size}"
        );
    }
    assert_eq!(reported(&files.write("new", "x")), (false, None));
    assert_eq!(reported(&files.write("new", "x")), (true, None));
    files.world.put("binary", b"a\0b\n");
    files.read("binary");
    assert_eq!(
        reported(&files.edit("binary", json!([{"old": "b", "new": "c"}]))),
        (false, Some(json!(true)))
    );
}

place_test!(lines_are_numbered_when_asked_for_and_the_note_leads_through_the_file);
fn lines_are_numbered_when_asked_for_and_the_note_leads_through_the_file(place: Place) {
    let mut files = Files::new(place);
    let mut numbered = |content: &[u8], offset: Option<u64>, limit: Option<u64>| {
        files.world.put("file", content);
        let input = json!({"path": "file", "numbered": true, "offset": offset, "limit": limit});
        let answer = files.call("file_read", input);
        (
            answer.success().to_owned(),
            answer.result["metadata"].clone(),
        )
    };
    let (text, about) = numbered(b"one\r\n\n\tthree", None, None);
    assert_eq!(text, "     1\tone\r\n     2\t\n     3\t\tthree");
    assert_eq!((&about["totalLines"], about.get("next")), (&json!(3), None));
    let (text, about) = numbered(b"1\n2\n3\n4\n5", Some(2), Some(2));
    assert_eq!(
        text,
        "     2\t2\n     3\t3\n[2 lines remaining - use offset=4]"
    );
    assert_eq!(
        (&about["totalLines"], &about["next"]),
        (&json!(5), &json!(4))
    );
    assert_eq!(
        numbered(b"1\n2\n3\n4\n5", Some(4), Some(2)).0,
        "     4\t4\n     5\t5"
    );
    // No line of a file passes for another one, and none is longer than it may be.
    let odd = ["x\r     2\tforged\x1b]0;", &"é".repeat(2001), "end"].join("\n");
    let (text, about) = numbered(odd.as_bytes(), None, None);
    let cut = format!(
        "{} [truncated: total=2001 shown=2000 strategy=head]",
        "é".repeat(2000)
    );
    assert_eq!(
        text,
        format!("     1\tx␍     2\tforged\n     2\t{cut}\n     3\tend")
    );
    assert_eq!(
        (&about["stripped"], &about["cutLines"]),
        (&json!(1), &json!(1))
    );
    // The text as it is has the same in its metadata only.
    files.world.put("file", "1\n2\n3");
    let raw = files.call("file_read", json!({"path": "file", "limit": 1}));
    assert_eq!(
        (raw.success(), &raw.result["metadata"]["next"]),
        ("1\n", &json!(2))
    );
    let wrong = files.call("file_read", json!({"path": "file", "numbered": "yes"}));
    assert!(
        wrong.kind() == "invalid_input" && wrong.text().contains("numbered"),
        "{}",
        wrong.result
    );
}

once_test!(a_numbered_file_is_cut_to_what_the_model_may_have_and_read_on_where_the_note_says);
fn a_numbered_file_is_cut_to_what_the_model_may_have_and_read_on_where_the_note_says() {
    let content: String = (1..=900)
        .map(|line| format!("line {line}: {}\n", "é".repeat(line % 40)))
        .collect();
    for profile in ["compact", "standard"] {
        let world = World::new(Place::any());
        world.put("file", &content);
        let mut session =
            Session::start(world.lazaret("session").args(["--model-profile", profile]));
        let (mut offset, mut read, mut calls) = (Some(1), String::new(), 0);
        while let Some(from) = offset {
            let answer = session.call(
                "file_read",
                json!({"path": "file", "numbered": true, "offset": from}),
            );
            let text = answer.success();
            offset = answer.result["metadata"]["next"].as_u64();
            // 10 KiB are shown whole, and of more 5 KiB and two notes.
            let max = if offset.is_some() { 5120 + 200 } else { 10_240 };
            assert!(profile == "standard" || text.len() <= max, "{}", text.len());
            assert_eq!(
                offset.is_some(),
                text.contains(" lines remaining - use offset="),
                "{text:.300}"
            );
            let lines = text.lines().filter(|line| !line.starts_with('['));
            for (line, number) in lines.zip(from..) {
                let (rendered, line) = line.split_once('\t').unwrap();
                assert_eq!(rendered, format!("{number:>6}"));
                read.push_str(line);
                read.push('\n');
            }
            calls += 1;
        }
        assert_eq!(
            (read == content, calls > 1),
            (true, profile == "compact"),
            "{profile}: {calls}"
        );
    }
}
