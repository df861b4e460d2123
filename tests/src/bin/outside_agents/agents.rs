//! The agents: how each is installed, told where its model is, and put behind Lazaret.

use crate::model::Tool;
use lazaret_tests::{LIMIT, World, programs, run};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A way in which an agent is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Plain,
    Shell,
    Prefix,
    Hook,
    /// The same for an agent that takes no other command from a hook: each one is denied.
    Denial,
    /// Our server, its own tools switched off.
    Server,
    /// The same in a guided session: the agent's user is asked (elicitation), and says yes.
    Asked,
    /// The same where nobody answers.
    Unanswered,
    /// Its exec server is in a cell.
    ExecServer,
    Whole,
    /// As a whole, at its vendor's host, with a key that the gateway keeps.
    Credential,
    /// At that host, with the key itself in its variable.
    Key,
    /// Both on a terminal, in two sessions.
    Terminal,
    KeyTerminal,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Way::Plain => "none (control)",
            Way::Shell => "shell",
            Way::Prefix => "prefix",
            Way::Hook => "hook",
            Way::Denial => "hook, which denies",
            Way::Server => "server (MCP)",
            Way::Asked => "server, its user says yes",
            Way::Unanswered => "server, nobody answers",
            Way::ExecServer => "exec server",
            Way::Whole => "whole",
            Way::Credential => "whole, with a credential",
            Way::Key => "whole, with its key (control)",
            Way::Terminal => "whole, with a credential, on a terminal",
            Way::KeyTerminal => "whole, with its key, on a terminal (control)",
        }
    }

    /// Whether the agent has our server, and no tools of its own.
    pub fn is_server(self) -> bool {
        matches!(self, Way::Server | Way::Asked | Way::Unanswered)
    }

    /// Whether the agent is in a cell itself.
    pub fn is_whole(self) -> bool {
        self == Way::Whole || self.is_keyed()
    }

    /// Whether it is told nothing of a model but its key.
    pub fn is_keyed(self) -> bool {
        self.has_credential() || matches!(self, Way::Key | Way::KeyTerminal)
    }

    /// Whether the gateway keeps that key.
    pub fn has_credential(self) -> bool {
        matches!(self, Way::Credential | Way::Terminal)
    }

    /// Whether the attack works, as nothing of ours is in its way.
    pub fn is_control(self, agent: &Agent) -> bool {
        let keeps = agent.vendor.as_ref().is_some_and(|vendor| vendor.is_kept);
        matches!(self, Way::Plain | Way::Key) || self == Way::KeyTerminal && keeps
    }

    /// Whether the task is done in the end.
    pub fn works(self) -> bool {
        !matches!(self, Way::Denial | Way::Unanswered)
    }

    /// Whether what this tool of the agent does is in a cell, or nothing of this machine.
    pub fn holds(self, agent: &Agent, tool: &str) -> bool {
        match self {
            Way::Plain => false,
            Way::Shell | Way::Prefix | Way::Hook | Way::Denial => agent.shell == tool,
            Way::Server | Way::Asked | Way::Unanswered => false,
            Way::ExecServer => {
                ["exec_command", "write_stdin", "apply_patch", "view_image"].contains(&tool)
            }
            Way::Whole | Way::Credential | Way::Key | Way::Terminal | Way::KeyTerminal => true,
        }
    }
}

/// Where an agent's vendor takes its key.
pub struct Vendor {
    /// The preset of the credential, which the agent's profile names.
    pub preset: &'static str,
    /// Its host, and others that the agent cannot do without.
    pub hosts: &'static [&'static str],
    /// The variable that the agent reads, and what stands before the key in the head of a request, in lower case.
    pub variable: &'static str,
    pub header: &'static str,
    /// The beginning of the request for an answer of the model.
    pub request: &'static str,
    /// The question on a terminal that a person who has the key has to answer.
    pub question: &'static str,
    /// What such a person presses where a screen has this; elsewhere only the enter key. `{key}` is the key.
    pub answers: &'static [(&'static str, &'static str)],
    /// Whether the agent keeps the key that its user has typed in a file.
    pub is_kept: bool,
}

