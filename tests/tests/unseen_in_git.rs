//! Changes that the user's git takes or shows without saying so: trees that an index caches, and objects in place of others. In the project's own
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

/// Has the index cache a tree for `d` with another content of `d/a`, and one more file.
const OTHER_TREE: &str = r#"python3 -c '
import hashlib, subprocess
git = lambda *words, text=b"": subprocess.run(["git", *words], input=text, capture_output=True, check=True).stdout.strip().decode()
blob = git("hash-object", "-w", "--stdin", text=b"sprung\n")
tree = git("mktree", text=f"100644 blob {blob}\ta\n100644 blob {blob}\tb\n".encode())
old = bytes.fromhex(git("rev-parse", "HEAD:d"))
git("read-tree", "HEAD"); git("update-index", "-q", "--refresh")
index = open(".git/index", "rb").read()[:-20]
at = index.index(b"TREE"); assert old in index[at:]
index = index[:at] + index[at:].replace(old, bytes.fromhex(tree))
open(".git/index", "wb").write(index + hashlib.sha1(index).digest())
'"#;

place_test!(no_cached_tree_is_committed_unseen);
fn no_cached_tree_is_committed_unseen(place: Place) {
    for directory in REPOSITORIES {
        let attack = format!("cd {directory}; {OTHER_TREE}");
        let committed = |world: &World| {
            // Nothing is to be seen before.
            let commit = "git diff --cached --quiet; git diff --quiet; echo 2 > f; git add f; git commit -qm 2; git ls-tree -r --name-only HEAD";
            on_host(
                world,
                &format!("cd {directory}; {commit}; git cat-file -p HEAD:d/a"),
            )
        };
        let control = self::world(place);
        on_host(&control, &attack);
        assert_eq!(committed(&control), "d/a\nd/b\nf\nsprung\n", "the control");

        let world = self::world(place);
        let mut session = Session::open(&world);
        let ordinary = format!(
            "cd {directory}; echo 3 > d/c; git add d; git commit -qm 3; git mv d e; git add -N f; git stash -q; git checkout -q HEAD~; git checkout -q -
             git -c index.version=4 read-tree HEAD; git update-index --refresh; git rm -q --cached d/c; git reset -q --hard HEAD~"
        );
        let said = session.bash(&ordinary).result.to_string();
        assert!(!said.contains("cached for"), "{said}");
        let said = session.bash(&attack).result.to_string();
        assert!(said.contains("another tree cached for `d/`"), "{said}");
        on_host(&world, &format!("cd {directory}; git reset -q"));
        assert_eq!(committed(&world), "d/a\nf\ngood\n");
    }
}

