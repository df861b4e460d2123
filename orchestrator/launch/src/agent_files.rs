//! The files that agents and editors read in a project, and what in them does no harm.
//!
//! Lists of harmless keys where an agent's settings are few and known, so that a key of tomorrow is a finding; lists of harmful ones
//! where an editor has thousands.

/// Most directories above a working directory that are examined; deeper ones make the project hostile.
pub(crate) const DIRECTORIES_MAX: usize = 128;

/// A file or directory of a project.
pub struct AgentPlace {
    /// The clients that read it, by their names in `lazaret install`.
    pub clients: &'static [&'static str],
    /// Its path below the project's directory.
    pub path: &'static str,
    pub kind: AgentFileKind,
}

/// The format of a file of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// JSON with comments and trailing commas.
    Jsonc,
    Toml,
    Yaml,
}

/// How a file is judged.
pub enum AgentFileKind {
    /// All keys but these are findings. `a.b` stands for one key of an object.
    Except(Syntax, &'static [&'static str]),
    /// These keys are findings, and those below an entry that ends with a dot.
    Keys(Syntax, &'static [&'static str]),
    /// Variables, one a line: those of ours are findings.
    Variables,
    /// Being there is the finding.
    Present,
    /// A directory: a file in it is the finding.
    Directory,
    /// A directory of prompts: these keys in their heads are findings.
    Prompts(&'static [&'static str]),
}

use AgentFileKind::{Directory, Except, Keys, Present, Prompts, Variables};
use Syntax::{Jsonc, Toml, Yaml};

const fn place(
    clients: &'static [&'static str],
    path: &'static str,
    kind: AgentFileKind,
) -> AgentPlace {
    AgentPlace {
        clients,
        path,
        kind,
    }
}

const CLAUDE: &[&str] = &["claude-code"];
const OPENCODE: &[&str] = &["opencode"];
const CODEX: &[&str] = &["codex"];
const GEMINI: &[&str] = &["gemini"];
const QWEN: &[&str] = &["qwen"];
const VSCODE: &[&str] = &["vscode", "cline"];

/// Keys of Claude Code 2.1.330 that neither start nor allow anything.
const CLAUDE_HARMLESS: &[&str] = &[
    "$schema",
    "model",
    "language",
    "outputStyle",
    "attribution",
    "includeCoAuthoredBy",
    "cleanupPeriodDays",
    "companyAnnouncements",
    "spinnerTipsEnabled",
    "alwaysThinkingEnabled",
    "disabledMcpjsonServers",
    "permissions.deny",
    "permissions.ask",
];

/// Harmless settings of OpenCode 1.18.33. Not `provider`: it names a package that OpenCode loads.
const OPENCODE_HARMLESS: &[&str] = &[
    "$schema",
    "theme",
    "model",
    "small_model",
    "username",
    "share",
    "autoupdate",
    "instructions",
    "layout",
    "keybinds",
    "compaction",
    "snapshot",
    "disabled_providers",
    "enabled_providers",
];

const CODEX_HARMLESS: &[&str] = &[
    "model",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_verbosity",
    "hide_agent_reasoning",
    "project_doc_max_bytes",
    "project_doc_fallback_filenames",
];

/// Of Gemini CLI 0.61.0, and of Qwen Code, which is derived from it.
const GEMINI_HARMLESS: &[&str] = &[
    "$schema",
    "$version",
    "ui",
    "model",
    "context.fileName",
    "general.vimMode",
    "privacy",
    "tools.exclude",
];

/// Keys of VS Code that let its agent run something, or that set what its terminals and servers start with.
const VSCODE_HARMFUL: &[&str] = &[
    "chat.",
    "mcp.",
    "mcp",
    "github.copilot.",
    "cline.",
    "terminal.integrated.env.",
    "terminal.integrated.profiles.",
    "terminal.integrated.defaultProfile.",
    "terminal.integrated.automationProfile.",
    "terminal.integrated.agentHostProfile.",
    "terminal.integrated.shell.",
    "terminal.integrated.shellArgs.",
];

/// Keys in the head of a prompt that start programs or allow tools.
const CLAUDE_PROMPT: &[&str] = &[
    "hooks",
    "mcpServers",
    "permissionMode",
    "allowed-tools",
    "isolation",
];
const OPENCODE_PROMPT: &[&str] = &["permission", "tools"];
/// Of Gemini CLI and Qwen Code: an agent may name servers and tools of its own.
const GEMINI_PROMPT: &[&str] = &["mcpServers", "mcp_servers", "tools", "hooks"];
const COPILOT_PROMPT: &[&str] = &["mcp-servers", "tools", "hooks"];

