//! Denials of a call, as JSON for results and as a line for a model or a user.

use broker_protocol::{Barrier, Denial, Denials, PolicyRule, Remedy};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// Denials that a model's line names; of the others it gives the number.
const NAMED: usize = 4;

/// [`Denial`] in JSON.
#[derive(Serialize)]
pub struct DenialJson<'a> {
    what: AttemptJson<'a>,
    by: BarrierJson<'a>,
    why: &'a str,
    /// `null` if nothing would open it.
    remedy: Option<RemedyJson<'a>>,
    count: u32,
}

#[derive(Serialize)]
struct AttemptJson<'a> {
    kind: &'static str,
    target: &'a str,
}

#[derive(Serialize)]
struct BarrierJson<'a> {
    /// `layer`, `limit`, `rule` or `hosts`.
    kind: &'static str,
    /// The name of the layer, the limit or the rule; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The rule behind a denial by a layer or by the list of hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    /// `FILE:LINE` of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum RemedyJson<'a> {
    Policy(&'a str),
    Option(&'a str),
    Advice(&'a str),
}

impl<'a> From<&'a Denial> for DenialJson<'a> {
    fn from(denial: &'a Denial) -> Self {
        let Denial {
            what,
            by,
            why,
            remedy,
            lease: _,
            count,
        } = denial;
        let (kind, name, rule) = match by {
            Barrier::Layer(layer, rule) => ("layer", Some(layer.name()), rule.as_ref()),
            Barrier::Limit(key) => ("limit", Some(key.as_str()), None),
            Barrier::Rule(rule) => ("rule", Some(rule.name.as_str()), Some(rule)),
            Barrier::Hosts(rule) => ("hosts", None, rule.as_ref()),
            Barrier::Gateway => ("gateway", None, None),
        };
        let at = rule.and_then(|rule| rule.at.as_deref());
        let rule = rule
            .filter(|_| kind != "rule")
            .map(|rule: &PolicyRule| rule.name.as_str());
        let remedy = match remedy {
            Remedy::Policy(text) => Some(RemedyJson::Policy(text)),
            Remedy::Option(text) => Some(RemedyJson::Option(text)),
            Remedy::Advice(text) => Some(RemedyJson::Advice(text)),
            Remedy::Nothing => None,
        };
        let what = AttemptJson {
            kind: what.kind.name(),
            target: &what.target,
        };
        Self {
            what,
            by: BarrierJson {
                kind,
                name,
                rule,
                at,
            },
            why,
            remedy,
            count: *count,
        }
    }
}

/// The fields of a call's metadata: `denied`, and `deniedMore` if the list is incomplete.
pub(crate) fn fields<S: Serializer>(denied: &Denials, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    if !denied.is_empty() {
        let list: Vec<DenialJson> = denied.list().iter().map(DenialJson::from).collect();
        map.serialize_entry("denied", &list)?;
    }
    if denied.more() > 0 {
        map.serialize_entry("deniedMore", &denied.more())?;
    }
    map.end()
}

/// One line that reports the denials of a call, if there are any to report.
pub fn line(denied: &Denials) -> Option<String> {
    let denials = denied.list();
    match denials {
        [] => return None,
        // The error already names the rule and its reason.
        [
            Denial {
                by: Barrier::Rule(rule),
                remedy,
                ..
            },
        ] => {
            let at = rule
                .at
                .as_ref()
                .map(|at| format!("{at}; "))
                .unwrap_or_default();
            return Some(format!("[{at}{remedy}]"));
        }
        _ => {}
    }
    let named: Vec<String> = denials
        .iter()
        .take(NAMED)
        .map(|denial| denial.to_string())
        .collect();
    let unnamed = (denials.len() - named.len()) as u64 + denied.more();
    let more = if unnamed > 0 {
        format!("; and {unnamed} more")
    } else {
        String::new()
    };
    Some(format!("[denied: {}{more}]", named.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Details, Metadata};
    use crate::result::ToolResult;
    use broker_protocol::{AttemptKind, ErrorKind, Failed, Layer};
    use serde_json::json;

    fn failed() -> Failed {
        Failed {
            kind: ErrorKind::Internal,
            message: "it failed".into(),
        }
    }

    fn denial(kind: AttemptKind, target: &str, layer: Layer) -> Denial {
        Denial::new(
            kind,
            target,
            Barrier::Layer(layer, None),
            "Why.",
            Remedy::Nothing,
        )
    }

    fn metadata(denials: Vec<Denial>) -> Metadata {
        let mut metadata = Metadata::of("bash".into(), Details::None);
        denials
            .into_iter()
            .for_each(|denial| metadata.denied.push(denial));
        metadata
    }

    #[test]
    fn each_barrier_and_remedy_has_its_json() {
        let rule = || PolicyRule {
            name: "rule:user:3".into(),
            at: Some("/p:3".into()),
        };
        let new = |by, remedy| Denial::new(AttemptKind::Call, "bash", by, "Why.", remedy);
        let all = metadata(vec![
            new(
                Barrier::Layer(Layer::ProtectedNames, Some(rule())),
                Remedy::Nothing,
            ),
            new(Barrier::Limit("memory".into()), Remedy::Policy("p".into())),
            new(Barrier::Rule(rule()), Remedy::Advice("a".into())),
            new(
                Barrier::Hosts(None),
                Remedy::Option("--allow-host x".into()),
            ),
        ]);
        let denied = &json!(all)["denied"];
        let what = json!({"kind": "call", "target": "bash"});
        assert_eq!(
            denied[0],
            json!({
                "what": what, "why": "Why.", "remedy": null, "count": 1,
                "by": {"kind": "layer", "name": "protected-names", "rule": "rule:user:3", "at": "/p:3"},
            })
        );
        assert_eq!(
            (&denied[1]["by"], &denied[1]["remedy"]),
            (
                &json!({"kind": "limit", "name": "memory"}),
                &json!({"policy": "p"})
            )
        );
        assert_eq!(
            denied[2]["by"],
            json!({"kind": "rule", "name": "rule:user:3", "at": "/p:3"})
        );
        assert_eq!(denied[2]["remedy"], json!({"advice": "a"}));
        assert_eq!(
            (&denied[3]["by"], &denied[3]["remedy"]),
            (
                &json!({"kind": "hosts"}),
                &json!({"option": "--allow-host x"})
            )
        );
        assert_eq!(json!(metadata(vec![])).get("denied"), None);
    }

    #[test]
    fn a_call_that_succeeded_reports_no_denial() {
        let read = denial(AttemptKind::Read, "/etc/x", Layer::LandlockFiles);
        let outside = denial(AttemptKind::Write, "/usr/x", Layer::MountNamespace);
        let hook = denial(AttemptKind::Write, ".git/hooks/x", Layer::ProtectedNames);
        let all = metadata(vec![read, outside, hook]);
        let mut success = ToolResult::success("bash", "x", Details::None);
        success.metadata.denied = all.denied.clone();
        success.tell_denials();
        assert_eq!(success.text, b"x");
        assert!(success.metadata.stderr.is_none());
        let mut failed = ToolResult::failed("bash", failed());
        failed.metadata.denied = all.denied.clone();
        failed.tell_denials();
        let message = failed.error.unwrap().message;
        assert!(message.starts_with("it failed [denied: "), "{message}");
        let line = super::line(&all.denied).unwrap();
        assert!(
            line.starts_with("[denied: read /etc/x: ") && line.matches("Why.").count() == 3,
            "{line}"
        );
        assert_eq!(super::line(&metadata(vec![]).denied), None);
    }

    #[test]
    fn a_line_names_four_and_counts_the_rest() {
        let many =
            (0..20).map(|at| denial(AttemptKind::Write, &format!("x{at}"), Layer::ProtectedNames));
        let line = super::line(&metadata(many.collect()).denied).unwrap();
        assert!(
            line.contains("x3: ") && !line.contains("x4: ") && line.ends_with("; and 16 more]"),
            "{line}"
        );
    }
}
