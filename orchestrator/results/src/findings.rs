//! What checks after calls have found in the project, as JSON for results and as lines for a model or a user.

use broker_protocol::{Finding, Findings, FoundObject};
use serde::Serialize;
use serde::ser::Serializer;
use serde_json::{Value, json};

/// [`Finding`] in JSON.
#[derive(Serialize)]
struct FindingJson<'a> {
    kind: &'static str,
    count: u64,
    /// The first of them.
    objects: Vec<ObjectJson<'a>>,
    why: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'a str>,
}

#[derive(Serialize)]
struct ObjectJson<'a> {
    target: &'a str,
    /// What was done about it, or where it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a str>,
}

impl<'a> From<&'a Finding> for FindingJson<'a> {
    fn from(finding: &'a Finding) -> Self {
        let Finding {
            kind,
            objects,
            count,
            why,
            advice,
        } = finding;
        let object = |object: &'a FoundObject| ObjectJson {
            target: &object.target,
            state: object.state.as_deref(),
        };
        let objects = objects.iter().map(object).collect();
        Self {
            kind: kind.name(),
            count: *count,
            objects,
            why,
            advice: advice.as_deref(),
        }
    }
}

/// The field `found` of a call's metadata.
pub(crate) fn field<S: Serializer>(found: &Findings, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(found.list().iter().map(FindingJson::from))
}

/// The same for a report that is no call's result.
pub fn json(found: &Findings) -> Value {
    found
        .list()
        .iter()
        .map(|finding| json!(FindingJson::from(finding)))
        .collect()
}

/// One line a kind, if anything was found: no refusal and no other finding takes its place.
pub fn lines(found: &Findings) -> Option<String> {
    let lines: Vec<String> = found
        .list()
        .iter()
        .map(|finding| format!("[found: {finding}]"))
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Details, Metadata};
    use broker_protocol::FindingKind;
    use serde_json::json;

    fn found() -> Findings {
        let mut found = Findings::default();
        for name in ["a.lock", "b.lock"] {
            found.push(Finding::new(FindingKind::Lock, name, "A lock.").with_advice("remove it"));
        }
        found
            .push(Finding::new(FindingKind::PromptText, "msgnum", "A text.").with_state("removed"));
        found
    }

    #[test]
    fn each_kind_has_a_line_and_an_object_in_json() {
        let want = "[found: prompt text: msgnum (removed): A text.]\n[found: lock: a.lock, b.lock: A lock. [remove it]]";
        assert_eq!(lines(&found()).as_deref(), Some(want));
        assert_eq!(lines(&Findings::default()), None);
        let metadata = Metadata {
            found: found(),
            ..Metadata::of("bash".into(), Details::None)
        };
        let want = json!([
            {"kind": "prompt_text", "count": 1, "objects": [{"target": "msgnum", "state": "removed"}], "why": "A text."},
            {"kind": "lock", "count": 2, "objects": [{"target": "a.lock"}, {"target": "b.lock"}], "why": "A lock.",
             "advice": "remove it"},
        ]);
        assert_eq!(json!(metadata)["found"], want);
        assert_eq!(
            json!(Metadata::of("bash".into(), Details::None)).get("found"),
            None
        );
    }
}
