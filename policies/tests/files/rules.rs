//! Verdicts of rules, scopes and trust, through the policy files they are written in.

use broker_protocol::{
    Bash, Command, Edit, FileEdit, FileList, FileRead, FileWrite, Framework, Glob, Grep,
    Occurrence, Permission, Request, Risk, Scope, Stdin, Trust, Zone, ZonePath,
};
use policies::{
    EffectivePolicy, Facts, Host, Policies, PolicySource, SourceKind, Verdict, decide, judge,
};

fn source(kind: SourceKind, text: &str) -> PolicySource {
    let name = match kind {
        SourceKind::System => "/etc/lazaret/policy.toml",
        _ => "policy.toml",
    };
    PolicySource {
        name: name.into(),
        kind,
        text: format!("version = 1\n{text}"),
    }
}

fn policy(system: &str, user: &str, trust: Trust) -> EffectivePolicy {
    let sources = vec![
        source(SourceKind::System, system),
        source(SourceKind::User, user),
    ];
    let host = Host {
        home: "/home/u".into(),
        ..Host::default()
    };
    Policies::load(sources)
        .unwrap()
        .resolve("", &host)
        .unwrap()
        .narrow(None, trust)
        .unwrap()
}

/// A policy without the shipped rules.
fn own(system: &str, user: &str, trust: Trust) -> EffectivePolicy {
    let mut policy = policy(system, user, trust);
    policy
        .rules
        .retain(|rule| rule.source != SourceKind::Shipped);
    policy
}

fn narrowed(permissions: Vec<Permission>) -> EffectivePolicy {
    policy("", "", Trust::Autonomous)
        .narrow(Some(&Scope { permissions }), Trust::Autonomous)
        .unwrap()
}

fn permission(tool: &str, paths: &[&str]) -> Permission {
    let paths = paths.iter().map(ToString::to_string).collect();
    Permission {
        tool: tool.into(),
        allowed: true,
        paths,
        timeout_s: None,
        network: false,
    }
}

fn bash(command: Command) -> Request {
    Request::Bash(Bash {
        command,
        directory: None,
        timeout_s: None,
        idle_timeout_s: None,
        stdin: Stdin::Null,
        live: false,
        background: false,
        split: false,
        attended: false,
    })
}

fn shell(text: &str) -> Request {
    bash(Command::Shell(text.into()))
}

fn path(text: &str) -> ZonePath {
    match text.strip_prefix("central:") {
        Some(rest) => ZonePath::new(Zone::Central, rest).unwrap(),
        None => ZonePath::new(Zone::Project, text).unwrap(),
    }
}

fn read(at: &str) -> Request {
    Request::FileRead(FileRead {
        path: path(at),
        offset: None,
        limit: None,
    })
}

fn write(at: &str, content: &str) -> Request {
    Request::FileWrite(FileWrite {
        path: path(at),
        content: content.into(),
        overwrite: true,
        expected_sha256: None,
    })
}

fn edit(at: &str, news: &[&str]) -> Request {
    let edit = |new: &&str| Edit {
        old: "x".into(),
        new: (*new).into(),
        occurrence: Occurrence::All,
    };
    Request::FileEdit(FileEdit {
        path: path(at),
        edits: news.iter().map(edit).collect(),
        expected_sha256: None,
    })
}

fn list(at: &str) -> Request {
    Request::FileList(FileList {
        path: path(at),
        depth: 1,
        hidden: false,
        limit: 1,
    })
}

fn glob(at: &str) -> Request {
    Request::Glob(Glob {
        pattern: "*".into(),
        path: path(at),
        hidden: false,
        ignored: false,
        limit: 1,
    })
}

fn grep(at: &str, pattern: &str) -> Request {
    Request::Grep(Grep {
        pattern: pattern.into(),
        literal: false,
        ignore_case: false,
        path: path(at),
        include: None,
        ignored: false,
        context: 0,
        limit: 1,
        sort: broker_protocol::GrepSort::Path,
    })
}

/// `allow`, or the verdict and its rule.
fn verdict_of(policy: &EffectivePolicy, request: &Request) -> String {
    match decide(policy, request) {
        Verdict::Allow => "allow".into(),
        Verdict::Ask(question) => format!("ask {}", question.rule),
        Verdict::Deny(refused) => format!("deny {}", refused.rule),
    }
}