const OPENAI: Vendor = Vendor {
    preset: "openai",
    hosts: &["api.openai.com"],
    variable: "OPENAI_API_KEY",
    header: "authorization: bearer ",
    request: "POST /v1/responses",
    question: "Sign in another way",
    answers: &[
        ("3. Sign in another way", "3"),
        ("Paste or type your API key", "{key}"),
    ],
    is_kept: true,
};

pub struct Agent {
    pub name: &'static str,
    pub ways: &'static [Way],
    /// Its program, in `node_modules/.bin`.
    program: &'static str,
    /// Its profile, and what `lazaret install` and `lazaret hook` call it.
    profile: &'static str,
    client: &'static str,
    hook: &'static str,
    /// Its own tool that runs commands, and the field of the command.
    shell: &'static str,
    field: &'static str,
    /// The variables of its credential and of its model's address, with what stands behind that.
    credential: &'static str,
    address: (&'static str, &'static str),
    /// Where it is tried with a credential.
    pub vendor: Option<Vendor>,
}

use Way::{
    Asked, Credential, Denial, ExecServer, Hook, Key, KeyTerminal, Plain, Prefix, Server, Shell,
    Terminal, Unanswered, Whole,
};

pub const AGENTS: [Agent; 5] = [
    Agent {
        name: "Claude Code 2.1.330",
        ways: &[
            Plain,
            Shell,
            Prefix,
            Hook,
            Server,
            Asked,
            Unanswered,
            Whole,
            Credential,
            Key,
            Terminal,
            KeyTerminal,
        ],
        program: "claude",
        profile: "claude",
        client: "claude-code",
        hook: "claude",
        shell: "Bash",
        field: "command",
        credential: "ANTHROPIC_API_KEY",
        address: ("ANTHROPIC_BASE_URL", ""),
        vendor: Some(Vendor {
            preset: "anthropic",
            hosts: &["api.anthropic.com", "platform.claude.com"],
            variable: "ANTHROPIC_API_KEY",
            header: "x-api-key: ",
            request: "POST /v1/messages",
            question: "Do you want to use this API key?",
            answers: &[
                ("Do you want to use this API key?", "\x1b[A\r"),
                ("Yes, I trust this folder", "\x1b[B\r"),
            ],
            is_kept: false,
        }),
    },
    Agent {
        name: "Codex 0.169.0",
        ways: &[
            Plain,
            Server,
            ExecServer,
            Whole,
            Credential,
            Key,
            Terminal,
            KeyTerminal,
        ],
        program: "codex",
        profile: "codex",
        client: "codex",
        hook: "codex",
        shell: "exec_command",
        field: "cmd",
        credential: "CODEX_API_KEY",
        address: ("OPENAI_BASE_URL", "/v1"),
        vendor: Some(Vendor {
            variable: "CODEX_API_KEY",
            ..OPENAI
        }),
    },
    Agent {
        name: "OpenCode 1.18.33",
        ways: &[Plain, Shell, Server, Whole, Credential, Key],
        program: "opencode",
        profile: "opencode",
        client: "opencode",
        hook: "",
        shell: "bash",
        field: "command",
        credential: "OPENCODE_API_KEY",
        address: ("OPENAI_BASE_URL", "/v1"),
        vendor: Some(OPENAI),
    },
    Agent {
        name: "Gemini CLI 0.61.0",
        ways: &[Plain, Hook, Server, Whole],
        program: "gemini",
        profile: "gemini",
        client: "gemini",
        hook: "gemini",
        shell: "run_shell_command",
        field: "command",
        credential: "GEMINI_API_KEY",
        address: ("GOOGLE_GEMINI_BASE_URL", ""),
        vendor: None,
    },
    Agent {
        name: "Qwen Code 0.24.4",
        ways: &[Plain, Denial, Server],
        program: "qwen",
        profile: "",
        client: "qwen",
        hook: "qwen",
        shell: "run_shell_command",
        field: "command",
        credential: "OPENAI_API_KEY",
        address: ("OPENAI_BASE_URL", "/v1"),
        vendor: None,
    },
];

