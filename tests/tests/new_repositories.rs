//! A repository comes about only in a directory that a call has made, and what calls leave in one is judged. Each attack runs as its
//! control first, with no cell, and must work there; the user's git says whether it has.

use crate::kept_world::KeptWorld;
use lazaret_tests::session::Answer;
use lazaret_tests::{LIMIT, Place, Session, User, World, place_test, run};
use serde_json::json;
use std::process::Command;

const IDENTITY: &str = "git config user.name T; git config user.email t@t.invalid";

#[track_caller]
fn on_host(world: &World, script: &str) -> String {
    world.set_up(script)
}

/// Refusals and findings in the result of a call.
fn denied(answer: &Answer) -> String {
    answer.result["metadata"]["denied"].to_string()
}

/// A project of the user's, with a repository or without one.
fn scene(place: Place, is_repository: bool) -> World {
    let world = World::new(place);
    world.put("src/f", "x\n");
    world.put("src/deep/f", "x\n");
    world.put("docs.git/notes", "x\n");
    if is_repository {
        on_host(
            &world,
            &format!("git init -q -b main; {IDENTITY}; git add -f .; git commit -qm one"),
        );
    }
    world
}

/// The repository that the user's programs find in each of the user's directories.
fn found(world: &World) -> String {
    let script = "shopt -s nullglob dotglob; for d in . src src/deep docs.git; do git -C $d rev-parse --absolute-git-dir 2>&1 || true; done
        echo {.,src,src/deep}/{.hg,.sl,.jj}*";
    on_host(world, script)
}

const RESTORED: &str = "cp -r src s; rm -rf src; mkdir src; cp -r s/. src";

/// Makes a linked worktree of a directory without asking git.
const BY_HAND: &str = "mkdir -p .git/worktrees/w; cd .git/worktrees/w; echo ../.. > commondir; echo ref: refs/heads/w > HEAD
    git -C ../../.. branch w; cp ../../index index; echo $(dirname $(dirname $(dirname $PWD)))/src/.git > gitdir; echo x > ../../../src/.git
    test -s ../../../src/.git && echo gitdir: $PWD > ../../../src/.git";

const EXCHANGE: &str =
    "python3 -c 'import ctypes; ctypes.CDLL(None).renameat2(-100, b\"n\", -100, b\"src\", 2)'";

