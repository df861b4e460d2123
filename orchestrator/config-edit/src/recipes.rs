//! For each client: its files, our tools in them, and its own tools disabled. Where a version is given, this was tested with it;
//! the rest follows the documentation of the client.

use crate::document::Format;
use crate::edit::KeyEdit;
use serde_json::{Value, json};

/// A client with a recipe.
#[derive(Clone, Copy, Debug)]
pub struct RecipeClient {
    /// The name on the command line.
    pub name: &'static str,
    /// The name that its makers use.
    pub title: &'static str,
    /// Ways to give it our tools; the first is the default.
    pub ways: &'static [InstallWay],
    /// Directories that show that the client is installed: one of them exists.
    pub signs: &'static [(UserDirectory, &'static str)],
    recipe: fn(&Programs, InstallWay) -> Recipe,
}

/// The way in which a client gets our tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallWay {
    /// As tools of an MCP server; its own tools are disabled where its settings allow that.
    Server,
    /// As its shell; its file tools stay.
    Shell,
}

impl InstallWay {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            InstallWay::Server => "server",
            InstallWay::Shell => "shell",
        }
    }
}

/// The paths of our programs, and the name of our server.
#[derive(Clone, Debug)]
pub struct Programs {
    pub lazaret: String,
    pub lazaret_bash: String,
    /// The name that the client knows our server by.
    pub server: String,
}

/// The name of our server where a person has written the settings. A repository knows it, and may call its own so.
pub const USUAL_SERVER: &str = "lazaret";

/// The changes for a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The files; none if the client keeps its settings where no program can write them.
    pub files: Vec<FileRecipe>,
    /// Steps that the user has to do or paste.
    pub by_hand: Option<String>,
    /// Tools by which the client still acts itself, outside cells.
    pub open: &'static [&'static str],
    /// Whether the client calls our tools without asking its user from then on.
    pub is_unasked: bool,
}

impl Recipe {
    /// This recipe for a client whose changed settings let it call our tools without asking.
    fn unasked(self) -> Self {
        Self {
            is_unasked: true,
            ..self
        }
    }
}

/// The changes in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileRecipe {
    /// The directory that the paths start from.
    pub root: UserDirectory,
    /// The first of these that exists; if none does, the first.
    pub paths: &'static [&'static str],
    pub format: Format,
    pub edits: Vec<KeyEdit>,
}

/// A directory of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserDirectory {
    /// The directory that `$HOME` names.
    Home,
    /// `$XDG_CONFIG_HOME`, or `.config` of the home.
    Config,
}

impl RecipeClient {
    /// The client of this name.
    pub fn find(name: &str) -> Option<&'static RecipeClient> {
        CLIENTS.iter().find(|client| client.name == name)
    }

    /// The changes for this client.
    pub fn recipe(&self, programs: &Programs, way: InstallWay) -> Recipe {
        (self.recipe)(programs, way)
    }
}

const SERVER: &[InstallWay] = &[InstallWay::Server];
const BOTH: &[InstallWay] = &[InstallWay::Server, InstallWay::Shell];

pub static CLIENTS: [RecipeClient; 15] = [
    client(
        "claude-code",
        "Claude Code",
        BOTH,
        &[
            (UserDirectory::Home, ".claude"),
            (UserDirectory::Home, ".claude.json"),
        ],
        claude_code,
    ),
    client(
        "claude-desktop",
        "Claude Desktop",
        SERVER,
        &[(UserDirectory::Config, "Claude")],
        claude_desktop,
    ),
    client(
        "codex",
        "Codex CLI",
        SERVER,
        &[(UserDirectory::Home, ".codex")],
        codex,
    ),
    client(
        "gemini",
        "Gemini CLI",
        SERVER,
        &[(UserDirectory::Home, ".gemini")],
        gemini,
    ),
    client(
        "qwen",
        "Qwen Code",
        SERVER,
        &[(UserDirectory::Home, ".qwen")],
        qwen,
    ),
    client(
        "opencode",
        "OpenCode",
        BOTH,
        &[(UserDirectory::Config, "opencode")],
        opencode,
    ),
    client(
        "goose",
        "Goose",
        SERVER,
        &[(UserDirectory::Config, "goose")],
        goose,
    ),
    client(
        "crush",
        "Crush",
        SERVER,
        &[(UserDirectory::Config, "crush")],
        crush,
    ),
    client(
        "cursor",
        "Cursor",
        SERVER,
        &[(UserDirectory::Home, ".cursor")],
        cursor,
    ),
    client(
        "windsurf",
        "Windsurf",
        SERVER,
        &[(UserDirectory::Home, ".codeium/windsurf")],
        windsurf,
    ),
    client("zed", "Zed", SERVER, &[(UserDirectory::Config, "zed")], zed),
    client(
        "vscode",
        "Visual Studio Code",
        BOTH,
        &[(UserDirectory::Config, "Code")],
        vscode,
    ),
    client(
        "cline",
        "Cline",
        SERVER,
        &[(
            UserDirectory::Config,
            "Code/User/globalStorage/saoudrizwan.claude-dev",
        )],
        cline,
    ),
    client(
        "copilot",
        "Copilot CLI",
        SERVER,
        &[(UserDirectory::Home, ".copilot")],
        copilot,
    ),
    client(
        "jetbrains",
        "JetBrains IDEs",
        SERVER,
        &[(UserDirectory::Config, "JetBrains")],
        jetbrains,
    ),
];

