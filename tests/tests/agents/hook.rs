//! `lazaret hook`: what an agent runs after its answer is in a cell.

use lazaret_tests::programs;
use lazaret_tests::{Finished, LIMIT, Place, World, once_test, place_test, run, run_with_input};
use serde_json::{Value, json};

fn hook(world: &World, agent: &str, arguments: &[&str], call: impl ToString) -> (Finished, Value) {
    let mut command = world.program("lazaret");
    let finished = run_with_input(
        command.args(["hook", agent]).args(arguments),
        call.to_string().as_bytes(),
        LIMIT,
    );
    let answer = serde_json::from_slice(&finished.stdout).unwrap_or_default();
    (finished, answer)
}

fn claude(world: &World, command: &str) -> Value {
    json!({
        "hook_event_name": "PreToolUse", "cwd": world.project, "permission_mode": "default",
        "tool_name": "Bash", "tool_input": { "command": command, "timeout": 1000 },
    })
}

/// Runs the answer as an agent does: it gives the command to a shell of the host.
fn run_answered(world: &World, command: &str) -> Finished {
    // The filter of the flat tier, if this is one, around the host's bash.
    let ours = world.program("lazaret-bash");
    let mut host = match ours
        .get_program()
        .to_string_lossy()
        .ends_with("without-namespaces")
    {
        true => {
            let mut host = world.host(ours.get_program());
            host.arg("/bin/bash");
            host
        }
        false => world.host("bash"),
    };
    run(host.args(["-c", command]), LIMIT)
}

place_test!(command_that_the_hook_returns_runs_in_a_cell);
fn command_that_the_hook_returns_runs_in_a_cell(place: Place) {
    let world = World::new(place);
    run(world.host("git").args(["init", "-q"]), LIMIT).success();
    let attack = format!(
        "cat ~/.ssh/id_rsa '{}'/secret.txt; touch ../outside/new; env | grep CANARY; echo 'it'\"'\"'s' $((1+1)); pwd -P > made",
        world.outside.display()
    );
    let plain = world.on_host(&attack);
    assert!(
        plain.text().contains(&world.canary) && world.outside.join("new").exists(),
        "the attack works outside"
    );
    std::fs::remove_file(world.outside.join("new")).unwrap();
    let calls = [
        (
            "claude",
            claude(&world, &attack),
            "/hookSpecificOutput/updatedInput",
        ),
        (
            "codex",
            claude(&world, &attack),
            "/hookSpecificOutput/updatedInput",
        ),
        (
            "gemini",
            json!({ "cwd": world.project, "tool_name": "run_shell_command", "tool_input": { "command": attack } }),
            "/hookSpecificOutput/tool_input",
        ),
        (
            "crush",
            json!({ "cwd": world.project, "tool_name": "bash", "tool_input": { "command": attack } }),
            "/updated_input",
        ),
        (
            "copilot",
            json!({ "cwd": world.project, "toolName": "bash", "toolArgs": json!({ "command": attack }).to_string() }),
            "/modifiedArgs",
        ),
    ];
    for (agent, call, field) in calls {
        std::fs::remove_file(world.project.join("made")).unwrap();
        let (finished, answer) = hook(&world, agent, &[], &call);
        finished.success();
        let command = answer.pointer(field).unwrap_or(&Value::Null)["command"]
            .as_str()
            .unwrap_or_default();
        let finished = run_answered(&world, command);
        assert!(
            finished.text().contains("it's 2\n"),
            "{agent}: {command}\n{}",
            finished.errors()
        );
        assert!(
            !finished.text().contains("CANARY"),
            "{agent}: {}",
            finished.text()
        );
        assert!(!world.outside.join("new").exists(), "{agent}");
        assert_eq!(
            world.get("made"),
            format!("{}\n", world.project.display()).as_bytes()
        );
    }
}

