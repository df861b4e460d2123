//! The first line of a session, and of each session that replaces a lost one: it reports what is in force.

use broker_protocol::{Channel, LayerState, Open, Opened, Trust, ZonePath};
use policies::choice::FoundKind;
use policies::{Choice, EffectivePolicy, PolicyError};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Serialize;

/// Version of the lines of `lazaret session`. It is raised when a client written for the previous version would be misled.
pub const PROTOCOL: u32 = 1;

/// What a session needs approval for and how many violations it tolerates.
#[derive(Clone, Debug)]
pub struct Announced {
    /// The working directory of commands that name none, below the project root.
    cwd: String,
    /// The trust in force; `None` if the policy cannot be read here.
    trust: Option<Trust>,
    /// The channel for approvals; `None` likewise.
    channel: Option<Channel>,
    /// How many violations end the session; `None`: any number is tolerated.
    max_violations: Option<u32>,
    /// How the profile was chosen, if the project chose it.
    found: Option<FoundKind>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Ready<'a> {
    protocol: u32,
    /// The program's version, for people and bug reports: which lines a client may send depends on `protocol`.
    version: &'static str,
    session: SessionJson<'a>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
struct SessionJson<'a> {
    id: &'a str,
    project: &'a str,
    cwd: &'a str,
    central: &'a str,
    profile: &'a str,
    /// The project's files that selected the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_by: Option<&'a [String]>,
    /// Other profiles that would have matched.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    profile_others: &'a [String],
    policy: String,
    tier: &'static str,
    layers: Vec<&'static str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    also_closed: &'a [String],
    /// How files of secrets are seen, and what the policy opens.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notices: &'a [String],
    /// What commands may reach; the policy files' maximum follows in the next field.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    hosts: &'a [String],
    trust: Option<&'static str>,
    channel: Option<&'static str>,
    max_violations: Option<u32>,
}

impl Announced {
    /// What holds in the session that `open` requests. Commands start in `directory`, or else in the project root.
    pub fn new(
        policy: &Result<EffectivePolicy, PolicyError>,
        open: &Open,
        directory: Option<&ZonePath>,
        max_violations: Option<u32>,
    ) -> Self {
        let narrowed = policy.as_ref().ok().cloned();
        let narrowed =
            narrowed.and_then(|policy| policy.narrow(open.scope.as_ref(), open.trust).ok());
        let trust = narrowed.as_ref().map(|policy| policy.trust);
        let cwd = directory.map_or(".".to_owned(), ToString::to_string);
        let channel = narrowed.map(|policy| policy.approval.channel);
        Self {
            cwd,
            trust,
            channel,
            max_violations,
            found: None,
        }
    }

    /// Adds how the profile was chosen.
    #[must_use]
    pub fn chosen(self, choice: &Choice) -> Self {
        Self {
            found: choice.found.clone(),
            ..self
        }
    }
}

fn hosts(opened: &Opened) -> &[String] {
    let own = opened
        .network
        .as_ref()
        .and_then(|network| network.lists.first());
    own.and_then(|own| own.allow.as_deref()).unwrap_or_default()
}

impl<'a> Ready<'a> {
    /// The line for a session that the executor has opened.
    pub fn new(opened: &'a Opened, announced: &'a Announced) -> Self {
        let in_force = opened
            .layers
            .iter()
            .filter(|report| matches!(report.state, LayerState::InForce(_)));
        let found = announced.found.as_ref();
        let session = SessionJson {
            id: &opened.session,
            project: &opened.project,
            cwd: &announced.cwd,
            central: &opened.central,
            profile: &opened.profile,
            profile_by: found.map(|found| found.files.as_slice()),
            profile_others: found.map_or(&[], |found| &found.others),
            policy: opened.policy.to_string(),
            tier: opened.tier.name(),
            layers: in_force.map(|report| report.layer.name()).collect(),
            also_closed: &opened.also_closed,
            notices: &opened.notices,
            hosts: hosts(opened),
            trust: announced.trust.map(Trust::name),
            channel: announced.channel.map(Channel::name),
            max_violations: announced.max_violations,
        };
        Self {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION"),
            session,
        }
    }
}
