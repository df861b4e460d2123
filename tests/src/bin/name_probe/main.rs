//! Starts released agents, package managers, editors and interpreters in an empty project under strace, collects every name that they look
//! for below it, and says on which nobody has decided: neither is it protected, nor does `tests/names/open.toml` say why it is open.
//! `--record` writes the names to `tests/names/PROGRAM.txt`, which an ordinary test checks.
#![allow(clippy::print_stdout, clippy::unwrap_used)]
#![allow(unreachable_pub)]

mod names;

use clap::Parser;
use policies::{Host, Policies};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// How long one program may run. An agent that waits for its user is ended then.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Options {
    /// Write what was looked for to `tests/names`.
    #[arg(long)]
    record: bool,
    /// Only these programs.
    #[arg(long)]
    only: Vec<String>,
    /// A folder whose `node_modules` has the packages already.
    #[arg(long)]
    packages: Option<PathBuf>,
    /// Pretends that the list does not have this pattern.
    #[arg(long)]
    without: Option<String>,
}

/// A program and how it is started, in a shell. `PTY` before a command gives it a terminal.
struct Program {
    name: &'static str,
    /// From npm, if it is not the machine's.
    package: Option<&'static str>,
    script: &'static str,
}

const fn npm(name: &'static str, package: &'static str, script: &'static str) -> Program {
    Program {
        name,
        package: Some(package),
        script,
    }
}

const fn host(name: &'static str, script: &'static str) -> Program {
    Program {
        name,
        package: None,
        script,
    }
}

const PROGRAMS: [Program; 25] = [
    npm(
        "claude",
        "@anthropic-ai/claude-code",
        "claude -p hi; PTY claude",
    ),
    npm("codex", "@openai/codex", "codex exec hi; PTY codex"),
    npm("opencode", "opencode-ai", "opencode run hi; PTY opencode"),
    npm("gemini", "@google/gemini-cli", "gemini -p hi; PTY gemini"),
    npm("qwen", "@qwen-code/qwen-code", "qwen -p hi; PTY qwen"),
    npm(
        "pnpm",
        "pnpm",
        "pnpm dlx --offline x; echo '{\"scripts\":{\"x\":\"true\"}}' > package.json; pnpm install --offline; pnpm run x; pnpm ls",
    ),
    npm(
        "yarn",
        "yarn",
        "yarn --offline install; echo '{\"scripts\":{\"x\":\"true\"}}' > package.json; yarn --offline install; yarn run x",
    ),
    npm(
        "bun",
        "bun",
        "bun x --bun x; echo '{\"scripts\":{\"x\":\"true\"}}' > package.json; bun install; bun run x; echo 1 > x.ts; bun x.ts",
    ),
    host(
        "npm",
        "npm exec --offline -- node -e 1; echo '{\"scripts\":{\"x\":\"true\"}}' > package.json; npm install --offline; npm run x; npm ls; npx --offline -y x",
    ),
    host("node", "node -e 1; echo 1 > x.js; node x.js"),
    host(
        "git",
        "git status; git diff; git log; echo 1 > x; git add x; git -c user.name=a -c user.email=b commit -m x; git stash; git branch; git rebase; git push; git fetch",
    ),
    host("bash", "bash -ic true; bash -lc true"),
    host("zsh", "zsh -ic true; zsh -lc true"),
    host("fish", "fish -ic true"),
    host("vim", "PTY vim -c q; PTY vim -c q x.txt; vim -es -c q"),
    host("nvim", "nvim --headless -c q; nvim --headless -c q x.txt"),
    host(
        "emacs",
        "emacs --batch x.txt; PTY emacs -nw --eval '(kill-emacs)' x.txt",
    ),
    host("nano", "PTY nano x.txt"),
    host(
        "python3",
        "python3 -c 1; echo 1 > x.py; python3 x.py; python3 -m pip list",
    ),
    host("ruby", "ruby -e 1; irb < /dev/null; bundle list"),
    host("perl", "perl -e 1"),
    host("php", "php -r 1; composer list"),
    host("gdb", "gdb -batch"),
    host(
        "cargo",
        "cargo check --offline; cargo metadata --offline; rustc --version",
    ),
    host("make", "make"),
];

