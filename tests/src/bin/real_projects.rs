//! Tests real projects of others: fetches them by name and version through the relay of a cell, and runs their tests in cells of
//! both tiers, with the same counts as outside. Needs a network, and is not one of the short tests.

use clap::Parser;
use lazaret_tests::place::User;
use lazaret_tests::{Finished, Place, World, run};
use nix::unistd::geteuid;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Fetches and tests real projects in cells. What has no tool on this machine is named and not counted
#[derive(Parser)]
struct Options {
    /// Only the project of this name
    #[arg(long)]
    only: Option<String>,
    /// Addresses that the registries have here though they are not public, such as 10.0.0.0/8; may be given more than once
    #[arg(long, value_name = "NETWORK")]
    private: Vec<String>,
}

const STEP: Duration = Duration::from_secs(900);

/// A project, and how to fetch and test it. Each script runs in the project's root.
struct Project {
    name: &'static str,
    /// Programs that must be in `PATH`.
    tools: &'static [&'static str],
    /// A shipped profile that shows its toolchain, and the preset of its registry.
    profile: &'static str,
    preset: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// The script that fetches it; needs the registry.
    fetch: &'static str,
    /// The script that tests it; needs no network, and prints how many tests passed after this word.
    test: &'static str,
    counted: &'static str,
}

const PROJECTS: [Project; 6] = [
    Project {
        name: "cargo",
        tools: &["cargo"],
        profile: "rust",
        preset: "crates",
        files: &[
            (
                "Cargo.toml",
                "[workspace]\nmembers = [\"vendored/semver-1.0.23\"]\nresolver = \"2\"\n",
            ),
            (
                "fetcher/Cargo.toml",
                "[package]\nname = \"fetcher\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n[dependencies]\nsemver = \"=1.0.23\"\nserde_json = \"=1.0.120\"\n",
            ),
            ("fetcher/src/lib.rs", ""),
        ],
        fetch: "cd fetcher && cargo fetch && mkdir -p ../vendored && \
                cp -r \"$CARGO_HOME\"/registry/src/*/semver-1.0.23 ../vendored/ && cd .. && cargo fetch",
        test: "cargo test --offline -p semver --tests 2>&1",
        counted: "test result: ok. ",
    },
    Project {
        name: "npm",
        tools: &["npm", "node"],
        profile: "node",
        preset: "npm",
        files: &[
            (
                "package.json",
                "{\"name\":\"p\",\"version\":\"1.0.0\",\"private\":true,\"devDependencies\":{\"vitest\":\"2.1.8\",\"is-number\":\"7.0.0\"}}",
            ),
            (
                "ci/package.json",
                "{\"name\":\"ci\",\"version\":\"1.0.0\",\"private\":true,\"dependencies\":{\"is-odd\":\"3.0.1\"}}",
            ),
            (
                "numbers.test.js",
                "import { expect, test } from 'vitest';\nimport isNumber from 'is-number';\nfor (const one of [1, '2', 'x', null, NaN, '0x1f']) test(String(one), () => expect(isNumber(one)).toBe(Number.isFinite(one) || (typeof one === 'string' && one !== 'x')));\n",
            ),
        ],
        fetch: "npm install --no-audit --no-fund && cd ci && npm install --package-lock-only && npm ci --no-audit --no-fund",
        test: "node_modules/.bin/vitest run --reporter=verbose 2>&1 | sed 's/\\x1b\\[[0-9;]*m//g'",
        counted: "Tests ",
    },
    Project {
        name: "pip",
        tools: &["/usr/bin/python3"],
        profile: "python",
        preset: "pypi",
        files: &[("requirements.txt", "pytest==8.3.4\ntoolz==0.12.1\n")],
        fetch: "/usr/bin/python3 -m pip install --no-input --quiet --target lib -r requirements.txt",
        test: "PYTHONPATH=lib /usr/bin/python3 -m pytest -q -p no:cacheprovider --pyargs toolz 2>&1",
        counted: " passed",
    },
    Project {
        name: "cmake",
        tools: &["cargo", "cmake", "make", "cc"],
        profile: "rust",
        preset: "crates",
        files: &[
            (
                "fetcher/Cargo.toml",
                "[package]\nname = \"fetcher\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n[dependencies]\nexpat-sys = \"=2.1.6\"\n",
            ),
            ("fetcher/src/lib.rs", ""),
        ],
        fetch: "cd fetcher && cargo fetch && cp -r \"$CARGO_HOME\"/registry/src/*/expat-sys-2.1.6/expat ../expat",
        test: "mkdir -p built && cd built && cmake -DCMAKE_POLICY_VERSION_MINIMUM=3.5 ../expat >configured 2>&1 && make >made 2>&1 && ctest -V 2>&1",
        counted: "Checks: ",
    },
    Project {
        name: "autoconf",
        tools: &["cargo", "autoreconf", "libtoolize", "make", "cc"],
        profile: "rust",
        preset: "crates",
        files: &[
            (
                "fetcher/Cargo.toml",
                "[package]\nname = \"fetcher\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n[dependencies]\nonig_sys = \"=69.5.0\"\n",
            ),
            ("fetcher/src/lib.rs", ""),
        ],
        fetch: "cd fetcher && cargo fetch && cp -r \"$CARGO_HOME\"/registry/src/*/onig_sys-69.5.0/oniguruma ../oniguruma",
        test: "cd oniguruma && autoreconf -fi >configured 2>&1 && ./configure >>configured 2>&1 && make check 2>&1",
        counted: "# PASS:",
    },
    Project {
        name: "go",
        tools: &["go"],
        profile: "go",
        preset: "go",
        files: &[
            (
                "go.mod",
                "module p\n\ngo 1.18\n\nrequire golang.org/x/text v0.14.0\n",
            ),
            (
                "p.go",
                "package p\n\nimport _ \"golang.org/x/text/width\"\n",
            ),
        ],
        fetch: "go mod tidy && go mod download",
        test: "go test -v golang.org/x/text/width 2>&1",
        counted: "ok ",
    },
];

