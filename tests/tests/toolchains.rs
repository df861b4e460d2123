//! Programs and package managers of the user: what a cell does not show is named with what shows it, and what was fetched before is
//! found.

use broker_protocol::Tier;
use lazaret_tests::{Finished, LIMIT, Place, Session, World, cargo_alone, place_test, run};
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
fn in_cell(world: &World, directory: &Path, options: &[&str], words: &[&str]) -> Finished {
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

place_test!(why_names_a_program_of_path, namespaced_only);
fn why_names_a_program_of_path(place: Place) {
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

place_test!(a_package_manager_that_the_profile_keeps_offline_is_named_its_option);
/// It asks for no host, so none is refused. Its output is nobody's: the client here prints nothing.
fn a_package_manager_that_the_profile_keeps_offline_is_named_its_option(place: Place) {
    let world = World::new(place);
    for (client, variable) in [("pip", "PIP_NO_INDEX"), ("cargo", "CARGO_NET_OFFLINE")] {
        let path = world.project.join("bin").join(client);
        let script = format!("#!/bin/sh\ntest -n \"$1\" || test -z \"${variable}\"\n");
        world.write(&path, &script);
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
    let errors = |options: &[&str], script: &str, code: i32| {
        let finished = world.in_cell_with(options, script);
        assert_eq!(finished.code(), code, "{script}: {}", finished.errors());
        finished.errors()
    };
    for (profile, client, preset) in [("python", "pip", "pypi"), ("dev", "cargo", "crates")] {
        let options = ["--profile", profile];
        let line = format!("with --allow-net {preset}]");
        let failed = errors(&options, &format!("bin/{client}"), 1);
        assert_eq!(failed.matches(&line).count(), 1, "{failed}");
        assert!(
            failed.contains("lazaret: offline: The profile `"),
            "{failed}"
        );
        // Not after what worked, what another program failed at, or with hosts.
        for (options, script, code) in [
            (&options[..], format!("bin/{client} works"), 0),
            (&options, "false".to_owned(), 1),
            (
                &[&options[..], &["--allow-net", preset]].concat(),
                format!("bin/{client} && false"),
                1,
            ),
            (
                &["--profile", "default"],
                format!("bin/{client} && false"),
                1,
            ),
        ] {
            let silent = errors(options, &script, code);
            assert!(!silent.contains("--allow-net"), "{script}: {silent}");
        }
    }
    let mut options = world.configured("session");
    let mut session = Session::start(options.args(["--profile", "python"]));
    let answer = session.bash("bin/pip");
    let denied = &answer.result["metadata"]["denied"][0];
    assert_eq!(denied["remedy"]["option"], "--allow-net pypi", "{denied}");
    assert_eq!(denied["by"]["rule"], "offline:PIP_NO_INDEX", "{denied}");
    let error = answer.result["error"]["message"].as_str().unwrap();
    assert!(error.contains("with --allow-net pypi"), "{error}");
    assert!(session.bash("bin/pip works").ok());
}

/// `lazaret run` of a script in which `cargo` is that program.
fn run_cargo(world: &World, cargo: &Path, script: &str) -> Finished {
    let cargo = cargo.display().to_string();
    let mut command = world.lazaret("run");
    command.args(["-v", "--read", &cargo, "--env", "CARGO_NET_OFFLINE=false"]);
    let script = script.replace("cargo ", &format!("{cargo} "));
    run(command.args(["--", "bash", "-ec", &script]), LIMIT)
}

/// A project with a git dependency, in a repository that it contains; `$MORE` is one more file of that.
const GIT_DEPENDENCY: &str = r#"mkdir -p $D/src src; cd $D; git init -q -b main; touch $MORE
    printf '[package]\nname = "dep"\nversion = "0.1.0"\nedition = "2021"\n' > Cargo.toml; echo 'pub fn f() {}' > src/lib.rs
    mkdir -p .github/workflows .cargo; echo '{}' > .github/workflows/ci.yml; echo '[net]' > .cargo/config.toml
    git add -f .; git -c user.name=t -c user.email=t@t.invalid commit -qm one; cd - > /dev/null; git clone -q --bare $D dep.git
    printf '[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\ndep = { git = "file://%s/dep.git" }\n' $PWD > Cargo.toml
    echo 'fn main() { dep::f() }' > src/main.rs"#;

place_test!(cargo_fetches_git_dependencies);
fn cargo_fetches_git_dependencies(place: Place) {
    let world = World::new(place);
    let cargo = cargo_alone::copy(&world);
    let dependency = world.outside.join("d");
    let set_up = format!("D={}; MORE=f; {GIT_DEPENDENCY}", dependency.display());
    world.set_up(&set_up);
    run_cargo(&world, &cargo, "cargo generate-lockfile").success();
    let databases = world.central.join("caches/cargo/git/db");
    let is_bare = format!(
        "git -C {}/dep-* rev-parse --is-bare-repository",
        databases.display()
    );
    assert_eq!(world.set_up(&is_bare), "true\n");
    // In a later session it is updated, with what has come since, and Cargo reads it.
    world.set_up(&format!(
        "cd {}; echo 'pub fn g() {{}}' >> src/lib.rs; git -c user.name=t -c user.email=t@t.invalid commit -qam two; git push -q {} main",
        dependency.display(),
        world.project.join("dep.git").display()
    ));
    run_cargo(&world, &cargo, "cargo update; cargo vendor > /dev/null").success();
    let vendored = fs::read_to_string(world.project.join("vendor/dep/src/lib.rs")).unwrap();
    assert!(vendored.contains("fn g"), "{vendored}");
}

place_test!(a_git_dependency_with_a_protected_file_fails_and_names_it);
fn a_git_dependency_with_a_protected_file_fails_and_names_it(place: Place) {
    let world = World::new(place);
    let cargo = cargo_alone::copy(&world);
    let dependency = world.outside.join("d");
    world.set_up(&format!(
        "D={}; MORE=.envrc; {GIT_DEPENDENCY}",
        dependency.display()
    ));
    let refused = run_cargo(&world, &cargo, "cargo generate-lockfile");
    let errors = refused.errors();
    assert!(refused.code() != 0, "{errors}");
    let named = errors.lines().find(|line| {
        line.contains("denied: write central:caches/cargo/git/checkouts/")
            && line.contains("/.envrc:")
    });
    assert!(
        named.is_some_and(|line| line.contains("can run outside the sandbox what makes it")),
        "{errors}"
    );
    let find = format!("find {} -name .envrc", world.central.display());
    assert_eq!(world.set_up(&find), "");
}

/// A registry in a directory, with one crate, of which a file is protected.
const REGISTRY: &str = r#"mkdir -p lz-dep-0.1.0/src reg/index/lz/-d src; echo > src/lib.rs; echo > lz-dep-0.1.0/src/lib.rs; echo x > lz-dep-0.1.0/.envrc
    printf '[package]\nname = "lz-dep"\nversion = "0.1.0"\nedition = "2021"\n' > lz-dep-0.1.0/Cargo.toml
    tar czf reg/lz-dep-0.1.0.crate lz-dep-0.1.0; rm -r lz-dep-0.1.0; sum=$(sha256sum reg/lz-dep-0.1.0.crate | cut -c1-64)
    printf '{"name":"lz-dep","vers":"0.1.0","deps":[],"cksum":"%s","features":{},"yanked":false}\n' $sum > reg/index/lz/-d/lz-dep
    printf '[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nlz-dep = "0.1.0"\n' > Cargo.toml
    printf '[source.crates-io]\nreplace-with = "l"\n[source.l]\nlocal-registry = "%s/reg"\n' $PWD > local.toml"#;

place_test!(vendoring_a_crate_with_a_protected_file_fails_whole_and_names_it);
fn vendoring_a_crate_with_a_protected_file_fails_whole_and_names_it(place: Place) {
    let world = World::new(place);
    let cargo = cargo_alone::copy(&world);
    world.set_up(REGISTRY);
    let vendor = "cargo --offline --config local.toml vendor --respect-source-config";
    let refused = run_cargo(&world, &cargo, vendor);
    let errors = refused.errors();
    assert!(refused.code() != 0, "{errors}");
    let named = errors
        .lines()
        .find(|line| line.contains("denied: write vendor/") && line.contains("/.envrc:"));
    assert!(
        named.is_some_and(|line| line.contains("can run outside the sandbox what makes it")),
        "{errors}"
    );
    assert_eq!(world.set_up("find vendor -type f"), "");
    // The control, and the remedy: outside it is vendored with that file.
    let outside = vendor.replace(
        "cargo ",
        &format!("CARGO_HOME=~/.cargo {} ", cargo.display()),
    );
    world.set_up(&format!(
        "{outside} > /dev/null; test -s vendor/lz-dep/.envrc"
    ));
}

place_test!(a_bare_repository_elsewhere_is_refused_with_the_remedy);
fn a_bare_repository_elsewhere_is_refused_with_the_remedy(place: Place) {
    let world = World::new(place);
    let mut command = world.lazaret("run");
    command.args(["-v", "--", "git", "init", "-q", "--bare", "store"]);
    let errors = run(&mut command, LIMIT).errors();
    assert!(
        errors.contains("call the directory `store.git`"),
        "{errors}"
    );
    assert!(
        !errors.contains("that no command of this session has made"),
        "{errors}"
    );
    world.in_cell("git init -q --bare store.git").success();
}
