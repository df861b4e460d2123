//! Where people work in a repository: in a directory of it, in a worktree, in a submodule.

use crate::kept_world::KeptWorld;
use lazaret_tests::{LIMIT, Place, Session, World, once_test, place_test, run};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

const IDENTITY: &str = "git config user.name T; git config user.email t@t.invalid";

/// `lazaret WORDS` in a directory, with no project named.
fn lazaret_in(world: &World, directory: &Path, words: &[&str]) -> Command {
    let mut command = world.program("lazaret");
    command.current_dir(directory).args(words);
    command
}

/// A repository with a package in it.
fn workspace(place: Place) -> World {
    let world = World::new(place);
    world.put("top", "of all\n");
    world.put("packages/one/file", "one\n");
    world.set_up(&format!(
        "git init -q -b main; {IDENTITY}; git add -A; git commit -qm first"
    ));
    world
}

place_test!(a_directory_of_a_repository_works_in_the_whole);
fn a_directory_of_a_repository_works_in_the_whole(place: Place) {
    let world = workspace(place);
    let package = world.project.join("packages/one");
    let script = "pwd; cat ../../top; echo two > file; git status --porcelain; git commit -qam second; git log --format=%s";
    let finished = run(
        &mut lazaret_in(&world, &package, &["run", "-v", "--", "bash", "-c", script]),
        LIMIT,
    );
    let want = format!(
        "{}\nof all\n M packages/one/file\nsecond\nfirst\n",
        package.display()
    );
    assert_eq!(finished.success(), want, "{}", finished.errors());
    let project = world.project.display();
    let chosen = format!(
        "lazaret: the project is {project} (the repository around the working directory); commands start in packages/one\n"
    );
    let errors = finished.errors();
    let others = ["lazaret: variables that ", "lazaret: the flat tier, "];
    let lines = errors
        .lines()
        .filter(|line| !others.iter().any(|other| line.starts_with(other)));
    assert_eq!(
        lines.map(|line| format!("{line}\n")).collect::<String>(),
        chosen
    );
    let silent = run(
        &mut lazaret_in(&world, &package, &["run", "--", "true"]),
        LIMIT,
    );
    assert_eq!(
        (silent.success().as_str(), silent.errors().as_str()),
        ("", "")
    );
}

place_test!(options_choose_another_project);
fn options_choose_another_project(place: Place) {
    let world = workspace(place);
    let package = world.project.join("packages/one");
    let named = package.to_str().unwrap();
    let printed = |directory: &Path, options: &[&str]| {
        let script = [
            "--",
            "bash",
            "-c",
            "pwd; cat /dev/null ../../top 2>/dev/null; true",
        ];
        run(
            &mut lazaret_in(&world, directory, &[&["run"], options, &script].concat()),
            LIMIT,
        )
        .success()
    };
    // The control: with the repository as the project, it is read.
    assert_eq!(printed(&package, &[]), format!("{named}\nof all\n"));
    assert_eq!(printed(&package, &["--project", "."]), format!("{named}\n"));
    assert_eq!(
        printed(&world.outside, &["--project", named]),
        format!("{named}\n")
    );
    assert_eq!(
        printed(&world.outside, &["--cwd", named]),
        format!("{named}\nof all\n")
    );
    let parent = world.project.join("packages");
    assert_eq!(
        printed(&package, &["--project", parent.to_str().unwrap()]),
        format!("{named}\n")
    );
    let mut elsewhere = lazaret_in(
        &world,
        &package,
        &["run", "--project", named, "--cwd", "../..", "--", "true"],
    );
    let finished = run(&mut elsewhere, LIMIT);
    finished.expect(125);
    assert!(
        finished.errors().contains("it is not in the project"),
        "{}",
        finished.errors()
    );
}

