//! Names on which agents, package managers and interpreters of the user act by themselves: no command makes them act for it. The controls
//! show that they do, without the cell.

use lazaret_tests::session::Answer;
use lazaret_tests::{LIMIT, Place, Session, World, place_test, run};
use std::fs;
use std::path::Path;

/// Names that commands could make once. The test of the shipped rules reads the same file.
const CLOSED_FILE: &str = include_str!("../../policies/tests/files/agent_names.txt");

fn make(path: &str) -> String {
    format!("mkdir -p \"$(dirname {path})\"; echo x > {path}")
}

place_test!(names_of_agents_cannot_be_made);
fn names_of_agents_cannot_be_made(place: Place) {
    let control = World::new(place);
    let world = World::new(place);
    world.put("sub/f", "");
    control.put("sub/f", "");
    let mut session = Session::open(&world);
    for path in CLOSED_FILE.lines() {
        control.on_host(&make(path)).success();
        assert!(control.project.join(path).exists(), "the control of {path}");
        let answer = session.bash(&make(path));
        assert!(
            !answer.ok() && is_absent(&world, path),
            "{path}: {}",
            answer.result
        );
        assert!(denied(&answer, path), "{path}: {}", answer.result);
        // By a rename as well.
        let answer = session.bash(&format!("echo x > x; mv x {path}"));
        assert!(
            !answer.ok() && is_absent(&world, path),
            "{path}: {}",
            answer.result
        );
    }
}

/// Whether there is neither a file with this name nor a link.
fn is_absent(world: &World, path: &str) -> bool {
    let metadata = world.project.join(path).symlink_metadata();
    metadata.map_or(true, |metadata| metadata.is_dir())
}

fn denied(answer: &Answer, path: &str) -> bool {
    let all = answer.result["metadata"]["denied"].to_string();
    let last = path.rsplit('/').next().unwrap_or(path);
    let first = path.split('/').next().unwrap_or(path);
    all.contains(last) || all.contains(first)
}

const HARMLESS: [(&str, &str); 3] = [
    (
        ".npmrc",
        "# ours\nlegacy-peer-deps=true\nsave-exact = true\n",
    ),
    (".yarnrc", "save-prefix \"~\"\n"),
    (".yarnrc.yml", "nodeLinker: node-modules\n"),
];
const HARMFUL: [(&str, &str); 6] = [
    (".npmrc", "node-options=--require=./p.cjs\n"),
    (".npmrc", "save-exact=true\nscript-shell=./sh.sh\n"),
    (
        ".npmrc",
        "registry=https://registry.npmjs.org.evil.invalid/\n",
    ),
    (".yarnrc", "yarn-path \"./y.cjs\"\n"),
    (".yarnrc.yml", "yarnPath: ./y.cjs\n"),
    (".pnpmfile.cjs", "\n"),
];

place_test!(harmless_package_settings_can_be_moved_into_place);
fn harmless_package_settings_can_be_moved_into_place(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    for (name, text) in HARMLESS {
        let answer = session.bash(&format!("printf '%s' '{text}' > {name}"));
        assert!(
            !answer.ok() && is_absent(&world, name),
            "written in place: {name} {}",
            answer.result
        );
        let advice = answer.result["metadata"]["denied"].to_string();
        assert!(advice.contains("mv new .npmrc"), "{name}: {advice}");
        session
            .bash(&format!("printf '%s' '{text}' > new && mv new {name}"))
            .success();
        assert_eq!(world.get(name), text.as_bytes(), "{name}");
        assert!(is_absent(&world, "new"), "{name}");
        // Nobody has a descriptor of it, and it is not written in place now either.
        let answer = session.bash(&format!("echo x >> {name}"));
        assert!(!answer.ok(), "{name}: {}", answer.result);
        assert_eq!(world.get(name), text.as_bytes(), "{name}");
        session
            .bash(&format!(
                "cat {name} > new && echo '#' >> new && mv new {name} && rm {name}"
            ))
            .success();
    }
    for (name, text) in HARMFUL {
        let answer = session.bash(&format!("printf '%s' '{text}' > new && mv new {name}"));
        assert!(
            !answer.ok() && is_absent(&world, name),
            "{name}: {}",
            answer.result
        );
        assert!(denied(&answer, name), "{name}: {}", answer.result);
    }
    // The next session knows them too.
    session
        .bash("echo save-exact=true > new && mv new .npmrc")
        .success();
    drop(session);
    let mut next = Session::open(&world);
    next.bash("echo fund=false > new && mv new .npmrc && rm .npmrc")
        .success();
}

