//! Credentials as cells see them: a placeholder in place of the value, certificates that cannot be changed, and no way for a project to
//! define a credential or to say where its value comes from.

use lazaret_tests::{Finished, LIMIT, Place, Session, World, place_test, run};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

const VALUE: &str = "the-real-value-of-the-token";

/// Variables by which clients find the authorities they trust.
const FILES: &str = "SSL_CERT_FILE CURL_CA_BUNDLE GIT_SSL_CAINFO REQUESTS_CA_BUNDLE PIP_CERT CARGO_HTTP_CAINFO AWS_CA_BUNDLE \
                     NODE_EXTRA_CA_CERTS DENO_CERT";

/// Ways to change the file `$1`: all of them, or the one with the number `$2`.
const ATTACKS: &str = r#"
    d=$(dirname "$1")
    test "${2:-1}" = 1 && (echo x >> "$1") 2>/dev/null && echo written
    test "${2:-2}" = 2 && mv "$1" "$1.x" 2>/dev/null && echo moved
    test "${2:-3}" = 3 && cp "$1" "$d/new" 2>/dev/null && echo beside
    test "${2:-4}" = 4 && chmod 666 "$1" 2>/dev/null && echo chmod
    test "${2:-5}" = 5 && (: > "$1") 2>/dev/null && echo emptied
    test "${2:-6}" = 6 && rm -f "$1" 2>/dev/null && echo removed
    test "${2:-7}" = 7 && mv "$d" "$d.x" 2>/dev/null && echo directory moved
    true
"#;

/// A world whose user has a credential in a file.
fn from_file(place: Place) -> World {
    let world = World::new(place);
    let from = format!("{{ file = '{}/token' }}", world.home.display());
    world_at(world, &from)
}

/// A world with a credential from this source.
fn world_at(world: World, from: &str) -> World {
    let text = policy(from);
    world.set_policy(text);
    world.write(&world.home.join("token"), VALUE);
    world
}

/// A policy with the profile `net`, which has a credential.
fn policy(from: &str) -> String {
    format!(
        "version = 1\n[credential.one]\nfrom = {from}\nhosts = ['api.example']\nattach = 'bearer'\nenv = ['ONE_TOKEN']\n\
         [profile.net]\ncredentials = ['one']\n[profile.net.environment]\ncredentials = ['ONE_TOKEN']\n[profile.none]\n\
         [profile.real.environment]\ncredentials = ['ONE_TOKEN']\n"
    )
}

fn dressed(world: &World, mut command: Command) -> Command {
    command
        .env("XDG_CONFIG_HOME", world.home.join("settings"))
        .env("ONE_TOKEN", VALUE);
    command
}

fn cell(world: &World, profile: &str, script: &str) -> Finished {
    let mut command = dressed(world, world.lazaret("run"));
    command.args(["--profile", profile, "--", "bash", "-c", script]);
    run(&mut command, LIMIT)
}

fn session(world: &World) -> Session {
    let mut command = dressed(world, world.lazaret("session"));
    Session::start(command.args(["--profile", "net"]))
}

place_test!(a_cell_has_a_placeholder_in_place_of_the_value);
fn a_cell_has_a_placeholder_in_place_of_the_value(place: Place) {
    let world = from_file(place);
    let script = "echo \"$ONE_TOKEN\"";
    let mut one = session(&world);
    let first = one.bash(script).success().trim().to_owned();
    assert!(first.starts_with("lazaret-placeholder-"), "{first}");
    assert_eq!(
        one.bash(script).success().trim(),
        first,
        "one for a session"
    );
    let other = session(&world).bash(script).success().trim().to_owned();
    assert!(other.starts_with("lazaret-placeholder-") && other != first);
    let read = format!(
        "cat {0}/token; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a {VALUE}; true",
        world.home.display()
    );
    let seen = one.bash(&read).result.to_string();
    assert!(!seen.contains(VALUE), "{seen}");
    let control = cell(&world, "real", script);
    assert_eq!(control.success().trim(), VALUE, "the control");
}

place_test!(a_real_value_reaches_no_cell_whose_credential_has_no_source);
fn a_real_value_reaches_no_cell_whose_credential_has_no_source(place: Place) {
    let world = World::new(place);
    let from = format!("{{ file = '{}/absent' }}", world.home.display());
    let world = world_at(world, &from);
    let done = cell(
        &world,
        "net",
        "echo \"[${ONE_TOKEN-unset}] ${CURL_CA_BUNDLE-none}\"",
    );
    assert_eq!(done.success().trim(), "[unset] none");
    let mut session = session(&world);
    let said = session.ready.to_string();
    assert!(said.contains("the credential `one` is not there"), "{said}");
    session.bash("true").success();
}