fn main() -> ExitCode {
    let options = Options::parse();
    let folder = std::env::temp_dir().join(format!("name-probe-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let packages = options.packages.clone().unwrap_or_else(|| install(&folder));
    let host = Host {
        home: "/home/u".into(),
        ..Host::default()
    };
    let policy = Policies::load(vec![])
        .unwrap()
        .resolve("default", &host)
        .unwrap();
    let mut protected = policy.protected.to_vec();
    protected.retain(|name| Some(&name.pattern) != options.without.as_ref());
    let open = names::known_open();
    let (mut probed, mut unknown) = (0, 0);
    let chosen = |program: &&Program| {
        options.only.is_empty() || options.only.iter().any(|only| only == program.name)
    };
    for program in PROGRAMS.iter().filter(chosen) {
        let Some(found) = probe(program, &folder, &packages) else {
            println!("{:10} is not here", program.name);
            continue;
        };
        probed += 1;
        let left = names::undecided(&found, &protected, &open);
        println!(
            "{:10} looks for {} names, {} undecided",
            program.name,
            found.len(),
            left.len()
        );
        left.iter().for_each(|name| println!("    {name}"));
        unknown += left.len();
        if options.record {
            record(program, &found);
        }
    }
    let _ = fs::remove_dir_all(&folder);
    if probed > 0 && unknown == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Installs what comes from npm.
fn install(folder: &Path) -> PathBuf {
    let packages = PROGRAMS.iter().filter_map(|program| program.package);
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--prefix"])
        .arg(folder)
        .args(packages);
    assert!(
        npm.status().unwrap().success(),
        "npm cannot install the agents"
    );
    folder.to_owned()
}

/// The names that a program looks for; `None` if it is not on this machine.
fn probe(program: &Program, folder: &Path, packages: &Path) -> Option<BTreeSet<String>> {
    let (home, project) = (folder.join("home"), folder.join("project"));
    for directory in [&home, &project] {
        let _ = fs::remove_dir_all(directory);
        fs::create_dir_all(directory).unwrap();
    }
    let path = format!(
        "{}:{}",
        packages.join("node_modules/.bin").display(),
        std::env::var("PATH").unwrap()
    );
    let shell = |script: &str| {
        let mut shell = Command::new("bash");
        shell
            .args(["--norc", "-c", script])
            .current_dir(&project)
            .env_clear()
            .stdin(Stdio::null());
        shell.stdout(Stdio::null()).stderr(Stdio::null()).envs([
            ("PATH", path.as_str()),
            ("TERM", "xterm"),
            ("LANG", "C.UTF-8"),
        ]);
        shell.env("HOME", &home);
        for key in [
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "CODEX_API_KEY",
            "GEMINI_API_KEY",
        ] {
            shell.env(key, "none");
        }
        // Nobody answers there: what a model says is of no matter.
        for address in [
            "ANTHROPIC_BASE_URL",
            "OPENAI_BASE_URL",
            "GOOGLE_GEMINI_BASE_URL",
            "HTTPS_PROXY",
        ] {
            shell.env(address, "http://127.0.0.1:9");
        }
        shell
    };
    let is_here = shell(&format!("type -P {}", program.name))
        .status()
        .unwrap()
        .success();
    if !is_here {
        return None;
    }
    assert!(shell("git init -q").status().unwrap().success());
    let mut found = BTreeSet::new();
    for (number, command) in program.script.split("; ").enumerate() {
        let log = folder.join(format!("{}-{number}.log", program.name));
        let traced = format!(
            "timeout -s KILL {} strace -f -y -s 4096 -e trace=file -o {} ",
            LIMIT.as_secs(),
            log.display()
        );
        let line = match command.strip_prefix("PTY ") {
            Some(command) => format!("script -qec '{traced} timeout 20 {command}' /dev/null"),
            None if command.starts_with("echo ") => command.to_owned(),
            None => format!("{traced} {command}"),
        };
        let _ = shell(&line).status();
        let text = fs::read(&log).unwrap_or_default();
        found.extend(names::looked_for(&String::from_utf8_lossy(&text), &project));
        let _ = fs::remove_file(&log);
    }
    Some(found)
}

fn record(program: &Program, found: &BTreeSet<String>) {
    let head = "# Written by `cargo run -p lazaret-tests --bin name_probe -- --record`.\n";
    let lines: String = found.iter().map(|name| format!("{name}\n")).collect();
    fs::write(
        names::folder().join(program.name).with_extension("txt"),
        format!("{head}{lines}"),
    )
    .unwrap();
}
