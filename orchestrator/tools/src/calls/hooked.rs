//! Inputs as hooks of the user are told of them: with the tools' own names of fields, whatever names a caller has used. So no other name
//! of a field hides it from a hook.

use crate::catalogue::{BATCH, CatalogueTool, canonical};
use crate::inputs::INVOCATIONS_MAX;
use broker_protocol::Failed;
use orchestrator_engine::MemberCall;
use serde_json::{Value, json};

/// `input` with the own names of `tool`.
pub(crate) fn own_names(tool: &str, input: &Value) -> Result<Value, Failed> {
    let mut input = if input.is_null() {
        json!({})
    } else {
        input.clone()
    };
    if let Some(tool) = CatalogueTool::find(tool) {
        tool.translate(&mut input)
            .map_err(|error| Failed::invalid(error.to_string()))?;
    }
    Ok(input)
}

/// The calls in a batch whose input has its own names; their inputs get theirs. `None` if `tool` makes no others.
pub(crate) fn members(tool: &str, input: &mut Value) -> Result<Option<Vec<MemberCall>>, Failed> {
    if tool != BATCH {
        return Ok(None);
    }
    let parts = input.get_mut("invocations").and_then(Value::as_array_mut);
    let mut members = Vec::new();
    for (at, part) in parts.into_iter().flatten().enumerate() {
        if at == INVOCATIONS_MAX {
            let message = format!("invocations: at most {INVOCATIONS_MAX}");
            return Err(Failed::invalid(message));
        }
        // A call without a name is refused with the batch.
        let Some(name) = part["tool_name"].as_str() else {
            continue;
        };
        let tool = canonical(name).unwrap_or(name).to_owned();
        part["parameters"] = own_names(&tool, &part["parameters"])?;
        members.push(MemberCall {
            tool,
            pointer: format!("/invocations/{at}/parameters"),
        });
    }
    Ok(Some(members))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_name_of_a_field_hides_it_from_a_hook() {
        let input = own_names("bash", &json!({"cmd": "ls", "timeout_s": 3})).unwrap();
        assert_eq!(input, json!({"command": "ls", "timeout": 3}));
        let given =
            json!({"invocations": [{"tool": "Bash", "input": {"cmd": "ls"}}, {"input": {}}]});
        let mut batch = own_names(BATCH, &given).unwrap();
        let found = members(BATCH, &mut batch).unwrap().unwrap();
        assert_eq!(
            batch["invocations"][0],
            json!({"tool_name": "Bash", "parameters": {"command": "ls"}})
        );
        let named: Vec<_> = found
            .iter()
            .map(|member| (member.tool.as_str(), batch.pointer(&member.pointer)))
            .collect();
        assert_eq!(named, [("bash", Some(&json!({"command": "ls"})))]);
        assert_eq!(
            own_names("mcp__a__b", &json!({"cmd": "x"})).unwrap(),
            json!({"cmd": "x"})
        );
        assert!(own_names("bash", &json!({"cmd": "ls", "command": "rm"})).is_err());
        assert!(members("bash", &mut batch).unwrap().is_none());
    }

    #[test]
    fn a_batch_has_a_bound() {
        let of = |count: usize| {
            let part = json!({"tool_name": "bash", "parameters": {"command": "ls"}});
            let mut batch = json!({"invocations": vec![part; count]});
            members(BATCH, &mut batch)
        };
        assert_eq!(of(INVOCATIONS_MAX).unwrap().unwrap().len(), INVOCATIONS_MAX);
        assert!(of(INVOCATIONS_MAX + 1).is_err());
    }
}