place_test!(a_profile_without_credentials_has_none);
fn a_profile_without_credentials_has_none(place: Place) {
    let world = from_file(place);
    let done = cell(
        &world,
        "none",
        "echo \"[${ONE_TOKEN-unset}] ${DENO_CERT-none}\"; ls -d /.certificates 2>/dev/null; true",
    );
    assert_eq!(done.success().trim(), "[unset] none");
}

place_test!(certificates_can_be_read_and_not_changed);
fn certificates_can_be_read_and_not_changed(place: Place) {
    let world = from_file(place);
    let readable = format!(
        "for name in {FILES}; do
             test -r \"${{!name}}\" || echo \"$name: ${{!name}} cannot be read\"
         done
         grep -c BEGIN \"$SSL_CERT_FILE\""
    );
    let script = format!(
        "{readable}
         attack() {{ {ATTACKS} }}
         attack \"$SSL_CERT_FILE\"; attack \"$DENO_CERT\"
         grep -c BEGIN \"$SSL_CERT_FILE\"
         mkdir ~/a; for n in 1 2 3 4 5 6; do cat \"$SSL_CERT_FILE\" > ~/a/$n.pem; done
         for n in 1 2 3 4 5 6; do attack ~/a/$n.pem $n; done"
    );
    // The machine's, and that of the session's gateway.
    let machine = "echo $(($(grep -c BEGIN /etc/ssl/certs/ca-certificates.crt) + 1))";
    let want = world.on_host(machine).success().trim().to_owned();
    let done = cell(&world, "net", &script);
    let seen = done.success();
    let lines: Vec<&str> = seen.lines().collect();
    let (ours, control) = lines.split_at_checked(2).unwrap_or_default();
    assert_eq!(ours, [&*want, &*want], "{}", done.errors());
    let names = ["written", "moved", "beside", "chmod", "emptied", "removed"];
    assert_eq!(control, names, "the control: {}", done.errors());
}

place_test!(the_machines_bundle_is_the_sessions_where_cells_have_mounts);
fn the_machines_bundle_is_the_sessions_where_cells_have_mounts(place: Place) {
    let world = from_file(place);
    let script =
        "stat -c %i:%d \"$SSL_CERT_FILE\" /etc/ssl/certs/ca-certificates.crt | sort -u | wc -l
                  (echo x >> /etc/ssl/certs/ca-certificates.crt) 2>/dev/null && echo written; true";
    let want = match place.tier {
        broker_protocol::Tier::Namespaced => "1",
        broker_protocol::Tier::Flat => "2",
    };
    assert_eq!(cell(&world, "net", script).success().trim(), want);
}

place_test!(nothing_of_a_session_stays_on_the_host);
fn nothing_of_a_session_stays_on_the_host(place: Place) {
    let world = from_file(place);
    let run_directory = world.home.join("run");
    world.make_folder(&run_directory);
    let mut command = dressed(&world, world.lazaret("run"));
    command
        .env("XDG_RUNTIME_DIR", &run_directory)
        .args(["--profile", "net", "--", "true"]);
    run(&mut command, LIMIT).success();
    let left = std::fs::read_dir(&run_directory).unwrap();
    let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
    let private = left.iter().filter(|name| {
        name.to_string_lossy().starts_with("lazaret-") && *name != "lazaret-approve"
    });
    assert_eq!(private.count(), 0, "{left:?}");
}

place_test!(a_project_neither_defines_nor_redirects_a_credential);
fn a_project_neither_defines_nor_redirects_a_credential(place: Place) {
    let world = World::new(place);
    let from = format!("{{ file = '{}/linked' }}", world.home.display());
    let world = world_at(world, &from);
    let planted = world.put("token", "planted");
    symlink(&planted, world.home.join("linked")).unwrap();
    for name in ["policy.toml", ".lazaret/policy.toml", "lazaret/policy.toml"] {
        world.put(name, policy("{ systemd = 'planted' }"));
    }
    // Commands would read the value in their own project. Without the credential it is a file like any other.
    let linked = cell(&world, "net", "cat token");
    let said = linked.errors();
    assert!(said.contains("value of the credential `one`"), "{said}");
    assert!(!linked.text().contains("planted"));
    assert_eq!(cell(&world, "none", "cat token").success(), "planted");
    let source = world.put_program("source", "#!/bin/sh\necho planted\n");
    for from in [
        format!("{{ command = ['{}'] }}", source.display()),
        "{ command = ['source'] }".to_owned(),
    ] {
        world.set_policy(policy(&from));
        let mut command = dressed(&world, world.lazaret("session"));
        let path = format!("{}:/usr/bin:/bin", world.project.display());
        let mut session = Session::start(command.env("PATH", path).args(["--profile", "net"]));
        let said = session.ready.to_string();
        assert!(
            said.contains("the credential `one` is not there"),
            "{from}: {said}"
        );
        let seen = session.bash("echo \"${ONE_TOKEN-unset}\"");
        assert_eq!(seen.success().trim(), "unset", "{from}");
    }
}

