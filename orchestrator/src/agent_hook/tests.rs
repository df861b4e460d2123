//! Calls as agents send them, and the answers that these agents understand.

use super::*;
use orchestrator_config_edit::agent_hook::call::{HookDecision, ShellCall};
use serde_json::json;

fn read(agent: HookAgent, call: &Value) -> ShellCall {
    match agent.shape().read(call) {
        HookCallKind::Shell(call) => call,
        other => panic!("{agent:?}: {other:?}"),
    }
}

fn allow() -> HookDecision {
    HookDecision::Allow {
        command: "cell ls".into(),
    }
}

fn ask() -> HookDecision {
    HookDecision::Ask {
        command: "cell ls".into(),
        why: "It asks.".into(),
    }
}

fn deny() -> HookDecision {
    HookDecision::Deny {
        why: "It is closed.".into(),
    }
}

/// The protocol of each agent: its call, and the answers to allow, ask and deny.
fn golden() -> [(HookAgent, Value, [Value; 3]); 7] {
    let like_claude = |name: &str| {
        json!({
            "session_id": "s", "transcript_path": "/t.jsonl", "cwd": "/p/sub", "permission_mode": "default",
            "hook_event_name": "PreToolUse", "tool_name": name, "tool_use_id": "t",
            "tool_input": { "command": "ls", "description": "List" },
        })
    };
    let output = |output: Value| json!({ "hookSpecificOutput": output });
    let updated = json!({ "command": "cell ls", "description": "List" });
    let pre = |word: &str| json!({ "hookEventName": "PreToolUse", "permissionDecision": word });
    let with = |mut value: Value, field: &str, other: Value| {
        value[field] = other;
        value
    };
    let allowed = output(with(pre("allow"), "updatedInput", updated.clone()));
    let denied = output(with(
        pre("deny"),
        "permissionDecisionReason",
        json!("It is closed."),
    ));
    let no_question = "It asks. This agent cannot ask for it here: allow it in the policy, or use a session of lower trust.";
    let unasked = output(with(
        pre("deny"),
        "permissionDecisionReason",
        json!(no_question),
    ));
    let asked = output(with(
        with(pre("ask"), "permissionDecisionReason", json!("It asks.")),
        "updatedInput",
        updated.clone(),
    ));
    let unheeded = "Qwen Code runs a command as it is written, so a hook cannot put it into a cell. Use the tool bash of the server \
                    lazaret, which `lazaret install qwen` sets up.";
    let unheeded = output(with(
        pre("deny"),
        "permissionDecisionReason",
        json!(unheeded),
    ));
    let gemini = json!({
        "session_id": "s", "cwd": "/p/sub", "hook_event_name": "BeforeTool", "tool_name": "run_shell_command",
        "tool_input": { "command": "ls", "description": "List" },
    });
    let crush = json!({ "event": "PreToolUse", "cwd": "/p/sub", "tool_name": "bash",
        "tool_input": { "command": "ls", "description": "List" } });
    let copilot = json!({ "timestamp": 1, "cwd": "/p/sub", "toolName": "bash",
        "toolArgs": "{\"command\":\"ls\",\"description\":\"List\"}" });
    [
        (
            HookAgent::Claude,
            like_claude("Bash"),
            [allowed.clone(), asked.clone(), denied.clone()],
        ),
        (
            HookAgent::Claude,
            like_claude("Monitor"),
            [allowed.clone(), asked, denied.clone()],
        ),
        (
            HookAgent::Codex,
            like_claude("Bash"),
            [allowed, unasked.clone(), denied.clone()],
        ),
        (
            HookAgent::Qwen,
            like_claude("run_shell_command"),
            [unheeded, unasked, denied],
        ),
        (
            HookAgent::Gemini,
            gemini,
            [
                json!({ "decision": "allow", "hookSpecificOutput": { "hookEventName": "BeforeTool", "tool_input": updated } }),
                json!({ "decision": "deny", "reason": no_question }),
                json!({ "decision": "deny", "reason": "It is closed." }),
            ],
        ),
        (
            HookAgent::Crush,
            crush,
            [
                json!({ "decision": "allow", "updated_input": updated }),
                json!({ "decision": "deny", "reason": no_question }),
                json!({ "decision": "deny", "reason": "It is closed." }),
            ],
        ),
        (
            HookAgent::Copilot,
            copilot,
            [
                json!({ "permissionDecision": "allow", "modifiedArgs": updated }),
                json!({ "permissionDecision": "deny", "permissionDecisionReason": no_question }),
                json!({ "permissionDecision": "deny", "permissionDecisionReason": "It is closed." }),
            ],
        ),
    ]
}

#[test]
fn each_agent_is_answered_in_its_own_words() {
    for (agent, call, answers) in golden() {
        let read = read(agent, &call);
        assert_eq!(
            (read.command.as_str(), read.directory.as_deref()),
            ("ls", Some("/p/sub".as_ref())),
            "{agent:?}"
        );
        for (decision, answer) in [allow(), ask(), deny()].iter().zip(answers) {
            assert_eq!(
                agent.shape().answer(&read, decision),
                answer,
                "{agent:?} {decision:?}"
            );
        }
    }
}

#[test]
fn malformed_hook_call_is_not_run() {
    for (agent, call, _) in golden() {
        let shape = agent.shape();
        let (name, field) = (shape.tool.0, shape.input);
        let mut other = call.clone();
        other[name] = json!("Read");
        assert_eq!(shape.read(&other), HookCallKind::OtherTool, "{agent:?}");
        let broken = [
            (name, json!(null)),
            (name, json!(["Bash"])),
            (field, json!(null)),
            (field, json!("ls")),
            (field, json!(["ls"])),
            (field, json!({})),
            (field, json!({ "command": ["bash", "-c", "ls"] })),
        ];
        for (field, value) in broken {
            let mut call = call.clone();
            call[field] = value;
            assert!(
                matches!(shape.read(&call), HookCallKind::Unknown(_)),
                "{agent:?}: {call}"
            );
        }
        let refused = shape.refuse("why").to_string();
        assert!(
            refused.contains("\"deny\"") && refused.contains("why"),
            "{refused}"
        );
    }
}

#[test]
fn a_command_of_another_shell_is_refused() {
    for (agent, tool) in [
        (HookAgent::Claude, "PowerShell"),
        (HookAgent::Copilot, "powershell"),
    ] {
        let shape = agent.shape();
        let call =
            json!({ shape.tool.0: tool, shape.input: { "command": "Get-Content /etc/passwd" } });
        assert_eq!(shape.read(&call), HookCallKind::OtherShell, "{agent:?}");
        let refused = shape.refuse_other_shell().to_string();
        assert!(
            refused.contains("\"deny\"") && refused.contains("bash"),
            "{refused}"
        );
    }
}
