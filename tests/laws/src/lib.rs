#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod advice;
pub mod bool_parameters;
pub mod imports;
pub mod of_tests;
pub mod pages;
pub mod source;
pub mod tokens;
pub mod type_names;
pub mod words;
pub mod workspace;

use imports::{Along, Imports};
use serde_json::Value;
use source::{PerText, code_only, functions, rust_files};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Descriptions of violations; empty if the law holds.
pub type Violations = Vec<String>;

/// Our crates, each with the crates of ours that it may use. A crate that is not listed may use none.
const MAY_USE: &str = "
policies-guard:
policies-targets: broker-protocol policies-guard
policies: broker-protocol policies-guard policies-targets
executor-spec: broker-protocol policies policies-guard executor-sys
executor-layers: broker-protocol policies executor-sys executor-spec
executor-supervisor: broker-protocol policies policies-guard executor-sys executor-spec executor-layers
executor-cell: broker-protocol policies executor-sys executor-spec executor-layers executor-supervisor
executor-handles: broker-protocol policies executor-sys executor-spec executor-layers executor-cell
executor-audit: broker-protocol policies executor-sys
executor-project: broker-protocol policies policies-guard executor-sys executor-spec executor-layers
executor-leases: broker-protocol policies policies-guard executor-sys executor-spec executor-layers executor-project executor-audit
executor-peers: broker-protocol policies executor-sys executor-spec
executor-credentials: broker-protocol policies executor-sys executor-spec executor-layers executor-cell
executor-denials: broker-protocol policies policies-guard executor-spec executor-layers
executor-worker: broker-protocol policies policies-guard executor-sys executor-spec executor-layers
# An ordinary program outside the trusted computing base.
executor-attack:
executor-trace:
executor: broker-protocol policies policies-guard executor-sys executor-spec executor-layers executor-supervisor executor-cell executor-handles
    executor-audit executor-project executor-leases executor-credentials executor-denials executor-peers
orchestrator-text: broker-protocol policies
orchestrator-reach: policies
orchestrator-http: policies orchestrator-reach
orchestrator-confine:
orchestrator-signature:
orchestrator-aws: orchestrator-http
orchestrator-ssh-agent: broker-protocol
orchestrator-effects: broker-protocol policies orchestrator-aws orchestrator-http
orchestrator-framing: orchestrator-reach
orchestrator-logins: broker-protocol orchestrator-effects orchestrator-http orchestrator-reach policies
orchestrator-gateway: orchestrator-aws orchestrator-effects orchestrator-framing orchestrator-logins orchestrator-ssh-agent broker-protocol policies orchestrator-reach orchestrator-http orchestrator-confine
orchestrator-results: broker-protocol policies orchestrator-text
# On a thread of its tests; the program is built without it.
orchestrator-web: orchestrator-gateway broker-protocol policies orchestrator-text orchestrator-reach orchestrator-http orchestrator-keys
    orchestrator-results
orchestrator-engine: broker-protocol policies orchestrator-text orchestrator-confine orchestrator-results
orchestrator-tools: lazaret-fakes broker-protocol policies policies-guard orchestrator-text orchestrator-reach orchestrator-confine orchestrator-results orchestrator-web
    orchestrator-engine
orchestrator-wire: broker-protocol policies orchestrator-text orchestrator-confine orchestrator-results orchestrator-engine
orchestrator-launch: broker-protocol policies orchestrator-text orchestrator-confine orchestrator-engine
orchestrator-run: broker-protocol policies orchestrator-text orchestrator-confine orchestrator-engine orchestrator-wire
    orchestrator-launch
orchestrator-agent: lazaret-fakes broker-protocol policies orchestrator-text orchestrator-http orchestrator-confine orchestrator-results orchestrator-web
    orchestrator-engine orchestrator-wire orchestrator-tools
orchestrator-records: broker-protocol policies orchestrator-text orchestrator-signature orchestrator-launch
orchestrator-config-edit: broker-protocol policies policies-guard orchestrator-text orchestrator-confine orchestrator-launch
orchestrator-lines: broker-protocol policies orchestrator-results orchestrator-engine orchestrator-wire orchestrator-tools
    orchestrator-launch orchestrator-records
orchestrator-mcp-server: broker-protocol orchestrator-text orchestrator-results orchestrator-engine
orchestrator-mcp-client: broker-protocol policies orchestrator-text orchestrator-reach orchestrator-http orchestrator-keys orchestrator-confine
    orchestrator-results orchestrator-web orchestrator-engine orchestrator-tools orchestrator-launch orchestrator-records
    orchestrator-config-edit
orchestrator-hooks: broker-protocol orchestrator-confine orchestrator-results orchestrator-engine orchestrator-tools orchestrator-launch
    orchestrator-records
orchestrator-keys: lazaret-fakes policies orchestrator-text orchestrator-confine orchestrator-http
orchestrator-terminal: broker-protocol policies orchestrator-text orchestrator-confine orchestrator-results orchestrator-engine orchestrator-wire
    orchestrator-launch orchestrator-agent orchestrator-records
orchestrator-serve: broker-protocol policies orchestrator-text orchestrator-http orchestrator-confine orchestrator-engine orchestrator-wire orchestrator-tools
    orchestrator-agent orchestrator-mcp-server orchestrator-mcp-client
orchestrator-telemetry: broker-protocol orchestrator-text orchestrator-http orchestrator-keys orchestrator-web orchestrator-records
orchestrator-doctor: lazaret-fakes broker-protocol policies orchestrator-text orchestrator-confine orchestrator-results orchestrator-engine
    orchestrator-records orchestrator-wire orchestrator-launch
orchestrator-why: broker-protocol policies orchestrator-text orchestrator-confine orchestrator-results orchestrator-engine
    orchestrator-launch
orchestrator-policy: broker-protocol policies policies-guard orchestrator-confine orchestrator-web orchestrator-tools
    orchestrator-launch orchestrator-lines orchestrator-signature orchestrator-config-edit
orchestrator-sandboxd: broker-protocol policies orchestrator-text orchestrator-confine orchestrator-results orchestrator-engine
    orchestrator-launch
