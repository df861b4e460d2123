//! Git in a cell: what works, and what is refused because the user's own git, editor or shell would act on it.

use crate::kept_world::KeptWorld;
use lazaret_tests::{Finished, LIMIT, Place, Session, World, place_test, run};

const IDENTITY: &str = "git config user.name T; git config user.email t@t.invalid";
/// Files of branches that a shell may make: the user allows, calls or pushes them before anything acts on them.
const MADE: [&str; 6] = [
    ".github/workflows/x.yml",
    ".gitlab-ci.yml",
    ".bazelrc",
    ".buckconfig",
    "pkg/.yarnrc.yml",
    ".env.test",
];
/// Files on which the host acts by itself.
const REFUSED: [&str; 5] = [
    ".vscode/settings.json",
    ".husky/pre-commit",
    ".mise.toml",
    ".claude/settings.json",
    "lib/.envrc",
];

fn in_cell(world: &World, script: &str) -> Finished {
    world.in_cell(&format!("set -e; {script}"))
}

/// A repository with a branch for each list, and one with a plain file more.
fn repository(place: Place) -> World {
    let world = World::new(place);
    world.set_up(&format!(
        "git init -q -b main; {IDENTITY}; echo one > file; git add .; git commit -qm one"
    ));
    for (branch, names) in [
        ("made", &MADE[..]),
        ("refused", &REFUSED),
        ("plain", &["plain"]),
    ] {
        world.set_up(&format!("git checkout -q -b {branch} main"));
        for name in names {
            world.put(name, "text\n");
        }
        world.set_up("git add -Af .; git commit -qm names; git checkout -q main; git clean -qfdx");
    }
    world
}

place_test!(ordinary_work_with_branches_works);
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
    let host = world.set_up(
        "git status --porcelain; git show made --format=%s --name-only; git fsck --no-dangling",
    );
    assert_eq!(
        host,
        format!("?? diff\nnames\n\n{}\n", sorted(&MADE).join("\n"))
    );
}

place_test!(commits_carry_the_users_name);
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
    world.write(&settings, "[user]\n\tname = Ann\n\temail = \"a\" # x\n");
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

place_test!(the_identity_is_that_of_each_place);
/// As outside: by where a repository lies, by its branch, and by what another file says.
fn the_identity_is_that_of_each_place(place: Place) {
    let world = World::new(place);
    let project = world.project.display().to_string();
    world.write(
        &world.home.join(".gitconfig"),
        format!(
            "[user]\n\tname = Ann\n\temail = a@h\n[includeIf \"gitdir:{project}/work/\"]\n\tpath = work\n\
             [includeIf \"gitdir:~/none/\"]\n\tpath = none\n[includeIf \"onbranch:b\"]\n\tpath = ~/branch\n[include]\n\tpath = more\n"
        ),
    );
    world.write(
        &world.home.join("work"),
        "[user]\n\temail = w@h\n[alias]\n\tx = y\n",
    );
    world.write(&world.home.join("none"), "[user]\n\temail = n@h\n");
    world.write(&world.home.join("branch"), "[user]\n\temail = b@h\n");
    world.write(&world.home.join("more"), "[user]\n\tname = Ann B\n");
    let script = "for d in plain work work/deep; do git init -q -b main $d; git -C $d commit -q --allow-empty -m x; git -C $d log -1 --format='%an <%ae>'; done
        cd plain; git checkout -q -b b; git commit -q --allow-empty -m y; git log -1 --format='%an <%ae>'; git config alias.x || true";
    let want = world.set_up(script);
    assert_eq!(want, "Ann B <a@h>\nAnn B <w@h>\nAnn B <w@h>\nAnn B <b@h>\n");
    world.set_up("rm -rf plain work");
    let printed = in_cell(&world, script);
    assert_eq!(printed.success(), want, "{}", printed.errors());
}