place_test!(a_source_in_the_project_of_an_earlier_session_is_not_used);
fn a_source_in_the_project_of_an_earlier_session_is_not_used(place: Place) {
    let world = World::new(place);
    let other = world.home.join("other");
    let program = other.join("bin/source");
    world.write(&program, "#!/bin/sh\necho planted\n");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let is_there = |from: &str| {
        world.set_policy(policy(from));
        let mut command = dressed(&world, world.lazaret("session"));
        let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
        let session = Session::start(command.env("PATH", path).args(["--profile", "net"]));
        !session.ready.to_string().contains("is not there")
    };
    let sources = [
        "{ command = ['source'] }".to_owned(),
        format!("{{ command = ['{}'] }}", program.display()),
        format!("{{ command = ['/bin/sh', '{}'] }}", program.display()),
        format!("{{ file = '{}' }}", program.display()),
    ];
    // The control: until a session has been there, it is as any place of the user's.
    assert!(sources.iter().all(|from| is_there(from)));
    let mut command = dressed(&world, world.host(lazaret_tests::programs::path("lazaret")));
    command.args(["run", "--project"]).arg(&other);
    run(command.args(["--", "true"]), LIMIT).success();
    for from in sources {
        assert!(!is_there(&from), "{from}");
    }
}

place_test!(a_value_in_a_variable_reaches_no_cell_of_another_profile);
fn a_value_in_a_variable_reaches_no_cell_of_another_profile(place: Place) {
    let script = "echo \"[${ONE_TOKEN-unset}]\"";
    let seen = |from: &str| {
        let world = world_at(World::new(place), from);
        cell(&world, "real", script).success().trim().to_owned()
    };
    assert_eq!(seen("{ env = 'ONE_TOKEN' }"), "[unset]");
    assert_eq!(seen("{ env = 'OTHER_TOKEN' }"), format!("[{VALUE}]"));
}

place_test!(the_file_of_a_credential_is_lent_to_no_command);
fn the_file_of_a_credential_is_lent_to_no_command(place: Place) {
    let world = World::new(place);
    let directory = world.home.join("tokens");
    let file = directory.join("token");
    std::fs::create_dir(&directory).unwrap();
    let world = world_at(world, &format!("{{ file = '{}' }}", file.display()));
    world.write(&file, VALUE);
    let read = |profile: &str, lent: &[&Path]| {
        let mut command = dressed(&world, world.lazaret("run"));
        command.args(["-v", "--profile", profile]);
        for path in lent {
            command.arg("--read").arg(path);
        }
        run(command.args(["--", "cat"]).arg(&file), LIMIT)
    };
    for path in [directory.as_path(), &file] {
        // Without the credential it is a file like any other.
        assert_eq!(read("none", &[path]).success().trim(), VALUE);
        let refused = read("net", &[path]);
        assert!(!refused.text().contains(VALUE));
        let said = refused.errors();
        assert!(said.contains("value of the credential `one`"), "{said}");
    }
    // A grant opens it to every command: then there is no credential that they would not see.
    let link = world.home.join("link");
    symlink(&directory, &link).unwrap();
    let from = format!("{{ file = '{}' }}", file.display());
    for granted in [&directory, &link] {
        let grant = format!(
            "[profile.shown]\nextends = 'net'\ngrants = [{{ path = '{}' }}]\n",
            granted.display()
        );
        world.set_policy(policy(&from) + &grant);
        let shown = read("shown", &[]);
        let said = shown.errors();
        assert!(said.contains("leads to where commands can read"), "{said}");
        if granted == &directory {
            assert_eq!(shown.text().trim(), VALUE);
        }
    }
}

/// `lazaret credential WORDS` of the user.
fn credential(world: &World, words: &[&str]) -> Finished {
    let mut command = dressed(world, world.program("lazaret"));
    command.current_dir(&world.project).arg("credential");
    let done = run(command.args(words), LIMIT);
    let said = done.text() + &done.errors();
    assert!(!said.contains(VALUE), "{said}");
    done
}

