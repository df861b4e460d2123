//! `lazaret policy explain`: prints the verdict on a call and which rule it comes from.

use crate::decision::{decision, refused, verdict_name};
use crate::sessions::policy;
use broker_protocol::{Command as Run, ErrorKind, Failed, Open, Request, Risk, Roots, ZonePath};
use orchestrator_launch::exit;
use orchestrator_launch::launch::ErrorForm;
use orchestrator_launch::session_options::{SessionOpening, SessionOptions};
use orchestrator_launch::stdio::print;
use orchestrator_lines::errors;
use orchestrator_tools::batch::nested;
use orchestrator_tools::catalogue::{BATCH, canonical};
use orchestrator_tools::plan::{MemberInvocation, Plan, PlanContext};
use orchestrator_tools::registry::{Entry, Registry};
use orchestrator_web::foresee;
use policies::shell::{self, Unit};
use policies::{EffectivePolicy, Facts, Judgement, Verdict, WebPolicy};
use serde_json::{Value, json};

/// Prints the verdict on a call; for a batch, on each call in it.
pub(super) fn explain(
    options: &SessionOptions,
    tool: &str,
    input: &str,
    json: bool,
) -> Result<u8, Failed> {
    let input: Value = serde_json::from_str(input)
        .map_err(|error| Failed::invalid(format!("the input is not JSON: {error}")))?;
    let policy = policy(options)?;
    let place = CallPlace::of(options)?;
    let calls = match decidable(tool, input, &place.context(), &policy.web) {
        Ok(calls) => calls,
        Err(failed) => {
            print::problem(&failed.message);
            errors::print_failed(&ErrorForm::object(json), &failed);
            return Ok(exit::USAGE);
        }
    };
    let facts: Vec<Facts> = calls.iter().map(DecidableCall::facts).collect();
    let explain = |(call, facts)| Explanation::new(call, facts, &policy);
    let explanations: Vec<Explanation> = calls.iter().zip(&facts).map(explain).collect();
    if json {
        print::json(&all_to_json(&explanations))?;
    } else {
        let pages: Vec<String> = explanations.iter().map(Explanation::page).collect();
        print::result(print::shown(&pages.join("\n")).as_bytes())?;
    }
    Ok(exit::OK)
}

/// Where calls of a session would work.
pub(super) struct CallPlace {
    roots: Roots,
    names: Vec<String>,
    directory: Option<ZonePath>,
}

impl CallPlace {
    pub(super) fn of(options: &SessionOptions) -> Result<Self, Failed> {
        let SessionOpening {
            open, directory, ..
        } = options.open()?;
        let Open {
            project,
            central,
            names,
            ..
        } = open;
        Ok(Self {
            roots: Roots { project, central },
            names,
            directory,
        })
    }

    pub(super) fn context(&self) -> PlanContext<'_> {
        PlanContext {
            roots: &self.roots,
            names: &self.names,
            directory: self.directory.as_ref(),
            paths_from: self.directory.as_ref(),
        }
    }
}

/// A call as far as the decision needs it.
pub(super) struct DecidableCall {
    tool: String,
    risk: Risk,
    /// The request to the executor, if the call makes one.
    request: Option<Request>,
    /// Why it is refused whatever the executor decides: its path is outside the roots, or the policy for hosts refuses its address.
    refused: Option<Failed>,
}

impl DecidableCall {
    pub(super) fn facts(&self) -> Facts<'_> {
        self.request
            .as_ref()
            .map_or_else(|| Facts::bare(&self.tool, self.risk), Facts::of)
    }
}

/// Returns a call, followed by the calls in it.
pub(super) fn decidable(
    tool: &str,
    input: Value,
    context: &PlanContext<'_>,
    hosts: &WebPolicy,
) -> Result<Vec<DecidableCall>, Failed> {
    let entry = Registry::default().with_models().get(tool)?;
    let (tool, risk) = (entry.name().to_owned(), entry.risk());
    let mut first = DecidableCall {
        tool,
        risk,
        request: None,
        refused: None,
    };
    let plan = match &entry {
        Entry::Registered(tool) => Plan::Request(Request::Effect(tool.effect(input))),
        Entry::BuiltIn(tool) => match tool.plan(input, context).map_err(Failed::from) {
            Ok(planned) => planned.plan,
            Err(failed) if failed.kind == ErrorKind::Violation => {
                first.refused = Some(failed);
                return Ok(vec![first]);
            }
            Err(failed) => return Err(failed),
        },
    };
    if let Plan::Web(wanted) = &plan {
        first.refused = foresee(hosts, wanted).map_err(Failed::from).err();
    }
    if let Plan::Batch(calls) = plan {
        let mut all = vec![first];
        for MemberInvocation { tool, input } in calls {
            if canonical(&tool) == Some(BATCH) {
                return Err(nested());
            }
            all.append(&mut decidable(&tool, input, context, hosts)?);
        }
        return Ok(all);
    }
    first.request = plan.decisive_request();
    Ok(vec![first])
}

