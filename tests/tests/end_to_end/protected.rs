//! Protected names: `.env` and its kind, for file tools in both tiers and for the shell where the tier can.

use lazaret_tests::{LIMIT, Place, Session, World, once_test, place_test, run};
use serde_json::json;
use std::path::Path;

const NAMES: [&str; 3] = [".env", "sub/.env", ".env.local"];

fn world_with_secrets(place: lazaret_tests::Place) -> World {
    let world = World::new(place);
    for name in NAMES {
        world.put(name, format!("API_KEY={}\n", world.canary));
    }
    world.put("sub/code.py", "print(1)\n");
    world
}

#[track_caller]
fn assert_untouched(world: &World, after: &str) {
    for name in NAMES {
        let now = String::from_utf8_lossy(&world.get(name)).into_owned();
        assert_eq!(
            now,
            format!("API_KEY={}\n", world.canary),
            "{name} after {after}"
        );
    }
}

place_test!(file_tools_neither_read_nor_change_them);
fn file_tools_neither_read_nor_change_them(place: Place) {
    let world = world_with_secrets(place);
    let mut session = Session::open(&world);
    for name in NAMES {
        let calls = [
            ("file_read", json!({"path": name})),
            ("file_write", json!({"path": name, "content": "x"})),
            (
                "file_edit",
                json!({"path": name, "edits": [{"old": "API", "new": "x"}]}),
            ),
            ("grep", json!({"pattern": "API_KEY", "path": name})),
        ];
        for (tool, input) in calls {
            let answer = session.call(tool, input);
            assert!(
                !answer.result.to_string().contains(&world.canary),
                "{tool} {name}: {}",
                answer.result
            );
            let refused = matches!(answer.kind(), "violation" | "denied_policy") || tool == "grep";
            assert!(refused, "{tool} {name}: {}", answer.result);
        }
    }
    let everywhere = session.call("grep", json!({"pattern": "API_KEY", "ignored": true}));
    assert!(
        !everywhere.result.to_string().contains(&world.canary),
        "{}",
        everywhere.result
    );
    let upper = session.call("file_write", json!({"path": ".ENV", "content": "x"}));
    assert!(
        !upper.ok(),
        "another case is the same name to many programs: {}",
        upper.result
    );
    session
        .call("file_read", json!({"path": "sub/code.py"}))
        .success();
    assert_untouched(&world, "the file tools");
}

place_test!(the_shell_neither_reads_nor_changes_them, namespaced_only);
/// Said in SECURITY: names inside a zone are held by mounts.
fn the_shell_neither_reads_nor_changes_them(place: Place) {
    let world = world_with_secrets(place);
    for script in [
        "cat .env sub/.env .env.local",
        "echo x > .env; echo x >> sub/.env",
        "rm -f .env sub/.env; rm -rf sub",
        "mv .env x; cat x; mv sub other; cat other/.env",
        "ln .env hard; cat hard; ln -s .env soft; cat soft",
        "echo y > new; mv -f new .env",
        "chmod 666 .env; cat .env",
        "d=$(mktemp -d); cp -r . $d/copy; cat $d/copy/.env; rm -rf $d",
        "python3 -c \"import os; os.rename('.env','x'); print(open('x').read())\"",
        "tar c . | strings",
    ] {
        let finished = world.in_cell(script);
        let mut session = Session::open(&world);
        let answer = session.bash(script);
        let text = format!("{}{}{}", finished.text(), finished.errors(), answer.result);
        assert!(!text.contains(&world.canary), "{script}: {text}");
        assert_untouched(&world, script);
    }
}

once_test!(directories_of_keys_are_no_roots);
/// Paths that no lease opens are no roots for a client either.
fn directories_of_keys_are_no_roots() {
    let world = World::new(Place::any());
    let data = world.home.join(".local/share");
    let opened = |role: &str, path: &Path| {
        world.make_folder(path);
        let roots = [("--project", &world.project), ("--central", &world.central)];
        let mut command = world.program("lazaret");
        command.arg("run").env("XDG_DATA_HOME", &data);
        for (option, other) in roots {
            command.arg(option).arg(if option == role {
                path
            } else {
                other.as_path()
            });
        }
        run(command.args(["--", "true"]), LIMIT)
    };
    let keys = "is never opened to commands";
    // A whole directory of settings is closed in every root, before what lies in it is looked at.
    let settings = "/.config is protected in every root";
    let roots = "it would open the central roots of projects";
    // Where the variable leads into the root itself, it is not believed.
    let variable = "XDG_DATA_HOME names";
    for (path, why) in [
        (world.home.join(".mozilla/firefox"), keys),
        (world.home.join(".password-store"), keys),
        (world.home.join(".config/gh"), settings),
        (world.home.join(".local/share/keyrings"), keys),
        (data.join("lazaret"), variable),
        (data.join("lazaret/projects"), roots),
        (data.join("lazaret/projects/other/state"), roots),
    ] {
        for role in ["--project", "--central"] {
            let done = opened(role, &path);
            done.expect(125);
            assert!(
                done.errors().contains(why),
                "{role} {}: {}",
                path.display(),
                done.errors()
            );
        }
    }
    opened("--central", &data.join("lazaret/projects/one")).success();
    opened("--project", &world.home.join(".config/nvim")).success();
}
