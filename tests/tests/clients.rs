//! The clients for other languages: their own tests, in each place, as whoever installs them would run them.

use lazaret_tests::process;
use lazaret_tests::programs::workspace;
use lazaret_tests::{LIMIT, Place, World, place_test};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many times the usual wait a whole suite may take: it is some fifty tests, each with a session of its own.
const SUITE: u32 = 10;

place_test!(python, ordinary_only);
/// `python3 -m unittest` of the package.
fn python(place: Place) {
    let world = World::new(place);
    let clients = installed(&world);
    let mut command = client(&world, "python3");
    command
        .args(["-B", "-m", "unittest", "-q"])
        .env("PYTHONPATH", clients.join("python/src"));
    passes(command.current_dir(clients.join("python/tests")));
}

place_test!(node, ordinary_only);
/// `node --test` of the package.
fn node(place: Place) {
    let world = World::new(place);
    let clients = installed(&world);
    let mut command = client(&world, "node");
    command.args(["--test", "--test-reporter=tap"]);
    passes(command.current_dir(clients.join("typescript")));
}

/// A copy of the clients that the place's user can read.
fn installed(world: &World) -> PathBuf {
    let folder = world.base().join("clients");
    copy(world, &workspace().join("orchestrator/clients"), &folder);
    folder
}

fn copy(world: &World, from: &Path, to: &Path) {
    world.make_folder(to);
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap().is_dir() {
            true => copy(world, &source, &target),
            false => world.write(&target, fs::read(&source).unwrap()),
        }
    }
}

/// A program of the host that is told how to start `lazaret` in this place.
fn client(world: &World, program: &str) -> Command {
    let lazaret = world.place.command("lazaret");
    let words = std::iter::once(lazaret.get_program()).chain(lazaret.get_args());
    let words: Vec<_> = words.map(|word| word.to_str().unwrap()).collect();
    let mut command = world.host(program);
    command
        .env("LAZARET_TEST_COMMAND", words.join("\n"))
        .env("LAZARET_TEST_TIER", world.place.tier.name())
        .env("LAZARET_TEST_FOLDER", world.base());
    command
}

/// Runs tests of another language; they must be some, and all must pass.
fn passes(command: &mut Command) {
    let finished = process::run(command, LIMIT * SUITE);
    let printed = format!("{}{}", finished.text(), finished.errors());
    assert!(finished.status.success(), "{printed}");
    let ran = printed.lines().find_map(|line| {
        let count = line.strip_prefix("# pass ").or(line.strip_prefix("Ran "))?;
        count.split(' ').next()?.parse::<u32>().ok()
    });
    assert!(ran.is_some_and(|count| count > 0), "no test ran: {printed}");
}
