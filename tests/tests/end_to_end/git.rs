//! Git in a cell: what works, and what is refused because the user's own git, editor or shell would act on it.

use crate::kept_world::KeptWorld;
use lazaret_tests::{Finished, LIMIT, Place, Session, Test, World, in_each_place, run};

pub fn tests() -> Vec<Test> {
    in_each_place![
        ordinary_work_with_branches_works,
        commits_carry_the_users_name,
        what_a_filter_of_the_users_should_change_is_not_committed_as_it_is,
        a_renamed_branch_has_its_name_whatever_git_says,
        branches_come_and_go_with_names_that_a_shell_may_make,
        a_checkout_leaves_out_what_the_host_acts_on_by_name,
        a_checkout_does_not_change_what_was_there,
        worktrees_work,
        repositories_are_made_and_cloned,
        archives_are_unpacked_and_settings_written,
        submodules_are_not_added,
        what_is_closed_to_reading_is_passed_over,
        the_users_git_runs_nothing_that_a_cell_has_left
    ]
}

const IDENTITY: &str = "git config user.name T; git config user.email t@t.invalid";
/// What branches add that a shell may make: the user allows, calls or pushes it before anything acts on it.
const MADE: [&str; 6] = [
    ".github/workflows/x.yml",
    ".gitlab-ci.yml",
    ".bazelrc",
    ".buckconfig",
    "pkg/.yarnrc.yml",
    ".env.test",
];
/// What the host acts on by itself.
const REFUSED: [&str; 5] = [
    ".vscode/settings.json",
    ".husky/pre-commit",
    ".mise.toml",
    ".claude/settings.json",
    "lib/.envrc",
];

fn on_host(world: &World, script: &str) -> Finished {
    let finished = run(world.host("bash").args(["-ec", script]), LIMIT);
    finished.success();
    finished
}

fn in_cell(world: &World, script: &str) -> Finished {
    run(&mut world.cell(&format!("set -e; {script}")), LIMIT)
}

/// A repository with a branch for each list, and one with a plain file more.
fn repository(place: Place) -> World {
    let world = World::new(place);
    on_host(
        &world,
        &format!("git init -q -b main; {IDENTITY}; echo one > file; git add .; git commit -qm one"),
    );
    for (branch, names) in [
        ("made", &MADE[..]),
        ("refused", &REFUSED),
        ("plain", &["plain"]),
    ] {
        on_host(&world, &format!("git checkout -q -b {branch} main"));
        for name in names {
            world.put(name, "text\n");
        }
        on_host(
            &world,
            "git add -Af .; git commit -qm names; git checkout -q main; git clean -qfdx",
        );
    }
    world
}

fn ordinary_work_with_branches_works(place: Place) {
    let world = repository(place);
    let script = "git status --porcelain; git checkout -q -b work; echo two >> file; git add file; git commit -qm two
            echo three >> file; git stash -q; git stash pop -q; git commit -qam three; git rebase -q plain
            git checkout -q main; git merge -q --no-ff -m merged work; git checkout -q made; git merge -q -m more plain
            git rebase -q --onto plain main made; git checkout -q main; git diff --stat HEAD~1 > diff; git log --format=%s";
    let printed = in_cell(&world, script);
    assert!(
        printed.success().starts_with("merged\n"),
        "{}{}",
        printed.text(),
        printed.errors()
    );
    let host = on_host(
        &world,
        "git status --porcelain; git show made --format=%s --name-only; git fsck --no-dangling",
    );
    assert_eq!(
        host.text(),
        format!("?? diff\nnames\n\n{}\n", sorted(&MADE).join("\n"))
    );
}

/// Git also writes settings of branches, which are closed: it renames first, and ends with an error then.
fn a_renamed_branch_has_its_name_whatever_git_says(place: Place) {
    let world = repository(place);
    let renamed = in_cell(&world, "git branch -m plain other");
    assert_eq!(renamed.code(), 128, "{}", renamed.errors());
    assert!(
        renamed.errors().contains("update of config-file failed"),
        "{}",
        renamed.errors()
    );
    in_cell(&world, "git branch -q -D other").success();
    let branches = on_host(&world, "git branch --format='%(refname:short)'").text();
    assert_eq!(branches, "made\nmain\nrefused\n");
}

