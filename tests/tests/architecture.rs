//! The laws of the code, each with a planted violation that shows that its check bites.
#![allow(clippy::unwrap_used)]

use lazaret_laws::imports::Along;
use lazaret_laws::{self as laws, Violations};
use lazaret_tests::world::unique;
use lazaret_tests::{LIMIT, Place, World, once_test, programs, run, suite};
use memchr::memmem;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;

fn main() -> ExitCode {
    suite::main()
}

/// Most doc comments of the workspace that only repeat a name.
const FILLER_MAX: usize = 545;

/// Most doc comments of the workspace that begin like a riddle. Hardly any is in `policies`, `broker-protocol`, `executor/spec`,
/// `executor/project`, or the crates of the orchestrator that start and run sessions.
const OPENINGS_MAX: usize = 435;

/// Tokens of the longest function: a table of system calls.
const TOKENS_MAX: usize = 1171;

/// A function with more tokens than this is listed.
const LONG: usize = 600;

/// Those functions: tables of a row each, and commands told in order.
const LONG_FUNCTIONS: [&str; 14] = [
    "executor/src/sandbox.rs plan",
    "executor/src/serve.rs take",
    "executor/supervisor/src/dispatch.rs make",
    "executor/supervisor/src/sockets.rs bind",
    "orchestrator/acp/src/command.rs main",
    "orchestrator/doctor/src/examine.rs main",
    "orchestrator/engine/src/executor/shared_requests.rs handle",
    "orchestrator/results/src/proposal.rs input",
    "orchestrator/run/src/run.rs begin",
    "orchestrator/serve/src/schema.rs operation",
    "orchestrator/src/serve.rs main",
    "orchestrator/src/session/mod.rs main",
    "policies/guard/src/judge_table.rs found_entries_are_closed_by_their_directorys_names",
    "policies/src/resolve.rs undigested",
];

/// Parameters of type `bool`, by the reason why they have no type with names.
const BOOLS: [(&str, &[&str]); 4] = [
    (
        "An option of the command line or of a protocol that every call passes on under its own name",
        &[
            "orchestrator/doctor/src/attack.rs: main(as_json)",
            "orchestrator/doctor/src/examine.rs: examine(network)",
            "orchestrator/launch/src/launch.rs: chat(json)",
            "orchestrator/launch/src/launch.rs: fault(json)",
            "orchestrator/launch/src/launch.rs: object(json)",
            "orchestrator/launch/src/launch.rs: result(json)",
            "orchestrator/lines/src/calls.rs: new(raw)",
            "orchestrator/lines/src/calls.rs: stdin(end)",
            "orchestrator/mcp/client/src/server_reports.rs: show(json)",
            "orchestrator/policy/src/bundle.rs: make(json)",
            "orchestrator/policy/src/check.rs: check(json)",
            "orchestrator/policy/src/explain.rs: explain(json)",
            "orchestrator/policy/src/install_bundle.rs: install(json)",
            "orchestrator/policy/src/install_bundle.rs: install(replace)",
            "orchestrator/policy/src/install_bundle.rs: try_install(json)",
            "orchestrator/policy/src/install_bundle.rs: try_install(replace)",
            "orchestrator/policy/src/matrix.rs: matrix(json)",
            "orchestrator/policy/src/show.rs: show(json)",
            "orchestrator/policy/src/test.rs: test(json)",
            "orchestrator/sandboxd/src/files.rs: remove(recursive)",
            "orchestrator/src/approve.rs: list(json)",
            "orchestrator/src/audit/mod.rs: last(follow)",
            "orchestrator/src/audit/mod.rs: missing(json)",
            "orchestrator/src/audit/mod.rs: report(json)",
            "orchestrator/src/chat/replay.rs: main(json)",
            "orchestrator/src/chat/turns.rs: front(json)",
            "orchestrator/src/chat/turns.rs: person(json)",
            "orchestrator/src/chat/turns.rs: take(interactive)",
            "orchestrator/src/result.rs: report(json)",
            "orchestrator/src/result.rs: report_failed(json)",
            "orchestrator/src/serve.rs: announced(page)",
            "orchestrator/src/serve.rs: ended(ends_with_input)",
            "orchestrator/src/servers.rs: is_accepted(is_shown)",
            "orchestrator/src/servers.rs: is_accepted(yes)",
            "orchestrator/src/undo.rs: request(force)",
            "orchestrator/src/warm/mod.rs: ask(json)",
            "orchestrator/why/src/command.rs: find(verbose)",
            "orchestrator/why/src/command.rs: run(verbose)",
            "policies/targets/src/network.rs: add(replace)",
        ],
    ),
    (
        "Whether output goes to a terminal, or may be coloured, as its callers ask of the stream",
        &[
            "orchestrator/doctor/src/attack.rs: page(colour)",
            "orchestrator/doctor/src/attack.rs: summary(colour)",
            "orchestrator/launch/src/stdio/print.rs: paint(terminal)",
            "orchestrator/src/result.rs: render(terminal)",
            "orchestrator/terminal/src/chat_screen.rs: started(colours)",
        ],
    ),
    (
        "The answer to the one question that its function's name asks",
        &[
            "executor/worker/src/glob.rs: answer(cut)",
            "orchestrator/doctor/src/checks.rs: state(is_there)",
            "orchestrator/engine/src/call_permit.rs: take(runs_outside)",
            "orchestrator/launch/src/stdio/job.rs: can_suspend(is_raw)",
            "orchestrator/sandboxd/src/guard.rs: check(loopback)",
            "orchestrator/terminal/src/chat_screen.rs: prompt(goes_on)",
            "orchestrator/terminal/src/line_editor/editor.rs: inserted(fits)",
            "orchestrator/text/src/numbered.rs: lines_shown(stopped)",
            "orchestrator/tools/src/registry.rs: enable(on)",
        ],
    ),
    (
        "A fact that its few callers, mostly in the same file, have in a variable of that name",
        &[
            "broker-protocol/src/gateway.rs: published_request(v6)",
            "executor/peers/src/approver_peer.rs: of(terminal)",
            "orchestrator/gateway/src/relay/published.rs: connect_by(v6)",
            "orchestrator/http/src/gateway.rs: begin(company)",
            "orchestrator/launch/src/launch.rs: if_json(json)",
            "orchestrator/sandboxd/src/processes.rs: follow(has_terminal)",
            "orchestrator/src/cli.rs: begin_network(company)",
            "policies/guard/src/judge.rs: may_protect(has_others)",
            "policies/targets/src/dotenv.rs: unquoted(is_spaced)",
            "policies/targets/src/shell.rs: add_word(keyword_allowed)",
        ],
    ),
];

