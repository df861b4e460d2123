//! Criterion 2 of the main job: ordinary projects work in a cell.

use crate::LIMIT;
use lazaret_tests::{Finished, Place, User, World, matrix, programs, run};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Runs a script of the host in the world, which must go well.
fn on_host(world: &World, script: &str) -> Finished {
    let finished = run(world.host("bash").args(["-ec", script]), LIMIT);
    finished.success();
    finished
}

#[test]
fn git_status_and_commit_work() {
    matrix(|place| {
        let world = World::new(place);
        world.put("file", "one\n");
        world.put(".gitignore", ".env\n");
        world.put(".env", "KEY=1\n");
        let identify = "git config user.name T; git config user.email t@t.invalid";
        on_host(&world, &format!("git init -q -b main; {identify}; git add -A; git commit -qm first"));
        let status =
            run(&mut world.cell("echo two >> file; echo new > other; git status --porcelain"), LIMIT);
        assert_eq!(status.success(), " M file\n?? other\n");
        let script = "git add -A && git commit -qm second && git log --format=%s && git branch side && \
                      git checkout -q side && echo three >> file && git commit -qam third && git checkout -q main && \
                      git merge -q side && git stash list && git gc -q && git fsck";
        let finished = run(&mut world.cell(script), LIMIT);
        assert!(finished.success().starts_with("second\nfirst\n"), "{}", finished.text());
        let log = on_host(&world, "git status --porcelain; git log --format=%s main");
        assert_eq!(log.text(), "third\nsecond\nfirst\n", "seen from outside");
        let litter = on_host(&world, "git status --porcelain --ignored; ls -A").text();
        assert_eq!(litter, "!! .env\n.env\n.git\n.gitignore\nfile\nother\n", "left in the project");
    });
}

/// Ordinary work does not need a new Landlock.
#[test]
fn work_goes_on_with_an_older_landlock() {
    for place in Place::all().into_iter().filter(|place| place.user == User::Ordinary) {
        for abi in 1..=6 {
            let world = World::ablated(place, &format!("landlock-abi={abi}"));
            world.put("file", "one\n");
            let identify = "git config user.name T; git config user.email t@t.invalid";
            on_host(&world, &format!("git init -q -b main; {identify}; git add -A; git commit -qm first"));
            let script = "echo two >> file && git commit -qam second && git log --format=%s && \
                          mkdir -p a b && echo moved > a/x && mv a/x b/y && cat b/y && : > file && wc -c < file && \
                          echo 'int main(void){return 0;}' > c.c && gcc -o c c.c && ./c";
            let finished = run(&mut world.cell(script), LIMIT);
            assert_eq!(finished.success(), "second\nfirst\nmoved\n0\n", "{place}, ABI {abi}");
            let edit = json!({"path": "b/y", "edits": [{"old": "moved", "new": "edited"}]});
            run(&mut world.lazaret_call("file_edit", &edit), LIMIT).success();
            assert_eq!(world.get("b/y"), b"edited\n", "{place}, ABI {abi}");
        }
    }
}

#[test]
fn make_builds_a_c_project_with_two_jobs() {
    matrix(|place| {
        let world = World::new(place);
        let rules =
            "all: prog\n\t./prog\nprog: a.o b.o\n\t$(CC) -o $@ $^\n%.o: %.c\n\t$(CC) -O1 -c -o $@ $<\n";
        world.put("Makefile", rules);
        world.put(
            "a.c",
            "#include <stdio.h>\nint b(void);\nint main(void){printf(\"b is %d\\n\", b());return 0;}\n",
        );
        world.put("b.c", "int b(void){return 42;}\n");
        let finished = run(&mut world.lazaret_run(&["make", "-j2"]), LIMIT);
        assert!(finished.success().contains("b is 42"), "{}", finished.text());
    });
}

#[test]
fn python_tests_pass() {
    matrix(|place| {
        let world = World::new(place);
        let test = "import subprocess, tempfile, threading, unittest\n\
                    class T(unittest.TestCase):\n    \
                    def test_child(self): self.assertEqual(subprocess.check_output(['echo', 'x']), b'x\\n')\n    \
                    def test_file(self):\n        with tempfile.NamedTemporaryFile() as f: f.write(b'x')\n    \
                    def test_thread(self):\n        t = threading.Thread(target=print); t.start(); t.join()\n";
        world.put("test_it.py", test);
        let finished = run(&mut world.lazaret_run(&["/usr/bin/python3", "-m", "unittest", "-v"]), LIMIT);
        finished.success();
        assert!(
            finished.errors().contains("Ran 3 tests") && finished.errors().contains("OK"),
            "{}",
            finished.errors()
        );
    });
}

#[test]
fn npm_tests_pass() {
    matrix(|place| {
        let world = World::new(place);
        world.put("package.json", r#"{"name":"p","version":"1.0.0","scripts":{"test":"node test.js"}}"#);
        let test = "const cp=require('child_process'),fs=require('fs'),assert=require('assert');\
                    assert.equal(cp.execSync('echo x').toString(),'x\\n');fs.writeFileSync('out','y');\
                    setTimeout(()=>console.log('tests passed'),50)";
        world.put("test.js", test);
        let finished = run(&mut world.lazaret_run(&["npm", "test"]), LIMIT);
        assert!(finished.success().contains("tests passed"), "{}{}", finished.text(), finished.errors());
        assert_eq!(world.get("out"), b"y");
    });
}

/// This workspace itself. Needs a toolchain that the place's user can read; where the ordinary user has none, only the
/// current user's is used, and that is said.
#[test]
fn this_workspace_is_tested_with_the_rust_profile() {
    let mut ran = 0;
    for place in Place::all() {
        let Some(home) = home_with_toolchain(place) else {
            println!("{place}: no cargo that this user can read; not run");
            continue;
        };
        let world = World::new(place);
        copy_workspace(&world);
        let mut command = world.lazaret("run");
        command
            .env("HOME", &home)
            .env("PATH", format!("{}/.cargo/bin:/usr/local/bin:/usr/bin:/bin", home.display()));
        command.args(["--profile", "rust", "--timeout", "600", "--"]);
        command.args(["cargo", "test", "-p", "broker-protocol", "--offline"]);
        let finished = run(&mut command, Duration::from_secs(600));
        let text = finished.success();
        assert!(text.contains("test result: ok"), "{place}: {text}{}", finished.errors());
        ran += 1;
    }
    println!("ran in {ran} places");
    assert!(ran > 0, "nobody here can run cargo");
}

/// The home of the place's user, if there is a toolchain in it. Root may use its own, whatever HOME says.
fn home_with_toolchain(place: Place) -> Option<std::path::PathBuf> {
    let home = place.account().home.clone();
    let mut try_it = Command::new(home.join(".cargo/bin/cargo"));
    place.as_user(try_it.arg("--version").env("HOME", &home).current_dir("/"));
    let works = try_it.output().is_ok_and(|output| output.status.success());
    (works || place.user == User::Root && home.join(".cargo").exists()).then_some(home)
}

/// The checkout without what is built or versioned.
fn copy_workspace(world: &World) {
    copy(programs::workspace(), &world.project, world);
}

fn copy(from: &Path, to: &Path, world: &World) {
    world.make_folder(to);
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        if ["target", ".git"].iter().any(|skipped| name == *skipped) {
            continue;
        }
        if path.is_dir() {
            copy(&path, &to.join(name), world);
        } else if path.is_file() {
            world.write(&to.join(name), fs::read(path).unwrap());
        }
    }
}