const fn client(
    name: &'static str,
    title: &'static str,
    ways: &'static [InstallWay],
    signs: &'static [(UserDirectory, &'static str)],
    recipe: fn(&Programs, InstallWay) -> Recipe,
) -> RecipeClient {
    RecipeClient {
        name,
        title,
        ways,
        signs,
        recipe,
    }
}

fn file(
    root: UserDirectory,
    paths: &'static [&'static str],
    format: Format,
    edits: Vec<KeyEdit>,
) -> FileRecipe {
    FileRecipe {
        root,
        paths,
        format,
        edits,
    }
}

fn in_files(files: Vec<FileRecipe>, open: &'static [&'static str]) -> Recipe {
    Recipe {
        files,
        by_hand: None,
        open,
        is_unasked: false,
    }
}

/// The arguments of our server: it examines the settings that this client reads in a project.
fn arguments(client: &str) -> Value {
    json!(["mcp", "--client", client])
}

/// A server entry as most clients have it.
fn server(programs: &Programs, client: &str) -> Value {
    json!({ "command": programs.lazaret, "args": arguments(client) })
}

/// Sets our server's entry in the object `servers`.
fn set_server(servers: &str, programs: &Programs, entry: Value) -> KeyEdit {
    KeyEdit::set(&format!("{servers}.{}", programs.server), entry)
}

/// A server's entry with additional fields of a client.
fn server_with(programs: &Programs, client: &str, more: Value) -> Value {
    let mut server = server(programs, client);
    if let (Value::Object(fields), Value::Object(more)) = (&mut server, more) {
        fields.extend(more);
    }
    server
}

/// Tools by which Claude Code 2.1.330 itself acts on files, programs and addresses of the host; the last three are by parameter. If Bash and
/// Read were denied alone, Glob and Grep would appear instead. It warns about a name that it does not know.
pub(crate) const CLAUDE_OWN: [&str; 21] = [
    "Bash",
    "PowerShell",
    "Monitor",
    "REPL",
    "Edit",
    "Write",
    "Read",
    "NotebookEdit",
    "Glob",
    "Grep",
    "LSP",
    "WebFetch",
    "Workflow",
    "EnterWorktree",
    "ExitWorktree",
    "Artifact",
    "Projects",
    "SendUserFile",
    "Agent(isolation:worktree)",
    "Agent(isolation:remote)",
    "CronCreate(durable:true)",
];

