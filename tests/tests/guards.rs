//! The user's hooks guard the calls of every front end, and whatever is wrong with one refuses the call there too. What they may do to a
//! call, and what a hostile one gets, is tried in `chat::hooks`.

use lazaret_tests::process::{self, assert_gone};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{Finished, LIMIT, Place, Session, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

/// Refuses every call in whose input there is the word `secret`.
pub const GUARD: &str = r#"if grep -q secret; then echo '{"allow": false, "message": "not the secret"}'; else echo '{"allow": true}'; fi"#;

/// What a call is answered that it refused.
pub const BLOCKED: &str = "the hook `guard` has blocked this: not the secret";

fn settings(world: &World) -> PathBuf {
    world.home.join("config/lazaret")
}

/// The same command with the settings that [`guarded`] has written.
pub fn dressed(world: &World, mut command: Command) -> Command {
    command
        .env("XDG_CONFIG_HOME", world.home.join("config"))
        .env("XDG_DATA_HOME", world.home.join("data"));
    command
}

/// Writes a hook that is a script of bash, and accepts it.
#[track_caller]
pub fn guarded(world: &World, event: &str, script: &str, more: &str) {
    configure(world, event, script, more);
    let mut accept = dressed(world, world.program("lazaret"));
    run(
        accept.args(["chat-hooks", "accept", "--yes", "guard"]),
        LIMIT,
    )
    .success();
}

fn configure(world: &World, event: &str, script: &str, more: &str) {
    let program = settings(world).join("guard");
    world.write(&program, format!("#!/bin/bash\n{script}\n"));
    let entry = format!(
        "[[hooks]]\nname = 'guard'\nevent = '{event}'\nprogram = 'guard'\ntimeout_s = 30\n{more}\n"
    );
    world.write(&settings(world).join("agent.toml"), entry);
}

fn call(world: &World, tool: &str, input: &Value) -> Finished {
    run(&mut dressed(world, world.lazaret_call(tool, input)), LIMIT)
}

fn shell(world: &World, script: &str) -> Finished {
    let mut shell = dressed(world, world.program("lazaret-bash"));
    run(shell.args(["-c", script]), LIMIT)
}

fn session(world: &World) -> Session {
    Session::start(&mut dressed(world, world.lazaret("session")))
}

fn made(world: &World, name: &str) -> bool {
    world.project.join(name).exists()
}

place_test!(single_calls_and_a_shells_commands_are_guarded);
fn single_calls_and_a_shells_commands_are_guarded(place: Place) {
    let world = World::new(place);
    guarded(&world, "before_tool", GUARD, "");
    let bash = |name: &str| json!({ "command": format!("touch {name}") });
    call(&world, "bash", &bash("one")).success();
    shell(&world, "touch two").success();
    assert!(made(&world, "one") && made(&world, "two"), "control");
    for refused in [
        call(&world, "bash", &bash("secret")),
        call(
            &world,
            "file_write",
            &json!({"path": "secret", "content": "x"}),
        ),
        shell(&world, "touch secret"),
    ] {
        assert!(refused.errors().contains(BLOCKED), "{}", refused.errors());
        refused.expect(126);
    }
    assert!(!made(&world, "secret"));
    // A person has typed this one, and is no one's guard.
    let mut typed = dressed(&world, world.cell("touch secret"));
    run(&mut typed, LIMIT).success();
    assert!(made(&world, "secret"));
}

place_test!(the_lines_of_a_session_are_guarded);
fn the_lines_of_a_session_are_guarded(place: Place) {
    let world = World::new(place);
    guarded(&world, "before_tool", GUARD, "");
    let mut session = session(&world);
    session.bash("touch one").success();
    assert!(made(&world, "one"), "control");
    let refused = session.bash("touch secret");
    assert_eq!(
        (refused.kind(), refused.text()),
        ("denied_policy", BLOCKED),
        "{:?}",
        refused.events
    );
    let hook = refused.events.iter().find(|event| event["event"] == "hook");
    let hook = &hook.expect("the client hears of it")["hook"];
    assert_eq!(
        (&hook["hook"], &hook["outcome"], &hook["toolName"]),
        (&json!("guard"), &json!("blocked"), &json!("bash"))
    );
    // In a batch, one of its calls is enough.
    let inner = |command: &str| json!({"tool": "Bash", "input": {"cmd": command}});
    let batch = json!({"invocations": [inner("touch two"), inner("touch secret")]});
    let refused = session.call("batch", batch);
    assert_eq!(refused.text(), BLOCKED);
    assert!(!made(&world, "two") && !made(&world, "secret"));
    // Refused calls are logged as well.
    session.close(LIMIT);
    let mut log = dressed(&world, world.program("lazaret"));
    let log = run(
        log.args(["log", "--json", "search", "guard", "--kind", "hook"]),
        LIMIT,
    )
    .success();
    assert_eq!(
        (
            log.matches("\"blocked\"").count(),
            log.matches("\"allowed\"").count()
        ),
        (2, 2),
        "{log}"
    );
}

once_test!(hook_without_a_valid_answer_refuses_the_call);
fn hook_without_a_valid_answer_refuses_the_call() {
    let cases = [
        ("exit 3", "has ended with code 3"),
        ("kill -9 $$", "was ended by signal 9"),
        ("echo yes", "gave no answer"),
        ("yes", "more than 1048576 bytes"),
    ];
    for (script, why) in cases {
        let world = World::new(Place::any());
        guarded(&world, "before_tool", script, "");
        let input = json!({"command": "touch made"});
        for refused in [call(&world, "bash", &input), shell(&world, "touch made")] {
            let errors = refused.errors();
            assert!(errors.contains(why), "{script}: {errors}");
            refused.expect(126);
        }
        let refused = session(&world).bash("touch made");
        assert_eq!(refused.kind(), "denied_policy", "{script}");
        assert!(refused.text().contains(why), "{script}: {}", refused.text());
        assert!(!made(&world, "made"), "{script}");
    }
}

once_test!(a_hook_that_hangs_refuses_the_call_at_its_time_and_leaves_nothing);
fn a_hook_that_hangs_refuses_the_call_at_its_time_and_leaves_nothing() {
    let world = World::new(Place::any());
    let marker = long_sleep();
    let script = format!("setsid sleep {marker} & sleep {marker}");
    configure(&world, "before_tool", &script, "");
    let agent = settings(&world).join("agent.toml");
    let text = std::fs::read_to_string(&agent).unwrap();
    world.write(&agent, text.replace("timeout_s = 30", "timeout_s = 4"));
    let mut accept = dressed(&world, world.program("lazaret"));
    run(
        accept.args(["chat-hooks", "accept", "--yes", "guard"]),
        LIMIT,
    )
    .success();
    for refused in [
        shell(&world, "touch made"),
        call(&world, "bash", &json!({"command": "touch made"})),
    ] {
        let errors = refused.errors();
        assert!(errors.contains("has not answered within 4 s"), "{errors}");
        refused.expect(126);
        assert_gone(&marker, LIMIT);
    }
    assert!(!made(&world, "made"));
    // A call that is cancelled takes its hook with it.
    let mut session = session(&world);
    let id = session.start_call("bash", json!({"command": "touch made"}));
    let runs = || !process::with_marker(&format!("sleep {marker}")).is_empty();
    process::until(LIMIT, runs);
    session.cancel(&id);
    assert!(!session.answer_within(&id, LIMIT).ok());
    assert_gone(&marker, LIMIT);
    assert!(!made(&world, "made"));
}

once_test!(wrong_hook_settings_let_no_call_through);
fn wrong_hook_settings_let_no_call_through() {
    let world = World::new(Place::any());
    let input = json!({"command": "touch made"});
    configure(&world, "before_tool", GUARD, "");
    for refused in [call(&world, "bash", &input), shell(&world, "touch made")] {
        let errors = refused.errors();
        assert!(errors.contains("chat-hooks accept guard"), "{errors}");
        refused.expect(126);
    }
    for wrong in ["[[hooks]]\nname = 'guard'\n", "hooks = 1\n", "[[hooks]\n"] {
        world.write(&settings(&world).join("agent.toml"), wrong);
        let refused = call(&world, "bash", &input);
        assert_ne!(refused.code(), 0, "{wrong}");
        let errors = refused.errors();
        assert!(errors.contains("line "), "{errors}");
        assert_eq!(shell(&world, "touch made").code(), 125, "{wrong}");
    }
    // A line may have a key in it.
    world.write(
        &settings(&world).join("agent.toml"),
        "[providers.a]\nkey = 'of-nobody'\n",
    );
    let errors = call(&world, "bash", &input).errors();
    assert!(
        errors.contains("line 2") && !errors.contains("of-nobody"),
        "{errors}"
    );
    assert!(!made(&world, "made"));
    // Without hooks the file is no matter of a shell's.
    world.write(&settings(&world).join("agent.toml"), "instructions = 'x'\n");
    shell(&world, "touch made").success();
}

once_test!(a_hook_rewrites_calls_and_withholds_results_everywhere);
fn a_hook_rewrites_calls_and_withholds_results_everywhere() {
    let world = World::new(Place::any());
    let other = r#"echo '{"allow": true, "input": {"command": "touch other"}}'"#;
    guarded(&world, "before_tool", other, "");
    let rewritten = session(&world).bash("touch wanted");
    assert!(
        rewritten
            .text()
            .contains("the hook `guard` has changed the input of bash"),
        "{}",
        rewritten.text()
    );
    shell(&world, "rm other; touch wanted").success();
    call(&world, "bash", &json!({"command": "touch wanted"})).success();
    assert!(made(&world, "other") && !made(&world, "wanted"));
    let more = r#"echo '{"allow": true, "input": {"command": "touch other", "timeout": 5}}'"#;
    guarded(&world, "before_tool", more, "");
    let refused = shell(&world, "touch wanted");
    assert!(
        refused.errors().contains("only the `command`"),
        "{}",
        refused.errors()
    );
    refused.expect(126);
    world.put("inside.txt", "the inside");
    let reader = r#"if grep -q 'the inside'; then echo '{"allow": false, "message": "withheld"}'; else echo '{"allow": true, "askAgent": "take care"}'; fi"#;
    guarded(&world, "after_tool", reader, "");
    let mut session = session(&world);
    let kept = session.call("file_read", json!({"path": "inside.txt"}));
    assert_eq!(kept.text(), "the hook `guard` has blocked this: withheld");
    let shown = session.bash("echo shown");
    assert!(shown.success().contains("shown"));
    assert!(shown.text().ends_with("[the hook `guard` says: take care]"));
    let told = shell(&world, "echo shown");
    assert!(told.errors().contains("[the hook `guard` says: take care]"));
    assert_eq!(told.success(), "shown\n");
}