/// Three trusts by three risks.
#[test]
fn the_risk_matrix() {
    for (trust, want) in [
        (Trust::Supervised, ["ask", "ask", "ask"]),
        (Trust::Guided, ["allow", "ask", "ask"]),
        (Trust::Autonomous, ["allow", "allow", "allow"]),
    ] {
        let policy = policy("", "", trust);
        for (risk, want) in Risk::ALL.into_iter().zip(want) {
            let got = match judge(&policy, &Facts::bare("some_tool", risk)).verdict {
                Verdict::Allow => "allow",
                Verdict::Ask(question) => {
                    assert_eq!(
                        (question.rule, question.risk),
                        (format!("trust:{}", trust.name()), risk)
                    );
                    "ask"
                }
                Verdict::Deny(_) => "deny",
            };
            assert_eq!(got, want, "{trust:?} {risk:?}");
        }
    }
}

#[test]
fn first_rule_of_a_tool_wins_over_general_ones() {
    // Lines, from 1: `version` is the first, and each rule has four.
    let rules = "[[rule]]\ntool = '*'\naction = 'deny'\nwhy = 'a'\n\
        [[rule]]\ntool = 'file_read'\naction = 'ask'\nwhy = 'b'\n\
        [[rule]]\ntool = 'file_read'\naction = 'allow'\nwhy = 'c'\n";
    let policy = policy("", rules, Trust::Guided);
    assert_eq!(verdict_of(&policy, &read("a")), "ask rule:user:6");
    assert_eq!(verdict_of(&policy, &list("")), "deny rule:user:2");
    assert_eq!(verdict_of(&policy, &shell("a")), "deny rule:user:2");
}

#[test]
fn a_later_source_narrows_and_never_widens() {
    let rule =
        |action: &str| format!("[[rule]]\ntool = 'file_write'\naction = '{action}'\nwhy = 'w'\n");
    for (system, user, want) in [
        ("allow", "allow", "allow"),
        ("allow", "ask", "ask rule:user:2"),
        ("allow", "deny", "deny rule:user:2"),
        ("ask", "allow", "ask rule:system:2"),
        ("ask", "ask", "ask rule:system:2"),
        ("ask", "deny", "deny rule:user:2"),
        ("deny", "allow", "deny rule:system:2"),
        ("deny", "ask", "deny rule:system:2"),
        ("deny", "deny", "deny rule:system:2"),
    ] {
        let policy = policy(&rule(system), &rule(user), Trust::Guided);
        assert_eq!(
            verdict_of(&policy, &write("a", "")),
            want,
            "{system} {user}"
        );
    }
}

#[test]
fn each_trust_takes_each_action_its_own_way() {
    for (action, want) in [
        ("allow", ["ask trust:supervised", "allow", "allow"]),
        ("ask", ["ask rule:user:2", "ask rule:user:2", "allow"]),
        (
            "deny",
            ["deny rule:user:2", "deny rule:user:2", "deny rule:user:2"],
        ),
    ] {
        let rule = format!("[[rule]]\ntool = 'bash'\naction = '{action}'\nwhy = 'w'\n");
        for (trust, want) in Trust::ALL.into_iter().zip(want) {
            assert_eq!(
                verdict_of(&policy("", &rule, trust), &shell("a")),
                want,
                "{action} {trust:?}"
            );
        }
    }
}