/// 2.1.330. A denial holds whatever a project's settings allow. A project's server of the usual name is refused, so that nobody takes it
/// for ours.
fn claude_code(programs: &Programs, way: InstallWay) -> Recipe {
    let settings: &[&str] = &[".claude/settings.json"];
    if way == InstallWay::Shell {
        let shell = KeyEdit::set("env.CLAUDE_CODE_SHELL", programs.lazaret_bash.as_str());
        let open = &[
            "Edit, Write, Read, NotebookEdit, Glob, Grep, PowerShell, WebFetch, worktrees",
            "its MCP servers and hooks",
            "everything, where a project's settings name another shell (`env`), unless it is started with `--setting-sources user`",
        ];
        return Recipe {
            by_hand: Some(CLAUDE_STARTED.into()),
            ..in_files(
                vec![file(
                    UserDirectory::Home,
                    settings,
                    Format::Json,
                    vec![shell],
                )],
                open,
            )
        };
    }
    let server = server_with(
        programs,
        "claude-code",
        json!({ "type": "stdio", "env": {} }),
    );
    let ours = format!("mcp__{}", programs.server);
    let edits = vec![
        KeyEdit::add("permissions.deny", &CLAUDE_OWN),
        KeyEdit::add("permissions.allow", &[&ours]),
        KeyEdit::add("disabledMcpjsonServers", &[USUAL_SERVER, &programs.server]),
    ];
    in_files(
        vec![
            file(
                UserDirectory::Home,
                &[".claude.json"],
                Format::Json,
                vec![set_server("mcpServers", programs, server)],
            ),
            file(UserDirectory::Home, settings, Format::Json, edits),
        ],
        &[
            "its hooks and other MCP servers, those of a project too",
            "Agent, Skill, Cron and WebSearch, which run no command themselves",
        ],
    )
    .unasked()
}

/// No file of a user's wins over a project's.
const CLAUDE_STARTED: &str = "A project's `.claude/settings.json` overrides this. Start Claude Code so that it reads no settings of a project \
                              (~/.bashrc): alias claude='claude --setting-sources user'";

fn claude_desktop(programs: &Programs, _: InstallWay) -> Recipe {
    let edits = vec![set_server(
        "mcpServers",
        programs,
        server(programs, "claude-desktop"),
    )];
    in_files(
        vec![file(
            UserDirectory::Config,
            &["Claude/claude_desktop_config.json"],
            Format::Json,
            edits,
        )],
        &["its other MCP servers and extensions"],
    )
}

/// 0.169.0. Sets its own sandbox to read-only, in which its shell and its patches can change nothing, also in each of its profiles
/// that sets another.
fn codex(programs: &Programs, _: InstallWay) -> Recipe {
    let server = server_with(
        programs,
        "codex",
        json!({ "default_tools_approval_mode": "approve" }),
    );
    let edits = vec![
        KeyEdit::set_each("profiles", "sandbox_mode", "read-only"),
        KeyEdit::set_each("profiles", "features.shell_tool", false),
        set_server("mcp_servers", programs, server),
    ];
    in_files(
        vec![file(
            UserDirectory::Home,
            &[".codex/config.toml"],
            Format::Toml,
            edits,
        )],
        &[
            "view_image, which reads any file of yours",
            "its hooks, web search and other MCP servers",
            "what its command line sets otherwise: --sandbox, --full-auto, -c",
        ],
    )
    .unasked()
}

/// 0.61.0. `tools.core` would remove our tools too.
fn gemini(programs: &Programs, _: InstallWay) -> Recipe {
    gemini_or_qwen(
        programs,
        "gemini",
        &["replace"],
        &[".gemini/settings.json"],
        &[
            "web_fetch, google_web_search, save_memory",
            "its hooks and other MCP servers",
        ],
    )
}

/// The recipe was checked with version 0.24.4.
fn qwen(programs: &Programs, _: InstallWay) -> Recipe {
    gemini_or_qwen(
        programs,
        "qwen",
        &["edit", "replace"],
        &[".qwen/settings.json"],
        &[
            "web_fetch, web_search, save_memory",
            "its hooks and other MCP servers",
        ],
    )
}

/// Qwen Code is derived from Gemini CLI: the two differ in a few names.
fn gemini_or_qwen(
    programs: &Programs,
    client: &str,
    editing: &[&'static str],
    settings: &'static [&'static str],
    open: &'static [&'static str],
) -> Recipe {
    let mut own = vec!["run_shell_command", "write_file"];
    own.extend(editing);
    own.extend([
        "read_file",
        "read_many_files",
        "list_directory",
        "glob",
        "grep_search",
    ]);
    let edits = vec![
        KeyEdit::add("tools.exclude", &own),
        set_server(
            "mcpServers",
            programs,
            server_with(programs, client, json!({ "trust": true })),
        ),
    ];
    in_files(
        vec![file(
            UserDirectory::Home,
            settings,
            Format::JsonWithComments,
            edits,
        )],
        open,
    )
    .unasked()
}

