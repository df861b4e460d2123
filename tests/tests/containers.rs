//! A stock container of Docker or Podman: its seccomp profile, an ordinary user, no capability, a read-only root. Some tests of other
//! suites run there again, in a process whose flat places have the profile; the README says how all of them do.

use broker_protocol::Tier;
use lazaret_tests::container::{self, Runtime};
use lazaret_tests::place::{CONTAINER_VARIABLE, Privilege};
use lazaret_tests::process::run;
use lazaret_tests::{LIMIT, Place, Session, World, once_test, place_test, programs};
use nix::unistd::geteuid;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Tests that run again for each profile: from each suite, those that depend most on how the supervisor gets at its callers.
const AGAIN: [&str; 8] = [
    "escapes::other_processes_are_out_of_reach",
    "supervised::a_socket_says_the_path_that_was_asked",
    "supervised::files_open_as_they_do_without_a_supervisor",
    "end_to_end::projects::git_status_and_commit_work",
    "self_attack::every_attack_is_held_and_its_control_works",
    "loopback::no_program_of_the_machine_comes_to_a_cells_server",
    "network::a_host_that_is_not_allowed_is_refused_named_and_recorded",
    "ssh_agent::git_and_ssh_log_in_where_the_policy_allows_it",
];

once_test!(suites_hold_with_dockers_profile);
fn suites_hold_with_dockers_profile() {
    suites_hold(Runtime::Docker);
}

once_test!(suites_hold_with_podmans_profile);
fn suites_hold_with_podmans_profile() {
    suites_hold(Runtime::Podman);
}

fn suites_hold(runtime: Runtime) {
    const MOST: Duration = Duration::from_secs(300);
    for name in AGAIN {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            &format!("flat/ordinary::{name}"),
            "--test-threads",
            "1",
        ]);
        command
            .env(CONTAINER_VARIABLE, runtime.name())
            .env("LAZARET_BIN", programs::folder());
        let done = run(&mut command, MOST);
        assert!(
            done.success().contains("1 passed"),
            "{name}: {}{}",
            done.text(),
            done.errors()
        );
    }
}

/// A flat place of the ordinary user.
fn place() -> Place {
    let flat = |place: &Place| place.tier == Tier::Flat;
    Place::ordinary()
        .into_iter()
        .find(flat)
        .expect("every machine has the flat tier")
}

once_test!(a_command_runs_on_a_read_only_root);
fn a_command_runs_on_a_read_only_root() {
    for runtime in Runtime::ALL {
        let world = World::new(place());
        let script = "echo made > file && cat file && python3 -c 'import socket; s = socket.socket(); \
                      s.bind((\"127.0.0.1\", 0)); s.listen(); socket.create_connection(s.getsockname())' && id -u";
        let words = ["--project", "PROJECT", "--central", "CENTRAL"].map(|word| match word {
            "PROJECT" => world.project.display().to_string(),
            "CENTRAL" => world.central.display().to_string(),
            option => option.to_owned(),
        });
        let start = |words: &[&str]| {
            let mut command = in_read_only_container(&world, runtime);
            command.arg(programs::path("lazaret")).args(words);
            run(&mut command, LIMIT)
        };
        let [a, b, c, d] = words.each_ref().map(String::as_str);
        let done = start(&["run", a, b, c, d, "--", "bash", "-c", script]);
        let uid = world.place.account().uid;
        assert_eq!(
            done.success(),
            format!("made\n{uid}\n"),
            "{}: {}",
            runtime.name(),
            done.errors()
        );
        let doctor = start(&["doctor", a, b, c, d]);
        assert!(
            doctor.success().contains("A session opens here"),
            "{}",
            doctor.text()
        );
        let says = doctor.text().contains("`pidfd_getfd`");
        let is_closed = !place().permits(Privilege::OthersDescriptors);
        assert_eq!(
            says,
            is_closed || runtime == Runtime::Docker,
            "what it lacks is said: {}",
            doctor.text()
        );
        assert!(fs::metadata(world.project.join("file")).is_ok());
    }
}

once_test!(the_shipped_profile_is_dockers_and_one_rule);
fn the_shipped_profile_is_dockers_and_one_rule() {
    let read = |text: &str| serde_json::from_str::<Value>(text).expect("a profile is JSON");
    let mut shipped = read(container::SHIPPED);
    let rule = shipped["syscalls"].as_array_mut().and_then(Vec::pop);
    assert_eq!(shipped, read(Runtime::Docker.text()));
    let rule = rule.expect("a profile has rules");
    assert_eq!(rule["action"], "SCMP_ACT_ALLOW");
    assert_eq!(rule["names"], json!(container::added()));
}

place_test!(
    each_call_of_the_shipped_profile_is_needed,
    namespaced_only,
    ordinary_only
);
/// With all of them a session is namespaced and whole; without any it is flat, and so still whole.
fn each_call_of_the_shipped_profile_is_needed(place: Place) {
    let calls = container::added();
    let without = calls.iter().map(|call| format!("shipped-{call}"));
    let all = without.chain(["docker".to_owned()]);
    for (profile, tier) in all
        .map(|profile| (profile, "flat"))
        .chain([("shipped".to_owned(), "namespaced")])
    {
        let world = World::new(place);
        let mut session = Session::start(&mut in_container(&world, &profile, "session"));
        let ready = session.ready.to_string();
        assert_eq!(session.ready["tier"], tier, "{profile}: {ready}");
        assert_eq!(ready.contains("the flat tier"), tier == "flat", "{ready}");
        session
            .call("file_write", json!({"path": "file", "content": "made"}))
            .success();
        assert_eq!(session.bash("cat file").success(), "made", "{profile}");
        drop(session);
        let doctor = run(&mut in_container(&world, &profile, "doctor"), LIMIT);
        let says = format!("tier    {tier}\n");
        assert!(doctor.success().contains(&says), "{}", doctor.text());
    }
}

/// `lazaret SUBCOMMAND` of this world in a process with a profile.
fn in_container(world: &World, profile: &str, subcommand: &str) -> Command {
    let asked = world.lazaret(subcommand);
    let mut command = world.host(programs::path("without-namespaces"));
    command.args(["--profile", profile]);
    command.arg(asked.get_program()).args(asked.get_args());
    command
}

/// A command that becomes another in such a container; only root can make the root read-only.
fn in_read_only_container(world: &World, runtime: Runtime) -> Command {
    let account = world.place.account();
    let profile = programs::path("without-namespaces");
    let mut command = if geteuid().is_root() {
        let mut command = Command::new("unshare");
        let base = world.base().display();
        let ids = format!(
            "--reuid {} --regid {} --clear-groups",
            account.uid, account.gid
        );
        let script = format!(
            "mount --make-rprivate / && mount --bind {base} {base} && mount -o remount,ro,bind / && ! touch /usr/x 2>&- \
             && exec setpriv {ids} --bounding-set=-all \"$@\""
        );
        command
            .args(["-m", "bash", "-c", &script, "bash"])
            .arg(profile);
        command
    } else {
        Command::new(profile)
    };
    command.args(["--profile", runtime.name()]).env_clear();
    command
        .env("HOME", &world.home)
        .env("XDG_STATE_HOME", &world.state)
        .env("PATH", "/usr/bin:/bin");
    // In place of the `/tmp` that such a container needs.
    let temporary = world.home.join("temporary");
    world.make_folder(&temporary);
    command.env("TMPDIR", temporary).current_dir(&world.project);
    command
}