#[test]
fn conditions_are_about_parameters() {
    let fits = |tool: &str, action: &str, when: &str, request: &Request| {
        let rule =
            format!("[[rule]]\ntool = '{tool}'\naction = '{action}'\nwhy = 'w'\nwhen = [{when}]\n");
        let trust = if action == "allow" {
            Trust::Guided
        } else {
            Trust::Autonomous
        };
        match verdict_of(&own("", &rule, trust), request).as_str() {
            "deny rule:user:2" => true,
            "allow" => action == "allow",
            "ask trust:guided" if action == "allow" => false,
            other => panic!("{other}"),
        }
    };
    for (tool, when, request, want) in [
        (
            "file_write",
            "{ param = 'path', matches = 'src/**' }",
            write("src/a", ""),
            true,
        ),
        (
            "file_write",
            "{ param = 'path', matches = 'src/**' }",
            write("docs/a", ""),
            false,
        ),
        (
            "file_write",
            "{ param = 'path', matches = ['a/**', 'central:b/*'] }",
            write("central:b/c", ""),
            true,
        ),
        (
            "file_write",
            "{ param = 'path', equals = 'central:b' }",
            write("central:b", ""),
            true,
        ),
        (
            "file_write",
            "{ param = 'path', starts_with = 'central:' }",
            write("b", ""),
            false,
        ),
        (
            "file_write",
            "{ param = 'content', contains = 'BEGIN KEY' }",
            write("a", "x BEGIN KEY y"),
            true,
        ),
        (
            "file_write",
            "{ param = 'content', contains = 'BEGIN KEY' }",
            write("a", "BEGIN-KEY"),
            false,
        ),
        (
            "file_edit",
            "{ param = 'new', contains = 'k' }",
            edit("a", &["l", "k"]),
            true,
        ),
        (
            "bash",
            "{ param = 'command', matches = '*curl*|*sh' }",
            shell("curl x | sh"),
            true,
        ),
        (
            "bash",
            "{ param = 'command', starts_with = 'make' }",
            shell("cmake"),
            false,
        ),
        ("bash", "{ param = 'cwd', equals = '.' }", shell("a"), false),
        (
            "grep",
            "{ param = 'path', equals = '.' }, { param = 'pattern', contains = 'pass' }",
            grep("", "pass"),
            true,
        ),
        (
            "grep",
            "{ param = 'path', equals = 'a' }, { param = 'pattern', contains = 'pass' }",
            grep("", "pass"),
            false,
        ),
    ] {
        assert_eq!(fits(tool, "deny", when, &request), want, "deny {when}");
        // A search is not asked about anyway; and an `allow` is about every edit.
        if tool != "grep" && tool != "file_edit" {
            assert_eq!(fits(tool, "allow", when, &request), want, "allow {when}");
        }
    }
    // What closes does not see case; what opens does.
    let when = "{ param = 'path', matches = 'src/**' }";
    assert!(fits("file_write", "deny", when, &write("SRC/a", "")));
    assert!(!fits("file_write", "allow", when, &write("SRC/a", "")));
    assert!(!fits(
        "file_edit",
        "allow",
        "{ param = 'new', contains = 'k' }",
        &edit("a", &["k", "l"])
    ));
    assert!(fits(
        "file_edit",
        "allow",
        "{ param = 'new', contains = 'k' }",
        &edit("a", &["k", "ok"])
    ));
}

/// `rules` are program, arguments and action; the verdict for each line is by the last of its words.
#[test]
fn commands_are_judged_one_by_one() {
    let rules = "[[rule]]\ntool = 'bash'\naction = 'deny'\nprogram = 'git'\nargs = ['push', '--force*']\nwhy = 'w'\n\
        [[rule]]\ntool = 'bash'\naction = 'ask'\nprogram = 'git'\nargs = ['push']\nwhy = 'w'\n\
        [[rule]]\ntool = 'bash'\naction = 'allow'\nprogram = '{git,ls,cat}'\nwhy = 'w'\n";
    let policy = own("", rules, Trust::Guided);
    let (deny, ask, trust) = ("deny rule:user:2", "ask rule:user:8", "ask trust:guided");
    for (text, want) in [
        ("ls", "allow"),
        ("ls -la && cat a | cat; git status", "allow"),
        ("git push", ask),
        ("git push --force-with-lease origin", deny),
        ("git pull; git push", ask),
        ("ls && (git push --force)", deny),
        ("ls; make", trust),
        ("make; git push", ask),
        ("echo $(git push --force)", deny),
        ("'gi't \"push\" --for\\ce", deny),
        ("/usr/bin/git push --force", deny),
        ("GIT PUSH --FORCE", deny),
        ("A=1 git push --force", deny),
        ("git push --force >log", deny),
        // What opens is meant exactly, and of nothing that is not seen whole.
        ("/tmp/ls", trust),
        ("LS", trust),
        ("PATH=/tmp ls", trust),
        ("ls > .bashrc", trust),
        ("ls 2>&1 >/dev/null", "allow"),
        ("PATH=/tmp; ls", trust),
        ("ls; $x", "ask rule:user:2"),
        ("ls `a`", "ask rule:user:2"),
        ("sh -c ls", "ask rule:user:2"),
        // It may be a push, with force or without.
        ("git $x", "ask rule:user:2"),
        ("git push $x", "ask rule:user:2"),
        ("git status $x", "allow"),
        ("", trust),
    ] {
        assert_eq!(verdict_of(&policy, &shell(text)), want, "{text}");
    }
    let arguments = |words: &[&str]| {
        bash(Command::Arguments(
            words
                .iter()
                .map(|word| (*word).as_bytes().to_vec().into())
                .collect(),
        ))
    };
    assert_eq!(
        verdict_of(&policy, &arguments(&["git", "push", "--force"])),
        deny
    );
    assert_eq!(
        verdict_of(&policy, &arguments(&["ls", "; git push"])),
        "allow"
    );
}

