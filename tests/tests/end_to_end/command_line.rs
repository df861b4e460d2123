//! The programs' own manners: exit codes of `call`, lists, help, and what `doctor` finds.

use lazaret_tests::{LIMIT, Place, Session, World, once_test, place_test, programs, run};
use serde_json::{Value, json};

place_test!(call_says_by_its_code_how_it_went);
fn call_says_by_its_code_how_it_went(place: Place) {
    let world = World::new(place);
    world.put("file", "text");
    let code = |tool: &str, input: Value| run(&mut world.lazaret_call(tool, &input), LIMIT).code();
    assert_eq!(code("file_read", json!({"path": "file"})), 0);
    assert_eq!(code("file_read", json!({"path": "missing"})), 1);
    assert_eq!(code("bash", json!({"command": "exit 5"})), 1);
    assert_eq!(code("file_read", json!({"path": 5})), 2);
    assert_eq!(code("file_read", json!({})), 2);
    assert_eq!(code("no_such_tool", json!({})), 2);
    assert_eq!(code("file_read", json!({"path": "../../etc/passwd"})), 3);
    assert_eq!(code("file_read", json!({"path": "/etc/passwd"})), 3);
    assert_eq!(
        code("bash", json!({"command": "sleep 20", "timeout": 1})),
        124
    );
}

once_test!(failure_of_lazaret_itself_has_its_own_exit_code);
fn failure_of_lazaret_itself_has_its_own_exit_code() {
    let world = World::new(Place::any());
    let mut lost = world.cell("true");
    lost.env("LAZARET_EXECUTOR", "/nonexistent/lazaret-executor");
    let finished = run(&mut lost, LIMIT);
    finished.expect(125);
    assert!(
        finished.errors().contains("/nonexistent/lazaret-executor"),
        "{}",
        finished.errors()
    );
    for project in ["/nonexistent", "/etc"] {
        let mut nowhere = world.program("lazaret");
        nowhere.args(["run", "--project", project, "--", "true"]);
        run(&mut nowhere, LIMIT).expect(125);
    }
    assert!(
        !world.home.join(".local/share/lazaret").exists(),
        "something was made for a project that is none"
    );
    let mut unknown = world.lazaret("run");
    let finished = run(
        unknown.args(["--profile", "no-such-profile", "--", "true"]),
        LIMIT,
    );
    finished.expect(125);
    assert!(
        finished.errors().contains("no-such-profile"),
        "{}",
        finished.errors()
    );
    let mut refused = world.lazaret("run");
    let finished = run(
        refused.args(["--read", "/nonexistent", "--", "true"]),
        LIMIT,
    );
    finished.expect(125);
    assert!(
        finished.errors().contains("cannot be granted"),
        "{}",
        finished.errors()
    );
    // A directory of ours that cannot be made is named with what says that it lies there.
    let file = world.home.join("a-file");
    world.write(&file, "");
    for variable in ["XDG_DATA_HOME", "XDG_STATE_HOME"] {
        let mut misled = world.program("lazaret");
        misled
            .env(variable, &file)
            .args(["run", "--project"])
            .arg(&world.project)
            .args(["--", "true"]);
        let finished = run(&mut misled, LIMIT);
        finished.expect(125);
        let named = format!("{variable} says that it lies in {}", file.display());
        assert!(finished.errors().contains(&named), "{}", finished.errors());
    }
    let mut long = world.lazaret("run");
    let finished = run(long.args(["--timeout", "9999", "--", "true"]), LIMIT);
    finished.expect(0);
    // The maximum is for what a model starts.
    assert!(
        !finished.errors().contains("timeout_max_s"),
        "{}",
        finished.errors()
    );
    // Who reads JSON reads it there too.
    for (words, tool, code) in [
        (["run", "--json", "--", "true"].as_slice(), "bash", 125),
        (&["call", "--json", "file_list", "{}"], "file_list", 2),
        (&["history", "--json"], "history", 2),
        (&["undo", "--json", "1"], "undo", 2),
    ] {
        let mut unknown = world.lazaret(words[0]);
        let finished = run(
            unknown
                .args(["--profile", "no-such-profile"])
                .args(&words[1..]),
            LIMIT,
        );
        let result: Value = serde_json::from_str(&finished.expect(code)).unwrap();
        assert_eq!(
            (&result["status"], &result["metadata"]["tool"]),
            (&json!("error"), &json!(tool))
        );
        assert!(
            result["result"]
                .as_str()
                .unwrap()
                .contains("no-such-profile"),
            "{result}"
        );
    }
}