/// A law that the real tree keeps.
struct Law {
    check: fn(&Path) -> Violations,
    /// The crates in the copies of the tree: to read all takes seconds.
    members: &'static [&'static str],
}

impl Law {
    /// Checks that the real tree keeps it.
    fn kept(check: fn(&Path) -> Violations) -> Self {
        let violations = check(programs::workspace());
        assert!(violations.is_empty(), "\n  {}", violations.join("\n  "));
        Self {
            check,
            members: &[],
        }
    }

    /// From now on with copies of these crates only.
    fn in_copies_of(self, members: &'static [&'static str]) -> Self {
        Self { members, ..self }
    }

    /// From now on with copies of the crates that depend on no others.
    fn in_small_copies(self) -> Self {
        self.in_copies_of(&[
            "broker-protocol",
            "policies/guard",
            "policies/targets",
            "policies",
        ])
    }

    /// Checks that it sees what `plant` does to a copy of the tree.
    fn catches(&self, plant: impl Fn(&Copy)) {
        assert!(
            !self.after(plant).is_empty(),
            "the planted violation was not seen"
        );
    }

    /// Checks that it minds nothing of what `plant` does.
    fn allows(&self, plant: impl Fn(&Copy)) {
        assert_eq!(
            self.after(plant),
            Violations::new(),
            "what is allowed was called a violation"
        );
    }

    fn after(&self, plant: impl Fn(&Copy)) -> Violations {
        let copy = Copy::new();
        if !self.members.is_empty() {
            copy.keep_members(self.members);
        }
        plant(&copy);
        (self.check)(&copy.root)
    }
}

once_test!(imports_run_downwards);
fn imports_run_downwards() {
    let law = Law::kept(laws::imports_run_downwards);
    law.catches(|copy| copy.depend("orchestrator", "executor = { path = \"../executor\" }"));
    law.catches(|copy| copy.depend("broker-protocol", "policies.workspace = true"));
    law.catches(|copy| copy.depend("policies/guard", "broker-protocol.workspace = true"));
    law.catches(|copy| copy.write("Cargo.toml", "broken"));
}

once_test!(crates_belong_to_processes);
fn crates_belong_to_processes() {
    let law = Law::kept(laws::crates_belong_to_processes);
    // Each is seen by itself. Two copies, since `tools` brings `web`.
    for planted in [
        &[
            ("executor/cell", "executor-project", "cell"),
            ("executor/supervisor", "executor-denials", "cell"),
            ("executor/worker", "executor-leases", "worker"),
            ("executor/trace", "executor-sys", "trace"),
            ("orchestrator", "executor-audit", "lazaret"),
            ("orchestrator/results", "lazaret-fakes", "lazaret"),
            ("orchestrator/run", "orchestrator-tools", "shell"),
            ("executor", "orchestrator-text", "broker"),
        ][..],
        &[("orchestrator/launch", "orchestrator-web", "shell")],
    ] {
        let violations = law.after(|copy| {
            for (user, used, _) in planted {
                copy.depend(user, &format!("{used}.workspace = true"));
            }
        });
        for (_, used, process) in planted {
            let is_named = |violation: &String| {
                let linked = violation.strip_prefix(&format!("{used} is linked into "));
                let linked = linked.and_then(|rest| Some(rest.split_once(", and not")?.0));
                linked.is_some_and(|linked| linked.split(", ").any(|one| one == *process))
            };
            assert!(
                violations.iter().any(is_named),
                "{used} in {process}: {violations:#?}"
            );
        }
    }
    for (name, processes) in laws::linked_into(programs::workspace()).unwrap() {
        println!("{name:<30} {}", processes.join(", "));
    }
}

