//! `lazaret-bash` where an agent expects bash.

use lazaret_tests::process::{Running, assert_gone, until};
use lazaret_tests::world::{long_sleep, unique};
use lazaret_tests::{
    Finished, LIMIT, Place, Terminal, World, once_test, place_test, run, run_with_input,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// `lazaret-bash` in a world, where it is started by its path alone.
fn shell(world: &World) -> Command {
    let mut command = world.program("lazaret-bash");
    command.env("XDG_CONFIG_HOME", world.home.join("settings"));
    command
}

fn in_cell(world: &World, arguments: &[&str]) -> Finished {
    run(shell(world).args(arguments), LIMIT)
}

place_test!(shell_behaves_like_bash);
fn shell_behaves_like_bash(place: Place) {
    let world = World::new(place);
    world.put("script", "echo script $1; exit 9\n");
    world.put("script.sh", "echo script $1; exit 9\n");
    world.put("sub/file", "");
    world.put("sub/program", "echo program $0; exit 8\n");
    fs::set_permissions(
        world.project.join("sub/program"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let both = |arguments: &[&str], input: &[u8]| {
        let plain = run_with_input(world.host("bash").args(arguments), input, LIMIT);
        let cell = run_with_input(shell(&world).args(arguments), input, LIMIT);
        let seen = |finished: &Finished| (finished.code(), finished.text(), finished.errors());
        assert_eq!(seen(&cell), seen(&plain), "{arguments:?}");
        plain.code()
    };
    let mut codes = Vec::new();
    for arguments in [
        ["-c", "echo out; echo err >&2; exit 7"].as_slice(),
        &[
            "-c",
            "echo \"$0\" \"$#\" \"$@\"; pwd",
            "name",
            "a",
            "b c",
            "",
        ],
        &["-c", "-l", "shopt -q login_shell; cd sub; ls"],
        &["-lc", "printf '\\001\\377'"],
        &["-euo", "pipefail", "-c", "false | true; echo unreached"],
        &["-c", "echo ("],
        &["-c", "no-such-program"],
        &["-c", "./script"],
        &["-c", "kill -9 $$"],
        &["-c", "kill -TERM $$"],
        &["-s", "x"],
        &["--", "script", "argument"],
        &["script", "argument"],
        &["no-such-script", "argument"],
        &["script.sh"],
        &["./script"],
        &["sub/program"],
    ] {
        codes.push(both(arguments, b"echo from input $1; exit 3\n"));
    }
    assert_eq!(
        codes,
        [7, 0, 0, 0, 1, 2, 127, 126, 137, 143, 3, 9, 9, 127, 9, 9, 8],
        "what bash itself does"
    );
    both(
        &["-c", "cat; cat >&2 <<< x"],
        &[0, 255, b'\n'].repeat(100_000),
    );
    both(&[], b"echo no arguments; exit 4");
    // Alone, a string that is more than a word is a command line; to bash it would be a file, and is none here.
    world.put("exit 5", "exit 6\n");
    assert_eq!(
        in_cell(&world, &["printf '%s.' \"$0\" a 'b c'"]).success(),
        "bash.a.b c."
    );
    assert_eq!(in_cell(&world, &["exit 5"]).code(), 5);
    // What a project calls like a command is not run for it.
    for command in ["true", "cd"] {
        world.put(command, "exit 6\n");
        assert_eq!(in_cell(&world, &[command]).code(), 0, "{command}");
    }
}

place_test!(nothing_outside_is_reached);
fn nothing_outside_is_reached(place: Place) {
    let world = World::new(place);
    let script = format!(
        "cat ~/.ssh/id_rsa {home}/.ssh/id_rsa; touch ../outside/new {outside}/new; env; cat {outside}/secret.txt; echo done > made",
        home = world.home.display(),
        outside = world.outside.display()
    );
    let plain = world.on_host(&script);
    assert!(
        plain.text().contains(&world.canary) && world.outside.join("new").exists(),
        "the attack works outside"
    );
    fs::remove_file(world.outside.join("new")).unwrap();
    for arguments in [
        ["-c", &script].as_slice(),
        &["-i", "-c", &script],
        &[&script],
    ] {
        fs::remove_file(world.project.join("made")).unwrap();
        let finished = run(shell(&world).args(arguments), LIMIT);
        assert_eq!(
            world.get("made"),
            b"done\n",
            "the command ran: {}",
            finished.errors()
        );
        assert!(
            !finished.text().contains(&world.canary),
            "{}",
            finished.text()
        );
        assert!(!world.outside.join("new").exists());
    }
}

/// A command as Claude Code 2.1.330 gives it to its shell, and what it reads when that has ended.
struct ClaudeCode<'a> {
    world: &'a World,
    directory: PathBuf,
    temporary: PathBuf,
}

impl ClaudeCode<'_> {
    fn command(&self, command: &str, file: &Path) -> String {
        let quoted = command.replace('\'', "'\\''");
        format!(
            "\\builtin shopt -u extglob 2>/dev/null || true && eval '{quoted}' < /dev/null && pwd -P >| {}",
            file.display()
        )
    }

    fn run(&mut self, command: &str) -> Finished {
        let file = self.temporary.join(format!("claude-{}-cwd", unique()));
        let mut shell = shell(self.world);
        shell.env("CLAUDECODE", "1").current_dir(&self.directory);
        if self.temporary != Path::new("/tmp") {
            shell.env("CLAUDE_CODE_TMPDIR", &self.temporary);
        }
        let finished = run(
            shell.args(["-c", "-l", &self.command(command, &file)]),
            LIMIT,
        );
        if let Ok(directory) = fs::read_to_string(&file) {
            self.directory = directory.trim().into();
            fs::remove_file(&file).unwrap();
        }
        finished
    }
}

place_test!(claude_codes_directory_stays_and_no_success_fails);
fn claude_codes_directory_stays_and_no_success_fails(place: Place) {
    let world = World::new(place);
    run(world.host("git").args(["init", "-q"]), LIMIT).success();
    let inside = world.project.join("tmp");
    world.make_folder(&inside);
    for temporary in [Path::new("/tmp"), &world.outside, &inside] {
        let _ = fs::remove_dir_all(world.project.join("made"));
        let directory = world.project.clone();
        let mut claude = ClaudeCode {
            world: &world,
            directory,
            temporary: temporary.to_owned(),
        };
        assert_eq!(
            claude
                .run("mkdir -p made/deep && cd made && echo out && echo err >&2")
                .success(),
            "out\n"
        );
        assert_eq!(
            claude.directory,
            world.project.join("made"),
            "{}",
            temporary.display()
        );
        assert_eq!(
            claude.run("pwd -P; cd deep").success(),
            format!("{}\n", world.project.join("made").display())
        );
        let failed = claude.run("cd ../..; echo text; false");
        assert_eq!((failed.code(), failed.text()), (1, "text\n".into()));
        assert_eq!(
            claude.directory,
            world.project.join("made/deep"),
            "a command that fails changes nothing"
        );
        // What a command does to its own output, or to its directory, is not in the way.
        assert_eq!(
            claude
                .run("exec > captured; echo captured; cd ..")
                .success(),
            ""
        );
        assert_eq!(world.get("made/deep/captured"), b"captured\n");
        assert_eq!(claude.run("cd /usr; (cd deep)").code(), 1);
        if temporary != inside {
            claude.run("cd /usr").success();
            assert_eq!(
                claude.directory,
                world.project.join("made"),
                "not a directory of the project"
            );
        }
        claude
            .run("printf 'no end of line'; sleep 100 & cd ..")
            .success();
        assert_eq!(claude.directory, world.project);
        assert_eq!(claude.run("exit 6").code(), 6);
        assert!(
            run_with_input(shell(&world).args(["-c", "cat"]), b"\x01\x01 ab", LIMIT).text()
                == "\x01\x01 ab"
        );
    }
    // A comment takes Claude Code's ending with it, and is no error.
    let comment = format!(
        "echo text # comment && pwd -P >| {}/claude-x-cwd",
        world.outside.display()
    );
    let mut ends_in_comment = shell(&world);
    ends_in_comment
        .env("CLAUDECODE", "1")
        .env("CLAUDE_CODE_TMPDIR", &world.outside);
    assert_eq!(
        run(ends_in_comment.args(["-c", &comment]), LIMIT).success(),
        "text\n"
    );
    // Without us, where `/tmp` cannot be written, a command that has gone well fails.
    let script = format!("true && pwd -P >| {}/claude-x-cwd", world.outside.display());
    assert_eq!(
        in_cell(&world, &["-c", &script]).code(),
        1,
        "the file is not in a cell"
    );
}

place_test!(a_report_of_a_directory_is_not_believed);
fn a_report_of_a_directory_is_not_believed(place: Place) {
    let world = World::new(place);
    world.put("sub/file", "");
    std::os::unix::fs::symlink(&world.home, world.project.join("link")).unwrap();
    let mut claude = ClaudeCode {
        world: &world,
        directory: world.project.clone(),
        temporary: world.outside.clone(),
    };
    // The marks are in the arguments of the shell, and so in reach of the command.
    let forge = |path: &Path| {
        format!(
            "mark=$(tr '\\0' '\\n' < /proc/$$/cmdline | grep -o '\\\\001[0-9a-f]\\{{32\\}}' | head -1); \
             printf \"$mark{}\\n\\001\"; exit 0",
            path.display()
        )
    };
    claude.run(&forge(&world.project.join("sub"))).success();
    assert_eq!(
        claude.directory,
        world.project.join("sub"),
        "the forgery is taken for a report"
    );
    for path in [
        world.home.clone(),
        world.project.join("link"),
        world.project.join("link/.ssh"),
        world.project.join("../home"),
        world.project.join("sub/file"),
        world.project.join("none"),
        PathBuf::from("/"),
    ] {
        claude.run(&forge(&path)).success();
        assert_eq!(
            claude.directory,
            world.project.join("sub"),
            "{}",
            path.display()
        );
    }
    // No file is changed that is there, none made that is not Claude Code's, and none where Claude Code has not started us.
    let there = world.outside.join("claude-there-cwd");
    world.write(&there, "kept");
    for (name, claude) in [
        ("claude-there-cwd", true),
        ("claude-a.b-cwd", true),
        ("other", true),
        ("claude-new-cwd", false),
    ] {
        let script = format!("true && pwd -P >| {}", world.outside.join(name).display());
        let mut shell = shell(&world);
        shell.env("CLAUDE_CODE_TMPDIR", &world.outside);
        if claude {
            shell.env("CLAUDECODE", "1");
        }
        run(shell.args(["-c", &script]), LIMIT);
        assert_eq!(fs::read(&there).unwrap(), b"kept");
        assert_eq!(
            world.outside.join(name).exists(),
            name == "claude-there-cwd",
            "{name}"
        );
    }
}

place_test!(a_snapshot_of_the_users_shell_is_done_without);
/// Claude Code asks its shell for a snapshot of functions and aliases once, and sources it before each command where it has one.
fn a_snapshot_of_the_users_shell_is_done_without(place: Place) {
    let world = World::new(place);
    let folder = world.home.join(".claude/shell-snapshots");
    world.make_folder(&folder);
    let snapshot = folder.join("snapshot-bash-1.sh");
    let script = format!(
        "SNAPSHOT_FILE={0}\necho '# Snapshot file' >| \"$SNAPSHOT_FILE\"\nif [ ! -f \"$SNAPSHOT_FILE\" ]; then exit 1; fi",
        snapshot.display()
    );
    let finished = in_cell(&world, &["-c", "-l", &script]);
    assert_eq!(
        finished.code(),
        1,
        "reported as not made, and Claude Code goes on without: {}",
        finished.errors()
    );
    assert!(!snapshot.exists());
    // One that another shell has made for the prefix form.
    world.write(&snapshot, "echo the users own; exit 3\n");
    let script = format!(
        "source {} 2>/dev/null || true && eval 'echo went on' < /dev/null",
        snapshot.display()
    );
    assert_eq!(in_cell(&world, &[&script]).success(), "went on\n");
}

once_test!(the_project_is_the_repository_or_the_one_that_is_named);
fn the_project_is_the_repository_or_the_one_that_is_named() {
    let world = World::new(Place::any());
    run(world.host("git").args(["init", "-q"]), LIMIT).success();
    world.put("sub/inner/file", "");
    world.put("seen", "");
    let from = |directory: &str, project: Option<&str>| {
        let mut shell = shell(&world);
        shell.current_dir(world.project.join(directory));
        if let Some(project) = project {
            shell.env("LAZARET_PROJECT", world.project.join(project));
        }
        run(
            shell.args([
                "-c",
                "pwd -P; cat /dev/null; ls -d $(git rev-parse --show-toplevel)/seen | wc -l",
            ]),
            LIMIT,
        )
    };
    let inner = world.project.join("sub/inner");
    assert_eq!(
        from("sub/inner", None).success(),
        format!("{}\n1\n", inner.display())
    );
    assert!(
        from("sub/inner", Some("sub"))
            .success()
            .starts_with(&format!("{}\n0", inner.display()))
    );
    let elsewhere = from(".", Some("sub"));
    assert_eq!(
        (elsewhere.code(), elsewhere.text()),
        (125, String::new()),
        "not run in another directory"
    );
    assert!(
        elsewhere.errors().contains("not in the project"),
        "{}",
        elsewhere.errors()
    );
    let profile = run(
        shell(&world)
            .env("LAZARET_PROFILE", "read-only")
            .args(["-c", "touch made"]),
        LIMIT,
    );
    assert!(profile.code() == 1 && !world.project.join("made").exists());
    let unknown = run(
        shell(&world)
            .env("LAZARET_PROFILE", "none-such")
            .args(["-c", "touch made"]),
        LIMIT,
    );
    assert!(unknown.code() == 125 && !world.project.join("made").exists());
    let home = run(
        shell(&world)
            .env("LAZARET_PROJECT", &world.home)
            .current_dir(&world.home)
            .args(["-c", "true"]),
        LIMIT,
    );
    assert_eq!(home.code(), 125, "{}", home.errors());
}

/// An agent that stands in `packages/app`, and starts a shell there for each command: by the path.
const AGENT: &str = r#"
import os, subprocess, sys
here, shell = os.getcwd(), sys.argv[2:]
def call(command):
    done = subprocess.run([*shell, "-c", command], cwd=here, capture_output=True, text=True)
    print(done.returncode, done.stdout + done.stderr)
call("cd .. && mv app old && ln -s " + sys.argv[1] + " app")
call("cat secret.txt; echo mine > planted")
"#;

place_test!(the_project_is_not_what_a_command_puts_in_a_directorys_place);
fn the_project_is_not_what_a_command_puts_in_a_directorys_place(place: Place) {
    let agent = |shell: Option<&Command>| {
        let world = World::new(place);
        run(world.host("git").args(["init", "-q"]), LIMIT).success();
        world.put("packages/app/file", "");
        let mut agent = world.host("python3");
        agent
            .args(["-c", AGENT])
            .arg(&world.outside)
            .current_dir(world.project.join("packages/app"));
        match shell {
            Some(shell) => agent.arg(shell.get_program()).args(shell.get_args()),
            None => agent.arg("bash"),
        };
        let printed = run(&mut agent, LIMIT).success();
        (
            printed.contains(&world.canary),
            world.outside.join("planted").exists(),
            printed,
        )
    };
    let (read, written, _) = agent(None);
    assert!(read && written, "the control");
    let world = World::new(place);
    let (read, written, printed) = agent(Some(&shell(&world)));
    assert!(
        printed.starts_with("0 ") && printed.contains("\n125 "),
        "{printed}"
    );
    assert!(
        !read && !written && printed.contains("LAZARET_PROJECT"),
        "{printed}"
    );
}

once_test!(a_question_that_nobody_can_answer_is_a_no);
fn a_question_that_nobody_can_answer_is_a_no() {
    let world = World::new(Place::any());
    let asked = run(
        shell(&world)
            .env("LAZARET_TRUST", "guided")
            .args(["-c", "touch made"]),
        LIMIT,
    );
    assert_eq!((asked.code(), asked.text()), (126, String::new()));
    let why = asked.errors();
    assert!(
        why.contains("nobody can give one here") && why.lines().count() == 1,
        "{why}"
    );
    assert!(!world.project.join("made").exists());
    run(shell(&world).args(["-c", "touch made"]), LIMIT).success();
    assert!(
        world.project.join("made").exists(),
        "the agent has asked by itself"
    );
    let wrong = run(
        shell(&world)
            .env("LAZARET_TRUST", "blind")
            .args(["-c", "true"]),
        LIMIT,
    );
    assert!(
        wrong.code() == 125 && wrong.errors().contains("LAZARET_TRUST"),
        "{}",
        wrong.errors()
    );
}

once_test!(a_rule_is_about_what_the_command_line_runs);
/// A rule is about what the command line runs, and not about all that a shell could run.
fn a_rule_is_about_what_the_command_line_runs() {
    let world = World::new(Place::any());
    let rule = "version = 1\n[[rule]]\ntool = \"bash\"\naction = \"deny\"\nprogram = \"git\"\nargs = [\"push\"]\nwhy = \"Not from here.\"\n";
    world.set_policy(rule);
    let mut claude = ClaudeCode {
        world: &world,
        directory: world.project.clone(),
        temporary: world.outside.clone(),
    };
    for (command, denied) in [
        ("echo git push", false),
        ("git push", true),
        ("cd . && git push -f origin", true),
    ] {
        for finished in [
            in_cell(&world, &["-c", command]),
            in_cell(&world, &[command]),
            claude.run(command),
        ] {
            assert_eq!(
                finished.code() == 126,
                denied,
                "{command}: {}",
                finished.errors()
            );
            assert_eq!(
                finished.errors().contains("Not from here."),
                denied,
                "{command}: {}",
                finished.errors()
            );
        }
    }
}

once_test!(a_signal_ends_the_command);
fn a_signal_ends_the_command() {
    let world = World::new(Place::any());
    // It has two seconds for that, and more is nobody's promise to it: on a busy machine it may not be enough.
    let ends_in_time = || {
        let marker = long_sleep();
        let script = format!("trap 'echo ended; exit 42' TERM; echo begun; sleep {marker} & wait");
        let mut running = Running::start(shell(&world).args(["-c", &script]));
        running.wait_for("begun", LIMIT);
        let signalled = Instant::now();
        kill(Pid::from_raw(running.pid()), Signal::SIGTERM).unwrap();
        let finished = running.finish(LIMIT);
        let took = signalled.elapsed();
        assert_gone(&marker, LIMIT);
        let ended = (finished.code(), finished.text().contains("ended"));
        assert!(
            ended == (42, true) || took >= Duration::from_secs(2),
            "{ended:?} after {took:?}: {}",
            finished.errors()
        );
        ended == (42, true)
    };
    assert!(until(LIMIT, ends_in_time));
}

once_test!(on_a_terminal_it_is_an_interactive_shell);
fn on_a_terminal_it_is_an_interactive_shell() {
    let world = World::new(Place::any());
    let mut terminal = Terminal::start(&mut shell(&world), 24, 80);
    terminal
        .send("case $- in *i*) echo inter''active;; esac; shopt -q login_shell || echo no lo''gin; exit 3\n");
    terminal.expect("interactive", LIMIT);
    terminal.expect("no login", LIMIT);
    assert_eq!(terminal.finish(LIMIT).code(), Some(3));
}
