//! Machines as they are: some give namespaces and refuse what a session does in them, some have no entry for the user, some have
//! no place for private files where one looks first.

use broker_protocol::Tier;
use lazaret_tests::process::until;
use lazaret_tests::{
    LIMIT, Place, Session, User, World, filter, once_test, place_test, programs, run,
};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The command on a machine that refuses `privilege`.
fn refusing(world: &World, privilege: &str, command: &Command) -> Command {
    let mut outer = Command::new(programs::path("refusing"));
    outer
        .arg(privilege)
        .arg(command.get_program())
        .args(command.get_args());
    outer.env_clear().envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    outer.current_dir(&world.project);
    world.place.as_user(&mut outer);
    outer
}

const NAMESPACES: [&str; 7] = [
    "user-namespace",
    "mount-namespace",
    "pid-namespace",
    "network-namespace",
    "ipc-namespace",
    "uts-namespace",
    "cgroup-namespace",
];

fn doctor(command: &mut Command) -> Value {
    serde_json::from_str(&run(command, LIMIT).success()).unwrap()
}

place_test!(
    a_session_is_flat_and_whole_where_one_privilege_is_refused,
    namespaced_only,
    ordinary_only
);
fn a_session_is_flat_and_whole_where_one_privilege_is_refused(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    assert_eq!(session.ready["tier"], "namespaced", "the control");
    session.bash("true").success();
    let mut asked = world.lazaret("doctor");
    assert_eq!(doctor(asked.arg("--json"))["tier"], "namespaced");
    let secret = world.home.join(".ssh/id_rsa");
    for privilege in filter::PRIVILEGES.iter().chain(&["uid-map"]) {
        let mut session =
            Session::start(&mut refusing(&world, privilege, &world.lazaret("session")));
        assert_eq!(session.ready["tier"], "flat", "{privilege}");
        let layers = session.ready["layers"].as_array().unwrap();
        assert!(
            NAMESPACES.iter().all(|name| !layers.contains(&json!(name))),
            "{privilege}: {layers:?}"
        );
        assert!(
            ["landlock-files", "seccomp"]
                .iter()
                .all(|name| layers.contains(&json!(name))),
            "{privilege}"
        );
        let read = session.bash(&format!("cat {}", secret.display()));
        assert!(
            !read.ok() && !read.result.to_string().contains(&world.canary),
            "{privilege}: {}",
            read.result
        );
        assert!(!session.bash("unshare -U true").ok(), "{privilege}");
        session
            .call(
                "file_write",
                json!({"path": privilege, "content": privilege}),
            )
            .success();
        assert_eq!(
            session.bash(&format!("cat {privilege}")).success(),
            *privilege
        );
        let mut asked = world.lazaret("doctor");
        let told = doctor(&mut refusing(&world, privilege, asked.arg("--json")));
        assert_eq!(
            (&told["tier"], &told["session"]["tier"]),
            (&json!("flat"), &json!("flat")),
            "{privilege}: {told}"
        );
    }
}

place_test!(
    session_on_an_initramfs_is_flat_and_says_why,
    namespaced_only,
    ordinary_only
);
/// `pivot_root` answers `EINVAL` there, which is no denial. The filter answers as the kernel does.
fn session_on_an_initramfs_is_flat_and_says_why(place: Place) {
    let world = World::new(place);
    let there = |words: &[&str]| {
        let mut command = world.lazaret(words[0]);
        command.args(&words[1..]);
        run(&mut refusing(&world, "pivot-root", &command), LIMIT)
    };
    let why = "`pivot_root`, which is impossible in an initramfs";
    for words in [&["run", "-v", "--", "true"][..], &["doctor"]] {
        let done = there(words);
        // The doctor breaks its lines.
        let plain = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = plain(done.success() + &done.errors());
        assert!(said.contains(why), "{words:?}: {said}");
        let mut control = world.lazaret(words[0]);
        let control = run(control.args(&words[1..]), LIMIT);
        let said = plain(control.success() + &control.errors());
        assert!(!said.contains(why), "{words:?}: {said}");
    }
    assert!(there(&["doctor"]).success().contains("`switch_root`"));
    let session = Session::start(&mut refusing(
        &world,
        "pivot-root",
        &world.lazaret("session"),
    ));
    assert!(
        session.ready["notices"].to_string().contains(why),
        "{}",
        session.ready
    );
}

place_test!(
    machine_that_refuses_gets_advice_on_its_settings,
    namespaced_only,
    ordinary_only
);
fn machine_that_refuses_gets_advice_on_its_settings(place: Place) {
    let world = World::new(place);
    let page = run(
        &mut refusing(&world, "mount", &world.lazaret("doctor")),
        LIMIT,
    )
    .success();
    assert!(
        page.contains("make the mounts private") && page.contains("To have namespaces"),
        "{page}"
    );
    assert!(
        !run(&mut world.lazaret("doctor"), LIMIT)
            .success()
            .contains("To have namespaces")
    );
}

