//! The laws of the code, each with a planted violation that shows that its check bites.
#![allow(clippy::unwrap_used)]

use lazaret_tests::laws::{self, Violations};
use lazaret_tests::world::unique;
use lazaret_tests::{Place, World, programs, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Checks a law on the real tree.
fn expect_kept(law: fn(&Path) -> Violations) {
    let violations = law(programs::workspace());
    assert!(violations.is_empty(), "\n  {}", violations.join("\n  "));
}

/// Checks that a law sees what `plant` does to a copy of the tree.
fn expect_caught(law: fn(&Path) -> Violations, plant: impl Fn(&Copy)) {
    let copy = Copy::new();
    let before = law(&copy.root);
    plant(&copy);
    let after = law(&copy.root);
    let new: Vec<_> = after.iter().filter(|violation| !before.contains(violation)).collect();
    assert!(!new.is_empty(), "the planted violation was not seen; before: {before:?}, after: {after:?}");
}

#[test]
fn imports_run_downwards() {
    expect_kept(laws::imports_run_downwards);
    expect_caught(laws::imports_run_downwards, |copy| {
        copy.depend("orchestrator", "executor = { path = \"../executor\" }")
    });
    expect_caught(laws::imports_run_downwards, |copy| {
        copy.depend("broker-protocol", "policies.workspace = true")
    });
    expect_caught(laws::imports_run_downwards, |copy| copy.write("Cargo.toml", "broken"));
}

#[test]
fn the_executor_stays_small() {
    expect_kept(laws::executor_stays_small);
    expect_caught(laws::executor_stays_small, |copy| copy.depend("executor", "tokio.workspace = true"));
    expect_caught(laws::executor_stays_small, |copy| copy.depend("policies", "tokio.workspace = true"));
}

#[test]
fn the_executors_dependencies_have_reasons() {
    expect_kept(laws::executor_dependencies_have_reasons);
    expect_caught(laws::executor_dependencies_have_reasons, |copy| {
        copy.depend("executor", "toml.workspace = true")
    });
    expect_caught(laws::executor_dependencies_have_reasons, |copy| {
        copy.change("executor/README.md", |text| text.replace("`libc`", "`libd`"));
    });
}

#[test]
fn contracts_name_their_tests() {
    expect_kept(laws::contracts_name_their_tests);
    expect_caught(laws::contracts_name_their_tests, |copy| {
        copy.change("executor/src/cell/limits.rs", |text| text.replace("`a_limit_ends", "`no_limit_ends"));
    });
}

#[test]
fn unsafe_stays_in_sys() {
    expect_kept(laws::unsafe_stays_in_sys);
    expect_caught(laws::unsafe_stays_in_sys, |copy| {
        copy.write("executor/src/planted.rs", "fn f() { unsafe { g() } }")
    });
    expect_caught(laws::unsafe_stays_in_sys, |copy| {
        copy.write("executor/src/attack/sys.rs", "fn f() { unsafe { g() } }")
    });
    expect_caught(laws::unsafe_stays_in_sys, |copy| {
        copy.write("tests/tests/planted.rs", "unsafe extern \"C\" {}")
    });
}

#[test]
fn one_file_starts_processes() {
    expect_kept(laws::one_file_starts_processes);
    let plant = |file: &'static str, text: &'static str| move |copy: &Copy| copy.write(file, text);
    expect_caught(
        laws::one_file_starts_processes,
        plant("executor/src/planted.rs", "use std::process::Command;"),
    );
    expect_caught(
        laws::one_file_starts_processes,
        plant("executor/src/planted.rs", "use std::process::{Child, Command};"),
    );
    expect_caught(
        laws::one_file_starts_processes,
        plant("policies/src/planted.rs", "fn f() { nix::unistd::execv(a, b) }"),
    );
    expect_caught(
        laws::one_file_starts_processes,
        plant("orchestrator/src/domain/planted.rs", "use tokio::process::Command;"),
    );
}

#[test]
fn layers_do_not_depend_on_the_build() {
    expect_kept(laws::layers_do_not_depend_on_the_build);
    for text in [
        "#[cfg(debug_assertions)]\nfn f() {}",
        "#[cfg(feature = \"soft\")]\nfn f() {}",
        "fn f() { if cfg!(debug_assertions) { return } }",
        "#[cfg(not(test))]\nfn f() {}",
        "#[cfg(test)]\nfn f() {}",
        "fn f() { debug_assert!(false) }",
    ] {
        expect_caught(laws::layers_do_not_depend_on_the_build, |copy| {
            copy.write("executor/src/cell/planted.rs", text)
        });
    }
    let copy = Copy::new();
    let before = laws::layers_do_not_depend_on_the_build(&copy.root);
    copy.write(
        "executor/src/cell/fine.rs",
        "#[cfg(test)]\nmod tests {}\n#[cfg(target_arch = \"x86_64\")]\nfn f() {}",
    );
    assert_eq!(
        laws::layers_do_not_depend_on_the_build(&copy.root),
        before,
        "what is allowed was called a violation"
    );
}

#[test]
fn the_switch_for_ablation_stands_alone() {
    expect_kept(laws::the_switch_stands_alone);
    let switch = "executor/src/cell/ablation.rs";
    for text in ["#[cfg(feature = \"ablation\")]\nfn f() {}", "fn f() { std::env::var(\"LAZARET_ABLATE\"); }"]
    {
        expect_caught(laws::the_switch_stands_alone, |copy| {
            copy.write("executor/src/warden/planted.rs", text)
        });
    }
    expect_caught(laws::the_switch_stands_alone, |copy| {
        copy.change(switch, |text| text.replace("not(debug_assertions)", "not(windows)"));
    });
    expect_caught(laws::the_switch_stands_alone, |copy| {
        copy.change(switch, |text| text + "\n#[cfg(test)]\nfn f() {}\n");
    });
    expect_caught(laws::the_switch_stands_alone, |copy| {
        copy.change("executor/Cargo.toml", |text| {
            text.replace("ablation = []", "ablation = []\ndefault = [\"ablation\"]")
        });
    });
    expect_caught(laws::the_switch_stands_alone, |copy| {
        copy.depend("tests", "executor = { path = \"../executor\", features = [\"ablation\"] }");
    });
}

/// The compiler's own word: with the feature, the file of the switch is an error in a release and only there.
#[test]
fn no_release_has_the_switch() {
    let errors = |release: bool| {
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "--crate-type", "lib", "--cfg", "feature=\"ablation\""]);
        rustc.args(["-C", if release { "debug-assertions=no" } else { "debug-assertions=yes" }]);
        rustc.arg("--out-dir").arg(programs::scratch());
        let output = rustc.arg(programs::workspace().join("executor/src/cell/ablation.rs")).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let ours = "no release may have it";
    assert!(errors(true).contains(ours), "{}", errors(true));
    assert!(!errors(false).contains(ours), "{}", errors(false));
}