once_test!(the_executor_stays_small);
fn the_executor_stays_small() {
    let law = Law::kept(laws::executor_stays_small);
    law.catches(|copy| copy.depend("executor", "tokio.workspace = true"));
    law.catches(|copy| copy.depend("policies", "tokio.workspace = true"));
    law.catches(|copy| copy.depend("executor/layers", "globset.workspace = true"));
}

once_test!(the_shell_stays_small);
fn the_shell_stays_small() {
    let law = Law::kept(laws::the_shell_stays_small);
    law.catches(|copy| copy.depend("orchestrator/results", "schemars.workspace = true"));
    law.catches(|copy| copy.depend("orchestrator/launch", "rustls.workspace = true"));
    law.catches(|copy| copy.depend("policies", "serde-saphyr.workspace = true"));
}

once_test!(lazaret_has_no_network);
fn lazaret_has_no_network() {
    let law = Law::kept(laws::lazaret_has_no_network);
    law.catches(|copy| copy.depend("orchestrator/web", "rustls.workspace = true"));
    law.catches(|copy| copy.depend("orchestrator/http", "orchestrator-gateway.workspace = true"));
}

once_test!(the_executors_dependencies_have_reasons);
fn the_executors_dependencies_have_reasons() {
    let law = Law::kept(laws::executor_dependencies_have_reasons);
    law.catches(|copy| copy.depend("executor/layers", "toml.workspace = true"));
    law.catches(|copy| {
        copy.change("executor/README.md", |text| {
            text.replace("`libc`", "`libd`")
        });
    });
}

once_test!(contracts_name_their_tests);
fn contracts_name_their_tests() {
    let law = Law::kept(laws::contracts_name_their_tests);
    law.catches(|copy| {
        copy.change("executor/layers/src/limits.rs", |text| {
            text.replace("`a_limit_ends", "`no_limit_ends")
        });
    });
}

once_test!(bounds_are_listed);
fn bounds_are_listed() {
    let law = Law::kept(laws::bounds_are_listed);
    law.catches(|copy| copy.write("executor/src/planted.rs", "const PLANTED_MAX: usize = 7;"));
    law.catches(|copy| {
        copy.change("executor/project/src/protected.rs", |text| {
            text.replace(
                "REPOSITORIES_MAX: usize = 512",
                "REPOSITORIES_MAX: usize = 64",
            )
        });
    });
    law.catches(|copy| copy.write("executor/README.md", ""));
    law.allows(|copy| {
        copy.write(
            "executor/src/planted.rs",
            "// const PLANTED_MAX: usize = 7;",
        )
    });
}

once_test!(verdicts_are_no_errors);
fn verdicts_are_no_errors() {
    let law = Law::kept(laws::verdicts_are_no_errors)
        .in_copies_of(&["policies/guard", "executor/supervisor"]);
    for (file, text) in [
        (
            "policies/guard/src",
            "pub fn f() -> Result<Verdict, Errno> {}",
        ),
        (
            "policies/guard/src",
            "pub fn f() -> nix::Result<Verdict> {}",
        ),
        (
            "executor/supervisor/src",
            "fn may_x(&self) -> Result<()> {}",
        ),
        (
            "executor/supervisor/src",
            "fn may_x(\n    &self,\n) -> Option<Errno> {}",
        ),
    ] {
        law.catches(|copy| copy.write(&format!("{file}/planted.rs"), text));
    }
    law.allows(|copy| {
        copy.write(
            "executor/supervisor/src/planted.rs",
            "fn may_x(&self) -> Result<Verdict> { g::<Errno>() }\nfn may_y(&self) -> bool {}",
        );
    });
}

once_test!(rules_are_the_judges);
fn rules_are_the_judges() {
    let law = Law::kept(laws::rules_are_the_judges).in_copies_of(&[
        "executor/supervisor",
        "executor/worker",
        "executor/project",
    ]);
    for (folder, text) in [
        ("supervisor", "fn f() { names.leads_to(path) }"),
        ("worker", "fn f() { Repository::member(name) }"),
        ("project", "fn f() { matcher.closings(path) }"),
        (
            "supervisor",
            "fn f() -> Verdict { Verdict::Refuse(Rule::Name) }",
        ),
    ] {
        law.catches(|copy| copy.write(&format!("executor/{folder}/src/planted.rs"), text));
    }
    law.allows(|copy| {
        copy.write(
            "executor/supervisor/src/planted.rs",
            "fn f() { match v { Verdict::Refuse(rule) => g(rule), Verdict::Allow => h(Verdict::Refuse(Rule::OtherStorage)) } }",
        );
    });
}

once_test!(unsafe_stays_in_sys);
fn unsafe_stays_in_sys() {
    let law = Law::kept(laws::unsafe_stays_in_sys).in_copies_of(&["executor/cell"]);
    law.catches(|copy| copy.write("executor/cell/src/planted.rs", "fn f() { unsafe { g() } }"));
    law.catches(|copy| copy.write("executor/cell/src/sys.rs", "fn f() { unsafe { g() } }"));
    law.catches(|copy| {
        copy.change("executor/cell/src/lib.rs", |text| {
            text.replace("forbid(unsafe_code)", "warn(unsafe_code)")
        });
    });
    law.in_copies_of(&["tests"])
        .catches(|copy| copy.write("tests/tests/planted.rs", "unsafe extern \"C\" {}"));
}