orchestrator-acp: broker-protocol policies orchestrator-text orchestrator-confine orchestrator-results orchestrator-engine
    orchestrator-tools orchestrator-launch orchestrator-config-edit
orchestrator: lazaret-fakes broker-protocol policies policies-guard orchestrator-text orchestrator-http orchestrator-confine orchestrator-results
    orchestrator-web orchestrator-engine orchestrator-wire orchestrator-tools orchestrator-launch orchestrator-run orchestrator-agent
    orchestrator-records orchestrator-config-edit orchestrator-lines orchestrator-mcp-server orchestrator-mcp-client orchestrator-hooks
    orchestrator-keys orchestrator-terminal orchestrator-serve orchestrator-telemetry orchestrator-doctor orchestrator-why
    orchestrator-sandboxd orchestrator-acp orchestrator-signature orchestrator-policy
# `policies` and its guard are used to fuzz their parsers, the last two for the features that other crates' tests want of them; the
# programs are tested from outside.
lazaret-kernels: lazaret-tests
lazaret-fakes: broker-protocol
lazaret-laws:
lazaret-tests: lazaret-fakes lazaret-laws broker-protocol policies policies-guard orchestrator-confine orchestrator-gateway
";

/// Programs, and the processes that are forks of the broker and run the code of one crate: the session's warden and its cells.
const PROCESSES: [(&str, &str); 8] = [
    ("broker", "executor"),
    ("cell", "executor-cell"),
    ("worker", "executor-worker"),
    ("attack", "executor-attack"),
    ("trace", "executor-trace"),
    ("lazaret", "orchestrator"),
    ("shell", "orchestrator-run"),
    ("gateway", "orchestrator-gateway"),
];

/// Our crates that are linked into more than `lazaret`, each with the processes that it is linked into: what a process can do is what it links.
/// That `policies` is linked into cells is left to end: their supervisors judge names by it.
const LINKED_INTO: &str = "
broker-protocol: broker cell worker lazaret shell gateway
policies-guard: broker cell worker lazaret shell gateway
policies-targets: broker cell worker lazaret shell gateway
policies: broker cell worker lazaret shell gateway
executor-sys: broker cell worker
executor-spec: broker cell worker
executor-layers: broker cell worker
executor-supervisor: broker cell
executor-cell: broker cell
executor-handles: broker
executor-audit: broker
executor-project: broker
executor-leases: broker
executor-credentials: broker
executor-denials: broker
executor-peers: broker
executor: broker
executor-worker: worker
executor-attack: attack
executor-trace: trace
orchestrator-reach: lazaret gateway
orchestrator-http: lazaret gateway
orchestrator-confine: lazaret shell gateway
orchestrator-text: lazaret shell
orchestrator-results: lazaret shell
orchestrator-engine: lazaret shell
orchestrator-wire: lazaret shell
orchestrator-launch: lazaret shell
orchestrator-run: lazaret shell
orchestrator-aws: gateway
orchestrator-ssh-agent: gateway
orchestrator-effects: gateway
orchestrator-framing: gateway
orchestrator-logins: gateway
orchestrator-gateway: gateway
";

/// Maximum lines of a crate before its tests, as the formatter leaves them. An alarm: a crate belongs to one process, and is divided where
/// a border is.
const LINES_MAX: usize = 10_000;
/// Maximum number of other people's packages that the broker is built from.
const BROKER_PACKAGES_MAX: usize = 36;

/// What the broker must be built without: async runtimes and thread pools, the network, and search, which belongs to the file worker.
const NOT_IN_EXECUTOR: &str = "tokio mio async-std smol futures rayon reqwest hyper ureq rustls openssl curl globset ignore regex-automata";

/// What `lazaret` must be built without: what encrypts connections, finds hosts, or speaks to them by more than the protocol to its
/// gateway. `rmcp` brings `reqwest` for its logins, without TLS; ours go by way of the gateway. `sandboxd` brings HTTP/2, to accept it.
const NOT_IN_LAZARET: &str = "hickory-resolver native-tls openssl orchestrator-gateway ring rustls rustls-platform-verifier tokio-rustls ureq";

/// What the small front end (`lazaret-bash`) must be built without: schemas, TLS, HTTP, YAML, HTML, editors of settings, D-Bus. Agents
/// start it for each of their commands.
const NOT_IN_SHELL: &str = "cssparser html5gum hyper jsonc-parser jsonschema regex-automata reqwest ring rmcp rustls schemars selectors serde-saphyr tungstenite toml_edit tracing-subscriber unicode-segmentation url zbus";

/// The programs of the executor: the folder whose README gives reasons for dependencies, and the crates it covers.
const DEPENDENCIES: [(&str, &[&str]); 4] = [
    (
        "executor",
        &[
            "executor",
            "executor/sys",
            "executor/spec",
            "executor/layers",
            "executor/supervisor",
            "executor/cell",
            "executor/handles",
            "executor/project",
            "executor/leases",
            "executor/credentials",
            "executor/denials",
            "executor/peers",
        ],
    ),
    ("executor/worker", &["executor/worker"]),
    ("executor/attack", &["executor/attack"]),
    ("executor/trace", &["executor/trace"]),
];

/// Imports between our crates run only downwards.
pub fn imports_run_downwards(root: &Path) -> Violations {
    let packages = match packages(root) {
        Ok(packages) => packages,
        Err(error) => return vec![error],
    };
    let ours: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    let may_use = rows(MAY_USE);
    let mut violations = Violations::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        let allowed = may_use.get(name).map_or(&[][..], Vec::as_slice);
        for used in dependencies(package).keys() {
            if ours.contains(used.as_str()) && !allowed.contains(&used.as_str()) {
                violations.push(format!("{name} depends on {used}"));
            }
        }
    }
    violations
}

