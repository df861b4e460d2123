//! Tests released third-party MCP servers in cells: `lazaret call mcp__…` starts each one, in every place, and its tools work.

use clap::Parser;
use lazaret_tests::process::Finished;
use lazaret_tests::{Place, World, programs, run};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Calls tools of released MCP servers in cells. Needs node 20, npm, python3 with venv, and their registries.
#[derive(Parser)]
struct Options {
    /// Where the servers are installed, once; every user must be able to read it [default: anew, for this run alone]
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// Longer than any call that works.
const LIMIT: Duration = Duration::from_secs(120);
const NPM: [&str; 3] = [
    "@modelcontextprotocol/server-filesystem",
    "@modelcontextprotocol/server-everything",
    "@modelcontextprotocol/server-memory",
];
const PYPI: [&str; 2] = ["mcp-server-git", "mcp-server-time"];

/// A call of a server's tool, and what its answer must contain.
struct Row {
    server: &'static str,
    tool: &'static str,
    input: Value,
    has: &'static str,
}

fn main() -> ExitCode {
    let folder = Options::parse()
        .folder
        .unwrap_or_else(|| programs::scratch().join("outside-servers"));
    if let Err(why) = install(&folder) {
        eprintln!(
            "the servers cannot be installed in {}: {why}",
            folder.display()
        );
        return ExitCode::from(2);
    }
    let mut failed = 0;
    println!(
        "| server | tool | {} |",
        Place::all()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" | ")
    );
    let mut table: Vec<(String, Vec<String>)> = Vec::new();
    for place in Place::all() {
        let world = world(place, &folder);
        for (at, row) in rows(&world).iter().enumerate() {
            let finished = call(&world, row);
            let worked = finished.code() == 0 && finished.text().contains(row.has);
            if !worked {
                failed += 1;
                eprintln!(
                    "{} {}: {}{}",
                    row.server,
                    row.tool,
                    finished.text(),
                    finished.errors()
                );
            }
            if table.len() <= at {
                table.push((format!("| {} | {} |", row.server, row.tool), Vec::new()));
            }
            table[at]
                .1
                .push(if worked { "works" } else { "FAILS" }.to_owned());
        }
    }
    table
        .iter()
        .for_each(|(row, cells)| println!("{row} {} |", cells.join(" | ")));
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn install(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let readable = fs::set_permissions(folder, fs::Permissions::from_mode(0o755));
    readable.map_err(|error| error.to_string())?;
    let done = |command: &mut Command| -> Result<(), String> {
        let output = command
            .output()
            .map_err(|error| format!("{command:?}: {error}"))?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            Ok(())
        } else {
            Err(format!("{command:?}: {errors}"))
        }
    };
    if !folder.join("node_modules").exists() {
        done(
            Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--prefix"])
                .arg(folder)
                .args(NPM),
        )?;
    }
    let venv = folder.join("venv");
    if !venv.exists() {
        done(
            Command::new("/usr/bin/python3")
                .args(["-m", "venv", "--copies"])
                .arg(&venv),
        )?;
        done(
            Command::new(venv.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet"])
                .args(PYPI),
        )?;
    }
    Ok(())
}

/// A world with a repository as its project, and the servers in its settings.
fn world(place: Place, folder: &Path) -> World {
    let world = World::new(place);
    world.put("a.txt", "of the project\n");
    run(world.host("git").args(["init", "-q"]), LIMIT).success();
    let shown = folder.display();
    let policy = format!("version = 1\n[profile.servers]\ngrants = [{{ path = '{shown}' }}]\n");
    world.set_policy(policy);
    let node = which("node").unwrap_or_else(|| "node".to_owned());
    let of_npm = |name: &str, more: &[&str], project: &str| {
        let mut args = vec![format!(
            "{shown}/node_modules/@modelcontextprotocol/server-{name}/dist/index.js"
        )];
        args.extend(more.iter().map(ToString::to_string));
        json!({ "command": node, "args": args, "lazaret": { "profile": "servers", "project": project } })
    };
    let of_python = |module: &str, more: &[&str], project: &str| {
        let mut args = vec!["-m".to_owned(), module.to_owned()];
        args.extend(more.iter().map(ToString::to_string));
        let python = format!("{shown}/venv/bin/python");
        json!({ "command": python, "args": args, "lazaret": { "profile": "servers", "project": project } })
    };
    let mut memory = of_npm("memory", &[], "none");
    memory["env"] = json!({ "MEMORY_FILE_PATH": "${LAZARET_CENTRAL}/memory.jsonl" });
    let servers = json!({
        "filesystem": of_npm("filesystem", &["${LAZARET_PROJECT}"], "shared"),
        "everything": of_npm("everything", &["stdio"], "none"),
        "memory": memory,
        "git": of_python("mcp_server_git", &["--repository", "${LAZARET_PROJECT}"], "shared"),
        "time": of_python("mcp_server_time", &[], "none"),
    });
    let settings = json!({ "mcpServers": servers }).to_string();
    world.write(&world.home.join("settings/lazaret/mcp.json"), settings);
    world
}

fn which(program: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|path| path.exists())?;
    Some(fs::canonicalize(found).ok()?.display().to_string())
}

fn rows(world: &World) -> Vec<Row> {
    let project = world.project.display().to_string();
    let row = |server, tool, input, has| Row {
        server,
        tool,
        input,
        has,
    };
    let entity =
        json!({ "name": "Ada", "entityType": "person", "observations": ["writes programs"] });
    vec![
        row(
            "filesystem",
            "list_directory",
            json!({ "path": project }),
            "a.txt",
        ),
        row(
            "filesystem",
            "write_file",
            json!({ "path": format!("{project}/new.txt"), "content": "new" }),
            "new.txt",
        ),
        row(
            "filesystem",
            "read_text_file",
            json!({ "path": format!("{project}/new.txt") }),
            "new",
        ),
        row("everything", "echo", json!({ "message": "hello" }), "hello"),
        row(
            "memory",
            "create_entities",
            json!({ "entities": [entity] }),
            "Ada",
        ),
        row("memory", "read_graph", json!({}), "writes programs"),
        row(
            "git",
            "git_status",
            json!({ "repo_path": project }),
            "a.txt",
        ),
        row(
            "time",
            "get_current_time",
            json!({ "timezone": "UTC" }),
            "UTC",
        ),
    ]
}

fn call(world: &World, row: &Row) -> Finished {
    let mut command = world.lazaret_call(&format!("mcp__{}__{}", row.server, row.tool), &row.input);
    command
        .env("XDG_CONFIG_HOME", world.home.join("settings"))
        .env("XDG_DATA_HOME", world.home.join("data"));
    run(&mut command, LIMIT)
}
