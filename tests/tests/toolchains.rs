//! Programs and package managers of the user: what a cell does not show is named with what shows it, and what was fetched before is
//! found.

use broker_protocol::Tier;
use lazaret_tests::{LIMIT, Place, World, place_test, run};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

fn program(world: &World, path: &Path) {
    world.write(path, "#!/bin/sh\necho TOOL\n");
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// `command` with `directory` first in its `PATH`.
fn with_path<'c>(command: &'c mut Command, directory: &Path) -> &'c mut Command {
    command.env("PATH", format!("{}:/usr/bin:/bin", directory.display()))
}

/// Runs `words` in a cell of somebody with `directory` in their `PATH`.
fn in_cell(
    world: &World,
    directory: &Path,
    options: &[&str],
    words: &[&str],
) -> lazaret_tests::process::Finished {
    let mut command = world.lazaret("run");
    command.args(options).arg("--").args(words);
    run(with_path(&mut command, directory), LIMIT)
}

place_test!(a_program_of_path_is_named_with_the_option_that_shows_it);
fn a_program_of_path_is_named_with_the_option_that_shows_it(place: Place) {
    let world = World::new(place);
    let tools = world.outside.join("tools");
    program(&world, &tools.join("lz-tool"));
    let shown = tools.display().to_string();
    // The control: outside, PATH finds it.
    let outside = run(with_path(&mut world.host("lz-tool"), &tools), LIMIT);
    assert_eq!(outside.success(), "TOOL\n");
    for words in [&["lz-tool"][..], &["bash", "-c", "true; lz-tool"]] {
        let missing = in_cell(&world, &tools, &["-v"], words);
        let errors = missing.errors();
        assert_eq!(missing.code(), 127, "{errors}");
        assert!(
            errors.contains(&format!("denied: run {shown}/lz-tool"))
                && errors.contains(&format!("--read {shown}")),
            "{errors}"
        );
        let granted = in_cell(&world, &tools, &["--read", &shown], words);
        assert_eq!(granted.success(), "TOOL\n");
    }
    let none = in_cell(&world, &tools, &["-v"], &["lz-no-such-tool"]);
    assert!(!none.errors().contains("--read"), "{}", none.errors());
    // A directory that PATH names by a link is in the cell's PATH by its real name.
    let link = world.outside.join("link");
    symlink(&tools, &link).unwrap();
    let granted = in_cell(&world, &link, &["--read", &shown], &["lz-tool"]);
    assert_eq!(granted.success(), "TOOL\n");
}

place_test!(a_linked_program_needs_its_package_too);
fn a_linked_program_needs_its_package_too(place: Place) {
    let world = World::new(place);
    let bin = world.outside.join("npm/bin");
    let package = world.outside.join("npm/lib/node_modules/@lz/agent");
    program(&world, &package.join("bin/cli.js"));
    world.make_folder(&bin);
    symlink(
        "../lib/node_modules/@lz/agent/bin/cli.js",
        bin.join("lz-agent"),
    )
    .unwrap();
    let (bin_text, package_text) = (bin.display().to_string(), package.display().to_string());
    let missing = in_cell(&world, &bin, &["-v"], &["lz-agent"]);
    for option in [&bin_text, &package_text] {
        let option = format!("--read {option}");
        assert!(missing.errors().contains(&option), "{}", missing.errors());
    }
    let options = ["-v", "--read", &bin_text];
    let half = in_cell(&world, &bin, &options, &["lz-agent"]);
    let errors = half.errors();
    assert!(
        errors.contains(&format!("--read {package_text}"))
            && !errors.contains(&format!("--read {bin_text}")),
        "{errors}"
    );
    let options = ["--read", &bin_text, "--read", &package_text];
    let granted = in_cell(&world, &bin, &options, &["lz-agent"]);
    assert_eq!(granted.success(), "TOOL\n");
}

place_test!(a_program_in_a_closed_directory_is_named_without_an_option);
fn a_program_in_a_closed_directory_is_named_without_an_option(place: Place) {
    let world = World::new(place);
    let keys = world.outside.join(".ssh");
    program(&world, &keys.join("lz-tool"));
    let missing = in_cell(&world, &keys, &["-v"], &["lz-tool"]);
    let errors = missing.errors();
    assert!(
        errors.contains("/.ssh/lz-tool") && errors.contains("no option opens it"),
        "{errors}"
    );
}

place_test!(why_names_a_program_of_path);
fn why_names_a_program_of_path(place: Place) {
    if place.tier != Tier::Namespaced {
        return;
    }
    let world = World::new(place);
    let tools = world.outside.join("tools");
    program(&world, &tools.join("lz-tool"));
    let mut why = world.lazaret("why");
    why.args(["--json", "--", "lz-tool"]);
    let finished = run(with_path(&mut why, &tools), LIMIT);
    let value: Value = serde_json::from_str(&finished.text()).unwrap();
    let options = serde_json::json!(["--read", tools.display().to_string()]);
    assert_eq!(
        (&value["options"], finished.code()),
        (&options, 0),
        "{value:#}"
    );
}