/// Also in a repository without a name of its own, which most are; and never under a name that may be for other repositories.
fn commits_carry_the_users_name(place: Place) {
    let world = World::new(place);
    let settings = world.home.join(".gitconfig");
    let secret = format!("[http]\n\textraHeader = {}\n", world.canary);
    world.write(
        &settings,
        format!("[user]\n\tname = \"Ann B\"\n\temail = ann@h.invalid\n{secret}"),
    );
    let script = "git init -q r; cd r; git commit -q --allow-empty -m x; git log --format='%an <%ae>'
            { git config --list --global | grep -c extraheader || true; }; git config user.name Own; git commit -q --allow-empty -m y
            git log -1 --format=%an";
    let printed = in_cell(&world, script);
    assert_eq!(
        printed.success(),
        "Ann B <ann@h.invalid>\n0\nOwn\n",
        "{}",
        printed.errors()
    );
    world.write(
        &settings,
        "[user]\n\tname = Ann\n\temail = a@h\n[includeIf \"gitdir:~/work/\"]\n\tpath = work\n",
    );
    let printed = in_cell(
        &world,
        "git init -q q; cd q; git commit -q --allow-empty -m x",
    );
    assert!(
        printed.code() == 128 && printed.errors().contains("tell me who you are"),
        "{}",
        printed.errors()
    );
}

/// Without a word git leaves out a filter that it does not know, and commits the content of large files, or of files that are secret.
fn what_a_filter_of_the_users_should_change_is_not_committed_as_it_is(place: Place) {
    let world = World::new(place);
    on_host(
        &world,
        &format!(
            "git init -q; {IDENTITY}; echo 'big filter=lfs' > .gitattributes; echo 'key filter=crypt' >> .gitattributes"
        ),
    );
    world.put("big", "content");
    world.put("key", "content");
    let script = "git add .gitattributes; git add big 2>&1; git add key 2>&1; git ls-files";
    // The control: an account that knows no filters.
    let added = run(&mut world.cell(script), LIMIT).text();
    assert!(
        added.contains("big\n") && added.contains("key\n"),
        "{added}"
    );
    on_host(&world, "git rm -q --cached big key");
    world.write(
        &world.home.join(".gitconfig"),
        "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\trequired = true\n[filter \"crypt\"]\n\tclean = my-crypt\n",
    );
    let printed = run(
        &mut world.cell(&format!("{script}; git config filter.lfs.clean")),
        LIMIT,
    )
    .text();
    assert!(
        printed.ends_with("git-lfs clean -- %f\n")
            && printed.contains("clean filter 'crypt' failed"),
        "{printed}"
    );
    assert!(!printed.contains("\nkey\n"), "{printed}");
    // Where there is no git-lfs, git stops too.
    let has_lfs = on_host(&world, "command -v git-lfs || true")
        .text()
        .contains("git-lfs");
    assert!(has_lfs || !printed.contains("\nbig\n"), "{printed}");
}

fn branches_come_and_go_with_names_that_a_shell_may_make(place: Place) {
    let world = repository(place);
    let there = format!("git checkout -q made && cat {}", MADE.join(" "));
    let back = format!(
        "git checkout -q main && ls {} 2>/dev/null; git status --porcelain",
        MADE.join(" ")
    );
    let text = "text\n".repeat(MADE.len());
    let printed = in_cell(&world, &format!("{there}; set +e; {back}"));
    assert_eq!(printed.success(), text, "{}", printed.errors());
    // And over several calls of one session.
    let mut session = Session::open(&world);
    for _ in 0..2 {
        assert_eq!(session.bash(&there).success(), text);
        assert_eq!(session.bash(&format!("{back}; true")).success(), "");
    }
    assert_eq!(
        on_host(&world, "git status --porcelain; git branch --show-current").text(),
        "main\n"
    );
}