/// Settings of Gemini CLI for the agent as a whole, in the project: its home is the cell's own.
const GEMINI_SETTINGS: &str = "gemini-settings.json";
/// Says to it that the model has a key, as a person would at the first start.
const GEMINI_START: &str =
    "mkdir -p ~/.gemini; cp gemini-settings.json ~/.gemini/settings.json; exec \"$0\" \"$@\"";

/// The tools of each agent, with what becomes of each.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/agents");

/// The packages, with the versions that are tried.
const PACKAGES: [&str; 6] = [
    "node@22",
    "@anthropic-ai/claude-code@2.1.330",
    "@openai/codex@0.169.0",
    "opencode-ai@1.18.33",
    "@google/gemini-cli@0.61.0",
    "@qwen-code/qwen-code@0.24.4",
];

pub struct Packages {
    folder: PathBuf,
}

impl Packages {
    /// Those of `folder`, which are installed where there are none.
    pub fn install(folder: PathBuf) -> Result<Self, String> {
        if !folder.join("node_modules").exists() {
            fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
            let readable = fs::set_permissions(&folder, fs::Permissions::from_mode(0o755));
            readable.map_err(|error| error.to_string())?;
            let mut npm = Command::new("npm");
            npm.args(["install", "--no-audit", "--no-fund", "--prefix"])
                .arg(&folder)
                .args(PACKAGES);
            let output = npm.output().map_err(|error| format!("npm: {error}"))?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
        }
        Ok(Self { folder })
    }

    fn program(&self, name: &str) -> String {
        self.folder
            .join("node_modules/.bin")
            .join(name)
            .display()
            .to_string()
    }

    /// Codex without the script around it, which the exec server is started as.
    fn native_codex(&self) -> String {
        let vendor = self
            .folder
            .join("node_modules/@openai/codex-linux-x64/vendor");
        let of_target = fs::read_dir(vendor)
            .ok()
            .and_then(|mut entries| entries.next()?.ok());
        of_target.map_or_else(String::new, |entry| {
            entry.path().join("bin/codex").display().to_string()
        })
    }

    fn path(&self) -> String {
        format!(
            "{}:/usr/local/bin:/usr/bin:/bin",
            self.folder.join("node_modules/node/bin").display()
        )
    }
}

impl Agent {
    pub fn tool(&self, way: Way) -> Tool {
        if way.is_server() {
            Tool::Served
        } else {
            Tool::Own(self.shell)
        }
    }

    /// The tools that it offers although nobody has recorded them; behind our server, also those that are recorded as denied. In a
    /// cell as a whole it may have any.
    pub fn unknown_tools(&self, way: Way, offered: &[String]) -> Vec<String> {
        if way.is_whole() {
            return Vec::new();
        }
        let Ok(recorded) =
            fs::read_to_string(Path::new(RECORDED).join(format!("{}.txt", self.client)))
        else {
            return Vec::new();
        };
        // One that is denied only for some parameters is offered all the same.
        let is_offered = |state: &str| state.starts_with("open: ") || state.contains('(');
        let lines = recorded.lines().filter_map(|line| line.split_once(' '));
        let known: Vec<&str> = lines
            .filter(|(_, state)| !way.is_server() || is_offered(state))
            .map(|(tool, _)| tool)
            .collect();
        offered
            .iter()
            .filter(|tool| !known.contains(&tool.as_str()))
            .cloned()
            .collect()
    }

    pub fn input(&self, way: Way, command: &str) -> Value {
        match way {
            _ if way.is_server() => json!({ "command": command }),
            _ if self.field == "command" => json!({ "command": command, "description": "work" }),
            _ => json!({ self.field: command }),
        }
    }

