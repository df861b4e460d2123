//! Protected objects, whatever they are called and wherever links lead. Each attack runs as its control first,
//! with no cell, and must work there.

use crate::kept_world::{KeptWorld, Side};
use broker_protocol::Tier;
use lazaret_tests::not_run;
use lazaret_tests::process::{Running, assert_gone, below, left_after, until};
use lazaret_tests::programs::path;
use lazaret_tests::world::long_sleep;
use lazaret_tests::{Finished, GitView, LIMIT, Place, Session, World, once_test, place_test, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

/// Something that a command tries in a project that the user has made.
struct Attack {
    /// Preparation by the user before the attack.
    scene: fn(&World),
    script: &'static str,
    /// Whether it worked, from what it printed and what is there now.
    worked: fn(&World, &str) -> bool,
}

impl Attack {
    #[track_caller]
    fn is_contained(&self, place: Place) {
        let world = World::new(place);
        (self.scene)(&world);
        KeptWorld::of(world).contains_said(self.script, |world, said| {
            (self.worked)(world, &format!("{}{}", said.text(), said.errors()))
        });
    }
}

/// An attack in a cell, after which the user's git does what it did before.
#[track_caller]
fn in_cell_seen(world: &World, mut command: std::process::Command, attack: &str) -> Finished {
    let before = GitView::of(world);
    let finished = run(&mut command, LIMIT);
    before.assert_unchanged(world, attack);
    finished
}

fn link(world: &World, target: &str, name: &str) {
    let path = world.project.join(name);
    world.make_folder(path.parent().unwrap());
    symlink(target, &path).unwrap();
    world.own(&path);
}

/// A repository of the user's, made by the user's git.
fn repository(world: &World) {
    run(world.host("git").args(["init", "-q"]), LIMIT).success();
}

fn is_link(world: &World, name: &str) -> bool {
    world.project.join(name).is_symlink()
}

/// Changes that no cell may bring about, each with the part of the user's git that shows it.
const SEEN: [(&str, &str); 12] = [
    ("git config core.fsmonitor 'touch sprung; false'", "it runs"),
    (
        "git config core.fsmonitor 'touch sprung; false'",
        "a new setting: local",
    ),
    (
        "git config include.path ../dev.gitconfig; git config -f dev.gitconfig user.name x",
        "it reads",
    ),
    // Git reads attributes when it compares content: that of a file of the same size.
    (
        "echo '*.md diff=x' > .git/info/attributes; printf two > a",
        "it reads",
    ),
    ("echo /nowhere > .git/objects/info/alternates", "it reads"),
    (
        "printf '#!/bin/sh\n' > .git/hooks/pre-commit",
        "a hook lies ready",
    ),
    ("git config --unset user.name", "gone: local"),
    (
        "rm .git/HEAD; mkdir objects refs; echo ref: refs/heads/m > HEAD
         printf '[core]\nbare = false\nworktree = .\nfsmonitor = touch sprung\n' > config",
        "the repository is",
    ),
    (
        "mkdir -p n/objects n/refs; echo ref: refs/heads/m > n/HEAD
         printf '[core]\nbare = false\nworktree = ..\nfsmonitor = touch sprung\n' > n/config",
        "a new setting: local",
    ),
    (
        "git init -q n; git -C n config diff.external tools/x",
        "a new setting: local",
    ),
    ("git init -q --separate-git-dir ../outside/g n", "it reads"),
    ("rm .git/index; mkfifo .git/index", "`git status` ends with"),
];

/// Work after which git does what it did: commits, branches, a worktree, repositories of a cell's own.
const UNSEEN: &str = "git checkout -q -b other; echo two > a; git add a; git commit -qm two; git tag t; git gc -q; git checkout -q --detach
    git worktree add -q ../project/w; git init -q own; git -C own commit -q --allow-empty -m x; git clone -q own cloned
    git init -q --bare store.git; echo '*.o' >> .git/info/exclude; echo '* text' > .gitattributes; git stash -q -u; mkdir HEADS";

once_test!(changes_that_the_users_git_notices_are_detected);
/// The judge of the attacks on git can fail, and ordinary work does not make it.
fn changes_that_the_users_git_notices_are_detected() {
    let scene = || {
        let world = World::new(Place::any());
        world.put("a", "one");
        repository(&world);
        world.set_up(&format!("{IDENTITY}; git add a; git commit -qm one"));
        world
    };
    for (script, said) in SEEN {
        let world = scene();
        let before = GitView::of(&world);
        world.set_up(script);
        // One of them makes git wait for ever: that git is given little time.
        let patience = if script.contains("mkfifo") { 2 } else { 60 };
        let after = GitView::within(Duration::from_secs(patience), &world);
        let changes = before.changes(&after);
        assert!(
            changes.iter().any(|change| change.contains(said)),
            "{script}: {changes:?}"
        );
    }
    let world = scene();
    let before = GitView::of(&world);
    world.set_up(&format!(
            "export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t; {UNSEEN}"
        ));
    before.assert_unchanged(&world, UNSEEN);
}

place_test!(target_of_a_protected_link_is_closed);
fn target_of_a_protected_link_is_closed(place: Place) {
    Attack {
        scene: |world| {
            world.put("conf/real/prod", &world.canary);
            link(world, "real", "conf/now");
            link(world, "conf/now/prod", ".env");
        },
        script: "cat .env conf/real/prod conf/now/prod",
        worked: |world, said| said.contains(&world.canary),
    }
    .is_contained(place);
    Attack {
        scene: |world| {
            repository(world);
            world.put_program("tools/x", "#!/bin/sh\n");
            link(world, "../../tools/x", ".git/hooks/pre-commit");
        },
        script: "echo sprung >> tools/x; echo sprung > y; mv y tools/x; mv tools t; mkdir tools; cp t/x tools/x; echo sprung >> tools/x",
        worked: |world, _| String::from_utf8_lossy(&world.get("tools/x")).contains("sprung"),
    }
    .is_contained(place);
    Attack {
        scene: |world| {
            world.put("conf/a/settings.json", "{}");
            link(world, "conf/a", ".claude");
        },
        script: "echo sprung > conf/a/settings.json; echo sprung > conf/a/new; rm -f .claude; mkdir .claude; echo sprung > .claude/new",
        worked: |world, _| {
            let there = |name: &str| world.project.join(name).exists();
            !is_link(world, ".claude") || there("conf/a/new") || world.get("conf/a/settings.json") != b"{}"
        },
    }
    .is_contained(place);
}

place_test!(missing_target_of_a_protected_link_cannot_be_made);
fn missing_target_of_a_protected_link_cannot_be_made(place: Place) {
    Attack {
        scene: |world| {
            repository(world);
            world.make_folder(&world.project.join("tools"));
            link(world, "../../tools/x", ".git/hooks/pre-commit");
        },
        script: "echo sprung > tools/x; mkdir new; echo sprung > new/x; mv tools old; mv new tools; ln -s old/y tools/x",
        worked: |world, _| world.project.join("tools/x").symlink_metadata().is_ok(),
    }
    .is_contained(place);
}

/// Ways by which links and files `.git` lead to a directory: what is swapped is one above it. Each with the file that the host
/// then acts on.
const WAYS: [(&str, &str, &str); 8] = [
    (
        "mkdir -p conf/vscode; ln -s conf/vscode .vscode",
        "mv conf o; mkdir -p n/vscode; echo sprung > n/vscode/tasks.json; mv n conf",
        ".vscode/tasks.json",
    ),
    (
        "mkdir -p conf/vscode new/vscode; ln -s conf/vscode .vscode",
        "echo sprung > new/vscode/tasks.json; python3 -c 'import ctypes; ctypes.CDLL(None).renameat2(-100, b\"new\", -100, b\"conf\", 2)'",
        ".vscode/tasks.json",
    ),
    (
        "mkdir -p conf/vscode; ln -s conf/vscode .vscode",
        "rm -rf conf; mkdir -p n/vscode; echo sprung > n/vscode/tasks.json; ln -s n conf; mv n conf",
        ".vscode/tasks.json",
    ),
    (
        "mkdir -p c4/gh; ln -s c4/gh .github",
        "mv c4/gh o; mkdir -p n/hooks; echo sprung > n/hooks/x.json; mv n c4/gh",
        ".github/hooks/x.json",
    ),
    (
        "ln -s nodir/x .cargo",
        "mkdir -p n/x; echo sprung > n/x/config.toml; mv n nodir",
        ".cargo/config.toml",
    ),
    (
        "ln -s nodir/../there/x .cargo",
        "mkdir -p d/e d/there/x; echo sprung > d/there/x/config.toml; ln -s d/e nodir",
        ".cargo/config.toml",
    ),
    (
        "mkdir sub; echo 'gitdir: ../nodir/gd' > sub/.git",
        "mkdir -p m/gd; echo sprung > m/gd/config; mv m nodir",
        "nodir/gd/config",
    ),
    (
        "mkdir -p up/store/objects up/store/refs; echo 'ref: refs/heads/m' > up/store/HEAD",
        "mv up o; mkdir -p n/store/objects n/store/refs; echo sprung > n/store/config; mv n up; cp o/store/HEAD up/store/HEAD; echo sprung > o/store/config",
        "{up,o}/store/config",
    ),
];

place_test!(path_to_a_protected_object_cannot_be_redirected);
fn path_to_a_protected_object_cannot_be_redirected(place: Place) {
    for (scene, script, file) in WAYS {
        let world = World::new(place);
        world.on_host(scene).success();
        KeptWorld::of(world).contains(script, |world| {
            let found = world.on_host(&format!("cat {file}"));
            found.text().contains("sprung")
        });
    }
}

place_test!(directories_beside_such_a_way_are_moved);
fn directories_beside_such_a_way_are_moved(place: Place) {
    let world = World::new(place);
    link(&world, "conf/vscode", ".vscode");
    world.put("conf/vscode/mine.txt", "x");
    world.put("conf/other/a", "x");
    world.put("config/a", "x");
    let script = "set -e; mv conf/other conf/moved; mv config o; mv o config; mkdir d; mv d conf/d; rmdir conf/d; \
        mv conf/vscode/mine.txt conf/vscode/yours.txt; mkdir conf/vscode/e; cat .vscode/yours.txt";
    assert_eq!(world.in_cell(script).success(), "x");
}

/// Roots inside the user's project, each with what the user has made, what a command there does, and what then tells.
const ROOTS: [(&str, &str, &str, &str); 10] = [
    (
        "mkdir .vscode; git init -q .vscode",
        ".vscode",
        "echo sprung > tasks.json",
        "cat .vscode/tasks.json",
    ),
    (
        "mkdir .claude .claude/.git",
        ".claude",
        "echo sprung > settings.json",
        "cat .claude/settings.json",
    ),
    (
        "mkdir -p .github/hooks; git init -q .github/hooks",
        ".github/hooks",
        "echo sprung > x.json",
        "cat .github/hooks/x.json",
    ),
    (
        "mkdir envs; echo S=1 > envs/dev; ln -s envs/dev .env",
        "envs",
        "echo sprung > dev",
        "cat envs/dev",
    ),
    (
        "mkdir envs; echo sprung > envs/dev; ln -s ../envs/dev src/.env",
        "envs",
        "cat dev > seen",
        "cat envs/seen",
    ),
    (
        "mkdir .vscode envs; echo {} > .vscode/settings.json; ln .vscode/settings.json envs/s",
        "envs",
        "echo sprung > s",
        "cat .vscode/settings.json",
    ),
    (
        "mkdir agents; ln -s agents .claude",
        "agents",
        "echo sprung > settings.json",
        "cat .claude/settings.json",
    ),
    (
        "mkdir -p a/vs; ln -s a/vs .vscode",
        "a/vs",
        "echo sprung > tasks.json",
        "cat .vscode/tasks.json",
    ),
    (
        "git init -q --bare x.git",
        "x.git/hooks",
        "echo sprung > pre-receive",
        "cat x.git/hooks/pre-receive",
    ),
    (
        "git init -q --bare x",
        "x/info",
        "echo sprung > attributes",
        "cat x/info/attributes",
    ),
];

/// `lazaret run` with a directory of the project as its root.
fn cell_in(world: &World, root: &str, script: &str) -> std::process::Command {
    let central = world
        .home
        .join(format!("central of {}", root.replace('/', "_")));
    world.make_folder(&central);
    let mut command = world.program("lazaret");
    command
        .arg("run")
        .arg("--project")
        .arg(world.project.join(root))
        .arg("--central")
        .arg(central);
    command.args(["--", "bash", "-c", script]);
    command
}

place_test!(a_root_below_the_users_repository_opens_nothing_that_is_closed_there);
fn a_root_below_the_users_repository_opens_nothing_that_is_closed_there(place: Place) {
    for (scene, root, script, tell) in ROOTS {
        let world = World::new(place);
        repository(&world);
        world.on_host(&format!("mkdir src; {scene}")).success();
        let attack = format!("cd {root} && {script}");
        KeptWorld::of(world).contains_by(&attack, |world, side| {
            let said = match side {
                Side::Host => world.on_host(&attack),
                Side::Cell => in_cell_seen(world, cell_in(world, root, script), script),
            };
            (world.on_host(tell).text().contains("sprung"), said)
        });
    }
    // An ordinary directory of the project is a root like any other.
    let world = World::new(place);
    repository(&world);
    world.put("packages/a/code", "code");
    world.put("packages/.env", &world.canary);
    assert_eq!(
        run(
            &mut cell_in(&world, "packages/a", "echo x > new; cat code new"),
            LIMIT
        )
        .success(),
        "codex\n"
    );
}

place_test!(checkouts_in_closed_directories_are_projects);
/// Assistants put theirs below their own directories, and people beside a bare repository.
fn checkouts_in_closed_directories_are_projects(place: Place) {
    let world = World::new(place);
    repository(&world);
    world.put("code", "x");
    let make = "git add code && git -c user.name=t -c user.email=t@t commit -qm x && mkdir .claude &&
        git worktree add -q .claude/worktrees/w && git clone -q --bare . store && git -C store worktree add -q main &&
        git clone -q --bare . store.git && git -C store.git worktree add -q main";
    world.on_host(make).success();
    for root in [".claude/worktrees/w", "store/main", "store.git/main"] {
        run(
            &mut cell_in(&world, root, "echo x > new && cat code new"),
            LIMIT,
        )
        .success();
    }
    // What a file `.git` says alone is no such.
    world.put(".claude/plain/.git", "gitdir: ../../.git/worktrees/w\n");
    assert_ne!(
        run(&mut cell_in(&world, ".claude/plain", "true"), LIMIT).code(),
        0
    );
}

place_test!(
    directory_around_the_project_is_searched_or_no_session_opens,
    ordinary_only
);
/// A command of an earlier session may have closed a directory to listing, in which a link says what is protected. Root lists it.
fn directory_around_the_project_is_searched_or_no_session_opens(place: Place) {
    let world = World::new(place);
    repository(&world);
    world.put("envs/dev", "x");
    link(&world, "../envs/dev", "src/.env");
    let mode = |mode| {
        fs::set_permissions(world.project.join("src"), fs::Permissions::from_mode(mode)).unwrap()
    };
    mode(0o311);
    let finished = run(&mut cell_in(&world, "envs", "true"), LIMIT);
    mode(0o755);
    assert_ne!(finished.code(), 0);
    assert!(
        finished.errors().contains("cannot be listed"),
        "{}",
        finished.errors()
    );
    run(&mut cell_in(&world, "envs", "! cat dev"), LIMIT).success();
}

place_test!(links_with_protected_names_stay);
fn links_with_protected_names_stay(place: Place) {
    for script in [
        "rm -f .claude .git",
        "mv .claude x; mv .git y",
        "ln -sfn other .claude; ln -sfn other .git",
    ] {
        Attack {
            scene: |world| {
                world.make_folder(&world.project.join("conf"));
                world.make_folder(&world.project.join("store"));
                link(world, "conf", ".claude");
                link(world, "store", ".git");
            },
            script,
            worked: |world, _| {
                let says = |name: &str, target: &str| {
                    fs::read_link(world.project.join(name))
                        .is_ok_and(|link| link == Path::new(target))
                };
                !says(".claude", "conf") || !says(".git", "store")
            },
        }
        .is_contained(place);
    }
}

place_test!(a_repository_elsewhere_is_protected_as_dot_git);
/// `.git` as a link, as a file, and a bare repository that nothing leads to.
fn a_repository_elsewhere_is_protected_as_dot_git(place: Place) {
    const SCRIPT: &str = "printf '[core]\\n\\tfsmonitor = sprung\\n' >> store/config; echo sprung > store/hooks/pre-commit; \
        echo sprung > store/config.new; mv store/config.new store/config; mv store s; echo sprung >> s/config; cat s/config";
    let scenes: [fn(&World); 3] = [
        |world| {
            repository(world);
            fs::rename(world.project.join(".git"), world.project.join("store")).unwrap();
            link(world, "store", ".git");
        },
        |world| {
            let store = world.project.join("store");
            run(
                world
                    .host("git")
                    .args(["init", "-q", "--separate-git-dir"])
                    .arg(&store),
                LIMIT,
            )
            .success();
        },
        |world| {
            run(
                world.host("git").args(["init", "-q", "--bare", "store"]),
                LIMIT,
            )
            .success();
        },
    ];
    for scene in scenes {
        let worked = |world: &World, _: &str| {
            let read =
                |path: &str| fs::read_to_string(world.project.join(path)).unwrap_or_default();
            ["store/config", "store/hooks/pre-commit", "s/config"]
                .iter()
                .any(|path| read(path).contains("sprung"))
        };
        Attack {
            scene,
            script: SCRIPT,
            worked,
        }
        .is_contained(place);
    }
}

place_test!(the_users_git_works_with_a_repository_elsewhere);
fn the_users_git_works_with_a_repository_elsewhere(place: Place) {
    let world = World::new(place);
    let store = world.project.join("store");
    run(
        world
            .host("git")
            .args(["init", "-q", "--separate-git-dir"])
            .arg(&store),
        LIMIT,
    )
    .success();
    world.put("code", "x");
    let git = "git -c user.name=t -c user.email=t@t.invalid";
    let script = format!(
        "{git} add code && {git} commit -qm x && {git} checkout -qb other && git status --short"
    );
    world.in_cell(&script).success();
}

/// The user's settings of a repository with one commit; `settings` are lines of its configuration.
fn with_settings(world: &World, settings: &str) {
    with_commit(world);
    add_settings(world, settings);
}

fn with_commit(world: &World) {
    let script = "git init -q -b main; git config user.name t; git config user.email t@t; echo '*.txt filter=f diff=f merge=f' > .gitattributes
        echo one > a.txt; echo one > b.md; mkdir -p tools src; git add .; git commit -qm one";
    world.set_up(script);
}

fn add_settings(world: &World, settings: &str) {
    let config = world.project.join(".git/config");
    let text = fs::read_to_string(&config).unwrap() + settings;
    world.write(&config, text);
}

/// Commands of the user after the attack. Each of them is ordinary.
const USERS_GIT: &str = "git status; echo two > a.txt; echo two > b.md; git diff; git add a.txt; git commit -qm two; git diff HEAD~1 | cat
    git x; git var GIT_EDITOR; git commit --amend -m three; git init -q \"$T/made\"; cd src 2>/dev/null && git status; true";

/// Settings, the file that they name, and where it has to be made first.
const SETTINGS: [(&str, &str); 20] = [
    (
        "[core]\n\thooksPath = tools/git-hooks\n",
        "tools/git-hooks/pre-commit",
    ),
    (
        "[CORE]\n\tHooksPath = \"tools/my hooks\" ; mine\n",
        "tools/my hooks/post-commit",
    ),
    ("[include]\n\tpath = ../dev.gitconfig\n", "dev.gitconfig"),
    (
        "[includeIf \"onbranch:main\"]\n\tpath = ../conf/git\n",
        "conf/git",
    ),
    ("[core]\n\tfsmonitor = tools/fsm\n", "tools/fsm"),
    (
        "[filter \"f\"]\n\tclean = ./tools/clean %f\n",
        "tools/clean",
    ),
    (
        "[filter \"f\"]\n\tclean = sh tools/clean.sh\n",
        "tools/clean.sh",
    ),
    ("[diff \"f\"]\n\ttextconv = tools/conv\n", "tools/conv"),
    ("[diff]\n\texternal = tools/differ\n", "tools/differ"),
    ("[alias]\n\tx = !tools/alias now\n", "tools/alias"),
    (
        "[alias]\n\tx = !\"$(git rev-parse --show-toplevel)/tools/y\"\n",
        "tools/y",
    ),
    ("[alias]\n\tx = !sh \"$PWD/tools/z\"\n", "tools/z"),
    (
        "[core]\n\tsshCommand = tools/ssh\n[alias]\n\tx = fetch ssh://h.invalid/x\n",
        "tools/ssh",
    ),
    (
        "[gpg]\n\tprogram = tools/gpg\n[commit]\n\tgpgSign = true\n",
        "tools/gpg",
    ),
    (
        "[core]\n\thooksPath = ~{user}/../../../..{project}/tools/git-hooks\n",
        "tools/git-hooks/pre-commit",
    ),
    (
        "[include]\n\tpath = ~{user}/../../../..{project}/dev.gitconfig\n",
        "dev.gitconfig",
    ),
    (
        "[filter \"f\"]\n\tclean = $HOME/../../../../../../..{project}/tools/clean %f\n",
        "tools/clean",
    ),
    (
        "[filter \"f\"]\n\tclean = sh \\\"${HOME}/../../../../../../..{project}/my tools\\\"/clean\n",
        "my tools/clean",
    ),
    (
        "[filter \"f\"]\n\tclean = {project}/my\\\\ tools/clean\n",
        "my tools/clean",
    ),
    (
        "[core]\n\tattributesFile = tools/attributes\n[diff \"g\"]\n\ttextconv = touch sprung; cat\n",
        "tools/attributes",
    ),
];

/// How a command puts something there that runs.
const PUT: &str = "put() { mkdir -p \"$(dirname \"$1\")\" 2>/dev/null; case \"$1\" in
        *config|conf/*) printf '[core]\\n\\tfsmonitor = touch sprung; false\\n' ;;
        *attributes) echo '*.md diff=g' ;;
        *) printf '#!/bin/sh\\ntouch sprung\\nexit 1\\n' ;; esac > \"$2\"; chmod 755 \"$2\"; }
    put \"$F\" \"$F\"";
/// Replacement by a new name, and by a directory that is moved.
const BY_RENAME: &str = "put \"$F\" new; mv new \"$F\"";
const BY_DIRECTORY: &str = "D=$(dirname \"$F\"); put \"$F\" new; mkdir other; mv new \"other/$(basename \"$F\")\"; mv \"$D\" old; mv other \"$D\"";

/// Where many settings are tried: with a commit.
fn commit(place: Place) -> KeptWorld {
    let world = World::new(place);
    with_commit(&world);
    KeptWorld::of(world)
}

fn springs(kept: &KeptWorld, scene: &dyn Fn(&World), file: &str, attack: &str, side: Side) -> bool {
    let world = kept.restore();
    // To git the files are new ones: before it looked into them, it would run what a setting names already here.
    run(
        world.host("git").args(["update-index", "-q", "--refresh"]),
        LIMIT,
    )
    .success();
    scene(world);
    let script = format!("F='{file}'; {PUT}; {attack}");
    match side {
        Side::Host => world.on_host(&script),
        Side::Cell => in_cell_seen(world, world.cell(&script), &script),
    };
    let script = format!("T='{}'; {USERS_GIT}", world.outside.display());
    world.on_host(&script);
    world.project.join("sprung").exists() || world.project.join("src/sprung").exists()
}

/// Where tools keep programs that git's settings name by a path that only a shell knows, as transcrypt does; each with what makes it the
/// command's.
const PRIVATE: [(&str, &str, &str); 6] = [
    (
        ".git/crypt/run",
        "\"$(git rev-parse --git-dir)\"/crypt/run",
        "echo 'touch sprung; cat' > .git/crypt/run",
    ),
    (
        ".git/crypt/run",
        "\"$(git rev-parse --git-dir)\"/crypt/run",
        "echo 'touch sprung; cat' > x; chmod +x x; mv x .git/crypt/run",
    ),
    (
        ".git/crypt/run",
        "\"$(git rev-parse --git-dir)\"/crypt/run",
        "mv .git/crypt .git/c; mkdir .git/crypt; echo 'touch sprung; cat' > .git/crypt/run; chmod +x .git/crypt/run",
    ),
    (
        ".git/run",
        "$(git rev-parse --git-dir)/run",
        "rm .git/run; printf '#!/bin/sh\ntouch sprung; cat' > .git/run; chmod +x .git/run",
    ),
    (
        ".git/my tools/run",
        "sh \"`git rev-parse --git-dir`/my tools/run\"",
        "echo 'touch sprung; cat' > '.git/my tools/run'",
    ),
    (
        ".git/plain/run",
        "sh \"$(git rev-parse --git-dir)\"/plain/run",
        "chmod 644 .git/plain/run; echo 'touch sprung; cat' > .git/plain/run",
    ),
];

place_test!(programs_in_a_repositorys_directory_are_closed);
fn programs_in_a_repositorys_directory_are_closed(place: Place) {
    for (file, setting, attack) in PRIVATE {
        for mode in ["755", "644"] {
            let world = World::new(place);
            world.put("secret", "s");
            world.put(".gitattributes", "secret filter=x");
            repository(&world);
            world.put_program(file, "#!/bin/sh\ncat\n");
            // A file that is no program is known by the setting alone, which a shell reads.
            let setting = if mode == "644" && !setting.starts_with("sh") {
                format!("sh {setting}")
            } else {
                setting.to_owned()
            };
            world.set_up(&format!(
                    "chmod {mode} '{file}'; git config filter.x.clean '{setting}'; {IDENTITY}; git add .; git commit -qm x"
                ));
            let kept = KeptWorld::of(world);
            kept.contains(attack, |world| {
                world.set_up("touch secret; git add secret");
                world.project.join("sprung").exists()
            });
        }
    }
    // Git's own data, and work trees that lie there, are none.
    let world = World::new(place);
    world.put_program("run.sh", "#!/bin/sh\n");
    repository(&world);
    world.set_up(&format!(
            "{IDENTITY}; git add .; git commit -qm x; git clone -q --bare . store; git -C store worktree add -q main; chmod +x .git/index .git/HEAD"
        ));
    let work = "set -e; echo x >> store/main/run.sh; echo y > y; git add y; git -c user.name=t -c user.email=t@t commit -qm y; git checkout -q -b z";
    world.in_cell(work).success();
}

place_test!(files_named_by_the_users_git_settings_are_closed);
fn files_named_by_the_users_git_settings_are_closed(place: Place) {
    let kept = commit(place);
    for (settings, file) in SETTINGS {
        for there in [false, true] {
            let scene = |world: &World| {
                let user = run(world.host("id").arg("-un"), LIMIT).success();
                let project = world.project.display().to_string();
                let settings = settings
                    .replace("{user}", user.trim())
                    .replace("{project}", &project);
                add_settings(world, &settings);
                if there {
                    world.put_program(
                        file,
                        if file.contains("conf") || file.contains("attributes") {
                            ""
                        } else {
                            "#!/bin/sh\n"
                        },
                    );
                }
            };
            // Without a cell there is no tier: one is enough for each user.
            let works =
                place.tier != Tier::Flat || springs(&kept, &scene, file, "true", Side::Host);
            assert!(works, "the control does not work: {settings}");
            let attack = if there {
                format!("{BY_RENAME}; {BY_DIRECTORY}")
            } else {
                BY_DIRECTORY.to_owned()
            };
            assert!(
                !springs(&kept, &scene, file, &attack, Side::Cell),
                "{settings} there: {there}"
            );
        }
    }
}

place_test!(files_named_by_the_accounts_git_settings_are_closed);
fn files_named_by_the_accounts_git_settings_are_closed(place: Place) {
    let kept = commit(place);
    for (named_by, text) in [
        (".gitconfig", "[core]\n\thooksPath = tools/git-hooks\n"),
        (
            ".config/git/config",
            "[core]\n\thooksPath = tools/git-hooks\n",
        ),
        (".gitconfig", "[include]\n\tpath = more/git\n"),
        (".gitconfig", "[include]\n\tpath = ~/more/git\n"),
    ] {
        let scene = |world: &World| {
            world.write(&world.home.join(named_by), text);
            world.write(
                &world.home.join("more/git"),
                "[core]\n\thooksPath = tools/git-hooks\n",
            );
        };
        let file = "tools/git-hooks/pre-commit";
        let works = springs(&kept, &scene, file, "true", Side::Host);
        assert!(works, "the control does not work: {named_by} {text}");
        assert!(
            !springs(&kept, &scene, file, "true", Side::Cell),
            "{named_by} {text}"
        );
    }
    // The account's settings are a link into the project, as those who keep such files in a repository have it.
    let scene = |world: &World| {
        world.put("dot/gitconfig", "");
        symlink(
            world.project.join("dot/gitconfig"),
            world.home.join(".gitconfig"),
        )
        .unwrap();
    };
    assert!(
        springs(&kept, &scene, "dot/gitconfig", "true", Side::Host),
        "the control does not work"
    );
    assert!(!springs(&kept, &scene, "dot/gitconfig", "true", Side::Cell));
}

place_test!(paths_in_git_settings_are_listed_and_other_work_goes_on);
fn paths_in_git_settings_are_listed_and_other_work_goes_on(place: Place) {
    let world = World::new(place);
    let lfs = "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\tprocess = git-lfs filter-process\n\trequired = true\n";
    let settings = "[core]\n\thooksPath = tools/git-hooks\n\teditor = vim\n\tpager = less -R\n[alias]\n\tst = status\n\tl = !git log | cat\n\
        [push]\n\tdefault = simple\n[remote \"origin\"]\n\turl = https://h.invalid/a/b.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
        [submodule \"src\"]\n\turl = ./src\n\tactive = true\n";
    with_settings(&world, &(lfs.to_owned() + settings));
    world.put_program("tools/git-hooks/pre-commit", "#!/bin/sh\nexit 0\n");
    let script = "set -e; cat tools/git-hooks/pre-commit; git checkout -q -b side; echo x > a.rs; echo y > src/y; git add .; git commit -qm two
        git l | wc -l >/dev/null; for f in main simple vim less git-lfs origin tools/x src/b.git README.md; do echo x > $f; done; mv src s
        rm tools/x; git log --format=%s";
    let finished = world.in_cell(script);
    assert_eq!(
        finished.success(),
        "#!/bin/sh\nexit 0\ntwo\none\n",
        "{}",
        finished.errors()
    );
    let change = [
        "-v",
        "--",
        "bash",
        "-c",
        "echo x >> tools/git-hooks/pre-commit",
    ];
    let finished = run(world.lazaret("run").args(change), LIMIT);
    assert_ne!(finished.code(), 0, "control");
    let line = format!(
        "{:?} (core.hookspath in {:?} names it)",
        world.project.join("tools/git-hooks"),
        world.project.join(".git/config")
    );
    assert!(finished.errors().contains(&line), "{}", finished.errors());
}

place_test!(settings_over_a_bound_open_no_session);
/// The paths that such settings name are unknown.
fn settings_over_a_bound_open_no_session(place: Place) {
    let world = World::new(place);
    let file = |bytes: usize| "[core]\n\tpager = less\n".to_owned() + &"#".repeat(bytes - 21);
    with_settings(&world, "[include]\n\tpath = more\n");
    world.write(&world.project.join(".git/more"), file(256 << 10));
    world.in_cell("true").success();
    world.write(&world.project.join(".git/more"), file((256 << 10) + 1));
    let finished = world.in_cell("true");
    assert_ne!(finished.code(), 0);
    assert!(
        finished
            .errors()
            .contains("more of git's settings than are read"),
        "{}",
        finished.errors()
    );
    world.write(
        &world.project.join(".git/more"),
        "[core]\n\thooksPath = ..\n",
    );
    fs::create_dir_all(world.project.join("d")).unwrap();
    let finished = world.in_cell("true");
    assert!(
        finished.errors().contains("names a root of the session"),
        "{}",
        finished.errors()
    );
}

place_test!(file_tools_know_what_links_lead_to);
fn file_tools_know_what_links_lead_to(place: Place) {
    let world = World::new(place);
    world.put("conf/prod", &world.canary);
    link(&world, "conf/prod", ".env");
    run(
        world.host("git").args(["init", "-q", "--bare", "store"]),
        LIMIT,
    )
    .success();
    let config = world.get("store/config");
    let mut session = Session::open(&world);
    let read = session.call("file_read", json!({"path": "conf/prod"}));
    assert!(
        !read.ok() && !read.result.to_string().contains(&world.canary),
        "{}",
        read.result
    );
    let written = session.call(
        "file_write",
        json!({"path": "store/config", "content": "x"}),
    );
    assert!(!written.ok(), "{}", written.result);
    let found = session.call("grep", json!({"pattern": "CANARY", "ignored": true}));
    assert!(
        !found.result.to_string().contains(&world.canary),
        "{}",
        found.result
    );
    assert_eq!(world.get("store/config"), config);
}

place_test!(a_directory_that_cannot_be_listed_is_closed);
fn a_directory_that_cannot_be_listed_is_closed(place: Place) {
    for mode in [0o311, 0o600] {
        assert!(
            unlisted_secret(&World::new(place), mode, false),
            "the control does not work"
        );
        assert!(!unlisted_secret(&World::new(place), mode, true), "{mode:o}");
    }
}

/// Whether a secret is read whose directory an earlier command has closed to listing. Root lists it all the same.
fn unlisted_secret(world: &World, mode: u32, in_cell: bool) -> bool {
    world.put("sub/.env", &world.canary);
    fs::set_permissions(world.project.join("sub"), fs::Permissions::from_mode(mode)).unwrap();
    let script = "cat sub/.env; chmod 755 sub; cat sub/.env";
    let finished = match in_cell {
        true => world.in_cell(script),
        false => world.on_host(script),
    };
    finished.text().contains(&world.canary)
}

place_test!(a_root_that_cannot_be_listed_opens_no_session, ordinary_only);
fn a_root_that_cannot_be_listed_opens_no_session(place: Place) {
    let world = World::new(place);
    fs::set_permissions(&world.project, fs::Permissions::from_mode(0o311)).unwrap();
    let finished = world.in_cell("true");
    fs::set_permissions(&world.project, fs::Permissions::from_mode(0o755)).unwrap();
    assert_ne!(finished.code(), 0);
    assert!(
        finished.errors().contains("cannot be listed"),
        "{}",
        finished.errors()
    );
}

place_test!(a_path_longer_than_the_kernel_takes_opens_a_session);
/// Two trees, each short enough, and the one moved to the bottom of the other.
fn a_path_longer_than_the_kernel_takes_opens_a_session(place: Place) {
    let world = World::new(place);
    world.put("code", "code");
    let deep = "python3 -c '
import os
top = os.getcwd()
def make(name):
    os.chdir(top); os.mkdir(name); os.chdir(name)
    for _ in range(17): os.mkdir(\"d\" * 200); os.chdir(\"d\" * 200)
make(\"one\"); make(\"two\")
open(\".env\", \"w\").write(\"secret\")
bottom = os.open(\".\", os.O_PATH)
os.rename(top + \"/one\", \"one\", dst_dir_fd=bottom)
print(\"MOVED\")'";
    let moved = world.in_cell(deep);
    if place.tier == Tier::Namespaced {
        assert!(
            moved.text().contains("MOVED"),
            "the control: {}",
            moved.errors()
        );
    } else {
        world.on_host(&format!("rm -rf one two; {deep}")).success();
    }
    let finished = world.in_cell("cat code; find two -name .env -exec cat {} +");
    assert!(finished.text().starts_with("code"), "{}", finished.errors());
    run(world.host("rm").args(["-rf", "two"]), LIMIT).success();
}

place_test!(more_secrets_than_can_be_held_one_by_one_open_a_session);
fn more_secrets_than_can_be_held_one_by_one_open_a_session(place: Place) {
    let world = World::new(place);
    for number in 0..2100 {
        world.put(&format!("d/{number}/.env"), &world.canary);
    }
    world.put("code", "code");
    let finished = world.in_cell("cat code; cat d/*/.env");
    assert!(finished.text().starts_with("code"), "{}", finished.errors());
    assert!(!finished.text().contains(&world.canary));
    let session = Session::open(&world);
    let said = session.ready.to_string();
    assert_eq!(
        said.contains("alsoClosed"),
        place.tier == Tier::Namespaced,
        "{said}"
    );
}

