//! Notices to people when a session opens: parts that its policy opens and that are closed otherwise.

use crate::sandbox::SandboxSpec;
use broker_protocol::GatewaySupply;
use policies::EffectivePolicy;
use policies::ports::PortPolicy;

/// Why a session has no namespaces.
pub fn flat(refusal: &str) -> String {
    format!("the flat tier, without namespaces: {refusal}")
}

/// Ports of this machine that the session's commands reach, and those that lead to theirs, for people.
pub fn ports(ports: &PortPolicy) -> Vec<String> {
    let list: Vec<String> = ports.connect.iter().map(u16::to_string).collect();
    let list = list.join(", ");
    let reached = (!list.is_empty())
        .then(|| format!("commands reach this machine's 127.0.0.1 at port {list}"));
    let published = ports.publish.iter().map(|port| {
        let (machine, cell) = (port.machine, port.cell);
        format!("127.0.0.1:{machine} of this machine leads to port {cell} of commands")
    });
    reached.into_iter().chain(published).collect()
}

/// The notice for gateways that the client starts.
pub fn gateway_of(supply: GatewaySupply) -> Option<String> {
    match supply {
        GatewaySupply::Executor => None,
        GatewaySupply::Client => Some(
            "the client starts the gateway: commands connect from its network, and it enforces which hosts they reach"
                .to_owned(),
        ),
    }
}

/// The notice for a profile that hides nothing.
pub fn hidden_nothing(spec: &SandboxSpec) -> Option<String> {
    let tmp = match spec.shows_names() {
        true => ", and write to this machine's /tmp and /dev/shm",
        false => "",
    };
    (!spec.policy.hides).then(|| {
        format!(
            "the profile `{}` hides nothing by name: commands read all files of both roots, secrets too{tmp}",
            spec.policy.profile
        )
    })
}

/// The notice about protected names that the profile opens.
pub fn opened_names(policy: &EffectivePolicy) -> Option<String> {
    let names = policy
        .opened
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ");
    let what = "on which programs act outside the sandbox";
    (!names.is_empty()).then(|| {
        format!(
            "the profile `{}` lets commands change {names}, {what}",
            policy.profile
        )
    })
}