place_test!(a_policy_that_others_could_have_written_is_refused);
/// The broker and `lazaret` itself refuse a policy that somebody else could have written, and wait for none.
fn a_policy_that_others_could_have_written_is_refused(place: Place) {
    let world = World::new(place);
    let policy = world.policy();
    world.write(&policy, "version = 1\n");
    let told = |what: &str| {
        [("policy", &["show"][..]), ("run", &["--", "true"])].map(|(subcommand, words)| {
            let mut command = world.lazaret(subcommand);
            command
                .args(words)
                .env("XDG_CONFIG_HOME", world.home.join("settings"));
            let done = lazaret_tests::run(&mut command, LIMIT);
            (done.code(), done.errors().contains(what))
        })
    };
    let codes = || told(policy.to_str().unwrap());
    assert_eq!(codes(), [(0, false); 2], "nothing is wrong with it yet");
    set_mode(&policy, 0o666);
    assert_eq!(codes(), [(125, true); 2]);
    set_mode(&policy, 0o644);
    // A directory of settings that others can write is refused with the variable that names it.
    set_mode(policy.parent().unwrap(), 0o777);
    let directory = policy.parent().unwrap().display();
    let variable = format!("XDG_CONFIG_HOME names {directory}");
    assert_eq!(told(&variable), [(2, true), (125, true)]);
    set_mode(policy.parent().unwrap(), 0o755);
    std::fs::remove_file(&policy).unwrap();
    nix::unistd::mkfifo(&policy, nix::sys::stat::Mode::S_IRWXU).unwrap();
    world.own(&policy);
    assert_eq!(codes(), [(125, true); 2]);
}

