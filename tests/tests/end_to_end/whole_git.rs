//! Git operations that come to names which a command may not write: they end whole, and leave out these names alone.

use lazaret_tests::session::Answer;
use lazaret_tests::{Finished, Place, Session, World, place_test};
use serde_json::{Value, json};
use std::fmt::Write;

/// Operations of git, each with the branch on which it begins.
const VERBS: [Verb; 13] = [
    Verb::new("checkout", "main", "git checkout -q $KIND"),
    Verb::new("switch", "main", "git switch -q $KIND"),
    Verb::new("ff", "main", "git merge -q --ff-only $KIND"),
    Verb::new("pull", "main", "git pull -q --ff-only . $KIND"),
    Verb::new("merge", "own", "git merge -q -m merged $KIND"),
    Verb::new("rebase", "own", "git rebase -q $KIND"),
    Verb::new("cherry-pick", "own", "git cherry-pick $KIND > /dev/null"),
    Verb::new("revert", "$KIND", "git revert --no-edit HEAD > /dev/null"),
    Verb::new("stash-pop", "stashed", "git stash pop -q"),
    Verb::new("reset", "main", "git reset -q --hard $KIND"),
    Verb::new(
        "restore",
        "main",
        "git restore --source=$KIND --staged --worktree .",
    ),
    Verb::new(
        "worktree",
        "main",
        "git worktree add -q -b w wt $KIND && cd wt",
    ),
    Verb::new("clone", "main", "git clone -q -b $KIND . wt && cd wt"),
];

/// Branches, by how they differ from `main` in protected names.
const KINDS: [&str; 3] = ["differs", "deleted", "new"];
const EXISTING: [&str; 3] = [
    ".buckconfig",
    ".github/workflows/ci.yml",
    ".vscode/settings.json",
];
const NEW: [&str; 2] = [".claude/settings.json", ".husky/pre-commit"];

struct Verb {
    name: &'static str,
    was: &'static str,
    script: &'static str,
}

impl Verb {
    const fn new(name: &'static str, was: &'static str, script: &'static str) -> Self {
        Self { name, was, script }
    }
}

/// The repository that all are copies of: each branch of [`KINDS`] also changes a file, and adds one that sorts after all.
fn base(world: &World) {
    let (existing, new) = (EXISTING.join(" "), NEW.join(" "));
    world.set_up(&format!(
        "git init -q -b main base; cd base; git config user.name T; git config user.email t@t.invalid
         put() {{ for name; do mkdir -p $(dirname $name); echo $text > $name; done; }}
         text=one; put file {existing}; git add -Af .; git commit -qm one
         for kind in {kinds}; do
             git checkout -q -b $kind main
             case $kind in
                 differs) text=two put {existing};;
                 deleted) git rm -q {existing};;
                 new) text=two put {new};;
             esac
             text=two put file zzz; git add -Af .; git commit -qm $kind
         done
         git checkout -q -b own main; echo own > own; git add own; git commit -qm own; git checkout -q main",
        kinds = KINDS.join(" "),
    ));
}

/// A script that runs each verb in its own copy below `copies`, and prints its exit code and what came of it.
fn outcomes(copies: &str) -> String {
    let mut script = format!(
        "cd {copies}
         outcome() {{
             code=$?; top=$(git rev-parse --git-dir)
             echo \"$1 code $code, log $(git log --format=%s | paste -sd,), index $(git ls-files -s | sha256sum | cut -c1-12),\" \
                  file $(cat file), zzz $(cat zzz 2> /dev/null), left $(cd $top; ls -d *.lock *_HEAD rebase-* 2> /dev/null | grep -v ORIG_HEAD)
             git status --porcelain --untracked-files=all | grep -v wt/ | sed \"s/^/$1: /\"
         }}\n"
    );
    for kind in KINDS {
        for Verb {
            name, script: verb, ..
        } in VERBS
        {
            writeln!(
                script,
                "(KIND={kind}; cd {kind}-{name}; {verb}; outcome {kind}-{name})"
            )
            .unwrap();
        }
    }
    script
}

fn copies(world: &World, copies: &str) {
    let mut script = format!("mkdir {copies}\n");
    for kind in KINDS {
        for Verb { name, was, .. } in VERBS {
            let was = match was {
                "stashed" => "git cherry-pick -n $KIND; git stash -q".to_owned(),
                was => format!("git checkout -q {was}"),
            };
            writeln!(
                script,
                "(KIND={kind}; cp -a base {copies}/{kind}-{name}; cd {copies}/{kind}-{name}; git update-index -q --refresh; {was})"
            )
            .unwrap();
        }
    }
    world.set_up(&script);
}

fn is_protected(line: &str) -> bool {
    EXISTING.iter().chain(&NEW).any(|name| line.ends_with(name))
}

/// The outcomes without the lines of `git status` about protected names.
fn without_protected(printed: &Finished) -> Vec<String> {
    let text = printed.text();
    let others = text.lines().filter(|line| !is_protected(line));
    others.map(str::to_owned).collect()
}

