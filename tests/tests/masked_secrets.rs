//! Files of secrets in dotenv form: a command reads their keys with placeholders, whichever way it goes, and changes nothing of them.
//! Each way works without a cell, where it reaches the values.

use broker_protocol::Tier;
use lazaret_tests::approval::asked;
use lazaret_tests::session::Answer;
use lazaret_tests::{Finished, LIMIT, Place, Session, World, place_test, run};
use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A project with a secret in these files, in the forms of ordinary projects.
struct Project {
    world: World,
    secret: String,
}

const FILES: [&str; 4] = [".env", "apps/web/.env.local", ".dev.vars", "linked.txt"];

impl Project {
    fn new(place: Place) -> Self {
        let world = World::new(place);
        let secret = format!("s3cr3t-{}", world.canary);
        let project = Self { world, secret };
        project.write("linked.txt");
        FILES[..3].iter().for_each(|name| project.write(name));
        project.on_host("ln -s linked.txt .env.linked").success();
        project
    }

    fn write(&self, name: &str) {
        self.world.put(
            name,
            format!(
                "# {0}\nTOKEN={0}\nDATABASE_URL=\"postgres://u:{0}@db.example:5432/shop\"\nPORT=3000\nDEBUG=true\nPIN=471147\nEMPTY=\n",
                self.secret
            ),
        );
    }

    fn on_host(&self, script: &str) -> Finished {
        self.world.on_host(script)
    }

    fn shows(&self, text: &str) -> bool {
        text.contains(&self.secret) || text.contains("471147") || text.contains("db.example")
    }

    /// That `script` reaches a value on the host, where a copy of the project is, and none in a cell.
    fn hides_from(&self, script: &str) {
        let control = self.on_host(&format!(
            "rm -rf ../control; cp -a . ../control; cd ../control; {script}; rm -rf ../control"
        ));
        assert!(
            self.shows(&format!("{}{}", control.text(), control.errors())),
            "the control of {script}: {}",
            control.errors()
        );
        let done = self.world.in_cell(script);
        let text = format!("{}{}", done.text(), done.errors());
        assert!(!self.shows(&text), "{script}: {text}");
    }

    fn policy(&self, text: &str) {
        self.world
            .write(&self.settings(), format!("version = 1\n{text}\n"));
    }

    fn settings(&self) -> PathBuf {
        self.world.policy()
    }

    fn session(&self, options: &[&str]) -> Session {
        let mut command = self.world.configured("session");
        command.current_dir(&self.world.project);
        Session::start(command.args(options))
    }

    fn run_with(&self, options: &[&str], script: &str) -> Finished {
        let mut command = self.world.configured("run");
        command.current_dir(&self.world.project);
        run(
            command.args(options).args(["--", "bash", "-c", script]),
            LIMIT,
        )
    }
}

place_test!(copies_that_editors_keep_are_closed);
/// Those that are there when the session opens; their content is not masked.
fn copies_that_editors_keep_are_closed(place: Place) {
    let project = Project::new(place);
    for name in [
        ".env~",
        "#.env#",
        ".netrc.swp",
        ".id_rsa.swp",
        "id_rsa.bak",
        "credentials.json~",
        "prod.tfvars.orig",
    ] {
        project.write(name);
        project.hides_from(&format!("cat '{name}'"));
    }
}

place_test!(a_command_reads_keys_and_placeholders);
fn a_command_reads_keys_and_placeholders(place: Place) {
    let project = Project::new(place);
    for name in [
        ".env",
        "apps/web/.env.local",
        ".dev.vars",
        ".env.linked",
        "linked.txt",
    ] {
        let text = project.world.in_cell(&format!("cat {name}")).success();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{name}: {text}");
        assert!(lines[0].starts_with("TOKEN=lazaret-masked-"), "{text}");
        assert!(
            lines[1].starts_with("DATABASE_URL=\"postgres://lazaret-masked:"),
            "{text}"
        );
        assert_eq!(lines[2..4], ["PORT=3000", "DEBUG=true"]);
        assert!(
            lines[4]
                .strip_prefix("PIN=")
                .unwrap()
                .parse::<u32>()
                .is_ok()
                && lines[5] == "EMPTY=",
            "{text}"
        );
        assert!(!project.shows(&text), "{text}");
    }
    let mut session = Session::open(&project.world);
    let read = |session: &mut Session| session.bash("cat .env").success().to_owned();
    let (one, other) = (read(&mut session), read(&mut session));
    assert_eq!(one, other, "the placeholders of a session stay");
    assert!(
        session.ready["notices"]
            .to_string()
            .contains("placeholders"),
        "{}",
        session.ready
    );
    let next = read(&mut Session::open(&project.world));
    assert_ne!(one, next, "those of another session are others");
    let python = "import mmap,os; f = open('.env'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); \
                  assert os.fstat(f.fileno()).st_size == len(m); print(m[:20].decode())";
    let mapped = project
        .world
        .in_cell(&format!("python3 -c \"{python}\""))
        .success();
    assert!(mapped.starts_with("TOKEN=lazaret-masked"), "{mapped}");
}

