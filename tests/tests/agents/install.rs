//! `lazaret install`: the settings of clients are changed as the golden files say, and back to the byte.

use lazaret_tests::{Finished, LIMIT, Place, World, once_test, programs, run};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/agents");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/install");

/// Its name, the way to install, and its files with their text before.
type Client = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// Each client with a way, and the files of its settings as people have them.
const CLIENTS: [Client; 18] = [
    (
        "claude-code",
        "server",
        &[
            (".claude.json", CLAUDE),
            (".claude/settings.json", SETTINGS),
        ],
    ),
    (
        "claude-code",
        "shell",
        &[(".claude/settings.json", SETTINGS)],
    ),
    (
        "claude-desktop",
        "server",
        &[(".config/Claude/claude_desktop_config.json", SERVERS)],
    ),
    ("codex", "server", &[(".codex/config.toml", CODEX)]),
    ("gemini", "server", &[(".gemini/settings.json", SETTINGS)]),
    ("qwen", "server", &[(".qwen/settings.json", SETTINGS)]),
    (
        "opencode",
        "server",
        &[(".config/opencode/opencode.json", OPENCODE)],
    ),
    (
        "opencode",
        "shell",
        &[(".config/opencode/opencode.jsonc", OPENCODE)],
    ),
    ("goose", "server", &[(".config/goose/config.yaml", GOOSE)]),
    ("crush", "server", &[(".config/crush/crush.json", "{}")]),
    ("cursor", "server", &[(".cursor/mcp.json", SERVERS)]),
    (
        "windsurf",
        "server",
        &[(".codeium/windsurf/mcp_config.json", SERVERS)],
    ),
    ("zed", "server", &[(".config/zed/settings.json", ZED)]),
    (
        "vscode",
        "server",
        &[(".config/Code/User/settings.json", ZED)],
    ),
    (
        "vscode",
        "shell",
        &[(".config/Code/User/settings.json", ZED)],
    ),
    ("cline", "server", &[(CLINE, SERVERS)]),
    ("copilot", "server", &[(".copilot/config.json", "{}")]),
    ("jetbrains", "server", &[(".config/JetBrains/x", "")]),
];

const CLAUDE: &str = "{\"numStartups\":7,\"projects\":{\"/p\":{\"allowedTools\":[]}}}";
const SETTINGS: &str = "{\n  \"model\": \"opus\",\n  \"permissions\": {\n    \"deny\": [\"WebFetch\"]\n  },\n  \"tools\": { \"exclude\": [\"glob\"] }\n}\n";
const SERVERS: &str =
    "{\n\t\"mcpServers\": {\n\t\t\"other\": { \"command\": \"other\", \"args\": [] }\n\t}\n}\n";
const CODEX: &str = "# mine\nmodel = \"o\"  # the best\nsandbox_mode = \"workspace-write\"\n\n[mcp_servers.other]\ncommand = \"other\"\n";
const OPENCODE: &str = "{\n  // mine\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"tools\": { \"bash\": true }, // all of them\n}\n";
const GOOSE: &str = "GOOSE_PROVIDER: p\nextensions:\n  developer:\n    bundled: true\n    enabled: true\n    type: builtin\n# end\n";
const ZED: &str = "// mine\n{\n  \"theme\": \"One\", // dark\n  \"agent\": { \"default_profile\": \"write\" }\n}\n";
const CLINE: &str =
    ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json";

fn with_settings(files: &[(&str, &str)]) -> World {
    let world = World::new(Place::any());
    for (path, text) in files {
        world.write(&world.home.join(path), text);
    }
    world
}

fn lazaret(world: &World, arguments: &[&str]) -> Finished {
    run(
        world
            .program("lazaret")
            .args(arguments)
            .current_dir(&world.home),
        LIMIT,
    )
}