place_test!(a_name_that_exists_outside_is_reported_as_such);
fn a_name_that_exists_outside_is_reported_as_such(place: Place) {
    const MAKE: &str = r#"
import errno, os
for make in (os.mkdir, lambda path: os.symlink('/x', path), os.mknod):
    for path in ('/usr/bin/env', '/usr/bin/lz-new'):
        try: make(path)
        except OSError as error: print(errno.errorcode[error.errno])
"#;
    let world = World::new(place);
    let made = run(
        &mut world.lazaret_run(&["/usr/bin/python3", "-c", MAKE]),
        LIMIT,
    );
    let errors = made.success();
    let errors: Vec<&str> = errors.lines().collect();
    assert_eq!(errors.len(), 6, "{errors:?}");
    for pair in errors.chunks(2) {
        assert_eq!(pair[0], "EEXIST", "{errors:?}");
        assert_ne!(pair[1], "EEXIST", "{errors:?}");
    }
}

/// The variables of package managers' caches, with where the user's are below the home, the project's, and an entry of them.
const CACHES: [(&str, &str, &str, &str); 2] = [
    (
        "YARN_GLOBAL_FOLDER",
        ".yarn/berry",
        "yarn",
        "metadata/npm/x",
    ),
    (
        "BUN_INSTALL_CACHE_DIR",
        ".bun/install/cache",
        "bun",
        "is-odd@3.0.1/x",
    ),
];

place_test!(package_managers_use_the_users_caches_until_the_project_has_some);
fn package_managers_use_the_users_caches_until_the_project_has_some(place: Place) {
    let world = World::new(place);
    let value = |name: &str| {
        let mut command = world.lazaret("run");
        let script = format!("echo ${name}");
        command.args(["--profile", "node", "--", "bash", "-c", &script]);
        run(&mut command, LIMIT).success().trim().to_owned()
    };
    for (name, users, own, entry) in CACHES {
        // In the flat tier a cell's home is elsewhere, and Yarn could write nothing in the user's.
        let has_users = place.tier == Tier::Namespaced || name != "YARN_GLOBAL_FOLDER";
        let before = value(name);
        assert_eq!(before.ends_with(users), has_users, "{name}: {before}");
        let own = world.central.join("caches").join(own);
        world.write(&own.join(entry), "");
        assert_eq!(value(name), own.display().to_string());
    }
    for (name, own) in [("npm_config_cache", "npm"), ("UV_CACHE_DIR", "uv")] {
        let own = world.central.join("caches").join(own);
        assert_eq!(value(name), own.display().to_string());
    }
}

place_test!(pnpm_reads_the_users_store_in_a_project_that_it_knows);
/// pnpm registers a project before it installs, which a store that is only read does not allow.
fn pnpm_reads_the_users_store_in_a_project_that_it_knows(place: Place) {
    let world = World::new(place);
    let pnpm = world.home.join("pnpm");
    let store = |options: &[&str]| {
        let mut command = world.lazaret("run");
        let script = "cat ~/.config/pnpm/rc; echo $npm_config_store_dir";
        command.env("PNPM_HOME", &pnpm).args(options);
        command.args(["--profile", "node", "--", "bash", "-c", script]);
        run(&mut command, LIMIT).success()
    };
    let setting = |store: &Path| format!("store-dir={}\n\n", store.display());
    let own = setting(&world.central.join("caches/pnpm"));
    assert_eq!(store(&[]), own);
    let users = pnpm.join("store");
    world.make_folder(&users.join("v10/projects"));
    symlink(&world.project, users.join("v10/projects/0a")).unwrap();
    assert_eq!(store(&[]), setting(&users));
    assert_eq!(store(&["--allow-host", "a.example"]), own);
}

place_test!(package_managers_do_not_wait_for_a_network_that_is_not_there);
fn package_managers_do_not_wait_for_a_network_that_is_not_there(place: Place) {
    let world = World::new(place);
    let retries = "echo $npm_config_fetch_retries $PIP_RETRIES $CARGO_NET_RETRY $UV_HTTP_RETRIES $YARN_HTTP_RETRY";
    assert_eq!(world.in_cell(retries).success(), "0 0 0 0 0\n");
    if Path::new("/usr/bin/npm").exists() {
        world.put("package.json", r#"{"dependencies": {"left-pad": "1.3.0"}}"#);
        for profile in ["default", "node"] {
            let mut command = world.lazaret("run");
            let options = ["-v", "--timeout", "30", "--profile", profile];
            command
                .args(options)
                .args(["--", "/usr/bin/npm", "install"]);
            let done = run(&mut command, LIMIT);
            assert!(
                done.code() == 1 && done.errors().contains("--allow-net"),
                "{profile}: {} {}",
                done.code(),
                done.errors()
            );
        }
    }
}
