//! What the user's git takes or shows without saying so: objects in place of others. In the project's own
//! repository and in one within it.

use lazaret_tests::{LIMIT, Place, Session, World, place_test, run};

const REPOSITORIES: [&str; 2] = [".", "sub"];

fn on_host(world: &World, script: &str) -> String {
    run(world.host("bash").args(["-ec", script]), LIMIT).success()
}

fn world(place: Place) -> World {
    let world = World::new(place);
    let make = "git init -q .; git config user.name t; git config user.email t@t.invalid; mkdir d; echo good > d/a; echo 1 > f
        git add f d; git commit -qm 1";
    on_host(&world, &format!("{make}; mkdir sub; cd sub; {make}"));
    world
}

place_test!(each_replacement_of_a_command_is_said);
/// Also beside one of the user's, and where a file of all references has them.
fn each_replacement_of_a_command_is_said(place: Place) {
    const CHANGES: [&str; 4] = [
        "git replace HEAD:d/a $(echo sprung | git hash-object -w --stdin)",
        "git replace -f HEAD:f $(echo sprung | git hash-object -w --stdin)",
        "echo $(echo sprung | git hash-object -w --stdin) refs/replace/$(git rev-parse HEAD:d/a) >> .git/packed-refs",
        "git replace -d HEAD:f",
    ];
    let shown = "git cat-file -p HEAD:d/a; git cat-file -p HEAD:f";
    for directory in REPOSITORIES {
        for change in CHANGES {
            let world = world(place);
            on_host(
                &world,
                &format!("cd {directory}; git replace HEAD:f HEAD:d/a"),
            );
            let before = on_host(&world, &format!("cd {directory}; {shown}"));
            let mut session = Session::open(&world);
            let said = session
                .bash(&format!("cd {directory}; git pack-refs --all; git update-ref refs/heads/n HEAD; git gc -q"))
                .result
                .to_string();
            assert!(
                !said.contains("git replace"),
                "{directory} {change}: {said}"
            );
            let said = session
                .bash(&format!("cd {directory}; {change}"))
                .result
                .to_string();
            let after = on_host(&world, &format!("cd {directory}; {shown}"));
            assert_ne!(before, after, "the control of {change}");
            assert!(said.contains("git replace"), "{directory} {change}: {said}");
            let later = session.bash("true").result.to_string();
            assert!(
                !later.contains("git replace"),
                "{directory} {change}: {later}"
            );
        }
    }
}
