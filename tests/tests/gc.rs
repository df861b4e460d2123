//! `lazaret gc`: caches of projects that are gone or long unused are removed, all else stays, and no link leads elsewhere.

use lazaret_tests::process::{Finished, until};
use lazaret_tests::{LIMIT, Place, Session, World, once_test, place_test, run};
use serde_json::Value;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Where the default central roots of this world lie.
fn projects(world: &World) -> PathBuf {
    world.home.join("data/lazaret/projects")
}

/// `lazaret` with the default central root of a project.
fn lazaret(world: &World, words: &[&str]) -> Command {
    let mut command = world.program("lazaret");
    command
        .args(words)
        .env("XDG_DATA_HOME", world.home.join("data"));
    command
}

/// A project with caches that a command has filled; returns its path, and that of its central root.
fn project(world: &World, name: &str) -> (PathBuf, PathBuf) {
    let project = world.outside.join(name);
    world.make_folder(&project);
    let before = roots(world);
    let script = "mkdir -p \"$PIP_CACHE_DIR/a/b\"; echo x > \"$PIP_CACHE_DIR/a/b/c\"";
    let text = project.display().to_string();
    let words = ["run", "--project", &text, "--", "bash", "-c", script];
    run(&mut lazaret(world, &words), LIMIT).success();
    let central = roots(world).into_iter().find(|root| !before.contains(root));
    (project, central.unwrap())
}

fn roots(world: &World) -> Vec<PathBuf> {
    let listed = fs::read_dir(projects(world)).into_iter().flatten();
    listed.map(|entry| entry.unwrap().path()).collect()
}

fn gc(world: &World, options: &[&str]) -> (Value, Finished) {
    let words = [&["gc", "--json"], options].concat();
    let finished = run(&mut lazaret(world, &words), LIMIT);
    (serde_json::from_str(&finished.text()).unwrap(), finished)
}

/// Sets when a central root was last used.
fn age(central: &Path, days: u32) {
    let record = File::open(central.join(".lazaret/project")).unwrap();
    record.set_modified(SystemTime::now() - DAY * days).unwrap();
}

fn has_caches(central: &Path) -> bool {
    central.join("caches/pip/a/b/c").exists()
}

place_test!(caches_of_a_deleted_project_are_removed_and_all_else_stays);
fn caches_of_a_deleted_project_are_removed_and_all_else_stays(place: Place) {
    let world = World::new(place);
    let (gone, central) = project(&world, "gone");
    let (_, other) = project(&world, "kept");
    world.write(&central.join("outputs/1.log"), "kept");
    assert_eq!(gc(&world, &[]).0["count"], 0, "the control");
    fs::remove_dir_all(&gone).unwrap();
    let (report, finished) = gc(&world, &[]);
    let removed = &report["removed"][0];
    assert_eq!(
        (&removed["project"], &removed["why"], finished.code()),
        (&gone.display().to_string().into(), &"deleted".into(), 0),
        "{report:#}"
    );
    assert!(removed["entries"].as_u64() >= Some(4), "{report:#}");
    assert!(!central.join("caches").exists() && has_caches(&other));
    assert_eq!(fs::read(central.join("outputs/1.log")).unwrap(), b"kept");
    assert!(central.join(".lazaret/project").exists());
    assert_eq!(roots(&world).len(), 2);
    let text = run(&mut lazaret(&world, &["gc"]), LIMIT).success();
    assert_eq!(text, "nothing to remove\n");
}

place_test!(caches_of_an_open_session_stay);
fn caches_of_an_open_session_stay(place: Place) {
    let world = World::new(place);
    let (gone, central) = project(&world, "gone");
    let text = gone.display().to_string();
    let mut session = Session::start(&mut lazaret(&world, &["session", "--project", &text]));
    session
        .call("bash", serde_json::json!({"command": "true"}))
        .success();
    fs::rename(&gone, world.outside.join("moved")).unwrap();
    let (report, finished) = gc(&world, &[]);
    assert_eq!(
        (&report["inUse"], &report["count"], finished.code()),
        (&1.into(), &0.into(), 0)
    );
    assert!(has_caches(&central));
    drop(session);
    assert!(until(LIMIT, || gc(&world, &[]).0["count"] == 1));
    assert!(!central.join("caches").exists());
}

place_test!(caches_are_removed_by_age);
fn caches_are_removed_by_age(place: Place) {
    let world = World::new(place);
    let (project_path, central) = project(&world, "old");
    age(&central, 30);
    assert_eq!(gc(&world, &[]).0["count"], 0);
    let (report, _) = gc(&world, &["--days", "30"]);
    assert_eq!(report["removed"][0]["days"], 30, "{report:#}");
    assert!(!has_caches(&central));
    // A session counts as use.
    age(&central, 30);
    let text = project_path.display().to_string();
    run(
        &mut lazaret(&world, &["run", "--project", &text, "--", "true"]),
        LIMIT,
    )
    .success();
    world.write(&central.join("caches/pip/a/b/c"), "");
    assert_eq!(gc(&world, &["--days", "30"]).0["count"], 0);
}

place_test!(a_session_removes_unused_caches_once_a_day);
fn a_session_removes_unused_caches_once_a_day(place: Place) {
    let world = World::new(place);
    let (_, central) = project(&world, "old");
    let (other, _) = project(&world, "other");
    age(&central, 100);
    let looked = projects(&world).with_file_name("gc");
    let text = other.display().to_string();
    let session = || {
        run(
            &mut lazaret(&world, &["run", "--project", &text, "--", "true"]),
            LIMIT,
        )
        .success();
    };
    assert!(until(LIMIT, || looked.exists()));
    session();
    assert!(has_caches(&central), "it looked less than a day ago");
    let file = File::open(&looked).unwrap();
    file.set_modified(SystemTime::now() - DAY * 2).unwrap();
    session();
    assert!(until(LIMIT, || !central.join("caches").exists()));
}

place_test!(no_link_of_a_command_is_followed);
fn no_link_of_a_command_is_followed(place: Place) {
    let world = World::new(place);
    let precious = world.outside.join("precious");
    world.write(&precious.join("file"), "kept");
    let (gone, central) = project(&world, "gone");
    let (second, linked) = project(&world, "second");
    let caches = central.join("caches");
    symlink(&precious, caches.join("link")).unwrap();
    let closed = caches.join("closed");
    world.write(&closed.join("file"), "");
    symlink(&precious, closed.join("link")).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    // In place of the caches, too.
    fs::rename(linked.join("caches"), linked.join("before")).unwrap();
    symlink(&precious, linked.join("caches")).unwrap();
    // A central root that is a link.
    symlink(&precious, projects(&world).join("linked")).unwrap();
    fs::remove_dir_all(&gone).unwrap();
    fs::remove_dir_all(&second).unwrap();
    let (report, finished) = gc(&world, &[]);
    assert_eq!(
        (&report["count"], finished.code()),
        (&1.into(), 0),
        "{report:#}"
    );
    assert!(!caches.exists());
    assert_eq!(fs::read(precious.join("file")).unwrap(), b"kept");
}

once_test!(wrong_arguments_are_refused);
fn wrong_arguments_are_refused() {
    let world = World::new(Place::any());
    for words in [
        &["gc", "--days", "x"][..],
        &["gc", "now"],
        &["gc", "--profile", "rust"],
    ] {
        assert_eq!(
            run(&mut lazaret(&world, words), LIMIT).code(),
            2,
            "{words:?}"
        );
    }
    // Where nothing was ever kept.
    let empty = run(&mut lazaret(&world, &["gc"]), LIMIT);
    assert_eq!(empty.success(), "nothing to remove\n");
}