place_test!(no_way_to_a_masked_file_shows_a_value);
fn no_way_to_a_masked_file_shows_a_value(place: Place) {
    let project = Project::new(place);
    for script in [
        "cat .env apps/web/.env.local .dev.vars linked.txt .env.linked",
        "cat ./apps/../.env; cd apps/web && cat ../../.env",
        "cat /proc/self/cwd/.env; cat /proc/self/root/$PWD/.env",
        "exec 3< .env; cat /proc/self/fd/3; cat <&3",
        "cp .env copy; cat copy; cp -a .env copy2; cat copy2; cp --reflink=auto .env c3; cat c3; dd if=.env status=none",
        "ln .env hard; cat hard; ln -s .env soft; cat soft; ln linked.txt h2; cat h2",
        "mv .env moved; cat moved; mv apps other; cat other/web/.env.local",
        "d=$(mktemp -d); cp -r . $d/copy; cat $d/copy/.env; rm -rf $d",
        "tar c . | strings",
        "mkdir d; cd d; python3 -c \"import os; os.rename('../.env', 'x'); print(open('x').read())\"; cat ../.env",
        "python3 -c \"import os; f = os.open('.env', os.O_PATH); print(open(f'/proc/self/fd/{f}').read())\"",
        "python3 -c \"import os; d = os.open('apps', os.O_RDONLY); f = os.open('web/.env.local', os.O_RDONLY, dir_fd=d); print(os.read(f, 9999).decode())\"",
        "python3 -c \"import os; f = os.open('.env', os.O_RDONLY|os.O_CREAT|os.O_NOFOLLOW|os.O_NONBLOCK); print(os.read(f, 9999).decode())\"",
        "python3 -c \"print(open('.env', 'r+').read())\"; cat .env",
        "python3 -c \"import os; f = os.open('.env', os.O_RDWR); os.sendfile(1, f, 0, 9999)\"; cat .env",
        "bash .env 2>&1; . ./.env; echo $TOKEN $PIN",
        "grep -r TOKEN .; grep -r PIN . ",
        "git init -q . 2>&1; git add -f .env; git diff --cached; git show :.env",
        "git hash-object -w .env; git diff --no-index /dev/null .env",
        "xxd .env | head -2; tac .env; head -c 5000 .env; split -b 100 .env p; cat p*",
    ] {
        project.hides_from(script);
    }
}

place_test!(a_masked_file_stays_as_it_is);
fn a_masked_file_stays_as_it_is(place: Place) {
    let project = Project::new(place);
    let name = project.world.project.join(".env");
    let state = || {
        let metadata = std::fs::symlink_metadata(&name).unwrap();
        (
            metadata.ino(),
            metadata.mode(),
            metadata.mtime(),
            metadata.nlink(),
            project.world.get(".env"),
        )
    };
    let before = state();
    for script in [
        "echo x > .env",
        "echo x >> .env",
        ": > .env",
        "truncate -s 0 .env",
        "rm -f .env",
        "rm -rf ./.e*",
        "mv .env x",
        "echo y > n; mv -f n .env",
        "ln .env hard",
        "chmod 777 .env",
        "touch -d 2001-01-01 .env",
        "setfattr -n user.x -v y .env",
        "sed -i s/TOKEN/X/ .env",
        "cp n .env",
        "ln -sf n .env",
        "mv apps a2",
        "rm -rf apps/web",
        "python3 -c \"import os; f = os.open('.env', os.O_RDONLY); os.fchmod(f, 0o777)\"",
        "python3 -c \"import os; f = os.open('.env', os.O_RDONLY); open(f'/proc/self/fd/{f}', 'w').write('x')\"",
        "python3 -c \"import os; f = os.open('.env', os.O_RDONLY); os.link(f'/proc/self/fd/{f}', 'l', follow_symlinks=True)\"",
        "git clean -fdx; git stash -u; git checkout -f",
    ] {
        project.world.in_cell(script);
        assert_eq!(state(), before, "{script}");
        assert!(
            project.world.project.join("apps/web/.env.local").exists(),
            "{script}"
        );
        assert!(
            !project.world.project.join("hard").exists()
                && !project.world.project.join("l").exists(),
            "{script}"
        );
    }
}