/// What is shipped does not know the word for the switch, and does not listen to it; what tests are run with does.
#[test]
fn what_is_shipped_does_not_know_the_switch() {
    let knows = |program: &Path| {
        let bytes = fs::read(program).unwrap();
        bytes.windows(SWITCH.len()).any(|window| window == SWITCH.as_bytes())
    };
    assert!(knows(programs::ablation_executor()));
    assert!(!knows(&programs::path("lazaret-executor")));
    let layers = |world: &World| {
        let done = run(world.lazaret("run").env(SWITCH, "rlimits").args(["--json", "--", "true"]), LIMIT);
        let result: serde_json::Value = serde_json::from_str(&done.success()).unwrap();
        result["metadata"]["layers"].to_string()
    };
    assert!(layers(&World::new(Place::any())).contains("rlimits"));
    assert!(!layers(&World::ablated(Place::any(), "rlimits")).contains("rlimits"));
}

const SWITCH: &str = "LAZARET_ABLATE";
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn every_crate_includes_its_readme() {
    expect_kept(laws::every_crate_includes_its_readme);
    expect_caught(laws::every_crate_includes_its_readme, |copy| {
        copy.change("broker-protocol/src/lib.rs", |text| text.replace("README.md", "OTHER.md"));
    });
}

#[test]
fn comments_and_strings_are_no_code() {
    let text = "let a = \"unsafe \\\" unsafe\"; // unsafe\n/* unsafe /* unsafe */ unsafe */ let b = r#\"unsafe\"#;\n\
                let c = '\"'; let d: &'static str = \"x\"; let r#type = '\\''; real";
    let code = laws::code_only(text);
    assert!(!code.contains("unsafe"), "{code}");
    assert!(code.contains("let b") && code.contains("static str") && code.ends_with("real"), "{code}");
    assert_eq!(code.lines().count(), text.lines().count());
}

/// A copy of the workspace's sources that may be spoilt.
struct Copy {
    root: PathBuf,
}

impl Copy {
    fn new() -> Self {
        let root = programs::scratch().join(format!("tree-{}", unique()));
        copy(programs::workspace(), &root);
        Self { root }
    }

    fn write(&self, file: &str, text: &str) {
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

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
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