/// A checkout that would make what the host acts on goes on without that, and says which names they are.
fn a_checkout_leaves_out_what_the_host_acts_on_by_name(place: Place) {
    let world = repository(place);
    let printed = in_cell(&world, "git checkout -q refused; git status --porcelain");
    let missing: String = sorted(&REFUSED)
        .iter()
        .map(|name| format!(" D {name}\n"))
        .collect();
    assert_eq!(printed.text(), missing, "{}", printed.errors());
    for name in REFUSED {
        let why = format!("unable to create file {name}: Permission denied");
        assert!(printed.errors().contains(&why), "{}", printed.errors());
        assert!(!world.project.join(name).exists(), "{name}");
    }
    let printed = in_cell(
        &world,
        "git checkout -qf main; git status --porcelain; git checkout -q plain; cat plain",
    );
    assert_eq!(printed.success(), "text\n", "{}", printed.errors());
    // The host can.
    on_host(
        &world,
        "git checkout -qf refused; cat .vscode/settings.json",
    );
}

fn sorted<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names
}

/// What the user's checkout had when the session opened, and the host acts on, stays as it was.
fn a_checkout_does_not_change_what_was_there(place: Place) {
    let world = repository(place);
    on_host(&world, "git checkout -q made");
    let printed = in_cell(&world, "git checkout -q main");
    assert!(
        printed.errors().contains("unable to unlink '.buckconfig'"),
        "{}",
        printed.errors()
    );
    assert!(
        !world.project.join(".env.test").exists(),
        "it holds what is committed"
    );
    assert_eq!(world.get(".buckconfig"), b"text\n");
    assert_eq!(world.get(".github/workflows/x.yml"), b"text\n");
}

fn worktrees_work(place: Place) {
    let world = repository(place);
    let script = "git worktree add -q -b topic trees/topic; git worktree add -q \"$CENTRAL/away\" made; cd trees/topic
            git status --porcelain; echo x > x; git add x; git commit -qm topic; git log --format=%s
            git -C \"$CENTRAL/away\" status --porcelain; cat \"$CENTRAL/away/.buckconfig\"; cd ../..; git worktree list | wc -l
            git worktree add -q gone plain; cat gone/plain; git worktree remove gone; git worktree prune -v; ls";
    let script = format!("CENTRAL='{}'; {script}", world.central.display());
    let printed = in_cell(&world, &script);
    assert_eq!(
        printed.success(),
        "topic\none\ntext\n3\ntext\nfile\ntrees\n",
        "{}",
        printed.errors()
    );
    // To the host they are worktrees of its repository.
    let host = "cd trees/topic; git status --porcelain; git rev-parse --git-common-dir; cd ../..
            git -C trees/topic config user.name; cat .git/worktrees/topic/commondir; git worktree remove trees/topic; git fsck";
    let printed = on_host(&world, host).text();
    assert_eq!(
        printed,
        format!("{}/.git\nT\n../..\n", world.project.display())
    );
}

fn repositories_are_made_and_cloned(place: Place) {
    let world = repository(place);
    on_host(&world, "git checkout -q made");
    let script = "git init -q made; cd made; git config user.name t; git config user.email t@t; echo x > x; git add x
            git commit -qm x; cd ..; git clone -q . cloned; cat cloned/.github/workflows/x.yml
            git clone -q --bare . bare.git; git -C cloned pull -q; git -C cloned fetch -q; rm -rf made cloned bare.git; ls";
    let printed = in_cell(&world, script);
    assert_eq!(
        printed.success(),
        "text\nfile\npkg\n",
        "{}",
        printed.errors()
    );
    let printed = in_cell(&world, "git clone -q -b refused . cloned");
    assert!(
        printed.code() != 0
            && printed
                .errors()
                .contains(".vscode/settings.json: Permission denied"),
        "{}",
        printed.errors()
    );
    assert_eq!(
        on_host(
            &world,
            "cd cloned; cat file; git log --format=%s; ls -A .vscode"
        )
        .text(),
        "one\nnames\none\n"
    );
}