place_test!(secret_not_in_dotenv_form_stays_hidden);
fn secret_not_in_dotenv_form_stays_hidden(place: Place) {
    let project = Project::new(place);
    let secret = &project.secret;
    let forms = [
        (".env.json", format!("{{\"token\": \"{secret}\"}}\n")),
        (".env.raw", format!("{secret}\n")),
        (
            ".env.base64",
            "aGVsbG8gd29ybGQgaGVsbG8gd29ybGQ=\n".to_owned(),
        ),
        (".env.open", format!("A='{secret}\n")),
        (".env.nul", format!("A={secret}\0\n")),
        (
            ".env.large",
            format!("A={secret}\n{}", "# x\n".repeat(20_000)),
        ),
        ("id_rsa", format!("A={secret}\n")),
        ("credentials.json", format!("A={secret}\n")),
    ];
    for (name, content) in &forms {
        project.world.put(name, content);
    }
    let mut session = Session::open(&project.world);
    for (name, content) in &forms {
        assert!(
            !project.on_host(&format!("cat {name}")).text().is_empty(),
            "the control"
        );
        let answer = session.bash(&format!("cat {name}"));
        let text = answer.result.to_string();
        assert!(
            answer.exit_code() != Some(0)
                && !text.contains(content.trim())
                && !project.shows(&text),
            "{name}: {text}"
        );
    }
    let notices = session.ready["notices"].to_string();
    assert!(
        notices.contains(".env.raw") && notices.contains("line 1 is no plain"),
        "{notices}"
    );
    assert!(
        !notices.contains("id_rsa") && !project.shows(&notices),
        "{notices}"
    );
    assert!(
        session
            .bash("cat .env")
            .success()
            .contains("lazaret-masked-"),
        "the others are masked"
    );
}

place_test!(the_policy_says_how_each_name_is_seen);
fn the_policy_says_how_each_name_is_seen(place: Place) {
    let project = Project::new(place);
    let secrets = "\".env\" = 'show'\n'.dev.*' = 'hide'\n";
    project.policy(&format!("[profile.own.secrets]\n{secrets}"));
    let seen = |options: &[&str], name: &str| {
        let done = project.run_with(options, &format!("cat {name}"));
        match (done.code(), project.shows(&done.text())) {
            (0, true) => "show",
            (0, false) => "mask",
            _ => "hide",
        }
    };
    let own = ["--profile", "own"];
    assert_eq!(seen(&own, ".env"), "show");
    assert_eq!(seen(&own, "apps/web/.env.local"), "mask");
    assert_eq!(seen(&own, ".dev.vars"), "hide");
    assert_eq!(seen(&[], ".env"), "mask", "a profile that does not say so");
    let written = project.run_with(&own, "echo x > .env; rm -f .env; mv .env x");
    assert_ne!(written.code(), 0);
    assert!(
        project.shows(&String::from_utf8_lossy(&project.world.get(".env"))),
        "what is shown is not changed"
    );
    project.policy(&format!(
        "[secrets]\n'.env' = 'mask'\n[profile.own.secrets]\n{secrets}"
    ));
    assert_eq!(
        seen(&own, ".env"),
        "mask",
        "a file's bound counts for every profile"
    );
    let refused = project.run_with(&["--reveal", ".env"], "cat .env");
    assert!(
        refused.code() != 0 && refused.errors().contains("`[secrets]`"),
        "{}",
        refused.errors()
    );
    assert!(!project.shows(&refused.text()));
}

