//! Commands: how they end, what they print, what feeds them, what stops them.

use lazaret_tests::process::{self, Running, contains, figure, until};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, Session, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

place_test!(the_exit_code_is_the_commands_own);
fn the_exit_code_is_the_commands_own(place: Place) {
    let world = World::new(place);
    world.put("not-executable", "text");
    for (script, code) in [
        ("exit 0", 0),
        ("exit 42", 42),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
    ] {
        assert_eq!(world.in_cell(script).code(), code, "{script}");
    }
    assert_eq!(
        run(&mut world.lazaret_run(&["no-such-program"]), LIMIT).code(),
        127
    );
    assert_eq!(
        run(&mut world.lazaret_run(&["./not-executable"]), LIMIT).code(),
        126
    );
    assert_eq!(
        run(&mut world.lazaret_run(&["sh", "-c", "exit 5"]), LIMIT).code(),
        5
    );
}

place_test!(directory_or_program_that_cannot_be_used_is_named);
fn directory_or_program_that_cannot_be_used_is_named(place: Place) {
    let world = World::new(place);
    let file = world.put("file", "text");
    let locked = world.project.join("locked");
    world.make_folder(&locked);
    std::fs::set_permissions(&locked, Permissions::from_mode(0o600)).unwrap();
    let mut session = Session::open(&world);
    let mut called = |tool: &str, input: Value| {
        let answer = session.call(tool, input);
        (
            answer.kind().to_owned(),
            answer.result["error"]["message"]
                .as_str()
                .unwrap_or("")
                .to_owned(),
        )
    };
    let entered = |path: &Path, why: &str| {
        format!("the directory {} cannot be entered: {why}", path.display())
    };
    let missing = entered(
        &world.project.join("nodir"),
        "No such file or directory (os error 2)",
    );
    let of_bash = |directory: &str| json!({"command": "true", "cwd": directory});
    assert_eq!(
        called("bash", of_bash("nodir")),
        ("not_found".into(), missing.clone())
    );
    assert_eq!(
        called("run_tests", json!({"path": "nodir"})),
        ("not_found".into(), missing)
    );
    let no_directory = entered(&file, "Not a directory (os error 20)");
    assert_eq!(
        called("bash", of_bash("file")),
        ("not_found".into(), no_directory)
    );
    let closed = entered(&locked, "Permission denied (os error 13)");
    let (kind, message) = called("bash", of_bash("locked"));
    assert_eq!(
        (kind.as_str(), message.starts_with(&closed)),
        ("io", true),
        "{message}"
    );
    let (kind, message) = called("bash", json!({"command": ["./file"]}));
    assert_eq!(
        (
            kind.as_str(),
            message.starts_with("\"./file\" cannot be started")
        ),
        ("io", true),
        "{message}"
    );
    // As a shell says it.
    assert_eq!(run(&mut world.lazaret_run(&[""]), LIMIT).code(), 127);
}

place_test!(arguments_arrive_as_they_are);
fn arguments_arrive_as_they_are(place: Place) {
    let world = World::new(place);
    let words = [
        "printf",
        "[%s]",
        "a b",
        "",
        "$HOME",
        "*",
        "two\nlines",
        "--timeout",
    ];
    let finished = run(&mut world.lazaret_run(&words), LIMIT);
    assert_eq!(
        finished.success(),
        "[a b][][$HOME][*][two\nlines][--timeout]"
    );
}

place_test!(the_two_streams_stay_apart);
fn the_two_streams_stay_apart(place: Place) {
    let world = World::new(place);
    let finished = world.in_cell("echo out; echo err >&2; exit 3");
    assert_eq!(
        (finished.expect(3).as_str(), finished.errors().as_str()),
        ("out\n", "err\n")
    );
    let mut session = Session::open(&world);
    let answer = session.bash("echo out; echo err >&2; exit 3");
    assert_eq!(
        (answer.kind(), answer.exit_code()),
        ("exit_nonzero", Some(3)),
        "{}",
        answer.result
    );
    assert_eq!(streamed(&answer.events, "stdout"), "out\n");
    assert_eq!(streamed(&answer.events, "stderr"), "err\n");
}