/// Ways to get a repository over `src` or `docs.git`.
fn attacks() -> Vec<String> {
    [
        "git init -q src",
        "git init -q src/deep",
        "mkdir -p src/.git/objects src/.git/refs; echo ref: refs/heads/m > src/.git/HEAD",
        "git init -q n; mv n/.git src/.git",
        "git init -q n; cp -r n/.git src/.git",
        "git init -q n; ln -s ../n/.git src/.git",
        "git init -q n; echo gitdir: ../n/.git > src/.git",
        "git init -q --separate-git-dir=$PWD/g.git src",
        "git init -q --bare docs.git",
        "git init -q --bare src",
        "git init -q --bare n.git; cp -r docs.git/. n.git; rm -rf docs.git; mv n.git docs.git",
        "git init -q n; cp -r src/. n; mv src old; mv n src",
        "git init -q n; cp -r src/. n; rm -rf src; mv n src",
        "git init -q n/deep; cp -r src/. n; rm -rf src; mv n src",
        "mkdir n; git init -q n/src; cp -r src/. n/src; mv src old; mv n/src src",
        "git init -q n; mv src n/old; mv n src",
        "mkdir src/n; git init -q src/n; mv src/n n; cp -r src/. n; mv src old; mv n src",
        "mv src s; git init -q s; mv s src",
        "mv src s; mkdir src; git init -q src; mv s src/s",
        "rm -rf src; git clone -q . src 2>/dev/null || git init -q src",
        "mkdir src/.hg; touch src/.hg/requires",
        "mkdir -p n/.jj/repo n/.jj/working_copy; mv src old; mv n src",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain([
        format!("git init -q n; {EXCHANGE}"),
        format!("{RESTORED}; git init -q src"),
    ])
    .collect()
}

place_test!(no_repository_comes_about_over_the_users_directory);
fn no_repository_comes_about_over_the_users_directory(place: Place) {
    let kept = KeptWorld::of(scene(place, true));
    let before = found(kept.restore());
    for attack in attacks().into_iter().chain([BY_HAND.to_owned()]) {
        // A directory that is moved away or emptied is in no repository of a command's.
        kept.contains(&attack, |world| {
            on_host(world, "mkdir -p src/deep docs.git");
            found(world) != before
        });
    }
}

place_test!(repository_cannot_be_made_over_existing_files_without_one);
fn repository_cannot_be_made_over_existing_files_without_one(place: Place) {
    let kept = KeptWorld::of(scene(place, false));
    let before = found(kept.restore());
    for attack in [
        "git init -q .",
        "git init -q n; mv n/.git .",
        "mkdir .hg; touch .hg/requires",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain(attacks())
    {
        kept.contains(&attack, |world| {
            on_host(world, "mkdir -p src/deep docs.git");
            found(world) != before
        });
    }
}

/// Work of people and tools, each with the directory that is a repository then.
const WORK: [(&str, &str); 14] = [
    ("git init -q a", "a"),
    ("mkdir -p b/c; cd b/c; git init -q", "b/c"),
    (
        "mkdir d; echo x > d/f; mkdir d/e; git -C d init -q; git -C d add f",
        "d",
    ),
    ("git init -q d/e", "d/e"),
    ("git clone -q . src/sub", "src/sub"),
    (
        "git clone -q --bare . store.git; git clone -q store.git work",
        "work",
    ),
    ("git worktree add -q w 2>&1", "w"),
    ("git worktree remove w; git worktree add -q w", "w"),
    ("git worktree add -q -b x src/w", "src/w"),
    (
        "git init -q m; mv m moved; echo x > moved/f; git -C moved add f",
        "moved",
    ),
    (
        "mkdir -p o; mv src/deep o/; git init -q o; mv o/deep src/",
        "o",
    ),
    ("rm -rf a; git init -q a", "a"),
    (
        "cd $(mktemp -d); git init -q t; cd t; echo x > f; git add f; cd $TMPDIR; git init -q u; git -C u status",
        ".",
    ),
    ("mkdir q; git init -q q/r", "q/r"),
];

place_test!(repositories_come_about_in_new_directories);
fn repositories_come_about_in_new_directories(place: Place) {
    let world = scene(place, true);
    let mut session = Session::open(&world);
    for (work, directory) in WORK {
        let answer = session.bash(&format!("set -e; {work}"));
        answer.success();
        assert!(
            !denied(&answer).contains("would come about"),
            "{work}: {}",
            denied(&answer)
        );
        let is_one = on_host(
            &world,
            &format!("cd {directory}; git rev-parse --show-toplevel"),
        );
        let whole = world.project.join(directory).canonicalize().unwrap();
        assert_eq!(is_one.trim(), whole.to_str().unwrap(), "{work}");
    }
    // A directory that a file tool has made is a call's too.
    for file in ["by/tool/a.txt", "by/tool/b.txt"] {
        session
            .call("file_write", json!({"path": file, "content": "x"}))
            .success();
    }
    session
        .bash("git init -q by/tool && git -C by/tool add .")
        .success();
    session.close(LIMIT);
    // In a later session they are repositories like any other, and stay that.
    let later = "cd d; git status --porcelain; git -c user.name=t -c user.email=t@t commit -qm x; cd ../w; git log --oneline | wc -l";
    assert!(world.in_cell(later).success().ends_with("1\n"));
}

place_test!(new_repositories_know_of_modes);
/// `git init` changes the mode of the `config` that it has made, and writes `filemode = false` where it cannot: every later change of a
/// mode would be missing in the user's history.
fn new_repositories_know_of_modes(place: Place) {
    let world = scene(place, true);
    let mut session = Session::open(&world);
    let answer = session.bash(
        "set -e; git init -q n; git init -q --bare b.git; git clone -q . c; for d in n b.git c; do git -C $d config core.filemode; done",
    );
    assert_eq!(answer.success().trim(), "true\ntrue\ntrue");
    assert!(!denied(&answer).contains("/config"), "{}", denied(&answer));
    // The user's own settings keep theirs.
    let before = on_host(&world, "stat -c '%a %Y' .git/config .git/HEAD");
    let attack =
        "for m in 0 +x; do chmod $m .git/config; done; touch -d 2001-01-01 .git/config; true";
    session.bash(attack).success();
    session.close(LIMIT);
    assert_eq!(
        on_host(&world, "stat -c '%a %Y' .git/config .git/HEAD"),
        before
    );
    on_host(&world, attack);
    assert_ne!(
        on_host(&world, "stat -c '%a %Y' .git/config .git/HEAD"),
        before,
        "the control"
    );
}

/// Where Cargo would keep a bare repository.
const CARGOS: &str = "git/db/dep-0123456789abcdef";

/// Ways to get settings that run a program into a repository at such a place, or one that was there away from it.
const CARGOS_ATTACKS: [&str; 18] = [
    "git init -q --bare $D; git -C $D config core.fsmonitor 'touch ~/ran'",
    "git init -q --bare $D; printf \"$EVIL\" >> $D/config",
    "mkdir -p $D; printf \"$EVIL\" > $D/config; mkdir $D/objects $D/refs; echo ref: refs/heads/m > $D/HEAD",
    "mkdir -p n/db/${D##*/}; printf \"$EVIL\" > n/db/${D##*/}/config; mv n git; mkdir $D/objects $D/refs; echo ref: refs/heads/m > $D/HEAD",
    "mkdir -p git/n/${D##*/}; printf \"$EVIL\" > git/n/${D##*/}/config; mv git/n git/db; mkdir $D/objects $D/refs; echo ref: refs/heads/m > $D/HEAD",
    "mkdir -p git/db/n; printf \"$EVIL\" > git/db/n/config; mv git/db/n $D; mkdir $D/objects $D/refs; echo ref: refs/heads/m > $D/HEAD",
    "mkdir -p n/objects n/refs git/db; printf \"$EVIL\" > n/config; mv n $D; echo ref: refs/heads/m > $D/HEAD",
    "mkdir -p $D; echo ref: refs/heads/m > $D/HEAD; mv git x; cd x/db/*; printf \"$EVIL\" > config; mkdir objects refs",
    "mkdir -p $D; echo ref: refs/heads/m > $D/HEAD; mv git/db git/x; cd git/x/*; printf \"$EVIL\" > config; mkdir objects refs",
    "mkdir -p $D; echo ref: refs/heads/m > $D/HEAD; mv $D x; cd x; printf \"$EVIL\" > config; mkdir objects refs",
    "git init -q --bare $D; mv git x; printf \"$EVIL\" > x/db/${D##*/}/config",
    "git init -q --bare $D; mv $D x; printf \"$EVIL\" > x/config",
    "git init -q --bare $D; mkdir n; printf \"$EVIL\" > n/config; ln -sf ../../../n/config $D/config",
    "git init -q --bare $D; mkdir -p n/db/${D##*/}; printf \"$EVIL\" > n/db/${D##*/}/config; cp -rn git/. n; exchange n git",
    "git init -q --bare $D; mkdir -p $D/hooks; echo x > $D/hooks/reference-transaction; chmod +x $D/hooks/reference-transaction",
    "mkdir -p $D/hooks; echo x > $D/hooks/reference-transaction; chmod +x $D/hooks/*; mkdir $D/objects $D/refs; echo ref: refs/heads/m > $D/HEAD",
    "mkdir -p n/${D##*/}; printf \"$EVIL\" > n/${D##*/}/config; mkdir git; ln -s ../n git/db; mkdir $D/objects $D/refs; echo ref: refs/heads/m > $D/HEAD",
    "git init -q --bare git/DB/${D##*/}; printf \"$EVIL\" >> git/DB/${D##*/}/config",
];

place_test!(settings_of_cargos_repositories_run_nothing);
fn settings_of_cargos_repositories_run_nothing(place: Place) {
    let kept = KeptWorld::of(scene(place, true));
    let evil = "[core]\\n\\tfsmonitor = touch ~/ran\\n";
    let exchange = "exchange() { python3 -c \"import ctypes; ctypes.CDLL(None).renameat2(-100, b'$1', -100, b'$2', 2)\"; }";
    for attack in CARGOS_ATTACKS {
        let script = format!("D={CARGOS}; EVIL='{evil}'; {exchange}\n{attack}");
        kept.contains(&script, |world| {
            let look = "set +e; shopt -s nullglob globstar
                for head in **/HEAD; do cd ${head%/*} && { git rev-parse -q --git-dir > /dev/null && git config core.fsmonitor
                [ $(git rev-parse --git-dir) = . ] && [ -x hooks/reference-transaction ] && echo hook; cd $OLDPWD; } 2> /dev/null; done; true";
            !on_host(world, look).is_empty()
        });
    }
    // Over what was there before, none comes about at such a place either.
    let world = kept.restore();
    on_host(
        world,
        &format!("mkdir -p {CARGOS}; echo x > {CARGOS}/notes"),
    );
    let said = denied(&Session::open(world).bash(&format!("git init -q --bare {CARGOS}")));
    assert!(said.contains("would come about over a directory"), "{said}");
    let is_one = format!("git -C {CARGOS} rev-parse --is-bare-repository");
    assert_eq!(on_host(world, &is_one), "false\n");
}

/// `lazaret run` with this directory as its root.
fn in_root(world: &World, root: &str, script: &str) -> Command {
    let central = world.home.join(format!("central of {root}"));
    world.make_folder(&central);
    let mut command = world.program("lazaret");
    command
        .arg("run")
        .arg("--project")
        .arg(world.outside.join(root))
        .arg("--central")
        .arg(central);
    command.args(["--", "bash", "-c", script]);
    command
}

place_test!(an_untouched_root_becomes_a_repository_and_an_emptied_one_does_not);
fn an_untouched_root_becomes_a_repository_and_an_emptied_one_does_not(place: Place) {
    let world = World::new(place);
    let outside = world.outside.display();
    on_host(
        &world,
        &format!(
            "cd '{outside}'; mkdir new sub; mkdir sub/new; mkdir used; sleep 0.1; touch used/x; rm used/x"
        ),
    );
    let script = "echo x > f; git init -q . && git add f && git status --porcelain";
    assert_eq!(
        run(&mut in_root(&world, "new", script), LIMIT).success(),
        "A  f\n"
    );
    assert_eq!(
        run(
            &mut in_root(&world, "sub", "git init -q new && ls -A new"),
            LIMIT
        )
        .success(),
        ".git\n"
    );
    let refused = run(&mut in_root(&world, "used", script), LIMIT);
    assert!(
        refused.code() != 0 && !world.outside.join("used/.git").exists(),
        "{refused:?}"
    );
    // A command cannot set the times by which this is told.
    let pretend = "touch -d \"$(stat -c %w .)\" .; git init -q .";
    run(&mut in_root(&world, "used", pretend), LIMIT);
    assert!(!world.outside.join("used/.git").exists());
}

place_test!(repository_over_the_users_directory_is_refused_with_the_remedy);
fn repository_over_the_users_directory_is_refused_with_the_remedy(place: Place) {
    let world = scene(place, true);
    let mut session = Session::open(&world);
    let src = world.project.join("src");
    for attack in [
        "git init -q src",
        "git init -q n1; cp -r src s1; mv src o1; mv n1 src; mv o1 src",
        "mkdir src/.GIT",
        "git init -q --bare docs.git",
    ] {
        let said = denied(&session.bash(attack));
        assert!(
            said.contains("A repository would come about over a directory"),
            "{attack}: {said}"
        );
        let place = if attack.contains("docs") {
            world.project.join("docs.git")
        } else {
            src.clone()
        };
        assert!(
            said.contains(&format!("run `git init` in {}", place.display())),
            "{attack}: {said}"
        );
    }
    let said = denied(&session.bash("mkdir src/.hg"));
    assert!(said.contains("run `hg init` in"), "{said}");
}

place_test!(file_tools_make_no_repository);
fn file_tools_make_no_repository(place: Place) {
    let files = [
        ("src/.git", "gitdir: ../n/.git\n"),
        ("src/.GIT", "gitdir: ../n/.git\n"),
        ("src/.git/HEAD", "ref: refs/heads/m\n"),
        ("src/.git/objects/x", "x"),
        ("src/.git/refs/heads/m", "x"),
        ("src/.hg/requires", "store\n"),
        ("docs.git/HEAD", "ref: refs/heads/m\n"),
        ("made/.git/objects/x", "x"),
    ];
    let world = scene(place, true);
    let mut session = Session::open(&world);
    session.bash("git init -q n").success();
    for (path, content) in files {
        let answer = session.call("file_write", json!({"path": path, "content": content}));
        assert!(
            !answer.ok() && !world.project.join(path).exists(),
            "{path}: {}",
            answer.result
        );
    }
    // Nor does a command complete what a file tool could begin.
    let complete = "mkdir -p src/.git; echo ref: refs/heads/m > src/.git/HEAD; mkdir docs.git/objects docs.git/refs; echo ref: refs/heads/m > docs.git/HEAD";
    session.bash(complete);
    session.close(LIMIT);
    assert!(!found(&world).contains("src/.git") && !found(&world).contains("docs.git"));
}

/// Adds a name to the index of the repository here that git itself refuses, and hides it.
const BAD_INDEX: &str = r#"python3 -c '
import hashlib, struct, subprocess
git = lambda *words, text=b"": subprocess.run(["git", *words], input=text, capture_output=True, check=True).stdout.strip().decode()
blob, path = git("hash-object", "-w", "--stdin", text=b"sprung"), b"../sprung.txt"
file = git("rev-parse", "--absolute-git-dir") + "/index"
entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, 0o100644, 0, 0, 0) + bytes.fromhex(blob) + struct.pack(">H", len(path)) + path
data = b"DIRC" + struct.pack(">II", 2, 1) + entry + bytes((62 + len(path) + 8) // 8 * 8 - len(entry))
open(file, "wb").write(data + hashlib.sha1(data).digest())
'"#;

/// Files that a command leaves in a repository `n` that it has made, and where the user then is.
fn left() -> Vec<(String, &'static str)> {
    let counter = "echo '$(touch ~/ran)' > rebase-merge/msgnum; echo 1 > rebase-merge/end";
    vec![
        (format!("git init -q n; cd n/.git; mkdir rebase-merge; {counter}"), "n"),
        (format!("git init -q n; cd n/.git; mkdir rebase-merge; {counter}; cd ../..; mv n moved; mkdir n; mv moved n/"), "n/moved"),
        (format!("git worktree add -q n; cd .git/worktrees/n; mkdir rebase-merge; {counter}"), "n"),
        (format!("git clone -q --bare . n.git; cd n.git; mkdir rebase-merge; {counter}"), "n.git"),
        (
            "git init -q n; cd n; b='x$(touch${IFS}$HOME/ran)'; git -c user.name=t -c user.email=t@t commit -q --allow-empty -m x
             git branch \"$b\"; git checkout -q --detach; mkdir .git/rebase-merge; echo \"refs/heads/$b\" > .git/rebase-merge/head-name"
                .to_owned(),
            "n",
        ),
    ]
}

/// Enters a directory with git's prompt, and with one that prints the branch.
fn is_run_on_entering(world: &World, directory: &str) -> bool {
    let script = format!(
        ". /usr/lib/git-core/git-sh-prompt; cd {directory} || exit 9; __git_ps1 '\\w' '> '; : \"${{PS1@P}}\"
         PS1=\"$(git branch 2>/dev/null | sed -n 's/^[*] //p')\"; : \"${{PS1@P}}\""
    );
    world.on_host(&script);
    world.home.join("ran").exists()
}

place_test!(files_left_in_repositories_that_calls_made_are_judged);
fn files_left_in_repositories_that_calls_made_are_judged(place: Place) {
    let kept = KeptWorld::of(scene(place, true));
    for (attack, directory) in left() {
        let control = kept.restore();
        control.on_host(&attack);
        assert!(
            is_run_on_entering(control, directory),
            "the control of {attack}"
        );
        let world = kept.restore();
        let mut session = Session::open(world);
        let said = session.bash(&attack).result;
        assert!(!is_run_on_entering(world, directory), "{attack}: {said}");
        let found = &said["metadata"]["found"];
        let file = if attack.contains("head-name") {
            "rebase-merge/head-name"
        } else {
            "rebase-merge/msgnum"
        };
        let object = &found[0]["objects"][0];
        assert!(
            found.as_array().is_some_and(|found| found.len() == 1)
                && found[0]["kind"] == "prompt_text"
                && object["state"] == "removed"
                && object["target"].as_str().unwrap().ends_with(file),
            "{attack}: {said}"
        );
        // Again, in what is no longer new.
        session.bash(&attack.replace("git init -q n;", "cd ."));
        assert!(!is_run_on_entering(world, directory), "{attack}, again");
        session.close(LIMIT);
    }
    for made in [
        "git init -q n/m; cd n/m",
        "git worktree add -q n; cd n",
        "git init -q n; mv n o; cd o",
    ] {
        let attack = format!("{made}; {BAD_INDEX}");
        let sprung = |world: &World| {
            on_host(
                world,
                "for d in n n/m o; do git -C $d restore . 2>&1 || true; done",
            );
            ["n/sprung.txt", "sprung.txt"]
                .iter()
                .any(|path| world.project.join(path).exists())
        };
        let control = kept.restore();
        on_host(control, &attack);
        assert!(sprung(control), "the control of {attack}");
        let world = kept.restore();
        let mut session = Session::open(world);
        let said = session.bash(&attack).result.to_string();
        assert!(
            !sprung(world) && said.contains("has left an index that contains the name"),
            "{attack}: {said}"
        );
    }
    // What ordinary work leaves is said nothing about.
    let world = kept.restore();
    let mut session = Session::open(world);
    let work = format!(
        "set -e; git clone -q --depth 1 file://$PWD shallow; git clone -q --shared . shared; cd shared; {IDENTITY}
         echo y > y; git add y; git commit -qm y; git checkout -q -b z HEAD~1; echo z > z; git add z; git commit -qm z; git rebase -q main"
    );
    let answer = session.bash(&work);
    answer.success();
    assert!(
        answer.result["metadata"].get("found").is_none(),
        "{}",
        answer.result
    );
}

place_test!(no_index_of_a_repository_within_the_project_writes_outside);
fn no_index_of_a_repository_within_the_project_writes_outside(place: Place) {
    let world = scene(place, true);
    on_host(&world, "git init -q inner; cd inner; echo x > x; git add x");
    let kept = KeptWorld::of(world);
    kept.contains(&format!("cd inner; {BAD_INDEX}"), |world| {
        on_host(world, "cd inner; git restore . || true");
        world.project.join("sprung.txt").exists()
    });
}

place_test!(granted_trees_are_watched_as_the_project_is);
fn granted_trees_are_watched_as_the_project_is(place: Place) {
    let world = scene(place, true);
    let data = world.outside.join("data");
    world.make_folder(&data);
    let at = data.display().to_string();
    on_host(
        &world,
        &format!(
            "cd '{at}'; mkdir src; echo x > src/f; git init -q app; cd app; {IDENTITY}; echo x > f; git add f; git commit -qm f"
        ),
    );
    let granted = |script: &str| {
        let mut command = world.lazaret("run");
        command.args([
            "--write",
            &at,
            "-v",
            "--",
            "bash",
            "-c",
            &format!("cd '{at}'; {script}"),
        ]);
        run(&mut command, LIMIT)
    };
    let counter = "mkdir rebase-merge; echo '$(touch ~/ran)' > rebase-merge/msgnum; echo 1 > rebase-merge/end";
    for (directory, script) in [
        ("app", format!("cd app/.git; {counter}")),
        ("new", format!("git init -q new; cd new/.git; {counter}")),
    ] {
        let said = granted(&script).errors();
        let entered = data.join(directory).display().to_string();
        assert!(!is_run_on_entering(&world, &entered), "{script}: {said}");
        assert!(
            said.contains("found: prompt text") && said.contains("(removed)"),
            "{script}: {said}"
        );
        on_host(
            &world,
            &format!(
                "cd '{entered}/.git'; mkdir -p rebase-merge; cd rebase-merge; echo '$(touch ~/ran)' > msgnum; echo 1 > end"
            ),
        );
        assert!(is_run_on_entering(&world, &entered), "the control");
        on_host(
            &world,
            &format!("rm ~/ran; rm -r '{entered}/.git/rebase-merge'"),
        );
    }
    let said = granted("git init -q src || git init -q .").errors();
    assert!(
        said.contains("A repository would come about over a directory"),
        "{said}"
    );
    assert!(!data.join("src/.git").exists() && !data.join(".git").exists());
    granted(&format!("cd app; {BAD_INDEX}"));
    on_host(&world, &format!("cd '{at}/app'; git restore . || true"));
    assert!(!data.join("sprung.txt").exists());
    on_host(
        &world,
        &format!("cd '{at}/app'; {BAD_INDEX}; git restore . || true"),
    );
    assert!(data.join("sprung.txt").exists(), "the control");
}

/// Ways to have git pass over a repository, for the one above it.
const PASSED_OVER: [&str; 6] = [
    "rm .git/HEAD",
    "rm -rf .git/refs",
    "rm -rf .git/objects",
    "chmod 0 .git",
    "chmod 0 .git/objects .git/refs",
    "rm .git/HEAD; mkdir .git/HEAD; rm -rf .git/refs; chmod 0 .git",
];

place_test!(repositories_stay_repositories);
/// In the project, in a repository within it, and in a tree that is granted for writing.
fn repositories_stay_repositories(place: Place) {
    let world = World::new(place);
    let data = world.outside.join("data");
    world.make_folder(&data);
    let at = data.display().to_string();
    let make = format!("git init -q -b main; {IDENTITY}; git commit -q --allow-empty -m x");
    on_host(
        &world,
        &format!("{make}; mkdir in; cd in; {make}; cd '{at}'; {make}; mkdir app; cd app; {make}"),
    );
    let kept = KeptWorld::of(world);
    let all = format!(". in '{at}/app'");
    let found = |world: &World| {
        let script = format!(
            "for d in {all}; do git -C $d rev-parse --absolute-git-dir 2>&1; git -C $d symbolic-ref HEAD 2>&1; done || true"
        );
        on_host(world, &script)
    };
    let before = found(kept.restore());
    for attack in PASSED_OVER {
        let attack = format!("for d in {all}; do (cd $d; {attack}); done");
        let control = kept.restore();
        control.on_host(&attack);
        if found(control) == before {
            // Root enters what is closed.
            println!("{attack}: no attack for this user");
            assert!(
                place.user == User::Root && attack.contains("chmod"),
                "the control of {attack}"
            );
            continue;
        }
        let world = kept.restore();
        let mut command = world.lazaret("run");
        command.args(["--write", &at, "-v", "--", "bash", "-c", &attack]);
        let said = run(&mut command, LIMIT).errors();
        assert_eq!(found(world), before, "{attack}: {said}");
    }
    // Who may use a granted tree is kept too.
    let mode = |world: &World| on_host(world, &format!("stat -c %a '{at}'"));
    for change in ["chmod 0", "chmod 777"] {
        let world = kept.restore();
        let before = mode(world);
        let mut command = world.lazaret("run");
        let script = format!("{change} '{at}'");
        command.args(["--write", &at, "-v", "--", "bash", "-c", &script]);
        let said = run(&mut command, LIMIT).errors();
        assert_eq!(mode(world), before, "{change}: {said}");
        assert!(
            said.contains("root mode") && said.contains("given back"),
            "{said}"
        );
        on_host(world, &script);
        assert_ne!(mode(world), before, "the control");
    }
}