place_test!(each_replacement_by_a_command_is_reported);
/// Also beside one of the user's, and where a file of all references has them.
fn each_replacement_by_a_command_is_reported(place: Place) {
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

place_test!(a_reference_that_is_too_large_is_cut);
/// Git reads all of a reference into memory, also in a prompt: a sparse file of no size on the disk takes the machine's. Here git has less
/// than the file is large.
fn a_reference_that_is_too_large_is_cut(place: Place) {
    const ATTACKS: [&str; 2] = [
        "truncate -s 600M .git/$(git symbolic-ref HEAD)",
        "git pack-refs --all; truncate -s 600M .git/packed-refs",
    ];
    for directory in REPOSITORIES {
        for attack in ATTACKS {
            let attack = format!("cd {directory}; {attack}");
            let status = |world: &World| {
                let ask = format!("cd {directory}; ulimit -v 400000; git status --short");
                run(
                    world.host("timeout").args(["150", "bash", "-c", &ask]),
                    LIMIT,
                )
            };
            let control = self::world(place);
            on_host(&control, &attack);
            assert_ne!(status(&control).code(), 0, "the control of {attack}");

            let world = self::world(place);
            let mut session = Session::open(&world);
            let said = session.bash(&attack).result.to_string();
            assert!(said.contains("larger than"), "{attack}: {said}");
            let done = status(&world);
            let text = format!("{}{}", done.text(), done.errors());
            // Of the packed file the rest is no references; git says so at once.
            assert!(
                done.code() == 0 || text.contains("packed-refs"),
                "{attack}: {text}"
            );
            let later = session.bash("true").result.to_string();
            assert!(!later.contains("larger than"), "{attack}: {later}");
        }
    }
}

place_test!(no_name_of_mercurials_branch_is_run_by_a_prompt);
fn no_name_of_mercurials_branch_is_run_by_a_prompt(place: Place) {
    for name in ["branch", "bookmarks.current"] {
        let attack = format!("printf 'x$(touch sprung)' > .hg/{name}");
        let prompt = format!("PS1=$(cat .hg/{name} 2>/dev/null || true); : \"${{PS1@P}}\"; ls");
        let control = World::new(place);
        on_host(&control, &format!("mkdir .hg; {attack}"));
        assert!(on_host(&control, &prompt).contains("sprung"), "the control");

        let world = World::new(place);
        on_host(&world, "mkdir .hg");
        let mut session = Session::open(&world);
        let ordinary = session.bash(&format!("echo 'my-branch' > .hg/{name}"));
        assert!(
            !ordinary
                .result
                .to_string()
                .contains("a shell would execute")
        );
        assert_eq!(on_host(&world, &format!("cat .hg/{name}")), "my-branch\n");
        let said = session.bash(&attack).result.to_string();
        assert!(said.contains("a shell would execute"), "{said}");
        assert!(!on_host(&world, &prompt).contains("sprung"));
    }
}

/// Puts an ignored secret into the index of this git directory, below the project, with a relative work tree.
const ADDED: &str = "GIT_INDEX_FILE=$PWD/$D/index git --git-dir=$D update-index --add --cacheinfo 100644,$(echo x | git --git-dir=$D hash-object -w --stdin),.env";

place_test!(secrets_in_other_indexes_are_named);
/// Those of a worktree outside the project, of a repository in it, and of one in a tree that is granted for writing.
fn secrets_in_other_indexes_are_named(place: Place) {
    let scene = || {
        let world = self::world(place);
        let granted = world.base().join("granted");
        world.make_folder(&granted);
        let tree = granted.display();
        on_host(
            &world,
            &format!(
                "git worktree add -q {tree}/wt; cd {tree}; git init -q own; cd own; git config user.name t
                 git config user.email t@t.invalid; echo 1 > f; git add f; git commit -qm 1
                 for d in {tree}/wt {tree}/own {}/sub; do echo sprung > $d/.env; done",
                world.project.display()
            ),
        );
        (world, granted)
    };
    let work_tree = |granted: &std::path::Path, place: &str| match place {
        "sub" => "sub".to_owned(),
        other => granted.join(other).display().to_string(),
    };
    for (name, git) in [
        ("wt", ".git/worktrees/wt"),
        ("sub", "sub/.git"),
        ("own", "own/.git"),
    ] {
        let at = |granted: &std::path::Path| match name {
            "own" => format!("cd {}; D={git}; {ADDED}", granted.display()),
            "wt" => format!(
                "D=.git; {}",
                ADDED.replace("$PWD/$D/index", &format!("$PWD/{git}/index"))
            ),
            _ => format!("D={git}; {ADDED}"),
        };
        let (control, granted) = scene();
        on_host(&control, &at(&granted));
        let commit = format!(
            "cd {}; echo 2 > f; git commit -qam 2; git show HEAD:.env",
            work_tree(&granted, name)
        );
        assert_eq!(
            on_host(&control, &commit),
            "sprung\n",
            "the control of {name}"
        );

        let (world, granted) = scene();
        let mut command = world.lazaret("session");
        command.current_dir(&world.project);
        let mut session = Session::start(command.arg("--write").arg(&granted));
        let ordinary = format!(
            "cd sub; echo 3 > f; git commit -qam 3; cd {}/own; echo 3 > f; git commit -qam 3",
            granted.display()
        );
        let said = session.bash(&ordinary).result.to_string();
        assert!(!said.contains("the last commit has not"), "{said}");
        let said = session.bash(&at(&granted)).result.to_string();
        assert!(
            said.contains("`.env`, which the last commit has not"),
            "{name}: {said}"
        );
        let later = session.bash("true").result.to_string();
        assert!(!later.contains("the last commit has not"), "{later}");
    }
}

place_test!(an_index_that_was_never_readable_is_named_once);
/// The user's own index is split: nothing that a command puts into it can be compared.
fn an_index_that_was_never_readable_is_named_once(place: Place) {
    let world = self::world(place);
    on_host(&world, "echo sprung > .env; git update-index --split-index");
    let mut session = Session::open(&world);
    let said = session.bash("ls").result.to_string();
    assert!(!said.contains("cannot read all"), "{said}");
    let said = session.bash(&format!("D=.git; {ADDED}")).result.to_string();
    assert!(said.contains("cannot read all"), "{said}");
    let later = session.bash("echo 2 > f; git add f").result.to_string();
    assert!(!later.contains("cannot read all"), "{later}");
}

place_test!(an_index_with_many_protected_names_is_not_called_new);
/// Elsewhere than in the project's repository: names that the last commit has are none that a command has added.
fn an_index_with_many_protected_names_is_not_called_new(place: Place) {
    let world = self::world(place);
    on_host(
        &world,
        "cd sub; o=$(echo x | git hash-object -w --stdin); for n in $(seq 1100); do printf '100644 %s\\t.env.%s\\n' $o $n; done |
         git update-index --index-info; git commit -qm many",
    );
    let mut session = Session::open(&world);
    let commit = "cd sub; echo 3 > f; git add f; git commit -qm 3";
    let said = session.bash(commit).result.to_string();
    assert!(!said.contains("the last commit has not"), "{said}");
    assert!(said.contains("the first 1024 were compared"), "{said}");
    let later = session.bash("cd sub; echo 4 > f; git add f").result;
    assert!(!later.to_string().contains("were compared"), "{later}");
}

place_test!(an_index_with_an_absolute_name_is_named_by_it);
fn an_index_with_an_absolute_name_is_named_by_it(place: Place) {
    let world = self::world(place);
    let mut session = Session::open(&world);
    let add = ADDED.replace(",.env", ",Qetc/.env");
    let attack = format!(
        r#"D=sub/.git; {add}; python3 -c '
import hashlib
old = open("sub/.git/index", "rb").read()[:-20]; new = old.replace(b"Qetc/.env", b"/etc/.env"); assert old != new
open("sub/.git/index", "wb").write(new + hashlib.sha1(new).digest())'"#
    );
    let said = session.bash(&attack).result.to_string();
    assert!(said.contains("contains the name `/etc/.env`"), "{said}");
}