once_test!(the_executor_alone_knows_processors);
fn the_executor_alone_knows_processors() {
    let law = Law::kept(laws::the_executor_alone_knows_processors).in_copies_of(&["policies"]);
    for text in [
        "#[cfg(target_arch = \"x86_64\")]\nfn f() {}",
        "fn f() -> i64 { libc::SYS_openat2 }",
        "fn f(name: *const std::ffi::c_char) {}",
    ] {
        law.catches(|copy| copy.write("policies/src/planted.rs", text));
    }
}

once_test!(advice_to_paste_is_quoted);
fn advice_to_paste_is_quoted() {
    let law = Law::kept(laws::advice::advice_is_quoted).in_copies_of(&["orchestrator/why"]);
    let plant = |line: &str| format!("fn f(path: &str) -> String {{ format!({line:?}) }}");
    for line in [
        "run `git rm -- {path}`",
        "`lazaret run {path}` shows it",
        "--read {path} for this session",
    ] {
        law.catches(|copy| copy.write("orchestrator/why/src/planted.rs", &plant(line)));
    }
}

once_test!(one_file_starts_processes);
fn one_file_starts_processes() {
    let law = Law::kept(laws::one_file_starts_processes).in_copies_of(&[
        "policies",
        "executor",
        "orchestrator",
        "orchestrator/engine",
        "orchestrator/launch",
    ]);
    let plant = |file: &'static str, text: &'static str| move |copy: &Copy| copy.write(file, text);
    law.catches(plant(
        "executor/src/planted.rs",
        "use std::process::Command;",
    ));
    law.catches(plant(
        "executor/src/planted.rs",
        "use std::process::{Child, Command};",
    ));
    law.catches(plant(
        "policies/src/planted.rs",
        "fn f() { nix::unistd::execv(a, b) }",
    ));
    law.catches(plant(
        "orchestrator/src/session/planted.rs",
        "use tokio::process::Command;",
    ));
    law.catches(plant(
        "orchestrator/launch/src/planted.rs",
        "use std::process::Command;",
    ));
    law.catches(plant(
        "orchestrator/engine/src/planted.rs",
        "use std::process::Command;",
    ));
}

once_test!(layers_do_not_depend_on_the_build);
fn layers_do_not_depend_on_the_build() {
    let law = Law::kept(laws::layers_do_not_depend_on_the_build);
    for text in [
        "#[cfg(debug_assertions)]\nfn f() {}",
        "#[cfg(feature = \"soft\")]\nfn f() {}",
        "fn f() { if cfg!(debug_assertions) { return } }",
        "#[cfg(not(test))]\nfn f() {}",
        "#[cfg(test)]\nfn f() {}",
        "fn f() { debug_assert!(false) }",
    ] {
        law.catches(|copy| copy.write("executor/layers/src/planted.rs", text));
    }
    law.allows(|copy| {
        copy.write(
            "executor/layers/src/fine.rs",
            "#[cfg(test)]\nmod tests {}\n#[cfg(target_arch = \"x86_64\")]\nfn f() {}",
        );
    });
}

once_test!(the_switch_for_ablation_stands_alone);
fn the_switch_for_ablation_stands_alone() {
    let law = Law::kept(laws::the_switch_stands_alone);
    let switch = "executor/spec/src/ablation.rs";
    for text in [
        "#[cfg(feature = \"ablation\")]\nfn f() {}",
        "fn f() { std::env::var(\"LAZARET_ABLATE\"); }",
    ] {
        law.catches(|copy| copy.write("executor/cell/src/planted.rs", text));
    }
    law.catches(|copy| {
        copy.change(switch, |text| {
            text.replace("not(debug_assertions)", "not(windows)")
        });
    });
    law.catches(|copy| {
        copy.change(switch, |text| text + "\n#[cfg(test)]\nfn f() {}\n");
    });
    law.catches(|copy| {
        copy.change("executor/spec/Cargo.toml", |text| {
            text.replace("ablation = []", "ablation = []\ndefault = [\"ablation\"]")
        });
    });
    law.catches(|copy| {
        copy.change("orchestrator/wire/Cargo.toml", |text| {
            text.replace("[features]", "[features]\ndefault = [\"schema\"]")
        });
    });
    law.catches(|copy| {
        copy.depend(
            "tests",
            "executor = { path = \"../executor\", features = [\"ablation\"] }",
        );
    });
}

once_test!(the_export_of_spans_is_off_by_default);
fn the_export_of_spans_is_off_by_default() {
    let law = Law::kept(laws::export_is_off_by_default);
    law.catches(|copy| {
        copy.change("orchestrator/Cargo.toml", |text| {
            text.replace("otel = [", "default = [\"otel\"]\notel = [")
        });
    });
    law.catches(|copy| {
        copy.change("orchestrator/telemetry/Cargo.toml", |text| {
            text.replace("otel = [", "default = [\"otel\"]\notel = [")
        });
    });
    law.catches(|copy| copy.write("Cargo.toml", "broken"));
}

