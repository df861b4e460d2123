//! Decides whether a request may be carried out: by its limits, the policy, and the approvals. Only
//! [`Granted`] may run, and only a [`GrantedPreview`] is shown; both are made only here, and only after the audit has its entry.

use crate::approvals::{Approvals, changed_file};
use crate::fault::failed;
use crate::roots;
use crate::user::User;
use broker_protocol::{
    CallId, Challenge, Denials, ErrorKind, Extent, FileRead, Leased, Outcome, Refused, Request,
    Risk, Wants, ZonePath, limit,
};
use executor_audit::audit::{AuditError, AuditWriter, PendingHead};
use executor_audit::record::Record;
use executor_layers::zone_leases;
use executor_leases::{LeasedPath, Leases, Missing, Places, RULE};
use executor_spec::sandbox::SandboxSpec;
use policies::{EffectivePolicy, Question, Verdict, decide, decide_leased, decide_real};
use std::path::Path;

/// The proof that a call was decided and recorded. There is one for each decision, and what uses it up takes it by value.
#[derive(Debug)]
pub(crate) struct Permit {
    call: CallId,
}

impl Permit {
    /// The work that is done with it.
    pub(crate) fn for_work<T>(self, work: T) -> Granted<T> {
        Granted { permit: self, work }
    }
}

/// A request, or the work planned for it, that may be carried out once.
#[derive(Debug)]
pub(crate) struct Granted<T = Request> {
    permit: Permit,
    work: T,
}

impl Granted {
    fn record(
        call: CallId,
        request: Request,
        approval: Option<(String, Extent)>,
        audit: &mut AuditWriter,
    ) -> Result<Authorised, AuditError> {
        let pending_head = audit.open_entry_and_start(call, &request, approval)?;
        Ok(Authorised::Granted(
            Permit { call }.for_work(request),
            pending_head,
        ))
    }
}

impl<T> Granted<T> {
    pub(crate) fn call(&self) -> CallId {
        self.permit.call
    }

    pub(crate) fn work(&self) -> &T {
        &self.work
    }

    pub(crate) fn work_mut(&mut self) -> &mut T {
        &mut self.work
    }

    /// Carries it out: the permit is gone with it.
    pub(crate) fn into_work(self) -> T {
        self.work
    }

    pub(crate) fn into_parts(self) -> (Permit, T) {
        (self.permit, self.work)
    }
}

/// A read of the file that a waiting call would change, for an approver or the client. Decided as a read of that file, and recorded.
#[derive(Debug)]
pub(crate) struct GrantedPreview(PreviewParts);

/// The parts of a granted preview.
#[derive(Debug)]
pub(crate) struct PreviewParts {
    pub approver: Option<u64>,
    pub call: CallId,
    pub read: Request,
    /// The places to which links may lead.
    pub real: Vec<ZonePath>,
    pub followed: bool,
}

impl GrantedPreview {
    pub(crate) fn into_parts(self) -> PreviewParts {
        self.0
    }
}

/// What an approver, or the client if there is none, wants to see of a waiting call.
#[derive(Debug)]
pub(crate) struct PreviewRequest<'c> {
    pub approver: Option<u64>,
    pub call: CallId,
    /// The request of the call.
    pub request: &'c Request,
    /// The targets of links on its path, as far as they have been followed.
    pub real: &'c [ZonePath],
    /// Whether a link has led elsewhere since it was requested.
    pub followed: bool,
}

/// Decides who may see the file that a call would change: nobody if the policy denies reading it. What the policy asks about is shown to
/// an approver, who is the one to answer, and not to the client. `None` also if the call changes no file.
///
/// # Errors
/// The audit cannot be written.
pub(crate) fn authorise_preview(
    wanted: PreviewRequest,
    policy: &EffectivePolicy,
    audit: &mut AuditWriter,
) -> Result<Option<GrantedPreview>, AuditError> {
    let PreviewRequest {
        approver,
        call,
        request,
        real,
        followed,
    } = wanted;
    let Some(path) = changed_file(request) else {
        return Ok(None);
    };
    let read = Request::FileRead(FileRead {
        path: path.clone(),
        offset: None,
        limit: None,
    });
    match (verdict(policy, &read, real), approver) {
        (Verdict::Deny(_), _) | (Verdict::Ask(_), None) => Ok(None),
        (Verdict::Allow, _) | (Verdict::Ask(_), Some(_)) => {
            let shown = audit.redacted(&real.last().unwrap_or(path).to_string());
            audit.append(&Record::preview(call, &shown))?;
            Ok(Some(GrantedPreview(PreviewParts {
                approver,
                call,
                read,
                real: real.to_vec(),
                followed,
            })))
        }
    }
}