place_test!(another_name_of_a_protected_file_is_closed_and_named);
fn another_name_of_a_protected_file_is_closed_and_named(place: Place) {
    let world = World::new(place);
    world.put("src/main.rs", &world.canary);
    fs::hard_link(
        world.project.join("src/main.rs"),
        world.project.join(".env"),
    )
    .unwrap();
    let mut session = Session::open(&world);
    let said = session.ready.to_string();
    assert!(
        said.contains("alsoClosed") && said.contains("src/main.rs"),
        "{said}"
    );
    let read = session.bash("cat src/main.rs");
    assert!(
        !read.result.to_string().contains(&world.canary),
        "{}",
        read.result
    );
    let read = session.call("file_read", json!({"path": "src/main.rs"}));
    assert!(
        !read.result.to_string().contains(&world.canary),
        "{}",
        read.result
    );
}

place_test!(new_file_with_the_inode_of_a_removed_secret_is_open);
/// An inode that the file system gives again is another file.
fn new_file_with_the_inode_of_a_removed_secret_is_open(place: Place) {
    let world = World::new(place);
    let secret = world.put(".env", "x");
    let inode = fs::metadata(&secret).unwrap().ino();
    let mut session = Session::open(&world);
    session.bash("true").success();
    fs::remove_file(&secret).unwrap();
    let given_again = (0..50).any(|number| {
        let script = format!("echo y > new{number} && cat new{number} && stat -c %i new{number}");
        let answer = session.bash(&script);
        answer.success().contains(&inode.to_string())
    });
    if !given_again {
        not_run("this file system gave 50 files other inodes");
    }
}