place_test!(credentials_are_listed_with_their_sources_and_never_their_values);
fn credentials_are_listed_with_their_sources_and_never_their_values(place: Place) {
    let world = from_file(place);
    // No project has a say.
    for name in ["policy.toml", ".lazaret/policy.toml", "lazaret/policy.toml"] {
        world.put(
            name,
            policy("{ systemd = 'planted' }").replace("one", "two"),
        );
    }
    let list = |code: i32| -> serde_json::Value {
        let listed = credential(&world, &["list", "--json"]).expect(code);
        serde_json::from_str(&listed).unwrap()
    };
    let listed = list(0);
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let one = &listed[0];
    assert_eq!(
        (
            &one["name"],
            &one["there"],
            &one["hosts"][0],
            &one["profiles"]
        ),
        (
            &"one".into(),
            &true.into(),
            &"api.example:443".into(),
            &serde_json::json!(["net"])
        )
    );
    let text = credential(&world, &["list"]).success();
    assert!(
        text.contains("/token: there\n") && text.contains("profiles: net"),
        "{text}"
    );
    std::fs::remove_file(world.home.join("token")).unwrap();
    let listed = list(1);
    let why = listed[0]["why"].as_str().unwrap();
    assert!(
        listed[0]["there"] == false && why.contains("No such file"),
        "{why}"
    );
}

place_test!(a_credential_is_added_and_removed_in_the_users_file_alone);
fn a_credential_is_added_and_removed_in_the_users_file_alone(place: Place) {
    let world = from_file(place);
    let file = world.policy();
    let before = std::fs::read_to_string(&file).unwrap();
    let token = world.home.join("token").display().to_string();
    let planted = world.put("token", "planted").display().to_string();
    let linked = world.home.join("linked");
    symlink(&planted, &linked).unwrap();
    let add = ["add", "npm", "--file", &token, "--profile", "net"];
    for (words, want) in [
        (&add[..], "nobody can be asked"),
        (
            &["add", "npm", "--file", &planted, "--yes"],
            "is in the project",
        ),
        (
            &["add", "npm", "--file", linked.to_str().unwrap(), "--yes"],
            "is in the project",
        ),
        (
            &["add", "own", "--file", &token, "--yes"],
            "there is no preset `own`",
        ),
        (&["add", "npm", "--yes"], "--file, --command or --env"),
        (
            &["add", "npm", "--command", "no-such-program x", "--yes"],
            "no-such-program",
        ),
        (
            &["add", "one", "--preset", "npm", "--file", &token, "--yes"],
            "already defined",
        ),
        (
            &["add", "npm", "--file", &token, "--profile", "dev", "--yes"],
            "defines no profile `dev`",
        ),
        (&["remove", "two", "--yes"], "there is no credential `two`"),
    ] {
        let refused = credential(&world, words);
        assert_eq!(refused.code(), 2, "{words:?}: {}", refused.errors());
        assert!(refused.errors().contains(want), "{}", refused.errors());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), before, "{words:?}");
    }
    let added = credential(&world, &[&add[..], &["--yes"]].concat()).success();
    assert!(
        added.contains("preset = \"npm\"") && added.contains("the old file is"),
        "{added}"
    );
    let now = std::fs::read_to_string(&file).unwrap();
    let wanted = format!("[credential.npm]\nfrom = {{ file = \"{token}\" }}\npreset = \"npm\"\n");
    assert!(now.contains(&wanted), "{now}");
    let folder = file.parent().unwrap();
    let backups = |text: &str| {
        let all = std::fs::read_dir(folder).unwrap().flatten();
        all.filter(|entry| std::fs::read_to_string(entry.path()).is_ok_and(|old| old == text))
            .count()
    };
    assert_eq!(backups(&before), 1);
    let seen = cell(
        &world,
        "net",
        "echo ${NPM_TOKEN%%_*} ${ONE_TOKEN%%-*}; cat ~/.npmrc",
    );
    let seen = seen.success();
    assert!(seen.starts_with("npm lazaret\n//"), "{seen}");
    let removed = credential(&world, &["remove", "npm", "--yes", "--json"]).success();
    let removed: serde_json::Value = serde_json::from_str(&removed).unwrap();
    assert_eq!(removed["profiles"], serde_json::json!(["net"]), "{removed}");
    let parse = |text: &str| text.parse::<toml::Table>().unwrap();
    let after = std::fs::read_to_string(&file).unwrap();
    assert_eq!(parse(&after), parse(&before), "{after}");
}