/// The decision on a request.
#[derive(Debug)]
pub(crate) enum Authorised {
    /// It runs; its record is to be completed as soon as it is on its way.
    Granted(Granted, PendingHead),
    /// It waits for an approval that answers this challenge.
    Asked(Request, Challenge),
    /// It will not run; the denials say why.
    NotRun(Outcome, Denials),
}

/// A call whose request is new, has been approved, or leads elsewhere by a link.
#[derive(Debug)]
pub(crate) struct Submission<'c> {
    pub call: CallId,
    /// The targets of links on its path, as far as they have been followed.
    pub real: &'c [ZonePath],
    /// The hosts and paths it requests beyond what the session has.
    pub wants: &'c Wants,
    /// The rule whose question was answered, and the extent of the answer.
    pub approval: Option<(String, Extent)>,
}

/// The number of calls that the session has in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub calls: usize,
    /// Background processes that are alive or waiting for a cell.
    pub background: usize,
}

/// Decides a call's request.
///
/// # Errors
/// The audit cannot be written.
pub(crate) fn authorise(
    submission: Submission,
    request: Request,
    load: Load,
    (spec, user): (&SandboxSpec, &User),
    approvals: &mut Approvals,
    audit: &mut AuditWriter,
) -> Result<Authorised, AuditError> {
    let Submission {
        call,
        real,
        wants,
        approval,
    } = submission;
    // What was approved is not judged again: `approvals` has taken the answer only with the digest of the stored request, its policy
    // and its paths, and the nonce of its one question, and this is that request.
    if approval.is_some() {
        return Granted::record(call, request, approval, audit);
    }
    let verdict = match refuse(&request, wants, load) {
        Some(outcome) => {
            audit.open_entry(call, &request, None);
            return Ok(Authorised::NotRun(outcome, Denials::default()));
        }
        None => verdict(&spec.policy, &request, real),
    };
    let lease = file_lease(&verdict, &request, real, spec);
    let verdict = match lease {
        Some(_) => decide_leased(&spec.policy, &request),
        None => verdict,
    };
    let missing = in_places(spec, user, |places| match lease {
        Some(opens) if wants.is_empty() => approvals.leases.missing_file(call, opens, places),
        Some(_) | None => approvals.leases.missing(call, wants, &request, places),
    });
    let (verdict, missing) = match missing {
        Ok(missing) => (also_ask(verdict, &request, &missing), missing),
        Err(refused) => (also_refuse(verdict, refused), Missing::default()),
    };
    match verdict {
        Verdict::Allow => Granted::record(call, request, None, audit),
        Verdict::Ask(question)
            if missing.wants.is_empty() && approvals.covers(&question, &request, real, spec) =>
        {
            let approval = (question.rule, Extent::Session);
            Granted::record(call, request, Some(approval), audit)
        }
        Verdict::Ask(question) => {
            audit.open_entry(call, &request, Some(question.rule.clone()));
            Ok(
                match approvals.ask(call, &request, real, (question, missing), spec) {
                    Ok(challenge) => Authorised::Asked(request, challenge),
                    Err(failed) => Authorised::NotRun(Outcome::Failed(failed), Denials::default()),
                },
            )
        }
        Verdict::Deny(refused) => {
            audit.open_entry(call, &request, None);
            Ok(denied(&spec.policy, &request, refused))
        }
    }
}

fn denied(policy: &EffectivePolicy, request: &Request, refused: Refused) -> Authorised {
    let mut denied = Denials::default();
    denied.push(policy.denied_request(request, &refused));
    Authorised::NotRun(Outcome::Refused(refused), denied)
}

/// Opens the objects at the paths in `wants`, to lease them to the whole session.
///
/// # Errors
/// One of them cannot be granted.
pub(crate) fn open_wanted(
    wants: &Wants,
    spec: &SandboxSpec,
    user: &User,
) -> Result<Missing, Refused> {
    in_places(spec, user, |places| Leases::open_wanted(wants, places))
}