once_test!(an_agent_that_takes_no_other_command_runs_none);
/// Qwen Code takes no other input from a hook: what is not denied would run as it is.
fn an_agent_that_takes_no_other_command_runs_none() {
    let world = World::new(Place::any());
    let call = json!({ "cwd": world.project, "tool_name": "run_shell_command", "tool_input": { "command": "ls" } });
    let (finished, answer) = hook(&world, "qwen", &[], call);
    finished.success();
    let output = &answer["hookSpecificOutput"];
    assert_eq!(
        (&output["permissionDecision"], output.get("updatedInput")),
        (&json!("deny"), None),
        "{answer}"
    );
}

once_test!(the_policy_decides);
fn the_policy_decides() {
    let world = World::new(Place::any());
    let rules = "version = 1\n[[rule]]\ntool = \"bash\"\naction = \"deny\"\nprogram = \"git\"\nargs = [\"push\"]\nwhy = \"Not from here.\"\n";
    let said = |arguments: &[&str], command: &str| {
        let (finished, answer) = hook(&world, "claude", arguments, claude(&world, command));
        finished.success();
        let output = &answer["hookSpecificOutput"];
        (
            output["permissionDecision"].clone(),
            output["permissionDecisionReason"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        )
    };
    assert_eq!(
        said(&[], "git push").0,
        "allow",
        "nothing is asked unless a trust is named"
    );
    assert_eq!(said(&["--trust", "guided"], "git push").0, "ask");
    assert_eq!(said(&["--trust", "guided"], "ls").0, "ask");
    let mut planning = claude(&world, "ls");
    planning["permission_mode"] = json!("plan");
    assert_eq!(
        hook(&world, "claude", &[], planning).1["hookSpecificOutput"]["permissionDecision"],
        "ask"
    );
    // The policy is where the account's home is, or where this variable says.
    world.write(&world.home.join(".config/lazaret/policy.toml"), rules);
    let mut command = world.program("lazaret");
    command
        .env("XDG_CONFIG_HOME", world.home.join(".config"))
        .args(["hook", "claude"]);
    let finished = run_with_input(
        &mut command,
        claude(&world, "git push").to_string().as_bytes(),
        LIMIT,
    );
    let answer: Value = serde_json::from_slice(&finished.stdout).unwrap();
    let output = &answer["hookSpecificOutput"];
    assert_eq!(
        output["permissionDecision"],
        "deny",
        "{answer} {}",
        finished.errors()
    );
    assert!(
        output["permissionDecisionReason"]
            .as_str()
            .unwrap()
            .contains("Not from here."),
        "{answer}"
    );
    // A project that is none, and a directory that is not in it.
    for directory in [
        json!("/"),
        json!("/none/such"),
        json!(world.home.join(".ssh")),
    ] {
        let mut call = claude(&world, "ls");
        call["cwd"] = directory.clone();
        let (finished, answer) = hook(
            &world,
            "claude",
            &["--project", world.project.to_str().unwrap()],
            call,
        );
        finished.success();
        assert_eq!(
            answer["hookSpecificOutput"]["permissionDecision"], "deny",
            "{directory}: {answer}"
        );
    }
}

once_test!(a_command_that_starts_lazaret_is_refused);
fn a_command_that_starts_lazaret_is_refused() {
    let world = World::new(Place::any());
    let decision = |command: &str| {
        let (finished, answer) = hook(&world, "claude", &[], claude(&world, command));
        finished.success();
        answer["hookSpecificOutput"]["permissionDecision"].clone()
    };
    for command in [
        "lazaret run --profile dev -- cat /etc/shadow",
        "/usr/bin/lazaret call bash '{}'",
        "true && lazaret-bash -c ls",
        "cd sub; LAZARET_PROJECT=/ lazaret-bash 'ls'",
        "echo $(lazaret approve)",
    ] {
        assert_eq!(decision(command), "deny", "{command}");
    }
    for command in ["grep lazaret README.md", "cd lazaret && ls", "echo lazaret"] {
        assert_eq!(decision(command), "allow", "{command}");
    }
}

once_test!(a_command_is_read_within_bounds);
/// The longest command, of what takes the reader the most steps for each byte, has its answer; a longer one is refused. What `eval` runs
/// and is not read is doubted, like what any other program runs.
fn a_command_is_read_within_bounds() {
    let world = World::new(Place::any());
    let rules = "version = 1\n[[rule]]\ntool = \"bash\"\naction = \"deny\"\nprogram = \"git\"\nwhy = \"Not from here.\"\n";
    world.write(&world.home.join(".config/lazaret/policy.toml"), rules);
    let decision = |command: &str| {
        let mut hook = world.program("lazaret");
        hook.env("XDG_CONFIG_HOME", world.home.join(".config"))
            .args(["hook", "claude", "--trust", "guided"]);
        let finished = run_with_input(
            &mut hook,
            claude(&world, command).to_string().as_bytes(),
            LIMIT,
        );
        let answer: Value = serde_json::from_str(&finished.success()).unwrap();
        answer["hookSpecificOutput"]["permissionDecision"].clone()
    };
    let flood = "eval ".repeat(200_000);
    assert_eq!(decision(&flood), "ask");
    assert_eq!(decision(&format!("{flood} ")), "deny");
    let padded = |length: usize| format!("eval 'git push; : {}'", "x".repeat(length));
    assert_eq!(decision(&padded(10)), "deny", "by the rule");
    assert_eq!(decision(&padded(70_000)), "ask", "the rule may apply");
}

once_test!(malformed_hook_input_is_refused);
fn malformed_hook_input_is_refused() {
    let world = World::new(Place::any());
    for call in [
        "",
        "{",
        "[]",
        "{\"tool_name\":\"Bash\"}",
        "{\"tool_name\":\"Bash\",\"tool_input\":{\"command\":[\"ls\"]}}",
    ] {
        let (finished, answer) = hook(&world, "claude", &[], call);
        finished.expect(2);
        assert_eq!(
            answer["hookSpecificOutput"]["permissionDecision"], "deny",
            "{call}: {answer}"
        );
        assert!(
            finished.errors().contains("not understood"),
            "{}",
            finished.errors()
        );
    }
    let long = "x".repeat(4 << 20);
    let at_most = claude(&world, "").to_string().len();
    let (finished, answer) = hook(&world, "claude", &[], claude(&world, &long[at_most..]));
    finished.success();
    assert_eq!(
        answer["hookSpecificOutput"]["permissionDecision"], "deny",
        "longer than a command may be"
    );
    hook(&world, "claude", &[], claude(&world, &long))
        .0
        .expect(2);
    let (finished, _) = hook(
        &world,
        "claude",
        &[],
        json!({ "tool_name": "Read", "tool_input": {} }),
    );
    assert_eq!(finished.success(), "", "no answer about what is no command");
}

once_test!(a_hook_that_fails_is_a_no_to_every_agent);
/// Agents run the command as it is where their hook ends in any way but these: a no on standard output, or the code 2.
fn a_hook_that_fails_is_a_no_to_every_agent() {
    let world = World::new(Place::any());
    let settings = world.home.join(".config");
    let policy = settings.join("lazaret/policy.toml");
    let like_claude = claude(&world, "ls");
    let call = |tool: &str| json!({ "cwd": world.project, "tool_name": tool, "tool_input": { "command": "ls" } });
    let copilot =
        json!({ "cwd": world.project, "toolName": "bash", "toolArgs": "{\"command\":\"ls\"}" });
    let agents = [
        (
            "claude",
            like_claude.clone(),
            "/hookSpecificOutput/permissionDecision",
        ),
        (
            "codex",
            like_claude,
            "/hookSpecificOutput/permissionDecision",
        ),
        ("gemini", call("run_shell_command"), "/decision"),
        (
            "qwen",
            call("run_shell_command"),
            "/hookSpecificOutput/permissionDecision",
        ),
        ("crush", call("bash"), "/decision"),
        ("copilot", copilot, "/permissionDecision"),
    ];
    for (agent, call, decision) in agents {
        let answer = |arguments: &[&str], variable: (&str, &str), call: &str| {
            let mut command = world.program("lazaret");
            command
                .env("XDG_CONFIG_HOME", &settings)
                .env(variable.0, variable.1);
            run_with_input(
                command.args(["hook", agent]).args(arguments),
                call.as_bytes(),
                LIMIT,
            )
        };
        let refused = |why: &str, finished: Finished| {
            finished.expect(2);
            let answer: Value = serde_json::from_slice(&finished.stdout).unwrap_or_default();
            assert_eq!(
                answer.pointer(decision),
                Some(&json!("deny")),
                "{agent}: {answer}"
            );
            assert!(
                finished.errors().contains(why),
                "{agent}: {}",
                finished.errors()
            );
        };
        let (text, nothing) = (call.to_string(), ("A", "b"));
        world.write(&policy, "version = 1\ndefualt_profile = \"auto\"\n");
        refused("defualt_profile", answer(&[], nothing, &text));
        let other = answer(
            &[],
            nothing,
            &text
                .replace("\"bash\"", "\"x\"")
                .replace("Bash", "x")
                .replace("run_shell_command", "x"),
        );
        assert_eq!(other.success(), "", "no answer about what is no command");
        std::fs::remove_file(&policy).unwrap();
        refused(
            "LAZARET_TRUST",
            answer(&[], ("LAZARET_TRUST", "nosuch"), &text),
        );
        refused("nosuch", answer(&[], ("LAZARET_PROFILE", "nosuch"), &text));
        refused("nosuch", answer(&["--profile", "nosuch"], nothing, &text));
        // An answer that cannot be written, or that nobody reads.
        let lazaret = programs::path("lazaret");
        for script in [
            "\"$0\" \"$@\" > /dev/full",
            "trap '' PIPE; (sleep 0.2; \"$0\" \"$@\"; echo $? >&2) | true",
        ] {
            let mut host = world.host("bash");
            host.args(["-o", "pipefail", "-c", script])
                .arg(&lazaret)
                .args(["hook", agent]);
            let finished = run_with_input(&mut host, text.as_bytes(), LIMIT);
            assert!(
                finished.code() == 2 || finished.errors().ends_with("\n2\n"),
                "{agent}: {}",
                finished.errors()
            );
        }
    }
}

once_test!(the_environment_decides_as_it_does_for_the_shell);
fn the_environment_decides_as_it_does_for_the_shell() {
    let world = World::new(Place::any());
    let answer = |arguments: &[&str], variable: (&str, &str), command: &str| {
        let mut hook = world.program("lazaret");
        hook.env(variable.0, variable.1)
            .args(["hook", "claude"])
            .args(arguments);
        let finished = run_with_input(
            &mut hook,
            claude(&world, command).to_string().as_bytes(),
            LIMIT,
        );
        finished.success();
        let answer: Value = serde_json::from_slice(&finished.stdout).unwrap();
        answer["hookSpecificOutput"].clone()
    };
    let read_only = ("LAZARET_PROFILE", "read-only");
    let touched = |variable: (&str, &str), command: &str| {
        let _ = std::fs::remove_file(world.project.join("made"));
        let ours = world.program("lazaret-bash");
        let mut host = world.host("bash");
        host.env(variable.0, variable.1).envs(
            ours.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        run(host.args(["-c", command]), LIMIT);
        world.project.join("made").exists()
    };
    let command = |answer: &Value| {
        answer["updatedInput"]["command"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let usual = answer(&[], ("A", "b"), "touch made");
    assert!(touched(("A", "b"), &command(&usual)), "{usual}");
    let closed = answer(&[], read_only, "touch made");
    assert_eq!(closed["permissionDecision"], "allow", "{closed}");
    assert!(!touched(read_only, &command(&closed)), "{closed}");
    let named = answer(&["--profile", "default"], read_only, "touch made");
    assert!(
        touched(read_only, &command(&named)),
        "an option is nearer: {named}"
    );
    for (trust, decision) in [
        ("guided", "ask"),
        ("supervised", "ask"),
        ("autonomous", "allow"),
    ] {
        let answer = answer(&[], ("LAZARET_TRUST", trust), "touch made");
        assert_eq!(answer["permissionDecision"], decision, "{trust}: {answer}");
    }
    let named = answer(
        &["--trust", "autonomous"],
        ("LAZARET_TRUST", "guided"),
        "touch made",
    );
    assert_eq!(
        named["permissionDecision"], "allow",
        "an option is nearer: {named}"
    );
}
