//! Protected names that a profile opens: what was named, and nothing else.

use lazaret_tests::{Finished, LIMIT, Place, Session, World, place_test, run};
use serde_json::json;

const CLOSED: [&str; 7] = [
    ".github/workflows/ci.yml",
    ".vscode/settings.json",
    ".vscode/tasks.json",
    ".git/config",
    ".claude/settings.json",
    ".envrc",
    "sub/.github/workflows/ci.yml",
];

fn world(place: Place) -> World {
    let world = World::new(place);
    run(world.host("git").args(["init", "-q", "."]), LIMIT).success();
    for name in CLOSED.iter().filter(|name| !name.starts_with(".git/")) {
        world.put(name, "old\n");
    }
    world.write(
        &world.home.join("settings/lazaret/policy.toml"),
        "version = 1\n[profile.own]\nopen = ['.github/workflows', '.vscode/settings.json']\n",
    );
    world
}

fn lazaret(world: &World, subcommand: &str, options: &[&str]) -> std::process::Command {
    let mut command = world.lazaret(subcommand);
    command
        .env("XDG_CONFIG_HOME", world.home.join("settings"))
        .args(options);
    command
}

fn cell(world: &World, options: &[&str], script: &str) -> Finished {
    run(
        lazaret(world, "run", options).args(["--", "bash", "-c", script]),
        LIMIT,
    )
}

/// Each way to change `name`.
fn changes(name: &str) -> [String; 4] {
    [
        format!("echo new >> {name}"),
        format!("sed -i s/old/new/ {name}"),
        format!("echo new > n && mv -f n {name}"),
        format!("rm -f {name} && echo new > {name}"),
    ]
}

place_test!(a_profile_opens_what_it_names_and_nothing_beside_it);
fn a_profile_opens_what_it_names_and_nothing_beside_it(place: Place) {
    let world = world(place);
    let is_opened = |name: &str| name.contains("workflows") || name == ".vscode/settings.json";
    for name in CLOSED {
        for script in changes(name) {
            let before = world.get(name);
            cell(&world, &[], &script);
            assert_eq!(
                world.get(name),
                before,
                "closed without the profile: {script}"
            );
            let done = cell(&world, &["--profile", "own"], &script);
            assert_eq!(
                world.get(name) != before,
                is_opened(name),
                "{script}: {}",
                done.errors()
            );
            let control = world.on_host(&script);
            assert_eq!(control.code(), 0, "the control of {script}");
            if !name.starts_with(".git/") {
                world.put(name, "old\n");
            }
        }
    }
    cell(
        &world,
        &["--profile", "own"],
        "mkdir .github/workflows/new && echo x > .github/workflows/new/x.yml",
    )
    .success();
    let mut session = Session::start(&mut lazaret(&world, "session", &["--profile", "own"]));
    assert!(
        session.ready["notices"]
            .to_string()
            .contains(".github/workflows"),
        "{}",
        session.ready
    );
    let write =
        json!({"path": ".vscode/settings.json", "content": "by a tool\n", "overwrite": true});
    session
        .call("file_read", json!({"path": ".vscode/settings.json"}))
        .success();
    session.call("file_write", write).success();
    assert_eq!(world.get(".vscode/settings.json"), b"by a tool\n");
}

place_test!(what_acts_at_once_is_opened_by_no_profile);
fn what_acts_at_once_is_opened_by_no_profile(place: Place) {
    let world = world(place);
    for name in [
        ".git/hooks",
        ".git/config",
        ".env",
        ".claude",
        ".envrc",
        "src",
        ".github/workflows/ci.yml",
        "*",
    ] {
        let text = format!("version = 1\n[profile.own]\nopen = ['{name}']\n");
        world.write(&world.home.join("settings/lazaret/policy.toml"), text);
        let refused = cell(&world, &["--profile", "own"], "echo ran");
        assert!(
            refused.code() != 0 && !refused.text().contains("ran"),
            "{name}: {}",
            refused.text()
        );
        assert!(
            refused.errors().contains("open"),
            "{name}: {}",
            refused.errors()
        );
    }
}