fn archives_are_unpacked_and_settings_written(place: Place) {
    let world = repository(place);
    on_host(
        &world,
        "git archive made > made.tar; git archive refused > refused.tar",
    );
    let printed = in_cell(
        &world,
        "mkdir t; tar xf made.tar -C t; cd t; find . -type f | xargs cat | sort | uniq -c",
    );
    assert_eq!(
        printed.success().split_whitespace().collect::<Vec<_>>(),
        ["1", "one", "6", "text"],
        "{}",
        printed.errors()
    );
    let printed = in_cell(&world, "mkdir r; tar xf refused.tar -C r");
    assert!(printed.code() != 0 && world.project.join("r/file").exists());
    for name in REFUSED {
        assert!(
            printed
                .errors()
                .contains(&format!("{name}: Cannot open: Permission denied")),
            "{}",
            printed.errors()
        );
    }
    let printed = in_cell(
        &world,
        "mkdir n; cd n; echo 'save-exact=true' > .npmrc; cp .npmrc ../new; mv ../new ../.npmrc; cat ../.npmrc",
    );
    assert_eq!(
        printed.success(),
        "save-exact=true\n",
        "{}",
        printed.errors()
    );
}

/// A submodule's settings name a directory of the host, and its `.git` too: they are the user's to make.
fn submodules_are_not_added(place: Place) {
    let world = repository(place);
    on_host(
        &world,
        "git init -q lib; cd lib; git config user.name t; git config user.email t@t; git commit -q --allow-empty -m x",
    );
    let add = "git -c protocol.file.allow=always submodule add -q ./lib sub";
    let printed = in_cell(&world, &add.replace("./lib", "\"$PWD/lib\""));
    assert!(
        printed.code() != 0 && printed.errors().contains("Permission denied"),
        "{}",
        printed.errors()
    );
    assert!(!world.project.join(".git/modules/sub/config").exists());
    // One that the user has added is worked in.
    on_host(
        &world,
        &format!(
            "git clean -qfd sub; {}",
            add.replace("./lib", "\"$PWD/lib\"")
        ),
    );
    let work = "cd sub; git config user.name || true; echo x > x; git add x; git -c user.name=t -c user.email=t@t commit -qm x
            cd ..; git add sub; git commit -qm sub; git submodule status | cut -c1";
    let printed = in_cell(&world, work);
    assert_eq!(printed.success(), " \n", "{}", printed.errors());
}

/// What a hostile command leaves, so that the user's own git runs its program, and what the user then types.
const TRAPS: [(&str, &str); 7] = [
    (
        "cp -r .git/modules/sub evil; rm -rf evil/hooks; trap > evil/config; echo 'gitdir: ../evil' > sub/.git",
        "git status",
    ),
    (
        "git worktree add -q w; d=.git/worktrees/w; rm -f $d/commondir; mkdir -p $d/objects $d/refs; trap > $d/config",
        "cd w && git status",
    ),
    (
        "git worktree add -q w; d=.git/worktrees/w; cp -r .git evil; trap > evil/config; mkdir -p $d; rm -f $d/commondir
         echo ../../../evil > $d/commondir",
        "cd w && git status",
    ),
    (
        "git worktree add -q w; cp -r .git evil; trap > evil/config; rm -f w/.git; mkdir -p w; echo 'gitdir: ../evil' > w/.git",
        "cd w && git status",
    ),
    (
        "git init -q e; cd e; git config user.name t; git config user.email t@t; git commit -q --allow-empty -m x
         git worktree add -q ../w; cd ..; mv e/.git e/g; trap > e/g/config; mv e/g e/.git",
        "cd w && git status",
    ),
    (
        "mkdir .husky; echo \"#!/bin/sh\" > .husky/pre-commit; echo \"touch '$PWD/sprung'\" >> .husky/pre-commit
         chmod 755 .husky/pre-commit",
        "git -c core.hooksPath=.husky commit -q --allow-empty -m x",
    ),
    ("mkdir -p x/hooks .git/worktrees; cp -r .git/. x/ 2>/dev/null; trap > x/config; mkdir n; mv x n/.git", "cd n && git status"),
];