place_test!(a_file_is_revealed_for_one_session);
fn a_file_is_revealed_for_one_session(place: Place) {
    let project = Project::new(place);
    let revealed = project.run_with(&["--reveal", ".env"], "cat .env");
    assert!(project.shows(&revealed.success()));
    let others = project.run_with(
        &["--reveal", ".env"],
        "cat .dev.vars linked.txt; echo x >> .env",
    );
    assert!(!project.shows(&others.text()), "{}", others.text());
    assert!(
        !String::from_utf8_lossy(&project.world.get(".env")).ends_with("x\n"),
        "it is not changed"
    );
    let by_link = project.run_with(&["--reveal", ".env.linked"], "cat .env.linked");
    assert!(project.shows(&by_link.success()));
    let later = project.world.in_cell("cat .env");
    assert!(!project.shows(&later.success()), "only that session");
    project.world.put("id_rsa", "x");
    for path in ["id_rsa", "none", "apps", "/etc/passwd", "../x"] {
        let refused = project.run_with(&["--reveal", path], "true");
        assert!(
            refused.code() != 0 && refused.errors().contains("--reveal"),
            "{path}: {}",
            refused.errors()
        );
    }
}

/// Starts a command that wants to read the secrets of a file, and says this to the question.
fn with_secrets_of(
    session: &mut Session,
    file: &Path,
    script: &str,
    say: &str,
) -> (String, Answer) {
    let call =
        json!({"id": "s", "tool": "bash", "input": {"command": script}, "wants": {"read": [file]}});
    session.send(&call);
    let question = asked(session, "s")["why"].as_str().unwrap().to_owned();
    session.send(&json!({"id": "s", "approve": say}));
    (question, session.answer_within("s", LIMIT))
}

place_test!(a_lease_shows_one_file_to_its_call_alone);
fn a_lease_shows_one_file_to_its_call_alone(place: Place) {
    let project = Project::new(place);
    let mut session = project.session(&["--leases"]);
    let env = project.world.project.join(".env");
    let all = "cat .env apps/web/.env.local .dev.vars linked.txt; cat linked.txt .dev.vars";
    let masked = session.bash(all).success().to_owned();
    assert!(!project.shows(&masked), "{masked}");
    let refused = with_secrets_of(&mut session, &env, "cat .env", "no");
    assert_eq!(refused.1.kind(), "denied_user");
    let (question, answer) = with_secrets_of(&mut session, &env, all, "once");
    let want = format!(
        "read the secrets in {} instead of placeholders",
        env.display()
    );
    assert!(question.contains(&want), "{question}");
    let shown = answer.success();
    assert_eq!(shown.matches(&project.secret).count(), 3, "{shown}");
    assert_eq!(shown.matches("PIN=471147").count(), 1, "{shown}");
    assert!(!project.shows(session.bash(all).success()), "a later call");
    // The file tools have it never, whatever was granted.
    let (_, granted) = with_secrets_of(&mut session, &env, "cat .env", "session");
    assert!(project.shows(granted.success()));
    let read = session.call("file_read", json!({"path": ".env"}));
    assert!(!read.ok() && !project.shows(&read.result.to_string()));
    assert_eq!(
        session.bash(all).success(),
        shown,
        "the rest of the session"
    );
    session.send(&json!({"id": "g", "grants": true}));
    let listed = session.event("g", LIMIT).unwrap()["grants"].clone();
    assert_eq!(listed[0]["read"], json!(env), "{listed}");
    session.send(&json!({"id": "r", "revoke": listed[0]["grant"]}));
    assert_eq!(session.event("r", LIMIT).unwrap()["grants"], json!([]));
    assert_eq!(
        session.bash(all).success(),
        masked,
        "after it was taken back"
    );
    let other = project.session(&["--leases"]).bash("cat .env");
    assert!(!project.shows(other.success()), "another session");
}