/// Each crate of ours is linked into the processes of `LINKED_INTO` and no others; those of the orchestrator only into `lazaret`.
pub fn crates_belong_to_processes(root: &Path) -> Violations {
    let linked = match linked_into(root) {
        Ok(linked) => linked,
        Err(error) => return vec![error],
    };
    let listed = rows(LINKED_INTO);
    let mut violations = Violations::new();
    for (name, processes) in &linked {
        // Those of tests are linked into nothing.
        let unlisted: &[&str] = if name.starts_with("lazaret-") {
            &[]
        } else {
            &["lazaret"]
        };
        let allowed = listed.get(&**name).map_or(unlisted, Vec::as_slice);
        if processes != allowed {
            violations.push(format!(
                "{name} is linked into {}, and not into {}",
                processes.join(", "),
                allowed.join(", ")
            ));
        }
    }
    let is_unlinked = |name: &&&str| !linked.contains_key(**name);
    violations.extend(
        listed
            .keys()
            .filter(is_unlinked)
            .map(|name| format!("{name} is linked into nothing")),
    );
    violations
}

/// Our crates, each with the processes that it is linked into.
///
/// # Errors
/// If cargo fails.
pub fn linked_into(root: &Path) -> Result<BTreeMap<String, Vec<&'static str>>, String> {
    let ours: BTreeSet<String> = packages(root)?
        .iter()
        .filter_map(|package| Some(package["name"].as_str()?.to_owned()))
        .collect();
    let mut linked: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (process, top) in PROCESSES {
        for package in packages_of(root, top)? {
            let name = package.split(' ').next().unwrap_or_default();
            if ours.contains(name) {
                linked.entry(name.to_owned()).or_default().push(process);
            }
        }
    }
    Ok(linked)
}

/// A crate of the workspace: a library, a program, or a suite of tests.
#[derive(Debug)]
pub struct Crate {
    /// Name of the package, and of the program or suite if the package has several crates.
    pub name: String,
    package: String,
    is_suite: bool,
    imports: Imports,
}

/// Every crate of the workspace.
///
/// # Errors
/// If something cannot be read.
pub fn crates(root: &Path) -> Result<Vec<Crate>, String> {
    let mut crates = Vec::new();
    for package in packages(root)? {
        let package_name = package["name"].as_str().unwrap_or_default().to_owned();
        let targets = package["targets"].as_array().cloned().unwrap_or_default();
        let several = targets
            .iter()
            .filter(|target| is_of_kind(target, &["lib", "bin"]))
            .count()
            > 1;
        for target in targets
            .iter()
            .filter(|target| is_of_kind(target, &["lib", "bin", "test"]))
        {
            let is_suite = is_of_kind(target, &["test"]);
            let name = match several && !is_of_kind(target, &["lib"]) || is_suite {
                true => format!(
                    "{package_name} {}",
                    target["name"].as_str().unwrap_or_default()
                ),
                false => package_name.clone(),
            };
            let imports =
                Imports::read(Path::new(target["src_path"].as_str().unwrap_or_default()))?;
            crates.push(Crate {
                name,
                package: package_name.clone(),
                is_suite,
                imports,
            });
        }
    }
    Ok(crates)
}

fn is_of_kind(target: &Value, kinds: &[&str]) -> bool {
    let of = target["kind"].as_array().into_iter().flatten();
    of.filter_map(Value::as_str)
        .any(|kind| kinds.contains(&kind))
}

impl Crate {
    /// Lines of its files before their tests; 0 for a suite.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn lines(&self) -> Result<usize, String> {
        let lines = |file: &PathBuf| {
            let text =
                fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()));
            text.map(|text| before_tests(&text).lines().count())
        };
        self.imports
            .files()
            .iter()
            .filter(|_| !self.is_suite)
            .map(lines)
            .sum()
    }

    /// Circles of files along some edges, each as its files below `root`.
    pub fn circles(&self, root: &Path, along: Along) -> Vec<String> {
        let short = |file: &&Path| {
            file.strip_prefix(root)
                .unwrap_or(file)
                .display()
                .to_string()
        };
        let named = |circle: &Vec<&Path>| {
            let mut files: Vec<String> = circle.iter().map(short).collect();
            files.sort();
            files.join(" ")
        };
        self.imports.circles(along).iter().map(named).collect()
    }

    /// The number of packages it is built from, including itself, if it is a process: to list those of every crate takes as long as all
    /// laws.
    ///
    /// # Errors
    /// If cargo fails.
    pub fn packages(&self, root: &Path) -> Result<Option<usize>, String> {
        let is_process = PROCESSES.iter().any(|(_, top)| *top == self.package);
        let packages = is_process.then(|| packages_of(root, &self.package));
        packages.transpose().map(|packages| Some(packages?.len()))
    }
}

/// The part of a file before the tests at its end.
fn before_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod ")
        .map_or(text, |end| &text[..end])
}

/// No circular imports between the files of a crate.
pub fn no_circles(root: &Path) -> Violations {
    let circles = |one: &Crate| {
        one.circles(root, Along::Imports)
            .into_iter()
            .map(|files| format!("circle in {}: {files}", one.name))
            .collect::<Vec<_>>()
    };
    or_error(crates(root).map(|crates| crates.iter().flat_map(circles).collect()))
}

/// Files call each other's methods in a circle only where `tests/circles.toml` says why. Only crates that are there are compared, so
/// that a copy of some can be checked.
pub fn circles_of_calls_have_reasons(root: &Path) -> Violations {
    let crates = match crates(root) {
        Ok(crates) => crates,
        Err(error) => return vec![error],
    };
    let listed = match reasons(root, "tests/circles.toml") {
        Ok(listed) => listed,
        Err(error) => return vec![format!("tests/circles.toml: {error}")],
    };
    let found: BTreeSet<String> = circles_of_calls(&crates, root);
    let is_here = |circle: &&String| {
        let name = circle.split(':').next().unwrap_or_default();
        crates.iter().any(|one| one.name == name)
    };
    let new = found.iter().filter(|circle| !listed.contains_key(*circle));
    let new = new.map(|circle| format!("tests/circles.toml has no reason for: {circle}"));
    let stale = listed.keys().filter(|circle| !found.contains(*circle));
    let stale = stale
        .filter(is_here)
        .map(|circle| format!("in tests/circles.toml only: {circle}"));
    let silent = listed.iter().filter(|(_, why)| why.trim().is_empty());
    let silent = silent.map(|(circle, _)| format!("tests/circles.toml has no reason: {circle}"));
    new.chain(stale).chain(silent).collect()
}