once_test!(no_release_has_the_switch);
/// The compiler's own word: with the feature, the file of the switch is an error in a release and only there.
fn no_release_has_the_switch() {
    let errors = |release: bool| {
        let mut rustc = Command::new("rustc");
        rustc.args([
            "--edition",
            "2024",
            "--crate-type",
            "lib",
            "--cfg",
            "feature=\"ablation\"",
        ]);
        rustc.args([
            "-C",
            if release {
                "debug-assertions=no"
            } else {
                "debug-assertions=yes"
            },
        ]);
        rustc.arg("--out-dir").arg(programs::scratch());
        let output = rustc
            .arg(programs::workspace().join("executor/spec/src/ablation.rs"))
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let ours = "no release may have it";
    assert!(errors(true).contains(ours), "{}", errors(true));
    assert!(!errors(false).contains(ours), "{}", errors(false));
}

once_test!(shipped_programs_do_not_know_the_ablation_switch);
/// Shipped programs do not contain the word for the switch, and do not listen to it; test programs do.
fn shipped_programs_do_not_know_the_ablation_switch() {
    let knows = |program: &Path| {
        let bytes = fs::read(program).unwrap();
        memmem::find(&bytes, SWITCH.as_bytes()).is_some()
    };
    assert!(knows(programs::ablation_executor()));
    assert!(!knows(&programs::path("lazaret-executor")));
    let layers = |world: &World| {
        let done = run(
            world
                .lazaret("run")
                .env(SWITCH, "rlimits")
                .args(["--json", "--", "true"]),
            LIMIT,
        );
        let result: serde_json::Value = serde_json::from_str(&done.success()).unwrap();
        result["metadata"]["layers"].to_string()
    };
    assert!(layers(&World::new(Place::any())).contains("rlimits"));
    assert!(!layers(&World::ablated(Place::any(), "rlimits")).contains("rlimits"));
}

const SWITCH: &str = "LAZARET_ABLATE";

once_test!(every_crate_includes_its_readme);
fn every_crate_includes_its_readme() {
    let law = Law::kept(laws::every_crate_includes_its_readme);
    law.catches(|copy| {
        copy.change("broker-protocol/src/lib.rs", |text| {
            text.replace("README.md", "OTHER.md")
        });
    });
}

once_test!(links_of_pages_lead_somewhere);
fn links_of_pages_lead_somewhere() {
    let law = Law::kept(laws::pages::links_lead_somewhere);
    law.catches(|copy| copy.write("README.md", "[a page](orchestrator/NONE.md)"));
    law.catches(|copy| copy.write("README.md", "[a heading](SECURITY.md#none)"));
    law.allows(|copy| {
        copy.write(
            "README.md",
            "```sh\n[a](b)\n```\n[a](SECURITY.md#reporting)",
        )
    });
}

once_test!(walks_lead_somewhere);
fn walks_lead_somewhere() {
    let law = Law::kept(laws::pages::walks_lead_somewhere);
    let renamed = |page, from: &str, to: &str| {
        law.catches(|copy| copy.change(page, |text| text.replace(from, to)));
    };
    renamed("executor/README.md", "`Broker::take`", "`Broker::took`");
    renamed("executor/README.md", "`src/pool.rs`", "`src/pond.rs`");
    renamed(
        "orchestrator/README.md",
        "engine/src/task.rs",
        "engine/src/tusk.rs",
    );
}

once_test!(claims_name_their_tests);
fn claims_name_their_tests() {
    let law = Law::kept(laws::pages::claims_name_their_tests);
    law.catches(|copy| {
        copy.change("SECURITY.md", |text| text + "`no_test_has_this_name`");
    });
    law.catches(|copy| copy.write("SECURITY.md", ""));
    law.catches(|copy| {
        copy.change("README.md", |text| {
            format!("{text}\n| a | {} |\n", "long ".repeat(40))
        });
    });
}

once_test!(media_name_their_encoders_and_tests);
fn media_name_their_encoders_and_tests() {
    let law = Law::kept(laws::pages::media_name_their_encoders_and_tests);
    law.catches(|copy| {
        copy.change("orchestrator/text/src/markdown.rs", |text| {
            text + "pub fn heading(text: &str) -> String { text.into() }\n"
        });
    });
    let page = "orchestrator/text/README.md";
    law.catches(|copy| copy.change(page, |text| text.replace("`fence_is", "`no_fence_is")));
    law.catches(|copy| copy.change(page, |text| text + "| XML | a file | by hand | |\n"));
    law.catches(|copy| copy.write(page, ""));
}

once_test!(no_circles_of_imports);
fn no_circles_of_imports() {
    let law = Law::kept(laws::no_circles).in_small_copies();
    law.catches(|copy| {
        copy.change("policies/guard/src/fold.rs", |text| {
            text + "\nuse crate::names::Matcher;\n"
        });
    });
    law.catches(|copy| {
        copy.write("policies/src/planted.rs", "use super::Channel;");
        copy.change("policies/src/lib.rs", |text| {
            text + "\nmod planted;\nuse planted::x;\n"
        });
    });
    for text in ["mod absent;", "fn ("] {
        law.catches(|copy| copy.write("policies/guard/src/fold.rs", text));
    }
}

once_test!(circles_of_calls_have_reasons);
fn circles_of_calls_have_reasons() {
    let law = Law::kept(laws::circles_of_calls_have_reasons).in_small_copies();
    law.catches(|copy| {
        copy.write(
            "policies/src/planted_a.rs",
            "use super::planted_b::B;\npub struct A;\nimpl A { fn one_call(&self) {} }",
        );
        copy.write(
            "policies/src/planted_b.rs",
            "pub struct B;\nfn f(a: &impl X) { a.one_call() }",
        );
        copy.change("policies/src/lib.rs", |text| {
            text + "\nmod planted_a;\nmod planted_b;\n"
        });
    });
    law.catches(|copy| copy.write("tests/circles.toml", ""));
    law.catches(|copy| {
        copy.change("tests/circles.toml", |text| {
            text + "\"policies: policies/src/a.rs policies/src/b.rs\" = \"gone\"\n"
        });
    });
}

once_test!(crates_stay_small);
fn crates_stay_small() {
    let law = Law::kept(laws::crates_stay_small).in_small_copies();
    law.catches(|copy| {
        copy.change("policies/guard/src/fold.rs", |text| {
            "// line\n".repeat(9_500) + &text
        });
    });
    law.allows(|copy| {
        let tests = format!(
            "#[cfg(test)]\nmod tests {{\n{}}}\n",
            "// line\n".repeat(9_500)
        );
        copy.change("policies/guard/src/fold.rs", |text| text + &tests);
    });
}

once_test!(the_broker_is_built_of_little);
fn the_broker_is_built_of_little() {
    let law = Law::kept(laws::the_broker_is_built_of_little);
    law.catches(|copy| copy.depend("executor", "url.workspace = true"));
    law.catches(|copy| copy.write("Cargo.toml", "broken"));
}

once_test!(tests_add_no_features);
fn tests_add_no_features() {
    let law = Law::kept(laws::tests_add_no_features);
    law.catches(|copy| {
        copy.change("tests/Cargo.toml", |text| {
            text.replace(r#", "test-util""#, "")
        })
    });
    law.catches(|copy| copy.write("Cargo.toml", "broken"));
}

once_test!(names_are_plain);
fn names_are_plain() {
    let law = Law::kept(laws::names_are_plain).in_small_copies();
    for text in [
        "struct Told;",
        "enum Door {}",
        "impl X { fn keep(&self) {} }",
        "mod util {}",
        "fn tidy() {}",
        "mod tests { #[test] fn what_is_refused() {} }",
        "fn (",
    ] {
        law.catches(|copy| copy.write("policies/src/planted.rs", text));
    }
}

once_test!(comments_say_more_than_names);
fn comments_say_more_than_names() {
    let all = laws::filler(programs::workspace()).unwrap();
    assert!(
        all <= FILLER_MAX,
        "{all} doc comments of four words or fewer, and not {FILLER_MAX} at most"
    );
    let copy = Copy::new();
    copy.keep_members(&["policies/guard", "policies/targets", "policies"]);
    let before = laws::filler(&copy.root).unwrap();
    copy.write("policies/src/planted.rs", "/// Its name.\nstruct A {\n    /// The path.\n    path: u8,\n    /// Bytes from the start of the file.\n    at: u8,\n}");
    assert_eq!(laws::filler(&copy.root), Ok(before + 2));
}

once_test!(comments_begin_with_a_statement);
fn comments_begin_with_a_statement() {
    let all = laws::openings(programs::workspace()).unwrap();
    assert!(
        all <= OPENINGS_MAX,
        "{all} doc comments begin with What, Which, Whose, The same or the like, and not {OPENINGS_MAX} at most"
    );
    let copy = Copy::new();
    copy.keep_members(&["policies/guard", "policies/targets", "policies"]);
    let before = laws::openings(&copy.root).unwrap();
    copy.write(
        "policies/src/planted.rs",
        "//! What a file holds.\n/// Whether some rule holds.\nfn a() {}\nstruct B {\n    /// The same of another.\n    at: u8,\n    /// Whether a rule holds.\n    is_held: bool,\n}",
    );
    assert_eq!(laws::openings(&copy.root), Ok(before + 3));
}

once_test!(functions_stay_short);
/// A reader pays for tokens, and not for lines.
fn functions_stay_short() {
    let long = laws::long_functions(programs::workspace(), LONG).unwrap();
    let listed = |name: &String| LONG_FUNCTIONS.contains(&name.as_str());
    let new: Vec<_> = long.iter().filter(|(name, _)| !listed(name)).collect();
    assert!(new.is_empty(), "more than {LONG} tokens: {new:#?}");
    let over: Vec<_> = long.iter().filter(|(_, of)| **of > TOKENS_MAX).collect();
    assert!(over.is_empty(), "more than {TOKENS_MAX} tokens: {over:#?}");
    let copy = Copy::new();
    copy.keep_members(&["policies/guard"]);
    let before = laws::long_functions(&copy.root, LONG).unwrap();
    let body = "a;".repeat(LONG / 2);
    let text = format!("fn one() {{ {body} }}\nfn two() {{ {body} b }}\n");
    copy.write("policies/guard/src/planted.rs", &text);
    let planted = laws::long_functions(&copy.root, LONG).unwrap();
    let new: Vec<_> = planted
        .iter()
        .filter(|(name, _)| !before.contains_key(*name))
        .collect();
    assert_eq!(
        new,
        [(&"policies/guard/src/planted.rs two".to_owned(), &(LONG + 1))]
    );
}

once_test!(a_type_name_has_one_meaning);
/// Prints the names that have several, each with a reason.
fn a_type_name_has_one_meaning() {
    let law = Law::kept(laws::type_names_have_one_meaning);
    let shared = laws::shared_type_names(programs::workspace()).unwrap();
    println!("{} names have several types", shared.len());
    for (name, files) in &shared {
        println!("{name:<24} {}", files.join(" "));
    }
    let file = "policies/src/planted.rs";
    let planted =
        law.after(|copy| copy.write(file, "struct Planted;\nmod one { enum Planted {} }"));
    let seen = format!("`Planted` is of several types: {file} {file}");
    assert_eq!(planted, [seen]);
    let planted = law.after(|copy| {
        copy.change("orchestrator/tools/src/inputs/files.rs", |text| {
            text.replace("pub struct Grep ", "pub struct GrepInput ")
        });
    });
    assert_eq!(planted, ["`Grep` is listed, but of one type at most"]);
    law.allows(|copy| {
        let text = "struct Planted;\n#[cfg(test)]\nmod tests { struct Planted; }";
        copy.write(file, text);
    });
}

once_test!(bool_parameters_have_a_reason);
fn bool_parameters_have_a_reason() {
    let found = laws::bool_parameters(programs::workspace()).unwrap();
    let listed = BOOLS.iter().flat_map(|(_, all)| all.iter().copied());
    let listed: BTreeSet<String> = listed.map(str::to_owned).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "without a reason: {new:#?}");
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "not there any more: {gone:#?}");
    let copy = Copy::new();
    copy.keep_members(&["policies/guard"]);
    let before = laws::bool_parameters(&copy.root).unwrap();
    let planted = "fn one(a: u8, deep: bool) {}\nimpl A { fn two(&self, far: bool) {} fn set_x(x: bool) {} fn y_if(z: bool) {} }\n\
        impl B for A { fn three(is: bool) {} }\ntrait B { fn four(is: bool); }\nfn five(a: Option<bool>) { fn six(is: bool) {} }\n\
        #[cfg(test)]\nmod tests { fn seven(is: bool) {} }";
    copy.write("policies/guard/src/planted.rs", planted);
    let planted = laws::bool_parameters(&copy.root).unwrap();
    let names = planted
        .difference(&before)
        .map(|one| one.rsplit_once(' ').unwrap().1);
    let names: BTreeSet<&str> = names.collect();
    assert_eq!(
        names,
        ["four(is)", "one(deep)", "six(is)", "two(far)"].into()
    );
}