place_test!(operations_end_whole);
/// With every verb the cell's git moves index and `HEAD` as the host's does, and the work tree but for protected names.
fn operations_end_whole(place: Place) {
    let world = World::new(place);
    base(&world);
    for name in ["there", "here"] {
        copies(&world, name);
    }
    let there = world.on_host(&outcomes("there"));
    let here = world.in_cell(&outcomes("here"));
    assert_eq!(
        without_protected(&here),
        without_protected(&there),
        "{}",
        here.errors()
    );
    // It differs in protected names, and the result names the first of them.
    assert_ne!(here.text(), there.text());
    assert!(
        here.errors().contains("found: passed over: "),
        "{}",
        here.errors()
    );
    for kind in KINDS {
        for Verb { name, .. } in VERBS {
            are_kept(&world, kind, name);
        }
    }
}

/// The names that existed are as they were, and none has come about.
fn are_kept(world: &World, kind: &str, verb: &str) {
    let copy = format!("here/{kind}-{verb}");
    let (there, missing, text) = match (kind, verb) {
        ("differs", "revert") => (&EXISTING[..], &NEW[..], "two\n"),
        ("deleted", "revert") => (&[][..], &[".vscode/settings.json"][..], ""),
        ("new", "revert") => (&NEW[..], &[][..], "two\n"),
        _ => (&EXISTING[..], &NEW[..], "one\n"),
    };
    for name in there {
        let name = format!("{copy}/{name}");
        assert_eq!(world.get(&name), text.as_bytes(), "{name}");
    }
    for name in missing {
        assert!(
            !world.project.join(&copy).join(name).exists(),
            "{copy} {name}"
        );
    }
}

/// A project with such branches that is the repository itself.
fn project(place: Place) -> World {
    let world = World::new(place);
    base(&world);
    world.set_up("mv base/* base/.[!.]* .; rmdir base; git status --porcelain");
    world
}

/// The names that a result says were passed over, each with what was not done.
fn passed_over(answer: &Answer) -> Vec<String> {
    let found = answer.result["metadata"]["found"].as_array();
    let mut found = found.into_iter().flatten();
    let Some(found) = found.find(|finding| finding["kind"] == "passed_over") else {
        return Vec::new();
    };
    let objects = found["objects"].as_array().unwrap().iter();
    let object = |object: &Value| {
        let state = object["state"].as_str().unwrap_or("kept");
        format!("{} {state}", object["target"].as_str().unwrap())
    };
    objects.map(object).collect()
}

fn each(names: &[&str], state: &str) -> Vec<String> {
    names.iter().map(|name| format!("{name} {state}")).collect()
}

place_test!(results_name_what_was_passed_over);
fn results_name_what_was_passed_over(place: Place) {
    let world = project(place);
    let mut session = Session::open(&world);
    let answer = session.bash("git checkout -q differs");
    assert!(answer.ok(), "{}", answer.result);
    assert_eq!(passed_over(&answer), each(&EXISTING, "not written"));
    assert!(
        answer.text().contains("git checkout -- .buckconfig"),
        "{}",
        answer.text()
    );
    // The control: back again, everything is as git has it.
    let answer = session.bash("git checkout -qf main; git status --porcelain");
    assert_eq!((answer.text(), passed_over(&answer)), ("", vec![]));
    let answer = session.bash("git checkout -q deleted");
    assert_eq!(passed_over(&answer), each(&EXISTING, "not removed"));
    let answer = session.bash("git checkout -qf main; git checkout -q new");
    assert_eq!(passed_over(&answer), each(&NEW, "not written"));
}

place_test!(commits_after_a_name_was_passed_over_are_named);
/// A name that git would take for a change of the command's is named again when that may have been committed or stashed.
fn commits_after_a_name_was_passed_over_are_named(place: Place) {
    let world = project(place);
    let mut session = Session::open(&world);
    let answer = session.bash("git merge -q --ff-only differs");
    assert_eq!(passed_over(&answer), each(&EXISTING, "not written"));
    let answer = session.bash("git status --porcelain > status; cat file; rm status");
    assert_eq!(passed_over(&answer), [""; 0], "nothing was committed");
    let answer = session.bash("git add -A; git commit -qm more; git show --stat --format=%s");
    assert!(answer.text().contains("ci.yml"), "{}", answer.text());
    assert_eq!(passed_over(&answer), each(&EXISTING, "kept"));
    // A stash gives back what git has, and cannot.
    let answer = session.bash("git reset -q --hard differs; echo three > file; git stash -q");
    assert_eq!(passed_over(&answer), each(&EXISTING, "not written"));
    // The control: when the user has brought the files there, nothing is said any more.
    world.set_up("git checkout -- .; git status --porcelain");
    let answer = session.bash("echo four > file; git commit -qam four");
    assert_eq!(passed_over(&answer), [""; 0], "{}", answer.result);
}