/// Bash evaluates some arguments of its builtins, and a rule that allows these builtins has not allowed what is run then.
#[test]
fn allowed_builtin_does_not_allow_what_it_evaluates() {
    let rules = "[[rule]]\ntool = 'bash'\naction = 'deny'\nprogram = 'touch'\nwhy = 'w'\n\
        [[rule]]\ntool = 'bash'\naction = 'allow'\nprogram = '{printf,test,echo,read,hash,ls}'\nwhy = 'w'\n";
    let policy = own("", rules, Trust::Guided);
    let (doubt, trust) = ("ask rule:user:2", "ask trust:guided");
    for (text, want) in [
        ("printf -v 'a[$(touch PWN)]' x", doubt),
        ("test -v 'a[$(touch PWN)]'", doubt),
        ("[ -v 'a[`touch PWN`]' ]", doubt),
        ("echo {a['$(touch PWN)']}>/dev/null", doubt),
        ("prlimit touch PWN", doubt),
        ("hash -p ./touch ls; ls", doubt),
        ("for x in 'a[$(touch PWN)]'; do test -v \"$x\"; done", doubt),
        // A later program may be another one.
        ("printf -v PATH ./bin; ls", trust),
        ("read PATH; ls", trust),
        ("for PATH in ./bin; do ls; done", trust),
        // The controls.
        ("printf '%s [$5]\\n' \"$x\"", "allow"),
        ("test -f a && test a = b || echo 'a[$(touch PWN)]'", "allow"),
        ("for x in a b; do ls \"$x\"; done", "allow"),
        ("hash -r; ls", "allow"),
    ] {
        assert_eq!(verdict_of(&policy, &shell(text)), want, "{text}");
    }
}

/// A yes that lasts opens, so it is for what a rule is about exactly, and all of which it is about.
#[test]
fn a_rule_is_about_a_whole_call_or_not() {
    let whole = |policy: &EffectivePolicy, text: &str| match decide(policy, &shell(text)) {
        Verdict::Ask(question) => question.whole,
        other => panic!("{text}: {other:?}"),
    };
    let guided = policy("", "", Trust::Guided);
    for text in [
        "git push",
        "git push a && git push b 2>&1",
        "git push $x",
        "rm -r x; rm -rf y",
        "make",
        "ls; make",
    ] {
        assert!(whole(&guided, text), "{text}");
    }
    for text in [
        // It may be meant, and nobody knows what else is.
        "env true",
        "find . -delete",
        "bash -c ls",
        "cat <<E\nE",
        "$x",
        "git $x",
        "git push $(ls)",
        // There is more in it than what is asked about.
        "git push; ls",
        "cd x && git push",
        "git push | tail",
        "git push; rm -rf x",
        "rm -rf x; git push",
        "A=1; git push",
        // This may be another program, or make one.
        "./git push",
        "PATH=. git push",
        "git push >.bashrc",
        "git -c core.sshCommand=x push",
    ] {
        assert!(!whole(&guided, text), "{text}");
    }
    // Two files ask: a yes to one is none to the other.
    let cwd = "[[rule]]\ntool = 'bash'\naction = 'ask'\nwhy = 'w'\nwhen = [{ param = 'command', contains = 'main' }]\n";
    let both = policy("", cwd, Trust::Guided);
    assert!(
        whole(&both, "git push dev") && !whole(&both, "git push main") && whole(&both, "echo main")
    );
}

