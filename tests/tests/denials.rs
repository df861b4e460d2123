//! Texts of denials for the user and the model: one of each kind in both tiers, as the page `golden/denials.md` has them.
//! `LAZARET_GOLDEN=write` writes the page again.

use broker_protocol::Tier;
use lazaret_tests::{LIMIT, Place, Session, World, place_test, run};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

place_test!(
    a_program_that_nobody_can_read_is_over_the_limit,
    flat_only,
    ordinary_only
);
/// In `/proc` it does not say how much it writes: in the namespaced tier it does, as that session has a user namespace of its own.
fn a_program_that_nobody_can_read_is_over_the_limit(place: Place) {
    let world = world(place);
    // With shared libraries it would not start in this tier: no supervisor reads its memory.
    let build = "echo 'int main(int n, char **word) { return sleep(atoi(word[1])); }' | gcc -static -w -x c -o quiet - && chmod 0111 quiet";
    world.on_host(build).success();
    let quiet = "./quiet 1; echo done";
    let control = world.on_host(quiet);
    assert_eq!(control.success(), "done\n");
    let mut unlimited = world.cell(quiet);
    assert_eq!(run(&mut unlimited, LIMIT).success(), "done\n");
    let mut limited = world.lazaret("run");
    limited
        .args(["--profile", "tight"])
        .env("XDG_CONFIG_HOME", world.home.join("settings"));
    let quiet = "./quiet 100; echo done";
    let finished = run(limited.args(["--", "bash", "-c", quiet]), LIMIT);
    assert!(
        !finished.text().contains("done") && finished.errors().contains("`written`"),
        "{finished:?}"
    );
}

const POLICY: &str = r#"
version = 1
[profile.tight.limits]
processes = 64
memory = "256 MiB"
written = "64 MiB"
timeout_s = 30
[[rule]]
tool = "bash"
action = "deny"
program = "git"
args = ["push"]
why = "Releases are pushed by the pipeline."
[profile.kept.limits]
memory = "256 MiB"
file_size = "8 MiB"
scratch = "16 MiB"
cpu_s = 1
"#;