fn set_mode(path: &std::path::Path, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

once_test!(the_tools_are_listed_with_their_schemas);
fn the_tools_are_listed_with_their_schemas() {
    let world = World::new(Place::any());
    let listed = run(world.program("lazaret").args(["tools", "--json"]), LIMIT).success();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let tools = listed
        .as_array()
        .or_else(|| listed["tools"].as_array())
        .unwrap();
    for name in [
        "bash",
        "file_read",
        "file_write",
        "file_edit",
        "file_list",
        "glob",
        "grep",
    ] {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        assert_eq!(tool["inputSchema"]["type"], "object", "{name}");
        assert!(
            tool["description"]
                .as_str()
                .is_some_and(|text| text.len() > 20),
            "{name}"
        );
    }
    let text = run(world.program("lazaret").arg("tools"), LIMIT).success();
    assert!(text.contains("file_edit"));
}

place_test!(doctor_says_what_this_machine_has);
fn doctor_says_what_this_machine_has(place: Place) {
    let world = World::new(place);
    let report = run(world.program("lazaret").args(["doctor", "--json"]), LIMIT).success();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert!(report.to_string().contains(place.tier.name()), "{report}");
    for layer in broker_protocol::Layer::ALL {
        assert!(
            report.to_string().contains(layer.name()),
            "no word about {} in {report}",
            layer.name()
        );
    }
    let text = run(world.program("lazaret").arg("doctor"), LIMIT).success();
    assert!(text.contains("landlock"), "{text}");
}

once_test!(doctor_names_a_program_of_another_protocol);
fn doctor_names_a_program_of_another_protocol() {
    let world = World::new(Place::any());
    let folder = world.outside.join("installed");
    let executor = folder.join("lazaret-executor");
    let [from, worker, gateway] =
        ["lazaret-executor", "lazaret-worker", "lazaret-gateway"].map(programs::path);
    world.set_up(&format!(
        "mkdir {0}; cp {1} {2} {0}",
        folder.display(),
        from.display(),
        worker.display()
    ));
    let doctor = |words: &[&str]| {
        let mut command = world.program("lazaret");
        command.arg("doctor").arg("--executor").arg(&executor);
        run(command.args(words), LIMIT).success()
    };
    let row = |name: &str| {
        let report: Value = serde_json::from_str(&doctor(&["--json"])).unwrap();
        let checks = report["checks"].as_array().unwrap().clone();
        let row = checks.into_iter().find(|row| row["id"] == name);
        row.unwrap_or_else(|| panic!("no {name} in {report}"))
    };
    let of_other = folder.join("lazaret-gateway");
    for (prints, said) in [
        ("lazaret-gateway 0.0.9 (protocol 1)", "speaks protocol 1,"),
        ("", "does not say which protocol"),
    ] {
        let program = format!("#!/bin/sh\necho '{prints}'\n");
        world.write(&of_other, program);
        world.set_up(&format!("chmod 755 {}", of_other.display()));
        let found = row("program/lazaret-gateway");
        assert_eq!(found["state"], "missing", "{found}");
        assert!(found["text"].as_str().unwrap().contains(said), "{found}");
        let page = doctor(&[]);
        assert!(
            page.contains("lazaret-gateway") && page.contains("from one release"),
            "{page}"
        );
        for same in ["program/lazaret-executor", "program/lazaret-worker"] {
            assert_eq!(row(same)["state"], "ok");
        }
    }
    // The control: the gateway of the same release.
    world.set_up(&format!("cp {} {}", gateway.display(), of_other.display()));
    assert_eq!(row("program/lazaret-gateway")["state"], "ok");
    let page = doctor(&[]);
    assert!(!page.contains("lazaret-gateway"), "{page}");
}

once_test!(a_bundle_for_a_bug_report_has_no_contents);
fn a_bundle_for_a_bug_report_has_no_contents() {
    let world = World::new(Place::any());
    world.in_cell("true").success();
    let config = world.outside.join("config");
    let private = "profile-of-a-secret-customer";
    let policy = format!("version = 1\n[profile.{private}]\nextends = ['default']\n");
    world.write(&config.join("lazaret/policy.toml"), &policy);
    let doctor = |option: &str| {
        let mut command = world.program("lazaret");
        command
            .env("XDG_CONFIG_HOME", &config)
            .env("https_proxy", "http://secret-user:pw@proxy.invalid:3128");
        run(command.args(["doctor", option]), LIMIT).success()
    };
    let text = doctor("--support-bundle");
    let bundle: Value = serde_json::from_str(&text).unwrap();
    let support = &bundle["support"];
    assert_eq!(support["audit"]["flaw"], Value::Null, "{support:#}");
    assert_eq!(
        support["policyFiles"][0]["bytes"],
        policy.len(),
        "{support:#}"
    );
    assert!(support["variables"].to_string().contains("https_proxy"));
    assert!(support["programs"][0]["bytes"].as_u64() > Some(0));
    for absent in [private, "secret-user", &world.canary] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
    let checks = bundle["checks"].as_array().unwrap();
    let state = |id: &str| {
        let row = checks.iter().find(|row| row["id"] == id);
        row.unwrap_or_else(|| panic!("no {id}"))["state"].clone()
    };
    assert_eq!(
        (state("layer/seccomp"), state("session/opens")),
        ("ok".into(), "ok".into())
    );
    // Only what is for somebody else has it.
    let own: Value = serde_json::from_str(&doctor("--json")).unwrap();
    assert_eq!(own["support"], Value::Null);
    // The message about a wrong file quotes it.
    let wrong = "version = 1\n[credential.x]\na-secret-value = 'x'\npreset = 'github'\n";
    world.write(&config.join("lazaret/policy.toml"), wrong);
    let mut command = world.program("lazaret");
    command.env("XDG_CONFIG_HOME", &config);
    let own = run(command.args(["doctor", "--json"]), LIMIT);
    assert!(
        own.text().contains("a-secret-value"),
        "the control: {}",
        own.text()
    );
    let mut command = world.program("lazaret");
    command.env("XDG_CONFIG_HOME", &config);
    let bundle = run(command.args(["doctor", "--support-bundle"]), LIMIT);
    assert!(bundle.text().contains("\"support\""), "{}", bundle.text());
    assert!(
        !bundle.text().contains("a-secret-value"),
        "{}",
        bundle.text()
    );
}

once_test!(without_landlock_nothing_runs);
/// On a machine without Landlock nothing runs, with the reason: fail closed.
fn without_landlock_nothing_runs() {
    let world = World::new(Place::any());
    let on_old_machine = |words: &[&str]| {
        let mut command = world.host(programs::path("without-landlock"));
        run(command.arg(programs::path("lazaret")).args(words), LIMIT)
    };
    let finished = on_old_machine(&["run", "--", "echo", "ran"]);
    finished.expect(125);
    assert!(
        finished.errors().to_lowercase().contains("landlock"),
        "{}",
        finished.errors()
    );
    assert_eq!(on_old_machine(&["doctor"]).code(), 1);
}

place_test!(without_supervision_nothing_runs);
/// Where the calls of a program cannot be answered in its place no session opens, in either tier, and `doctor` says why.
fn without_supervision_nothing_runs(place: Place) {
    let ways = [
        (&[][..], "start lazaret outside it"),
        (&["--looking"], "ptrace_scope` to 0 or 1"),
        (&["--answering"], "Linux 5.14 or later"),
    ];
    for (way, what_to_do) in ways {
        let world = World::new(place);
        let on_machine = |words: &[&str]| {
            let mut command = place.command("without-supervision");
            command.args(way).arg(programs::path("lazaret")).args(words);
            command.env("HOME", &world.home).current_dir(&world.project);
            run(&mut command, LIMIT)
        };
        let finished = on_machine(&["run", "--", "touch", "ran"]);
        finished.expect(125);
        let printed = finished.errors();
        assert!(
            printed.contains("cannot be supervised") && printed.contains(what_to_do),
            "{printed}"
        );
        assert!(!world.project.join("ran").exists());
        assert_eq!(on_machine(&["call", "file_list", "{}"]).code(), 125);
        let report: Value =
            serde_json::from_str(&on_machine(&["doctor", "--json"]).expect(1)).unwrap();
        let layers = report["layers"].as_array().unwrap();
        let missing: Vec<_> = layers
            .iter()
            .filter(|layer| layer["inForce"] == false)
            .collect();
        let names = missing
            .iter()
            .find(|layer| layer["name"] == "protected-names")
            .unwrap();
        assert!(
            names["why"].as_str().unwrap().contains("seccomp listener"),
            "{names}"
        );
        assert_eq!(
            (&report["session"]["ok"], report["tier"].as_str()),
            (&false.into(), Some(place.tier.name()))
        );
        assert!(
            report["session"].to_string().contains(what_to_do),
            "{report}"
        );
        let doctor = on_machine(&["doctor"]).expect(1);
        assert!(doctor.contains(what_to_do), "{doctor}");
    }
}

place_test!(an_older_landlock_says_what_is_lost);
/// With an older Landlock `doctor` says what is lost, and a result does not name what is not there.
fn an_older_landlock_says_what_is_lost(place: Place) {
    for abi in 1..=6 {
        let world = World::ablated(place, &format!("landlock-abi={abi}"));
        let report = run(world.program("lazaret").args(["doctor", "--json"]), LIMIT).success();
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["landlockAbi"], abi);
        let layers = report["layers"].as_array().unwrap();
        let of = |name: &str| layers.iter().find(|layer| layer["name"] == name).unwrap();
        let files = of("landlock-files")["detail"].as_str().unwrap();
        for (since, lost) in [(2, "moved"), (3, "truncation"), (5, "devices")] {
            assert_eq!(files.contains(lost), abi < since, "ABI {abi}: {files}");
        }
        let done = run(world.lazaret("run").args(["--json", "--", "true"]), LIMIT).success();
        let done: Value = serde_json::from_str(&done).unwrap();
        let flat = place.tier == broker_protocol::Tier::Flat;
        for (name, there) in [
            ("landlock-files", true),
            ("landlock-network", abi >= 4 && flat),
            ("landlock-scopes", abi >= 6),
        ] {
            let named = done["metadata"]["layers"]
                .as_array()
                .unwrap()
                .iter()
                .any(|layer| layer == name);
            assert_eq!(
                (of(name)["inForce"] == true, named),
                (there, there),
                "ABI {abi}: {name}"
            );
            assert!(
                there || of(name)["lost"].as_str().unwrap().len() > 10,
                "ABI {abi}: {name}"
            );
        }
    }
}

