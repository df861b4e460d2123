//! `lazaret policy matrix`: prints the verdict on every tool for each level of trust.

use crate::decision::{decision, verdict_name};
use crate::sessions::policy;
use broker_protocol::{Failed, Risk, Trust};
use orchestrator_launch::exit;
use orchestrator_launch::session_options::SessionOptions;
use orchestrator_launch::stdio::print;
use orchestrator_tools::catalogue::{TOOLS, policy_name};
use policies::{EffectivePolicy, Facts};
use serde_json::{Value, json};

pub(super) fn matrix(options: &SessionOptions, json: bool) -> Result<u8, Failed> {
    let policy = policy(options)?;
    let rows = TOOLS
        .iter()
        .map(|tool| {
            Ok((
                (tool.name, tool.risk.name()),
                row(&policy, tool.name, tool.risk)?,
            ))
        })
        .collect::<Result<Vec<_>, Failed>>()?;
    if json {
        let row = |((tool, risk), [supervised, guided, autonomous]): &((&str, &str), [&str; 3])| json!({ "tool": tool, "risk": risk, "supervised": supervised, "guided": guided, "autonomous": autonomous });
        print::json(&rows.iter().map(row).collect::<Vec<Value>>())?;
        return Ok(exit::OK);
    }
    let mut table = format!(
        "{:<17}{:<8}{:<12}{:<8}{}\n",
        "TOOL", "RISK", "SUPERVISED", "GUIDED", "AUTONOMOUS"
    );
    for ((tool, risk), [supervised, guided, autonomous]) in rows {
        table.push_str(&format!(
            "{tool:<17}{risk:<8}{supervised:<12}{guided:<8}{autonomous}\n"
        ));
    }
    print::result(table.as_bytes())?;
    Ok(exit::OK)
}

/// The verdict for each level of trust if only the tool is known: rules that depend on anything else do not count.
fn row(policy: &EffectivePolicy, tool: &str, risk: Risk) -> Result<[&'static str; 3], Failed> {
    let mut row = [""; 3];
    for (cell, trust) in row.iter_mut().zip(Trust::ALL) {
        let policy = policy
            .clone()
            .narrow(policy.scope.as_ref(), trust)
            .map_err(Failed::from)?;
        *cell =
            verdict_name(&decision(&policy, tool, &Facts::bare(policy_name(tool), risk)).verdict);
    }
    Ok(row)
}