place_test!(a_lock_of_an_index_opens_nothing);
/// Whoever makes the lock that git makes is told what git is told, and nothing comes of it.
fn a_lock_of_an_index_opens_nothing(place: Place) {
    let world = project(place);
    world.put("secret.txt", "mine\n");
    let attack = format!(
        r#"import os, subprocess
def tried(name, act):
    try:
        act()
        print(name, "done")
    except OSError as error:
        print(name, error.errno in (1, 13, 16, 17, 30) and "refused" or error)
def make(name):
    fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.write(fd, b"evil")
    return fd
def link(fd):
    os.link("/proc/self/fd/%d" % fd, "linked", follow_symlinks=True)
there, new = ".vscode/settings.json", ".mise.toml"
tried("before", lambda: os.unlink(there))
tried("before", lambda: make(new))
tried("over", lambda: make(there))
lock = os.open(".git/index.lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
tried("over", lambda: make(there))
tried("removed", lambda: os.unlink(there))
fds = []
tried("made", lambda: fds.append(make(there)))
tried("made", lambda: fds.append(make(new)))
for fd in fds:
    tried("linked", lambda: link(fd))
tried("hook", lambda: make(".git/hooks/post-commit"))
tried("config", lambda: os.unlink(".git/config"))
tried("outside", lambda: os.unlink("{outside}/f"))
tried("repository", lambda: make("secret.txt/.git"))
tried("opened", lambda: os.open(there, os.O_WRONLY))
tried("truncated", lambda: os.open(there, os.O_CREAT | os.O_TRUNC | os.O_WRONLY))
tried("symlink", lambda: os.symlink("file", ".envrc"))
tried("renamed", lambda: os.rename("file", there))
print("child", subprocess.run(["rm", there], stderr=subprocess.DEVNULL).returncode)
os.unlink(".git/index.lock")
tried("after", lambda: os.unlink(there))
tried("after", lambda: make(".envrc"))
"#,
        outside = world.outside.display()
    );
    world.write(&world.outside.join("f"), "theirs\n");
    world.put("attack.py", &attack);
    let mut session = Session::open(&world);
    let answer = session.bash("python3 attack.py");
    let want = "before refused\nbefore refused\nover refused\nover refused\nremoved done\nmade done\nmade done\nlinked";
    assert!(answer.text().contains(want), "{}", answer.text());
    assert_eq!(
        answer
            .text()
            .lines()
            .filter(|line| line.ends_with(" done"))
            .count(),
        3,
        "{}",
        answer.text()
    );
    assert!(answer.text().contains("child 1\n"), "{}", answer.text());
    assert_eq!(
        passed_over(&answer),
        [
            ".vscode/settings.json not written",
            ".mise.toml not written"
        ]
    );
    assert_eq!(world.get(".vscode/settings.json"), b"one\n");
    for name in [
        ".mise.toml",
        "linked",
        ".envrc",
        ".git/hooks/post-commit",
        ".git/index.lock",
    ] {
        assert!(!world.project.join(name).exists(), "{name}");
    }
    assert_eq!(
        world.set_up(&format!(
            "cat '{}/f' file; git status --porcelain -uno",
            world.outside.display()
        )),
        "theirs\none\n"
    );
    // The control: on the host the same program does all of it.
    let done = world.on_host("python3 attack.py").text();
    assert!(
        done.contains("before done") && done.contains("symlink done"),
        "{done}"
    );
}

place_test!(names_are_passed_over_up_to_a_limit);
fn names_are_passed_over_up_to_a_limit(place: Place) {
    const MAX: usize = 256;
    let world = project(place);
    let script = format!(
        "import os
os.open('.git/index.lock', os.O_CREAT | os.O_EXCL | os.O_WRONLY)
for number in range({MAX} + 2):
    os.mkdir(f'd{{number}}')
    try:
        os.close(os.open(f'd{{number}}/.envrc', os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except PermissionError:
        print(number)
os.unlink('.git/index.lock')
"
    );
    world.put("many.py", &script);
    let answer = Session::open(&world).bash("python3 many.py");
    assert!(
        answer.text().ends_with(&format!("{MAX}\n{}\n", MAX + 1)),
        "{}",
        answer.text()
    );
    let found = &answer.result["metadata"]["found"];
    let found = found.as_array().unwrap().iter();
    let counts: Vec<_> = found
        .filter(|finding| finding["kind"] == "passed_over")
        .map(|finding| &finding["count"])
        .collect();
    assert_eq!(counts, [&json!(MAX)]);
}

place_test!(patches_meet_refusals);
/// Operations that look at a file again after they have written it hear the truth: otherwise `git status` would show no difference.
fn patches_meet_refusals(place: Place) {
    for verb in ["git am -q p.patch", "git -C . apply --index p.patch"] {
        let world = project(place);
        world.set_up("git format-patch -1 --stdout differs > p.patch");
        let mut session = Session::open(&world);
        let answer = session.bash(verb);
        assert!(
            !answer.ok() && passed_over(&answer).is_empty(),
            "{}",
            answer.result
        );
        let answer = session
            .bash("git am -q --abort 2> /dev/null; git reset -q --hard main; cat file .vscode/settings.json");
        assert_eq!(
            (answer.text(), passed_over(&answer)),
            ("one\none\n", vec![])
        );
        // The control: on the host it works.
        assert_eq!(
            world.set_up(&format!("{verb}; cat file .buckconfig")),
            "two\ntwo\n"
        );
    }
}