/// Circles that there are only because method calls are counted, each as its crate and files.
pub fn circles_of_calls(crates: &[Crate], root: &Path) -> BTreeSet<String> {
    let circles = |one: &Crate| {
        let by_imports = one.circles(root, Along::Imports);
        let all = one.circles(root, Along::ImportsAndCalls).into_iter();
        all.filter(|files| !by_imports.contains(files))
            .map(|files| format!("{}: {files}", one.name))
            .collect::<Vec<_>>()
    };
    crates.iter().flat_map(circles).collect()
}

/// No crate is larger than a person can keep in mind.
pub fn crates_stay_small(root: &Path) -> Violations {
    let large = |one: &Crate| match one.lines() {
        Ok(lines) if lines <= LINES_MAX => None,
        Ok(lines) => Some(format!(
            "{} has {lines} lines, and not {LINES_MAX} at most",
            one.name
        )),
        Err(error) => Some(error),
    };
    or_error(crates(root).map(|crates| crates.iter().filter_map(large).collect()))
}

/// The broker is built from few packages.
pub fn the_broker_is_built_of_little(root: &Path) -> Violations {
    let many = |count: usize| {
        format!(
            "executor is built of {count} packages of others, and not of {BROKER_PACKAGES_MAX} at most"
        )
    };
    let foreign = || {
        let own: BTreeSet<String> = packages(root)?
            .iter()
            .filter_map(|package| Some(package["name"].as_str()?.to_owned()))
            .collect();
        let is_foreign = |package: &&String| {
            let name = package.split(' ').next().unwrap_or_default();
            !own.contains(name)
        };
        let all = packages_of(root, "executor")?;
        Ok(all.iter().filter(is_foreign).count())
    };
    or_error(foreign().map(|count| {
        (count > BROKER_PACKAGES_MAX)
            .then(|| many(count))
            .into_iter()
            .collect()
    }))
}

/// Tests need no features that the workspace's programs lack: packages with other features, and all above them, are compiled twice.
pub fn tests_add_no_features(root: &Path) -> Violations {
    let trees = features(root, "normal,build")
        .and_then(|built| Ok((built, features(root, "normal,build,dev")?)));
    or_error(trees.map(|(built, tested)| {
        let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        let names: BTreeSet<String> = built.iter().map(|line| name(line)).collect();
        let more = tested
            .difference(&built)
            .filter(|line| names.contains(&name(line)));
        more.map(|line| format!("only tests want `{line}`: name it in tests/Cargo.toml, too"))
            .collect()
    }))
}

/// The packages of the workspace, each with a version and its features.
fn features(root: &Path, edges: &str) -> Result<BTreeSet<String>, String> {
    let words = [
        "tree",
        "--workspace",
        "--edges",
        edges,
        "--prefix",
        "none",
        "--format",
        "{p} {f}",
        "--offline",
    ];
    let listed = cargo(root, &words)?;
    Ok(listed
        .lines()
        .map(|line| line.trim_end_matches(" (*)").trim_end().to_owned())
        .collect())
}

fn or_error(violations: Result<Violations, String>) -> Violations {
    violations.unwrap_or_else(|error| vec![error])
}

/// No item has a name from the list in [`words`].
pub fn names_are_plain(root: &Path) -> Violations {
    or_error(words::of(root, &sources(root)).map(|found| found.banned))
}

/// The number of doc comments in the workspace that only repeat a name.
///
/// # Errors
/// If a file cannot be read.
pub fn filler(root: &Path) -> Result<usize, String> {
    words::of(root, &sources(root)).map(|found| found.filler)
}

/// The number of doc comments in the workspace that begin like a riddle: see [`words`].
///
/// # Errors
/// If a file cannot be read.
pub fn openings(root: &Path) -> Result<usize, String> {
    words::of(root, &sources(root)).map(|found| found.openings)
}

/// A name is of several types only with a reason: see [`type_names`].
pub fn type_names_have_one_meaning(root: &Path) -> Violations {
    or_error(type_names::violations(root, &sources(root)))
}

/// The parameters of type `bool` in the products' code, as `file: function(parameter)`.
///
/// # Errors
/// If a file cannot be read.
pub fn bool_parameters(root: &Path) -> Result<BTreeSet<String>, String> {
    bool_parameters::found(root, &sources(root))
}

/// The names that several types of the workspace have, each with their files.
///
/// # Errors
/// If a file cannot be read.
pub fn shared_type_names(root: &Path) -> Result<type_names::SharedNames, String> {
    type_names::shared(root, &sources(root))
}

/// Tests that return early, by name with their file.
///
/// # Errors
/// If a file cannot be read.
pub fn early_returns(root: &Path) -> Result<BTreeMap<String, String>, String> {
    of_tests::early_returns(root, &sources(root))
}

/// Where tests wait for a time, `tests/waits.toml` says why, and nowhere else.
pub fn waits_have_reasons(root: &Path) -> Violations {
    let listed = match reasons(root, "tests/waits.toml") {
        Ok(listed) => listed,
        Err(error) => return vec![format!("tests/waits.toml: {error}")],
    };
    let found = match of_tests::waits(root, &sources(root)) {
        Ok(found) => found,
        Err(error) => return vec![error],
    };
    let new = found.iter().filter(|place| !listed.contains_key(*place));
    let new =
        new.map(|place| format!("waits for a time, and tests/waits.toml has no reason: {place}"));
    let stale = listed.keys().filter(|place| !found.contains(*place));
    let stale = stale.map(|place| format!("in tests/waits.toml only: {place}"));
    let silent = listed.iter().filter(|(_, why)| why.trim().is_empty());
    let silent = silent.map(|(place, _)| format!("tests/waits.toml has no reason: {place}"));
    new.chain(stale).chain(silent).collect()
}

/// A list of places or the like, each with the reason why it may be so.
fn reasons(root: &Path, file: &str) -> Result<BTreeMap<String, String>, String> {
    let text = fs::read_to_string(root.join(file)).map_err(|error| error.to_string())?;
    toml::from_str(&text).map_err(|error| error.to_string())
}

/// Functions with more than `min` tokens, each by its file and name.
///
/// # Errors
/// If something cannot be read.
pub fn long_functions(root: &Path, min: usize) -> Result<BTreeMap<String, usize>, String> {
    tokens::above(root, &sources(root), min)
}