pub static FILES: &[AgentPlace] = &[
    // Other clients read it too.
    place(
        &["claude-code", "copilot", "claude-desktop"],
        ".mcp.json",
        Except(Jsonc, &["$schema"]),
    ),
    place(
        CLAUDE,
        ".claude/settings.json",
        Except(Jsonc, CLAUDE_HARMLESS),
    ),
    place(
        CLAUDE,
        ".claude/settings.local.json",
        Except(Jsonc, CLAUDE_HARMLESS),
    ),
    place(CLAUDE, ".claude/agents", Prompts(CLAUDE_PROMPT)),
    place(CLAUDE, ".claude/skills", Prompts(CLAUDE_PROMPT)),
    place(CLAUDE, ".claude/commands", Prompts(CLAUDE_PROMPT)),
    place(CLAUDE, ".claude/workflows", Directory),
    place(CLAUDE, ".claude/plugins", Directory),
    place(OPENCODE, "opencode.json", Except(Jsonc, OPENCODE_HARMLESS)),
    place(OPENCODE, "opencode.jsonc", Except(Jsonc, OPENCODE_HARMLESS)),
    place(
        OPENCODE,
        "tui.json",
        Except(Jsonc, &["$schema", "theme", "keybinds"]),
    ),
    place(
        OPENCODE,
        "tui.jsonc",
        Except(Jsonc, &["$schema", "theme", "keybinds"]),
    ),
    place(
        OPENCODE,
        ".opencode/opencode.json",
        Except(Jsonc, OPENCODE_HARMLESS),
    ),
    place(
        OPENCODE,
        ".opencode/opencode.jsonc",
        Except(Jsonc, OPENCODE_HARMLESS),
    ),
    place(
        OPENCODE,
        ".opencode/tui.json",
        Except(Jsonc, &["$schema", "theme", "keybinds"]),
    ),
    place(
        OPENCODE,
        ".opencode/tui.jsonc",
        Except(Jsonc, &["$schema", "theme", "keybinds"]),
    ),
    place(OPENCODE, ".opencode/plugin", Directory),
    place(OPENCODE, ".opencode/plugins", Directory),
    place(OPENCODE, ".opencode/tool", Directory),
    place(OPENCODE, ".opencode/tools", Directory),
    place(OPENCODE, ".opencode/agent", Prompts(OPENCODE_PROMPT)),
    place(OPENCODE, ".opencode/agents", Prompts(OPENCODE_PROMPT)),
    place(OPENCODE, ".opencode/mode", Prompts(OPENCODE_PROMPT)),
    place(OPENCODE, ".opencode/modes", Prompts(OPENCODE_PROMPT)),
    // OpenCode installs what it names.
    place(OPENCODE, ".opencode/package.json", Present),
    place(CODEX, ".codex/config.toml", Except(Toml, CODEX_HARMLESS)),
    place(CODEX, ".codex/hooks.json", Present),
    place(CODEX, ".codex/environments.toml", Present),
    place(CODEX, ".codex/rules", Directory),
    // Each has a sandbox and servers of its own.
    place(CODEX, ".codex/agents", Directory),
    place(
        GEMINI,
        ".gemini/settings.json",
        Except(Jsonc, GEMINI_HARMLESS),
    ),
    place(GEMINI, ".gemini/extensions", Directory),
    place(GEMINI, ".gemini/policies", Directory),
    place(GEMINI, ".gemini/agents", Prompts(GEMINI_PROMPT)),
    place(GEMINI, ".gemini/.env", Variables),
    place(QWEN, ".qwen/settings.json", Except(Jsonc, GEMINI_HARMLESS)),
    place(QWEN, ".qwen/extensions", Directory),
    place(QWEN, ".qwen/agents", Prompts(GEMINI_PROMPT)),
    place(QWEN, ".qwen/.env", Variables),
    place(&["gemini", "qwen"], ".env", Variables),
    place(&["goose"], ".goose/config.yaml", Except(Yaml, &[])),
    place(&["crush"], "crush.json", Except(Jsonc, &["$schema"])),
    place(&["crush"], ".crush.json", Except(Jsonc, &["$schema"])),
    place(&["crush"], "crushrc", Present),
    place(&["crush"], ".crushrc", Present),
    place(&["cursor"], ".cursor/mcp.json", Except(Jsonc, &["$schema"])),
    place(&["cursor"], ".cursor/hooks.json", Present),
    place(
        &["cursor"],
        ".cursor/cli.json",
        Except(Jsonc, &["$schema", "version", "permissions.deny"]),
    ),
    place(&["cursor"], ".cursor/worktrees.json", Present),
    place(&["windsurf"], ".windsurf/hooks.json", Present),
    place(
        &["zed"],
        ".zed/settings.json",
        Keys(
            Jsonc,
            &[
                "context_servers",
                "agent",
                "agent_servers",
                "assistant",
                "terminal",
                "lsp",
                "dap",
            ],
        ),
    ),
    place(VSCODE, ".vscode/settings.json", Keys(Jsonc, VSCODE_HARMFUL)),
    place(
        VSCODE,
        ".vscode/mcp.json",
        Except(Jsonc, &["$schema", "inputs"]),
    ),
    place(&["copilot"], ".github/hooks", Directory),
    place(
        &["copilot"],
        ".github/copilot/settings.json",
        Except(Jsonc, &["$schema"]),
    ),
    place(
        &["copilot"],
        ".github/mcp.json",
        Except(Jsonc, &["$schema"]),
    ),
    place(
        &["copilot"],
        ".github/lsp.json",
        Except(Jsonc, &["$schema"]),
    ),
    place(&["copilot"], ".github/agents", Prompts(COPILOT_PROMPT)),
    place(
        &["copilot"],
        ".copilot/mcp-config.json",
        Except(Jsonc, &["$schema"]),
    ),
    place(&["cline"], ".clinerules/hooks", Directory),
    place(
        &["jetbrains"],
        ".junie/mcp/mcp.json",
        Except(Jsonc, &["$schema"]),
    ),
];

/// Whether a variable of this name chooses what Lazaret starts or reads, or which settings an agent that reads such files obeys.
pub fn is_of_ours(name: &str) -> bool {
    let chooses = ["PATH", "HOME", "SHELL", "BASH_ENV", "ENV", "NODE_OPTIONS"];
    name.starts_with("LAZARET_")
        || name.starts_with("XDG_")
        || name.starts_with("LD_")
        || name.starts_with("GEMINI_CLI_")
        || name.starts_with("QWEN_CODE_")
        || chooses.contains(&name)
}