/// So that who is asked about a test suite is not told that it publishes commits.
#[test]
fn no_rule_is_in_doubt_about_a_test_suite() {
    let guided = policy("", "", Trust::Guided);
    for framework in Framework::ALL {
        assert_eq!(
            verdict_of(&guided, &bash(framework.command())),
            "ask trust:guided",
            "{framework:?}"
        );
    }
    assert_eq!(
        verdict_of(&guided, &shell("echo a; env | sort; trap")),
        "ask trust:guided"
    );
    for runs in [
        "env git push",
        "env $x",
        "echo 'git push' | sh",
        "nice -n 1 git push",
    ] {
        assert_eq!(
            verdict_of(&guided, &shell(runs)),
            "ask rule:shipped:6",
            "{runs}"
        );
    }
}

/// Options in front of a subcommand do not hide it, and one that is meant is found wherever it stands.
#[test]
fn options_hide_no_subcommand() {
    let rule = |program: &str, args: &str| {
        format!(
            "[[rule]]\ntool = 'bash'\naction = 'deny'\nprogram = '{program}'\nargs = [{args}]\nwhy = 'w'\n"
        )
    };
    let (no, sure, maybe) = ("ask trust:guided", "deny rule:user:2", "ask rule:user:2");
    for (program, args, text, want) in [
        ("git", "'push'", "git push", sure),
        ("git", "'push'", "git -C . push", sure),
        (
            "git",
            "'push'",
            "git --no-pager -c a=b --git-dir=x --work-tree y push",
            sure,
        ),
        ("git", "'push'", "git -c push status", no),
        ("git", "'push'", "git --no-pager status push", no),
        ("git", "'push'", "git -C $x push", maybe),
        (
            "git",
            "'push', '{-f,--force*}'",
            "git -C . push origin main --force",
            sure,
        ),
        (
            "git",
            "'push', '{-f,--force*}'",
            "git push origin -- -f",
            no,
        ),
        ("git", "'push', '{-f,--force*}'", "git push origin", no),
        ("git", "'push', 'origin'", "git push -u origin", maybe),
        (
            "cargo",
            "'publish'",
            "cargo +nightly --offline publish",
            sure,
        ),
        ("cargo", "'publish'", "cargo --config publish build", no),
        ("docker", "'push'", "docker --context a push b", sure),
        ("rm", "'-*r*'", "rm x -rf", sure),
        ("rm", "'-*r*'", "rm -f x -r", sure),
        ("rm", "'-*r*'", "rm -f x", no),
        ("rm", "'-*r*'", "rm -- -rf", no),
        // Of these nobody has listed which options have values.
        ("npm", "'publish'", "npm --silent publish", maybe),
        ("npm", "'publish'", "npm --prefix a publish", maybe),
        ("npm", "'publish'", "npm --prefix=a publish", sure),
        ("npm", "'publish'", "npm --silent run publish", maybe),
        ("npm", "'publish'", "npm --silent install publish x", maybe),
        ("npm", "'publish'", "npm --silent install x", no),
        ("npm", "'publish'", "npm run publish", no),
        ("kubectl", "'delete'", "kubectl -n x delete pod", maybe),
    ] {
        let policy = own("", &rule(program, args), Trust::Guided);
        assert_eq!(verdict_of(&policy, &shell(text)), want, "{args}: {text}");
    }
    // What opens skips nothing.
    let allow = rule("git", "'status'").replace("deny", "allow");
    let policy = own("", &allow, Trust::Guided);
    for (text, want) in [
        ("git status", "allow"),
        ("git -c a=b status", no),
        ("git --no-pager status", no),
    ] {
        assert_eq!(verdict_of(&policy, &shell(text)), want, "{text}");
    }
}

/// A person who is asked about an `echo` reads of it, and not of a push that a rule is about.
#[test]
fn the_text_of_a_rule_that_only_may_apply_is_not_shown() {
    let doubts = [
        ("env echo hi", "it runs a program that can run others"),
        ("bash -c 'echo hi'", "it runs a program that can run others"),
        (
            "for i in 1 2; do $i; done",
            "a program whose name only the shell knows",
        ),
        ("$x push", "a program whose name only the shell knows"),
    ];
    for (text, doubt) in doubts {
        let policy = policy("", "", Trust::Guided);
        let Verdict::Ask(question) = decide(&policy, &shell(text)) else {
            panic!("{text}")
        };
        let want = format!(
            "A guided session asks before calls of high risk. No rule can be sure about it: {doubt}."
        );
        assert_eq!(question.why, want, "{text}");
    }
    let Verdict::Ask(question) = decide(&policy("", "", Trust::Guided), &shell("git push")) else {
        panic!()
    };
    assert!(
        question.why.starts_with("It publishes commits"),
        "control: {}",
        question.why
    );
}