/// Every Rust file of the workspace, without duplicates: a member may lie inside another.
fn sources(root: &Path) -> BTreeSet<PathBuf> {
    members(root)
        .iter()
        .flat_map(|member| rust_files(&root.join(member)))
        .collect()
}

/// Names and versions of the packages that a package is built from.
fn packages_of(root: &Path, package: &str) -> Result<BTreeSet<String>, String> {
    let listed = cargo(
        root,
        &[
            "tree",
            "--package",
            package,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--offline",
        ],
    )?;
    let named = |line: &str| {
        line.split_whitespace()
            .take(2)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let packages: BTreeSet<String> = listed
        .lines()
        .filter(|line| !line.is_empty())
        .map(named)
        .collect();
    let itself = |name: &String| name.split(' ').next() == Some(package);
    if packages.iter().any(itself) {
        Ok(packages)
    } else {
        Err(format!("cargo tree does not list {package}"))
    }
}

/// Nothing below the broker is async, threaded, on the network, or searches.
pub fn executor_stays_small(root: &Path) -> Violations {
    built_without(root, "executor", NOT_IN_EXECUTOR)
}

/// Nothing below the small front end speaks with models, or parses what they and the web send.
pub fn the_shell_stays_small(root: &Path) -> Violations {
    built_without(root, "orchestrator-run", NOT_IN_SHELL)
}

/// Nothing below `lazaret` makes a connection.
pub fn lazaret_has_no_network(root: &Path) -> Violations {
    built_without(root, "orchestrator", NOT_IN_LAZARET)
}

fn built_without(root: &Path, program: &str, banned: &str) -> Violations {
    let packages = match packages_of(root, program) {
        Ok(packages) => packages,
        Err(error) => return vec![error],
    };
    let named = |name: &&str| {
        packages
            .iter()
            .any(|package| package.split(' ').next() == Some(*name))
    };
    banned
        .split_whitespace()
        .filter(named)
        .map(|name| format!("{program} is built with {name}"))
        .collect()
}

/// The dependencies of the executor's programs are those in the tables of their READMEs, each with a reason; build dependencies are
/// named there too.
pub fn executor_dependencies_have_reasons(root: &Path) -> Violations {
    DEPENDENCIES
        .iter()
        .flat_map(|(page, crates)| dependencies_without_reason(root, page, crates))
        .collect()
}

fn dependencies_without_reason(root: &Path, folder: &str, crates: &[&str]) -> Violations {
    let mut manifests = Vec::new();
    for member in crates {
        let text = fs::read_to_string(root.join(member).join("Cargo.toml")).unwrap_or_default();
        match text.parse::<toml::Table>() {
            Ok(manifest) if !manifest.is_empty() => manifests.push(manifest),
            _ => return vec![format!("{member}/Cargo.toml cannot be read")],
        }
    }
    let names = |section: &str| -> BTreeSet<String> {
        let tables = manifests
            .iter()
            .filter_map(|manifest| manifest.get(section)?.as_table());
        let names = tables.flat_map(|table| table.keys().cloned());
        names
            .filter(|name| !name.starts_with("executor-"))
            .collect()
    };
    let readme = fs::read_to_string(root.join(folder).join("README.md")).unwrap_or_default();
    let page = readme
        .split("\n## ")
        .find(|part| part.starts_with("Dependencies\n"))
        .unwrap_or_default();
    let (used, reasons) = (names("dependencies"), table(page));
    if used.is_empty() || reasons.is_empty() {
        return vec![format!(
            "{folder}: no dependencies, or no table of them in README.md under `Dependencies`"
        )];
    }
    let mut violations = Violations::new();
    let mut complain =
        |name: &str, what: &str| violations.push(format!("{name}: {what} ({folder}/README.md)"));
    for name in &used {
        match reasons.get(name) {
            None => complain(name, "used without a reason"),
            Some(why) if why.len() < 5 => complain(name, "that is no reason"),
            Some(_) => {}
        }
    }
    reasons
        .keys()
        .filter(|name| !used.contains(*name))
        .for_each(|name| complain(name, "a reason, but it is not used"));
    let builders = names("build-dependencies");
    builders
        .iter()
        .filter(|name| !page.contains(&format!("`{name}`")))
        .for_each(|name| complain(name, "builds it unnamed"));
    violations
}

/// `unsafe` is only in one file of each crate: `src/sys.rs`, or `src/bin/PROGRAM/sys.rs` of a program that is its own crate. The
/// executor has a crate for it, and all its other crates forbid it.
pub fn unsafe_stays_in_sys(root: &Path) -> Violations {
    let is_sys = |path: &Path| {
        if path.starts_with(root.join("executor/sys/src")) {
            return true;
        }
        let below = |member: &String| path.strip_prefix(root.join(member)).ok();
        members(root)
            .iter()
            .filter(|member| !forbids_unsafe(member))
            .filter_map(below)
            .any(|path| {
                let names: Vec<_> = path.iter().filter_map(|name| name.to_str()).collect();
                matches!(names[..], ["src", "sys.rs"] | ["src", "bin", _, "sys.rs"])
            })
    };
    let check = |path: &Path, code: &str| {
        if is_sys(path) {
            Vec::new()
        } else {
            lines_with_word(code, "unsafe")
        }
    };
    let mut violations = scan(root, &members(root), check);
    for member in members(root).iter().filter(|member| forbids_unsafe(member)) {
        let folder = root.join(member).join("src");
        let top = ["lib.rs", "main.rs"]
            .iter()
            .find_map(|name| fs::read_to_string(folder.join(name)).ok());
        if !top.is_some_and(|text| text.contains("#![forbid(unsafe_code)]")) {
            violations.push(format!("{member} does not forbid unsafe code"));
        }
    }
    violations
}

/// Whether a crate must make the compiler refuse `unsafe`. The self-attack is an ordinary program with a file for it.
fn forbids_unsafe(member: &str) -> bool {
    member.starts_with("executor") && !matches!(member, "executor/sys" | "executor/attack")
}

/// Only the executor's crates, which are compiled for each processor before a change is taken, depend on the processor.
pub fn the_executor_alone_knows_processors(root: &Path) -> Violations {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let knows =
        |word: &str| matches!(word, "target_arch" | "asm" | "c_char") || word.starts_with("SYS_");
    let check = |_: &Path, code: &str| {
        let named = code
            .lines()
            .enumerate()
            .filter(|(_, line)| line.split(|c| !is_part(c)).any(knows));
        named.map(|(number, _)| number + 1).collect()
    };
    let others = members(root)
        .into_iter()
        .filter(|member| !member.starts_with("executor") && !member.starts_with("tests"));
    let sources: Vec<String> = others.map(|member| format!("{member}/src")).collect();
    scan(root, &sources, check)
}

/// The files that may start a program: one of the orchestrator's, and those of the tracer, which starts the command in its cell.
const STARTERS: [&str; 3] = [
    "orchestrator/launch/src/start.rs",
    "executor/trace/src/main.rs",
    "executor/trace/src/trace.rs",
];

/// Only one file of the orchestrator, and the executor's own system calls, start processes.
pub fn one_file_starts_processes(root: &Path) -> Violations {
    let starts = |path: &Path, code: &str| {
        if STARTERS.iter().any(|file| path.ends_with(file)) {
            return Vec::new();
        }
        let own_calls = path.ends_with("executor/sys/src/spawn.rs");
        let named = before_tests(code)
            .lines()
            .enumerate()
            .filter(|(_, line)| names_command(line) || !own_calls && names_exec(line));
        named.map(|(number, _)| number + 1).collect()
    };
    let shipped = members(root)
        .into_iter()
        .filter(|member| !Path::new(member).starts_with("tests"));
    let sources: Vec<String> = shipped.map(|member| format!("{member}/src")).collect();
    scan(root, &sources, starts)
}

/// The layers are the same in every build: they contain no `cfg` of debug, feature or test except around a file's tests.
pub fn layers_do_not_depend_on_the_build(root: &Path) -> Violations {
    let check = |path: &Path, code: &str| match path.ends_with(SWITCH) {
        true => Vec::new(),
        false => conditional_lines(code),
    };
    scan(root, &[LAYERS.into(), SPEC.into()], check)
}

/// The folders of the layers and of what they are given, and the file of the switch that disables one.
const LAYERS: &str = "executor/layers/src";
const SPEC: &str = "executor/spec/src";
const SWITCH: &str = "executor/spec/src/ablation.rs";

/// The only switch for layer ablation: a feature that nothing enables, in one file, which does not compile in a release build.
pub fn the_switch_stands_alone(root: &Path) -> Violations {
    let mut violations = Violations::new();
    for member in members(root) {
        let manifest =
            fs::read_to_string(root.join(&member).join("Cargo.toml")).unwrap_or_default();
        let Ok(manifest) = manifest.parse::<toml::Table>() else {
            violations.push(format!("{member}/Cargo.toml cannot be read"));
            continue;
        };
        let features = manifest
            .get("features")
            .map(ToString::to_string)
            .unwrap_or_default();
        let wanted = match member.as_str() {
            "executor" => "{ ablation = [\"executor-spec/ablation\"] }",
            "executor/spec" => "{ ablation = [] }",
            "orchestrator" => "{ otel = [\"orchestrator-telemetry/otel\"] }",
            // The small front end links the types without their schemas.
            "orchestrator/results" | "orchestrator/engine" => "{ schema = [\"dep:schemars\"] }",
            // Proofs of confinement and a gateway that serves every host, for tests alone (`orchestrator/tests/architecture.rs`).
            "orchestrator/confine" | "orchestrator/gateway" => "{ test-support = [] }",
            "orchestrator/wire" => {
                "{ schema = [\"dep:schemars\", \"orchestrator-results/schema\", \"orchestrator-engine/schema\"] }"
            }
            _ => "",
        };
        let is_export = member == EXPORT && !features.contains("default");
        if features != wanted && !is_export {
            violations.push(format!(
                "{member}: features {features:?}, and not {wanted:?}"
            ));
        }
        if manifest
            .get("dependencies")
            .is_some_and(|used| used.to_string().contains("ablation"))
        {
            violations.push(format!("{member} turns the switch on"));
        }
        for file in rust_files(&root.join(&member))
            .iter()
            .filter(|file| !file.starts_with(root.join("tests")))
        {
            let text = fs::read_to_string(file).unwrap_or_default();
            let names = ["feature = \"ablation\"", "LAZARET_ABLATE"]
                .iter()
                .any(|name| text.contains(name));
            if names && !file.ends_with(SWITCH) {
                violations.push(format!("{}: it knows the switch", file.display()));
            }
        }
    }
    let switch = fs::read_to_string(root.join(SWITCH)).unwrap_or_default();
    const CONDITIONS: [&str; 3] = [
        "#[cfg(all(feature = \"ablation\", not(debug_assertions)))]\ncompile_error!(",
        "#[cfg(not(feature = \"ablation\"))]\nmod switch {",
        "#[cfg(feature = \"ablation\")]\nmod switch {",
    ];
    let kept = CONDITIONS
        .iter()
        .filter(|condition| switch.contains(**condition))
        .count();
    if kept != CONDITIONS.len() || conditional_lines(&code_only(&switch)).len() != CONDITIONS.len()
    {
        violations.push(format!("{SWITCH}: its conditions are not {CONDITIONS:?}"));
    }
    violations
}

/// The crate that exports spans, which is behind a feature.
const EXPORT: &str = "orchestrator/telemetry";

/// The default build links nothing that exports spans: that would be fourteen packages, and a way out of the machine.
pub fn export_is_off_by_default(root: &Path) -> Violations {
    let linked = |packages: BTreeSet<String>| {
        let found = packages
            .iter()
            .filter(|package| package.contains("opentelemetry"));
        found
            .map(|package| format!("orchestrator is built with {package}"))
            .collect()
    };
    or_error(packages_of(root, "orchestrator").map(linked))
}

/// The tests that a layer's contract names after *Tested by* exist, in the suites or in the crate.
pub fn contracts_name_their_tests(root: &Path) -> Violations {
    let tests = functions(root, &["tests/tests", "executor"]);
    let mut violations = Violations::new();
    for file in rust_files(&root.join(LAYERS)) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let contract: String = text
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .collect();
        let Some((_, named)) = contract.split_once("*Tested by*:") else {
            continue;
        };
        let names = named
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| !name.contains(['*', '-']));
        let missing = names.filter(|name| !tests.contains(*name));
        violations.extend(missing.map(|name| format!("{}: no test `{name}`", file.display())));
    }
    violations
}