place_test!(metadata_of_the_machines_devices_is_not_changed, root_only);
/// As root, to whom devices belong, with the device that an ordinary program has least use for; and `/dev/null` behind descriptor 0.
fn metadata_of_the_machines_devices_is_not_changed(place: Place) {
    let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let before = mode("/dev/full");
    // What the attack does, outside and to the mode that is there already.
    let control = World::new(place);
    let same = format!("chmod {before:o} /dev/full");
    control.on_host(&same).success();
    let world = World::new(place);
    let times = fs::metadata("/dev/null").unwrap().ctime_nsec();
    for script in [
        same.as_str(),
        "touch -d 2001-01-01 /dev/full",
        "setfattr -n user.x -v y /dev/full",
        "chown 0:0 /dev/full",
        "python3 -c 'import os; os.fchmod(0, 0o666)'",
        "python3 -c 'import os; os.utime(0, (1, 1))'",
        "python3 -c 'import os; os.chmod(\"/proc/self/fd/0\", 0o666)'",
    ] {
        let mut session = Session::open(&world);
        let answer = session.bash(script);
        assert!(!answer.ok(), "{place}: {script}: {}", answer.result);
    }
    assert_eq!(
        fs::metadata("/dev/null").unwrap().ctime_nsec(),
        times,
        "{place}"
    );
    world
        .in_cell("echo x > /dev/null && head -c1 /dev/zero | wc -c && ! echo x > /dev/full")
        .success();
    assert_eq!(mode("/dev/full"), before);
}