place_test!(files_that_the_user_ignores_everywhere_are_not_committed);
/// By git's default file and by one that a setting names, also where the settings hold more than a strict reading understands.
fn files_that_the_user_ignores_everywhere_are_not_committed(place: Place) {
    let named = "[core]\n\texcludesFile = ~/lists/ignore\n\tattributesFile = ~/lists/attributes\n";
    let unclear = "[alias]\n\tx = \"!f() { \\\n\t}; f\"\n";
    for (settings, directory) in [
        (String::new(), ".config/git"),
        (named.to_owned(), "lists"),
        (unclear.to_owned() + named, "lists"),
    ] {
        let world = repository(place);
        world.write(&world.home.join(".gitconfig"), &settings);
        let directory = world.home.join(directory);
        world.write(&directory.join("ignore"), "*.log\n");
        world.write(&directory.join("attributes"), "*.odd binary\n");
        world.put(".env", "TOKEN=x\n");
        let script = "echo x > a.log; echo x > b.txt; git add -A; git diff --cached --name-only; git check-attr diff x.odd; git reset -q";
        let printed = in_cell(&world, script);
        assert_eq!(
            printed.success(),
            "b.txt\nx.odd: diff: unset\n",
            "{settings}{}",
            printed.errors()
        );
        assert!(
            world.set_up(script).contains("b.txt\nx.odd: diff: unset\n"),
            "the control"
        );
    }
}

place_test!(preferences_of_the_users_git_hold_in_cells);
/// Those that name programs or hosts do not, and may hold tokens.
fn preferences_of_the_users_git_hold_in_cells(place: Place) {
    let world = World::new(place);
    world.write(
        &world.home.join(".gitconfig"),
        format!(
            "[init]\n\tdefaultBranch = trunk\n[pull]\n\trebase = true\n[core]\n\tpager = touch sprung\n\tabbrev = 12\n\
             [alias]\n\tx = !touch sprung\n[url \"https://{0}@h.invalid/\"]\n\tinsteadOf = h:\n[tag]\n\tsort = {0}()\n",
            world.canary
        ),
    );
    let script = "git init -q n; cd n; git symbolic-ref HEAD; git config pull.rebase; git config core.abbrev
        git config core.pager || echo none; git config alias.x || echo none; git config tag.sort || echo none; git config --list";
    let printed = in_cell(&world, script);
    let text = printed.success();
    let want = "refs/heads/trunk\ntrue\n12\nnone\nnone\nnone\n";
    assert!(
        text.starts_with(want) && !text.contains(&world.canary),
        "{text}"
    );
}

place_test!(no_rewriting_of_the_users_leads_git_around_the_gateway);
fn no_rewriting_of_the_users_leads_git_around_the_gateway(place: Place) {
    let world = World::new(place);
    let settings = "[url \"git@github.com:\"]\n\tinsteadOf = https://github.com/\n";
    world.write(&world.home.join(".gitconfig"), settings);
    let script = "git ls-remote --get-url https://github.com/o/r.git";
    let printed = in_cell(&world, script);
    assert_eq!(printed.success(), "https://github.com/o/r.git\n");
    let control = world.set_up(script);
    assert_eq!(control, "git@github.com:o/r.git\n", "the control");
}

place_test!(no_link_of_a_command_is_followed_to_the_users_ignore_file);
/// Cells get a copy of it: a link in place of one that lies in a project would show them any file of the user's.
fn no_link_of_a_command_is_followed_to_the_users_ignore_file(place: Place) {
    let world = repository(place);
    let (key, list) = (world.home.join("key"), world.project.join("lists/ignore"));
    world.write(&key, &world.canary);
    world.put("lists/ignore", "*.log\n");
    world.set_up(&format!("ln -s {} ~/linked", list.display()));
    let read = "cat ~/.config/git/ignore*; git check-ignore a.log";
    for named in [list.display().to_string(), "~/linked".to_owned()] {
        world.set_up("rm -f lists/ignore; echo '*.log' > lists/ignore");
        let settings = format!("[core]\n\texcludesFile = {named}\n");
        world.write(&world.home.join(".gitconfig"), settings);
        assert!(
            in_cell(&world, read).success().ends_with("a.log\n"),
            "the control"
        );
        in_cell(&world, &format!("ln -sf {} lists/ignore", key.display())).success();
        assert!(
            world.set_up("cat lists/ignore").contains(&world.canary),
            "the control"
        );
        let printed = in_cell(&world, &format!("{read}; :"));
        assert!(!printed.text().contains(&world.canary), "{named}");
        let commit = in_cell(&world, "git commit -q --allow-empty -m x");
        assert!(
            commit.errors().contains("core.excludesFile"),
            "{}",
            commit.errors()
        );
    }
}