place_test!(a_lease_of_a_file_is_no_way_to_another_or_to_change_it);
fn a_lease_of_a_file_is_no_way_to_another_or_to_change_it(place: Place) {
    let project = Project::new(place);
    let mut session = project.session(&["--leases"]);
    let env = project.world.project.join(".env");
    let changes = "echo x >> .env; mv .env moved; rm .env; ln .env other; chmod 666 .env; cp .dev.vars new; ln -sf ../.dev.vars apps/.env
        mv .dev.vars apps/web/x; mv apps apps2; cat new apps/.env apps/web/.env.local .ENV linked.txt 2>&1; true";
    let before = project.world.get(".env");
    let (_, answer) = with_secrets_of(&mut session, &env, changes, "once");
    let text = answer.result.to_string();
    assert!(!project.shows(&text), "{text}");
    assert_eq!(project.world.get(".env"), before);
    let names = project
        .on_host("ls -A | tr '\n' ' '; stat -c %h .env")
        .text();
    assert!(
        !names.contains("moved") && !names.contains("other") && names.ends_with("1\n"),
        "{names}"
    );
    // Another file at the path is not what was there.
    let replaced = session.call("bash", json!({"command": "true"}));
    replaced.success();
    project
        .on_host("cp .env .env.new; mv .env.new .env")
        .success();
    session.send(&json!({"id": "n", "tool": "bash", "input": {"command": "cat .env"}, "wants": {"read": [env]}}));
    let refused = session.answer_within("n", LIMIT);
    assert!(
        !refused.ok()
            && refused
                .result
                .to_string()
                .contains("another file lies there"),
        "{}",
        refused.result
    );
}

place_test!(name_hidden_by_policy_files_is_not_leased);
fn name_hidden_by_policy_files_is_not_leased(place: Place) {
    let project = Project::new(place);
    project.policy("[secrets]\n'.env' = 'mask'\n'.dev.vars' = 'hide'");
    project.world.put("id_rsa", "x");
    let mut session = project.session(&["--leases"]);
    for (name, why) in [
        (".env", "`[secrets]` of a policy file"),
        (".dev.vars", "cannot be granted"),
        ("id_rsa", "cannot be granted"),
        (".env.linked", "cannot be granted"),
    ] {
        let path = project.world.project.join(name);
        session.send(&json!({"id": name, "tool": "bash", "input": {"command": "true"}, "wants": {"read": [path]}}));
        let refused = session.answer_within(name, LIMIT).result.to_string();
        assert!(refused.contains(why), "{name}: {refused}");
    }
}

place_test!(tracked_secret_is_not_masked);
/// Of a repository whose `.env` is committed and then changed, a commit in the cell would take the placeholders.
fn tracked_secret_is_not_masked(place: Place) {
    let project = Project::new(place);
    let make = "git init -q . && git config user.name t && git config user.email t@t.invalid && git add -f .env && git commit -qm one";
    project.on_host(make).success();
    project.write(".env");
    project
        .world
        .put(".env", format!("TOKEN={}\nNEW=1\n", project.secret));
    let mut session = Session::open(&project.world);
    let notices = session.ready["notices"].to_string();
    assert!(notices.contains("git tracks it"), "{notices}");
    let answer = session.bash("cat .env; git commit -qam two");
    assert!(
        !answer.result.to_string().contains("lazaret-masked") && answer.exit_code() != Some(0),
        "{}",
        answer.result
    );
    assert!(
        !project
            .on_host("git log -p --all")
            .text()
            .contains("lazaret-masked")
    );
    project
        .on_host("git rm -q --cached .env && git commit -qm three && git add -f .dev.vars")
        .success();
    let mut session = Session::open(&project.world);
    assert!(
        session
            .bash("cat .env")
            .success()
            .contains("lazaret-masked-"),
        "untracked again"
    );
    assert_ne!(
        session.bash("cat .dev.vars").exit_code(),
        Some(0),
        "in the index alone"
    );
    // A repository inside the project.
    project.on_host("mkdir inner && cd inner && git init -q . && git config user.name t && git config user.email t@t.invalid").success();
    project.write("inner/.env");
    project
        .on_host("cd inner && git add -f .env && git commit -qm one")
        .success();
    project
        .world
        .put("inner/.env", format!("TOKEN={}\nNEW=1\n", project.secret));
    assert_ne!(
        Session::open(&project.world)
            .bash("cat inner/.env")
            .exit_code(),
        Some(0)
    );
}