once_test!(a_session_takes_bad_lines_in_its_stride);
fn a_session_takes_bad_lines_in_its_stride() {
    let world = World::new(Place::any());
    let mut session = Session::open(&world);
    for line in [
        json!(5),
        json!({}),
        json!({"id": "x"}),
        json!({"id": "y", "cancel": true}),
        json!({"tool": "bash"}),
    ] {
        session.send(&line);
    }
    let unknown = session.call("no_such_tool", json!({}));
    assert_eq!(unknown.kind(), "unknown_tool");
    let invalid = session.call("bash", json!({"command": "true", "timeout": 0}));
    assert_eq!(invalid.kind(), "invalid_input");
    assert_eq!(session.bash("echo on").success(), "on\n");
    assert!(session.close(LIMIT).success());
}

place_test!(an_executor_that_listens_serves_several_sessions);
/// The socket of an executor that listens serves two clients with a session each.
fn an_executor_that_listens_serves_several_sessions(place: Place) {
    let world = World::new(place);
    let folder = world.home.join("run");
    world.make_folder(&folder);
    set_mode(&folder, 0o700);
    let socket = folder.join("executor.sock");
    let mut listener = world.program("lazaret-executor");
    let listener = listener.arg("listen").arg("--socket").arg(&socket);
    let mut listener = lazaret_tests::process::Running::start(listener);
    // Its name is there before it listens. This client leaves at once, which must not be the end of the service.
    let up = lazaret_tests::process::until(LIMIT, || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    assert!(
        up,
        "nobody listens; the executor {:?}",
        listener.child.try_wait()
    );
    let session = || {
        let mut command = world.lazaret("session");
        Session::start(command.arg("--socket").arg(&socket))
    };
    let (mut one, mut two) = (session(), session());
    assert_eq!(one.bash("echo one").success(), "one\n");
    assert_eq!(two.bash("echo two").success(), "two\n");
    assert!(one.close(LIMIT).success());
    assert_eq!(two.bash("echo still").success(), "still\n");
    assert_eq!(session().bash("echo three").success(), "three\n");
    drop(two);
    lazaret_tests::process::kill_tree(listener.pid());
    let _ = listener.child.wait();
}