fn main() -> ExitCode {
    let options = Options::parse();
    let user = if geteuid().is_root() {
        User::Root
    } else {
        User::Ordinary
    };
    let places: Vec<Place> = Place::all()
        .into_iter()
        .filter(|place| place.user == user)
        .collect();
    let chosen = |project: &&Project| {
        options
            .only
            .as_deref()
            .is_none_or(|only| only == project.name)
    };
    let mut failed = 0;
    for project in PROJECTS.iter().filter(chosen) {
        if let Some(tool) = project.tools.iter().find(|tool| !is_there(tool)) {
            println!(
                "{:<8} not run: there is no {tool} on this machine",
                project.name
            );
            continue;
        }
        for place in &places {
            match try_project(project, *place, &options.private) {
                Ok(count) => println!("{:<8} {place}: {count}, as outside", project.name),
                Err(why) => {
                    println!("{:<8} {place}: FAILED: {why}", project.name);
                    failed += 1;
                }
            }
        }
    }
    ExitCode::from(u8::from(failed > 0))
}

fn is_there(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

/// The count of passed tests, if it is the same in a cell and outside.
fn try_project(project: &Project, place: Place, private: &[String]) -> Result<String, String> {
    let world = World::new(place);
    for (name, content) in project.files {
        world.put(name, content);
    }
    let policy = format!(
        "version = 1\n[profile.net]\nextends = '{}'\nnetwork = {{ private = {private:?} }}\n",
        project.profile
    );
    world.set_policy(policy);
    let closed = in_cell(
        &world,
        &["--profile", "net", "--allow-host", "nothing.invalid:443"],
        project.fetch,
    );
    let option = format!("--allow-net {}", project.preset);
    if closed.status.success() || !closed.errors().contains(&option) {
        return Err(format!(
            "without the preset it must fail and name `{option}`: {}",
            closed.errors()
        ));
    }
    let open = in_cell(
        &world,
        &["--profile", "net", "--allow-net", project.preset],
        project.fetch,
    );
    if !open.status.success() {
        return Err(format!("fetching: {}{}", open.text(), open.errors()));
    }
    // Offline, with the profile as shipped.
    let inside = count(
        project,
        &in_cell(&world, &["--profile", project.profile], project.test),
    )?;
    let mut outside = Command::new("bash");
    outside
        .args(["-c", project.test])
        .current_dir(&world.project);
    outside
        .env("CARGO_HOME", world.central.join("caches/cargo"))
        .env("GOMODCACHE", world.central.join("caches/go-mod"));
    let outside = count(project, &run(&mut outside, STEP))?;
    if inside == outside {
        Ok(inside)
    } else {
        Err(format!("{inside} in a cell, {outside} outside"))
    }
}

fn in_cell(world: &World, options: &[&str], script: &str) -> Finished {
    let mut command = world.configured("run");
    // Location of this machine's certificates, for programs that bring their own bundles.
    let certificates = [
        "SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS",
        "PIP_CERT",
        "CURL_CA_BUNDLE",
    ];
    command.envs(
        certificates
            .iter()
            .filter_map(|name| Some((*name, std::env::var_os(name)?))),
    );
    command
        .args(options)
        .args(["--timeout", "600", "--", "bash", "-c", script]);
    run(&mut command, STEP)
}

/// The lines that count tests, without what differs between runs: the time in brackets, after a semicolon or after `in`.
fn count(project: &Project, finished: &Finished) -> Result<String, String> {
    let text = finished.text();
    let counted = text.lines().filter(|line| line.contains(project.counted));
    let stable = counted.map(|line| {
        let end = [" in ", "; finished", " (", "\t"]
            .iter()
            .filter_map(|mark| line.find(mark))
            .min();
        line[..end.unwrap_or(line.len())].trim().to_owned()
    });
    let lines: Vec<String> = stable.collect();
    match lines.is_empty() || !finished.status.success() {
        true => Err(format!("testing: {text}{}", finished.errors())),
        false => Ok(lines.join("; ")),
    }
}
