//! The workspace as a whole builds and runs.

use lazaret_tests::{Place, World, place_test, programs, run};
use std::path::Path;
use std::time::Duration;

/// Mostly it is built already; a fresh clone takes as long as it takes.
const BUILD: Duration = Duration::from_secs(1800);

place_test!(the_workspace_builds_without_a_warning_and_what_is_built_runs);
fn the_workspace_builds_without_a_warning_and_what_is_built_runs(place: Place) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut cargo = programs::cargo();
    cargo
        .current_dir(root)
        .args(["build", "--locked", "--workspace"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    // What was built before says its warnings again.
    let built = run(&mut cargo, BUILD);
    let printed = built.errors();
    assert_eq!(built.code(), 0, "{printed}");
    assert!(!printed.contains("warning"), "{printed}");
    let world = World::new(place);
    assert_eq!(
        run(&mut world.cell("echo built"), BUILD).success(),
        "built\n"
    );
}