place_test!(worktree_that_commands_made_can_be_removed_later);
/// In a later session too, and in it commands change no more of one than in the session that made it.
fn worktree_that_commands_made_can_be_removed_later(place: Place) {
    let world = repository(place);
    in_cell(&world, "for n in a b c; do git worktree add -q $n; done").success();
    world.set_up("git worktree add -q mine");
    let try_all = "for f in a/.git .git/worktrees/a/commondir; do { echo x > $f; } 2>/dev/null && echo \"wrote $f\"; done
        for f in config hooks config.worktree; do { echo x > .git/worktrees/a/$f; } 2>/dev/null && echo \"made $f\"; done; :";
    assert_eq!(in_cell(&world, try_all).success(), "");
    let printed = in_cell(
        &world,
        "git worktree remove a; git worktree list | wc -l; ls -d a .git/worktrees/a 2>&1 | grep -c cannot",
    );
    assert_eq!(printed.success(), "4\n2\n", "{}", printed.errors());
    assert_eq!(
        world.set_up("git worktree prune -n; git worktree list | wc -l; git -C b status --short"),
        "4\n"
    );
    // What the user has changed since is theirs, as what they have made.
    world.set_up("git worktree move b moved");
    for theirs in ["moved", "mine"] {
        assert!(
            in_cell(&world, &format!("rm {theirs}/.git")).code() != 0,
            "{theirs}"
        );
        world.set_up(&format!("git -C {theirs} status --short"));
    }
    in_cell(
        &world,
        "git worktree remove --force c && git worktree add -q d && git worktree remove d",
    )
    .success();
}

place_test!(the_identity_of_the_environment_is_that_of_commits);
fn the_identity_of_the_environment_is_that_of_commits(place: Place) {
    let world = World::new(place);
    let script = "git init -q q; cd q; git commit -q --allow-empty -m x; git log -1 --format='%an <%ae> %cn <%ce>'";
    let mut command = world.lazaret("run");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Eva");
        command.env(format!("GIT_{role}_EMAIL"), "e@h");
    }
    let printed = run(command.args(["--", "bash", "-c", script]), LIMIT);
    assert_eq!(
        printed.success(),
        "Eva <e@h> Eva <e@h>\n",
        "{}",
        printed.errors()
    );
}

place_test!(maintenance_ends_within_the_call);
/// In the background it would be killed at any point, and named among what a command has left running.
fn maintenance_ends_within_the_call(place: Place) {
    let world = repository(place);
    let mut session = Session::open(&world);
    // More than two of these objects are in the one directory from which git estimates how many there are.
    let many = "for i in $(seq 2000); do echo $i > o/$i; done; ls -d o/* | git hash-object -w --stdin-paths >/dev/null";
    let commit =
        "git add o; git -c gc.auto=1 -c gc.writeCommitGraph=false commit -qm x; git count-objects";
    let answer = session.bash(&format!("mkdir o; {many}; {commit}"));
    assert_eq!(answer.success(), "0 objects, 0 kilobytes\n");
    assert_eq!(answer.result["metadata"].get("leftRunning"), None);
    let own = "git config gc.autoDetach; git config maintenance.autoDetach; git config --show-scope gc.autoDetach";
    assert_eq!(session.bash(own).success(), "false\nfalse\nglobal\tfalse\n");
    session.close(LIMIT);
    world.on_host("git config gc.autoDetach true");
    let said = Session::open(&world).bash("git config gc.autoDetach");
    assert_eq!(said.success(), "true\n", "a repository's own is stronger");
}