/// The verdict on a call, and its origin.
pub(super) struct Explanation<'a> {
    tool: &'a str,
    facts: &'a Facts<'a>,
    policy: &'a EffectivePolicy,
    pub(crate) judgement: Judgement<'a>,
}

/// One call as an object, or a batch with its calls.
fn all_to_json(explanations: &[Explanation]) -> Value {
    let mut calls = explanations.iter().map(Explanation::to_json);
    let mut first = calls.next().unwrap_or_default();
    if explanations
        .first()
        .is_some_and(|first| first.tool == BATCH)
    {
        first["calls"] = calls.collect();
    }
    first
}

impl<'a> Explanation<'a> {
    pub(super) fn new(
        call: &'a DecidableCall,
        facts: &'a Facts<'a>,
        policy: &'a EffectivePolicy,
    ) -> Self {
        let decision = decision(policy, &call.tool, facts);
        // The scope is checked before the path, and a host only after the executor has permitted the call.
        let judgement = match (&decision.verdict, &call.refused) {
            (Verdict::Deny(_), _) | (_, None) => decision,
            (_, Some(failed)) => refused(failed),
        };
        Self {
            tool: &call.tool,
            facts,
            policy,
            judgement,
        }
    }

    fn why(&self) -> String {
        self.judgement.why.clone().unwrap_or_else(|| {
            let (trust, risk) = (self.policy.trust.name(), self.facts.risk.name());
            format!("No rule is about it, and a {trust} session does not ask before calls of {risk} risk.")
        })
    }

    fn page(&self) -> String {
        let rule = self.judgement.rule.as_deref().unwrap_or("-");
        let place = self
            .judgement
            .origin
            .map_or("built in".to_owned(), ToString::to_string);
        let mut page = format!(
            "tool     {}\nverdict  {}\nrule     {rule}\nwhy      {}\nwhere    {place}\ntrust    {}\nrisk     {}\n",
            self.tool,
            verdict_name(&self.judgement.verdict),
            self.why(),
            self.policy.trust.name(),
            self.facts.risk.name(),
        );
        if !self.policy.hides {
            let profile = &self.policy.profile;
            page.push_str(&format!("names    the profile `{profile}` hides none\n"));
        }
        for unit in self.units() {
            page.push_str(&format!("command  {}\n", unit_text(&unit)));
        }
        page
    }

    fn units(&self) -> Vec<Unit> {
        self.facts
            .command
            .map(|command: &Run| shell::units(command))
            .unwrap_or_default()
    }

    fn to_json(&self) -> Value {
        let unit = |unit: &Unit| match unit {
            Unit::Simple(simple) => {
                json!({ "words": simple.words, "marked": simple.sets_or_writes })
            }
            Unit::Unparsed(reason) => json!({ "unparsed": reason }),
        };
        json!({
            "tool": self.tool,
            "verdict": verdict_name(&self.judgement.verdict),
            "rule": self.judgement.rule,
            "why": self.why(),
            "file": self.judgement.origin.map(|origin| &origin.file),
            "line": self.judgement.origin.map(|origin| origin.line),
            "risk": self.facts.risk.name(),
            "trust": self.policy.trust.name(),
            "profile": self.policy.profile,
            "hides": self.policy.hides,
            "commands": self.units().iter().map(unit).collect::<Vec<_>>(),
        })
    }
}

fn unit_text(unit: &Unit) -> String {
    match unit {
        Unit::Simple(simple) => {
            let word = |word: &Option<String>| {
                word.as_ref()
                    .map_or("(?)".to_owned(), |word| format!("{word:?}"))
            };
            simple.words.iter().map(word).collect::<Vec<_>>().join(" ")
        }
        Unit::Unparsed(reason) => format!("not parsed: {reason}"),
    }
}