/// The table of bounds in the executor's README has each constant `…_MAX` of the trusted crates with its value, and no other.
pub fn bounds_are_listed(root: &Path) -> Violations {
    let readme = fs::read_to_string(root.join("executor/README.md")).unwrap_or_default();
    let table = readme
        .split_once("<!-- bounds")
        .and_then(|(_, rest)| rest.split_once("<!-- /bounds"));
    let Some((table, _)) = table else {
        return vec!["executor/README.md has no table of bounds".into()];
    };
    let rows = table.lines().filter_map(|line| {
        let mut cells = line
            .split('|')
            .map(|cell| cell.trim().trim_matches('`').to_owned())
            .skip(1);
        let bound = [cells.next()?, cells.next()?, cells.next()?];
        (bound[1].ends_with("_MAX")).then_some(bound)
    });
    let listed: BTreeSet<[String; 3]> = rows.collect();
    let mut found = BTreeSet::new();
    for folder in ["executor", "policies", "broker-protocol"] {
        for file in rust_files(&root.join(folder)) {
            let name = file
                .strip_prefix(root)
                .unwrap_or(&file)
                .display()
                .to_string();
            if name.contains("/src/") {
                let text = fs::read_to_string(&file).unwrap_or_default();
                found.extend(
                    bounds_of(&text)
                        .into_iter()
                        .map(|[bound, value]| [name.clone(), bound, value]),
                );
            }
        }
    }
    let row = |bound: &[String; 3]| format!("{} {} = {}", bound[0], bound[1], bound[2]);
    let missing = found
        .difference(&listed)
        .map(|bound| format!("not in the table of bounds: {}", row(bound)));
    let stale = listed
        .difference(&found)
        .map(|bound| format!("in the table of bounds only: {}", row(bound)));
    missing.chain(stale).collect()
}

