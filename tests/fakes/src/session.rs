//! The opening of a session, and the answer of the broker.

use broker_protocol::{Digest, Layer, LayerReport, LayerState, Open, Opened, Tier};

/// A session of the user's default profile, with nothing that is optional, for calls that need no approval.
pub fn open(project: &str, central: &str) -> Open {
    Open {
        central: central.into(),
        ..Open::new(project.into())
    }
}

/// The session on the connection of this number.
pub fn opened(number: u8) -> Opened {
    let in_force = LayerReport {
        layer: Layer::Seccomp,
        state: LayerState::InForce("all".into()),
    };
    let state = LayerState::Missing {
        why: "w".into(),
        lost: "l".into(),
    };
    Opened {
        project: "/p".into(),
        central: "/c".into(),
        profile: "default".into(),
        policy: Digest([7; 32]),
        tier: Tier::Namespaced,
        layers: vec![
            in_force,
            LayerReport {
                layer: Layer::Cgroup,
                state,
            },
        ],
        session: format!("{:02x}", 0x5e + number).repeat(16),
        also_closed: vec![],
        over_bounds: 0,
        notices: vec![],
        network: None,
    }
}
