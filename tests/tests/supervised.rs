//! Protected names, and the supervisor that makes calls in the program's place: what is refused, each tried without a cell
//! first, and what must go on working. The flat tier supervises every path, the namespaced one what makes names.

use crate::kept_world::{KeptWorld, cell, during, waiting};
use broker_protocol::Tier;
use lazaret_tests::not_run;
use lazaret_tests::place::Privilege;
use lazaret_tests::{LIMIT, Place, World, place_test, run};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// A project with secrets and a repository, and things outside.
fn fixture(place: Place) -> World {
    scene(World::new(place))
}

fn scene(world: World) -> World {
    for name in [".env", "sub/.env", "linked/.env", ".kube/config"] {
        world.put(name, &world.canary);
    }
    world.put("linked/.git", "gitdir: ../module\n");
    let old = world.project.join("old-name");
    fs::hard_link(world.project.join("linked/.env"), &old).unwrap();
    let repository =
        "git init -q . && git config user.name t && git config user.email t@t.invalid &&
        echo one > file && git add file && git commit -qm one";
    world.on_host(repository).success();
    world.write(&world.outside.join("file"), "x");
    world
}

place_test!(no_rename_leaves_a_device_behind);
/// `RENAME_WHITEOUT` does: git fails on one in place of its index, and no rule on what is created sees it.
fn no_rename_leaves_a_device_behind(place: Place) {
    let world = fixture(place);
    let kept = KeptWorld::of(world);
    let whiteout = |from: &str| {
        format!(
            "python3 -c 'import ctypes; ctypes.CDLL(None).renameat2(-100, b\"{from}\", -100, b\"{from}.x\", 4)'"
        )
    };
    for name in ["file", ".git/index", ".git/logs/HEAD"] {
        kept.contains(&whiteout(name), |world| {
            fs::symlink_metadata(world.project.join(name))
                .unwrap()
                .file_type()
                .is_char_device()
        });
    }
    let together = "python3 -c 'import ctypes; print(ctypes.CDLL(None).renameat2(-100, b\"file\", -100, b\"y\", 5))'; ls file";
    assert_eq!(kept.restore().in_cell(together).success(), "-1\nfile\n");
}

/// Ways to read a protected file. Each ends in `cat`, and must say the secret without a cell.
const READS: &[&str] = &[
    "cat .env",
    "cat sub/.env",
    "ln -s .env alias && cat alias",
    "ln -s sub way && cat way/.env",
    "mv .env other && cat other",
    "ln .env other && cat other",
    "mv sub other && cat other/.env",
    "mv .kube kube && cat kube/config",
    "cat old-name",
    "cd sub && cat .env",
    "cat /proc/self/cwd/sub/.env",
    "exec 9<sub && cat /proc/self/fd/9/.env",
    "python3 -c 'import os; d = os.open(\"sub\", os.O_PATH); print(os.read(os.open(\".env\", 0, dir_fd=d), 99))'",
    "python3 -c 'import os; d = os.open(\".env\", os.O_PATH); print(os.read(os.open(f\"/proc/self/fd/{d}\", 0), 99))'",
    "mv sub $HOME/ && cat $HOME/sub/.env",
    "ln .env $HOME/x && cat $HOME/x",
    "chmod 0 .kube; mv .kube k; chmod 755 k; cat k/config",
    "tar c .env",
    "python3 -c 'import os; os.rename(\".env\", \"z\"); print(open(\"z\").read())'",
    "bash -c '. /dev/stdin <<<\"$(<.env)\"' 2>&1; mv -T .env z && cat z",
];

place_test!(protected_files_are_not_read_by_any_name);
fn protected_files_are_not_read_by_any_name(place: Place) {
    let kept = KeptWorld::of(fixture(place));
    for script in READS {
        kept.contains_said(script, |world, said| {
            [said.text(), said.errors()]
                .iter()
                .any(|printed| printed.contains(&world.canary))
        });
    }
}