/// The constants `…_MAX` of a file, each with its value.
fn bounds_of(text: &str) -> Vec<[String; 2]> {
    let code = code_only(text);
    let each = code.split("const ").skip(1).filter_map(|rest| {
        let (head, value) = rest.split_once(';')?.0.split_once('=')?;
        let name = head.split_once(':')?.0.trim();
        let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        (name.ends_with("_MAX")).then(|| [name.to_owned(), value])
    });
    each.collect()
}

/// A refusal of ours is a verdict and never an error of the kernel: the judge knows none, and no question of the supervisor whether
/// something may be done is answered by one.
pub fn verdicts_are_no_errors(root: &Path) -> Violations {
    let mut violations = Violations::new();
    let judge = rust_files(&root.join("policies/guard/src"));
    let supervisor = rust_files(&root.join("executor/supervisor/src"));
    if judge.is_empty() || supervisor.is_empty() {
        return vec!["the judge or the supervisor is not where it was".into()];
    }
    for file in judge {
        let code = code_only(&fs::read_to_string(&file).unwrap_or_default());
        let code = code.replace("os::unix::", "");
        let known = ["Errno", "nix::", "libc::"].into_iter();
        violations.extend(
            known
                .filter(|word| code.contains(word))
                .map(|word| format!("{}: {word}", file.display())),
        );
    }
    for file in supervisor {
        let code = code_only(&fs::read_to_string(&file).unwrap_or_default());
        for question in code.split("fn may_").skip(1) {
            let signature = question.split(['{', ';']).next().unwrap_or_default();
            if signature.contains("Result<()") || signature.contains("Errno") {
                let name = signature.split(['(', '<']).next().unwrap_or_default();
                violations.push(format!("{}: may_{name} returns no verdict", file.display()));
            }
        }
    }
    violations
}

/// Rules on names are the judge's: the supervisor, the file worker and what the broker knows of a project read none of what makes a rule,
/// and make verdicts only on what the supervisor alone knows. `Verdict::refuse_if` is private to the judge.
pub fn rules_are_the_judges(root: &Path) -> Violations {
    const READERS: [&str; 11] = [
        ".leads_to(",
        ".reaches_below(",
        ".closings(",
        ".transit(",
        "Repository::by_name",
        "Repository::member",
        "Repository::of_entries",
        "Repository::has_shape",
        "may_be_git_directory",
        "is_in_git_directory",
        "as_git_directory",
    ];
    const OWN: [&str; 2] = ["EmptyDirectories", "OtherStorage"];
    let mut violations = Violations::new();
    for folder in [
        "executor/supervisor/src",
        "executor/worker/src",
        "executor/project/src",
    ] {
        let files = rust_files(&root.join(folder));
        if files.is_empty() {
            violations.push(format!("{folder} is not where it was"));
        }
        for file in files {
            let code = code_only(&fs::read_to_string(&file).unwrap_or_default());
            let reads = READERS.iter().filter(|word| code.contains(**word));
            violations.extend(reads.map(|word| format!("{}: {word}", file.display())));
            let verdicts = code.split("Refuse(Rule::").skip(1);
            let foreign = verdicts.filter(|rule| !OWN.iter().any(|own| rule.starts_with(own)));
            violations.extend(foreign.map(|_| format!("{}: a rule", file.display())));
        }
    }
    violations
}

/// The README in a crate's folder and the crate's documentation are the same text.
pub fn every_crate_includes_its_readme(root: &Path) -> Violations {
    let mut violations = Violations::new();
    for member in members(root) {
        let tops = ["src/lib.rs", "src/main.rs"].map(|name| root.join(&member).join(name));
        let includes = |path: &PathBuf| {
            fs::read_to_string(path)
                .is_ok_and(|text| text.starts_with("#![doc = include_str!(\"../README.md\")]"))
        };
        if !tops.iter().any(includes) {
            violations.push(format!("{member} does not begin with its README.md"));
        }
    }
    if violations.is_empty() && members(root).is_empty() {
        vec!["no members can be read".into()]
    } else {
        violations
    }
}

