//! A tool that a client offers and carries out itself: the same for `register` of `lazaret session` and `tool:register` of `serve`.

use broker_protocol::Risk;
#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::Value;

/// A tool of the client's own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Registration {
    /// 1 to 64 letters, digits, `_` or `-`, not beginning with `mcp__`.
    pub name: String,
    /// Its purpose, in words for the model.
    pub description: String,
    /// Its input, as JSON Schema 2020-12.
    #[serde(alias = "input_schema")]
    pub input_schema: Value,
    /// How much harm it can do, as the client believes; absent, `high`.
    #[serde(default = "high")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "risk_names"))]
    pub risk: Risk,
    /// How long a call may take, in seconds, 1 to 600; absent, 60.
    #[cfg_attr(feature = "schema", schemars(range(max = u32::MAX)))]
    pub timeout: Option<u32>,
}

const fn high() -> Risk {
    Risk::High
}

/// The names are those of [`Risk`], which is not described by itself.
#[cfg(feature = "schema")]
fn risk_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": Risk::ALL.map(Risk::name), "default": Risk::High.name() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn each_risk_has_one_name_and_the_highest_is_assumed() {
        let tool = |risk: Option<&str>| {
            let mut tool = json!({"name": "t", "description": "d", "inputSchema": {}});
            if let Some(risk) = risk {
                tool["risk"] = risk.into();
            }
            from_value::<Registration>(tool).map(|tool| tool.risk)
        };
        for risk in Risk::ALL {
            assert_eq!(tool(Some(risk.name())).unwrap(), risk);
        }
        assert_eq!(tool(None).unwrap(), Risk::High);
        for wrong in ["", "High", "none", "critical"] {
            assert!(tool(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