/// Settings that make git run a program when it looks what has changed.
const TRAP: &str = "trap() { printf '[core]\\nrepositoryformatversion = 0\\nbare = false\\nfsmonitor = \"touch %s/sprung; false\"\\n' \"$ROOT\"; }
    ROOT=$PWD";

fn the_users_git_runs_nothing_that_a_cell_has_left(place: Place) {
    let world = repository(place);
    let add = "git init -q lib; git -C lib -c user.name=t -c user.email=t@t commit -q --allow-empty -m x
            git -c protocol.file.allow=always submodule add -q \"$PWD/lib\" sub; git add sub; git commit -qm sub";
    on_host(&world, add);
    let kept = KeptWorld::of(world);
    for (trap, walk) in TRAPS {
        let sprung = |world: &World| {
            run(world.host("bash").args(["-c", walk]), LIMIT);
            world.project.join("sprung").exists()
        };
        let control = kept.restore();
        run(
            control
                .host("bash")
                .args(["-c", &format!("{TRAP}\n{trap}")]),
            LIMIT,
        );
        assert!(sprung(control), "the control of {trap}");
        let world = kept.restore();
        run(&mut world.cell(&format!("{TRAP}\n{trap}")), LIMIT);
        assert!(!sprung(world), "{trap}");
    }
}

/// A secret that is neither tracked nor ignored: git would end at it, and everything beside it would stay where it is.
fn what_is_closed_to_reading_is_passed_over(place: Place) {
    let world = World::new(place);
    on_host(
        &world,
        &format!("git init -q -b main; {IDENTITY}; echo one > file; git add .; git commit -qm one"),
    );
    on_host(
        &world,
        &format!(
            "git init -q -b main sub; cd sub; {IDENTITY}; echo one > file; git add .; git commit -qm one"
        ),
    );
    for name in [".env", "deep er/[x]/.env.local", "sub/.env", "sub/a/id_rsa"] {
        // In no form in which commands would see a mask.
        world.put(name, "a key\n");
    }
    let control = in_cell(&world, "git -c core.excludesFile=/dev/null add -A");
    assert!(
        control.errors().contains(".env"),
        "git ends at it: {}",
        control.errors()
    );
    let change = "echo two >> file; echo new > other; mkdir -p made; echo text > made/.env";
    let committed = in_cell(
        &world,
        &format!("{change}; git add -A -- . ':!sub'; git commit -qm two; git status --porcelain"),
    );
    assert_eq!(committed.success(), "?? sub/\n");
    let shown = in_cell(
        &world,
        "git show --format= --name-only; git status --porcelain --ignored -- .env 'deep er'",
    );
    // What a command has made under such a name is its own, and goes along.
    let expected = "file\nmade/.env\nother\n!! .env\n!! \"deep er/\"\n";
    assert_eq!(shown.success(), expected, "{}", shown.errors());
    let named = in_cell(&world, "git add .env");
    assert!(
        named.errors().contains("ignored"),
        "git says so itself: {}",
        named.errors()
    );
    let stashed = "cd sub; echo two >> file; echo new > other; git stash -qu; git status --porcelain; git stash pop -q; cat other";
    assert_eq!(in_cell(&world, stashed).success(), "new\n");
    // To the user's own git they are what they were.
    let host = on_host(
        &world,
        "git status --porcelain -uall -- .env 'deep er'; git check-ignore -v .env || true; cat .git/info/exclude | grep -v '^#' || true; git -C sub status --porcelain",
    );
    assert_eq!(
        host.text(),
        "?? .env\n?? \"deep er/[x]/.env.local\"\n M file\n?? .env\n?? a/\n?? other\n"
    );
    assert!(!world.home.join(".config/git").exists());
}