/// Ways to plant what git or an editor runs, each with the file that then holds `planted`.
const PLANTS: &[(&str, &str)] = &[
    (
        "echo planted > .git/hooks/pre-commit",
        ".git/hooks/pre-commit",
    ),
    ("echo planted >> .git/config", ".git/config"),
    (
        "echo planted > .git/new && mv .git/new .git/config",
        ".git/config",
    ),
    (
        "mv .git/config .git/old; echo planted > .git/config",
        ".git/config",
    ),
    ("rm .git/config; echo planted > .git/config", ".git/config"),
    (
        "cp -r .git git && echo planted > git/config && mv .git old && mv git .git",
        ".git/config",
    ),
    (
        "mkdir -p x && echo planted > x/config && rm -rf .git && mv x .git",
        ".git/config",
    ),
    (
        "rm -rf .git; mkdir x; echo planted > x/config; ln -s x .git",
        ".git/config",
    ),
    (
        "mkdir -p nested/.git && echo planted > nested/.git/config",
        "nested/.git/config",
    ),
    (
        "mkdir -p n/g/hooks && echo planted > n/g/hooks/x && mv n/g n/.git",
        "n/.git/hooks/x",
    ),
    (
        "ln .git/config alias && echo planted >> alias",
        ".git/config",
    ),
    (
        "ln -s .git/hooks hooks && echo planted > hooks/x",
        ".git/hooks/x",
    ),
    ("exec 9<>.git/config && echo planted >&9", ".git/config"),
    (
        "exec 9<.git/config && echo planted >> /proc/self/fd/9",
        ".git/config",
    ),
    (
        "mkdir new && exec 9<new && echo planted > new/config && mv new N && mv N M/.git || mkdir M && mv N M/.git",
        "M/.git/config",
    ),
    ("echo planted > x && ln x mise.toml", "mise.toml"),
    (
        "echo planted > .MISE.toml && mv .MISE.toml .mise.toml",
        ".mise.toml",
    ),
    (
        "echo planted > x && python3 -c 'import os; os.rename(\"x\", \".exrc\")'",
        ".exrc",
    ),
    (
        "python3 -c 'import os; f = os.open(\".\", os.O_TMPFILE | os.O_RDWR); os.write(f, b\"planted\"); \
      os.link(f\"/proc/self/fd/{f}\", \".exrc\", src_dir_fd=f, follow_symlinks=True)'",
        ".exrc",
    ),
    ("echo planted > .exrc", ".exrc"),
    ("echo planted | tee .exrc", ".exrc"),
    ("ln -s .exrc x && echo planted > x", ".exrc"),
    ("echo planted > .miserc.toml", ".miserc.toml"),
    ("echo planted > .sdkmanrc", ".sdkmanrc"),
    ("echo planted > x && mv x .java-options", ".java-options"),
    // New names below new directories.
    (
        "mkdir -p .git/modules/s/hooks && echo planted > .git/modules/s/hooks/x",
        ".git/modules/s/hooks/x",
    ),
    (
        "mkdir -p .git/modules/a/b && echo planted > .git/modules/a/b/config",
        ".git/modules/a/b/config",
    ),
    (
        "mkdir -p m/hooks .git/modules && echo planted > m/hooks/x && mv m .git/modules/s",
        ".git/modules/s/hooks/x",
    ),
    (
        "mkdir -p m/s/hooks && echo planted > m/s/hooks/x && mv m .git/modules",
        ".git/modules/s/hooks/x",
    ),
    (
        "mkdir -p m .git/modules && exec 9<m && mv m .git/modules/s && mkdir /proc/self/fd/9/hooks && \
         echo planted > /proc/self/fd/9/hooks/x",
        ".git/modules/s/hooks/x",
    ),
    (
        "mkdir -p m/hooks .git/modules && ln -s ../../m .git/modules/s && echo planted > m/hooks/x",
        ".git/modules/s/hooks/x",
    ),
    (
        "mkdir -p m/hooks .git/modules && ln -s ../../m l && mv l .git/modules/s && echo planted > m/hooks/x",
        ".git/modules/s/hooks/x",
    ),
    (
        "mkdir -p m/hooks .git/modules && ln -s ../../m l && ln -P l .git/modules/s && echo planted > m/hooks/x",
        ".git/modules/s/hooks/x",
    ),
    (
        "mkdir -p .git/modules/t m/hooks && ln -s ../../m l && python3 -c '\
import ctypes, os; d = os.open(\".\", 0); e = os.open(\".git/modules\", 0)
ctypes.CDLL(None).renameat2(d, b\"l\", e, b\"t\", 2)' && echo planted > m/hooks/x",
        ".git/modules/t/hooks/x",
    ),
    ("echo planted > .git/commondir", ".git/commondir"),
    (
        "mkdir -p .git/worktrees/w && echo planted > .git/worktrees/w/commondir",
        ".git/worktrees/w/commondir",
    ),
    (
        "mkdir -p .git/worktrees/w/modules/s && echo planted > .git/worktrees/w/modules/s/config",
        ".git/worktrees/w/modules/s/config",
    ),
    (
        "mkdir -p deep/er && cp -r .git deep/er/ && echo planted >> deep/er/.git/config",
        "deep/er/.git/config",
    ),
    ("mkdir n && echo 'gitdir: ../planted' > n/.git", "n/.git"),
    ("echo 'gitdir: ../planted' > linked/.git", "linked/.git"),
    (
        "exec 9<>linked/.git && echo 'gitdir: ../planted' >&9",
        "linked/.git",
    ),
    (
        "ln linked/.git x && echo 'gitdir: ../planted' > x",
        "linked/.git",
    ),
    (
        "mv linked/.git x && echo 'gitdir: ../planted' > x && mv x linked/.git",
        "linked/.git",
    ),
    (
        "truncate -s 0 linked/.git; echo 'gitdir: ../planted' >> linked/.git",
        "linked/.git",
    ),
    // A worktree of a cell's own.
    (
        "mkdir -p .git/worktrees/w && echo planted > .git/worktrees/w/config",
        ".git/worktrees/w/config",
    ),
    (
        "mkdir -p .git/worktrees/w/hooks && echo planted > .git/worktrees/w/hooks/x",
        ".git/worktrees/w/hooks/x",
    ),
    (
        "git worktree add -q w && rm .git/worktrees/w/commondir && echo planted > .git/worktrees/w/config",
        ".git/worktrees/w/config",
    ),
    (
        "git worktree add -q w && echo ../planted > .git/worktrees/w/commondir",
        ".git/worktrees/w/commondir",
    ),
    (
        "git worktree add -q w && rm .git/worktrees/w/commondir; echo ../planted > .git/worktrees/w/commondir",
        ".git/worktrees/w/commondir",
    ),
    (
        "git worktree add -q w && echo gitdir: ../planted > w/.git",
        "w/.git",
    ),
    (
        "git worktree add -q w && rm w/.git; echo gitdir: ../planted > w/.git",
        "w/.git",
    ),
    (
        "git worktree add -q w && ln w/.git x && echo gitdir: ../planted > x",
        "w/.git",
    ),
    (
        "mkdir -p .git/worktrees/w w && echo $PWD/w/.git > .git/worktrees/w/gitdir && echo planted > w/.git",
        "w/.git",
    ),
    (
        "mkdir -p .git/worktrees/w && exec 9> .git/worktrees/w/commondir && echo planted >&9",
        ".git/worktrees/w/commondir",
    ),
    (
        "d=${TMPDIR:-$(mktemp -d)}/planted; git init -q $d && git -C $d -c user.name=t -c user.email=t@t commit -q \
         --allow-empty -m x && git -C $d worktree add -q $PWD/w",
        "w/.git",
    ),
    (
        "mkdir -p .vscode && echo planted > .vscode/tasks.json",
        ".vscode/tasks.json",
    ),
    (
        "mkdir -p x && echo planted > x/tasks.json && mv x .vscode",
        ".vscode/tasks.json",
    ),
    (
        "mkdir -p .claude && echo planted > .claude/settings.json",
        ".claude/settings.json",
    ),
    (
        "mkdir -p a/.husky && echo planted > a/.husky/pre-commit",
        "a/.husky/pre-commit",
    ),
    ("echo planted > x && cp x .mcp.json", ".mcp.json"),
    // An allowed `.envrc` below it would load it, by `source_up`.
    ("mkdir -p n && echo planted > n/.envrc", "n/.envrc"),
    (
        "echo planted > x && tar c x --transform s/x/.exrc/ | tar x",
        ".exrc",
    ),
    (
        "python3 -c 'import os; f = os.open(\".exrc\", os.O_RDWR | os.O_CREAT); os.write(f, b\"planted\")'",
        ".exrc",
    ),
    (
        "python3 -c 'import os; os.mknod(\".exrc\"); f = os.open(\".exrc\", os.O_WRONLY); os.write(f, b\"planted\")'",
        ".exrc",
    ),
    (
        "python3 -c 'import ctypes; c = ctypes.CDLL(None); c.syscall(85, b\".exrc\", 0o644)'; echo planted >> .exrc",
        ".exrc",
    ),
    (
        "python3 -c '\
import ctypes; how = (ctypes.c_uint64 * 3)(0o101, 0o644, 0); c = ctypes.CDLL(None)
f = c.syscall(437, -100, b\".exrc\", how, 24); c.write(f, b\"planted\", 7)'",
        ".exrc",
    ),
];

/// Ways to change what the host makes in the project while the call runs, each with what it has changed.
const LATE: &[(&str, &str)] = &[
    ("echo planted > late/.npmrc", "late/.npmrc"),
    ("echo planted >> late/.npmrc", "late/.npmrc"),
    (
        "echo planted > late/.git/hooks/pre-commit",
        "late/.git/hooks/pre-commit",
    ),
    (
        "echo planted > late/.git/hooks/other",
        "late/.git/hooks/other",
    ),
    ("echo planted > x && mv x late/.npmrc", "late/.npmrc"),
    ("ln late/.npmrc x && echo planted > x", "late/.npmrc"),
    ("ln -s late/.npmrc x && echo planted > x", "late/.npmrc"),
    (
        "python3 -c 'import os; os.write(os.open(\"late/.npmrc\", os.O_RDWR | os.O_NONBLOCK), b\"planted\")'",
        "late/.npmrc",
    ),
    (
        "exec 9<late/.npmrc; python3 -c 'import os; os.write(os.open(\"/proc/self/fd/9\", os.O_WRONLY), b\"planted\")'",
        "late/.npmrc",
    ),
    (
        "truncate -s 0 late/.npmrc; echo planted >> late/.npmrc",
        "late/.npmrc",
    ),
];

place_test!(files_that_the_host_makes_during_a_call_are_not_changed);
fn files_that_the_host_makes_during_a_call_are_not_changed(place: Place) {
    let kept = KeptWorld::of(fixture(place));
    for (script, file) in LATE {
        kept.contains_by(script, |world, side| {
            let said = during(world, side.bash(world, &waiting(script)), || {
                world.put("late/.npmrc", "a=1\n");
                world.put("late/.git/hooks/pre-commit", "#!/bin/sh\n");
            });
            (is_planted(world, file), said)
        });
    }
}

fn is_planted(world: &World, file: &str) -> bool {
    fs::read(world.project.join(file))
        .is_ok_and(|text| String::from_utf8_lossy(&text).contains("planted"))
}

place_test!(nothing_is_planted_in_protected_names);
fn nothing_is_planted_in_protected_names(place: Place) {
    let kept = KeptWorld::of(fixture(place));
    for (script, file) in PLANTS {
        kept.contains(script, |world| is_planted(world, file));
    }
}

place_test!(a_name_that_is_open_when_new_can_be_created_and_used);
/// Objects that a command makes under names that are open when new can be used; in later calls of its session too.
fn a_name_that_is_open_when_new_can_be_created_and_used(place: Place) {
    let world = &fixture(place);
    let make = "set -e; umask 022; echo A=1 > .env.local; echo B=2 >> .env.local; cat .env.local; stat -c %a .env.local
            echo C=3 > .env.tmp; mv .env.tmp .env.local; cp .env.local .env.copy; mv .env.copy .env.link
            mkdir -p .github/workflows; echo on: push > .github/workflows/x.yml; sed -i s/push/pull/ .github/workflows/x.yml
            mkdir a; echo use > a/.yarnrc.yml; mv a b; cat b/.yarnrc.yml .github/workflows/x.yml .env.link
            python3 -c 'import os; os.mknod(\"n.env\"); os.rename(\"n.env\", \".bazelrc\")'; : > .bazelrc";
    let again = "cat .env.local b/.yarnrc.yml; echo x >> .env.local; rm -r .env.local .github b .bazelrc; ls -A | grep -c env";
    let mut session = lazaret_tests::Session::open(world);
    assert_eq!(
        session.bash(make).text(),
        "A=1\nB=2\n644\nuse\non: pull\nC=3\n"
    );
    assert_eq!(
        session.bash(again).text(),
        "C=3\nuse\n2\n",
        "those are `.env` and `.env.link`"
    );
    // The next session goes on with what is as a cell has left it, and not with what the host has changed.
    assert_eq!(cell(world, "cat .env.link").success(), "C=3\n");
    world.put(".env.link", &world.canary);
    assert!(!cell(world, "cat .env.link").text().contains(&world.canary));
    // What the host puts in the place of one is the host's.
    session
        .bash("echo mine > .env.swap; mkdir -p .ssh; echo mine > .ssh/config")
        .text();
    for name in [".env.swap", ".ssh/config"] {
        fs::remove_file(world.project.join(name)).unwrap();
    }
    fs::remove_dir(world.project.join(".ssh")).unwrap();
    for name in [".env.swap", ".ssh/config"] {
        world.put(name, &world.canary);
    }
    let printed = session
        .bash("echo planted >> .env.swap; echo planted > .ssh/config; mv .ssh ssh; cat .env.swap")
        .text()
        .to_owned();
    for name in [".env.swap", ".ssh/config"] {
        assert_eq!(
            fs::read_to_string(world.project.join(name)).unwrap(),
            world.canary,
            "{name}"
        );
    }
    assert!(
        world.place.tier == Tier::Namespaced || !printed.contains(&world.canary),
        "{printed}"
    );
}

place_test!(metadata_outside_stays_as_it_is, flat_only);
fn metadata_outside_stays_as_it_is(place: Place) {
    let world = &fixture(place);
    let file = world.outside.join("file");
    let name = file.display();
    let state = || {
        let stat = nix::sys::stat::stat(&file).unwrap();
        (
            stat.st_mode,
            stat.st_mtime,
            stat.st_atime,
            attributes(&file),
        )
    };
    let scripts = [
        format!("chmod 777 {name}"),
        format!("touch -d 2001-01-01 {name}"),
        format!("python3 -c 'import os; os.setxattr(\"{name}\", \"user.x\", b\"1\")'"),
        format!(
            "python3 -c 'import os; f = os.open(\"{name}\", os.O_PATH); os.chmod(f\"/proc/self/fd/{{f}}\", 0o777)'"
        ),
        format!("ln -sf {name} there && chmod 755 there"),
        format!(
            "python3 -c 'import os; os.utime(os.open(\"{name}\", os.O_PATH))'; touch -h {name}"
        ),
    ];
    for script in scripts {
        let before = state();
        cell(world, &script);
        assert_eq!(state(), before, "{script}");
        world.on_host(&script);
        if before.3.is_some() {
            assert_ne!(state(), before, "the control of {script}");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    }
}

/// The names of a file's attributes; `None` where the file system has none to give.
fn attributes(file: &std::path::Path) -> Option<String> {
    let script = "import os, sys; print(os.listxattr(sys.argv[1]))";
    let out = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(file)
        .output()
        .ok()?;
    out.status
        .success()
        .then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

place_test!(metadata_inside_changes, flat_only);
fn metadata_inside_changes(place: Place) {
    let world = &fixture(place);
    let script = "touch f && chmod 640 f && stat -c %a f && touch -d 2001-01-01 f && stat -c %Y f &&
            python3 -c 'import os; f = os.open(\"f\", os.O_RDWR); os.fchmod(f, 0o600); os.utime(f, (1, 2)); \
                os.chown(\"f\", os.getuid(), -1); os.lchown(\"f\", -1, os.getgid()); os.fchown(f, -1, -1)' &&
            stat -c '%a %X %Y' f && ln -s f l && touch -h -d @7 l && stat -c %Y l f && chmod 700 $HOME $TMPDIR";
    let printed = cell(world, script).success();
    assert_eq!(printed, "640\n978307200\n600 1 2\n7\n2\n");
}

place_test!(other_processes_are_not_there_and_its_own_are, flat_only);
fn other_processes_are_not_there_and_its_own_are(place: Place) {
    let kept = KeptWorld::of(fixture(place));
    let world = kept.restore();
    let outside = std::process::id();
    let control = run(
        world.host("cat").arg(format!("/proc/{outside}/stat")),
        LIMIT,
    );
    control.success();
    for way in [
        format!("cat /proc/{outside}/stat"),
        format!("cat /proc/{outside}/cmdline"),
        format!("cd /proc/{outside} && cat comm"),
        format!("cat /proc/self/../{outside}/status"),
        format!("ln -s /proc/{outside} p && cat p/maps"),
        format!("cat /proc/{outside}/task/{outside}/stat"),
        format!("ls /proc/{outside}/fd"),
        "cat /proc/$PPID/cmdline".into(),
        "cat /proc/net/unix".into(),
        "cat /proc/thread-self/net/tcp".into(),
    ] {
        let inside = kept.cell(&way);
        assert_ne!(inside.code(), 0, "{way}\n{}", inside.text());
        assert_eq!(inside.text(), "", "{way}");
    }
    let own = "cat /proc/self/comm /proc/thread-self/comm && cat /proc/$$/status | head -1 && ls /proc/self/fd >&2 &&
            cat /proc/self/environ >/dev/null && cat /proc/meminfo | grep -c MemTotal && cat /proc/self/mounts > /dev/null
            sleep 5 & cat /proc/$!/comm; kill $!";
    let printed = kept.cell(own).text();
    assert!(
        printed.starts_with("cat\ncat\nName:\tbash\n1\n"),
        "{printed}"
    );
    assert!(
        printed.ends_with("sleep\n") || printed.ends_with("bash\n"),
        "{printed}"
    );
}

/// Ways to what `/proc` tells of the keys that the kernel holds for the user.
const KEY_LISTS: &[&str] = &[
    "cat /proc/keys",
    "cat /proc/key-users",
    "cat /proc/self/../keys",
    "cd /proc && cat keys",
    "cat /proc/self/root/proc/keys",
    "exec 9</proc && cat /proc/self/fd/9/keys",
    "ln -s /proc/keys k && cat k",
    "python3 -c 'import os; print(os.read(os.open(\"keys\", 0, dir_fd=os.open(\"/proc\", os.O_PATH)), 9999))'",
];

place_test!(the_users_keys_are_not_listed);
fn the_users_keys_are_not_listed(place: Place) {
    let kept = KeptWorld::of(World::new(place));
    let name = "lazaret-test-token";
    let attacker = lazaret_tests::programs::path("attacker");
    let added = run(
        kept.restore().host(attacker).args(["keep-key", name]),
        LIMIT,
    );
    let listed = run(kept.restore().host("cat").arg("/proc/keys"), LIMIT).text();
    if !listed.contains(name) {
        // Some machines and containers have no keys; there is nothing to hide then.
        let (text, errors) = (added.text(), added.errors());
        not_run(format!("no key can be added: {text}{errors}"));
    }
    for script in KEY_LISTS {
        kept.contains_said(script, |_, said| {
            !["", "b''\n"].contains(&said.text().as_str())
        });
    }
}

const SOCKETS: &str = "
import os, socket, sys, tempfile
def listener(path):
    s = socket.socket(socket.AF_UNIX); s.bind(path); s.listen(1); return s
for path in ['own.sock', os.path.abspath('abs.sock'), os.environ['TMPDIR'] + '/tmp.sock']:
    s = listener(path)
    for blocking in [True, False]:
        c = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM); c.setblocking(blocking); c.connect(path)
        a, _ = s.accept(); c.send(b'x'); assert a.recv(1) == b'x'
    try: listener(path); print('twice')
    except OSError as e: assert e.errno == 98, e
a, b = socket.socketpair(); a.send(b'x'); b.recv(1)
try: socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('REACHED')
except PermissionError: pass
try: socket.socket(socket.AF_UNIX).connect('missing.sock')
except FileNotFoundError: print('ok')
for refused in [lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136), lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
                lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
                lambda: socket.socket(socket.AF_UNIX).bind('\\0abstract'),
                lambda: socket.socket(socket.AF_UNIX).connect('\\0abstract'),
                lambda: socket.socket(socket.AF_UNIX).bind(sys.argv[1] + '2'),
                lambda: socket.socket(socket.AF_UNIX).bind('.env.sock')]:
    try: refused(); print('ALLOWED')
    except (PermissionError, ConnectionRefusedError): pass
";

place_test!(
    own_socket_files_work_and_those_of_the_machine_do_not,
    flat_only
);
fn own_socket_files_work_and_those_of_the_machine_do_not(place: Place) {
    let world = &fixture(place);
    let path = world.outside.join("host.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let reach = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
    run(world.host("python3").arg("-c").arg(reach).arg(&path), LIMIT).success();
    world.put("sockets.py", SOCKETS);
    let inside = cell(world, &format!("python3 sockets.py {}", path.display()));
    assert_eq!(inside.success(), "ok\n", "{}", inside.errors());
    let linked = format!("ln -s {} s && python3 -c '{reach}' s", path.display());
    assert_ne!(cell(world, &linked).code(), 0);
}

const SHARED: &str = "
import multiprocessing as m, os, sys
from multiprocessing import shared_memory
def twice(n): return 2 * n
if __name__ == '__main__':
    assert m.Pool(2).map(twice, [1, 2]) == [2, 4]
    s = shared_memory.SharedMemory('lazaret-test', create=True, size=100)
    t = shared_memory.SharedMemory('lazaret-test'); s.buf[0] = 7; assert t.buf[0] == 7
    print(os.listdir('/dev/shm')); t.close(); s.close(); s.unlink(); assert os.listdir('/dev/shm') == []
    os.symlink(sys.argv[1], 'link'); f = os.open(sys.argv[1], os.O_PATH) if os.path.exists(sys.argv[1]) else -1
    for name in [sys.argv[1], 'link', f'/proc/self/fd/{f}', '/dev/shm/../shm/' + os.path.basename(sys.argv[1])]:
        for flags in [os.O_RDONLY, os.O_RDWR]:
            try: print('GOT', os.read(os.open(name, flags), 99))
            except OSError: pass
    try: os.unlink(sys.argv[1])
    except OSError: pass
";

place_test!(shared_memory_is_the_sessions_own);
/// `/dev/shm` is the session's own: semaphores and shared memory have names in it, and none of the machine's is there.
fn shared_memory_is_the_sessions_own(place: Place) {
    let world = &fixture(place);
    let theirs = std::path::PathBuf::from(format!("/dev/shm/{}", world.canary));
    world.write(&theirs, &world.canary);
    world.put("shared.py", SHARED);
    let script = format!("python3 shared.py {}", theirs.display());
    let printed = cell(world, &script);
    assert_eq!(
        printed.success(),
        "['lazaret-test']\n",
        "{}",
        printed.errors()
    );
    assert_eq!(fs::read_to_string(&theirs).unwrap(), world.canary);
    fs::remove_file(world.project.join("link")).unwrap();
    let control = run(
        world
            .host("python3")
            .args([
                "-c",
                "import os, sys; print(open(sys.argv[1]).read()); os.unlink(sys.argv[1])",
            ])
            .arg(&theirs),
        LIMIT,
    );
    assert!(control.success().contains(&world.canary) && !theirs.exists());
}

const OPENS: &str = "
import errno, os, stat, sys
def fails(want, *a, **k):
    try: os.open(*a, **k)
    except OSError as e: assert e.errno == want, (a, e)
    else: raise AssertionError(a)
W = os.O_WRONLY | os.O_CREAT
for mask in [0o077, 0o002, 0]:
    os.umask(mask); os.close(os.open(f'u{mask}', W, 0o666)); os.mkdir(f'd{mask}', 0o777); os.mkfifo(f'q{mask}', 0o666)
    for name, mode in [('u', 0o666), ('d', 0o777), ('q', 0o666)]:
        got = stat.S_IMODE(os.stat(f'{name}{mask}').st_mode); assert got == mode & ~mask, (name, oct(got))
os.umask(0o022)
f = os.open('x', W | os.O_EXCL); os.write(f, b'one')
fails(errno.EEXIST, 'x', W | os.O_EXCL)
f = os.open('x', os.O_WRONLY | os.O_APPEND); os.write(f, b'two'); assert open('x').read() == 'onetwo'
f = os.open('x', os.O_WRONLY | os.O_TRUNC); assert os.path.getsize('x') == 0
fails(errno.ENOENT, 'missing', os.O_RDONLY); fails(errno.ENOENT, 'missing/', os.O_RDONLY); fails(errno.ENOENT, '', 0)
fails(errno.ENOTDIR, 'x/', os.O_RDONLY); fails(errno.ENOTDIR, 'x', os.O_DIRECTORY); fails(errno.EISDIR, '.', W)
fails(errno.EISDIR, 'd0', os.O_WRONLY); fails(errno.ENOTDIR, 'x/y', os.O_RDONLY)
os.symlink('x', 'l'); fails(errno.ELOOP, 'l', os.O_NOFOLLOW); fails(errno.EEXIST, 'l', W | os.O_EXCL)
os.symlink('late', 'dangling'); os.close(os.open('dangling', W)); assert os.path.exists('late')
os.symlink('b', 'a'); os.symlink('a', 'b'); fails(errno.ELOOP, 'a', os.O_RDONLY)
fails(errno.ENAMETOOLONG, 'n' * 300, W)
t = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o640); os.write(t, b'tmp')
os.link(f'/proc/self/fd/{t}', 'given', src_dir_fd=t, follow_symlinks=True); assert open('given').read() == 'tmp'
d = os.open('d0', os.O_RDONLY | os.O_DIRECTORY); os.close(os.open('in', W, dir_fd=d)); assert os.path.exists('d0/in')
p = os.open('d0', os.O_PATH); os.close(os.open('in', os.O_RDONLY, dir_fd=p))
os.rename('in', 'out', src_dir_fd=d, dst_dir_fd=d); os.unlink('out', dir_fd=d); os.rmdir('d0')
f = os.open('x', os.O_RDONLY); assert os.get_inheritable(f) is False
r = os.open(f'/proc/self/fd/{f}', os.O_RDWR); os.write(r, b'again'); assert os.read(f, 9) == b'again'
os.truncate('x', 2); assert os.path.getsize('x') == 2
os.link('x', 'y'); os.rename('y', 'z'); os.unlink('z')
fails(errno.ENOENT if sys.argv[1] == 'namespaced' else errno.EACCES, '/etc/shadow', os.O_RDONLY)
fails(errno.EACCES, '../.exrc', W); fails(errno.EACCES, '../.exrc', os.O_CREAT)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
assert libc.open(ctypes.c_void_p(8), 0) == -1 and ctypes.get_errno() == errno.EFAULT
fails(errno.EBADF, 'x', os.O_RDONLY, dir_fd=77)
try: os.rename('x', os.environ['TMPDIR'] + '/x')
except OSError as e: assert e.errno == errno.EXDEV, e
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
try:
    while True: os.open('x', os.O_RDONLY)
except OSError as e: assert e.errno == errno.EMFILE, e
print('ok')
";

place_test!(files_open_as_they_do_without_a_supervisor);
fn files_open_as_they_do_without_a_supervisor(place: Place) {
    let world = &fixture(place);
    world.put("opens.py", OPENS);
    let folder = |name: &str| {
        format!(
            "mkdir {name} && cd {name} && TMPDIR=${{TMPDIR:-/dev/shm}} python3 ../opens.py {}",
            world.place.tier.name()
        )
    };
    let inside = cell(world, &folder("inside"));
    assert_eq!(inside.success(), "ok\n", "{}", inside.errors());
}

/// The directory of a relative path: the supervisor's knowledge of a caller from its last call may be wrong at the next.
const DIRECTORIES: &str = "
import ctypes, os, sys, threading
def read(d=None): return os.read(os.open('f', os.O_RDONLY, dir_fd=d), 9).decode()
def own(n, d=None): got = read(d); assert got == n, (n, got)
def make(n): os.mkdir(n); open(f'{n}/f', 'w').write(n)
def opened(n, at=9): d = os.open(n, 0); os.dup2(d, at); os.close(d)
def child(work):
    p = os.fork()
    if p == 0:
        try: work(); os._exit(0)
        finally: os._exit(1)
    assert os.waitpid(p, 0)[1] == 0
def thread(work):
    bad = []
    def run():
        try: work()
        except BaseException as e: bad.append(e)
    t = threading.Thread(target=run); t.start(); t.join(); assert not bad, bad
if len(sys.argv) > 1: own('b', 9); own('c'); print('ok'); sys.exit()
for n in 'abc': make(n)
opened('a'); own('a', 9); opened('b'); own('b', 9)
os.rename('b', 'z'); make('b'); own('b', 9); os.unlink('b/f'); os.rmdir('b'); os.rename('z', 'b'); own('b', 9)
for n in 'abc' * 50: child(lambda: (opened(n), own(n, 9)))
own('b', 9)
child(lambda: (os.chdir('c'), own('c'), own('b', 9), os.fchdir(9), own('b')))
thread(lambda: own('b', 9))
libc = ctypes.CDLL(None)
thread(lambda: (libc.unshare(0x200), os.chdir('c'), own('c')))
thread(lambda: (libc.unshare(0x400), opened('c'), own('c', 9), opened('a'), own('a', 9)))
own('b', 9)
make('gone'); opened('gone', 8); os.unlink('gone/f'); os.rmdir('gone'); make('gone')
try: read(8); raise AssertionError('a directory that is gone has a file')
except FileNotFoundError: pass
make('gone (deleted)')
try: read(8); raise AssertionError('a directory that is gone has a file of another')
except FileNotFoundError: pass
os.set_inheritable(9, True); os.chdir('c'); os.execv(sys.executable, ['python3', '../../directories.py', 'again'])
";

place_test!(a_caller_reads_below_its_own_directories);
fn a_caller_reads_below_its_own_directories(place: Place) {
    let world = &fixture(place);
    let permitted = place.permits(Privilege::Unshare);
    let closed = |line: &&str| !permitted && line.contains("libc.unshare");
    let script: String = DIRECTORIES
        .lines()
        .filter(|line| !closed(line))
        .flat_map(|line| [line, "\n"])
        .collect();
    world.put("directories.py", script);
    let run_in = |name: &str| format!("mkdir {name} && cd {name} && python3 ../directories.py");
    let control = world.on_host(&run_in("outside"));
    assert_eq!(control.success(), "ok\n", "{}", control.errors());
    let inside = cell(world, &run_in("inside"));
    assert_eq!(inside.success(), "ok\n", "{}", inside.errors());
}

/// One process makes `x` a file, a link to a secret, a directory and a link to one with a secret, as fast as it can; the other reads.
const SWAPS: &str = "
import os, sys
os.mkdir('plain'); open('plain/.env', 'w').write('nothing'); os.rename('plain', 'd')
writer = os.fork()
if writer == 0:
    while True:
        open('t', 'w').write('nothing'); os.rename('t', 'x'); os.symlink('.env', 't'); os.rename('t', 'x')
        os.symlink('sub', 't'); os.rename('t', 'y'); os.symlink('d', 't'); os.rename('t', 'y')
seen, turns = set(), 0
while turns < int(sys.argv[1]) or not seen:
    turns += 1
    for path in ['x', 'y/file', 'y/.env']:
        try: seen.add(open(path).read())
        except OSError: pass
os.kill(writer, 9); os.waitpid(writer, 0)
print(seen)
";

place_test!(no_link_that_is_swapped_leads_to_a_secret);
fn no_link_that_is_swapped_leads_to_a_secret(place: Place) {
    let world = &fixture(place);
    world.put("swaps.py", SWAPS);
    let control = run(
        world
            .host("python3")
            .current_dir(&world.project)
            .args(["swaps.py", "3000"]),
        LIMIT,
    );
    assert!(
        control.success().contains(&world.canary),
        "the control reads no secret: {}",
        control.errors()
    );
    run(
        world
            .host("bash")
            .current_dir(&world.project)
            .args(["-c", "rm -rf d x y t"]),
        LIMIT,
    )
    .success();
    let inside = cell(world, "python3 swaps.py 1500");
    let printed = inside.success();
    assert!(
        printed.contains("nothing") && !printed.contains(&world.canary),
        "{printed}\n{}",
        inside.errors()
    );
}

/// Ways to read what the host makes a secret in the project while the call runs. In the namespaced tier it can be read.
const LATE_READS: &[&str] = &[
    "cat late/.env",
    "cat <&9; python3 -c 'import os; print(os.read(os.open(\".env\", 0, dir_fd=9), 99))'",
    "cd late && cat ./.env",
    "ln -s late/.env alias && cat alias",
    "python3 -c 'import os; print(os.read(os.open(\"id\", 0, dir_fd=8), 99))'",
    "cat /proc/self/fd/8/id",
];

place_test!(
    secrets_that_the_host_makes_during_a_call_are_not_read,
    flat_only
);
fn secrets_that_the_host_makes_during_a_call_are_not_read(place: Place) {
    // The directories have been read in before.
    let kept = KeptWorld::of(fixture(place));
    for script in LATE_READS {
        let attack = format!(
            "exec 9<late 8<keys; cat late/file keys/file; {}",
            waiting(script)
        );
        kept.contains_by(script, |world, side| {
            for name in ["late/file", "keys/file"] {
                world.put(name, "x\n");
            }
            let said = during(world, side.bash(world, &attack), || {
                world.put("late/.env", &world.canary);
                fs::rename(world.project.join("keys"), world.project.join(".ssh")).unwrap();
                world.put(".ssh/id", &world.canary);
            });
            (said.text().contains(&world.canary), said)
        });
    }
}

place_test!(a_file_that_was_just_written_can_be_started);
/// A descriptor that the supervisor still has would have the kernel refuse it (`ETXTBSY`): on one processor the writer goes on
/// first, nine times in ten.
fn a_file_that_was_just_written_can_be_started(place: Place) {
    let world = World::new(place);
    let script = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n\
                  for _ in range(100):\n    f = os.open('x', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755)\n    \
                  os.write(f, b'#!/bin/true\\n')\n    os.close(f)\n    \
                  os.waitpid(os.posix_spawn('./x', ['x'], {}), 0)\n    os.unlink('x')\nprint('done')";
    world.put("write_and_start.py", script);
    assert_eq!(
        world.in_cell("python3 write_and_start.py").success(),
        "done\n"
    );
}

place_test!(shells_and_fifos_work);
fn shells_and_fifos_work(place: Place) {
    let world = &fixture(place);
    let script = "diff <(echo a) <(echo b); cat <<< here; cat <<END\nthere\nEND
            mkfifo q r; (echo one > q) & cat q; wait
            (read x < q; echo got $x > r) & echo two > q; cat r; wait
            (sleep 0.2; exec 3>q; sleep 0.2; echo three >&3) & cat q; wait
            (exec 3<q; echo open > r; cat <&3) & (exec 3>q; cat r; echo four >&3); wait
            timeout -s KILL 0.3 cat q; echo $?
            echo out > /dev/stdout; echo err 2>&1 >/dev/stderr; echo x | cat /dev/stdin; : < /dev/tty || echo no terminal";
    let printed = cell(world, script).text();
    let want = "1c1\n< a\n---\n> b\nhere\nthere\none\ngot two\nthree\nopen\nfour\n137\nout\nerr\nx\nno terminal\n";
    assert_eq!(printed, want);
}

place_test!(a_flood_of_calls_and_a_full_queue_starve_nothing);
fn a_flood_of_calls_and_a_full_queue_starve_nothing(place: Place) {
    let world = &fixture(place);
    let threads = "
import os, threading
def work(n):
    for i in range(3):
        with open(f't{n}', 'w') as f: f.write('x')
        os.rename(f't{n}', f'r{n}'); os.unlink(f'r{n}')
threads = [threading.Thread(target=work, args=(n,)) for n in range(400)]
[t.start() for t in threads]; [t.join() for t in threads]; print('ok')
";
    world.put("threads.py", threads);
    assert_eq!(cell(world, "python3 threads.py").success(), "ok\n");
    let fifos = "mkfifo q; for i in $(seq 100); do cat q & done; sleep 1; echo done; kill -9 $(jobs -p); wait; echo x > f; cat f";
    assert!(cell(world, fifos).text().ends_with("done\nx\n"));
    let mut endless = world.lazaret("run");
    endless.args([
        "--timeout",
        "2",
        "--",
        "bash",
        "-c",
        "for i in 1 2 3 4; do (while :; do : < f; done) & done; wait",
    ]);
    world.put("f", "x");
    assert_eq!(run(&mut endless, LIMIT).code(), 124);
}

place_test!(projects_are_worked_on);
fn projects_are_worked_on(place: Place) {
    let world = &fixture(place);
    world.put(
        "test_x.py",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(1, 1)\n",
    );
    world.put(
        "Makefile",
        "all: a.o b.o\n\tcat a.o b.o > all\n%.o:\n\techo $@ > $@\n",
    );
    world.put(
        "hello.c",
        "#include <stdio.h>\nint main(void) { puts(\"hello\"); }\n",
    );
    let script = "set -e; export GIT_CONFIG_GLOBAL=/dev/null
            git status --short >/dev/null; git add test_x.py; git commit -qm two; git checkout -q -b topic; echo two > file
            git commit -qam three; git checkout -q -; git merge -q topic; git stash -q || true; git log --oneline | wc -l
            make -s; cat all; cc hello.c -o hello; ./hello; python3 -m unittest -q 2>&1 | tail -1
            for place in $TMPDIR $PWD; do cd $place
                git init -q made; cd made; git config user.name t; git config user.email t@t; echo x > x; git add x
                git commit -qm made; cd ..; git clone -q made cloned; git -C cloned log --format=%s
            done; cd cloned; git checkout -qb more; git status --porcelain; git config remote.origin.url";
    let printed = cell(world, script);
    let cloned = format!("{}/made\n", world.project.display());
    assert_eq!(
        printed.success(),
        format!("3\na.o\nb.o\nhello\nOK\nmade\nmade\n{cloned}"),
        "{}",
        printed.errors()
    );
    let host = run(
        world
            .host("git")
            .args(["-C", "cloned", "status", "--porcelain"]),
        LIMIT,
    );
    assert_eq!(
        host.success(),
        "",
        "what a cell has cloned is a repository to the host"
    );
    let many = "set -e; mkdir -p node_modules; for i in $(seq 100); do mkdir -p node_modules/.x-$i/lib
            echo \"module.exports=$i\" > node_modules/.x-$i/lib/i.js; done
            for i in $(seq 100); do mv node_modules/.x-$i node_modules/p$i; done
            cat node_modules/p*/lib/i.js | wc -l; cp -r node_modules copy; rm -r node_modules; ls copy | wc -l";
    assert_eq!(cell(world, many).success(), "100\n100\n");
    if run(world.host("node").args(["-e", "1"]), LIMIT).code() == 0 {
        let node = "node -e 'fs.writeFileSync(\"n\", \"x\"); console.log(fs.readFileSync(\"n\", \"utf8\"))'";
        assert_eq!(cell(world, node).success(), "x\n");
    }
}

place_test!(no_descriptor_of_the_supervisor_is_inherited);
fn no_descriptor_of_the_supervisor_is_inherited(place: Place) {
    let world = &fixture(place);
    let printed = cell(world, "ls -l /proc/self/fd | grep -c -E 'seccomp|socket'").text();
    assert_eq!(printed, "0\n");
}

/// Each line is a use of `/tmp` by its literal path: with `NAME` in it, so that the control outside meets nobody's files.
const TMP: &str = "
set -e
mkdir /tmp/NAME; echo text > /tmp/NAME/file; cat /tmp/NAME/file
test -f /tmp/NAME/file -a -r /tmp/NAME/file && ls /tmp/NAME
stat -c '%F %s' /tmp/NAME/file; ls -l /tmp/NAME | wc -l; ls /tmp | grep NAME
mkdir /tmp/NAME/a /tmp/NAME/a/b; echo here > /tmp/NAME/a/b/c; cat /tmp/NAME/a/b/c
mv /tmp/NAME/a/b/c /tmp/NAME/moved; cp /tmp/NAME/moved /tmp/NAME/copied; cat /tmp/NAME/copied
ln -s moved /tmp/NAME/link; readlink /tmp/NAME/link; cat /tmp/NAME/link; test -L /tmp/NAME/link
cd /tmp; cat NAME/file; cat ./NAME/../NAME/file; cd /; cat //tmp/./NAME/file
printf 'echo ran $1\n' > /tmp/NAME/script; sh /tmp/NAME/script by sh; echo 'print(7)' > /tmp/NAME/x.py; python3 /tmp/NAME/x.py
chmod 755 /tmp/NAME/script; test -x /tmp/NAME/script; tar cf /tmp/NAME.tar /etc/passwd 2>&1; tar tf /tmp/NAME.tar; rm /tmp/NAME.tar
touch -d @7 /tmp/NAME/file; stat -c %Y /tmp/NAME/file
python3 -c 'import socket, os
s = socket.socket(socket.AF_UNIX); s.bind(\"/tmp/NAME/socket\"); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect(\"/tmp/NAME/socket\")
print(s.getsockname(), c.getpeername(), s.accept()[0].getsockname())
os.stat(\"/tmp/NAME/file\", follow_symlinks=False); print(os.path.exists(\"/tmp/NAME/file\"), os.access(\"/tmp/NAME/nothing\", 0))'
rm -r /tmp/NAME; test ! -e /tmp/NAME; rm -f /tmp/NAME; echo end
";

place_test!(literal_tmp_is_the_sessions_own);
fn literal_tmp_is_the_sessions_own(place: Place) {
    let world = &fixture(place);
    let name = format!("lazaret-literal-{}", lazaret_tests::world::unique());
    let script = TMP.replace("NAME", &name);
    let outside = world.on_host(&script);
    let mut expected = outside.success();
    if !place.permits(Privilege::OthersDescriptors) {
        // Where no socket can be taken, an accepted one says the last name of its listener's path.
        expected = expected.replace(&format!(" /tmp/{name}/socket\nTrue"), " socket\nTrue");
    }
    assert!(expected.ends_with("end\n"), "{}", outside.errors());
    let inside = world.in_cell(&script);
    assert_eq!(inside.text(), expected, "{}", inside.errors());
    assert_eq!(inside.code(), 0, "{}", inside.errors());
    if lazaret_tests::programs::is_installed("tmux", "tmux") {
        let tmux = "tmux new-session -d 'sleep 60'; tmux list-sessions -F '#{session_windows}'; ls -d /tmp/tmux-*/default | wc -l";
        let inside = world.in_cell(tmux);
        assert_eq!(inside.text(), "1\n1\n", "{}", inside.errors());
    }
    if place.tier == Tier::Flat {
        let own = "mkdir /tmp/NAME && cp /bin/true /tmp/NAME/true && (cd /tmp/NAME || /tmp/NAME/true || exit 7)";
        let script = own.replace("NAME", &name);
        let inside = run(
            world
                .lazaret("run")
                .args(["-v", "--", "bash", "-c", &script]),
            LIMIT,
        );
        assert_eq!(
            inside.code(),
            7,
            "nobody enters it or runs what is there: {}",
            inside.errors()
        );
        assert!(
            inside.errors().contains("use $TMPDIR"),
            "{}",
            inside.errors()
        );
        let by_tmpdir = own.replace("/tmp/", "$TMPDIR/").replace("NAME", &name);
        world.in_cell(&by_tmpdir).success();
    }
    assert!(!Path::new("/tmp").join(&name).exists());
}

/// Ways to a file of the machine's `/tmp`, each with a control outside.
const TMP_READS: &[&str] = &[
    "cat /tmp/NAME",
    "cd /tmp && cat NAME",
    "cat //tmp/./NAME",
    "cat /tmp/../tmp/NAME",
    "cat /var/../tmp/NAME",
    "cat /proc/self/root/tmp/NAME",
    "rm -f way; ln -s /tmp way && cat way/NAME",
    "rm -f way; ln -s /tmp/NAME way && cat way",
    "python3 -c 'import os; d = os.open(\"/tmp\", os.O_PATH); print(os.read(os.open(\"NAME\", 0, dir_fd=d), 99))'",
    "python3 -c 'import os; d = os.open(\"/tmp/NAME\", os.O_PATH); print(os.read(os.open(f\"/proc/self/fd/{d}\", 0), 99))'",
    "python3 -c 'import os; d = os.open(\"/tmp\", os.O_PATH); os.fchdir(d); print(open(\"NAME\").read())'",
    "mkdir -p $TMPDIR/d && ln -s ../../../../../../../tmp/NAME $TMPDIR/d/way && cat $TMPDIR/d/way",
    "ln -s OUTSIDE $TMPDIR/out && cat /tmp/out || cat OUTSIDE",
    "cat /tmp/LINK",
    "ln /tmp/NAME taken && cat taken",
    "mv /tmp/NAME taken && cat taken",
    "cp /tmp/NAME taken && cat taken",
];

/// Writes that would change the machine's `/tmp`.
const TMP_WRITES: &[&str] = &[
    "echo x > /tmp/NAME",
    "echo x >> /proc/self/root/tmp/NAME",
    "rm -f /tmp/NAME",
    "cd /tmp; mv NAME NAME.2",
    "chmod 777 /tmp/NAME",
    "touch -d @7 /tmp/NAME",
    "ln -s /etc/passwd /tmp/NAME.link",
    "mkdir /tmp/NAME.dir; echo x > file; mv file /tmp/NAME.file; python3 -c 'import os; os.rename(\"file\", \"/tmp/NAME.file\")'",
    "python3 -c 'import os; d = os.open(\"/tmp\", os.O_PATH); os.mkdir(\"NAME.dir\", dir_fd=d); os.unlink(\"NAME\", dir_fd=d)'",
    "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/tmp/NAME.socket\")'",
];

place_test!(the_machines_tmp_stays_closed);
fn the_machines_tmp_stays_closed(place: Place) {
    let name = format!("lazaret-host-{}", lazaret_tests::world::unique());
    let path = Path::new("/tmp").join(&name);
    let link = Path::new("/tmp").join(format!("{name}.to"));
    let own = |world: &World| {
        let _ = fs::remove_file(&link);
        world.write(&path, &world.canary);
        std::os::unix::fs::symlink(world.outside.join("secret.txt"), &link).unwrap();
        world.own(&link);
    };
    let listing = || {
        let entries = fs::read_dir("/tmp")
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries
            .filter(|entry| entry.to_string_lossy().starts_with(&name))
            .collect();
        names.sort();
        let state = fs::metadata(&path).unwrap();
        (names, fs::read(&path).unwrap(), state.mode(), state.mtime())
    };
    // The control links and moves files from there.
    let kept = KeptWorld::of(scene(World::on_disk(place)));
    for attack in TMP_READS {
        let world = kept.restore();
        let secret = world.outside.join("secret.txt").display().to_string();
        let attack = attack
            .replace("LINK", &format!("{name}.to"))
            .replace("NAME", &name)
            .replace("OUTSIDE", &secret);
        own(world);
        let inside = kept.cell(&attack);
        assert!(
            !inside.text().contains(&world.canary),
            "{attack}: {inside:?}"
        );
        let tmpdir = world.home.display().to_string();
        let control = run(
            world
                .host("bash")
                .env("TMPDIR", tmpdir)
                .args(["-c", &attack]),
            LIMIT,
        );
        // One link does not lead there from every directory.
        let sure = !attack.contains("../../../../");
        assert!(
            !sure || control.text().contains(&world.canary),
            "{attack}: {control:?}"
        );
    }
    for attack in TMP_WRITES {
        let world = kept.restore();
        own(world);
        let attack = attack.replace("NAME", &name);
        let before = listing();
        kept.cell(&attack);
        assert_eq!(before, listing(), "{attack}");
        world.on_host(&attack);
        let changed = fs::metadata(&path).is_err() || before != listing();
        for left in ["", ".2", ".link", ".file", ".socket", ".to"] {
            let _ = fs::remove_file(format!("/tmp/{name}{left}"));
        }
        let _ = fs::remove_dir(format!("/tmp/{name}.dir"));
        assert!(changed, "{attack}");
    }
}

const MANAGER: &str = "
import multiprocessing, os, socket
if __name__ == '__main__':
    values = multiprocessing.Manager().dict(); values['a'] = 1; print(dict(values))
    long = os.path.abspath('a' * 9); s = socket.socket(socket.AF_UNIX); s.bind(long); s.listen()
    c = socket.socket(socket.AF_UNIX); c.connect(long); print(s.getsockname() == c.getpeername() == long, repr(c.getsockname()))
    t = socket.socket(); t.bind(('127.0.0.1', 0)); print(t.getsockname()[0])
";

place_test!(a_socket_says_the_path_that_was_asked);
fn a_socket_says_the_path_that_was_asked(place: Place) {
    let world = &fixture(place);
    world.put("manager.py", MANAGER);
    let outside = run(world.host("python3").arg("manager.py"), LIMIT);
    let expected = outside.success();
    fs::remove_file(world.project.join("a".repeat(9))).unwrap();
    assert_eq!(cell(world, "python3 manager.py").success(), expected);
}