/// Ways to a `.npmrc` at the project's root with settings that are not harmless, from a file that has them.
const WAYS: [(&str, &str); 12] = [
    ("a link", "ln -s evil .npmrc"),
    ("a hard link", "ln evil .npmrc"),
    ("a copy", "cp evil .npmrc"),
    (
        "an exchange",
        "echo save-exact=true > x; mv x .npmrc; python3 -c 'import ctypes; exit(ctypes.CDLL(None).renameat2(-100, b\"evil\", -100, b\".npmrc\", 2) and 1)'",
    ),
    (
        "a new directory",
        "mkdir d; cp evil d/.npmrc; mv d/.npmrc .npmrc",
    ),
    (
        "a file without a name",
        "python3 -c '
import os
f = os.open(\".\", os.O_TMPFILE | os.O_RDWR)
os.write(f, open(\"evil\", \"rb\").read())
os.link(f\"/proc/self/fd/{f}\", \".npmrc\", src_dir_fd=f, follow_symlinks=True)'",
    ),
    (
        "a descriptor of what was moved",
        "python3 -c '
import os
f = os.open(\"new\", os.O_CREAT | os.O_RDWR)
os.write(f, b\"save-exact=true\\n\")
os.rename(\"new\", \".npmrc\")
os.lseek(f, 0, 0)
os.write(f, open(\"evil\", \"rb\").read())'",
    ),
    (
        "a second name of what was moved",
        "echo save-exact=true > new; ln new other; mv new .npmrc; cat evil > other",
    ),
    (
        "a mapping of what was moved",
        "python3 -c '
import mmap, os
f = os.open(\"new\", os.O_CREAT | os.O_RDWR)
os.write(f, b\"save-exact=true\".ljust(4096, b\"\\n\"))
m = mmap.mmap(f, 4096)
os.rename(\"new\", \".npmrc\")
m[:4096] = open(\"evil\", \"rb\").read().ljust(4096, b\"\\n\")'",
    ),
    ("another case", "cp evil .NPMRC; mv .NPMRC .npmrc"),
    (
        "git",
        "git init -q o && git -C o hash-object -w ../evil >/dev/null; git --git-dir=o/.git --work-tree=. update-index --add --cacheinfo 100644,$(git -C o hash-object ../evil),.npmrc; git --git-dir=o/.git --work-tree=. checkout-index -a",
    ),
    (
        "tar",
        "mkdir t; cp evil t/.npmrc; tar -C t -cf t.tar .npmrc; tar -xf t.tar",
    ),
];

place_test!(no_settings_of_package_managers_get_there_by_another_way);
fn no_settings_of_package_managers_get_there_by_another_way(place: Place) {
    for (way, script) in WAYS {
        let world = World::new(place);
        world.put("evil", "node-options=--require=./p.cjs\n");
        let mut session = Session::open(&world);
        let answer = session.bash(script);
        let text = fs::read_to_string(world.project.join(".npmrc")).unwrap_or_default();
        assert!(!text.contains("node-options"), "{way}: {}", answer.result);
    }
}

place_test!(package_managers_do_not_act_on_what_a_command_left);
/// `npm` started where a command has been: what its settings require writes a file.
fn package_managers_do_not_act_on_what_a_command_left(place: Place) {
    const SCRIPT: &str = "echo 'require(\"fs\").writeFileSync(\"sprung\", \"\")' > p.cjs
        echo node-options=--require=./p.cjs > new; mv new .npmrc; cp new .npmrc";
    let npm = |world: &World| {
        let mut npm = world.host("npm");
        npm.args(["exec", "--offline", "--", "node", "-e", "1"])
            .current_dir(&world.project);
        drop(run(&mut npm, LIMIT));
        world.project.join("sprung").exists()
    };
    let control = World::new(place);
    run(
        control
            .host("bash")
            .args(["-c", SCRIPT])
            .current_dir(&control.project),
        LIMIT,
    );
    assert!(npm(&control), "npm does not act on its settings here");
    let world = World::new(place);
    Session::open(&world).bash(SCRIPT);
    assert!(world.project.join("p.cjs").exists() && !npm(&world));
}

place_test!(packages_and_new_directories_have_their_settings);
fn packages_and_new_directories_have_their_settings(place: Place) {
    let world = World::new(place);
    world.put("node_modules/old/package.json", "{}");
    world.put("sub/f", "");
    let mut session = Session::open(&world);
    session
        .bash(
            "echo node-options=x > node_modules/old/.npmrc && mkdir node_modules/p && echo x=y > node_modules/p/.npmrc
             mkdir app && echo shell=x > app/.npmrc && echo shell=y >> app/.npmrc && mv app/.npmrc app/x && mv app/x app/.npmrc
             git init -q repository && cd repository && echo x=y > .npmrc && git add . && git -c user.name=a -c user.email=b commit -qm x
             cd .. && git clone -q repository clone && test -e clone/.npmrc && rm -rf node_modules/old",
        )
        .success();
    let answer = session.bash("echo x=y > sub/.npmrc");
    assert!(
        !answer.ok() && is_absent(&world, "sub/.npmrc"),
        "{}",
        answer.result
    );
    drop(session);
    // It is not new any more.
    let answer = Session::open(&world).bash("echo x=y >> app/.npmrc");
    assert!(!answer.ok(), "{}", answer.result);
    Session::open(&world)
        .bash("rm -rf node_modules app")
        .success();
    assert!(!Path::new(&world.project.join("app")).exists());
}

place_test!(package_settings_of_the_user_stay);
fn package_settings_of_the_user_stay(place: Place) {
    let world = World::new(place);
    for (name, _) in HARMLESS {
        world.put(name, "theirs");
    }
    let mut session = Session::open(&world);
    for (name, text) in HARMLESS {
        for script in [
            format!("printf '{text}' > {name}"),
            format!("printf '{text}' > new; mv new {name}"),
            format!("rm {name}"),
        ] {
            session.bash(&script);
            assert_eq!(world.get(name), b"theirs", "{script}");
        }
    }
}

place_test!(secrets_by_name_are_not_read);
fn secrets_by_name_are_not_read(place: Place) {
    const SECRETS: [&str; 15] = [
        ".envrc.private",
        ".envrc.work",
        "terraform.tfstate",
        "terraform.tfstate.backup",
        "prod.auto.tfvars",
        "local.settings.json",
        ".vault_pass",
        "vault_password",
        ".composer/auth.json",
        "auth.json",
        "docker.env",
        "config/prod.env",
        ".aws/config",
        "age.key",
        "apikey.txt",
    ];
    let world = World::new(place);
    for name in SECRETS {
        world.put(name, &world.canary);
    }
    world.put("main.tf", &world.canary);
    let mut session = Session::open(&world);
    assert!(
        session
            .bash("cat main.tf")
            .success()
            .contains(&world.canary),
        "the control"
    );
    for name in SECRETS {
        let answer = session.bash(&format!(
            "cat {name}; base64 {name}; cp {name} copy; cat copy"
        ));
        assert!(
            !answer.result.to_string().contains(&world.canary),
            "{name}: {}",
            answer.result
        );
    }
}

place_test!(target_of_a_home_directory_link_is_closed);
/// A project that is a repository of dotfiles.
fn target_of_a_home_directory_link_is_closed(place: Place) {
    let world = World::new(place);
    for name in ["shell/bashrc", "nvim/init.lua", "free", "notes/n"] {
        world.put(name, "mine\n");
    }
    let links = [
        (".bashrc", "shell/bashrc"),
        (".config/nvim", "nvim"),
        ("notes", "notes"),
        (".project", ""),
    ];
    let script = "echo theirs >> shell/bashrc; echo theirs >> nvim/init.lua; echo theirs > nvim/new; mv shell s; mv nvim n; rm -rf nvim; true";
    let changed = |world: &World| {
        ["shell/bashrc", "nvim/init.lua"]
            .iter()
            .any(|name| world.get(name) != b"mine\n")
            || world.project.join("nvim/new").exists()
    };
    // The control: without the links commands change all of it.
    let control = World::new(place);
    control.put("shell/bashrc", "mine\n");
    control.put("nvim/init.lua", "mine\n");
    Session::open(&control)
        .bash("echo theirs >> shell/bashrc; echo theirs > nvim/new")
        .success();
    assert!(changed(&control));
    for (link, target) in links {
        let link = world.home.join(link);
        world.make_folder(link.parent().unwrap());
        std::os::unix::fs::symlink(world.project.join(target), &link).unwrap();
        world.own(&link);
    }
    let mut session = Session::open(&world);
    let answer = session.bash(script);
    assert!(!changed(&world), "{}", answer.result);
    assert!(
        answer.result.to_string().contains(".bashrc"),
        "{}",
        answer.result
    );
    let answer = session.call(
        "file_write",
        serde_json::json!({"path": "nvim/init.lua", "content": "theirs"}),
    );
    assert!(!answer.ok() && !changed(&world), "{}", answer.result);
    // What a link without a dot leads to, and the rest, is as before.
    session
        .bash("cat shell/bashrc && echo x > free && echo x > notes/n && echo x > shell/other")
        .success();
}

place_test!(exception_of_a_grant_is_not_read);
/// Data of servers and settings with tokens, in directories of programs that profiles grant.
fn exception_of_a_grant_is_not_read(place: Place) {
    const CLOSED: [&str; 3] = [
        "tools/installs/postgres/16.4/data/base/1/1259",
        "tools/var/x",
        "nvm/versions/node/v22.1.0/etc/npmrc",
    ];
    const OPEN: [&str; 3] = [
        "tools/installs/postgres/16.4/bin/psql",
        "tools/installs/postgres/readme",
        "nvm/versions/node/v22.1.0/lib/x",
    ];
    let world = World::new(place);
    for name in CLOSED.iter().chain(&OPEN) {
        let path = world.home.join(name);
        world.make_folder(path.parent().unwrap());
        world.write(&path, &world.canary);
    }
    let tools = world.home.join("tools").display().to_string();
    let policy = |except: &str| {
        format!(
            "version = 1\n[profile.mine]\nextends = 'node'\ngrants = [{{ path = '{tools}'{except} }}]\n"
        )
    };
    let session = |except: &str| {
        world.make_folder(&world.home.join("settings"));
        world.make_folder(&world.home.join("settings/lazaret"));
        world.set_policy(policy(except));
        let mut command = world.lazaret("session");
        command
            .args(["--profile", "mine"])
            .env("XDG_CONFIG_HOME", world.home.join("settings"));
        Session::start(command.env("NVM_DIR", world.home.join("nvm")))
    };
    let home = world.home.display();
    let read = |session: &mut Session, name: &str| {
        let path = format!("{home}/{name}");
        let directory = path.rsplit_once('/').unwrap().0.to_owned();
        let scripts = [
            format!("cat {path}"),
            format!("grep -r CANARY {directory}/.."),
        ];
        let by_command = scripts.map(|script| session.bash(&script).result.to_string());
        let by_tool = session
            .call("file_read", serde_json::json!({"path": path}))
            .result
            .to_string();
        by_command
            .into_iter()
            .chain([by_tool])
            .any(|text| text.contains(&world.canary))
    };
    let mut control = session("");
    assert!(
        CLOSED[..2].iter().all(|name| read(&mut control, name)),
        "the control"
    );
    drop(control);
    let mut held = session(", except = ['installs/*/*/data', 'var']");
    for name in OPEN {
        let answer = held.bash(&format!("cat {home}/{name}"));
        assert!(answer.success().contains(&world.canary), "{name}");
    }
    for name in CLOSED {
        let path = format!("{home}/{name}");
        let directory = path.rsplit_once('/').unwrap().0.to_owned();
        for script in [
            format!("cat {path}"),
            format!("cat {directory}/*"),
            format!("ls -R {directory}; head -c 99 < {path}"),
        ] {
            let answer = held.bash(&script);
            assert!(
                !answer.result.to_string().contains(&world.canary),
                "{script}: {}",
                answer.result
            );
        }
        let answer = held.call("file_read", serde_json::json!({"path": path}));
        assert!(
            !answer.result.to_string().contains(&world.canary),
            "file_read {name}: {}",
            answer.result
        );
    }
}