once_test!(each_client_is_changed_as_its_golden_file_says);
fn each_client_is_changed_as_its_golden_file_says() {
    for (client, way, files) in CLIENTS {
        let world = with_settings(files);
        let finished = lazaret(&world, &["install", client, "--by", way, "--dry-run"]);
        let shown = with_the_usual_name(finished.success())
            .replace(&world.home.display().to_string(), "~")
            .replace(&programs::folder().display().to_string(), "/BIN");
        let golden = PathBuf::from(GOLDEN).join(format!("{client}.{way}.txt"));
        if std::env::var_os("LAZARET_GOLDEN").is_some() {
            fs::create_dir_all(GOLDEN).unwrap();
            fs::write(&golden, &shown).unwrap();
        }
        assert_eq!(
            shown,
            fs::read_to_string(&golden).unwrap_or_default(),
            "{client} {way}"
        );
        for (path, text) in files {
            assert_eq!(
                fs::read_to_string(world.home.join(path)).unwrap(),
                *text,
                "a dry run changes nothing"
            );
        }
    }
}

/// The text with `NAME` for what is random in the name of our server.
fn with_the_usual_name(text: String) -> String {
    let mut parts = text.split("lazaret-");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (random, rest) = part.split_at_checked(10).unwrap_or((part, ""));
        let is_random = random.len() == 10 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
        plain += &if is_random {
            format!("lazaret-NAME{rest}")
        } else {
            format!("lazaret-{part}")
        };
    }
    plain
}

/// Everything below a folder, with what is in it.
fn tree(folder: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            if entry.is_dir() {
                folders.push(entry.clone());
            }
            all.push((entry.clone(), fs::read(&entry).ok()));
        }
    }
    all.sort();
    all
}

fn files_only(world: &World) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    tree(&world.home)
        .into_iter()
        .filter(|(_, content)| content.is_some())
        .collect()
}

once_test!(uninstall_restores_every_file_to_the_byte);
fn uninstall_restores_every_file_to_the_byte() {
    for (client, way, files) in CLIENTS.iter().filter(|(client, ..)| *client != "jetbrains") {
        let world = with_settings(files);
        fs::set_permissions(
            world.home.join(files[0].0),
            fs::Permissions::from_mode(0o640),
        )
        .unwrap();
        let before = files_only(&world);
        lazaret(&world, &["install", client, "--by", way, "--yes"]).success();
        let installed = files_only(&world);
        assert_ne!(installed, before, "{client}");
        for (path, _) in &installed {
            let was = before.iter().any(|(one, _)| one == path);
            let mode = fs::metadata(path).unwrap().mode() & 0o777;
            assert!(
                was || mode == 0o600,
                "{client}: {} {mode:o}",
                path.display()
            );
        }
        assert_eq!(
            fs::metadata(world.home.join(files[0].0)).unwrap().mode() & 0o777,
            0o640
        );
        let again = lazaret(&world, &["install", client, "--by", way, "--yes"]);
        assert!(
            again.success().contains("installed already"),
            "{}",
            again.text()
        );
        let status = lazaret(&world, &["status"]).success();
        assert!(
            status.contains(client) && status.contains(&format!("installed by {way}")),
            "{status}"
        );
        assert_eq!(
            files_only(&world),
            installed,
            "{client}: neither changes anything"
        );
        lazaret(&world, &["uninstall", client, "--yes"]).success();
        assert_eq!(files_only(&world), before, "{client} {way}");
        lazaret(&world, &["uninstall", client, "--yes"]).expect(1);
    }
}

once_test!(each_home_has_an_installation_of_its_own);
fn each_home_has_an_installation_of_its_own() {
    let world = with_settings(&[(".claude/settings.json", SETTINGS)]);
    let other = world.base().join("other");
    world.write(&other.join(".claude/settings.json"), CLAUDE);
    let in_other = |arguments: &[&str]| {
        let mut command = world.program("lazaret");
        run(
            command
                .args(arguments)
                .env("HOME", &other)
                .current_dir(&other),
            LIMIT,
        )
    };
    let install = ["install", "claude-code", "--by", "shell", "--yes"];
    lazaret(&world, &install).success();
    in_other(&install).success();
    lazaret(&world, &["uninstall", "claude-code", "--yes"]).success();
    let settings = |home: &Path| fs::read_to_string(home.join(".claude/settings.json")).unwrap();
    assert_eq!(settings(&world.home), SETTINGS);
    assert_ne!(settings(&other), CLAUDE);
    in_other(&["uninstall", "claude-code", "--yes"]).success();
    assert_eq!(settings(&other), CLAUDE);
}