/// One denial: what is tried, the thing that must be named, and the layer, limit or rule that closes it in each tier.
struct Row {
    name: &'static str,
    script: &'static str,
    input: Value,
    target: &'static str,
    by: [&'static str; 2],
}

fn rows() -> Vec<Row> {
    let row = |name, script, target, by| Row {
        name,
        script,
        input: json!({}),
        target,
        by,
    };
    vec![
        row(
            "ssh key",
            "cat $KEYS/id_rsa",
            "/id_rsa",
            ["mount-namespace", "landlock-files"],
        ),
        row(
            "/etc",
            "cat /etc/login.defs",
            "/etc/login.defs",
            ["mount-namespace", "landlock-files"],
        ),
        row(
            "elsewhere",
            "echo x > /var/log/new",
            "/var/log/new",
            ["mount-namespace", "landlock-files"],
        ),
        row(
            "connect",
            "exec 3<>/dev/tcp/203.0.113.7/443",
            "203.0.113.7:443",
            ["network-namespace", "landlock-network"],
        ),
        // Without namespaces there are no sockets to ask with, and what is known is that the servers were looked up.
        Row {
            name: "DNS",
            script: "getent hosts example.com",
            input: json!({}),
            target: "",
            by: ["network-namespace", "landlock-files"],
        },
        row(
            "hooks",
            "echo x > .git/hooks/pre-commit",
            ".git/hooks/pre-commit",
            ["protected-names"; 2],
        ),
        row("`.env`", "cat .env", ".env", ["protected-names"; 2]),
        row(
            "editor settings",
            "mkdir -p .vscode && echo {} > .vscode/settings.json",
            ".vscode/settings.json",
            ["protected-names"; 2],
        ),
        row("setuid", "su --nothing", "/su", ["no-new-privileges"; 2]),
        row(
            "ptrace",
            "read=$(./attacker read-memory $PPID 4096) && false",
            "process_vm_readv",
            ["seccomp"; 2],
        ),
        row("memory", MEMORY, "memory", ["memory"; 2]),
        Row {
            name: "time",
            script: "sleep 30",
            input: json!({"timeout": 1}),
            target: "time",
            by: ["timeout_s"; 2],
        },
        row(
            "disk",
            "for i in $(seq 40); do head -c 4000000 /dev/zero > part; done; sleep 100",
            "written bytes",
            ["written"; 2],
        ),
        row(
            "processes",
            "for i in $(seq 200); do sleep 100 & done; wait",
            "processes",
            ["processes"; 2],
        ),
        // By the list of hosts, which has no name.
        row(
            "host",
            "curl -fsS http://a.example:81/",
            "a.example:81",
            [""; 2],
        ),
        row("rule", "git push origin main", "bash", ["rule:user:8"; 2]),
        row("scope", "true", "bash", ["scope:bash"; 2]),
    ]
}

/// Memory that no bound of a single process holds.
const MEMORY: &str = "python3 -c '
import mmap, time
length = 480 << 20
shared = mmap.mmap(-1, length)
for at in range(0, length, 4096): shared[at] = 1
time.sleep(100)'";

/// A key in a directory of the account's home: the host's own `/tmp` is hidden by the cell's.
struct Key(PathBuf);

impl Key {
    fn new(place: Place) -> Self {
        let folder = place
            .account()
            .home
            .join(format!(".lazaret-test-{}", lazaret_tests::world::unique()));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("id_rsa"), "key").unwrap();
        for path in [folder.join("id_rsa"), folder.clone()] {
            std::os::unix::fs::chown(path, Some(place.account().uid.as_raw()), None).unwrap();
        }
        Self(folder)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A project with a repository and a secret, in the home of a user with a policy.
fn world(place: Place) -> World {
    let world = World::new(place);
    world.set_policy(POLICY);
    run(world.host("git").args(["init", "--quiet", "."]), LIMIT).success();
    // Not in dotenv form: such a file is hidden, and not masked.
    world.put(".env", "a secret\n");
    world.put_helper("attacker");
    world.put(
        "scope.toml",
        "[tool_permissions.file_read]\nallowed = true\n",
    );
    world
}

/// The command in this world, narrowed where the row is about that.
fn command(world: &World, subcommand: &str, row: &Row) -> Command {
    let mut command = world.lazaret(subcommand);
    command
        .args(["--profile", "tight"])
        .env("XDG_CONFIG_HOME", world.home.join("settings"));
    match (row.name, subcommand) {
        ("scope", _) => drop(command.arg("--scope").arg(world.project.join("scope.toml"))),
        ("host", "session") => drop(command.arg("--leases")),
        ("host", _) => drop(command.args(["--allow-host", "b.example:443"])),
        _ => {}
    }
    command
}

fn script(key: &Key, row: &Row) -> String {
    row.script.replace("$KEYS", &key.0.display().to_string())
}

/// Output of `lazaret run -v` about it.
fn user_reads(world: &World, key: &Key, row: &Row) -> String {
    let mut command = command(world, "run", row);
    let timeout = row.input["timeout"].as_u64();
    let options = timeout
        .iter()
        .flat_map(|seconds| ["--timeout".to_owned(), seconds.to_string()]);
    let script = script(key, row);
    let words = match row.name {
        // A rule on a command is about its words.
        "rule" => script.split(' ').map(str::to_owned).collect(),
        _ => vec!["bash".to_owned(), "-c".to_owned(), script],
    };
    let finished = run(command.arg("-v").args(options).arg("--").args(words), LIMIT);
    assert_ne!(finished.code(), 0, "{}: {}", row.name, finished.errors());
    let errors = finished.errors();
    // What was chosen is told first, and is another in each world.
    // Lines of one message after the first are indented.
    let joined = errors.replace("\n  ", "\u{2028}");
    let lines = joined
        .lines()
        .filter_map(|line| line.strip_prefix("lazaret: "));
    let lines: Vec<_> = lines
        .filter(|line| {
            !["the project is ", "variables that ", "the flat tier, "]
                .iter()
                .any(|start| line.starts_with(start))
        })
        .filter(|line| !line.contains(" is hidden and not masked: "))
        .collect();
    lines.join(" ").replace('\u{2028}', "\n")
}

/// The error that a model reads, and what programs are given.
fn model_reads(world: &World, key: &Key, row: &Row) -> (String, Value) {
    let mut session = Session::start(&mut command(world, "session", row));
    let mut input = json!({"command": script(key, row)});
    let more = row.input.as_object().unwrap().clone();
    input.as_object_mut().unwrap().extend(more);
    let answer = session.call("bash", input);
    assert!(!answer.ok(), "{}: {}", row.name, answer.result);
    let error = answer.result["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    (error, answer.result["metadata"]["denied"].clone())
}

/// Whether one of the denials names the thing, and what closed it.
fn names(denied: &Value, row: &Row, tier: Tier) -> bool {
    let by = row.by[usize::from(tier == Tier::Flat)];
    denied.as_array().is_some_and(|all| {
        all.iter().any(|one| {
            one["what"]["target"]
                .as_str()
                .is_some_and(|target| target.contains(row.target))
                && one["by"]["name"].as_str().unwrap_or_default() == by
                && one["why"].as_str().is_some_and(|why| !why.is_empty())
                && one.get("remedy").is_some()
        })
    })
}

/// Values that differ in each world or release are replaced by their meaning.
fn general(world: &World, key: &Key, text: &str) -> String {
    let text = text
        .replace(&world.home.display().to_string(), "~")
        .replace(&key.0.display().to_string(), "~/.ssh");
    let lines = text
        .split("protected.toml:")
        .enumerate()
        .map(|(at, rest)| match at {
            0 => rest.to_owned(),
            _ => format!(
                "protected.toml:N{}",
                rest.trim_start_matches(|c: char| c.is_ascii_digit())
            ),
        });
    let text = lines.collect::<String>();
    text.replace('|', "\\|").replace('\n', "<br>")
}

fn section(place: Place) -> String {
    let mut section = format!(
        "## {}\n\n| denied | the user reads | the model reads |\n|---|---|---|\n",
        place.tier.name()
    );
    for row in rows() {
        let (world, key) = (world(place), Key::new(place));
        let (model, denied) = model_reads(&world, &key, &row);
        assert!(
            names(&denied, &row, place.tier),
            "{place}, {}: {denied}",
            row.name
        );
        let user = user_reads(&world, &key, &row);
        let by = row.by[usize::from(place.tier == Tier::Flat)];
        let named = user.contains(row.target) || user.contains(by);
        assert!(named, "{place}, {}: {user}", row.name);
        let [user, model] = [user, model].map(|text| general(&world, &key, &text));
        section += &format!("| {} | {user} | {model} |\n", row.name);
    }
    section
}

const HEAD: &str = "# What a denial says

Written by `LAZARET_GOLDEN=write cargo test -p lazaret-tests --test suites denials::`, and compared by the same test. The user
reads it on standard error of `lazaret run -v`; the model in the error of a result. Programs find the parts in `metadata.denied`.

";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/denials.md")
}

place_test!(each_denial_names_the_thing_what_closed_it_and_what_would_open_it);
/// Each row of the page. The control: without what is tried, nothing is told ([`ordinary_failures_are_not_denials`]).
fn each_denial_names_the_thing_what_closed_it_and_what_would_open_it(place: Place) {
    static FILE: Mutex<()> = Mutex::new(());
    let now = section(place);
    let _one = FILE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let text = fs::read_to_string(page()).unwrap_or_default();
    let sections = |text: &str| -> Vec<String> {
        text.split("## ")
            .skip(1)
            .map(|part| format!("## {}\n", part.trim_end()))
            .collect()
    };
    let mut known = sections(&text);
    let title = format!("## {}\n", place.tier.name());
    if std::env::var_os("LAZARET_GOLDEN").is_some() {
        known.retain(|section| !section.starts_with(&title));
        known.push(now.clone());
        known.sort_by(|one, other| other.cmp(one));
        fs::write(page(), format!("{HEAD}{}", known.join("\n"))).unwrap();
    }
    let then = known
        .into_iter()
        .find(|section| section.starts_with(&title))
        .unwrap_or_default();
    assert_eq!(then, now, "LAZARET_GOLDEN=write writes the page again");
}

/// Ordinary work, some of which fails for its own reasons.
const ORDINARY: [(&str, bool); 7] = [
    ("git status && git commit -q --allow-empty -m x", true),
    (
        "echo x > file && cat file && mv file other && rm other",
        true,
    ),
    ("false", false),
    ("cat nothing", false),
    ("mkdir closed && chmod 0 closed && touch closed/x", false),
    ("grep -r nothing-like-this /usr/share/misc; exit 3", false),
    // The kernel refuses what the supervisor does for the program in a closed directory: no rule of ours did.
    (
        "cp .git/HEAD .git/HEAD.lock && chmod 555 .git; : closed; ! mv -f .git/HEAD.lock .git/HEAD; \
         refused=$?; chmod 755 .git; rm -f .git/HEAD.lock; exit $refused",
        true,
    ),
];

place_test!(ordinary_failures_are_not_denials);
fn ordinary_failures_are_not_denials(place: Place) {
    let world = world(place);
    let mut session = Session::open(&world);
    for (script, works) in ORDINARY {
        let script = format!(
            "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@y GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@y; {script}"
        );
        let answer = session.bash(&script);
        // Root may write a directory of mode 0.
        let is_root = place.user == lazaret_tests::place::User::Root && script.contains("closed");
        assert!(
            answer.ok() == works || is_root,
            "{script}: {}",
            answer.result
        );
        assert_eq!(
            answer.result["metadata"].get("denied"),
            None,
            "{script}: {}",
            answer.result
        );
    }
}

place_test!(nobody_learns_from_a_denial_what_exists);
/// A file that exists and one that does not are told of alike, where the cell shows neither.
fn nobody_learns_from_a_denial_what_exists(place: Place) {
    let (world, key) = (world(place), Key::new(place));
    let mut session = Session::open(&world);
    let mut told = |name: &str| {
        let path = key.0.join(name).display().to_string();
        let denied = session.bash(&format!("cat {path}")).result["metadata"]["denied"].to_string();
        denied.replace(&path, "PATH")
    };
    let (there, absent) = (told("id_rsa"), told("id_dsa"));
    match place.tier {
        Tier::Namespaced => assert!(
            there == absent && there.contains("mount-namespace"),
            "{there} {absent}"
        ),
        // There `stat` says as much; see SECURITY.md.
        Tier::Flat => assert!(
            there.contains("landlock-files") && absent == "null",
            "{there} {absent}"
        ),
    }
}

place_test!(
    a_file_that_is_closed_to_the_user_anyway_is_no_denial,
    ordinary_only
);
/// Only by public modes: of what lies in a directory that is closed to the user, nothing is told in either way.
fn a_file_that_is_closed_to_the_user_anyway_is_no_denial(place: Place) {
    let world = world(place);
    let mut session = Session::open(&world);
    let mut told = |path: &str| {
        let answer = session.bash(&format!("cat {path}"));
        assert!(!answer.ok(), "{path}: {}", answer.result);
        let denied = answer.result["metadata"].get("denied");
        denied.map(|denied| denied.to_string().replace(path, "PATH"))
    };
    assert_eq!(told("/etc/shadow"), None);
    assert!(told("/etc/login.defs").is_some(), "the control");
    let private = ["/root/.profile", "/root/,profile"].map(told);
    assert_eq!(private[0], private[1]);
}

place_test!(limits_that_the_kernel_keeps_are_named_too);
/// Limits that end no command, but make its own calls fail; and those that a shell only reports.
fn limits_that_the_kernel_keeps_are_named_too(place: Place) {
    let world = world(place);
    let grow = "python3 -c 'b = [bytearray(8 << 20) for _ in range(60)]'";
    let burn = "bash -c 'while :; do :; done'; exit $?";
    let mut rows = vec![
        ("memory", grow),
        ("file_size", "head -c 20000000 /dev/zero > big; exit $?"),
        ("cpu_s", burn),
    ];
    // The private storage of the flat tier lies on the machine's own disk.
    if place.tier == Tier::Namespaced {
        rows.push((
            "scratch",
            "for i in 1 2 3; do head -c 7000000 /dev/zero > /tmp/$i || exit; done",
        ));
        // Empty files fill it too.
        rows.push((
            "scratch",
            "python3 -c 'import os; [os.mknod(f\"/tmp/{i}\") for i in range(5000)]'; exit $?",
        ));
    }
    for (key, script) in rows {
        let run = |profile: &str| {
            let mut command = world.configured("run");
            let finished = run(
                command.args(["--profile", profile, "--json", "--", "bash", "-c", script]),
                LIMIT,
            );
            serde_json::from_str::<Value>(&finished.text()).unwrap()
        };
        let result = run("kept");
        let denied = result["metadata"]["denied"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let named = denied
            .iter()
            .find(|denial| denial["by"] == json!({"kind": "limit", "name": key}));
        let remedy = named
            .map(|denial| denial["remedy"]["policy"].to_string())
            .unwrap_or_default();
        assert!(remedy.contains(key), "{key}: {result}");
    }
    let control = "head -c 4000000 /dev/zero > $TMPDIR/small; exit 1";
    let mut command = world.configured("run");
    let finished = run(
        command.args(["--profile", "kept", "--json", "--", "bash", "-c", control]),
        LIMIT,
    );
    assert!(
        !finished.text().contains("\"denied\""),
        "{}",
        finished.text()
    );
}

place_test!(denial_of_a_closed_object_says_why);
fn denial_of_a_closed_object_says_why(place: Place) {
    let world = world(place);
    world.put("other", "a secret\n");
    fs::remove_file(world.project.join(".env")).unwrap();
    fs::hard_link(world.project.join("other"), world.project.join(".env")).unwrap();
    let folder = world.project.join("shut");
    world.make_folder(&folder);
    let ordinary = !place.account().uid.is_root();
    if ordinary {
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o300)).unwrap();
    }
    let run_verbose = |script: &str| {
        let mut command = world.lazaret("run");
        run(command.args(["-v", "--", "bash", "-c", script]), LIMIT).errors()
    };
    let other = run_verbose("cat other");
    assert!(
        other.contains("It is the same file as") && other.contains(".env"),
        "{other}"
    );
    world
        .on_host("git -c user.name=x -c user.email=x@y commit -q --allow-empty -m x && git worktree add -q --detach tree")
        .success();
    let tree = run_verbose("git worktree remove tree");
    assert!(
        tree.contains("write tree/.git: Git finds a repository by it") && !tree.contains("tokens"),
        "{tree}"
    );
    let below = run_verbose("echo x > .vscode");
    assert!(
        below.contains("write .vscode: A rule protects names below it (`.vscode/"),
        "{below}"
    );
    if ordinary {
        let shut = run_verbose("ls shut");
        assert!(
            shut.contains("It cannot be listed") && !shut.contains("although its name is not"),
            "{shut}"
        );
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
}