once_test!(a_user_without_an_account_works_or_is_told_what_is_missing);
/// Only root can start a program as a user that nobody has heard of.
fn a_user_without_an_account_works_or_is_told_what_is_missing() {
    const NOBODY: u32 = 912_345;
    for place in Place::all()
        .into_iter()
        .filter(|place| place.user == User::Root)
    {
        let world = World::new(place);
        let folders = ["config", "state", "data"].map(|name| world.home.join(name));
        folders.iter().for_each(|folder| world.make_folder(folder));
        for folder in [&world.project, &world.home, &world.state]
            .into_iter()
            .chain(&folders)
        {
            chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let start = |words: &[&str], variables: &[(&str, &Path)]| {
            let mut command = place.command("lazaret");
            command
                .args(words)
                .env_clear()
                .env("PATH", "/usr/bin:/bin")
                .envs(variables.iter().copied());
            command.current_dir(&world.project).uid(NOBODY).gid(NOBODY);
            run(&mut command, LIMIT)
        };
        let home = [("HOME", world.home.as_path())];
        let [config, state, data] = &folders;
        let directories = [
            ("XDG_CONFIG_HOME", config.as_path()),
            ("XDG_STATE_HOME", state.as_path()),
            ("XDG_DATA_HOME", data.as_path()),
        ];
        for variables in [&home[..], &directories[..]] {
            let script = "id -u; echo made > file; cat file; touch ~/x && test -e ~/x && echo home";
            let done = start(&["run", "--", "bash", "-c", script], variables);
            assert_eq!(
                done.success(),
                format!("{NOBODY}\nmade\nhome\n"),
                "{place} {variables:?}"
            );
            assert!(
                start(&["doctor"], variables)
                    .success()
                    .contains("A session opens here"),
                "{place}"
            );
            fs::remove_file(world.project.join("file")).unwrap();
        }
        let lost = start(&["run", "--", "true"], &[]);
        assert!(
            lost.code() == 125 && lost.errors().contains("set HOME"),
            "{place}: {}",
            lost.errors()
        );
        let asked = start(&["doctor"], &[]);
        assert!(
            asked.code() == 1 && !asked.text().contains("A session opens here"),
            "{place}: {}",
            asked.text()
        );
        assert!(
            (asked.text() + &asked.errors()).contains("set HOME"),
            "{place}: {}",
            asked.text()
        );
    }
}

place_test!(private_files_lie_where_the_machine_takes_them);
fn private_files_lie_where_the_machine_takes_them(place: Place) {
    let world = World::new(place);
    let named = world.home.join("temporary");
    world.make_folder(&named);
    let start = |runtime: &Path, temporary: &Path| {
        let mut command = world.cell("touch $TMPDIR/x && echo $TMPDIR");
        command
            .env("XDG_RUNTIME_DIR", runtime)
            .env("TMPDIR", temporary);
        run(&mut command, LIMIT).success()
    };
    // `/proc` takes no directory of anybody's, and what lies in a root is a cell's to change.
    let (first, second) = (
        start(Path::new("/proc"), &named),
        start(Path::new("/proc"), &world.project),
    );
    match place.tier.name() {
        "flat" => {
            assert!(first.starts_with(named.to_str().unwrap()), "{first}");
            assert!(second.starts_with("/tmp/lazaret-"), "{second}");
        }
        _ => assert_eq!([first.as_str(), second.as_str()], ["/tmp\n"; 2]),
    }
}

once_test!(closed_private_directories_are_removed_with_the_session);
/// In the flat tier, where private files lie on the machine. Root removes directories of any mode, and so proves nothing.
fn closed_private_directories_are_removed_with_the_session() {
    let ordinary = Place::ordinary()
        .into_iter()
        .find(|place| place.tier == Tier::Flat);
    let world = World::new(ordinary.expect("every machine has the flat tier"));
    let script = "mkdir -p $TMPDIR/x/y ~/z && touch $TMPDIR/x/y/file ~/z/file && chmod 0 $TMPDIR/x/y $TMPDIR/x ~/z && echo $TMPDIR";
    let (named, plain) = (world.home.join("temporary"), world.outside.join("plain"));
    world.make_folder(&named);
    world.make_folder(&plain);
    run(
        world
            .host("bash")
            .args(["-c", script])
            .env("TMPDIR", &plain)
            .env("HOME", &plain),
        LIMIT,
    )
    .success();
    let control = run(world.host("rm").arg("-rf").arg(&plain), LIMIT);
    assert!(
        control.code() != 0 && plain.join("x").exists(),
        "the control: {}",
        control.errors()
    );
    let mut command = world.cell(script);
    command
        .env("XDG_RUNTIME_DIR", "/proc")
        .env("TMPDIR", &named);
    let private = run(&mut command, LIMIT).success();
    assert!(private.starts_with(named.to_str().unwrap()), "{private}");
    // The executor ends after the program that has asked it.
    assert!(
        until(LIMIT, || fs::read_dir(&named).unwrap().next().is_none()),
        "{private} is still there"
    );
}