/// 1.18.33. The last matching rule in `permission` counts, so ours follow every pattern; the one for `edit` also covers `write` and
/// `patch`. The older setting `tools` would put them before a rule for `*`, which then enables its tools again.
fn opencode(programs: &Programs, way: InstallWay) -> Recipe {
    let paths: &[&str] = &["opencode/opencode.jsonc", "opencode/opencode.json"];
    if way == InstallWay::Shell {
        let shell = KeyEdit::set("shell", programs.lazaret_bash.as_str());
        let files = vec![
            file(UserDirectory::Config, paths, Format::Jsonc, vec![shell]),
            opencode_plugin(programs, &[]),
        ];
        let open = &[
            "read, write, edit, patch, grep, glob, list, webfetch",
            "its plugins and MCP servers",
        ];
        return Recipe {
            by_hand: Some(OPENCODE_SWITCHED.into()),
            ..in_files(files, open)
        };
    }
    let command = json!([programs.lazaret, "mcp", "--client", "opencode"]);
    let server = json!({ "type": "local", "command": command, "enabled": true });
    let mut edits = vec![set_server("mcp", programs, server)];
    edits.extend(OPENCODE_OWN.map(|tool| KeyEdit::set_last(&format!("permission.{tool}"), "deny")));
    let files = vec![
        file(UserDirectory::Config, paths, Format::Jsonc, edits),
        opencode_plugin(programs, &OPENCODE_TOOLS),
    ];
    let open = &[
        "task and todo tools, web search, skills",
        "its plugins and other MCP servers",
        "what it does without plugins (`--pure`, OPENCODE_PURE)",
    ];
    Recipe {
        by_hand: Some(OPENCODE_SWITCHED.into()),
        ..in_files(files, open)
    }
}

/// All plugins are loaded at the same time.
const OPENCODE_SWITCHED: &str = "A project's plugins may start before the plugin of Lazaret ends OpenCode. Put this where your shell starts (~/.profile), \
                                 so that OpenCode reads nothing of a project: export OPENCODE_DISABLE_PROJECT_CONFIG=1";

/// A project's settings win over a user's, but a user's plugin is loaded before they act.
fn opencode_plugin(programs: &Programs, own: &[&str]) -> FileRecipe {
    let text = include_str!("opencode.js")
        .replace("@LAZARET@", &json!(programs.lazaret).to_string())
        .replace("@OWN@", &json!(own).to_string());
    file(
        UserDirectory::Config,
        &["opencode/plugins/lazaret.js"],
        Format::Text,
        vec![KeyEdit::set(crate::text::KEY, text)],
    )
}

/// Tools by which OpenCode 1.18.33 itself acts on files, programs and addresses of the host: the names of its permissions.
pub(crate) const OPENCODE_OWN: [&str; 8] = [
    "bash", "edit", "read", "grep", "glob", "list", "lsp", "webfetch",
];

/// The tools behind these permissions.
const OPENCODE_TOOLS: [&str; 11] = [
    "bash",
    "edit",
    "write",
    "patch",
    "apply_patch",
    "read",
    "grep",
    "glob",
    "list",
    "lsp",
    "webfetch",
];

fn goose(programs: &Programs, _: InstallWay) -> Recipe {
    let server = json!({
        "name": programs.server, "type": "stdio", "cmd": programs.lazaret, "args": arguments("goose"), "envs": {},
        "enabled": true, "timeout": 300,
    });
    let edits = vec![
        set_server("extensions", programs, server),
        KeyEdit::set("extensions.developer.enabled", false),
    ];
    in_files(
        vec![file(
            UserDirectory::Config,
            &["goose/config.yaml"],
            Format::Yaml,
            edits,
        )],
        &[
            "Goose Desktop was seen to switch the developer extension on again",
            "its other extensions",
        ],
    )
}

fn crush(programs: &Programs, _: InstallWay) -> Recipe {
    let own = [
        "bash",
        "edit",
        "multiedit",
        "write",
        "view",
        "ls",
        "glob",
        "grep",
        "fetch",
        "download",
    ];
    let edits = vec![
        set_server(
            "mcp",
            programs,
            server_with(programs, "crush", json!({ "type": "stdio" })),
        ),
        KeyEdit::add("options.disabled_tools", &own),
    ];
    in_files(
        vec![file(
            UserDirectory::Config,
            &["crush/crush.json"],
            Format::Json,
            edits,
        )],
        &["its language servers, hooks and other MCP servers"],
    )
}