place_test!(output_comes_while_the_command_runs_and_in_order);
fn output_comes_while_the_command_runs_and_in_order(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    // It goes on once the first line has been seen.
    let command = "echo 1; until [ -e seen ]; do sleep 0.05; done; echo 2; sleep 0.3; echo 3";
    let id = session.start_call("bash", json!({"command": command}));
    let first = session.event(&id, LIMIT).unwrap();
    assert_eq!(
        (&first["event"], &first["chunk"]),
        (&json!("output"), &json!("1\n"))
    );
    world.put("seen", "");
    let answer = session.answer_within(&id, LIMIT);
    assert_eq!(streamed(&answer.events, "stdout"), "2\n3\n");
    assert_eq!(answer.success(), "1\n2\n3\n");
}

place_test!(bytes_that_are_no_text_survive);
fn bytes_that_are_no_text_survive(place: Place) {
    let world = World::new(place);
    let every = "python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)))'";
    assert_eq!(world.in_cell(every).stdout, (0..=255).collect::<Vec<u8>>());
    let mut session = Session::open(&world);
    let answer = session.bash(r"printf 'a\377b'");
    // The last word comes by itself: it could be the beginning of a secret until the output ends.
    let text = ["chunkBase64", "chunk"].map(|name| {
        let parts = answer
            .events
            .iter()
            .filter_map(|event| event[name].as_str());
        parts.collect::<Vec<_>>()
    });
    assert_eq!(text, [["Yf8="], ["b"]], "{:?}", answer.events);
    assert_eq!(answer.text(), "a\u{fffd}b");
}

place_test!(a_prompt_without_white_space_is_shown_while_the_program_waits);
fn a_prompt_without_white_space_is_shown_while_the_program_waits(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let waits = "printf Password:; until [ -e go ]; do sleep 0.05; done; echo done";
    let id = session.start_call("bash", json!({ "command": waits }));
    let mut shown = || {
        let event = session.event(&id, LIMIT)?;
        event["chunk"].as_str().map(str::to_owned)
    };
    assert_eq!(shown().as_deref(), Some("Password:"));
    world.put("go", "");
    let answer = session.answer_within(&id, LIMIT);
    assert_eq!(answer.text(), "Password:done\n");
}

place_test!(long_output_keeps_both_ends_and_all_of_it_in_a_file);
fn long_output_keeps_both_ends_and_all_of_it_in_a_file(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let answer = session.bash("seq 1 200000");
    let text = answer.success();
    assert!(
        text.starts_with("1\n2\n3\n") && text.trim_end().ends_with("199999\n200000"),
        "{:.300}",
        text
    );
    assert!(text.len() < 300_000, "{} bytes of result", text.len());
    assert!(text.contains("[truncated: total="), "no note in the result");
    let spill = &answer.result["metadata"]["spill"];
    assert_eq!(spill["whole"], true, "{}", answer.result["metadata"]);
    let path = spill["path"].as_str().unwrap();
    let line = session.call(
        "file_read",
        json!({"path": path, "offset": 123_456, "limit": 1}),
    );
    assert_eq!(line.success().trim_end(), "123456");
    let all: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(std::fs::read_to_string(path).unwrap(), all);
    let streamed = streamed(&answer.events, "stdout");
    assert_eq!(
        streamed.len(),
        all.len(),
        "the live output is not the whole"
    );
}

place_test!(the_working_directory_is_the_project_or_where_it_was_asked_to_be);
fn the_working_directory_is_the_project_or_where_it_was_asked_to_be(place: Place) {
    let world = World::new(place);
    world.put("deep/down/file", "");
    assert_eq!(
        world.in_cell("pwd").success().trim(),
        world.project.to_str().unwrap()
    );
    let mut session = Session::open(&world);
    let mut pwd = |cwd: &str| session.call("bash", json!({"command": "pwd", "cwd": cwd}));
    assert_eq!(
        pwd("deep/down").success().trim(),
        world.project.join("deep/down").to_str().unwrap()
    );
    assert_eq!(
        pwd("central:").success().trim(),
        world.central.to_str().unwrap()
    );
    assert_eq!(pwd("../outside").kind(), "violation");
    assert!(!pwd("no/such/folder").ok());
}

