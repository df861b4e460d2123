//! Files that the host creates or replaces while a call runs, as git and editors do when they save: no mount holds them, in neither tier.

use crate::kept_world::{KeptWorld, during, waiting};
use lazaret_tests::{LIMIT, Place, World, place_test, run};
use std::fs;

/// The user's files, and ways to have others in their places.
const TAKEN: [(&str, &str); 14] = [
    (
        "rm .git/config && git init -q . && git config remote.origin.url planted",
        ".git/config",
    ),
    (
        "unlink .git/config; mkdir n; git init -q n; git -C n config remote.origin.url planted; cp n/.git/config .git/config",
        ".git/config",
    ),
    (
        "rm -rf .git; git init -q .; git config remote.origin.url planted",
        ".git/config",
    ),
    ("rm .env; echo planted > .env", ".env"),
    (
        "cd sub; python3 -c 'import os; os.unlink(\"../.env\")'; echo planted > ../.env",
        ".env",
    ),
    (
        "rm .gitlab-ci.yml; echo planted > x; mv x .gitlab-ci.yml",
        ".gitlab-ci.yml",
    ),
    (
        "rm -r .vscode; mkdir .vscode; echo planted > .vscode/settings.json",
        ".vscode/settings.json",
    ),
    ("rm .npmrc; ln README .npmrc", ".npmrc"),
    ("rm .npmrc; ln -s README .npmrc", ".npmrc"),
    (
        "python3 -c 'import os; d = os.open(\"late\", 0); os.unlink(\".env\", dir_fd=d)'; echo planted > late/.env",
        "late/.env",
    ),
    (
        "mv late x; mkdir late; echo planted > late/.env",
        "late/.env",
    ),
    (
        "mv over/late over/x; mkdir over/late; echo planted > over/late/.env",
        "over/late/.env",
    ),
    (
        "mv over x; mkdir -p over/late; echo planted > over/late/.env",
        "over/late/.env",
    ),
    (
        "mkdir x; python3 -c 'import ctypes; ctypes.CDLL(None).renameat2(-100, b\"late\", -100, b\"x\", 2)'; echo planted > late/.env",
        "late/.env",
    ),
];

/// Those that the session pins when it opens.
const REPLACED: [&str; 5] = [
    ".git/config",
    ".env",
    ".gitlab-ci.yml",
    ".vscode/settings.json",
    ".npmrc",
];
const CREATED: [&str; 2] = ["late/.env", "over/late/.env"];

fn kept_world(place: Place) -> KeptWorld {
    let world = World::new(place);
    run(
        world.host("bash").args([
            "-c",
            "git init -q . && mkdir -p sub over && echo x > README",
        ]),
        LIMIT,
    )
    .success();
    for name in &REPLACED[1..] {
        world.put(name, "{}\n");
    }
    KeptWorld::of(world)
}

/// Saves the user's files as editors do.
fn save(world: &World) {
    for name in REPLACED {
        world.set_up(&format!("cp {name} {name}.new && mv {name}.new {name}"));
    }
    for name in CREATED {
        world.set_up(&format!(
            "mkdir -p $(dirname {name}) && echo users > {name}"
        ));
    }
}

place_test!(file_saved_by_the_host_during_a_call_stays);
fn file_saved_by_the_host_during_a_call_stays(place: Place) {
    let kept = kept_world(place);
    for (script, file) in TAKEN {
        let text = |world: &World| fs::read(world.project.join(file)).unwrap_or_default();
        let users = match CREATED.contains(&file) {
            true => b"users\n".to_vec(),
            false => text(kept.restore()),
        };
        kept.contains_by(script, |world, side| {
            let said = during(world, side.bash(world, &waiting(script)), || save(world));
            (text(world) != users, said)
        });
    }
}

place_test!(calls_can_remove_files_that_they_made);
/// Also below names that are protected, and in directories that the host has made.
fn calls_can_remove_files_that_they_made(place: Place) {
    let world = World::new(place);
    world.put("late/README", "x");
    let script = "set -e; mkdir -p a/b/.vscode late/d; echo x > a/b/c; echo x > a/.env; ln -s c a/b/l; mkfifo a/f; git init -q a/r
        git -C a/r config user.name x; echo x > late/d/.npmrc; mkdir -p big; (cd big; seq 300 | xargs touch)
        mv big bigger; mv a moved; rm moved/b/l moved/f; unlink moved/b/c; rmdir moved/b/.vscode moved/b/
        rm -r bigger moved late/d; rm -f none none/x; if rmdir late 2> said; then exit 1; fi; grep -q 'not empty' said; rm said; ls -A";
    let printed = run(&mut world.cell(script), LIMIT);
    assert_eq!(printed.success(), "late\n", "{}", printed.errors());
}