/// Tests that return early, with what some machines lack: their harness counts no test as not run.
const EARLY_RETURNS: [(&str, &str); 4] = [
    (
        "a_name_server_that_changes_its_answer_gets_nobody_elsewhere",
        "namespaces",
    ),
    (
        "a_number_that_was_given_again_is_another_process",
        "`pidfd_getfd`",
    ),
    (
        "policy_file_of_another_owner_is_refused",
        "root, who gives files away",
    ),
    (
        "unlistable_directory_is_closed_and_an_unlistable_root_opens_no_session",
        "a user who is not root, who lists everything",
    ),
];

once_test!(a_test_that_is_not_run_is_counted);
/// And not called passed, as one is that returns.
fn a_test_that_is_not_run_is_counted() {
    let all = laws::early_returns(programs::workspace()).unwrap();
    let known: BTreeSet<&str> = EARLY_RETURNS.iter().map(|(name, _)| *name).collect();
    let found: BTreeSet<&str> = all.keys().map(String::as_str).collect();
    assert_eq!(found, known, "{all:#?}");
    let copy = Copy::new();
    copy.keep_members(&["policies/guard"]);
    copy.write(
        "policies/guard/src/planted.rs",
        "place_test!(a, root_only);\nfn a(place: Place) { if lacks() { return; } }\n\
         mod tests {\n#[tokio::test]\nasync fn b() { local(async { let Some(x) = c() else { return println!(\"none\") }; }) }\n}\n\
         #[test]\nfn d() { let e = || { return }; fn f() { return }; }\nfn g() { return }\n",
    );
    let planted = laws::early_returns(&copy.root).unwrap();
    assert_eq!(planted.into_keys().collect::<Vec<_>>(), ["a", "b"]);
}