once_test!(later_changes_survive_an_uninstall);
fn later_changes_survive_an_uninstall() {
    let world = with_settings(&[
        (".claude.json", CLAUDE),
        (".claude/settings.json", SETTINGS),
    ]);
    lazaret(&world, &["install", "claude-code", "--yes"]).success();
    let (state, settings) = (
        world.home.join(".claude.json"),
        world.home.join(".claude/settings.json"),
    );
    // As Claude Code does all the time, and as a person does.
    let text = fs::read_to_string(&state)
        .unwrap()
        .replace("\"numStartups\":7", "\"numStartups\":8");
    world.write(&state, text);
    let text = fs::read_to_string(&settings)
        .unwrap()
        .replace("\"opus\"", "\"sonnet\"")
        .replace("\"Bash\"", "\"Bash\", \"Mine\"");
    world.write(&settings, text);
    let status = lazaret(&world, &["status"]).success();
    assert!(status.contains("installed by server"), "{status}");
    lazaret(&world, &["uninstall", "claude-code", "--yes"]).success();
    assert_eq!(
        fs::read_to_string(&state)
            .unwrap()
            .replace(char::is_whitespace, ""),
        CLAUDE.replace("\":7", "\":8")
    );
    let kept: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&settings).unwrap()).unwrap();
    assert_eq!(
        kept["permissions"]["deny"],
        serde_json::json!(["WebFetch", "Mine"]),
        "{kept}"
    );
    assert_eq!(
        (&kept["model"], &kept["permissions"]["allow"]),
        (&"sonnet".into(), &serde_json::Value::Null)
    );
    // A file that a link leads to is changed where it is.
    let dotfiles = world.home.join("dotfiles");
    world.write(&dotfiles.join("codex.toml"), CODEX);
    world.make_folder(&world.home.join(".codex"));
    symlink(
        dotfiles.join("codex.toml"),
        world.home.join(".codex/config.toml"),
    )
    .unwrap();
    lazaret(&world, &["install", "codex", "--yes"]).success();
    assert!(
        fs::read_to_string(dotfiles.join("codex.toml"))
            .unwrap()
            .contains("lazaret")
    );
    lazaret(&world, &["uninstall", "codex", "--yes"]).success();
    assert_eq!(
        fs::read_to_string(dotfiles.join("codex.toml")).unwrap(),
        CODEX
    );
    assert!(world.home.join(".codex/config.toml").is_symlink());
}

once_test!(a_client_that_is_not_here_gets_no_settings);
fn a_client_that_is_not_here_gets_no_settings() {
    let world = World::new(Place::any());
    let before = tree(&world.home);
    let finished = lazaret(&world, &["install", "gemini", "--yes"]);
    finished.expect(1);
    assert!(
        finished.errors().contains(".gemini"),
        "{}",
        finished.errors()
    );
    assert_eq!(tree(&world.home), before);
    lazaret(&world, &["install", "gemini", "--yes", "--create"]).success();
    assert!(world.home.join(".gemini/settings.json").exists());
    lazaret(&world, &["uninstall", "gemini", "--yes"]).success();
    assert!(
        !world.home.join(".gemini/settings.json").exists(),
        "it was made for us alone"
    );
    lazaret(&world, &["install", "no-such-client"]).expect(2);
    lazaret(&world, &["install", "gemini", "--by", "shell", "--create"]).expect(2);
}

once_test!(nothing_is_written_without_a_yes);
fn nothing_is_written_without_a_yes() {
    let world = with_settings(&[(".codex/config.toml", CODEX)]);
    let asked = lazaret(&world, &["install", "codex"]);
    asked.expect(2);
    assert!(
        asked.text().contains("shell_tool = false") && asked.errors().contains("--yes"),
        "{}",
        asked.errors()
    );
    for (answer, installed) in [("n\n", false), ("\n", false), ("y\n", true)] {
        let mut command = world.program("lazaret");
        let mut terminal =
            lazaret_tests::Terminal::start(command.args(["install", "codex"]), 50, 100);
        terminal.expect("write this?", LIMIT);
        terminal.send(answer);
        assert_eq!(terminal.finish(LIMIT).success(), installed, "{answer:?}");
        let text = fs::read_to_string(world.home.join(".codex/config.toml")).unwrap();
        assert_eq!(text.contains("lazaret"), installed, "{answer:?}");
    }
}