#[test]
fn a_doubt_is_in_the_reason() {
    let rules = "[[rule]]\ntool = 'bash'\naction = 'deny'\nprogram = 'git'\nwhy = 'No git here.'\n";
    let policy = own("", rules, Trust::Autonomous);
    let why = judge(&policy, &Facts::of(&shell("$x push"))).why.unwrap();
    assert!(
        why.contains("not certain: a program whose name only the shell knows)"),
        "{why}"
    );
    assert!(why.ends_with("No git here."), "{why}");
}

#[test]
fn judgement_names_file_and_line() {
    let guided = policy(
        "",
        "[[rule]]\ntool = 'grep'\naction = 'deny'\nwhy = 'w'\n",
        Trust::Guided,
    );
    let place = |request: &Request| {
        judge(&guided, &Facts::of(request))
            .origin
            .map(ToString::to_string)
    };
    assert_eq!(place(&grep("", "x")).unwrap(), "policy.toml:2");
    assert!(
        place(&shell("rm -rf x"))
            .unwrap()
            .starts_with("shipped rules.toml:")
    );
    assert!(
        place(&read(".env"))
            .unwrap()
            .starts_with("shipped protected.toml:")
    );
    assert_eq!(place(&read("a")), None);
    let host = Host {
        home: "/home/u".into(),
        ..Host::default()
    };
    let reading = Policies::load(vec![])
        .unwrap()
        .resolve("read-only", &host)
        .unwrap();
    let request = write("a", "");
    let judgement = judge(&reading, &Facts::of(&request));
    assert!(
        judgement
            .origin
            .unwrap()
            .to_string()
            .starts_with("shipped read-only.toml:")
    );
}

/// The line that an origin names has the name or the rule.
#[test]
fn every_shipped_origin_is_right() {
    let host = Host {
        home: "/home/u".into(),
        ..Host::default()
    };
    let policy = Policies::load(vec![]).unwrap().resolve("", &host).unwrap();
    let names = include_str!("../../profiles/protected.toml");
    assert_eq!(policy.protected.len(), names.matches("{ name = ").count());
    for name in policy.protected.iter() {
        let line = names.lines().nth(name.origin.line - 1).unwrap();
        assert!(
            line.contains(&format!("\"{}\"", name.pattern)),
            "{}: {line}",
            name.origin
        );
    }
    let rules = include_str!("../../profiles/rules.toml");
    assert!(!policy.rules.is_empty());
    for rule in &policy.rules {
        assert_eq!(
            rules.lines().nth(rule.origin.line - 1),
            Some("[[rule]]"),
            "{}",
            rule.origin
        );
        assert_eq!(rule.origin.file, "shipped rules.toml");
    }
}

#[test]
fn the_shipped_rules_ask_about_what_cannot_be_undone() {
    let guided = policy("", "", Trust::Guided);
    for text in [
        "git push",
        "git push --force origin main",
        "rm -rf .",
        "rm -fr /",
        "rm -r x",
        "rm -Rf *",
        "rm --recursive x",
        "rm x -rf",
        "git -C . push",
        "git --no-pager push",
        "git reset --hard",
        "git clean -fdx",
        "cargo publish",
        "npm publish",
    ] {
        assert!(
            verdict_of(&guided, &shell(text)).starts_with("ask rule:shipped:"),
            "{text}"
        );
    }
    for text in ["rm x", "git status", "cargo build", "echo git push"] {
        assert_eq!(
            verdict_of(&guided, &shell(text)),
            "ask trust:guided",
            "{text}"
        );
    }
    // Nothing that ran before does not run now.
    assert_eq!(
        verdict_of(
            &policy("", "", Trust::Autonomous),
            &shell("git push; rm -rf .")
        ),
        "allow"
    );
}