once_test!(tests_await_events);
/// Where there is one. Everywhere else a reason is listed.
fn tests_await_events() {
    let law = Law::kept(laws::waits_have_reasons);
    // The small tree has none of the places.
    let small = |copy: &Copy, listed: &str| {
        copy.keep_members(&["policies/guard"]);
        copy.write("tests/waits.toml", listed);
    };
    let planted = "policies/guard/src/planted.rs";
    let waits = "fn a() { std::thread::sleep(b) }\nasync fn c() { tokio::time::sleep(d).await }\n// thread::sleep(e)\n";
    let text = format!("{waits}mod tests {{\n{waits}}}\n");
    let both = format!("\"{planted} a\" = \"it is one\"\n\"{planted} c\" = \"it is one\"\n");
    law.allows(|copy| small(copy, ""));
    law.allows(|copy| {
        small(copy, &both);
        copy.write(planted, &text);
    });
    for listed in [
        "",
        both.lines().next().unwrap(),
        &both.replace("it is one", " "),
    ] {
        law.catches(|copy| {
            small(copy, listed);
            copy.write(planted, &text);
        });
    }
    law.catches(|copy| small(copy, &both));
    law.catches(|copy| small(copy, "broken"));
    law.catches(|copy| {
        small(copy, "");
        let text = "use tokio::time::{Sleep, sleep};\nmod tests {\nasync fn a() {\n    sleep(b).await;\n}\n}\n";
        copy.write(planted, text);
    });
}