    /// Its settings, and those of Lazaret.
    pub fn prepare(&self, world: &World, way: Way, packages: &Packages, url: &str) {
        let put = |path: &str, text: String| world.write(&world.home.join(path), text);
        match self.program {
            "claude" => put(
                ".claude/settings.json",
                json!({ "hooks": self.hooks(way, "PreToolUse") }).to_string(),
            ),
            "codex" => {
                put(".codex/config.toml", String::new());
                if way == Way::ExecServer {
                    put(".codex/environments.toml", exec_server(packages));
                }
            }
            "opencode" => {
                let key = match &self.vendor {
                    Some(vendor) if way.is_keyed() => vendor.variable,
                    _ => self.credential,
                };
                let provider = json!({ "npm": "@ai-sdk/openai-compatible", "models": { "m": {} },
                    "options": { "baseURL": format!("{url}/v1"), "apiKey": format!("{{env:{key}}}") } });
                // It asks nobody, and this alone would bring its own tools back beside a server.
                let permission = json!({ "*": "allow", "external_directory": "allow" });
                let settings = json!({ "provider": { "mock": provider }, "model": "mock/m", "permission": permission });
                let settings = settings.to_string();
                if way.is_whole() {
                    world.put("opencode.json", settings);
                } else {
                    put(".config/opencode/opencode.json", settings);
                }
            }
            _ => {
                let (folder, kind, event) = match self.program {
                    "gemini" => (".gemini", "gemini-api-key", "BeforeTool"),
                    _ => (".qwen", "openai", "PreToolUse"),
                };
                let settings = json!({ "security": { "auth": { "selectedType": kind } },
                    // Else it offers servers' tools only after a search for them.
                    "tools": { "toolSearch": { "enabled": false } }, "hooks": self.hooks(way, event) });
                match way {
                    Way::Whole => drop(world.put(GEMINI_SETTINGS, settings.to_string())),
                    _ => put(&format!("{folder}/settings.json"), settings.to_string()),
                }
            }
        }
        if way.is_server() || way == Way::Shell {
            let by = if way == Way::Shell { "shell" } else { "server" };
            let mut install = self.dressed(world, world.program("lazaret"), packages, url);
            run(
                install.args(["install", self.client, "--by", by, "--yes"]),
                LIMIT,
            )
            .success();
        }
        if matches!(way, Way::Asked | Way::Unanswered) {
            // As a person would who wants to be asked; of the agents here Claude Code can.
            let servers = world.home.join(".claude.json");
            let installed = fs::read_to_string(&servers).expect("it was written a line ago");
            let mut installed: Value =
                serde_json::from_str(&installed).expect("Claude Code reads it");
            let servers = installed["mcpServers"]
                .as_object_mut()
                .expect("a server was installed");
            for server in servers.values_mut() {
                server["args"] = json!(["mcp", "--client", self.client, "--trust", "guided"]);
            }
            put(".claude.json", installed.to_string());
        }
    }

    fn hooks(&self, way: Way, event: &str) -> Value {
        let command = format!("{} hook {}", programs::path("lazaret").display(), self.hook);
        let hook = json!([{ "matcher": self.shell, "hooks": [{ "type": "command", "command": command }] }]);
        match way {
            Way::Hook | Way::Denial => json!({ event: hook }),
            // The answer of a user who is not there in this mode.
            Way::Asked => {
                let answer = json!({ "hookSpecificOutput": {
                    "hookEventName": "Elicitation", "action": "accept", "content": { "answer": "once" } } });
                json!({ "Elicitation": [{ "hooks": [{ "type": "command", "command": format!("echo '{answer}'") }] }] })
            }
            _ => json!({}),
        }
    }

    /// The user's policy, whose profile `here` has the packages, with these lines before that profile and in it.
    pub fn set_policy(&self, world: &World, packages: &Packages, (before, within): (&str, &str)) {
        let folder = packages.folder.display();
        let profile = if self.profile.is_empty() {
            "dev"
        } else {
            self.profile
        };
        let text = format!(
            "version = 1\n{before}\n[profile.here]\nextends = '{profile}'\ngrants = [{{ path = '{folder}' }}]\n{within}\n"
        );
        world.write(&world.home.join(".config/lazaret/policy.toml"), text);
    }