place_test!(no_lease_stops_whoever_opens_a_file);
fn no_lease_stops_whoever_opens_a_file(place: Place) {
    Attack {
        scene: |world| {
            world.put("code", "x");
        },
        script: "python3 -c 'import fcntl; f = open(\"code\", \"r+\"); fcntl.fcntl(f, 1024, fcntl.F_WRLCK); print(\"GOT\")'; \
            python3 -c 'import fcntl, os; fcntl.fcntl(os.open(\".\", 0), 1026, 4); print(\"GOT\")'",
        worked: |_, said| said.contains("GOT"),
    }
    .is_contained(place);
}

place_test!(no_ioctl_of_a_file_systems_own_is_reached);
/// Requests of file systems' own that make names or files: a file system without them says so (`ENOTTY`), a filter refuses.
fn no_ioctl_of_a_file_systems_own_is_reached(place: Place) {
    Attack {
        scene: |_| {},
        // BTRFS_IOC_SUBVOL_CREATE, _SNAP_CREATE, _SNAP_CREATE_V2, _SUBVOL_CREATE_V2, OCFS2_IOC_REFLINK, FS_IOC_SETFLAGS.
        script: "python3 -c '
import fcntl, os
d = os.open(\".\", 0)
for request in (0x5000940e, 0x50009401, 0x50009417, 0x50009418, 0x40186f04, 0x6610):
    try: fcntl.ioctl(d, request, bytes(4096)[:1024])
    except OSError as e: print(\"GOT\" if e.errno != 1 else \"refused\")
    else: print(\"GOT\")
'",
        worked: |_, said| said.contains("GOT"),
    }
    .is_contained(place);
}

const IDENTITY: &str = "git config user.name t; git config user.email t@t";

/// A project of the user's, with a secret that git ignores.
fn with_ignored_secret(place: Place) -> World {
    with_secret_in(World::new(place))
}

fn with_secret_in(world: World) -> World {
    world.put(".gitignore", ".env\n");
    repository(&world);
    world.set_up(&format!("{IDENTITY}; git add .gitignore; git commit -qm a"));
    world.put(".env", &world.canary);
    world
}

/// Whether a command of a new session reads the secret, and what that says when it opens.
fn reads_secret(world: &World) -> (bool, String) {
    let mut session = Session::open(world);
    let said = session.bash("cat .env").result.to_string();
    let closed = session.ready["alsoClosed"].to_string();
    // What the host does from here on is no command's doing.
    session.close(LIMIT);
    (said.contains(&world.canary), closed)
}

place_test!(secrets_that_commands_have_made_tracked_stay_closed);
/// A command puts the name of the user's secret into the index or a commit, under content of its own; then the user commits all.
fn secrets_that_commands_have_made_tracked_stay_closed(place: Place) {
    const ENTRY: &str = "o=$(echo x | git hash-object -w --stdin); add() { git update-index --add --cacheinfo 100644,$o,.env; }";
    const COMMIT: &str =
        "export GIT_INDEX_FILE=$PWD/i; cp .git/index i; add; t=$(git write-tree); rm i";
    const ALL: &str = "git reset -q; git commit -qam b";
    const DONE: &str = "has made git track this secret";
    // What a call does before, the attack, what the user does then, and what the result says.
    let attacks = [
        ("true", "add".to_owned(), "git commit -qam b", DONE),
        (
            "true",
            "add; git update-index --index-version 4".into(),
            "git commit -qam b",
            DONE,
        ),
        // Written by hand, and committed by another index.
        (
            "true",
            "export GIT_INDEX_FILE=$PWD/i; cp .git/index i; add; cat i > .git/index; rm i".into(),
            "git commit -qam b",
            DONE,
        ),
        (
            "true",
            format!("{COMMIT}; git update-ref HEAD $(git commit-tree -p HEAD -m x $t)"),
            ALL,
            DONE,
        ),
        // A branch that leads to another one.
        (
            "git branch other; git symbolic-ref $(git symbolic-ref HEAD) refs/heads/other",
            format!(
                "{COMMIT}; git update-ref --no-deref refs/heads/other $(git commit-tree -p HEAD -m x $t)"
            ),
            ALL,
            DONE,
        ),
        // More than is read of an object.
        (
            "true",
            format!(
                "{COMMIT}; git update-ref HEAD $(head -c 17M /dev/zero | tr '\\0' x | git commit-tree -p HEAD $t)"
            ),
            ALL,
            "cannot be read as a whole, so git may track this secret",
        ),
        // The older form of a pack's index.
        (
            "true",
            format!(
                "{COMMIT}; git update-ref HEAD $(git commit-tree -p HEAD -m x $t); unset GIT_INDEX_FILE; git -c pack.indexVersion=1 repack -adq"
            ),
            ALL,
            DONE,
        ),
    ];
    for (before, attack, host, want) in attacks {
        let attack = format!("{ENTRY}; {attack}");
        // The control: who may do so opens the secret.
        let world = with_ignored_secret(place);
        assert!(!reads_secret(&world).0, "it is closed");
        world.set_up(before);
        world.set_up(&attack);
        world.set_up(host);
        assert!(
            reads_secret(&world).0,
            "the control does not work: {attack}"
        );

        let world = with_ignored_secret(place);
        let seen = GitView::of(&world);
        let mut session = Session::open(&world);
        session.bash(before).success();
        let said = session.bash(&attack).result.to_string();
        seen.assert_unchanged(&world, &attack);
        assert!(
            said.contains(want) && said.contains(".env"),
            "{attack}: {said}"
        );
        let later = session.bash("echo y > y; git add y").result.to_string();
        assert!(!later.contains("git track"), "it is said once: {later}");
        session.close(LIMIT);
        world.set_up(host);
        let (reads, said) = reads_secret(&world);
        assert!(!reads && said.contains(".env"), "{attack}: {said}");
        // The user says otherwise, in one way and the other.
        let record = world.central.join(".lazaret/tracked");
        let kept = fs::read_to_string(&record).unwrap();
        assert!(kept.ends_with("\n.env\n"), "{kept}");
        fs::write(&record, kept.replace(".env\n", "")).unwrap();
        assert!(reads_secret(&world).0, "{attack}");
        fs::write(&record, kept).unwrap();
        assert!(!reads_secret(&world).0, "{attack}");
        world.set_up("git rm -q --cached .env; git commit -qm none");
        assert_eq!(reads_secret(&world), (false, "null".into()), "{attack}");
    }
}

place_test!(an_index_that_nobody_can_read_opens_no_secret);
/// An index that goes on in another file, is cut or is none: nobody knows what the user's git will take in.
fn an_index_that_nobody_can_read_opens_no_secret(place: Place) {
    for attack in [
        "git update-index --split-index; git update-index --add --cacheinfo 100644,$(echo x | git hash-object -w --stdin),.env",
        "rm .git/index; mkfifo .git/index 2>/dev/null || echo x > .git/index",
        "truncate -s 200M .git/index",
    ] {
        let world = with_ignored_secret(place);
        let mut session = Session::open(&world);
        let said = session.bash(attack).result.to_string();
        assert!(
            said.contains("cannot be read as a whole") && said.contains(".env"),
            "{attack}: {said}"
        );
        session.close(LIMIT);
        assert!(!reads_secret(&world).0, "{attack}");
    }
}

place_test!(tracking_by_the_user_is_not_blamed_on_commands);
/// Work of the user between sessions is no command's doing, and ordinary work of commands is not reported.
fn tracking_by_the_user_is_not_blamed_on_commands(place: Place) {
    let world = with_ignored_secret(place);
    let mut session = Session::open(&world);
    let work = "echo y > y; git add y; git commit -qm y; echo z > .env.test; git add -f .env.test; git commit -qm z; git checkout -q -b w";
    let said = session.bash(work).result.to_string();
    assert!(!said.contains("git track"), "{said}");
    session.close(LIMIT);
    world.set_up("git add -f .env; git commit -qm mine");
    assert_eq!(reads_secret(&world), (true, "null".into()));
    assert!(!world.central.join(".lazaret/tracked").exists());
}

place_test!(repository_in_place_of_a_submodule_is_reported);
/// A command makes a repository where the project has a submodule that is not checked out, with the address of a private one: the
/// user's `git pull` goes on into it.
fn repository_in_place_of_a_submodule_is_reported(place: Place) {
    const NAMES: &str = "export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t";
    const UPSTREAM: &str = "git init -q -b main $O/private; cd $O/private; echo $S > s; git add s; git commit -qm s
        git init -q -b main $O/up; cd $O/up; git update-index --add --cacheinfo 160000,$(git -C $O/private rev-parse HEAD),lib
        printf '[submodule \"lib\"]\n\tpath = lib\n\turl = https://h.invalid/lib\n' > .gitmodules; git add .gitmodules; git commit -qm one
        cd $P; rm -rf .git; git clone -q $O/up $O/clone; cp -r $O/clone/. .
        cd $O/up; git update-index --cacheinfo 160000,$(git commit-tree -m two $(git write-tree)),lib; git commit -qm two; git branch -f two";
    const ATTACK: &str = "mkdir -p lib; cd lib; git init -q .; mkdir -p .git; { cat .git/config
        printf '[remote \"origin\"]\n\turl = %s/private\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n' $O; } > c
        mv c .git/config.lock; mv -f .git/config.lock .git/config; git commit -q --allow-empty -m x";
    let scene = || {
        let world = World::new(place);
        let places = [("O", &world.outside), ("P", &world.project)];
        let places: String = places
            .iter()
            .map(|(name, path)| format!("{name}='{}'; ", path.display()))
            .collect();
        world.set_up(&format!("{NAMES}; S={}; {places}{UPSTREAM}", world.canary));
        (world, format!("{NAMES}; {places}"))
    };
    let pulled = |world: &World| {
        world
            .set_up("git pull -q 2>&1 || true; git -C lib show origin/main:s 2>&1 || true")
            .contains(&world.canary)
    };
    assert!(!pulled(&scene().0), "nothing is fetched without the attack");
    let (world, places) = scene();
    world.set_up(&format!("{places}{ATTACK}"));
    assert!(pulled(&world), "the control does not work");
    let lib_of = |world: &World| world.project.join("lib").display().to_string();
    let (world, places) = scene();
    let mut session = Session::open(&world);
    let said = session
        .bash("git init -q other; git status -s")
        .result
        .to_string();
    assert!(!said.contains("submodule"), "{said}");
    let said = session
        .bash(&format!("{places}{ATTACK}"))
        .result
        .to_string();
    assert!(
        said.contains("where the project has a submodule") && said.contains(&lib_of(&world)),
        "{said}"
    );
    let later = session.bash("true").result.to_string();
    assert!(!later.contains("submodule"), "it is said once: {later}");
    session.close(LIMIT);
    // Made where no submodule was, until a later session.
    let (world, places) = scene();
    Session::open(&world)
        .bash(&format!("git rm -q --cached lib; {places}{ATTACK}"))
        .result
        .to_string();
    let said = Session::open(&world)
        .bash("git reset -q")
        .result
        .to_string();
    assert!(
        said.contains("where the project has a submodule") && said.contains(&lib_of(&world)),
        "{said}"
    );
}

place_test!(names_hidden_from_git_status_are_reported);
/// A name that no command may make, in a commit, where the user's `git status` does not look.
fn names_hidden_from_git_status_are_reported(place: Place) {
    for flag in ["--skip-worktree", "--assume-unchanged"] {
        let attack = format!(
            "n=.vscode/tasks.json; git update-index --add --cacheinfo 100644,$(echo {{}} | git hash-object -w --stdin),$n
             git update-index {flag} $n; git commit -qm x"
        );
        let world = with_ignored_secret(place);
        let before = GitView::of(&world);
        let mut session = Session::open(&world);
        let said = session.bash(&attack).result.to_string();
        before.assert_unchanged(&world, &attack);
        // The attack works as far as the user's git goes.
        assert_eq!(world.set_up("git status --porcelain"), "", "{flag}");
        assert!(
            said.contains(".vscode/tasks.json") && said.contains("does not show it"),
            "{flag}: {said}"
        );
        let later = session
            .bash("git commit -q --allow-empty -m y; echo a > a; git add a")
            .result
            .to_string();
        assert!(!later.contains("tasks.json"), "it is said once: {later}");
        session.close(LIMIT);
        // What was hidden before is the user's own.
        let mut session = Session::open(&world);
        let later = session.bash("echo b > b; git add b").result.to_string();
        assert!(!later.contains("tasks.json"), "{later}");
    }
}

place_test!(names_put_into_the_index_alone_are_reported);
/// A program that finds no file reads the index: git-lfs takes its server's address from `.lfsconfig` there.
fn names_put_into_the_index_alone_are_reported(place: Place) {
    let attack = |name: &str| {
        format!(
            "printf '[lfs]\\n\\turl = https://lfs.invalid\\n' | git hash-object -w --stdin > h
             git update-index --add --cacheinfo 100644,$(cat h),{name}; rm h"
        )
    };
    let world = with_ignored_secret(place);
    let mut session = Session::open(&world);
    let harmless = session.bash(&attack("lfs.txt")).result.to_string();
    assert!(!harmless.contains("git's index"), "the control: {harmless}");
    let said = session.bash(&attack("sub/.lfsconfig")).result.to_string();
    // The attack works as far as git goes.
    assert_eq!(
        world.set_up("git config --blob :sub/.lfsconfig lfs.url"),
        "https://lfs.invalid\n"
    );
    assert!(
        said.contains("sub/.lfsconfig") && said.contains("into git's index"),
        "{said}"
    );
    let later = session
        .bash("git commit -q -m y; echo a > a; git add a")
        .result
        .to_string();
    assert!(!later.contains("lfsconfig"), "it is said once: {later}");
    session.close(LIMIT);
    // What the user has in the index is the user's own.
    let world = with_ignored_secret(place);
    world.set_up(&attack(".lfsconfig"));
    let mut session = Session::open(&world);
    let later = session.bash("echo b > b; git add b").result.to_string();
    assert!(!later.contains("lfsconfig"), "{later}");
}

place_test!(changes_that_alter_the_users_git_are_reported);
/// Changes that make the user's git show something else, or end: each with its effect for the user.
fn changes_that_alter_the_users_git_are_reported(place: Place) {
    const SHOWN: &str = "git log -1 --format=%s | grep -qx b";
    const ATTACKS: [(&str, &str, &str); 6] = [
        ("git replace HEAD HEAD~", SHOWN, "refs/replace"),
        (
            "echo $(git rev-parse HEAD~) refs/replace/$(git rev-parse HEAD) >> .git/packed-refs",
            SHOWN,
            "refs/replace",
        ),
        ("touch .git/index.lock", "git add .gitignore", "index.lock"),
        (
            "touch .git/HEAD.lock",
            "git commit -q --allow-empty -m c",
            "HEAD.lock",
        ),
        (
            "git rev-parse HEAD > .git/shallow",
            "git rev-parse -q --verify HEAD~",
            "shallow",
        ),
        (
            "git rev-parse HEAD > .git/info/grafts",
            "git rev-parse -q --verify HEAD~",
            "grafts",
        ),
    ];
    for (attack, works, said) in ATTACKS {
        let world = with_ignored_secret(place);
        world.set_up(&format!("git commit -q --allow-empty -m b; {works}"));
        let mut session = Session::open(&world);
        let before = session
            .bash("git add .gitignore; git pack-refs --all")
            .result
            .to_string();
        assert!(!before.contains(said), "{attack}: {before}");
        let after = session.bash(attack).result.to_string();
        let there = run(world.host("bash").args(["-ec", works]), LIMIT);
        assert_ne!(there.code(), 0, "the attack does nothing: {attack}");
        assert!(after.contains(said), "{attack}: {after}");
        let later = session.bash("true").result.to_string();
        assert!(!later.contains(said), "it is said once: {attack}: {later}");
    }
}

/// Adds a name to the index that git itself refuses, and hides it; `HEAD` has it too, so that nothing is to be seen.
const RAW_INDEX: &str = r#"python3 -c '
import hashlib, os, struct, subprocess, sys
path, content, split = sys.argv[1].encode(), sys.argv[2].encode(), sys.argv[3:]
git = lambda *words, text=b"": subprocess.run(["git", *words], input=text, capture_output=True, check=True).stdout.strip().decode()
blob = git("hash-object", "-w", "--stdin", text=content)
if split: git("update-index", "--split-index", "--force-write-index")
file = ".git/" + (next(n for n in os.listdir(".git") if n.startswith("sharedindex.")) if split else "index")
data = open(file, "rb").read()
entries, at = [], 12
for _ in range(struct.unpack(">I", data[8:12])[0]):
    length = struct.unpack(">H", data[at + 60:at + 62])[0] & 0xfff
    end = at + (62 + length + 8) // 8 * 8
    entries.append((data[at + 62:at + 62 + length], data[at:end])); at = end
entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, 0o100644, 0, 0, 0) + bytes.fromhex(blob) + struct.pack(">H", len(path) | 0x8000) + path
entries.append((path, entry + bytes((62 + len(path) + 8) // 8 * 8 - len(entry)))); entries.sort()
data = b"DIRC" + struct.pack(">II", 2, len(entries)) + b"".join(entry for _, entry in entries)
name = hashlib.sha1(data)
if split:
    index = open(".git/index", "rb").read()
    os.remove(file); file = ".git/sharedindex." + name.hexdigest()
    at = index.index(b"link") + 8
    index = index[:at] + name.digest() + index[at + 20:-20]
    os.remove(".git/index"); open(".git/index", "wb").write(index + hashlib.sha1(index).digest())
else: os.remove(file)
open(file, "wb").write(data + name.digest())
'"#;

place_test!(no_index_writes_outside_the_work_tree);
fn no_index_writes_outside_the_work_tree(place: Place) {
    for attack in [
        "../sprung.txt sprung",
        ".git/hooks/post-checkout sprung",
        "../sprung.txt sprung split",
    ] {
        let script = format!("{RAW_INDEX} {attack}");
        let sprung = |world: &World| {
            world.on_host("git restore .");
            let there = |path: &str| world.project.join(path).exists();
            there("../sprung.txt") || there(".git/hooks/post-checkout")
        };
        let control = with_ignored_secret(place);
        control.set_up(&script);
        assert!(sprung(&control), "the control does not work: {attack}");

        let world = with_ignored_secret(place);
        let mut session = Session::open(&world);
        let answer = session.bash(&script);
        answer.success();
        let said = answer.result.to_string();
        assert!(!sprung(&world), "{attack}: {said}");
        assert!(
            said.contains("has left an index that contains the name"),
            "{attack}: {said}"
        );
        session
            .bash("git reset -q && git status --porcelain")
            .success();
    }
    // A work tree's own names, in every form that git has for them.
    let world = with_ignored_secret(place);
    let mut session = Session::open(&world);
    for work in [
        "mkdir -p d.git/x; echo y > d.git/x/y; git add d.git; git commit -qm y",
        "git update-index --index-version 4",
    ] {
        let said = session.bash(work).result.to_string();
        assert!(!said.contains("has left an index"), "{said}");
    }
}

place_test!(names_hidden_by_a_split_index_are_reported);
fn names_hidden_by_a_split_index_are_reported(place: Place) {
    let attack = "n=.vscode/tasks.json; git update-index --add --cacheinfo 100644,$(echo {} | git hash-object -w --stdin),$n
        git update-index --skip-worktree $n; git commit -qm x; git update-index --split-index";
    let world = with_ignored_secret(place);
    let mut session = Session::open(&world);
    let said = session.bash(attack).result.to_string();
    assert_eq!(world.set_up("git status --porcelain"), "");
    assert!(said.contains("not all can be read"), "{said}");
    let later = session.bash("echo a > a; git add a").result.to_string();
    assert!(
        !later.contains("not all can be read"),
        "it is said once: {later}"
    );
}

/// Ways to have the user's next commit copy a file to where commands read it.
const RERERE: [&str; 4] = [
    "printf \"$H\\t../home/.ssh/id_rsa\\0\" > .git/MERGE_RR",
    "printf \"$H\\t../home/.ssh/id_rsa\\0\" > .git/MERGE_RR.lock; mv .git/MERGE_RR.lock .git/MERGE_RR",
    "ln -s ../home/.ssh/id_rsa key; printf \"$H\\tkey\\0\" > x; ln x .git/MERGE_RR",
    "printf \"$H\\t../home/.ssh/id_rsa\\0\" > x; mv x .git/merge_rr; mv .git/merge_rr .git/MERGE_RR",
];

place_test!(the_users_next_commit_follows_no_path_of_rerere);
fn the_users_next_commit_follows_no_path_of_rerere(place: Place) {
    for attack in RERERE {
        let script = format!("H=$(printf 1%.0s $(seq 40)); mkdir -p .git/rr-cache/$H; {attack}");
        let leaks = |world: &World| {
            run(
                world
                    .host("git")
                    .args(["commit", "-q", "--allow-empty", "-m", "x"]),
                LIMIT,
            );
            world
                .set_up("cat .git/rr-cache/*/postimage 2>/dev/null || true")
                .contains(&world.canary)
        };
        let control = with_ignored_secret(place);
        control.set_up(&script);
        assert!(leaks(&control), "the control does not work: {attack}");
        let world = with_ignored_secret(place);
        let said = world.in_cell(&script).errors();
        assert!(!leaks(&world), "{attack}: {said}");
    }
    let world = with_ignored_secret(place);
    let mut session = Session::open(&world);
    let (name, content) = (".git/MERGE_RR", format!("{}\tx\0", "1".repeat(40)));
    let answer = session.call("file_write", json!({"path": name, "content": content}));
    assert_eq!(answer.kind(), "denied_policy", "{}", answer.result);
    session.close(LIMIT);
    // What an earlier session has left goes when the next one opens.
    let left = world.put(name, content);
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(10);
    fs::File::options()
        .write(true)
        .open(&left)
        .unwrap()
        .set_modified(long_ago)
        .unwrap();
    world.in_cell("true").success();
    assert!(!left.exists());
}

place_test!(counters_that_a_git_prompt_would_run_are_removed);
fn counters_that_a_git_prompt_would_run_are_removed(place: Place) {
    for file in [
        "rebase-merge/msgnum",
        "rebase-merge/end",
        "rebase-apply/next",
        "rebase-apply/last",
    ] {
        let path = format!(".git/{file}");
        let script = format!("mkdir -p $(dirname {path}); echo '$(id)1' > {path}");
        let control = with_ignored_secret(place);
        control.set_up(&script);
        assert!(control.project.join(&path).exists(), "the control");
        let world = with_ignored_secret(place);
        let mut session = Session::open(&world);
        let said = session.bash(&script).result.to_string();
        assert!(!world.project.join(&path).exists(), "{file}: {said}");
        assert!(said.contains(file) && said.contains("(removed)"), "{said}");
        session.bash(&script.replace("$(id)1", "1")).success();
        assert_eq!(world.get(&path), b"1\n");
    }
}

/// Ways to make git print the name of a branch that a shell would execute, each with the directory where the prompt is then.
const BRANCHES: [(&str, &str); 7] = [
    ("git checkout -q -b \"$b\"", "."),
    ("git switch -q -c \"$b\"", "."),
    (
        "git branch \"$b\"; git symbolic-ref HEAD \"refs/heads/$b\"",
        ".",
    ),
    (
        "echo \"ref: refs/heads/$b\" > .git/HEAD.lock; mv .git/HEAD.lock .git/HEAD",
        ".",
    ),
    (
        "git branch \"$b\"; git symbolic-ref $(git symbolic-ref HEAD) \"refs/heads/$b\"",
        ".",
    ),
    ("git worktree add -q -b \"$b\" w", "w"),
    (
        "git checkout -q --detach; mkdir .git/rebase-merge; echo \"refs/heads/$b\" > .git/rebase-merge/head-name",
        ".",
    ),
];

place_test!(no_name_of_a_branch_is_run_by_a_prompt);
fn no_name_of_a_branch_is_run_by_a_prompt(place: Place) {
    // As many people have it in `PROMPT_COMMAND`.
    let prompt = "PS1=\"\\w ($(git branch 2>/dev/null | sed -n 's/^[*] //p')) $(git branch --show-current)\"; : \"${PS1@P}\"";
    let ran = |world: &World, directory: &str| {
        world.on_host(&format!("cd {directory} 2>/dev/null; {prompt}"));
        world.project.join(directory).join("ran").exists()
    };
    for (script, directory) in BRANCHES {
        let script = format!("b='x$(touch${{IFS}}ran)'; {script}");
        let control = with_ignored_secret(place);
        control.set_up(&script);
        assert!(ran(&control, directory), "the control of {script}");
        let world = with_ignored_secret(place);
        let mut session = Session::open(&world);
        let said = session.bash(&format!("{script}; true")).result.to_string();
        assert!(!ran(&world, directory), "{script}: {said}");
        let why = ["in whose name there is no", "a shell would execute"];
        assert!(why.iter().any(|why| said.contains(why)), "{script}: {said}");
    }
}

place_test!(ordinary_names_of_branches_work);
fn ordinary_names_of_branches_work(place: Place) {
    let world = with_ignored_secret(place);
    // The user's own may have any name, and stays.
    world.set_up("git branch plain; git checkout -q -b 'mine(1)'");
    let mut session = Session::open(&world);
    session
        .bash("git commit -q --allow-empty -m b; git status")
        .success();
    assert_eq!(world.set_up("git branch --show-current"), "mine(1)\n");
    for name in [
        "feat/\u{44f}-\u{1f600}_1.2+3",
        "a#4@5=6,7%8!9",
        "dependabot/npm_and_yarn/@types/node-20.1.0",
    ] {
        let script = format!(
            "git checkout -q -b '{name}'; git commit -q --allow-empty -m b; git rebase -q plain; git worktree add -q -f w '{name}'"
        );
        let done = session.bash(&script);
        assert_eq!(
            done.result["metadata"]["denied"]
                .as_array()
                .map(Vec::len)
                .unwrap_or_default(),
            0,
            "{}",
            done.result
        );
        assert_eq!(
            world.set_up("git branch --show-current; git worktree prune; rm -rf w"),
            format!("{name}\n")
        );
    }
}

place_test!(no_stash_is_applied_by_the_users_next_commit);
fn no_stash_is_applied_by_the_users_next_commit(place: Place) {
    let attack = "git config -l >/dev/null; export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t
        export GIT_INDEX_FILE=$PWD/i; git read-tree HEAD; h=$(git rev-parse HEAD)
        n=$(git commit-tree -p $h -m index $(git write-tree))
        git update-index --add --cacheinfo 100644,$(echo {} | git hash-object -w --stdin),.vscode/tasks.json
        git commit-tree -p $h -p $n -m w $(git write-tree) > .git/MERGE_AUTOSTASH; rm i";
    let applied = |world: &World| {
        run(
            world
                .host("git")
                .args(["commit", "-q", "--allow-empty", "-m", "x"]),
            LIMIT,
        );
        world.project.join(".vscode/tasks.json").exists()
    };
    let control = with_ignored_secret(place);
    control.set_up(attack);
    assert!(applied(&control), "the control does not work");
    let world = with_ignored_secret(place);
    let mut session = Session::open(&world);
    let answer = session.bash(attack);
    answer.success();
    let said = answer.result.to_string();
    assert!(!applied(&world), "{said}");
    assert!(
        said.contains("MERGE_AUTOSTASH") && said.contains("(removed)"),
        "{said}"
    );
}

place_test!(a_broker_that_is_told_to_end_looks_at_what_is_left);
/// At a logout and a shutdown each process gets SIGTERM or SIGHUP.
fn a_broker_that_is_told_to_end_looks_at_what_is_left(place: Place) {
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let world = with_ignored_secret(place);
        let left = world.project.join(".git/MERGE_AUTOSTASH");
        let script = format!(
            "git rev-parse HEAD > .git/MERGE_AUTOSTASH; sleep {}",
            long_sleep()
        );
        let client = Running::start(&mut world.cell(&script));
        assert!(until(LIMIT, || left.exists()));
        let broker = below(client.pid())
            .into_iter()
            .find(|process| process.name.starts_with("lazaret-execut"))
            .unwrap();
        kill(Pid::from_raw(broker.pid), signal).unwrap();
        client.finish(LIMIT).expect(125);
        assert!(until(LIMIT, || !broker.is_alive()));
        assert!(!left.exists(), "{signal}");
        let said = world.in_cell("true").errors();
        assert!(said.contains("MERGE_AUTOSTASH"), "{signal}: {said}");
    }
}

/// Files that a command leaves in the user's repository for the user's programs to act on, each as a script and the file.
const LEFT: [(&str, &str); 2] = [
    (
        "mkdir -p .git/rebase-merge; echo '$(id)1' > .git/rebase-merge/msgnum",
        ".git/rebase-merge/msgnum",
    ),
    (
        "git rev-parse HEAD > .git/MERGE_AUTOSTASH",
        ".git/MERGE_AUTOSTASH",
    ),
];

place_test!(files_of_a_background_command_are_judged);
/// It is judged when the command ends, although its call ended when it began.
fn files_of_a_background_command_are_judged(place: Place) {
    for (script, file) in LEFT {
        let control = with_ignored_secret(place);
        control.set_up(script);
        assert!(control.project.join(file).exists(), "the control");

        let world = with_ignored_secret(place);
        let mut session = Session::open(&world);
        let mut said = in_background(&mut session, &format!("{script}; touch done"));
        assert!(until(LIMIT, || world.project.join("done").exists()
            && !world.project.join(file).exists()));
        // The first result after the look has it, which may be that of the call itself; the file may be gone before the look has ended.
        let name = file.rsplit('/').next().unwrap();
        let is_said = || {
            let is_said = said.contains(name) && said.contains("(removed)");
            said = session.bash("true").result.to_string();
            is_said
        };
        assert!(until(LIMIT, is_said), "no result has it");
    }
}

/// Maps the file `$1`, whose content is as `good` has it, and replaces it by that of `evil` when `go` is there. Neither time of the file
/// changes then.
const MAPPED: &str = r#"python3 -c '
import mmap, os, sys, time
evil = open("evil", "rb").read(); f = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(f, len(evil)); m[:] = m[:]; open("ready", "w").close()
while not os.path.exists("go"): time.sleep(0.02)
m[:] = evil; open("done", "w").close(); time.sleep(float(sys.argv[2]))
'"#;

place_test!(file_changed_by_a_mapping_after_a_look_is_judged);
/// A file that was examined while a command runs is examined again when none does.
fn file_changed_by_a_mapping_after_a_look_is_judged(place: Place) {
    let counter = ".git/rebase-merge/msgnum";
    let prepare_counter = format!(
        "mkdir -p .git/rebase-merge; echo 111 > .git/rebase-merge/end; printf '$(id)' > evil; printf 11111 > {counter}"
    );
    let prepare_index = format!(
        "{RAW_INDEX} ../sprung.txt sprung; mv .git/index evil; rm -f .git/index.refused; git reset -q; \
         {RAW_INDEX} XX/sprung.txt sprung"
    );
    for (prepare, file) in [(prepare_counter, counter), (prepare_index, ".git/index")] {
        // Not in memory: there no time of a file changes by a mapping, and a changed index stays (SECURITY.md).
        let world = || with_secret_in(World::on_disk(place));
        // It may go at any moment.
        let content = |world: &World, name| fs::read(world.project.join(name)).ok();
        let evil = |world: &World| {
            content(world, file).is_some_and(|it| Some(it) == content(world, "evil"))
        };
        let control = world();
        control.set_up(&format!("{prepare}; touch go; {MAPPED} {file} 0"));
        assert!(evil(&control), "the control: {file}");
        for stays in ["0", "300"] {
            let world = world();
            world.set_up(&prepare);
            let mut session = Session::open(&world);
            in_background(&mut session, &format!("{MAPPED} {file} {stays}"));
            assert!(
                until(LIMIT, || world.project.join("ready").exists()),
                "{file}"
            );
            let said = session.bash("true").result.to_string();
            assert!(
                !said.contains("denied") && !said.contains("\"found\""),
                "nothing is wrong yet: {said}"
            );
            session.bash("touch go").success();
            assert!(until(LIMIT, || world.project.join("done").exists()));
            if stays != "0" {
                session.close(LIMIT);
            }
            assert!(until(LIMIT, || !evil(&world)), "{file}, {stays}");
        }
    }
}

/// Adds a name to the file on which the index is based, in place.
const SHARED_INDEX: &str = r#"python3 -c '
import glob, struct, subprocess
blob = subprocess.run(["git", "hash-object", "-w", "--stdin"], input=b"sprung", capture_output=True, check=True).stdout.strip().decode()
file = glob.glob(".git/sharedindex.*")[0]; data = open(file, "rb").read(); path = b"../sprung.txt"
entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, 0o100644, 0, 0, 0) + bytes.fromhex(blob) + struct.pack(">H", len(path)) + path
entry += bytes((62 + len(path) + 8) // 8 * 8 - len(entry)); count = struct.unpack(">I", data[8:12])[0]
open(file, "r+b").write(data[:8] + struct.pack(">I", count + 1) + entry + data[12:])
'"#;

place_test!(the_file_on_which_an_index_is_based_is_looked_at);
fn the_file_on_which_an_index_is_based_is_looked_at(place: Place) {
    let split = "git update-index --split-index --force-write-index";
    let sprung = |world: &World| {
        world.on_host("git restore .");
        world.project.join("../sprung.txt").exists()
    };
    let control = with_ignored_secret(place);
    control.set_up(&format!("{split}; {SHARED_INDEX}"));
    assert!(sprung(&control), "the control does not work");
    for users in [true, false] {
        let world = with_ignored_secret(place);
        if users {
            world.set_up(split);
        }
        let mut session = Session::open(&world);
        if !users {
            session.bash(split).success();
        }
        let said = session.bash(SHARED_INDEX).result.to_string();
        assert!(!sprung(&world), "{users}: {said}");
        assert!(said.contains("has left an index that"), "{users}: {said}");
    }
}

/// An index of a megabyte that says 80 megabytes of names, the first of which leads out of the work tree.
const LONG_INDEX: &str = r#"python3 -c '
import hashlib, struct, subprocess
blob = bytes.fromhex(subprocess.run(["git", "hash-object", "-w", "--stdin"], input=b"sprung", capture_output=True, check=True).stdout.strip().decode())
def entry(drop, tail, length):
    number = bytes([drop & 0x7f]); drop >>= 7
    head = struct.pack(">10I", 0, 0, 0, 0, 0, 0, 0o100644, 0, 0, 0) + blob
    hidden = struct.pack(">HH", min(length, 0xfff) | 0x4000, 0x4000) if length > 99 else struct.pack(">H", length)
    return head + hidden + number + tail + bytes(1)
long = b"x/" * 2000
data = b"DIRC" + struct.pack(">II", 4, 20001) + entry(0, b"../sprung.txt", 13) + entry(13, long + b"000000", 4006)
data += b"".join(entry(6, b"%06d" % n, 4006) for n in range(1, 20000))
open(".git/index", "wb").write(data + hashlib.sha1(data).digest())
'"#;

place_test!(an_index_that_takes_too_long_to_read_is_set_aside);
fn an_index_that_takes_too_long_to_read_is_set_aside(place: Place) {
    let sprung = |world: &World| {
        world.on_host("git restore .");
        world.project.join("../sprung.txt").exists()
    };
    let control = with_ignored_secret(place);
    control.set_up(LONG_INDEX);
    assert!(sprung(&control), "the control does not work");
    let world = with_ignored_secret(place);
    let said = Session::open(&world).bash(LONG_INDEX).result.to_string();
    assert!(!sprung(&world), "{said}");
    assert!(
        said.contains("has left an index that cannot be read"),
        "{said}"
    );
}

place_test!(a_closed_directory_saves_nothing_that_a_command_left);
fn a_closed_directory_saves_nothing_that_a_command_left(place: Place) {
    let script = "mkdir .git/rebase-merge; echo '$(id)' > .git/rebase-merge/msgnum; chmod 555 .git/rebase-merge";
    let world = with_ignored_secret(place);
    let said = Session::open(&world).bash(script).result.to_string();
    assert!(said.contains("(removed)"), "{said}");
    assert!(!world.project.join(".git/rebase-merge/msgnum").exists());
}

place_test!(commands_still_running_at_the_sessions_end_leave_nothing);
/// Whatever is still running is killed first, so that nothing is made again after the look.
fn commands_still_running_at_the_sessions_end_leave_nothing(place: Place) {
    for (script, file) in LEFT {
        for forever in ["sleep SLEEP", "while :; do SCRIPT; done # SLEEP"] {
            let (world, marker) = (with_ignored_secret(place), long_sleep());
            let forever = forever.replace("SLEEP", &marker).replace("SCRIPT", script);
            let mut session = Session::open(&world);
            in_background(&mut session, &format!("{script}; touch done; {forever}"));
            assert!(until(LIMIT, || world.project.join("done").exists()));
            // A call that ends meanwhile is not the last look.
            session.bash("true").success();
            let all = below(session.pid());
            session.close(LIMIT);
            // The broker among them looks before it ends. Until then the file may be there, and there again.
            assert_eq!(left_after(&all, LIMIT), []);
            assert_gone(&marker, LIMIT);
            assert!(says_nothing(&world.project.join(file)), "{forever}: {file}");
        }
    }
}

/// Whether a file is not there or empty: a kill between its opening and its writing leaves an empty one, which means nothing to git.
fn says_nothing(file: &Path) -> bool {
    fs::read(file).map_or(true, |text| text.is_empty())
}

place_test!(a_repository_is_whole_again_when_the_session_ends);
/// Git passes over a `.git` without them, and finds a repository above.
fn a_repository_is_whole_again_when_the_session_ends(place: Place) {
    let world = with_ignored_secret(place);
    let before = world.set_up("git rev-parse HEAD");
    let mut session = Session::open(&world);
    in_background(
        &mut session,
        "rm -rf .git/HEAD .git/refs .git/objects; touch done; sleep 300",
    );
    assert!(until(LIMIT, || world.project.join("done").exists()));
    session.close(LIMIT);
    let parts = ["HEAD", "refs", "objects"].map(|part| world.project.join(".git").join(part));
    assert!(
        until(LIMIT, || parts.iter().all(|part| part.exists())),
        "{parts:?}, at {before}"
    );
    assert_eq!(
        world.set_up("git rev-parse --show-toplevel").trim(),
        world.project.to_str().unwrap()
    );
}

#[track_caller]
/// Returns the result of the call, which has what is found before it ends.
fn in_background(session: &mut Session, command: &str) -> String {
    let answer = session.call("bash", json!({"command": command, "background": true}));
    answer.success();
    answer.result.to_string()
}

place_test!(packages_of_the_users_are_removed_and_installed_again);
/// npm moves a package aside before it removes it. Many packages come with the settings of their authors' build servers.
fn packages_of_the_users_are_removed_and_installed_again(place: Place) {
    let world = World::new(place);
    for packages in ["node_modules/x", "lib/site-packages/x"] {
        for file in [
            ".travis.yml",
            ".github/workflows/ci.yml",
            ".npmrc",
            "index.js",
        ] {
            world.put(&format!("{packages}/{file}"), "theirs");
        }
    }
    world.put("y/.travis.yml", "mine");
    world.put("node_modules/z/.vscode/tasks.json", "theirs");
    let mut session = Session::open(&world);
    session
        .bash("mv node_modules/x node_modules/.x-1 && rm -rf node_modules/.x-1 lib && ! ls lib")
        .success();
    session
        .bash("mkdir -p node_modules/x && echo theirs > node_modules/x/.travis.yml")
        .success();
    for stays in ["y", "node_modules/z"] {
        let said = session.bash(&format!("rm -rf {stays}")).result.to_string();
        assert!(world.project.join(stays).exists(), "{said}");
    }
}

place_test!(ordinary_merges_and_rebases_go_on);
/// With conflicts, and with what git keeps of them.
fn ordinary_merges_and_rebases_go_on(place: Place) {
    let world = with_ignored_secret(place);
    world.set_up("git config rerere.enabled true; echo 0 > f; echo 0 > g; git add f g; git commit -qm 0
        git checkout -qb other; echo 1 > f; git commit -qam 1; git checkout -q -; echo 2 > f; git commit -qam 2");
    let mut session = Session::open(&world);
    let resolve = "echo 3 > f; git add f";
    for work in [
        "git merge other && exit 1; git rerere status".to_owned(),
        format!("{resolve}; git commit -qm merged"),
        "git reset -q --hard HEAD~; echo mine > g; git merge --autostash other && exit 1; true".to_owned(),
        format!("{resolve}; git commit -qm merged; grep -q mine g; git checkout -q g"),
        "git reset -q --hard HEAD~; git rebase other && exit 1; true".to_owned(),
        format!("{resolve}; GIT_EDITOR=true git rebase --continue; git merge --abort; git status --porcelain"),
        "git init -q $TMPDIR/new; cd $TMPDIR/new; echo x > x; git add x; git -c user.name=t -c user.email=t@t commit -qm x".to_owned(),
    ] {
        session.bash(&work).success();
    }
    session.close(LIMIT);
    world.set_up("git log -1 --format=%s; git fsck; git commit -q --allow-empty -m mine");
}

place_test!(directories_above_a_root_cannot_be_moved);
/// A mount goes along with a directory above it that is moved, and what is protected in it was known by its path.
fn directories_above_a_root_cannot_be_moved(place: Place) {
    let script = |above: &Path| {
        format!(
            "mv '{0}' '{0}.moved'; echo x > .bashrc; mkdir -p n/.git; echo x > n/.git/config",
            above.display()
        )
    };
    let control = World::new(place);
    let above = control.outside.join("above");
    fs::create_dir_all(above.join("project")).unwrap();
    let mut plain = std::process::Command::new("bash");
    run(
        plain
            .current_dir(above.join("project"))
            .args(["-c", &script(&above)]),
        LIMIT,
    );
    assert!(
        control.outside.join("above.moved/project/.bashrc").exists(),
        "the control"
    );
    let world = World::new(place);
    world.in_cell(&script(world.base()));
    assert!(world.project.join("n").exists(), "the command has run");
    assert!(
        !world.project.join(".bashrc").exists() && !world.project.join("n/.git/config").exists()
    );
    // A directory that holds no root moves.
    let moved = world
        .in_cell("mkdir -p ~/a/b /tmp/c/d d/e && mv ~/a ~/f && mv /tmp/c /tmp/g && mv d h && ls h");
    assert_eq!(moved.success(), "e\n");
}

place_test!(lazarets_own_programs_and_settings_stay);
/// As after a build in the project's own clone, and with settings that are kept in a repository.
fn lazarets_own_programs_and_settings_stay(place: Place) {
    let kept = [
        "bin/lazaret",
        "bin/lazaret-executor",
        "bin/lazaret-worker",
        "dotfiles/lazaret/policy.toml",
    ];
    own_files_stay(
        place,
        &kept,
        "mv bin/lazaret-executor x; cp x bin/lazaret-executor; echo sprung >> bin/lazaret; rm bin/lazaret-worker
        ln bin/lazaret y; echo sprung >> y; mv bin b; mkdir bin; echo sprung > bin/lazaret-trace
        echo sprung >> dotfiles/lazaret/policy.toml; mv dotfiles d; echo sprung > ours/policy.toml",
    );
}

place_test!(programs_of_a_package_in_the_project_stay);
/// As after `pip install` into a virtual environment of the project: what is started there next, outside, is ours.
fn programs_of_a_package_in_the_project_stay(place: Place) {
    let kept = [
        "bin/lazaret",
        "libexec/lazaret/lazaret-executor",
        "libexec/lazaret/lazaret-worker",
        "dotfiles/lazaret/policy.toml",
    ];
    own_files_stay(
        place,
        &kept,
        "echo sprung >> bin/lazaret; mv bin/lazaret z; mv libexec/lazaret l; mkdir -p libexec/lazaret; mv libexec m
        echo sprung >> libexec/lazaret/lazaret-executor; rm libexec/lazaret/lazaret-worker
        mv bin b; mkdir -p bin; echo sprung > bin/lazaret-trace; echo sprung > bin/lazaret-executor
        echo sprung >> dotfiles/lazaret/policy.toml",
    );
}

/// Runs `script` by the project's own `bin/lazaret`: none of these files may change, and none of ours be made.
fn own_files_stay(place: Place, kept: &[&str], script: &str) {
    let changed = |in_cell: bool| {
        let world = World::new(place);
        for file in kept {
            if file.ends_with(".toml") {
                world.put(file, "version = 1\n");
            } else {
                let name = Path::new(file).file_name().unwrap().to_str().unwrap();
                world.put_program(file, fs::read(path(name)).unwrap());
            }
        }
        let settings = world.home.join("settings/lazaret");
        world.make_folder(&settings);
        symlink(
            world.project.join("dotfiles/lazaret/policy.toml"),
            settings.join("policy.toml"),
        )
        .unwrap();
        let before: Vec<_> = kept.iter().map(|name| world.get(name)).collect();
        let lazaret = world.project.join("bin/lazaret");
        let mut command = match (in_cell, place.tier) {
            (false, _) => world.host("bash"),
            (true, Tier::Namespaced) => world.host(lazaret),
            (true, Tier::Flat) => {
                let mut command = world.host(path("without-namespaces"));
                command.arg(lazaret);
                command
            }
        };
        command.env("XDG_CONFIG_HOME", world.home.join("settings"));
        if in_cell {
            command
                .args(["run", "--project"])
                .arg(&world.project)
                .arg("--central")
                .arg(&world.central);
            command.args(["--", "bash"]);
        }
        let finished = run(command.args(["-c", &format!("{script}; echo done")]), LIMIT);
        assert!(finished.text().contains("done"), "{}", finished.errors());
        let changed: Vec<_> = kept
            .iter()
            .zip(before)
            .filter(|(name, before)| {
                fs::read(world.project.join(name)).ok().as_ref() != Some(before)
            })
            .collect();
        let new = world.project.join("bin/lazaret-trace").exists();
        (changed.len(), new)
    };
    assert_eq!(
        changed(false),
        (kept.len(), true),
        "the control does not work"
    );
    assert_eq!(changed(true), (0, false));
}