fn cursor(programs: &Programs, _: InstallWay) -> Recipe {
    let edits = vec![set_server(
        "mcpServers",
        programs,
        server(programs, "cursor"),
    )];
    Recipe {
        files: vec![file(
            UserDirectory::Home,
            &[".cursor/mcp.json"],
            Format::Json,
            edits,
        )],
        by_hand: Some(
            "In Cursor's settings, switch off automatic runs of terminal commands.".into(),
        ),
        open: &["its own terminal, edit and read tools, which no setting takes away"],
        is_unasked: false,
    }
}

fn windsurf(programs: &Programs, _: InstallWay) -> Recipe {
    let edits = vec![set_server(
        "mcpServers",
        programs,
        server(programs, "windsurf"),
    )];
    Recipe {
        files: vec![file(
            UserDirectory::Home,
            &[".codeium/windsurf/mcp_config.json"],
            Format::Json,
            edits,
        )],
        by_hand: Some(
            "In Windsurf's settings, set the automatic execution of terminal commands to off."
                .into(),
        ),
        open: &["its own terminal, edit and read tools, which no setting takes away"],
        is_unasked: false,
    }
}

fn zed(programs: &Programs, _: InstallWay) -> Recipe {
    let own = [
        "copy_path",
        "create_directory",
        "delete_path",
        "edit_file",
        "fetch",
        "find_path",
        "grep",
        "list_directory",
        "move_path",
        "open",
        "read_file",
        "save_file",
        "terminal",
    ];
    let tools: Value = own
        .iter()
        .map(|tool| ((*tool).to_owned(), json!(false)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let profile = json!({ "name": "Lazaret", "tools": tools, "enable_all_context_servers": true });
    let edits = vec![
        set_server(
            "context_servers",
            programs,
            server_with(programs, "zed", json!({ "source": "custom", "env": {} })),
        ),
        KeyEdit::set("agent.profiles.lazaret", profile),
        KeyEdit::set("agent.default_profile", "lazaret"),
    ];
    in_files(
        vec![file(
            UserDirectory::Config,
            &["zed/settings.json"],
            Format::Jsonc,
            edits,
        )],
        &[
            "its tools in another profile than `lazaret`",
            "external agents (ACP), tasks, language servers",
        ],
    )
}

fn vscode(programs: &Programs, way: InstallWay) -> Recipe {
    let profile = json!({ "path": programs.lazaret_bash, "args": [] });
    let shell = file(
        UserDirectory::Config,
        &["Code/User/settings.json"],
        Format::Jsonc,
        vec![KeyEdit::set_key(
            "chat.tools.terminal.terminalProfile.linux",
            profile,
        )],
    );
    let mut files = vec![shell];
    if way == InstallWay::Server {
        let server = server_with(programs, "vscode", json!({ "type": "stdio" }));
        let edits = vec![set_server("servers", programs, server)];
        files.push(file(
            UserDirectory::Config,
            &["Code/User/mcp.json"],
            Format::Jsonc,
            edits,
        ));
    }
    in_files(
        files,
        &[
            "its edit, read and search tools",
            "its tasks, extensions and other MCP servers",
        ],
    )
}

fn cline(programs: &Programs, _: InstallWay) -> Recipe {
    let path: &[&str] =
        &["Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"];
    let server = server_with(programs, "cline", json!({ "disabled": false }));
    let edits = vec![set_server("mcpServers", programs, server)];
    Recipe {
        files: vec![file(UserDirectory::Config, path, Format::Json, edits)],
        by_hand: Some("In Cline's settings, leave Auto-approve off for commands and edits.".into()),
        open: &["its own terminal, edit and read tools, which no setting takes away"],
        is_unasked: false,
    }
}

fn copilot(programs: &Programs, _: InstallWay) -> Recipe {
    let server = server_with(
        programs,
        "copilot",
        json!({ "type": "local", "tools": ["*"] }),
    );
    Recipe {
        files: vec![file(
            UserDirectory::Home,
            &[".copilot/mcp-config.json"],
            Format::Json,
            vec![set_server("mcpServers", programs, server)],
        )],
        by_hand: Some(
            "Start it as `copilot --deny-tool shell --deny-tool write`: no file takes its own tools away."
                .into(),
        ),
        open: &["its own shell and write, unless it is started with these options", "its read tools"],
        is_unasked: false,
    }
}

fn jetbrains(programs: &Programs, _: InstallWay) -> Recipe {
    let pasted =
        json!({ "mcpServers": { programs.server.clone(): server(programs, "jetbrains") } });
    Recipe {
        files: vec![],
        by_hand: Some(format!(
            "Paste this in Settings, Tools, AI Assistant, Model Context Protocol:\n{pasted:#}"
        )),
        open: &["the assistant's own edits and terminal commands, which no setting takes away"],
        is_unasked: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::{apply, present, revert};

    fn programs() -> Programs {
        let (lazaret, lazaret_bash) = ("/opt/bin/lazaret".into(), "/opt/bin/lazaret-bash".into());
        Programs {
            lazaret,
            lazaret_bash,
            server: "lazaret-0a1b2c3d4e".into(),
        }
    }

    /// Realistic settings: with comments, our keys with different values, and irregular spaces.
    fn before(format: Format) -> [&'static str; 4] {
        match format {
            Format::Json => [
                "",
                "{}\n",
                "{\n  \"theme\" : \"dark\",   \"x\": [1,2,\n 3],\n  \"permissions\": {\n    \"deny\": [\"WebFetch\"]\n  },\n\
                 \t\"mcpServers\": { \"other\": {\"command\": \"o\"} },\n  \"tools\": {\"exclude\": [\"glob\"], \"bash\": true}\n}",
                "{\"mcp\":{},\"servers\":{},\"shell\":\"/bin/zsh\",\"mcpServers\":{}}",
            ],
            Format::JsonWithComments | Format::Jsonc => [
                "",
                "{}\n",
                "{\n  // mine\n  \"theme\" : \"dark\",   \"x\": [1,2,\n 3],\n  \"permissions\": {\n    \"deny\": [\"WebFetch\"] // no web\n  },\n\
                 \t\"mcpServers\": { \"other\": {\"command\": \"o\"} },\n  /* last */\n  \"tools\": {\"exclude\": [\"glob\"], \"bash\": true}\n}",
                "{\"mcp\":{},\"servers\":{},\"context_servers\":{},\"shell\":\"/bin/zsh\",\"agent\":{\"default_profile\":\"write\"},\"mcpServers\":{}}",
            ],
            Format::Toml => [
                "",
                "model = \"o\"\n",
                "# mine\nmodel = \"o\"   # the best\nsandbox_mode = 'workspace-write' # yes\n\n[features]\nshell_tool = true\nother=1\n\n\
                 [mcp_servers.other]\ncommand = \"o\"\nargs = [ \"a\",\"b\" ]\n",
                "[features]\nweb = true\n",
            ],
            Format::Yaml => [
                "",
                "GOOSE_MODEL: o\n",
                "# mine\nGOOSE_PROVIDER: p   # q\nextensions:\n  developer:\n    enabled: true\n    name: developer\n    # kept\n  memory:\n\
                 \x20   enabled: false\n\n# end\nGOOSE_MODE: auto\n",
                "extensions:\n    computercontroller:\n        enabled: true\n",
            ],
            Format::Text => ["", "x", "// theirs\n", "export const X = 1;\n"],
        }
    }

    #[test]
    fn every_installation_can_be_reverted() {
        for client in &CLIENTS {
            for way in client.ways {
                for file in client.recipe(&programs(), *way).files {
                    for text in before(file.format) {
                        let name = format!("{} {way:?} {:?}\n{text}", client.name, file.paths);
                        let installed = apply(file.format, text, &file.edits)
                            .unwrap_or_else(|error| panic!("{name}: {error}"));
                        assert_ne!(installed, text, "{name}");
                        assert_eq!(
                            present(file.format, &installed, &file.edits),
                            Ok(file.edits.len()),
                            "{name}"
                        );
                        assert_eq!(
                            apply(file.format, &installed, &file.edits).as_ref(),
                            Ok(&installed),
                            "twice: {name}"
                        );
                        let reverted = revert(file.format, &installed, text, &file.edits).unwrap();
                        assert!(
                            present(file.format, &reverted, &file.edits).unwrap()
                                < file.edits.len(),
                            "{name}"
                        );
                        let values =
                            |text: &str| crate::edit::read(file.format, text).unwrap().text();
                        let kept = |text: &str| {
                            text.lines()
                                .filter(|line| line.contains("mine") || line.contains("theme"))
                                .map(str::to_owned)
                                .collect::<Vec<_>>()
                        };
                        assert_eq!(kept(&values(&reverted)), kept(text), "{name}");
                        assert_eq!(
                            parsed(file.format, &reverted),
                            parsed(file.format, text),
                            "{name}\n{reverted}"
                        );
                    }
                }
            }
        }
    }

    /// The values of a text. An empty text has the same values as one without keys.
    fn parsed(format: Format, text: &str) -> Value {
        let value: Value = match format {
            Format::Json | Format::JsonWithComments | Format::Jsonc => {
                let root =
                    jsonc_parser::cst::CstRootNode::parse(text, &Default::default()).unwrap();
                root.to_serde_value().unwrap_or(Value::Null)
            }
            Format::Toml => {
                let document: toml_edit::DocumentMut = text.parse().unwrap();
                Value::String(
                    document
                        .iter()
                        // A restored value may have different quotes.
                        .map(|(key, item)| {
                            format!("{key}={}", item.to_string().trim().replace('\'', "\""))
                        })
                        .collect::<Vec<_>>()
                        .join(";"),
                )
            }
            Format::Yaml if text.trim().is_empty() => Value::Null,
            Format::Yaml => serde_saphyr::from_str(text).unwrap(),
            Format::Text => text.into(),
        };
        if value == json!({}) || value == json!("") {
            Value::Null
        } else {
            value
        }
    }

    #[test]
    fn unchanged_lines_stay_to_the_byte() {
        let edits = &[
            KeyEdit::set("mcpServers.lazaret.command", "l"),
            KeyEdit::add("permissions.deny", &["Bash"]),
        ];
        let text = before(Format::Jsonc)[2];
        let installed = apply(Format::Jsonc, text, edits).unwrap();
        for line in [
            "  // mine",
            "  \"theme\" : \"dark\",   \"x\": [1,2,",
            " 3],",
            "  /* last */",
        ] {
            assert!(
                installed.lines().any(|one| one == line),
                "{line:?} in\n{installed}"
            );
        }
        assert!(installed.contains("// no web"), "{installed}");
        let text = before(Format::Toml)[2];
        let installed = apply(
            Format::Toml,
            text,
            &[
                KeyEdit::set("sandbox_mode", "read-only"),
                KeyEdit::set("a.b.c", 1),
            ],
        )
        .unwrap();
        assert_eq!(
            installed,
            text.replace("'workspace-write'", "\"read-only\"") + "\n[a.b]\nc = 1\n"
        );
        let text = before(Format::Yaml)[2];
        let installed = apply(
            Format::Yaml,
            text,
            &[
                KeyEdit::set("extensions.developer.enabled", false),
                KeyEdit::set("extensions.l", json!({"a": ["b"], "c": {}})),
            ],
        )
        .unwrap();
        let wanted = text.replace(
            "developer:\n    enabled: true",
            "developer:\n    enabled: false",
        );
        let wanted = wanted.replace(
            "  memory:\n    enabled: false\n",
            "  memory:\n    enabled: false\n  l:\n    a:\n    - \"b\"\n    c: {}\n",
        );
        assert_eq!(installed, wanted);
    }

    #[test]
    fn file_that_cannot_be_edited_in_place_is_left_alone() {
        let set = [KeyEdit::set("extensions.l.a", 1)];
        for (format, text) in [
            (Format::Json, "{"),
            (Format::Json, "[]"),
            (Format::Json, "{\"extensions\": []}"),
            (Format::Json, "{\"extensions\": {\"l\": 5}}"),
            (Format::Toml, "extensions = 5"),
            (Format::Toml, "[[extensions]]\n"),
            (Format::Toml, "x = "),
            (Format::Yaml, "extensions: {developer: {enabled: true}}\n"),
            (Format::Yaml, "- a\n"),
            (Format::Yaml, "extensions: &a\n  x: 1\nother: *a\n"),
            (Format::Yaml, "a: [\n"),
        ] {
            assert!(apply(format, text, &set).is_err(), "{format:?}: {text}");
        }
        let add = [KeyEdit::add("permissions.deny", &["x"])];
        assert!(apply(Format::Json, "{\"permissions\": {\"deny\": \"all\"}}", &add).is_err());
    }

    #[test]
    fn later_changes_survive_a_revert() {
        let edits = [KeyEdit::set("a.b", 1), KeyEdit::add("list", &["x", "y"])];
        let installed = apply(Format::Json, "{\"list\": [\"y\"]}", &edits).unwrap();
        let changed = installed
            .replace("\"b\": 1", "\"b\": 2, \"mine\": true")
            .replace("\"x\"", "\"x\", \"z\"");
        let reverted = revert(Format::Json, &changed, "{\"list\": [\"y\"]}", &edits).unwrap();
        let value: Value = serde_json::from_str(&reverted).unwrap();
        assert_eq!(
            value,
            json!({"a": {"b": 2, "mine": true}, "list": ["y", "z"]})
        );
    }

    #[test]
    fn a_rule_counts_only_behind_every_pattern() {
        let edits = [
            KeyEdit::set_last("permission.bash", "deny"),
            KeyEdit::set_last("permission.read", "deny"),
        ];
        let names = |text: &str| {
            let at = |name: &str| text.find(name).unwrap();
            at("\"*\"") < at("\"bash\"") && at("\"*\"") < at("\"read\"")
        };
        for before in [
            r#"{"permission":{"bash":"ask","read":"allow","*":"allow"}}"#,
            r#"{"permission":{"bash":"deny","read":"deny","*":"allow"}}"#,
        ] {
            assert!(
                present(Format::Jsonc, before, &edits).unwrap() == 0,
                "{before}"
            );
            let installed = apply(Format::Jsonc, before, &edits).unwrap();
            assert!(names(&installed), "{installed}");
            assert_eq!(
                present(Format::Jsonc, &installed, &edits),
                Ok(2),
                "{installed}"
            );
        }
        let installed = apply(Format::Jsonc, "", &edits).unwrap();
        let later = installed.replace(
            "\"read\": \"deny\"",
            "\"ba*\": \"allow\", \"read\": \"deny\"",
        );
        assert_eq!(present(Format::Jsonc, &later, &edits), Ok(1), "{later}");
    }

    #[test]
    fn a_profile_of_codex_opens_nothing() {
        let before = "profile = \"x\"\n[profiles.x]\nsandbox_mode = \"danger-full-access\"\nmodel = \"o\"\n[profiles.x.features]\n\
                      shell_tool = true\n[profiles.y]\nmodel = \"p\"\n";
        let edits = &codex(&programs(), InstallWay::Server).files[0].edits;
        let installed = apply(Format::Toml, before, edits).unwrap();
        assert!(
            !installed.contains("danger-full-access") && !installed.contains("true"),
            "{installed}"
        );
        assert_eq!(present(Format::Toml, &installed, edits), Ok(edits.len()));
        let opened = installed.replace(
            "[profiles.y]\n",
            "[profiles.y]\nsandbox_mode = \"workspace-write\"\n",
        );
        assert_eq!(
            present(Format::Toml, &opened, edits),
            Ok(edits.len() - 1),
            "{opened}"
        );
        let changed = format!("z = 1\n{installed}");
        let reverted = revert(Format::Toml, &changed, before, edits).unwrap();
        assert_eq!(
            parsed(Format::Toml, &reverted),
            parsed(Format::Toml, &format!("z = 1\n{before}"))
        );
    }

    #[test]
    fn ends_of_lines_and_the_mark_at_the_beginning_stay() {
        for (format, text) in [
            (
                Format::Toml,
                "a = 1\r\n# mine\r\nb = \"\"\"x\r\ny\"\"\"\r\n",
            ),
            (Format::Toml, "\u{feff}a = 1\n"),
            (Format::Yaml, "a: 1\r\n# mine\r\nb:\r\n  c: 2\r\n"),
            (Format::Yaml, "\u{feff}a: 1\n"),
            (Format::Json, "{\r\n  \"a\": 1\r\n}\r\n"),
        ] {
            let installed = apply(format, text, &[KeyEdit::set("z.y", "w")]).unwrap();
            let ends = |text: &str| (text.matches('\n').count(), text.matches("\r\n").count());
            let (lines, returns) = ends(&installed);
            assert!(
                returns == if text.contains('\r') { lines } else { 0 },
                "{installed:?}"
            );
            assert_eq!(
                installed.starts_with('\u{feff}'),
                text.starts_with('\u{feff}'),
                "{installed:?}"
            );
            assert_eq!(apply(format, text, &[]).unwrap(), text);
        }
        assert!(
            apply(Format::Toml, "a = 1\r\nb = 2\n", &[]).is_err(),
            "two ends"
        );
    }
}