place_test!(a_dialogue_goes_on_for_as_long_as_both_want);
fn a_dialogue_goes_on_for_as_long_as_both_want(place: Place) {
    let world = World::new(place);
    let mut cat = Running::start(&mut world.lazaret_run(&["cat"]));
    let mut stdin = cat.child.stdin.take().unwrap();
    for word in ["first\n", "second\n", "third\n"] {
        stdin.write_all(word.as_bytes()).unwrap();
        cat.wait_for(word, LIMIT);
    }
    drop(stdin);
    assert_eq!(cat.finish(LIMIT).success(), "first\nsecond\nthird\n");
}

place_test!(a_megabyte_through_a_pipe_comes_back_whole);
/// More than any window or pipe holds, both ways at once.
fn a_megabyte_through_a_pipe_comes_back_whole(place: Place) {
    let world = World::new(place);
    let input: Vec<u8> = (0..3_000_000u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let finished = lazaret_tests::run_with_input(&mut world.lazaret_run(&["cat"]), &input, LIMIT);
    finished.success();
    assert!(
        finished.stdout == input,
        "{} bytes came back of {}",
        finished.stdout.len(),
        input.len()
    );
}

place_test!(a_wall_limit_ends_the_command_in_time);
fn a_wall_limit_ends_the_command_in_time(place: Place) {
    let world = World::new(place);
    let marker = long_sleep();
    let mut command = world.lazaret("run");
    command
        .args(["--timeout", "1", "--", "bash", "-c"])
        .arg(format!("trap '' TERM; sleep {marker}; sleep {marker}"));
    let finished = run(&mut command, LIMIT);
    finished.expect(124);
    assert_in_time(finished.took);
    process::assert_gone(&format!("sleep {marker}"), LIMIT);
    let mut session = Session::open(&world);
    let started = Instant::now();
    let answer = session.call(
        "bash",
        json!({"command": "echo begun; sleep 300", "timeout": 1}),
    );
    assert_in_time(started.elapsed());
    assert_eq!(answer.kind(), "timeout");
    assert!(
        answer.text().contains("begun"),
        "the output before the limit is lost: {}",
        answer.result
    );
}

/// Not before its second, and before the command would have ended: no answer takes longer than `LIMIT`.
fn assert_in_time(took: Duration) {
    let in_time = Duration::from_millis(950)..=LIMIT;
    assert!(
        in_time.contains(&took),
        "a limit of one second took {took:?}"
    );
}

place_test!(an_idle_limit_ends_only_the_silent);
fn an_idle_limit_ends_only_the_silent(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let started = Instant::now();
    let silent = session.call(
        "bash",
        json!({"command": "echo a; sleep 300", "idle_timeout": 1}),
    );
    assert_eq!(silent.kind(), "idle_timeout");
    assert_in_time(started.elapsed());
    // Longer as a whole than its limit, and never silent for as long; on a busy machine a short limit may end it all the same.
    let is_spared = |limit: u64| {
        let count = limit * 13;
        let chatty = format!("for i in $(seq {count}); do echo $i; sleep 0.1; done");
        let input = json!({"command": chatty, "idle_timeout": limit, "timeout": LIMIT.as_secs()});
        let (begun, answer) = (Instant::now(), session.call("bash", input));
        assert!(["", "idle_timeout"].contains(&answer.kind()), "{answer:?}");
        answer.text().ends_with(&format!("\n{count}\n"))
            && begun.elapsed() > Duration::from_secs(limit)
    };
    assert!([3, 15, 50].into_iter().any(is_spared));
}

place_test!(a_cancelled_call_ends_at_once_and_leaves_nothing);
fn a_cancelled_call_ends_at_once_and_leaves_nothing(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let marker = long_sleep();
    let command = format!("trap '' INT TERM; setsid sleep {marker} & sleep {marker}");
    let id = session.start_call("bash", json!({"command": command}));
    let sleeps = format!("sleep {marker}");
    assert!(until(LIMIT, || process::with_marker(&sleeps).len() >= 2));
    session.cancel(&id);
    let answer = session.answer_within(&id, LIMIT);
    assert_eq!(answer.kind(), "cancelled");
    process::assert_gone(&sleeps, Duration::ZERO);
    assert_eq!(session.bash("echo on").success(), "on\n");
}

place_test!(many_calls_run_at_once);
fn many_calls_run_at_once(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    // Each waits for all.
    let command = |n| {
        format!(
            "touch running-{n}; until [ $(ls -d running-* | wc -l) = 20 ]; do sleep 0.1; done; echo {n}"
        )
    };
    let ids: Vec<(usize, String)> = (0..20)
        .map(|n| {
            (
                n,
                session.start_call("bash", json!({"command": command(n)})),
            )
        })
        .collect();
    for (n, id) in ids {
        assert_eq!(
            session.answer_within(&id, LIMIT).success(),
            format!("{n}\n")
        );
    }
}

place_test!(processes_left_behind_are_dead_when_the_command_returns);
/// Criterion 3 of the main job.
fn processes_left_behind_are_dead_when_the_command_returns(place: Place) {
    let world = World::new(place);
    let marker = long_sleep();
    let script = format!("sleep {marker} & setsid sleep {marker} & exit 0");
    let finished = run(&mut world.lazaret_run(&["sh", "-c", &script]), LIMIT);
    process::assert_gone(&format!("sleep {marker}"), Duration::ZERO);
    finished.success();
    assert!(finished.closed, "something holds the output");
    let mut session = Session::open(&world);
    session.bash(&script).success();
    process::assert_gone(&format!("sleep {marker}"), Duration::ZERO);
}

place_test!(a_cell_is_used_once);
/// Calls do not see each other, nor what an earlier one left in `/tmp`.
fn a_cell_is_used_once(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    session.bash("cd /; export LEFT=1; umask 077").success();
    assert_eq!(
        session.bash("pwd; echo [$LEFT]; umask").success(),
        format!("{}\n[]\n0022\n", world.project.display())
    );
}

place_test!(every_result_says_what_it_cost_and_what_held);
fn every_result_says_what_it_cost_and_what_held(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    assert_eq!(session.ready["tier"], place.tier.name());
    let answer = session.bash("head -c 1000000 /dev/zero | sha256sum >/dev/null; echo done");
    let metadata = &answer.result["metadata"];
    assert_eq!(metadata["exitCode"], 0);
    let usage = |name: &str| metadata["usage"][name].as_u64().unwrap_or(0);
    assert!(
        usage("wallUs") > 1000 && usage("peakKib") > 500 && usage("stdoutBytes") == 5,
        "{metadata}"
    );
    let layers: Vec<&str> = metadata["layers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for layer in [
        "environment",
        "descriptors",
        "rlimits",
        "capabilities",
        "no-new-privileges",
        "landlock-files",
        "seccomp",
    ] {
        assert!(layers.contains(&layer), "{layer} is not in {layers:?}");
    }
    let namespaced = place.tier == broker_protocol::Tier::Namespaced;
    for layer in [
        "user-namespace",
        "mount-namespace",
        "pid-namespace",
        "network-namespace",
        "ipc-namespace",
    ] {
        assert_eq!(layers.contains(&layer), namespaced, "{layer} in {layers:?}");
    }
}

place_test!(ordinary_shell_work_is_not_disturbed);
/// A command with children, pipes and its own signals is an ordinary thing.
fn ordinary_shell_work_is_not_disturbed(place: Place) {
    let world = World::new(place);
    let script = "set -e; f=$(mktemp); echo text > $f; cat $f | tr a-z A-Z | tee out.txt; \
                      (sleep 100 & kill $!; wait $!) || echo ended $?; test -w /dev/null; ls /proc/self/fd >/dev/null; \
                      date >/dev/null; whoami || id -u >/dev/null";
    let text = world.in_cell(script).success();
    assert!(
        text.starts_with("TEXT\n") && text.contains("ended 143"),
        "{text}"
    );
    assert_eq!(world.get("out.txt"), b"TEXT\n");
}

place_test!(a_flood_of_output_costs_little_memory, ordinary_only);
/// Criterion 4 of the main job, with a tenth of its bytes; the benchmark does it with all.
fn a_flood_of_output_costs_little_memory(place: Place) {
    let world = World::new(place);
    let mut command = world.cell("yes | head -c 100000000");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id() as i32;
    let mut peak = 0;
    let over = until(LIMIT, || {
        let ours = process::tree(pid)
            .into_iter()
            .filter(|process| process.command.contains("lazaret"));
        // Without pages of their files: those are of the build, and shared.
        let now = ours
            .filter_map(|process| figure(process.pid, "status", "RssAnon"))
            .sum();
        peak = peak.max(now);
        child.try_wait().unwrap().is_some()
    });
    process::kill_tree(pid);
    assert!(over, "not over after {LIMIT:?}");
    assert!(child.wait().unwrap().success());
    assert!(
        peak > 0 && peak < 32 * 1024,
        "the peak of all processes together is {peak} KiB"
    );
}

/// Text of one stream; bytes that came as base64 are left out.
fn streamed(events: &[Value], stream: &str) -> String {
    let of_stream = events
        .iter()
        .filter(|event| event["event"] == "output" && event["stream"] == stream);
    of_stream
        .filter_map(|event| event["chunk"].as_str())
        .collect()
}

once_test!(the_search_for_survivors_finds_them);
/// The inner `sleep` must not have been found in the outer command line.
fn the_search_for_survivors_finds_them() {
    let marker = long_sleep();
    let mut sleep = std::process::Command::new("sleep")
        .arg(&marker)
        .spawn()
        .unwrap();
    assert!(until(LIMIT, || !process::with_marker(&format!(
        "sleep {marker}"
    ))
    .is_empty()));
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    process::assert_gone(&marker, Duration::ZERO);
    assert!(contains(b"abc", b"bc") && !contains(b"abc", b"bd"));
}

place_test!(a_command_of_a_megabyte_runs_as_it_is);
/// Longer than one argument may be for the kernel, and than a message that a socket takes.
fn a_command_of_a_megabyte_runs_as_it_is(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    for (sign, count) in [("a", 131_072), ("é", 450_000)] {
        let script = format!(
            "x='{}'\necho ${{#x}} $# $0 \"$@\"; exit 3",
            sign.repeat(count)
        );
        let done = session.bash(&script);
        assert_eq!(
            done.result["metadata"]["exitCode"],
            3,
            "{sign}: {}",
            done.text()
        );
        assert!(
            done.text().contains(&format!("{count} 0 bash\n")),
            "{sign}: {}",
            done.text()
        );
    }
    let words: Vec<String> = ["bash", "-c", "echo $# ${#1} ${#8}", "x"]
        .map(str::to_owned)
        .into();
    let words = [words, vec!["b".repeat(120_000); 8]].concat();
    let done = session.call("bash", json!({"command": words}));
    assert_eq!(done.success().trim(), "8 120000 120000");
    let many = [
        vec!["bash".to_owned(), "-c".into(), "echo $#".into(), "x".into()],
        vec!["y".into(); 60_000],
    ]
    .concat();
    assert_eq!(
        session
            .call("bash", json!({"command": many}))
            .success()
            .trim(),
        "60000"
    );
    let over = session.call("bash", json!({"command": ["true", "c".repeat(131_072)]}));
    assert_eq!(over.kind(), "invalid_input", "{}", over.result);
    session.bash("echo still here").success();
}