once_test!(keys_in_settings_are_written_and_not_shown);
/// The line is changed: something comes after it.
fn keys_in_settings_are_written_and_not_shown() {
    const KEY: &str = "sk-of-somebody-0123456789";
    let path = ".cursor/mcp.json";
    let text =
        format!("{{\"mcpServers\": {{\"other\": {{\"env\": {{\"OTHER_API_KEY\": \"{KEY}\"}}}}}}}}");
    let world = with_settings(&[(path, &text)]);
    let shown = lazaret(&world, &["install", "cursor", "--dry-run"]);
    assert!(
        shown.success().contains("+{") && !shown.success().contains(KEY),
        "{}",
        shown.success()
    );
    let shown = lazaret(&world, &["install", "cursor", "--yes"]);
    assert!(!shown.success().contains(KEY), "{}", shown.success());
    let written = fs::read_to_string(world.home.join(path)).unwrap();
    assert!(
        written.contains(KEY) && written.contains("lazaret"),
        "{written}"
    );
    let shown = lazaret(&world, &["uninstall", "cursor", "--yes"]);
    assert!(!shown.success().contains(KEY), "{}", shown.success());
    assert_eq!(fs::read_to_string(world.home.join(path)).unwrap(), text);
}

once_test!(secrets_of_every_form_are_written_and_not_shown);
/// Each stands beside what is changed: in an address, over several lines, as the value of an option.
fn secrets_of_every_form_are_written_and_not_shown() {
    const KEY: &str = "sk-of-somebody-0123456789";
    let cursor = format!(
        "{{\n  \"mcpServers\": {{ \"o\": {{\n    \"url\": \"https://u:{KEY}@h/\",\n    \"args\": [\n      \"--tok\",\n      \
         \"{KEY}\",\n      \"--token={KEY}\"\n    ]\n  }} }}\n}}\n"
    );
    let codex = format!("# mine\ntoken = \"\"\"\nfirst\n{KEY}\n\"\"\"\n");
    let goose = format!("{GOOSE}PRIVATE_KEY: |\n  first\n  {KEY}\n");
    for (client, path, text) in [
        ("cursor", ".cursor/mcp.json", cursor),
        ("codex", ".codex/config.toml", codex),
        ("goose", ".config/goose/config.yaml", goose),
    ] {
        let world = with_settings(&[(path, &text)]);
        let shown = lazaret(&world, &["install", client, "--dry-run"]).success();
        assert!(
            shown.contains('…') && !shown.contains(KEY),
            "{client}: {shown}"
        );
        lazaret(&world, &["install", client, "--yes"]).success();
        assert!(
            fs::read_to_string(world.home.join(path))
                .unwrap()
                .contains(KEY),
            "{client}"
        );
    }
}

once_test!(settings_that_cannot_be_read_are_left_alone);
fn settings_that_cannot_be_read_are_left_alone() {
    for (path, text) in [
        (".gemini/settings.json", "{"),
        (".gemini/settings.json", "{\"tools\": {\"exclude\": \"x\"}}"),
    ] {
        let world = with_settings(&[(path, text)]);
        let refused = lazaret(&world, &["install", "gemini", "--yes"]);
        refused.expect(2);
        assert!(
            refused.errors().contains("settings.json"),
            "{}",
            refused.errors()
        );
        assert_eq!(fs::read_to_string(world.home.join(path)).unwrap(), text);
    }
    // A link whose target is not there, as of another disk: it stays a link.
    let world = with_settings(&[]);
    let settings = world.home.join(".gemini/settings.json");
    world.make_folder(settings.parent().unwrap());
    symlink("../elsewhere/settings.json", &settings).unwrap();
    let refused = lazaret(&world, &["install", "gemini", "--yes"]);
    assert!(
        refused.code() == 2 && refused.errors().contains("elsewhere"),
        "{}",
        refused.errors()
    );
    assert!(settings.is_symlink());
    // Both files, or none.
    let world = with_settings(&[(".claude.json", CLAUDE), (".claude/settings.json", "[]")]);
    lazaret(&world, &["install", "claude-code", "--yes"]).expect(2);
    assert_eq!(
        fs::read_to_string(world.home.join(".claude.json")).unwrap(),
        CLAUDE
    );
}