place_test!(git_takes_in_no_placeholder_by_itself);
fn git_takes_in_no_placeholder_by_itself(place: Place) {
    let project = Project::new(place);
    project.on_host("git init -q . && git config user.name t && git config user.email t@t.invalid && git commit -qm one --allow-empty").success();
    let host = project.on_host("git status --short").success();
    assert!(host.contains(".env"), "the control: nothing ignores it");
    let mut session = Session::open(&project.world);
    session
        .bash("echo code > code; git add -A && git commit -qm two && git stash -u || true")
        .success();
    let tree = project
        .on_host("git ls-tree -r --name-only HEAD; git stash list")
        .success();
    assert!(tree.lines().any(|name| name == "code"), "{tree}");
    assert!(
        !FILES
            .iter()
            .any(|file| tree.lines().any(|name| name == *file)),
        "{tree}"
    );
    assert_eq!(
        project.on_host("git status --short .env").success(),
        "?? .env\n"
    );
}

place_test!(secret_that_appears_or_changes_later_is_not_masked);
fn secret_that_appears_or_changes_later_is_not_masked(place: Place) {
    let project = Project::new(place);
    let mut session = Session::open(&project.world);
    let masked = session.bash("cat .env").success().to_owned();
    let changed = format!("TOKEN={}-changed\nADDED=1\n", project.secret);
    project.world.put(".env", &changed);
    assert_eq!(
        session.bash("cat .env").success(),
        masked,
        "a mask is made once"
    );
    project.world.put("later/.env", &changed);
    let later = session.bash("cat later/.env");
    if place.tier == Tier::Flat {
        assert!(
            later.exit_code() != Some(0) && !project.shows(&later.result.to_string()),
            "{}",
            later.result
        );
    }
    let own = session
        .bash("echo OWN=1 > .env.own && cat .env.own")
        .success()
        .to_owned();
    assert_eq!(own, "OWN=1\n", "what a command has made is its own");
}

place_test!(a_hostile_file_delays_no_session);
fn a_hostile_file_delays_no_session(place: Place) {
    let project = Project::new(place);
    let make = "mkfifo .env.fifo; ln -s /dev/zero .env.zero; ln -s .env.loop .env.loop; mkdir .env.dir; echo 'A=s3cr3t-outside' > $HOME/outside; ln -s $HOME/outside .env.out
        truncate -s 1T .env.sparse; touch .env.closed; chmod 0 .env.closed; yes 'A=b' | head -c 60000 > .env.many
        python3 -c \"open('.env.long','w').write('A='+'x'*65000); open('.env.deep','w').write('A=\\\"'+'\\\\\\\\'*30000)\"
        python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('.env.sock')\"";
    project.on_host(make).success();
    // On a busy machine a session takes its time: who waits for a file, or reads one without end, never opens one as quickly.
    let opens = || {
        let started = std::time::Instant::now();
        let mut session = Session::open(&project.world);
        let shown = session.bash("cat .env").success().to_owned();
        assert!(shown.contains("lazaret-masked-"), "{shown}");
        let quick = started.elapsed() < std::time::Duration::from_secs(15);
        quick.then_some(session)
    };
    let mut session = std::iter::repeat_with(opens).take(5).flatten().next();
    let session = session.as_mut().expect("one of five is quick");
    let all = session.bash("timeout 2 head -c 1000 .env.zero .env.out .env.sparse .env.long | cat");
    assert!(
        project.on_host("cat .env.out").text().contains("s3cr3t"),
        "the control"
    );
    assert!(!all.result.to_string().contains("s3cr3t"), "{}", all.result);
}

place_test!(file_tools_refuse_and_name_the_remedy);
fn file_tools_refuse_and_name_the_remedy(place: Place) {
    let project = Project::new(place);
    let mut session = Session::open(&project.world);
    for (tool, input) in [
        ("file_read", json!({"path": ".env"})),
        ("grep", json!({"pattern": "TOKEN", "path": ".env"})),
        ("file_write", json!({"path": ".env", "content": "x"})),
        (
            "file_edit",
            json!({"path": ".env", "edits": [{"old": "TOKEN", "new": "x"}]}),
        ),
    ] {
        let answer = session.call(tool, input);
        let text = answer.result.to_string();
        assert!(
            !project.shows(&text) && !text.contains("lazaret-masked-"),
            "{tool}: {text}"
        );
        if tool == "file_read" {
            assert!(
                text.contains("placeholders") && text.contains("--reveal"),
                "{text}"
            );
        }
    }
    let everywhere = session
        .call("grep", json!({"pattern": "TOKEN", "ignored": true}))
        .result
        .to_string();
    assert!(
        !everywhere.contains("lazaret-masked-") && !project.shows(&everywhere),
        "{everywhere}"
    );
}