/// The rows of a table of ours: a name, a colon, and words. A row may go on in lines that are indented; `#` begins a comment.
fn rows(table: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut rows = BTreeMap::<&str, Vec<&str>>::new();
    let mut name = "";
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let words = match line.split_once(':') {
            Some((first, rest)) => {
                name = first;
                rest
            }
            None => line,
        };
        if !name.is_empty() {
            rows.entry(name)
                .or_default()
                .extend(words.split_whitespace());
        }
    }
    rows
}

/// The output of a cargo command about a tree. About the real one, which stays as it is, each command runs once.
fn cargo(root: &Path, words: &[&str]) -> Result<String, String> {
    static SEEN: PerText<Result<String, String>> = PerText::new();
    if root == workspace::workspace() {
        SEEN.get(&words.join(" "), || run_cargo(root, words))
            .as_ref()
            .clone()
    } else {
        run_cargo(root, words)
    }
}

fn run_cargo(root: &Path, words: &[&str]) -> Result<String, String> {
    let mut cargo = workspace::cargo();
    let output = cargo.current_dir(root).args(words).output();
    let output = output.map_err(|error| format!("cargo {} does not start: {error}", words[0]))?;
    if !output.status.success() {
        return Err(format!(
            "cargo {}: {}",
            words[0],
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The packages of the workspace as declared in their manifests.
fn packages(root: &Path) -> Result<Vec<Value>, String> {
    let listed = cargo(
        root,
        &[
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ],
    )?;
    let metadata: Value =
        serde_json::from_str(&listed).map_err(|error| format!("cargo metadata: {error}"))?;
    metadata["packages"]
        .as_array()
        .cloned()
        .ok_or_else(|| "cargo metadata lists no packages".into())
}

/// Declared dependencies of any kind, by name.
fn dependencies(package: &Value) -> BTreeMap<String, Value> {
    let declared = package["dependencies"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    declared
        .into_iter()
        .filter_map(|one| Some((one["name"].as_str()?.to_owned(), one)))
        .collect()
}

/// The folders of the workspace's members.
fn members(root: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    let manifest = manifest.parse::<toml::Table>().unwrap_or_default();
    let members = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("members")?.as_array());
    members
        .into_iter()
        .flatten()
        .filter_map(|member| member.as_str().map(str::to_owned))
        .collect()
}

/// The rows of a page's tables: the name in backticks from the first cell, with the last cell.
fn table(page: &str) -> BTreeMap<String, String> {
    let rows = page
        .lines()
        .filter(|line| line.trim_start().starts_with("| `"));
    rows.filter_map(|row| {
        let cells: Vec<&str> = row
            .trim()
            .trim_matches('|')
            .split('|')
            .map(str::trim)
            .collect();
        Some((
            cells.first()?.trim_matches('`').to_owned(),
            (*cells.last()?).to_owned(),
        ))
    })
    .collect()
}

/// Reads every Rust file of some folders; `check` returns the lines with violations.
fn scan(root: &Path, folders: &[String], check: impl Fn(&Path, &str) -> Vec<usize>) -> Violations {
    let mut violations = Violations::new();
    // A crate's folder may contain other crates.
    let files: BTreeSet<PathBuf> = folders
        .iter()
        .flat_map(|folder| rust_files(&root.join(folder)))
        .collect();
    for path in &files {
        let rendered = path
            .strip_prefix(root)
            .unwrap_or(path)
            .display()
            .to_string();
        match fs::read_to_string(path) {
            Ok(text) => {
                let lines = check(path, &code_only(&text));
                violations.extend(lines.iter().map(|line| format!("{rendered}:{line}")));
            }
            Err(error) => violations.push(format!("{rendered}: {error}")),
        }
    }
    if files.is_empty() {
        violations.push(format!("no Rust file in {folders:?}"));
    }
    violations
}

/// Numbers of the lines that contain a word.
fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    // Most files have none, and to look at each of their words takes long.
    if !code.contains(word) {
        return Vec::new();
    }
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let has_word = |line: &str| line.split(|c| !is_part(c)).any(|part| part == word);
    code.lines()
        .enumerate()
        .filter(|(_, line)| has_word(line))
        .map(|(number, _)| number + 1)
        .collect()
}

/// Whether a line names the standard library's or tokio's API to start a process.
fn names_command(line: &str) -> bool {
    if !line.contains("process") {
        return false;
    }
    let compact: String = line.split_whitespace().collect();
    compact.split("process::").skip(1).any(|rest| {
        let group = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split('}').next())
            .unwrap_or_default();
        rest.starts_with("Command")
            || group
                .split(',')
                .any(|name| name == "Command" || name.starts_with("Commandas"))
    })
}

/// Whether a line starts or executes a program by a system call.
fn names_exec(line: &str) -> bool {
    // Their names have it in common.
    if !(line.contains("exec") || line.contains("spawn")) {
        return false;
    }
    const CALLS: [&str; 7] = [
        "execv",
        "execve",
        "execveat",
        "execvp",
        "execvpe",
        "fexecve",
        "posix_spawn",
    ];
    CALLS
        .iter()
        .any(|call| !lines_with_word(line, call).is_empty())
}

/// Lines with a condition on debug, a feature or tests, except the attribute of a tests module.
fn conditional_lines(code: &str) -> Vec<usize> {
    let lines: Vec<&str> = code.lines().collect();
    let is_condition = |line: &str| {
        let conditions = ["cfg(", "cfg!(", "cfg_attr("];
        let names = ["debug_assertions", "feature", "test"];
        conditions.iter().any(|start| {
            line.split(start).skip(1).any(|rest| {
                names.iter().any(|name| {
                    !lines_with_word(rest.split(']').next().unwrap_or(rest), name).is_empty()
                })
            })
        }) || line.contains("debug_assert")
    };
    let guards_tests = |number: usize| {
        lines[number].trim() == "#[cfg(test)]"
            && lines
                .get(number + 1)
                .is_some_and(|next| next.trim().starts_with("mod "))
    };
    (0..lines.len())
        .filter(|&number| is_condition(lines[number]) && !guards_tests(number))
        .map(|number| number + 1)
        .collect()
}