once_test!(status_says_what_is_installed_and_what_stays_open);
fn status_says_what_is_installed_and_what_stays_open() {
    let world = with_settings(&[(".codex/config.toml", CODEX), (".cursor/mcp.json", SERVERS)]);
    let status = lazaret(&world, &["status"]).success();
    assert!(
        status.contains("codex           not installed") && !status.contains("gemini"),
        "{status}"
    );
    lazaret(&world, &["install", "codex", "--yes"]).success();
    let status = lazaret(&world, &["status"]).success();
    assert!(status.contains("stays open: view_image"), "{status}");
    let told = lazaret(&world, &["install", "codex", "--dry-run"]).success();
    assert!(
        told.contains("no longer asks") && told.contains("--trust guided"),
        "{told}"
    );
    assert!(
        !lazaret(&world, &["install", "cursor", "--dry-run"])
            .success()
            .contains("no longer asks")
    );
    let config = world.home.join(".codex/config.toml");
    let text = fs::read_to_string(&config)
        .unwrap()
        .replace("shell_tool = false", "shell_tool = true");
    world.write(&config, text);
    let status = lazaret(&world, &["status"]).success();
    assert!(status.contains("in part: 2 of 3"), "{status}");
    let json: serde_json::Value =
        serde_json::from_slice(&lazaret(&world, &["status", "--json"]).stdout).unwrap();
    assert_eq!(json[0]["client"], "codex", "{json}");
}

once_test!(each_installation_has_a_server_of_another_name);
/// A repository that knew the name could put a server of its own in the place of ours, which is called unasked.
fn each_installation_has_a_server_of_another_name() {
    let name = || {
        let world = with_settings(&[
            (".claude.json", CLAUDE),
            (".claude/settings.json", SETTINGS),
        ]);
        lazaret(&world, &["install", "claude-code", "--yes"]).success();
        let read = |path: &str| -> Value {
            serde_json::from_slice(&fs::read(world.home.join(path)).unwrap()).unwrap()
        };
        let servers = read(".claude.json")["mcpServers"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>();
        let settings = read(".claude/settings.json");
        let [name] = servers.as_slice() else {
            panic!("{servers:?}")
        };
        assert_eq!(
            settings["permissions"]["allow"],
            json!([format!("mcp__{name}")])
        );
        assert_eq!(
            settings["disabledMcpjsonServers"],
            json!(["lazaret", name]),
            "no project's server is taken for ours"
        );
        name.clone()
    };
    let (one, other) = (name(), name());
    assert!(
        one != other && one.len() == "lazaret-".len() + 10,
        "{one} {other}"
    );
}

once_test!(each_tool_of_a_released_agent_is_denied_or_said_to_be_open);
/// The recorded tools of the released agents; `outside_agents` compares them with the agents themselves.
fn each_tool_of_a_released_agent_is_denied_or_said_to_be_open() {
    for (client, settings) in [
        ("claude-code", ".claude/settings.json"),
        ("opencode", ".config/opencode/opencode.json"),
    ] {
        let world = with_settings(&[(settings, "{}")]);
        lazaret(&world, &["install", client, "--yes"]).success();
        let installed: Value =
            serde_json::from_slice(&fs::read(world.home.join(settings)).unwrap()).unwrap();
        let recorded =
            fs::read_to_string(PathBuf::from(TOOLS).join(format!("{client}.txt"))).unwrap();
        assert_eq!(undecided(&installed, &recorded), [""; 0], "{client}");
        let planted = format!("{recorded}\nNewTool denied\n");
        assert_eq!(
            undecided(&installed, &planted),
            ["NewTool"],
            "{client}: a planted tool is found"
        );
    }
}

/// The recorded tools that are not denied, and of which no reason is recorded why they are not.
fn undecided(installed: &Value, recorded: &str) -> Vec<String> {
    let denied = |tool: &str| {
        let rules = installed["permissions"]["deny"].as_array();
        rules.is_some_and(|rules| rules.iter().any(|rule| rule == tool))
            || installed["permission"][tool] == "deny"
    };
    let lines = recorded
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parts = lines.map(|line| line.split_once(' ').unwrap_or((line, "")));
    parts
        .filter(|(tool, state)| match *state {
            "denied" => !denied(tool),
            state => match state.strip_prefix("denied by ") {
                Some(rule) => !denied(rule),
                None => !state.starts_with("open: ") || denied(tool),
            },
        })
        .map(|(tool, _)| tool.to_owned())
        .collect()
}