fn in_places<T>(spec: &SandboxSpec, user: &User, look: impl FnOnce(&Places) -> T) -> T {
    let closed = |path: &Path, access| roots::closed_to_leases(path, access, spec, user);
    let in_zone = |path: &Path, access| zone_leases::in_zone(path, access, spec);
    let is_shown = |path: &Path| spec.shows(path) || zone_leases::is_real(path, spec);
    look(&Places {
        policy: &spec.policy,
        closed: &closed,
        is_shown: &is_shown,
        in_zone: &in_zone,
    })
}

/// The lease with which a file tool may make a change that is denied, if one would open the file. What lies behind a link has none.
fn file_lease(
    verdict: &Verdict,
    request: &Request,
    real: &[ZonePath],
    spec: &SandboxSpec,
) -> Option<Leased> {
    match verdict {
        Verdict::Allow | Verdict::Ask(_) => None,
        Verdict::Deny(_) if real.is_empty() => zone_leases::to_edit(changed_file(request)?, spec),
        Verdict::Deny(_) => None,
    }
}

/// The policy's decision on a request. If links on its path lead elsewhere, the target is decided too, and the reason names it.
fn verdict(policy: &EffectivePolicy, request: &Request, real: &[ZonePath]) -> Verdict {
    let Some(real) = real.last() else {
        return decide(policy, request);
    };
    let why = |why| {
        format!(
            "The path leads by a link to {}. {why}",
            real.to_string().escape_debug()
        )
    };
    match decide_real(policy, request, real) {
        Verdict::Allow => Verdict::Allow,
        Verdict::Ask(question) => Verdict::Ask(Question {
            why: why(question.why),
            ..question
        }),
        Verdict::Deny(refused) => Verdict::Deny(Refused {
            why: why(refused.why),
            ..refused
        }),
    }
}

/// Makes one question out of the policy's own and that for leases the session does not have.
fn also_ask(verdict: Verdict, request: &Request, missing: &Missing) -> Verdict {
    if missing.wants.is_empty() {
        return verdict;
    }
    let hosts = Some(missing.wants.hosts.join(", ")).filter(|hosts| !hosts.is_empty());
    let hosts = hosts.map(|hosts| format!("reach {hosts}"));
    let all: Vec<_> = hosts
        .into_iter()
        .chain(missing.ports())
        .chain(missing.paths.iter().map(LeasedPath::describe))
        .collect();
    let who = match changed_file(request) {
        Some(_) => "file tools",
        None => "commands",
    };
    let why = format!(
        "It wants to {}, which {who} of this session may not.",
        all.join(", to ")
    );
    match verdict {
        Verdict::Allow => Verdict::Ask(Question {
            rule: RULE.to_owned(),
            why,
            risk: Risk::High,
            whole: false,
        }),
        Verdict::Ask(question) => Verdict::Ask(Question {
            why: format!("{why} {}", question.why),
            risk: Risk::High,
            ..question
        }),
        Verdict::Deny(refused) => Verdict::Deny(refused),
    }
}

/// Refuses a call that the policy would allow, if a lease it requests cannot be granted.
fn also_refuse(verdict: Verdict, refused: Refused) -> Verdict {
    match verdict {
        Verdict::Allow | Verdict::Ask(_) => Verdict::Deny(refused),
        Verdict::Deny(refused) => Verdict::Deny(refused),
    }
}

/// Why a request is refused before the policy is applied.
fn refuse(request: &Request, wants: &Wants, load: Load) -> Option<Outcome> {
    if let Err(error) = request.check().and_then(|()| wants.check()) {
        return Some(failed(ErrorKind::InvalidInput, error.to_string()));
    }
    if load.calls >= limit::CALLS {
        let message = format!(
            "{} calls are under way, which is the maximum; wait for one to end",
            limit::CALLS
        );
        return Some(failed(ErrorKind::ResourceLimit, message));
    }
    let background = request.command().is_some_and(|bash| bash.background);
    (background && load.background >= limit::BACKGROUND).then(|| {
        let alive = load.background;
        let message = format!(
            "{alive} background processes are running, which is the maximum; end one first"
        );
        failed(ErrorKind::ResourceLimit, message)
    })
}
