//! Names of tools: ours, and those of other agents for the same. Here alone, so that a call and a rule mean the same by one.
//!
//! A rule is compared with the name that the broker decides on. The orchestrator resolves other systems' names before it asks, so
//! a rule for `shell` or `Bash` would be read and never match, and what it denies would run.

use broker_protocol::Framework;

/// Each built-in tool and its other names: those that earlier systems use, and those of Claude Code, Codex, Gemini CLI and
/// OpenCode. Case and separators do not matter: `multi_edit` is `MultiEdit` too.
const NAMES: [(&str, &[&str]); 28] = [
    (
        "bash",
        &[
            "shell",
            "sh",
            "run_shell_command",
            "execute_command",
            "exec_command",
        ],
    ),
    ("file_read", &["read_file", "read"]),
    ("file_write", &["write_file", "write", "write_memory_dump"]),
    (
        "file_edit",
        &[
            "edit_file",
            "edit",
            "file_multi_edit",
            "multi_edit",
            "replace",
        ],
    ),
    ("file_list", &["list_files", "ls", "list", "list_directory"]),
    ("glob", &["glob_tool"]),
    ("grep", &["grep_tool", "search_file_content"]),
    ("background_list", &["view_background_processes"]),
    ("background_log", &["bash_output"]),
    ("background_kill", &["kill_shell", "kill_bash"]),
    ("batch", &["read_many_files"]),
    ("todo_read", &["read_todos"]),
    ("todo_write", &["write_todos"]),
    ("memory", &["remember"]),
    ("goal_create", &["create_goal"]),
    ("goal_switch", &["switch_goal"]),
    ("goal_complete", &["complete_goal"]),
    ("goal_list", &["list_goals"]),
    ("checkpoint", &["create_checkpoint", "record_decision"]),
    ("thinking", &["think"]),
    ("finish_task", &[]),
    ("subagent", &[]),
    ("read_reasoning", &[]),
    ("trigger_hot_swap", &["hot_swap"]),
    ("view_image", &["image_recognition"]),
    (Framework::TOOL, &[]),
    ("web_search", &["google_web_search"]),
    ("web_fetch", &["fetch_url"]),
];

/// Tools of which only a scope decides: they never reach the broker.
const UNASKED: [&str; 3] = ["batch", "thinking", "finish_task"];

/// Our name of the built-in tool that is called `name`, here or by another agent.
pub fn canonical(name: &str) -> Option<&'static str> {
    let spelt = spelling(name);
    let is = |other: &str| spelling(other) == spelt;
    let found = NAMES
        .iter()
        .find(|(known, others)| is(known) || others.iter().any(|other| is(other)));
    found.map(|(known, _)| *known)
}

/// The other names of the built-in tool `tool`.
pub fn aliases(tool: &str) -> &'static [&'static str] {
    NAMES
        .iter()
        .find(|(known, _)| *known == tool)
        .map_or(&[], |(_, others)| others)
}

/// Why a rule for a tool of this name would never match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NeverMatches {
    /// Rules know the tool by this name.
    KnownAs(&'static str),
    /// No rule is asked about the tool.
    Unasked,
}

/// Whether a rule for `name` would never match. A name that no tool of ours has may be one of a server or of whoever embeds
/// Lazaret, by the name under which it is registered.
pub(crate) fn never_matches(name: &str) -> Option<NeverMatches> {
    // It is asked about as the command that it runs.
    if name == "service" {
        return Some(NeverMatches::KnownAs("bash"));
    }
    let known = match canonical(name)? {
        unasked if UNASKED.contains(&unasked) => return Some(NeverMatches::Unasked),
        // It is asked about as the command that it runs.
        Framework::TOOL => "bash",
        known => known,
    };
    (known != name).then_some(NeverMatches::KnownAs(known))
}

/// A name without case and separators: `WebFetch` is a spelling of `web_fetch`.
fn spelling(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_ascii_alphanumeric())
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::Request;

    #[test]
    fn a_name_that_no_rule_is_compared_with_is_known() {
        for (name, known) in [
            ("shell", "bash"),
            ("Bash", "bash"),
            ("run_tests", "bash"),
            ("service", "bash"),
            ("read_file", "file_read"),
            ("Read", "file_read"),
            ("FILE-WRITE", "file_write"),
            ("MultiEdit", "file_edit"),
            ("LS", "file_list"),
            ("Glob", "glob"),
            ("WebFetch", "web_fetch"),
            ("WebSearch", "web_search"),
        ] {
            assert_eq!(
                never_matches(name),
                Some(NeverMatches::KnownAs(known)),
                "{name}"
            );
        }
        for name in ["thinking", "finish_task", "batch", "read_many_files"] {
            assert_eq!(never_matches(name), Some(NeverMatches::Unasked), "{name}");
        }
    }

    #[test]
    fn the_brokers_own_names_and_names_of_others_are_taken() {
        let others = [
            "web_search",
            "web_fetch",
            "memory",
            "subagent",
            "deploy",
            "mcp__fs__read",
            "*",
        ];
        for name in Request::TOOLS
            .into_iter()
            .filter(|name| *name != "service")
            .chain(others)
        {
            assert_eq!(never_matches(name), None, "{name}");
        }
        assert!(
            ["mcp__fs__read", "mcp__x__bash", "deploy", "", "_"]
                .iter()
                .all(|name| canonical(name).is_none())
        );
    }

    #[test]
    fn no_spelling_stands_for_two_tools() {
        let names = NAMES
            .iter()
            .flat_map(|(known, aliases)| aliases.iter().chain([known]));
        let mut spellings: Vec<String> = names.map(|name| spelling(name)).collect();
        let count = spellings.len();
        spellings.sort();
        spellings.dedup();
        assert_eq!(spellings.len(), count);
    }
}
