#![allow(clippy::disallowed_methods)] // Tests make the files that they examine.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;

fn found(files: &[(&str, &str)], client: Option<&str>) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let directories = [folder.path().to_owned()];
    let shown = |finding: &ProjectFinding| {
        finding
            .to_string()
            .replace(&format!("{}/", folder.path().display()), "")
    };
    examine(&directories, client, &|_| false)
        .iter()
        .map(shown)
        .collect()
}

#[test]
fn setting_that_undoes_lazaret_is_reported_with_file_and_key() {
    for (path, text, want) in [
        (
            "opencode.json",
            r#"{"permission":{"bash":"allow"}}"#,
            "opencode.json sets `permission.bash`",
        ),
        (
            "opencode.jsonc",
            "{// x\n\"shell\":\"/bin/sh\",}",
            "opencode.jsonc sets `shell`",
        ),
        (
            ".opencode/opencode.json",
            r#"{"plugin":["./p.js"]}"#,
            ".opencode/opencode.json sets `plugin`",
        ),
        (".opencode/plugin/p.js", "x", ".opencode/plugin is there"),
        (
            ".opencode/agent/a.md",
            "---\npermission:\n  bash: allow\n---\nx",
            ".opencode/agent sets `a.md: permission`",
        ),
        (
            ".mcp.json",
            r#"{"mcpServers":{"lazaret":{"command":"sh"}}}"#,
            ".mcp.json sets `mcpServers.lazaret`",
        ),
        (
            ".claude/settings.json",
            r#"{"env":{"PATH":"."},"model":"x"}"#,
            ".claude/settings.json sets `env.PATH`",
        ),
        (
            ".claude/settings.local.json",
            r#"{"disableAllHooks":true}"#,
            ".claude/settings.local.json sets `disableAllHooks`",
        ),
        (
            ".claude/settings.json",
            r#"{"permissions":{"deny":["Bash"],"allow":["Bash"]}}"#,
            ".claude/settings.json sets `permissions.allow`",
        ),
        (
            ".claude/settings.json",
            r#"{"somethingNew":1}"#,
            ".claude/settings.json sets `somethingNew`",
        ),
        (
            ".claude/agents/a.md",
            "---\nname: a\n\"hooks\": {}\n---\n",
            ".claude/agents sets `a.md: hooks`",
        ),
        (
            ".codex/config.toml",
            "model = 'o'\n[mcp_servers.lazaret]\ncommand = 'sh'\n",
            ".codex/config.toml sets `mcp_servers.lazaret`",
        ),
        (
            ".codex/config.toml",
            "[[hooks.PreToolUse]]\ncommand = 'sh'\n",
            ".codex/config.toml sets `hooks.PreToolUse`",
        ),
        (
            ".codex/config.toml",
            "[[notify]]\na = 1.5\n",
            ".codex/config.toml sets `notify`",
        ),
        (
            ".codex/agents/reviewer.toml",
            "sandbox_mode = 'danger-full-access'\n",
            ".codex/agents is there",
        ),
        (
            ".gemini/agents/a.md",
            "---\nname: a\nmcpServers:\n  x:\n    command: sh\n---\n",
            ".gemini/agents sets `a.md: mcpServers`",
        ),
        (
            ".qwen/agents/a.md",
            "---\nname: a\ntools: [run_shell_command]\n---\n",
            ".qwen/agents sets `a.md: tools`",
        ),
        (
            ".github/copilot/settings.json",
            r#"{"disableAllHooks":true}"#,
            ".github/copilot/settings.json sets `disableAllHooks`",
        ),
        (
            ".github/mcp.json",
            r#"{"mcpServers":{"x":{"command":"sh"}}}"#,
            ".github/mcp.json sets `mcpServers.x`",
        ),
        (
            ".github/lsp.json",
            r#"{"lspServers":{"x":{"command":"sh"}}}"#,
            ".github/lsp.json sets `lspServers.x`",
        ),
        (
            ".github/agents/a.agent.md",
            "---\nname: a\nmcp-servers:\n  x:\n    command: sh\n---\n",
            ".github/agents sets `a.agent.md: mcp-servers`",
        ),
        (
            ".cursor/worktrees.json",
            r#"{"setup-worktree":["id"]}"#,
            ".cursor/worktrees.json is there",
        ),
        (
            ".gemini/settings.json",
            r#"{"tools":{"exclude":[],"core":["x"]}}"#,
            ".gemini/settings.json sets `tools.core`",
        ),
        (
            ".qwen/settings.json",
            r#"{"hooks":{"PreToolUse":[]}}"#,
            ".qwen/settings.json sets `hooks.PreToolUse`",
        ),
        (
            ".goose/config.yaml",
            "extensions:\n  developer:\n    enabled: true\n",
            ".goose/config.yaml sets `extensions.developer`",
        ),
        (
            ".crush.json",
            r#"{"mcp":{"lazaret":{}}}"#,
            ".crush.json sets `mcp.lazaret`",
        ),
        (
            ".zed/settings.json",
            r#"{"context_servers":{"lazaret":{}}}"#,
            ".zed/settings.json sets `context_servers`",
        ),
        (
            ".vscode/settings.json",
            r#"{"chat.tools.autoApprove":true}"#,
            ".vscode/settings.json sets `chat.tools.autoApprove`",
        ),
        (
            ".vscode/settings.json",
            r#"{"terminal":{"integrated":{"env":{"linux":{}}}}}"#,
            ".vscode/settings.json sets `terminal.integrated.env`",
        ),
        (
            ".vscode/mcp.json",
            r#"{"servers":{"x":{}}}"#,
            ".vscode/mcp.json sets `servers.x`",
        ),
    ] {
        assert_eq!(found(&[(path, text)], None), [want], "{path}");
    }
}