    /// The agent in the project, with its task.
    pub fn command(&self, world: &World, way: Way, packages: &Packages, url: &str) -> Command {
        let flat = world.place.tier == broker_protocol::Tier::Flat;
        let mut command = match (way, flat) {
            _ if way.is_whole() => {
                let mut command = world.program("lazaret");
                command.args(["run", "--profile", "here", "--"]);
                if self.program == "gemini" {
                    command.args(["bash", "-c", GEMINI_START]);
                }
                command.arg(packages.program(self.program));
                command
            }
            (_, true) => {
                let mut command = world.host(programs::path("without-namespaces"));
                command.arg(packages.program(self.program));
                command
            }
            (_, false) => world.host(packages.program(self.program)),
        };
        let mode = if way.is_server() {
            "read-only"
        } else {
            "danger-full-access"
        };
        let words: &[&str] = match self.program {
            "claude" if matches!(way, Way::Terminal | Way::KeyTerminal) => &["go"],
            "claude" if way == Way::Hook || way.is_server() => &["-p", "go"],
            "claude" => &["-p", "go", "--dangerously-skip-permissions"],
            "codex" if matches!(way, Way::Terminal | Way::KeyTerminal) => {
                &["-m", "mock", "-s", mode, "go"]
            }
            "codex" => &[
                "exec",
                "--skip-git-repo-check",
                "-m",
                "mock",
                "-s",
                mode,
                "go",
            ],
            "opencode" => &["run", "-m", "mock/m", "go"],
            "gemini" => &["-y", "--skip-trust", "-m", "gemini-2.5-flash", "-p", "go"],
            _ => &["-y", "-p", "go"],
        };
        if self.program == "codex" && !way.is_keyed() {
            command.args(codex_model(url));
        }
        command.args(words);
        let mut command = self.dressed(world, command, packages, url);
        if way.is_keyed() {
            command
                .env_remove(self.credential)
                .env_remove(self.address.0);
        }
        if way == Way::Prefix {
            command.env("CLAUDE_CODE_SHELL_PREFIX", programs::path("lazaret-bash"));
        }
        command
    }

    fn dressed(
        &self,
        world: &World,
        mut command: Command,
        packages: &Packages,
        url: &str,
    ) -> Command {
        let (variable, below) = self.address;
        command
            .env("PATH", packages.path())
            .env("XDG_CONFIG_HOME", world.home.join(".config"))
            .env("XDG_DATA_HOME", world.home.join(".local/share"))
            .env(self.credential, "a key of the model's")
            .env(variable, format!("{url}{below}"))
            .envs([
                ("OPENAI_MODEL", "m"),
                ("DISABLE_AUTOUPDATER", "1"),
                ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
            ])
            // Else it offers servers' tools only after a search for them.
            .envs([
                ("ENABLE_TOOL_SEARCH", "false"),
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ]);
        command
    }
}

/// Where Codex finds its model, as words of its command line: in a cell it has a home of its own.
fn codex_model(url: &str) -> [String; 4] {
    let settings = format!(
        "model_providers.mock={{ name = 'mock', base_url = '{url}/v1', env_key = 'CODEX_API_KEY', wire_api = 'responses' }}"
    );
    [
        "-c".to_owned(),
        "model_provider='mock'".to_owned(),
        "-c".to_owned(),
        settings,
    ]
}

fn exec_server(packages: &Packages) -> String {
    let (lazaret, codex) = (programs::path("lazaret"), packages.native_codex());
    format!(
        "default = 'lazaret'\ninclude_local = false\n[[environments]]\nid = 'lazaret'\nprogram = '{}'\n\
         args = ['run', '--profile', 'here', '--', '{codex}', 'exec-server', '--listen', 'stdio']\n",
        lazaret.display()
    )
}