once_test!(the_table);
/// The crates that the laws are about.
fn the_table() {
    let root = programs::workspace();
    println!(
        "{:<30} {:>6} {:>8} {:>9}",
        "crate", "lines", "circles", "packages"
    );
    let crates = laws::crates(root).unwrap();
    let mut by_imports = 0;
    for one in &crates {
        let lines = one.lines().unwrap();
        by_imports += one.circles(root, Along::Imports).len();
        if lines > 0 {
            let circles = one.circles(root, Along::ImportsAndCalls).len();
            let packages = one.packages(root).unwrap();
            let packages = packages.map_or_else(String::new, |number| number.to_string());
            println!("{:<30} {lines:>6} {circles:>8} {packages:>9}", one.name);
        }
    }
    let by_calls = laws::circles_of_calls(&crates, root).len();
    println!("circles: {by_imports} by imports, {by_calls} by method calls");
}

once_test!(comments_and_strings_are_no_code);
fn comments_and_strings_are_no_code() {
    let text = "let a = \"unsafe \\\" unsafe\"; // unsafe\n/* unsafe /* unsafe */ unsafe */ let b = r#\"unsafe\"#;\n\
                let c = '\"'; let d: &'static str = \"x\"; let r#type = '\\''; real";
    let code = laws::source::code_only(text);
    assert!(!code.contains("unsafe"), "{code}");
    assert!(
        code.contains("let b") && code.contains("static str") && code.ends_with("real"),
        "{code}"
    );
    assert_eq!(code.lines().count(), text.lines().count());
}

/// A copy of the workspace's sources that may be spoilt.
struct Copy {
    root: PathBuf,
    /// The files that are not as they were.
    written: RefCell<BTreeSet<String>>,
}

/// Copies that no test has: to make one takes longer than most laws.
static FREE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

impl Copy {
    fn new() -> Self {
        let free = FREE.lock().unwrap().pop();
        let root = free.unwrap_or_else(|| {
            let root = programs::scratch().join(format!("tree-{}", unique()));
            copy(programs::workspace(), &root);
            root
        });
        // Cargo writes it where dependencies are planted.
        Self {
            root,
            written: RefCell::new(BTreeSet::from(["Cargo.lock".to_owned()])),
        }
    }

    /// Takes all other crates out of the workspace.
    fn keep_members(&self, members: &[&str]) {
        self.change("Cargo.toml", |text| {
            let line = |line: &str| match line.split('=').next().map(str::trim) {
                Some("members") => format!("members = {members:?}\n"),
                Some("default-members") => String::new(),
                _ => format!("{line}\n"),
            };
            text.lines().map(line).collect()
        });
    }

    fn write(&self, file: &str, text: &str) {
        self.written.borrow_mut().insert(file.to_owned());
        fs::write(self.root.join(file), text).unwrap();
    }

    fn change(&self, file: &str, change: impl Fn(String) -> String) {
        let text = fs::read_to_string(self.root.join(file)).unwrap();
        self.write(file, &change(text));
    }

    /// Adds a line to a crate's dependencies.
    fn depend(&self, member: &str, line: &str) {
        self.change(&format!("{member}/Cargo.toml"), |text| {
            text.replacen("[dependencies]\n", &format!("[dependencies]\n{line}\n"), 1)
        });
    }
}

/// The next test has it as it was.
impl Drop for Copy {
    fn drop(&mut self) {
        for file in self.written.borrow().iter() {
            let (real, copied) = (programs::workspace().join(file), self.root.join(file));
            let restored = if real.exists() {
                fs::copy(real, copied).map(drop)
            } else {
                fs::remove_file(copied)
            };
            if restored.is_err() {
                let _ = fs::remove_dir_all(&self.root);
                return;
            }
        }
        FREE.lock().unwrap().push(self.root.clone());
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        if path.is_dir() && name != "target" && name != ".git" {
            copy(&path, &to.join(name));
        } else if path.is_file() {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}