place_test!(missing_commit_settings_are_reported_once);
/// Settings that a command's commits lack are reported with the first, and with no other call.
fn missing_commit_settings_are_reported_once(place: Place) {
    let world = repository(place);
    let said = |session: &mut Session, script: &str| {
        let answer = session.bash(script);
        answer.success();
        answer.result["metadata"]["found"].to_string()
    };
    let commit = "git commit -q --allow-empty -m x";
    let mut session = Session::open(&world);
    assert_eq!(said(&mut session, commit), "null", "the control");
    session.close(LIMIT);
    world.write(
        &world.home.join(".gitconfig"),
        "[include]\n\tpath = more\n[commit]\n\tgpgSign = true\n",
    );
    world.write(&world.home.join("more"), "[core]\n\thooksPath = ~/hooks\n");
    let mut session = Session::open(&world);
    assert_eq!(said(&mut session, "git status; echo x > x"), "null");
    let first = said(&mut session, commit);
    for part in [
        "commit_setting",
        "core.hooksPath",
        "commit.gpgsign",
        "not signed",
    ] {
        assert!(first.contains(part), "{first}");
    }
    assert_eq!(said(&mut session, commit), "null");
}

place_test!(settings_are_written_as_they_are);
/// Git writes settings anew where it changes nothing, as for a submodule or a branch without settings.
fn settings_are_written_as_they_are(place: Place) {
    let world = repository(place);
    let add = "git init -q lib; git -C lib -c user.name=t -c user.email=t@t commit -q --allow-empty -m x
            git -c protocol.file.allow=always submodule add -q \"$PWD/lib\" sub; git add sub; git commit -qm sub
            git -C sub -c user.name=t -c user.email=t@t commit -q --allow-empty -m later";
    world.set_up(add);
    let settings = |world: &World| {
        world.set_up("sha256sum .git/config .git/modules/sub/config; stat -c %a .git/config")
    };
    let before = settings(&world);
    let work = "git submodule update; git -C sub log --format=%s | wc -l; git submodule update --init --recursive
            git submodule sync; git config core.bare false; git branch -D plain 2>&1; git branch -m refused other; ls .git/*.lock .git/modules/sub/*.lock 2>&1 | grep -v cannot || true";
    let printed = in_cell(&world, work);
    let text = printed.success();
    assert!(
        text.contains("\n1\n") && text.contains("Deleted branch plain"),
        "{text}"
    );
    assert!(
        !text.contains("lock") && !printed.errors().contains("config"),
        "{text}{}",
        printed.errors()
    );
    assert_eq!(settings(&world), before);
    // What changes something is refused, whole.
    for change in [
        "git config user.name Other",
        "git config core.hooksPath x",
        "git config --unset core.bare",
        "git remote add o /x",
        "git config -f .git/modules/sub/config core.fsmonitor x",
    ] {
        let refused = in_cell(&world, change);
        assert_ne!(refused.code(), 0, "{change}");
        assert_eq!(settings(&world), before, "{change}: {}", refused.errors());
    }
    let left = world.set_up("ls .git .git/modules/sub | grep lock || true");
    assert_eq!(left, "");
}

/// Uses of the lock of settings by a command, after which a git of the user's renames it in place of its own.
const LOCKS: [&str; 6] = [
    "trap > .git/config.lock",
    "exec 3> .git/config.lock; trap >&3",
    "true 3> .git/config.lock; trap > .git/config.lock",
    "true 3> .git/config.lock; trap > x; mv -f x .git/config.lock",
    "true 3> .git/config.lock; rm .git/config.lock; trap > x; ln x .git/config.lock",
    "exec 3> .git/config.lock; trap > /proc/self/fd/3; mv .git/config.lock .git/config",
];

place_test!(a_lock_of_settings_is_no_way_into_them);
fn a_lock_of_settings_is_no_way_into_them(place: Place) {
    let kept = KeptWorld::of(repository(place));
    let renames = |world: &World| {
        let rename =
            "test ! -e .git/config.lock || mv .git/config.lock .git/config; git status >/dev/null";
        world.on_host(rename);
        world.project.join("sprung").exists()
    };
    for lock in LOCKS {
        let control = kept.restore();
        control.on_host(&format!("{TRAP}\n{lock}"));
        assert!(renames(control), "the control of {lock}");
        let world = kept.restore();
        world.in_cell(&format!("{TRAP}\n{lock}"));
        assert!(!renames(world), "{lock}");
        world.set_up("git status; git log -1");
    }
}

place_test!(a_worktree_of_a_bare_repository_is_committed_in);
/// A bare repository has no logs, and git in a worktree of it makes them.
fn a_worktree_of_a_bare_repository_is_committed_in(place: Place) {
    let world = World::new(place);
    let (project, outside) = (world.project.display(), world.outside.display());
    let make = format!(
        "cd '{outside}'; git init -q -b main seed; cd seed; {IDENTITY}; echo x > f; git add f; git commit -qm one; cd ..
         git clone -q --bare seed bare.git; rmdir '{project}'; git -C bare.git worktree add -q '{project}' main; test ! -e bare.git/logs"
    );
    world.set_up(&format!(
        "{make}; cd '{project}'; git config user.name T; git config user.email t@t.invalid"
    ));
    let work = "echo y >> f; git commit -qam two; git checkout -q -b topic; git commit -q --allow-empty -m three; git branch -D main; git log --format=%s";
    let printed = in_cell(&world, work);
    assert!(
        printed.success().ends_with("three\ntwo\none\n"),
        "{}",
        printed.errors()
    );
    assert!(
        world
            .set_up("git status --porcelain; git reflog")
            .contains("three")
    );
}

place_test!(a_repository_behind_a_link_is_opened_as_one_behind_a_file);
/// A link opens no directory by itself: its settings name the project, or the user's policy names it.
fn a_repository_behind_a_link_is_opened_as_one_behind_a_file(place: Place) {
    let world = World::new(place);
    let (project, outside) = (world.project.display(), world.outside.display());
    world.set_up(&format!(
            "git init -q -b main; {IDENTITY}; echo x > f; git add f; git commit -qm one; mv .git '{outside}/store'; ln -s '{outside}/store' .git; git status"
        ));
    let work = "echo y >> f; git commit -qam two; git log --format=%s";
    let closed = in_cell(&world, work);
    assert_ne!(closed.code(), 0);
    let why = run(
        world
            .lazaret("run")
            .args(["-v", "--", "bash", "-c", "git status"]),
        LIMIT,
    )
    .errors();
    assert!(
        why.contains("nothing in it leads back to the project"),
        "{why}"
    );
    world.set_up(&format!("git config core.worktree '{project}'"));
    let printed = in_cell(&world, work);
    assert_eq!(printed.success(), "two\none\n", "{}", printed.errors());
    for closed in ["config", "hooks/post-commit"] {
        let refused = in_cell(
            &world,
            &format!("mkdir -p .git/hooks; echo x >> .git/{closed}"),
        );
        assert_ne!(refused.code(), 0, "{closed}");
    }
    let moved = in_cell(&world, "rm .git || mv .git x || ln -sfn . .git");
    assert_ne!(moved.code(), 0);
    assert!(
        world
            .set_up("git log --format=%s; readlink .git")
            .ends_with("/store\n")
    );
}

place_test!(a_shared_repository_is_worked_in);
/// Its directories have S_ISGID and are open to a group; a file never gets the bit.
fn a_shared_repository_is_worked_in(place: Place) {
    let world = World::new(place);
    world.set_up(&format!(
        "git init -q -b main --shared=group; {IDENTITY}; echo x > f; git add f; git commit -qm one"
    ));
    let work = "for n in 1 2 3 4 5 6 7 8; do echo $n > f; git commit -qam $n; done; git checkout -q -b deep/er/topic; git gc -q; git log --format=%s | wc -l
        mkdir d; chmod 2775 d; stat -c %a d; python3 -c 'import os; os.fchmod(os.open(\"d\", 0), 0o2770)'; stat -c %a d";
    let printed = in_cell(&world, work);
    assert_eq!(printed.success(), "9\n2775\n2770\n", "{}", printed.errors());
    let modes = world.set_up("stat -c %A .git/refs/heads/deep .git/refs/heads/deep/er");
    assert!(modes.lines().all(|mode| mode == "drwxrwsr-x"), "{modes}");
    for file in [
        "chmod 2755 f",
        "chmod g+s f",
        "python3 -c 'import os; os.fchmod(os.open(\"f\", 0), 0o2755)'",
        "install -m 2755 f g",
        "chmod 4755 d",
    ] {
        assert_ne!(in_cell(&world, file).code(), 0, "{file}");
    }
    let bits =
        "find . -path ./.git -prune -o -type f -perm /6000 -print; find . -perm /4000 -print";
    assert_eq!(world.set_up(bits), "");
}

place_test!(file_with_a_filter_of_the_user_is_not_committed_unfiltered);
/// Without a word git leaves out a filter that it does not know, and commits the content of large files, or of files that are secret.
fn file_with_a_filter_of_the_user_is_not_committed_unfiltered(place: Place) {
    let world = World::new(place);
    world.set_up(&format!(
            "git init -q; {IDENTITY}; echo 'big filter=lfs' > .gitattributes; echo 'key filter=crypt' >> .gitattributes"
        ));
    world.put("big", "content");
    world.put("key", "content");
    let script = "git add .gitattributes; git add big 2>&1; git add key 2>&1; git ls-files";
    // The control: an account that knows no filters.
    let added = world.in_cell(script).text();
    assert!(
        added.contains("big\n") && added.contains("key\n"),
        "{added}"
    );
    world.set_up("git rm -q --cached big key");
    world.write(
        &world.home.join(".gitconfig"),
        "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\trequired = true\n[filter \"crypt\"]\n\tclean = my-crypt\n",
    );
    let printed = world
        .in_cell(&format!("{script}; git config filter.lfs.clean"))
        .text();
    assert!(
        printed.ends_with("git-lfs clean -- %f\n")
            && printed.contains("clean filter 'crypt' failed"),
        "{printed}"
    );
    assert!(!printed.contains("\nkey\n"), "{printed}");
    // Where there is no git-lfs, git stops too.
    let has_lfs = world
        .set_up("command -v git-lfs || true")
        .contains("git-lfs");
    assert!(has_lfs || !printed.contains("\nbig\n"), "{printed}");
}

place_test!(branches_come_and_go_with_names_that_a_shell_may_make);
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
        world.set_up("git status --porcelain; git branch --show-current"),
        "main\n"
    );
}

place_test!(a_checkout_leaves_out_what_the_host_acts_on_by_name);
/// A checkout that would make what the host acts on goes on without that, and its result says which names they are.
fn a_checkout_leaves_out_what_the_host_acts_on_by_name(place: Place) {
    let world = repository(place);
    let printed = in_cell(&world, "git checkout -q refused; git status --porcelain");
    let missing: String = sorted(&REFUSED)
        .iter()
        .map(|name| format!(" D {name}\n"))
        .collect();
    assert_eq!(printed.text(), missing, "{}", printed.errors());
    let first = format!(
        "found: passed over: {} (not written)",
        missing[3..].lines().next().unwrap()
    );
    assert!(printed.errors().contains(&first), "{}", printed.errors());
    for name in REFUSED {
        assert!(!world.project.join(name).exists(), "{name}");
    }
    let printed = in_cell(
        &world,
        "git checkout -qf main; git status --porcelain; git checkout -q plain; cat plain",
    );
    assert_eq!(printed.success(), "text\n", "{}", printed.errors());
    // The host can.
    world.set_up("git checkout -qf refused; cat .vscode/settings.json");
}

fn sorted<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names
}

place_test!(a_checkout_does_not_change_what_was_there);
/// Files of the user's checkout on which the host acts stay as they were when the session opened.
fn a_checkout_does_not_change_what_was_there(place: Place) {
    let world = repository(place);
    world.set_up("git checkout -q made");
    let printed = in_cell(&world, "git checkout -q main");
    assert!(
        printed.errors().contains(".buckconfig (not removed)"),
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

place_test!(worktrees_work);
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
    let printed = world.set_up(host);
    assert_eq!(
        printed,
        format!("{}/.git\nT\n../..\n", world.project.display())
    );
}

place_test!(repositories_are_made_and_cloned);
fn repositories_are_made_and_cloned(place: Place) {
    let world = repository(place);
    world.set_up("git checkout -q made");
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
        printed.code() == 0
            && printed
                .errors()
                .contains("passed over: cloned/.claude/settings.json (not written)"),
        "{}",
        printed.errors()
    );
    assert_eq!(
        world
            .set_up("cd cloned; cat file; git log --format=%s; ls -A .vscode 2> /dev/null || true"),
        "one\nnames\none\n"
    );
}

place_test!(archives_are_unpacked_and_settings_written);
fn archives_are_unpacked_and_settings_written(place: Place) {
    let world = repository(place);
    world.set_up("git archive made > made.tar; git archive refused > refused.tar");
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

place_test!(submodules_are_not_added);
/// A submodule's settings name a directory of the host, and its `.git` too: they are the user's to make.
fn submodules_are_not_added(place: Place) {
    let world = repository(place);
    world.set_up("git init -q lib; cd lib; git config user.name t; git config user.email t@t; git commit -q --allow-empty -m x");
    let add = "git -c protocol.file.allow=always submodule add -q ./lib sub";
    let printed = in_cell(&world, &add.replace("./lib", "\"$PWD/lib\""));
    assert!(
        printed.code() != 0 && printed.errors().contains("Permission denied"),
        "{}",
        printed.errors()
    );
    assert!(!world.project.join(".git/modules/sub/config").exists());
    // One that the user has added is worked in.
    world.set_up(&format!(
        "git clean -qfd sub; {}",
        add.replace("./lib", "\"$PWD/lib\"")
    ));
    let work = "cd sub; git config user.name || true; echo x > x; git add x; git -c user.name=t -c user.email=t@t commit -qm x
            cd ..; git add sub; git commit -qm sub; git submodule status | cut -c1";
    let printed = in_cell(&world, work);
    assert_eq!(printed.success(), " \n", "{}", printed.errors());
}

/// Traps of a hostile command that make the user's own git run its program, and the command that the user then types.
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

place_test!(the_users_git_runs_nothing_that_a_cell_has_left);
fn the_users_git_runs_nothing_that_a_cell_has_left(place: Place) {
    let world = repository(place);
    let add = "git init -q lib; git -C lib -c user.name=t -c user.email=t@t commit -q --allow-empty -m x
            git -c protocol.file.allow=always submodule add -q \"$PWD/lib\" sub; git add sub; git commit -qm sub";
    world.set_up(add);
    let kept = KeptWorld::of(world);
    for (trap, walk) in TRAPS {
        let sprung = |world: &World| {
            world.on_host(walk);
            world.project.join("sprung").exists()
        };
        let control = kept.restore();
        control.on_host(&format!("{TRAP}\n{trap}"));
        assert!(sprung(control), "the control of {trap}");
        let world = kept.restore();
        world.in_cell(&format!("{TRAP}\n{trap}"));
        assert!(!sprung(world), "{trap}");
    }
}

place_test!(secret_closed_to_reading_is_skipped_by_git_add);
/// A secret that is neither tracked nor ignored: git would end at it, and everything beside it would stay where it is.
fn secret_closed_to_reading_is_skipped_by_git_add(place: Place) {
    let world = World::new(place);
    world.set_up(&format!(
        "git init -q -b main; {IDENTITY}; echo one > file; git add .; git commit -qm one"
    ));
    world.set_up(&format!(
            "git init -q -b main sub; cd sub; {IDENTITY}; echo one > file; git add .; git commit -qm one"
        ));
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
    let host = world.set_up("git status --porcelain -uall -- .env 'deep er'; git check-ignore -v .env || true; cat .git/info/exclude | grep -v '^#' || true; git -C sub status --porcelain");
    assert_eq!(
        host,
        "?? .env\n?? \"deep er/[x]/.env.local\"\n M file\n?? .env\n?? a/\n?? other\n"
    );
    assert!(!world.home.join(".config/git").exists());
}