#[test]
fn a_scope_holds_each_tool_to_its_paths() {
    let tools = [
        "file_read",
        "file_write",
        "file_edit",
        "file_list",
        "glob",
        "grep",
    ];
    let policy = narrowed(
        tools
            .iter()
            .map(|tool| permission(tool, &["src/**", "*.md", "central:notes/**"]))
            .collect(),
    );
    for (request, want) in [
        (read("src/a/b"), true),
        (read("README.md"), true),
        (read("docs/README.md"), false),
        (read("central:notes/a"), true),
        (read("central:a"), false),
        (write("src/a", ""), true),
        (write("src", ""), false),
        (edit("docs/a", &["y"]), false),
        (list("src"), true),
        (list("src/a"), true),
        (list(""), false),
        (glob("central:notes"), true),
        (glob("central:"), false),
        (grep("src", "x"), true),
        // It may be a directory of that name.
        (grep("README.md", "x"), false),
    ] {
        let got = verdict_of(&policy, &request);
        let refused = format!("deny scope:{}", request.tool());
        assert_eq!(
            got,
            if want { "allow".into() } else { refused },
            "{request:?}"
        );
    }
    assert_eq!(verdict_of(&policy, &shell("true")), "deny scope:bash");
    let all = narrowed(tools.iter().map(|tool| permission(tool, &["**"])).collect());
    for request in [read("a/b"), read("central:a"), list(""), glob("central:")] {
        assert_eq!(verdict_of(&all, &request), "allow", "{request:?}");
    }
    // A scope takes nothing back.
    assert_eq!(verdict_of(&all, &read(".env")), "deny protect:.env");
}

#[test]
fn trust_never_exceeds_the_scope() {
    let bare = policy("", "", Trust::Autonomous)
        .narrow(Some(&Scope::default()), Trust::Autonomous)
        .unwrap();
    for request in [
        shell("true"),
        write("a", ""),
        edit("a", &["y"]),
        list(""),
        glob(""),
        grep("", "x"),
    ] {
        assert_eq!(
            verdict_of(&bare, &request),
            format!("deny scope:{}", request.tool())
        );
    }
    assert_eq!(verdict_of(&bare, &read("a")), "allow");
    let not = Permission {
        allowed: false,
        ..permission("bash", &[])
    };
    assert_eq!(
        verdict_of(
            &narrowed(vec![not, permission("grep", &[])]),
            &shell("true")
        ),
        "deny scope:bash"
    );
}

#[test]
fn a_scope_sets_and_bounds_the_time() {
    let limited = |timeout_s| {
        narrowed(vec![Permission {
            timeout_s,
            ..permission("bash", &[])
        }])
    };
    for (scope, asked, want) in [
        (None, None, 60),
        (Some(120), None, 120),
        (Some(120), Some(5), 5),
        (Some(120), Some(500), 120),
        (Some(10), None, 10),
        (Some(10), Some(60), 10),
        (Some(86_400), None, 600),
        (Some(86_400), Some(86_400), 600),
    ] {
        assert_eq!(
            limited(scope).timeout(asked),
            Some(want),
            "{scope:?} {asked:?}"
        );
    }
}

#[test]
fn rules_are_in_the_digest() {
    let digest = |rule: &str| policy("", rule, Trust::Guided).digest;
    let base = "[[rule]]\ntool = 'bash'\naction = 'ask'\nprogram = 'git'\nargs = ['push']\nwhy = 'w'\nwhen = [{ param = 'command', contains = 'x' }]\n";
    let changes = [
        ("'bash'\naction = 'ask'", "'bash'\naction = 'deny'"),
        ("'git'", "'got'"),
        ("['push']", "['pull']"),
        ("['push']", "['push', 'x']"),
        ("why = 'w'", "why = 'v'"),
        ("'command'", "'cwd'"),
        ("contains", "equals"),
        ("= 'x'", "= 'y'"),
        ("= 'x'", "= ['x', 'y']"),
        (
            "[[rule]]",
            "[[rule]]\ntool = '*'\naction = 'ask'\nwhy = 'w'\n[[rule]]",
        ),
    ];
    for (from, to) in changes {
        assert!(base.contains(from));
        assert_ne!(
            digest(base),
            digest(&base.replacen(from, to, 1)),
            "{from} {to}"
        );
    }
    assert_eq!(
        digest(base),
        digest(&format!("# a comment moves lines\n{base}"))
    );
}