once_test!(calls_and_sessions_work_there_too);
fn calls_and_sessions_work_there_too() {
    let world = workspace(Place::any());
    let package = world.project.join("packages/one");
    let call = |tool: &str, input: &str| {
        run(
            &mut lazaret_in(&world, &package, &["call", tool, input]),
            LIMIT,
        )
        .success()
    };
    assert_eq!(
        call("bash", r#"{"command":"pwd"}"#),
        format!("{}\n", package.display())
    );
    assert_eq!(
        call("bash", r#"{"command":"pwd","cwd":"project:"}"#),
        format!("{}\n", world.project.display())
    );
    for path in ["file", "../one/file", "project:packages/one/file"] {
        assert_eq!(
            call("file_read", &json!({"path": path}).to_string()),
            "one\n",
            "{path}"
        );
    }
    assert_eq!(
        call("glob", r#"{"pattern":"**/*"}"#).trim_end(),
        "packages/one/file"
    );
    let mut session = Session::start(&mut lazaret_in(&world, &package, &["session"]));
    assert_eq!(session.ready["project"], json!(world.project));
    assert_eq!(session.ready["cwd"], json!("packages/one"));
    assert_eq!(
        session.bash("pwd").success(),
        format!("{}\n", package.display())
    );
    // What results name is read back as it stands there.
    let read = session.start_call("file_read", json!({"path": "packages/one/file"}));
    assert_eq!(
        session.answer_within(&read, LIMIT).result["status"],
        "success"
    );
}

once_test!(a_home_is_no_project);
/// Somebody who keeps settings in a repository of the whole home does not work on all of it.
fn a_home_is_no_project() {
    let world = World::new(Place::any());
    let directory = world.home.join("work");
    world.make_folder(&directory);
    world.set_up("cd; git init -q");
    let finished = run(
        &mut lazaret_in(&world, &directory, &["run", "-v", "--", "pwd"]),
        LIMIT,
    );
    assert_eq!(finished.success(), format!("{}\n", directory.display()));
    assert!(
        finished.errors().contains("in no repository of yours"),
        "{}",
        finished.errors()
    );
}

/// The user's repository in `outside/main`, with the project as a worktree of it, another worktree, and a packed branch.
fn worktree(place: Place) -> World {
    let world = World::new(place);
    let script = format!(
        "cd '{}'; git init -q -b main main; cd main; {IDENTITY}; echo one > file; git add file; git commit -qm one
         git branch old; git branch side; git worktree add -q -b topic '{}'; git worktree add -q -b other ../other
         git pack-refs --all; printf '#!/bin/sh\\ntrue\\n' > .git/hooks/pre-commit; chmod 755 .git/hooks/pre-commit",
        world.outside.display(),
        world.project.display()
    );
    world.set_up(&script);
    world
}

place_test!(a_linked_worktree_is_worked_in);
fn a_linked_worktree_is_worked_in(place: Place) {
    let world = worktree(place);
    let script = "set -e; git status --porcelain; echo two >> file; git add file; git commit -qm two; git log --format=%s
        echo x > x; git stash -qu; git stash pop -q >/dev/null; git add x; git commit -qm x; git branch -q new; git branch -qd old
        git checkout -q side; echo s > s; git add s; git commit -qm s; git checkout -q topic; git rebase -q side
        git tag t; git reset -q --hard HEAD~1; git merge -q --ff-only t; git pack-refs --all; git worktree list | wc -l
        git status --porcelain; git log --format=%s | head -2";
    let finished = world.in_cell(script);
    assert_eq!(
        finished.success(),
        "two\none\n3\nx\ntwo\n",
        "{}",
        finished.errors()
    );
    let host = "cd ../outside/main; git status --porcelain; git log --format=%s topic; git branch --format='%(refname:short)'
        git fsck --no-dangling; git worktree list | wc -l; git -C ../other status --porcelain";
    let want = "x\ntwo\ns\none\nmain\nnew\nother\nside\ntopic\n3\n";
    assert_eq!(world.set_up(host), want);
}

/// Attempts of a command on the repository that its worktree belongs to. Each changes something there that is not the worktree's.
const ON_COMMON: [&str; 15] = [
    "echo sprung >> $G/config",
    "git config core.fsmonitor sprung",
    "echo sprung > $G/hooks/pre-commit; echo sprung > $G/hooks/post-commit",
    "mv $G/hooks $G/h; mkdir $G/hooks; echo sprung > $G/hooks/post-commit",
    "mkdir -p $G/info; echo sprung > $G/info/attributes",
    "echo sprung > $G/config.worktree; echo sprung > $G/worktrees/$N/config.worktree",
    "echo 'ref: refs/heads/side' > $G/HEAD",
    "rm -f $G/index; echo sprung > $G/index",
    "echo sprung > $G/COMMIT_EDITMSG; echo sprung > $G/new; mkdir $G/newer",
    "rm -rf $G/worktrees/other; git worktree prune --expire=now",
    "echo /tmp/.git > $G/worktrees/$N/gitdir",
    "echo ../.. > $G/worktrees/$N/c; mv $G/worktrees/$N/c $G/worktrees/$N/commondir; rm -f $G/worktrees/$N/commondir",
    "mv $G/objects $G/o; mkdir $G/objects; mv $G/worktrees $G/w",
    "git worktree add -q ../another; git -C $G/worktrees/other symbolic-ref HEAD refs/heads/side",
    "ln -s $G/config $G/refs/sprung; echo sprung >> $G/refs/sprung; ln $G/config $G/refs/c; echo sprung >> $G/refs/c",
];

/// Names, kinds, modes and contents of what is not shared, and where links lie.
const NOT_SHARED: &str = "cd ../outside/main/.git; find . \\( -path './objects/?*' -o -path './refs/?*' -o -path './logs/?*' -o \
    -path './worktrees/project/?*' -o -name 'packed-refs*' \\) -prune -o -printf '%p %y %l\\n' | sort
    cat worktrees/project/commondir worktrees/project/gitdir; find . -type l; ls -A worktrees/project | grep config
    find . -path ./objects -prune -o -type f -print | grep -v -e '^./logs' -e '^./refs' -e project -e packed-refs | sort | xargs sha256sum";

place_test!(only_the_shared_part_of_a_worktrees_repository_is_open);
fn only_the_shared_part_of_a_worktrees_repository_is_open(place: Place) {
    let kept = KeptWorld::of(worktree(place));
    let state = |world: &World| world.set_up(&format!("{{ {NOT_SHARED}; }} 2>&1 || true"));
    let before = state(kept.restore());
    for attack in ON_COMMON {
        let changed = |in_cell: bool| {
            let world = kept.restore();
            let common = world.outside.join("main/.git");
            let script = format!("G='{}'; N=project; {attack}", common.display());
            let finished = match in_cell {
                true => world.in_cell(&script),
                false => world.on_host(&script),
            };
            let after = state(world);
            (before != after).then(|| {
                format!(
                    "{before}\n---\n{after}\n---\n{}{}",
                    finished.text(),
                    finished.errors()
                )
            })
        };
        assert!(
            changed(false).is_some(),
            "the control does nothing: {attack}"
        );
        assert_eq!(changed(true), None, "{attack}");
    }
}

place_test!(a_file_in_the_project_opens_no_repository);
/// A file `.git` that anybody may have written, in a project that was unpacked.
fn a_file_in_the_project_opens_no_repository(place: Place) {
    for target in [
        "main/.git",
        "main/.git/worktrees/other",
        "main/.git/worktrees/project",
    ] {
        let world = worktree(place);
        let common = world.outside.join("main/.git");
        let hostile = world.base().join("hostile");
        world.write(
            &hostile.join(".git"),
            format!("gitdir: {}\n", world.outside.join(target).display()),
        );
        let script = format!(
            "cat '{0}/config'; echo sprung > '{0}/refs/sprung'; git log --format=%s",
            common.display()
        );
        let sprung = |common: &Path| common.join("refs/sprung").exists();
        let mut cell = world.program("lazaret");
        cell.current_dir(&hostile)
            .args(["run", "--", "bash", "-c", &script]);
        let finished = run(&mut cell, LIMIT);
        assert_eq!(
            (finished.text().as_str(), sprung(&common)),
            ("", false),
            "{target}"
        );
        let named = format!(
            "{:?} (the project's .git leads there, but nothing in it leads back",
            world.outside.join(target)
        );
        assert!(finished.errors().contains(&named), "{}", finished.errors());
        // The control: in a worktree that the repository knows it is read.
        let finished = world.in_cell(&script);
        assert!(
            finished.text().contains("[core]") && sprung(&common),
            "{}",
            finished.errors()
        );
    }
}

place_test!(a_submodule_is_worked_in);
fn a_submodule_is_worked_in(place: Place) {
    let world = World::new(place);
    let script = format!(
        "cd '{}'; git init -q -b main lib; cd lib; {IDENTITY}; echo l > l; git add l; git commit -qm lib; cd ..
         git init -q -b main super; cd super; {IDENTITY}
         git -c protocol.file.allow=always submodule add -q \"$PWD/../lib\" sub; git commit -qm sub
         cd sub; {IDENTITY}",
        world.outside.display()
    );
    world.set_up(&script);
    let sub = world.outside.join("super/sub");
    let work = |script: &str| {
        let mut cell = world.program("lazaret");
        cell.current_dir(&sub)
            .args(["run", "-v", "--", "bash", "-c", script]);
        run(&mut cell, LIMIT)
    };
    let finished = work(
        "set -e; git status --porcelain; echo m >> l; git commit -qam more; git checkout -q -b b; git log --format=%s",
    );
    assert_eq!(finished.success(), "more\nlib\n", "{}", finished.errors());
    let module = world.outside.join("super/.git/modules/sub");
    let attack = |script: &str| script.replace("$M", module.to_str().unwrap());
    let script = "echo sprung >> $M/config; echo sprung > $M/hooks/post-commit; echo sprung >> $M/../../config";
    work(&attack(script));
    let found = "grep -r sprung super/.git/config super/.git/modules/sub/config super/.git/modules/sub/hooks | wc -l; git -C super/sub log -1 --format=%s";
    let look = format!("cd '{}'; {found}", world.outside.display());
    assert_eq!(world.set_up(&look), "0\nmore\n");
    world.set_up(&attack(script));
    assert_ne!(world.set_up(&look), "0\nmore\n", "control");
}

place_test!(a_separate_directory_is_opened_by_policy);
fn a_separate_directory_is_opened_by_policy(place: Place) {
    let world = World::new(place);
    let store = world.outside.join("store.git");
    let script = format!(
        "git init -q -b main --separate-git-dir '{}' .; {IDENTITY}; echo a > a; git add a; git commit -qm a",
        store.display()
    );
    world.set_up(&script);
    let log = |profile: &str| {
        run(
            world
                .lazaret("run")
                .args(["--profile", profile, "--", "git", "log", "--format=%s"]),
            LIMIT,
        )
    };
    assert_ne!(log("default").code(), 0, "the policy does not name it");
    let policy = format!(
        "version = 1\n[profile.own]\ngit_directories = ['{}']\n",
        store.display()
    );
    world.write(&world.home.join("config/lazaret/policy.toml"), policy);
    let mut command = world.lazaret("run");
    command.env("XDG_CONFIG_HOME", world.home.join("config"));
    let finished = run(command.args(["--profile", "own", "--", "bash", "-c", "git commit -q --allow-empty -m b; git log --format=%s; echo x >> .git/../../outside/store.git/config"]), LIMIT);
    assert_eq!(finished.text(), "b\na\n", "{}", finished.errors());
    assert_ne!(finished.code(), 0, "its settings are closed");
}

place_test!(no_link_comes_into_a_repository);
/// The user's git writes through links in its directory.
fn no_link_comes_into_a_repository(place: Place) {
    const ATTACKS: [&str; 5] = [
        "rm -f .git/logs/refs/heads/main; ln -s \"$T\" .git/logs/refs/heads/main",
        "ln -s \"$T\" l; rm -f .git/logs/HEAD; mv l .git/logs/HEAD",
        "rm -f .git/COMMIT_EDITMSG; ln -s \"$T\" .git/COMMIT_EDITMSG",
        "mkdir d; cp -r .git/logs/. d; rm -f d/HEAD; ln -s \"$T\" d/HEAD; rm -rf .git/logs; mv d .git/logs",
        "rm -f .git/packed-refs; ln -s \"$T.new\" .git/packed-refs",
    ];
    let world = World::new(place);
    world.set_up(&format!(
        "git init -q -b main; {IDENTITY}; git commit -q --allow-empty -m a; git pack-refs --all"
    ));
    let target = world.outside.join("rc");
    world.write(&target, "mine\n");
    let kept = KeptWorld::of(world);
    for attack in ATTACKS {
        let written = |in_cell: bool| {
            let world = kept.restore();
            let script = format!("T='{}'; {attack}", target.display());
            match in_cell {
                true => world.in_cell(&script),
                false => world.on_host(&script),
            };
            world.set_up("git commit -q --allow-empty -m b; git branch x; git pack-refs --all; git branch -qd x");
            std::fs::read(&target).unwrap() != b"mine\n" || target.with_extension("new").exists()
        };
        assert!(written(false), "the control does nothing: {attack}");
        assert!(!written(true), "{attack}");
    }
}

place_test!(committed_files_with_names_of_secrets_are_ordinary);
/// Names of secrets that are committed, loose or packed: whoever has the repository has what is in them.
fn committed_files_with_names_of_secrets_are_ordinary(place: Place) {
    for pack in ["true", "git gc -q"] {
        let world = World::new(place);
        for name in [".env.test", "packages/a/.env.development"] {
            world.put(name, "MODE=one\n");
        }
        world.put("file", "one\n");
        let script = format!(
            "git init -q -b main; {IDENTITY}; git add -Af .; git commit -qm one; git branch side; echo MODE=two > .env.test
             git commit -qam two; git checkout -q side; git rm -q .env.test; git commit -qm none; git checkout -q main; {pack}"
        );
        world.set_up(&script);
        let script = "set -e; cat .env.test packages/a/.env.development; git status --porcelain; echo MODE=three > .env.test
            git stash -q; cat .env.test; git stash pop -q >/dev/null; cat .env.test; git reset -q --hard
            git checkout -q side; ls .env.test 2>/dev/null || true; git checkout -q main; git checkout -q -b work HEAD~1
            echo x > x; git add x; git commit -qm x; git rebase -q main; cat .env.test; git status --porcelain; git log --format=%s";
        let finished = world.in_cell(script);
        let want = "MODE=two\nMODE=one\nMODE=two\nMODE=three\nMODE=two\nx\ntwo\none\n";
        assert_eq!(finished.success(), want, "{pack}: {}", finished.errors());
        assert_eq!(
            world.set_up("git status --porcelain; git fsck --no-dangling; cat .env.test"),
            "MODE=two\n"
        );
    }
}

place_test!(uncommitted_content_stays_a_secret);
/// Content that is not committed under its path as it is stays a secret, whatever index and objects say.
fn uncommitted_content_stays_a_secret(place: Place) {
    const NOT_COMMITTED: [&str; 6] = [
        "echo $S > .env",
        "echo $S > .env; git add -f .env",
        "echo one > .env; git add -f .env; git commit -qm env; echo $S > .env",
        "echo $S > .env; git add -f .env; git commit -qm env; git rm -q --cached .env; git commit -qm no",
        "echo $S > .env.a; git add -f .env.a; git commit -qm a; git mv .env.a .env.b; mv .env.b .env",
        // The index lies: it names an object of other content.
        "echo $S > .env; echo x | git hash-object -w --stdin > o; git update-index --add --cacheinfo 100644,$(cat o),.env
         git commit -qm env",
    ];
    for scene in NOT_COMMITTED {
        let world = World::new(place);
        let secret = &world.canary;
        world.set_up(&format!(
                "S={secret}; git init -q -b main; {IDENTITY}; echo f > f; git add f; git commit -qm f; {scene}"
            ));
        let finished =
            world.in_cell("cat .env; grep -r . .env; echo sprung >> .env; rm -f .env; true");
        assert!(!finished.text().contains(secret.as_str()), "{scene}");
        let there = world.set_up("cat .env");
        assert_eq!(there.trim(), secret, "{scene}");
        // The control: once it is committed it is read.
        world.set_up("git add -f .env; git commit -qm all");
        let finished = world.in_cell("cat .env");
        assert_eq!(finished.success().trim(), secret, "{scene}");
    }
}

place_test!(a_later_run_goes_on_where_an_earlier_one_stopped);
/// Files that commands of a project have made under protected names can be changed and removed by later ones.
fn a_later_run_goes_on_where_an_earlier_one_stopped(place: Place) {
    let world = World::new(place);
    let made = "mkdir -p .github/workflows; echo one > .env.test; echo one > .github/workflows/ci.yml; echo one > .bazelrc";
    world.in_cell(made).success();
    let changed = "set -e; cat .env.test .github/workflows/ci.yml .bazelrc; echo two >> .env.test; echo two >> .github/workflows/ci.yml
        echo new > .github/workflows/new.yml; rm .bazelrc; mv .env.test .env.prod; echo three > .env.test";
    let finished = world.in_cell(changed);
    assert_eq!(
        finished.success(),
        "one\none\none\n",
        "{}",
        finished.errors()
    );
    // In a session of several calls too.
    let mut session = Session::open(&world);
    let read = "cat .env.prod .env.test .github/workflows/*; ls .bazelrc 2>/dev/null; echo four > .env.prod";
    assert_eq!(
        session.bash(read).success(),
        "one\ntwo\nthree\none\ntwo\nnew\n"
    );
    session.close(LIMIT);
    let finished = world.in_cell("set -e; cat .env.prod; rm -r .github .env.prod .env.test; ls -A");
    assert_eq!(finished.success(), "four\n", "{}", finished.errors());
}

place_test!(file_changed_after_the_last_call_is_closed_to_later_sessions);
/// The broker is still ending when the user goes on: what is written then is the user's. A hostile command can make that time long, by
/// processes that have to be ended first.
fn file_changed_after_the_last_call_is_closed_to_later_sessions(place: Place) {
    /// What a session's end takes; where it takes longer, nothing is shown.
    const ENDED: Duration = Duration::from_millis(300);
    let world = World::new(place);
    let read = |name: &str| {
        let finished = world.in_cell(&format!("cat {name}; echo sprung >> {name}"));
        let left = fs::read_to_string(world.project.join(name)).unwrap();
        (String::from_utf8_lossy(&finished.stdout).into_owned(), left)
    };
    world.set_up("echo '.env.*' > .gitignore");
    for round in 0..8 {
        let name = format!(".env.r{round}");
        // Its session is still ending when this returns.
        let made = world.cell(&format!("echo A=one > {name}")).status();
        assert!(made.unwrap().success());
        let path = world.project.join(&name);
        let mut file = fs::File::options().append(true).open(path).unwrap();
        let secret = format!("K={}\n", world.canary);
        file.write_all(secret.as_bytes()).unwrap();
        thread::sleep(ENDED);
        let (seen, left) = read(&name);
        assert!(!seen.contains(&world.canary), "{round}: {seen}");
        assert_eq!(left, format!("A=one\n{secret}"), "{round}");
    }
    // The control: what nobody else has changed stays the commands'.
    world.in_cell("echo A=one > .env.c").success();
    let (seen, left) = read(".env.c");
    assert_eq!(
        (seen.as_str(), left.as_str()),
        ("A=one\n", "A=one\nsprung\n")
    );
}

place_test!(file_changed_by_the_host_is_closed_again);
/// A file that the host has changed since is the host's.
fn file_changed_by_the_host_is_closed_again(place: Place) {
    const CHANGES: [(&str, &str, &str); 6] = [
        (
            "echo $S > .env.test",
            "cat .env.test",
            "echo sprung >> .env.test",
        ),
        (
            "echo $S > new; mv new .env.test",
            "cat .env.test",
            "echo sprung > .env.test",
        ),
        (
            "cp .env.test new; mv new .env.test",
            "cat .env.test | grep -q one && echo $S",
            "echo sprung >> .env.test",
        ),
        (
            "echo $S >> .github/workflows/ci.yml",
            "false",
            "echo sprung >> .github/workflows/ci.yml",
        ),
        (
            "echo $S > .github/workflows/host.yml",
            "false",
            "echo sprung >> .github/workflows/host.yml",
        ),
        (
            "mv .github/workflows w; cp -r w .github/workflows",
            "false",
            "echo sprung > .github/workflows/ci.yml",
        ),
    ];
    for (change, read, write) in CHANGES {
        let attacked = |changed: bool| {
            let world = World::new(place);
            let make = "mkdir -p .github/workflows; echo one > .env.test; echo one > .github/workflows/ci.yml";
            world.in_cell(make).success();
            let secret = format!("S={};", world.canary);
            if changed {
                world.set_up(&format!("{secret} {change}"));
            }
            let finished = world.in_cell(&format!("{secret} {read}; {write}"));
            let written = world
                .set_up("cat .env.test .github/workflows/*")
                .contains("sprung");
            (written, finished.text().contains(&world.canary))
        };
        assert_eq!(attacked(true), (false, false), "{change}");
        if !write.contains("host.yml") {
            assert!(attacked(false).0, "the control does nothing: {write}");
        }
    }
}