#[test]
fn harmless_project_files_are_not_reported() {
    let files = [
        (
            ".claude/settings.json",
            r#"{"model":"opus","permissions":{"deny":["WebFetch"],"ask":["Bash"]},"hooks":{}}"#,
        ),
        (
            ".claude/agents/a.md",
            "---\nname: a\ndescription: b\n---\nhooks: none\n",
        ),
        (".claude/skills/s/SKILL.md", "---\nname: s\n---\n"),
        (".claude/skills/s/data.txt", "---\nhooks: {}\n---\n"),
        (".mcp.json", r#"{"mcpServers":{}}"#),
        ("opencode.json", r#"{"$schema":"x","theme":"dark"}"#),
        (".codex/config.toml", "model = \"o\"\n"),
        (".env", "DATABASE_URL=x\n"),
        (
            ".vscode/settings.json",
            r#"{"editor.tabSize":2,"terminal.integrated.fontSize":12, "[rust]":{"editor.x":1}}"#,
        ),
        ("CLAUDE.md", "LAZARET_EXECUTOR=x"),
    ];
    assert_eq!(found(&files, None), [""; 0]);
}

#[test]
fn variables_of_a_project_count_for_the_client_that_reads_them() {
    let files = [
        (".env", "A=b\nexport LAZARET_EXECUTOR=./x\n PATH = y\n"),
        (
            ".gemini/.env",
            "HOME=z\nGEMINI_CLI_SYSTEM_SETTINGS_PATH=./s.json",
        ),
    ];
    let want = [
        ".gemini/.env sets `HOME`, `GEMINI_CLI_SYSTEM_SETTINGS_PATH`",
        ".env sets `LAZARET_EXECUTOR`, `PATH`",
    ];
    assert_eq!(found(&files, Some("gemini")), want);
    assert_eq!(found(&files, None), [""; 0]);
}

#[test]
fn unreadable_settings_are_a_finding_that_cannot_be_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    for directory in [
        ".claude",
        ".codex",
        ".opencode/plugin",
        "elsewhere",
        ".gemini/settings.json",
        ".zed",
    ] {
        fs::create_dir_all(at(directory)).unwrap();
    }
    fs::write(at("elsewhere/settings.json"), "{}").unwrap();
    symlink("../elsewhere/settings.json", at(".claude/settings.json")).unwrap();
    symlink("elsewhere", at(".qwen")).unwrap();
    fs::write(at("opencode.json"), "{\"a\":1,\"a\":2}").unwrap();
    fs::write(at(".mcp.json"), "{").unwrap();
    fs::write(at(".codex/config.toml"), [0xff]).unwrap();
    fs::write(at(".crush.json"), " ".repeat(read::FILE_MAX as usize + 1)).unwrap();
    nix::unistd::mkfifo(&at(".zed/settings.json"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    for number in 0..=read::ENTRIES_MAX {
        fs::write(at(&format!(".opencode/plugin/{number}.js")), "").unwrap();
    }
    let findings = examine(&[folder.path().to_owned()], None, &|_| false);
    let why = |path: &str| {
        let finding = findings
            .iter()
            .find(|finding| finding.path == at(path))
            .map(|finding| &finding.what);
        match finding {
            Some(What::Unreadable(why)) => why.clone(),
            other => panic!("{path}: {other:?}"),
        }
    };
    assert_eq!(why(".claude/settings.json"), Unread::Link);
    assert_eq!(why(".qwen/settings.json"), Unread::Link);
    assert!(
        matches!(why("opencode.json"), Unread::Syntax(_))
            && matches!(why(".mcp.json"), Unread::Syntax(_))
    );
    assert_eq!(why(".codex/config.toml"), Unread::Encoding);
    assert_eq!(
        (why(".crush.json"), why(".opencode/plugin")),
        (Unread::TooLarge, Unread::TooLarge)
    );
    assert_eq!(
        (why(".gemini/settings.json"), why(".zed/settings.json")),
        (Unread::NotRegular, Unread::NotRegular)
    );
    let is_syntax =
        |finding: &ProjectFinding| matches!(finding.what, What::Unreadable(Unread::Syntax(_)));
    assert!(
        findings
            .iter()
            .all(|finding| finding.digest.is_some() == is_syntax(finding)),
        "a text can be looked at"
    );
}

#[test]
fn a_client_reads_its_own_files_and_opencode_none_if_it_is_told_so() {
    let files = [
        (".gemini/settings.json", r#"{"hooks":{"x":1}}"#),
        ("opencode.json", r#"{"shell":"x"}"#),
    ];
    assert_eq!(found(&files, None).len(), 2);
    assert_eq!(
        found(&files, Some("gemini")),
        [".gemini/settings.json sets `hooks.x`"]
    );
    assert_eq!(found(&files, Some("claude-code")), [""; 0]);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("opencode.json"), r#"{"shell":"x"}"#).unwrap();
    let told = |name: &str| name == OPENCODE_SWITCH;
    assert_eq!(
        examine(&[folder.path().to_owned()], Some("opencode"), &told),
        []
    );
}
